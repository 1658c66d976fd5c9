"""Several processes take the steps that one takes, and a group that lost one says so."""
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from rolebregman.cli.app import app
from rolebregman.datasets import toy_tree

ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS="1")


def test_several_processes_learn_what_one_does(tmp_path):
    "In float64, to its rounding; with weights, pairs of both directions, denied pairs, and hard negatives"
    script = Path(__file__).with_name("two_fits.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=300,
                          env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    for case, processes in dict(margin=2, softmax=3, plain=2).items():
        weights, rows = torch.load(tmp_path / f"{case}-1-0.pt")
        for rank in range(processes):
            found, epochs = torch.load(tmp_path / f"{case}-{processes}-{rank}.pt")
            torch.testing.assert_close(found, weights, rtol=1e-9, atol=1e-11)
            for one, other in zip(rows, epochs): assert one == pytest.approx(other, rel=1e-9, nan_ok=True)


@pytest.fixture
def project(tmp_path):
    "Pairs and vectors of a user"
    tree = toy_tree(depth=4, branching=3, dim=12, seed=1)
    names = tree.nodes["id"].to_numpy()
    rows = [",".join(names[pair]) for edges in tree.edges.values() for pair in edges]
    (tmp_path / "pairs.csv").write_text("\n".join(["child,parent", *rows]))
    vectors = [",".join([name, *map(str, vector)]) for name, vector in zip(names, tree.features.tolist())]
    (tmp_path / "vectors.csv").write_text("\n".join([",".join(["id", *(f"x{i}" for i in range(12))]), *vectors]))
    return tmp_path


def run(line, folder):
    "A command line, which must succeed"
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.output


def children(process):
    "The processes that one has started, of the command"
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in listed.read_text().split()] if listed.exists() else []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list the processes of a process")
def test_a_worker_that_dies_ends_the_run_which_goes_on_from_its_checkpoint(project):
    file, settings = project / "head" / "checkpoint.safetensors", "--epochs 15 --patience 0"
    line = f"fit pairs.csv --vectors vectors.csv {settings}"
    several = [sys.executable, *"-m torch.distributed.run --nproc-per-node 2 -m rolebregman".split(), *line.split()]
    process = subprocess.Popen([*several, "--checkpoint-every", "0"], cwd=project, env=ENVIRONMENT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 120
    while not file.exists() and process.poll() is None and time.monotonic() < end: time.sleep(0.01)
    os.kill(children(process)[-1], signal.SIGKILL)
    said = process.communicate(timeout=120)
    assert process.returncode and "Signal 9" in said[1] and "saved in" not in said[0] and file.exists(), said
    run(f"{line} --out alone", project)
    run(f"{line} --resume", project)
    assert not file.exists()
    torch.testing.assert_close(*(load_file(project / head / "model.safetensors") for head in ("head", "alone")),
                               rtol=1e-3, atol=1e-4)
