"What the tests of the command share: a command line typed here or as a program of its own"
import contextlib
import io
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest
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
                            **dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE) | how)


def forked(line, folder, stdout, before=lambda: None):
    """Standard error and exit status of the command as a copy of this process, in which everything is imported.

    That is a tenth of the time that a program of its own takes. `before` is called in the copy."""
    if torch.cuda.is_available(): pytest.skip("a process that has used a GPU's threads cannot be copied")
    with tempfile.TemporaryFile("w+") as stderr:
        how = dict(target=_in_copy, args=(line, folder, stdout, stderr, before))
        child = multiprocessing.get_context("fork").Process(**how)
        child.start()
        child.join(120)
        child.kill()  # which is nothing to one that has ended
        child.join()
        stderr.seek(0)
        return stderr.read(), child.exitcode


def _in_copy(line, folder, stdout, stderr, before):
    for number, file in ((1, stdout), (2, stderr)): os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)
    os.chdir(folder)
    before()
    try:
        app(shlex.split(line), prog_name="rolebregman")
    except SystemExit as end:
        os._exit(end.code or 0)  # at once: a copy writes what is left, and fails by itself where it cannot
    os._exit(99)  # for a command ends by an exit


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
