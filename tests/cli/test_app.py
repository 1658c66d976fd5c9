"The command: what it writes, where it writes it, and how it ends"
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from command_line import PROGRAM, read, root, run

from rolebregman import __version__
from rolebregman.heads import load_head

# What one types

def commands():
    return ["fit", "evaluate", "score", "search", "explain", "study", "study ablations", "study search",
            "study role-maps", "study gains", "study more-negatives", "study rival-starts", "study gaps",
            "study graded", "study citations", "study joint",
            "explorer", "bench", "data list", "data fetch", "data show"]


@pytest.mark.parametrize("name", commands())
def test_every_example_in_the_help_is_a_command_that_exists(name):
    help = run(f"{name} --help").stdout
    examples = re.findall(r"^    ?(.*\brolebregman .*)$", help.split("Examples:")[1], re.M)
    assert examples and all(f"rolebregman {name}" in line for line in examples)
    for line in examples: # an option that is unknown is refused before --help is looked at
        run(re.split(r" [<>|] ", line.split("rolebregman ", 1)[1])[0] + " --help")
    assert "--debug" in help


def test_help_needs_neither_torch_nor_pandas():
    code = ("import sys\nfrom rolebregman.cli.app import app\nfor name in sys.argv[1:]:\n"
            "    try: app([*name.split(), '--help'])\n    except SystemExit as end: assert end.code == 0\n"
            "assert not {'torch', 'pandas', 'numpy', 'matplotlib'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code, "", *commands()], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(root)})


def test_version():
    assert run("--version").stdout == f"rolebregman {__version__}\n"


def test_the_shell_completes_names_of_commands():
    env = {**os.environ, "PYTHONPATH": str(root), "_ROLEBREGMAN_COMPLETE": "complete_bash",
           "COMP_WORDS": "rolebregman ev", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["evaluate"]


def test_an_unknown_device_is_named_with_those_there_are(project):
    said = run("evaluate head --device gpu", project, 2).stderr
    assert "'gpu' is no device to compute on here; choose from cpu" in said


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_every_command_computes_the_same_on_a_gpu(project):
    def numbers(line): return read(run(line, project).stdout).select_dtypes("number").to_numpy()
    for line in ("score head pairs.csv", "search head n00001 n00004"):
        np.testing.assert_allclose(numbers(f"{line} --device cuda"), numbers(line), rtol=1e-4, atol=1e-4)
    run("fit pairs.csv --vectors vectors.csv --epochs 2 --out gpu --device cuda", project)
    assert not load_head(project / "gpu").standardizer.mean.is_cuda
    found = json.loads(run("evaluate gpu --json --device cuda", project).stdout)
    assert found == pytest.approx(json.loads(run("evaluate gpu --json", project).stdout), abs=0.02)


# How it ends

@pytest.mark.parametrize("line", [
    "fit nowhere.csv", "fit pairs.csv --vectors nowhere.npy", "fit pairs.csv --vectors vectors.csv --head spam",
    "fit pairs.csv --vectors vectors.csv --loss spam", "fit pairs.csv --vectors vectors.csv --set spam=1",
    "fit pairs.csv --vectors vectors.csv --set lr=-1", "fit pairs.csv --vectors vectors.csv --epochs -1", "fit", "spam",
    "score head", "score nowhere pairs.csv", "score head pairs.csv --spam", "score . pairs.csv", "evaluate .",
    "evaluate head --candidates none", "evaluate head pairs.csv --part test", "search head n00001 -k 0",
    "study --heads spam", "study --seeds many", "fit pairs.csv --vectors -",
    "fit pairs.csv --vectors vectors.csv --out -", "fit pairs.csv --ids ids.txt",
    "score head pairs.csv --ids ids.txt", "score head pairs.csv --id-column name",
    "fit pairs.csv --vectors vectors.csv --set proj_dim=0", "fit pairs.csv --vectors vectors.csv --set rank=2.5",
    "fit pairs.csv --vectors vectors.csv --set hidden=8", "fit pairs.csv --vectors vectors.csv --set lr",
    "fit pairs.csv --vectors vectors.csv --set strong_convexity=much", "evaluate head --candidates ²",
    "fit pairs.csv --vectors vectors.csv --seed 99999999999999999999", "evaluate head --candidates 1000",
    "explain head n00004 n00001 --picture pair.xyz", "data show toy depth=deep",
    "data show toy depth=0", "study --seeds -1", "study --jobs -3", "evaluate head --device gpu",
    "fit pairs.csv --vectors vectors.csv --device cuda:99", "score head pairs.csv --device mps",
    "search head n00001 --device cuda:x"])
def test_wrong_usage_ends_with_2(project, line):
    done = run(line, project, 2)
    assert done.stdout == "" and "Traceback" not in done.stderr and "Error: " in done.stderr or line == "fit"


FAULTS = {
    "fit pairs.csv --vectors few.csv": "Error: pairs.csv, row 0 (the first is 0): source 'n00001' has no vector",
    "fit two.csv --vectors vectors.csv": "two.csv: 1 edges are too few to split",
    "fit pairs.csv --vectors words.csv": "Error: words.csv, row 1 (the first is 0): column 'x' holds 'spam'",
    "fit pairs.csv --vectors bare.csv": "Error: bare.csv: its first line is ['n00001', '0.1', '0.2']",
    "score head odd.csv": "among the columns ['a', 'b']; pass --source and --target",
    "score head hole.csv": "Error: hole.csv, row 1 (the first is 0): column 'target' is empty",
    "score head ragged.csv": "Error: ragged.csv: Error tokenizing data",
    "score head pairs.csv --vectors narrow.csv": "Error: narrow.csv: vectors of 2 numbers, but the head takes 12",
    "search head n0004": "Error: there is no item 'n0004' with a vector (did you mean 'n00",
    "explain plain n00004 n00001": "Error: plain holds a Euclidean, which has no potential to look into",
    "data show spam": "Error: no dataset 'spam'",
    "evaluate damaged": "report.json is damaged",
    "score strange pairs.csv": "report.json is damaged",
    "score narrower pairs.csv": "narrower/config.json is not the config that model.safetensors was saved with",
    "fit pairs.csv --vectors nan.npy --ids ids.txt": "Error: nan.npy: features: row 3, column 1 is nan",
    "fit pairs.csv --vectors vectors.npy --ids two.csv --id-column source": "Error: two.csv: ids: 1 of them for 121",
    "fit pairs.csv --vectors vectors.npy --ids twice.txt": "Error: twice.txt: ids: 'n00001' stands more than once",
    "fit pairs.csv --vectors same.npy --ids ids.txt": "Error: same.npy: features: all rows are equal",
    "fit pairs.csv --vectors vectors.csv --fractions nan 0.5 0.5": "expected three shares that sum to 1",
    "fit pairs.csv --vectors ids.md": "Error: ids.md: expected vectors in a file with one of .csv, .tsv",
    "evaluate head pairs.csv --vectors narrow.csv": "Error: narrow.csv: vectors of 2 numbers, but the head takes 12",
    "evaluate head --vectors narrow.csv": "Error: narrow.csv: vectors of 2 numbers, but the head takes 12",
}


@pytest.fixture(scope="module")
def faulty(project):
    for name, text in {
            "few.csv": "id,x\nspam,1\nspun,2\n", "two.csv": "source,target\nn00001,n00000\n",
            "ragged.csv": "source,target\na,b\nc,d,e\n", "words.csv": "id,x\nn00001,1\nn00002,spam\n",
            "bare.csv": "n00001,0.1,0.2\nn00002,0.1,0.2\n", "odd.csv": "a,b\n1,2\n",
            "hole.csv": "source,target\nn00001,n00000\nn00001,\n",
            "narrow.csv": "id,x,y\n" + "".join(f"n{i:05},1,{i}\n" for i in range(121))}.items():
        (project / name).write_text(text)
    run("fit pairs.csv --vectors vectors.csv --head euclidean --epochs 0 --out plain", project)
    shutil.copytree(project / "head", project / "damaged", dirs_exist_ok=True)
    (project / "damaged" / "report.json").write_text("{")
    shutil.copytree(project / "head", project / "strange", dirs_exist_ok=True)
    (project / "strange" / "report.json").write_text('{"inputs": {"pairs": "pairs.csv", "items": "x", "how": {}}}')
    shutil.copytree(project / "head", project / "narrower", dirs_exist_ok=True)
    about = json.loads((project / "head" / "config.json").read_text())
    about["config"]["rank"] = 5
    (project / "narrower" / "config.json").write_text(json.dumps(about))
    vectors = np.load(project / "vectors.npy")
    np.save(project / "same.npy", np.ones_like(vectors))
    vectors[3, 1] = np.nan
    np.save(project / "nan.npy", vectors)
    names = (project / "ids.txt").read_text()
    (project / "twice.txt").write_text(names.replace("n00004", "n00001"))
    (project / "ids.md").write_text(names)
    return project


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_is_one_line_and_ends_with_1(faulty, line):
    done = run(line, faulty, 1)
    before = done.stderr.startswith("training") + ("\nvectors of " in done.stderr)  # what is said of good input
    assert done.stdout == "" and done.stderr.count("\n") == 1 + before
    assert FAULTS[line] in done.stderr


def test_debug_shows_where(faulty):
    assert isinstance(run("search head spam --debug", faulty, 1).exception, ValueError)
