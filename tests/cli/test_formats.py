"Three users whose files are of kinds of their own: to a head, scores, and an evaluation on a later file"
import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import zstandard
from command_line import read, run


@pytest.fixture(scope="module")
def desk(tree, tmp_path_factory):
    "Pairs and later pairs as Pajek and GraphML, a German .tsv.gz, ORC and JSON; vectors as fastText, Excel and .npz"
    folder, names, x = tmp_path_factory.mktemp("desk"), tree.nodes["id"].to_numpy(), tree.features
    pairs = pd.DataFrame(names[np.concatenate(list(tree.edges.values()))], columns=["child", "parent"])
    pairs = pairs.sample(frac=1, random_state=0, ignore_index=True)
    old, new = pairs[:90], pairs[90:].reset_index(drop=True)
    nx.write_pajek(nx.DiGraph(old.to_numpy().tolist()), folder/"links.net")
    nx.write_graphml(nx.DiGraph(new.to_numpy().tolist()), folder/"later.graphml")
    for name, some in (("paare", old), ("spaeter", new)):
        some.set_axis(["Unterbegriff", "Oberbegriff"], axis=1).to_csv(folder/f"{name}.tsv.gz", sep="\t", index=False)
    old.to_orc(folder/"old.orc")
    new.to_json(folder/"new.json", orient="records")
    words = f"{len(x)} {x.shape[1]}\n" + "".join(f"{n} {' '.join(map(str, v))} \n" for n, v in zip(names, x))
    (folder/"words.vec.zst").write_bytes(zstandard.compress(words.encode()))
    pd.DataFrame(x).rename(columns="x{}".format).assign(id=names).to_excel(folder/"vektoren.xlsx", index=False)
    np.savez(folder/"v.npz", first=x, second=-x)
    (folder/"ids.txt").write_text("\n".join(names))
    old.to_csv(folder/"plain.csv", index=False)
    new.to_csv(folder/"new.csv", index=False)
    run("fit plain.csv --vectors v.npz --ids ids.txt --member first --epochs 0 --out plain", folder)
    return folder


@pytest.mark.parametrize("pairs, later, vectors, said", [
    ("links.net", "later.graphml", "words.vec.zst", ""),
    ("paare.tsv.gz", "spaeter.tsv.gz", "vektoren.xlsx", "--source unterbegriff --target OBERBEGRIFF"),
    ("old.orc", "new.json", "v.npz", "--ids ids.txt --member first")])
def test_files_of_any_kind_lead_to_a_head_that_tells_the_same_of_any_other(desk, pairs, later, vectors, said):
    "The split, too, is that of the same pairs in a CSV, and the scores those of the same vectors in another file"
    out = pairs.partition(".")[0]
    report = json.loads(run(f"fit {pairs} --vectors {vectors} {said} --epochs 2 --out {out} --json", desk).stdout)
    assert report["pairs"] == dict(train=72, valid=9, test=9)
    kept, same = (pd.read_csv(desk/folder/"split.csv").sort_values(["source", "target"]) for folder in (out, "plain"))
    assert kept.to_numpy().tolist() == same.to_numpy().tolist()
    found = json.loads(run(f"evaluate {out} {later} --json", desk).stdout)
    assert 0.5 < found["ranking_accuracy"] <= 1
    lines = [f"score {out} {later}", f"score {out} new.csv --vectors words.vec.zst"]
    own, other = (read(run(line, desk).stdout).sort_values(["source", "target"]) for line in lines)
    assert len(own) == 30 and list(own["source"]) == list(other["source"])
    np.testing.assert_allclose(own["gap"], other["gap"], rtol=1e-4, atol=1e-6)


def test_what_is_not_read_is_said_with_the_line_that_converts_it(desk):
    (desk/"terms.db").write_bytes(b"SQLite format 3\0")
    (desk/"model.pt").write_bytes(b"PK")
    told = run("fit terms.db --vectors v.npz", desk, status=1).stderr
    assert "terms.db: a database of SQLite; in Python: pd.read_sql('select * from TABLE', sqlite3.connect('ter" in told
    told = run("fit old.orc --vectors model.pt --ids ids.txt", desk, status=1).stderr
    assert "np.save('vectors.npy', torch.load('model.pt', weights_only=True)['NAME'])" in told
    assert "name one with --member" in run("fit old.orc --vectors v.npz --ids ids.txt", desk, status=1).stderr
    told = run("fit old.orc --member first --texts ids.txt", desk, status=2).stderr
    assert "--member tells a part of --vectors" in told


@pytest.mark.parametrize("sep, typed", [(";", "';'"), ("|", "'|'"), ("\t", "'\\t'")])
def test_advice_can_be_pasted_into_a_shell(desk, sep, typed):
    text = pd.read_csv(desk/"paare.tsv.gz", sep="\t").set_axis(["child", "parent"], axis=1).to_csv(index=False, sep=sep)
    (desk/"other.csv").write_text(text)
    how = "--vectors v.npz --ids ids.txt --member first --epochs 0 --out other"
    assert f"pass --sep {typed}, any" in run(f"fit other.csv {how}", desk, status=1).stderr
    run(f"fit other.csv {how} --sep {typed}", desk)
