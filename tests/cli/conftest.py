"A user's folder, for the tests of the command"
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import run

from rolebregman.datasets import toy_tree


@pytest.fixture(scope="package")
def tree():
    return toy_tree(depth=4, branching=3, dim=12, seed=1)


@pytest.fixture(scope="package")
def made(tree, tmp_path_factory):
    "What each module gets a copy of"
    folder = tmp_path_factory.mktemp("made")
    names, vectors = tree.nodes["id"].to_numpy(), tree.features
    pairs = pd.DataFrame(names[np.concatenate(list(tree.edges.values()))], columns=["child", "parent"])
    pairs.to_csv(folder / "pairs.csv", index=False)
    pairs.to_csv(folder / "pairs.tsv", index=False, sep="\t")
    np.save(folder / "vectors.npy", vectors)
    (folder / "ids.txt").write_text("\n".join(names) + "\n")
    table = pd.DataFrame(vectors).rename(columns="x{}".format)
    table.assign(name=names).to_csv(folder / "vectors.csv", index=False)
    table.assign(id=names).to_parquet(folder / "vectors.parquet")
    (folder / "vectors.txt").write_text("".join(f"{n} {' '.join(map(str, v))}\n" for n, v in zip(names, vectors)))
    run("fit pairs.csv --vectors vectors.csv --epochs 4", folder)
    return folder


@pytest.fixture(scope="module")
def project(made, tmp_path_factory):
    "A user's folder: pairs and vectors in every format, and a fitted head"
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("project"), dirs_exist_ok=True))
