"What the tests of the command share: a command line typed here or as a program of its own"
import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from typer.testing import CliRunner

from rolebregman.cli.app import app

root = Path(__file__).resolve().parents[2]
# Started by a shell in the background, a program ignores Ctrl-C; here it is to be heard.
PROGRAM = ("import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
           "from rolebregman.cli.app import app; app(prog_name='rolebregman')")


def run(line, folder=".", status=0, stdin=None):
    "The result of a command line, which must end with `status`"
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, shlex.split(line), input=stdin)
    assert done.exit_code == status, f"{line}\n{done.output}\n{done.exception!r}"
    return done


def read(text): return pd.read_csv(io.StringIO(text))


def program(line, folder, **how):
    "The command as a program of its own"
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *shlex.split(line)], cwd=folder, env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def stopped(process, when):
    "Exit status and standard error of a process that gets Ctrl-C as soon as `when` is true"
    end = time.monotonic() + 120
    while not when():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=60)[1].decode(), process.returncode


def rows_of(tree, ids):
    return torch.from_numpy(tree.features[pd.Index(tree.nodes["id"]).get_indexer(ids)])
