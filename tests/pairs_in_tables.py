"A few pairs whose ids a careless reader would change, and what a table of pairs was read as"
import pandas as pd

ROWS = [("dog", "animal"), ("null", "animal"), ("007", "agent")]
TABLE = pd.DataFrame(ROWS, columns=["child", "parent"])


def pairs_of(edges):
    return list(edges.itertuples(index=False, name=None))
