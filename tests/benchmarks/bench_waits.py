"""What a user waits for around the work itself: `python tests/benchmarks/bench_waits.py`

`rolebregman score` on a million pairs, against their distances alone; `rolebregman search` over 200,000 targets,
against the search alone; the known pairs of a batch of `DirectedLoss`, and what is no learning in an epoch of `fit`, as
shares. Rows go to results/waits.csv, with processor time beside the clock: `cpu_ratio` is the ratio of that, which
other work on the machine changes less. Where the time goes stands there as well (`parts of ...`). What is measured can
be chosen (`--only score,search`); the rest keeps the rows of its last run.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from common import made_by, save
from fastcore.script import call_parse

DIM, ITEMS, ASKED = 128, 200_000, 100


def clocked(run, *given):
    "What a call gives; seconds by the clock, and of this process's own time"
    began, own = time.perf_counter(), time.process_time()
    found = run(*given)
    return found, np.array([time.perf_counter() - began, time.process_time() - own])


def command(line, folder, threads):
    "Seconds of a command of its own process, from its start to its end, by the clock and of the processor"
    own = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(Path(__file__).parents[2])}
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # who uses a command has its modules compiled
    began = time.perf_counter()
    with open(folder / "said.txt", "w") as said:
        process = subprocess.Popen([sys.executable, "-m", "rolebregman", *line.split()], cwd=folder, env=own,
                                   stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode: raise SystemExit(f"rolebregman {line} failed: {(folder / 'said.txt').read_text()}")
    return np.array([time.perf_counter() - began, used.ru_utime + used.ru_stime])


def row(what, head, seconds, against=None, rival=None, bar=None, less=0):
    "One line: `seconds` (rounds, 2) by the clock and of the processor, and their ratio to a rival's, `less` a number"
    low, middle, high = np.percentile(seconds[:, 0], [25, 50, 75]) * 1e3
    line = {"what": what, "head": head, "ms": middle, "ms_low": low, "ms_high": high, **made_by(),
            "cpu_ms": np.median(seconds[:, 1]) * 1e3}
    if rival is None: return line
    ratio, cpu = np.median(seconds / rival, axis=0) - less
    return {**line, "ratio": ratio, "against": against, "bar": bar, "cpu_ratio": cpu}


def rounds_of(runs, rounds):
    "Seconds (rounds, 2) of each of some functions that give them, taking turns"
    found = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items(): found[name].append(run())
    return {name: np.stack(seconds) for name, seconds in found.items()}


def project(folder, pairs, threads):
    "Vectors, ids, pairs to learn and to score, items to ask for, and a head that `rolebregman fit` has written"
    rng = np.random.default_rng(0)
    np.save(folder / "vectors.npy", rng.standard_normal((ITEMS, DIM), dtype=np.float32))
    ids = np.array([f"item{i}" for i in range(ITEMS)])
    (folder / "ids.txt").write_text("\n".join(ids))
    for name, count in (("learned", 2000), ("pairs", pairs), ("two", 2)):
        source = rng.integers(0, ITEMS, count)
        target = (source + rng.integers(1, ITEMS, count)) % ITEMS
        pd.DataFrame(dict(source=ids[source], target=ids[target])).to_csv(folder / f"{name}.csv", index=False)
    command("fit learned.csv --vectors vectors.npy --ids ids.txt --epochs 0", folder, threads)
    return ids


def distances(head, features, edges, block=1 << 17):
    "What `rolebregman score` computes of pairs: both distances, by the recursion, so that they tie with search's"
    from rolebregman.heads.ranking import encode_rows
    from rolebregman.heads.ties import distinct_rows, pair_distances
    with torch.inference_mode():
        rows, places = np.unique(edges, return_inverse=True)
        sides = [encode_rows(encode, features, rows) for encode in (head.encode_source, head.encode_target)]
        first = [distinct_rows(side.__getitem__, len(side)) for side in sides]
        for some in torch.from_numpy(places.reshape(-1, 2)).split(block):
            ends = torch.cat([some[:, 0], some[:, 1]]), torch.cat([some[:, 1], some[:, 0]])
            pair_distances(head, *sides, *ends, first=first, parts=False)


def of_score(folder, rounds, threads):
    "Rows on `rolebregman score`"
    from rolebregman.cli.inputs import items_of, vectors_of
    from rolebregman.cli.scoring import PairFile, Scorer
    from rolebregman.common import csv_text
    from rolebregman.evaluation import score_edges
    from rolebregman.heads import load_head
    head, parts = load_head(folder / "head"), {}
    blocks, parts["pairs read"] = clocked(PairFile, folder / "pairs.csv")
    seen, total = blocks.items()
    (features, index, _), parts["vectors and ids"] = clocked(
        vectors_of, folder / "head", items_of(folder / "head"), seen, head.dim)
    edges = np.concatenate([np.stack([index.get_indexer(block[end].astype("str")) for end in ("source", "target")], 1)
                            for block in blocks])
    tables, spent = clocked(lambda: [*map(Scorer(head, features, index, ids=seen), blocks)])
    parts["text written"] = clocked(lambda: [csv_text(table) for table in tables])[1]
    command("score head two.csv", folder, threads)  # compiles what it imports
    seconds = rounds_of({"score": lambda: command("score head pairs.csv --out scores.csv", folder, threads),
                         "distances": lambda: clocked(distances, head, features, edges)[1],
                         "parts": lambda: clocked(score_edges, head, features, edges, edges[:, :0])[1],
                         "two": lambda: command("score head two.csv", folder, threads)}, rounds)
    rival, what = seconds["distances"], f"rolebregman score, {total:,} pairs"
    yield row(what, "the distances alone", rival)
    yield row(what, "all else", seconds["score"], "the distances alone", rival, 1.0, less=1)
    yield row(what, "all, by the recursion", seconds["score"], "the distances alone by parts of items, as in evaluate",
              seconds["parts"])
    parts = {"start, imports and two pairs": np.median(seconds["two"], 0), **parts,
             "distances": np.median(rival, 0), "blocks, looking up, tables": spent - np.median(rival, 0)}
    for name, times in parts.items(): yield row("parts of rolebregman score", name, times[None])


def of_search(folder, ids, rounds, threads):
    "Rows on `rolebregman search`"
    from rolebregman.heads import load_head
    from rolebregman.retrieval import TargetIndex
    head, features = load_head(folder / "head"), np.load(folder / "vectors.npy", mmap_mode="r")
    asked = ids[::ITEMS // ASKED]
    command("search head item0", folder, threads)  # compiles what it imports
    leave = np.arange(ASKED), np.arange(0, ITEMS, ITEMS // ASKED)
    index = TargetIndex(head, features)
    search = lambda index: index.search(features[::ITEMS // ASKED], 10, filter=leave)
    seconds = rounds_of({"command": lambda: command(f"search head {' '.join(asked)}", folder, threads),
                         "index": lambda: clocked(TargetIndex, head, features)[1],
                         "search": lambda: clocked(search, index)[1]}, rounds)
    found, rival = seconds["command"], seconds["index"] + seconds["search"]
    what = f"rolebregman search, {ASKED} of {ITEMS:,} items"
    yield row(what, "the search alone, with its index", rival)
    yield row(what, "from the command to the last line", found, "the search alone, with its index", rival, 2.0)
    yield row(what, "from the command to the last line", found, "the search alone, of an index that is there",
              seconds["search"])
    for name in ("index", "search"): yield row("parts of rolebregman search", name, seconds[name])
    yield row("parts of rolebregman search", "start, imports, vectors and ids, text", found - rival)


def words_encoder(words):
    "The cheapest encoder there is, a mean of word vectors, so that the share of anything else is the largest"
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    from rolebregman.baselines import make_head
    from rolebregman.integrations import DirectedEncoder
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    encoder = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=384)], device="cpu")
    return DirectedEncoder.join(encoder, make_head("directed_bregman", dim=384))


def timed(run, spent, name):
    "A function that adds the seconds that it takes to `spent`"
    def call(*given, **how):
        began = time.perf_counter(), time.process_time()
        try:
            return run(*given, **how)
        finally:
            spent[name] = spent[name] + (time.perf_counter() - began[0], time.process_time() - began[1])
    return call


def of_loss(size, rounds):
    "Rows on the known pairs of a batch in `DirectedLoss`"
    from rolebregman.integrations import DirectedLoss, sentence_transformers
    rng, spent, found = np.random.default_rng(0), {"known": np.zeros(2)}, []
    words = [f"w{i}" for i in range(5000)]
    model = words_encoder(words)
    texts = [[" ".join(rng.choice(words, 8)) for _ in range(size)] for _ in range(2)]
    columns, loss = list(map(model.preprocess, texts)), DirectedLoss(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        sum(loss(columns, None).values()).backward()
        optimizer.step()

    names = ("_text_keys", "batch_known")
    counted = {name: timed(getattr(sentence_transformers, name), spent, "known") for name in names}
    with patch.multiple(sentence_transformers, **counted):
        step()
        for _ in range(rounds):
            before = spent["known"]
            found.append((clocked(step)[1], spent["known"] - before))
    steps, known = map(np.stack, zip(*found))
    what = f"DirectedLoss, {size:,} x {size:,}, a mean of word vectors"
    yield row(what, "a step", steps)
    yield row(what, "known pairs of the batch", known, "a step", steps, 0.05)


def of_fit(pairs, epochs):
    "Rows on what is no learning in an epoch of `fit`: validation, drawing negatives, and what is kept of an epoch"
    from rolebregman.baselines import make_head
    from rolebregman.datasets import NegativeSampler, from_pairs
    from rolebregman.training import TrainConfig, fit, loop, steps
    rng, spent, marks = np.random.default_rng(0), dict.fromkeys(("steps", "drawing", "validation"), np.zeros(2)), []
    features = rng.standard_normal((pairs // 2, 384), dtype=np.float32)
    ds = from_pairs(pd.DataFrame(rng.integers(0, len(features), (pairs, 2)), columns=["source", "target"]), features)
    begun = loop._validation
    with (patch.object(steps._Step, "__call__", timed(steps._Step.__call__, spent, "steps")),
          patch.object(NegativeSampler, "sample", timed(NegativeSampler.sample, spent, "drawing")),
          patch.object(loop, "_validation", lambda *given: timed(begun(*given), spent, "validation"))):
        mark = lambda history: marks.append({**spent, "all": np.array([time.perf_counter(), time.process_time()])})
        config = TrainConfig(epochs=epochs + 1, patience=0)
        fit(make_head("directed_bregman", dim=384), ds, config, progress=mark)
    of = {name: np.stack([after[name] - before[name] for before, after in zip(marks, marks[1:])]) for name in marks[0]}
    rest = of["all"] - of["steps"] + of["drawing"]
    what = f"an epoch of fit, {len(ds.edges['train']):,} pairs, {len(ds.edges['valid']):,} to validate"
    yield row(what, "the epoch", of["all"])
    yield row(what, "validation, drawing and bookkeeping", rest, "the epoch", of["all"], 0.15)
    for name, seconds in (("validation", of["validation"]), ("drawing negatives", of["drawing"]),
                          ("bookkeeping", rest - of["validation"] - of["drawing"]),
                          ("learning", of["all"] - rest)):
        yield row("parts of an epoch of fit", name, seconds, "the epoch", of["all"])


@call_parse
def main(
    only: str = "score,search,loss,fit",  # Which of them
    pairs: int = 1_000_000,  # Of `rolebregman score`
    batch: int = 1024,  # Of `DirectedLoss`
    learned: int = 20_000,  # Pairs of `fit`, all parts of the split together
    rounds: int = 3,  # Of the commands
    threads: int = os.cpu_count(),  # Of torch, also in the commands
):
    "Measure, print, and write results/waits.csv"
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = project(folder, pairs, threads) if {"score", "search"} & {*only.split(",")} else None
        measured = {"score": lambda: of_score(folder, rounds, threads),
                    "search": lambda: of_search(folder, ids, rounds, threads),
                    "loss": lambda: of_loss(batch, 5 * rounds), "fit": lambda: of_fit(learned, 2 * rounds)}
        for part in only.split(","): save(measured[part](), "waits")
