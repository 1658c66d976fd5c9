"""Kills, crowds, full disks, rights that lack and hours of work, tried on all that is written: make faults

The kills and crowds are run here, as often as is asked for; of the other faults the tests hold every case, and are
counted. A row for each fault and subject goes into results/faults.csv."""
import contextlib
import csv
import gc
import hashlib
import http.server
import io
import logging
import os
import random
import re
import resource
import signal
import socketserver
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
from heads.test_files import number_of, told_apart

from rolebregman.baselines import make_head
from rolebregman.cli.app import app
from rolebregman.datasets import Place, RawFile, Source, VectorCache, cached_path, encode_texts, fetch, toy_tree
from rolebregman.heads import load_head
from rolebregman.retrieval import TargetIndex
from rolebregman.study import Store, Task, run_grid
from rolebregman.training import TrainConfig, fit

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "results/faults.csv"
COLUMNS = ["fault", "subject", "tried", "held", "first"]
torch.set_num_threads(1)


class Subject:
    "Something that is written to a folder: `write` a state with a number, `read` which one is there"
    first = True  # whether there is a state before the first fault

    def write(self, folder: Path, number: int): raise NotImplementedError

    def read(self, folder: Path) -> int | None: raise NotImplementedError  # an error is a fault

    def held(self, before, found, number) -> bool: return found in (before, number)

    def whole(self, folder: Path, number: int) -> bool:  # after one more write that nothing disturbs
        return self.read(folder) == number


class Head(Subject):
    "a head's folder"
    def write(self, folder, number): told_apart(number).save_pretrained(folder / "head")
    def read(self, folder): return number_of(load_head(folder / "head"))
    def whole(self, folder, number): return super().whole(folder, number) and len(os.listdir(folder / "head")) == 2


class Index(Subject):
    "an index"
    def write(self, folder, number):
        TargetIndex(told_apart(number), torch.full((50 + number, 6), number + 1.0)).save(folder / "index")

    def read(self, folder):
        index = TargetIndex.load(folder / "index", verify=True)
        number = number_of(index.head)
        if len(index) != 50 + number: raise ValueError(f"{len(index)} items beside head {number}")
        return number

    def whole(self, folder, number):  # nothing is left of a killed one: a fresh folder has as many files
        self.write(folder / "fresh", number)
        return super().whole(folder, number) and len(os.listdir(folder / "index")) == len(
            os.listdir(folder / "fresh/index"))


class Grid(Subject):
    "a grid of fits"
    first = False
    tasks = [Task("toy", head, seed, train=dict(batch_size=64, lr=1e-2, epochs=2)) for seed in (0, 1)
             for head in ("euclidean", "role_bregman")]

    def __init__(self):
        with tempfile.TemporaryDirectory() as folder: self.right = self._rows(run_grid(
            self.tasks, Store(Path(folder) / "rows.csv"), progress=False))

    @staticmethod
    def _rows(rows): return rows.drop(columns=["seconds", "peak_memory_mb", "commit"])

    def _path(self, folder, number): return folder / f"{number // 6}.csv"  # a file has six tries

    def write(self, folder, number): run_grid(self.tasks, Store(self._path(folder, number)), progress=False)

    def read(self, folder):
        "How many rows there are in all; every one of them is as undisturbed"
        count = 0
        for path in sorted(folder.glob("*.csv")):
            rows = self._rows(Store(path).rows())
            both = rows.merge(self.right[["head", "seed"]], on=["head", "seed"])
            right = self.right.merge(rows[["head", "seed"]], on=["head", "seed"])
            pd.testing.assert_frame_equal(both, right, check_exact=True)
            if len(both) != len(rows): raise ValueError("a row of another fit")
            count += len(rows)
        return count

    def held(self, before, found, number): return found >= (before or 0)

    def whole(self, folder, number):
        for path in folder.glob("*.csv"): run_grid(self.tasks, Store(path), progress=False)
        return self.read(folder) == len(self.tasks) * len(list(folder.glob("*.csv")))


class Cache(Subject):
    "the cache of vectors"
    first, texts = False, 600

    @staticmethod
    def encode(texts): return np.array([[int(t), int(t) + 1, len(t)] for t in texts], dtype=np.float32)

    def write(self, folder, number):
        texts = [str(1000 * number + i + 1) for i in range(self.texts)]
        with placed(folder): encode_texts(texts, self.encode, "numbers", "1", quiet=True)

    def read(self, folder):
        "How many vectors there are; every one is that of its text"
        texts = [str(i + 1) for i in range(60_000)]
        with placed(folder): found = VectorCache("numbers", "1").read(texts)
        for text, vector in found.items():
            if vector.tolist() != self.encode([text])[0].tolist(): raise ValueError(f"the vector of {text} is {vector}")
        return len(found)

    def held(self, before, found, number): return found >= (before or 0)
    def whole(self, folder, number): return self.read(folder) >= self.texts


class Download(Subject):
    "a download"
    first, body = False, b"".join(b"line %d\n" % i for i in range(100_000))

    def __init__(self):
        "A server of its own process, which takes its time"
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(Download.body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    for i in range(0, len(Download.body), 1 << 16):
                        self.wfile.write(Download.body[i:i + (1 << 16)])
                        time.sleep(0.01)
            def log_message(self, *_): pass
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.process = in_a_fork(server.serve_forever)
        server.server_close()

    def _source(self, number):
        file = RawFile(f"data-{number}.txt", hashlib.sha256(self.body).hexdigest(), len(self.body))
        return Source(f"data-{number}.txt", "some lines", "CC0", (file,), (Place("web", f"{self.url}/{number}"),))

    def write(self, folder, number):
        with placed(folder): fetch(self._source(number), quiet=True)

    def read(self, folder):
        "How many files there are; each is whole"
        with placed(folder):
            files = [path for number in range(200) if (path := cached_path(self._source(number))).exists()]
        for path in files:
            if path.read_bytes() != self.body: raise ValueError(f"{path.name} is not what was sent")
        return len(files)

    def held(self, before, found, number): return found >= (before or 0)
    def whole(self, folder, number): return self.read(folder) >= 1 and not list(folder.rglob(f".part-data-{number}*"))


class Fit(Subject):
    "rolebregman fit"
    def write(self, folder, number):
        if not (folder / "pairs.csv").exists():
            tree = toy_tree(depth=3, branching=3, dim=6, seed=1)
            names = tree.nodes["id"].to_numpy()
            pd.DataFrame(names[np.concatenate(list(tree.edges.values()))], columns=["child", "parent"]).to_csv(
                folder / "pairs.csv", index=False)
            pd.DataFrame(tree.features).rename(columns="x{}".format).assign(name=names).to_csv(
                folder / "vectors.csv", index=False)
        command(folder, f"fit pairs.csv --vectors vectors.csv --epochs 1 --head mlp --seed {number}")

    def read(self, folder):
        "The seed of what is evaluated; None where evaluate refuses it, as it is to do with files of two fits"
        try: command(folder, "evaluate head")
        except Refused as error:
            said = "is not the file that|of another head|may have been learned|was written anew while"
            if re.search(said, str(error)): return None
            raise
        return int(re.search(r'"seed": (\d+)', (folder / "head/report.json").read_text())[1])

    def held(self, before, found, number): return found in (before, number, None)


class Training(Subject):
    "a checkpoint"
    first, tree = False, toy_tree(depth=3, branching=3, dim=6, seed=1)

    def __init__(self):
        with tempfile.TemporaryDirectory() as folder: self.right = self._trained(Path(folder) / "0.safetensors")

    def _trained(self, path):
        "The weights after a training that goes on from what is there, with a checkpoint after each step"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            head = make_head("role_bregman", 6)
        fit(head, self.tree, TrainConfig(epochs=3, batch_size=32), progress=False, checkpoint=path, checkpoint_every=0,
            resume=True)
        return head.state_dict()

    def write(self, folder, number): self._trained(folder / f"{number}.safetensors")

    def read(self, folder):
        "How many trainings there are; each one, gone on with, ends as the one that nothing has disturbed"
        files = sorted(folder.glob("*.safetensors"))
        for path in files:
            found = self._trained(path)
            if not all(torch.equal(found[name], weight) for name, weight in self.right.items()):
                raise ValueError(f"{path.name} ends with other weights")
        return len(files)

    def held(self, before, found, number): return found >= (before or 0)
    def whole(self, folder, number): return (folder / f"{number}.safetensors").exists() and self.read(folder) > 0


SUBJECTS = {kind.__doc__: kind for kind in (Head, Index, Grid, Cache, Download, Fit, Training)}


class Refused(Exception):
    "The command ended with an error"


def command(folder: Path, line: str):
    "A command line of rolebregman in a folder"
    from typer.testing import CliRunner
    with contextlib.chdir(folder): done = CliRunner().invoke(app, line.split())
    if done.exit_code: raise Refused(done.output)


@contextlib.contextmanager
def placed(folder: Path):
    "The cache is in this folder"
    with mock.patch.dict(os.environ, {"ROLEBREGMAN_CACHE": str(folder / "cache"), "NO_PROXY": "127.0.0.1"}): yield


# ---- what is tried

def in_a_fork(work, *args) -> int:
    "The number of a process that does this, with nothing to say"
    child = os.fork()
    if child: return child
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for number in 1, 2: os.dup2(quiet, number)
        work(*args)
        os._exit(0)
    except BaseException: os._exit(1)


def killed(subject: Subject, times: int, seed: int = 0) -> tuple[int, str]:
    "How many of so many kills at random moments left the old state or the new one, and what the first other one was"
    draw, held, first = random.Random(seed), 0, ""
    with tempfile.TemporaryDirectory() as name:
        folder, aside = Path(name) / "folder", Path(name) / "aside"
        folder.mkdir(), aside.mkdir()
        start = time.monotonic()
        os.waitpid(in_a_fork(subject.write, aside, 0), 0)
        lasts = time.monotonic() - start
        if subject.first: subject.write(folder, 0)
        before = subject.read(folder) if subject.first else None
        for number in range(1, times + 1):
            child = in_a_fork(subject.write, folder, number)
            time.sleep(draw.uniform(0, 1.1 * lasts))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            try:
                found = subject.read(folder)
                good = subject.held(before, found, number)
                said = f"{found} after {before} and {number}"
            except Exception as error: found, good, said = before, False, f"{type(error).__name__}: {error}"
            before, held, first = found, held + good, first or ("" if good else said)
        subject.write(folder, times + 1)
        if not subject.whole(folder, times + 1): held, first = held - 1, first or "not whole after a write in peace"
    return held, first


def crowded(subject: Subject, writes: int) -> tuple[int, int, str]:
    "How often a reader beside two writers, and the writers, were tried; how often it held; the first that did not"
    tried, held, first = 0, 0, ""

    def often(start):
        for number in range(start, start + 2 * writes, 2): subject.write(folder, number)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subject.write(folder, 0)
        writers = [in_a_fork(often, start) for start in (1, 2)]
        while writers:
            for child in list(writers):
                done, status = os.waitpid(child, os.WNOHANG)
                if not done: continue
                writers.remove(child)
                tried, held = tried + 1, held + (status == 0)
                first = first or ("" if status == 0 else "a writer broke off")
            try:
                found, good = subject.read(folder), True
                if subject.first: good = found is None and isinstance(subject, Fit) or 0 <= found <= 2 * writes
                said = f"{found} was read"
            except Exception as error: good, said = False, f"{type(error).__name__}: {error}"
            tried, held, first = tried + 1, held + good, first or ("" if good else said)
            time.sleep(0.02)
        subject.write(folder, 2 * writes + 1)
        good = subject.whole(folder, 2 * writes + 1)
    return tried + 1, held + good, first or ("" if good else "not whole after a write in peace")


def memory(minutes: float = 0.0, rounds: int = 3) -> tuple[int, int, str]:
    "Rounds of fit, score, save and search in one process: the last third may need no more than the one before it"
    tree, needs, end = toy_tree(depth=3, branching=3, dim=8), [], time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        while len(needs) < rounds or time.monotonic() < end:
            for name in "role_bregman", "mlp":
                head = make_head(name, 8)
                fit(head, tree, TrainConfig(epochs=2), progress=False)
                head.score(tree.features, tree.features[::-1].copy())
                TargetIndex(head, tree.features).save(folder)
                TargetIndex.load(folder).search(tree.features, 3)
            gc.collect()
            needs.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20)
    third = len(needs) // 3
    before, after = max(needs[third:2 * third]), max(needs[2 * third:])
    good = after <= before * 1.02 + 4
    return len(needs), len(needs) * good, "" if good else f"from {before:.0f} to {after:.0f} MB"


# Tests that hold what else was tried, by fault and subject: a file, and which of its tests
TESTS = {
    ("full disk", "a head's folder"): ("heads/test_files.py", "full_disk"),
    ("full disk", "an index"): ("retrieval/test_files.py", "no_room"),
    ("full disk", "a grid of fits"): ("study/test_store.py", "no_room"),
    ("full disk", "the cache of vectors"): ("datasets/test_encoders.py", "healthy_cache"),
    ("full disk", "a download"): ("datasets/test_sources.py", "full_disk"),
    ("full disk", "rolebregman fit"): ("cli/test_folder.py", "full_disk"),
    ("a folder without rights", "rolebregman fit"): ("cli/test_folder.py", "cannot_be_written or without_the_right"),
    ("a folder without rights", "a download"): ("datasets/test_sources.py", "cannot_be_made"),
    ("a user without a home", "a download"): ("datasets/test_sources.py", "without_a_home"),
    ("a server that lies, is slow or stops", "a download"): (
        "datasets/test_sources.py", "limits or faulty or first_copy or bomb or answer or reached or breaks_off"),
    ("hostile files", "a head's folder"): ("heads/test_files.py", "config or long or deep or refused or mark"),
    ("hostile files", "an index"): ("retrieval/test_files.py", "damaged or refused or nested"),
    ("hostile files", "pairs and vectors"): ("datasets/test_readers.py", "unpacks or damage or limit_can"),
    ("hostile files", "tables that are read whole"): ("datasets/test_whole_tables.py", "nested"),
    ("hostile files", "an ontology"): (
        "datasets/test_obo.py", "long or address or cannot_be_read or not_utf or are_cut"),
    ("files of two states", "rolebregman fit"): ("cli/test_folder.py", "noticed or not_measured or refused or said"),
}


class _Counted:
    "A pytest plugin that counts cases"
    def __init__(self): self.tried, self.held, self.first = 0, 0, ""
    def pytest_runtest_logreport(self, report):
        if report.skipped or report.when != "call" and report.passed: return
        self.tried += 1
        self.held += report.passed
        self.first = self.first or ("" if report.passed else report.nodeid)


def tested(file: str, some: str) -> tuple[int, int, str]:
    "Cases of these tests, those that pass, and the first that does not"
    import pytest
    counted = _Counted()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([str(ROOT / "tests" / file), "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", some,
                     "-W", "ignore::pytest.PytestAssertRewriteWarning"], plugins=[counted])
    if not counted.tried: raise SystemExit(f"none of tests/{file} was run with -k {some!r}; do they start?")
    return counted.tried, counted.held, counted.first


def keep(fault: str, subject: str, tried: int, held: int, first: str):
    "One row, in place of the one there was"
    rows = list(csv.DictReader(ROWS.open(encoding="utf-8"))) if ROWS.exists() else []
    new = dict(zip(COLUMNS, (fault, subject, tried, held, " ".join(first.split())[:200])))
    rows = [row for row in rows if (row["fault"], row["subject"]) != (fault, subject)] + [new]
    with ROWS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["fault"], row["subject"])))
    print(f"{fault}, {subject}: {held} of {tried}" + (f"; {first[:300]}" if first else ""), flush=True)


def main():
    "Everything, or what is named"
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each")
    parser.add_argument("--writes", type=int, default=25, help="of each of two writers")
    parser.add_argument("--minutes", type=float, default=60, help="in which memory is to stay flat")
    parser.add_argument("--only", nargs="+", default=["kills", "crowds", "tests", "memory"], help="of the four parts")
    parser.add_argument("--subjects", nargs="*", default=list(SUBJECTS), help=", ".join(SUBJECTS))
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in args.subjects:
        subject = SUBJECTS[name]()
        if "kills" in args.only: keep("killed at a random moment", name, args.kills, *killed(subject, args.kills))
        if "crowds" in args.only: keep("two writers and a reader", name, *crowded(subject, args.writes))
        if server := getattr(subject, "process", None):
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
    if "tests" in args.only:
        for (fault, name), where in TESTS.items(): keep(fault, name, *tested(*where))
    if "memory" in args.only: keep("hours of work", "memory", *memory(args.minutes, 9))


if __name__ == "__main__": main()
