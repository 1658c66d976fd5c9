"""Changes the library in one place at a time, and asks whether a test notices: make mutants

A fork of one process that has PyTorch and pytest loaded already runs the tests of a module for each mutant, in a copy
of the tree. Rows are appended to results/mutants.csv; a mutant that has a row there is not run again."""
import ast
import contextlib
import csv
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS, EQUIVALENT = ROOT / "results/mutants.csv", ROOT / "tools/mutants_equivalent.csv"
COLUMNS = ["mutant", "module", "line", "kind", "outcome", "killed_by"]
# Which tests a module's mutants meet, those that are fast and see much before the others. A file may name a part of it
TESTS = {
    "icnn/activations": ["icnn/test_activations.py", "icnn/test_potential.py", "heads/test_derivatives.py"],
    "icnn/potential": ["icnn/test_potential.py", "heads/test_role_head.py", "heads/test_divergence_laws.py"],
    "heads/role_head": ["heads/test_role_head.py", "test_saved.py", "heads/test_laws.py:bregman-both and not fresh"],
    "heads/distance_head": ["heads/test_distance_head.py", "heads/test_decision.py", "heads/test_files.py",
                            "test_saved.py",
                            "heads/test_laws.py:euclidean or mlp or none-linear or lengths or inputs or scale"],
    "heads/inputs": ["heads/test_derivatives.py:lengths", "heads/test_inputs.py", "heads/test_distance_head.py",
                     "heads/test_laws.py:inputs or scale or length or standardiser or blind"],
    "heads/files": ["heads/test_files.py", "test_saved.py"],
    "heads/ties": ["heads/test_ties.py", "test_metrics_elsewhere.py"],
    "heads/ranking": ["heads/test_ranking.py", "test_metrics_elsewhere.py", "test_evaluation.py"],
    "evaluation": ["test_metrics_elsewhere.py", "test_evaluation.py", "heads/test_ties.py"],
    "training/losses": ["training/test_losses.py", "training/test_steps.py"],
    "training/steps": ["training/test_steps.py", "training/test_loop.py"],
    "training/loop": ["training/test_loop.py", "training/test_checkpoints.py"],
    "retrieval/nearest": ["retrieval/test_nearest.py", "retrieval/test_index.py"],
    "datasets/negatives": ["datasets/test_negatives.py", "test_metrics_elsewhere.py"],
    "datasets/readers": ["datasets/test_readers.py", "datasets/test_pairs.py"],
    "datasets/formats": ["datasets/test_formats.py", "datasets/test_readers.py"],
    "datasets/columns": ["datasets/test_columns.py", "datasets/test_readers.py", "datasets/test_parts.py"],
    "datasets/pairs": ["datasets/test_pairs.py", "datasets/test_parts.py"],
    "datasets/obo": ["datasets/test_obo.py", "datasets/test_ontology.py"],
    "datasets/weights": ["datasets/test_weights.py"],
}
SWAPS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
         ast.NotEq: ("!=", "=="), ast.In: (" in ", " not in "), ast.NotIn: (" not in ", " in "),
         ast.Is: (" is ", " is not "), ast.IsNot: (" is not ", " is "), ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
         ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "*"),
         ast.Pow: ("**", "*"),
         ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")}
NAMES = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "any": "all", "all": "any", "zeros": "ones",
         "ones": "zeros", "argmin": "argmax", "argmax": "argmin", "cumsum": "cumprod", "mean": "sum"}


@dataclass(frozen=True)
class Mutant:
    "One change of a module's text"
    module: str  # as in `TESTS`
    place: str  # the function or class that it is in
    line: int
    kind: str
    start: int  # of what is replaced, in bytes of the source
    stop: int
    new: str
    name: str  # that does not depend on other lines of the module


def _changes(node: ast.AST, segment) -> Iterator[tuple[str, ast.AST | tuple, str]]:
    "Kind, what is replaced (a node, or two nodes between which an operator stands), and by what"
    if isinstance(node, (ast.Expr, ast.AugAssign)) and not (isinstance(node, ast.Expr)
                                                            and isinstance(node.value, ast.Constant)):
        yield "statement", node, "pass"
    if isinstance(node, ast.Compare):
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            yield "comparison", (left, right, SWAPS[type(op)]), ""
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
        ends = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        yield "arithmetic", (*ends, SWAPS[type(node.op)]), ""
    elif isinstance(node, ast.BoolOp):
        yield "logic", (*node.values[:2], SWAPS[type(node.op)]), ""
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "logic" if isinstance(node.op, ast.Not) else "arithmetic", node, f"({segment(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        new = not node.value if isinstance(node.value, bool) else node.value + 1
        yield "constant", node, repr(new)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "condition", node.test, f"(not ({segment(node.test)}))"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "return", node.value, "None"
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield "name", node, segment(node.value) + "." + NAMES[node.attr]
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in NAMES: yield "name", node.func, NAMES[node.func.id]
        for keyword in node.keywords:
            if keyword.arg and not isinstance(keyword.value, ast.Constant):
                yield "argument", keyword.value, "None"


@cache
def mutants(module: str) -> list[Mutant]:
    """Every change of a module, in the order of its text.

    Left alone is what only an error says, annotations, docstrings, and powers of two as 1 << 20: sizes of blocks."""
    source = (ROOT / f"rolebregman/{module}.py").read_bytes()
    lines, found, seen = source.splitlines(keepends=True), [], {}
    starts = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
    def offsets(node):
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    def segment(node): return source[slice(*offsets(node))].decode()

    def add(node, place, kind, what, new):
        if isinstance(what, tuple):
            left, right, (old, by) = what
            start, stop = offsets(left)[1], offsets(right)[0]
            between = source[start:stop].decode()
            if old not in between: return
            text, by = between, between.replace(old, by, 1)
        else:
            start, stop = offsets(what)
            text, by = source[start:stop].decode(), new
        change = f"{place}: {' '.join(segment(node).split())[:60]} [{' '.join(text.split())[:30]} > {by.strip()[:30]}]"
        number = seen[change] = seen.get(change, 0) + 1
        name = change + (f" #{number}" if number > 1 else "")
        found.append(Mutant(module, place, node.lineno, kind, start, stop, by, name))

    def walk(node, place, quiet=False):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Raise, ast.Import, ast.ImportFrom, ast.arg, ast.JoinedStr)): continue
            if isinstance(child, ast.BinOp) and isinstance(child.op, ast.LShift): continue
            if isinstance(child, ast.AnnAssign) and child.value is None: continue
            if isinstance(child, ast.Assign) and getattr(child.targets[0], "id", "") == "__all__": continue
            inner = place
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)): inner = f"{place}.{child.name}".lstrip(".")
            for kind, what, new in _changes(child, segment): add(child, place, kind, what, new)
            walk(child, inner)
    walk(ast.parse(source), "")
    return found


def sample(number: int, seed: int) -> list[Mutant]:
    "So many mutants, of each module by its size; a larger number has the smaller sample in it"
    drawn = []
    for module in TESTS:
        some = list(mutants(module))
        random.Random(f"{seed} {module}").shuffle(some)
        drawn += [((i + 0.5) / len(some), mutant) for i, mutant in enumerate(some)]
    drawn.sort(key=lambda pair: pair[0])  # each module at the same share
    return [mutant for _, mutant in drawn[:number] if _is_python(mutant)]


def mutated(mutant: Mutant) -> bytes:
    "The text of the module with the change"
    source = (ROOT / f"rolebregman/{mutant.module}.py").read_bytes()
    return source[:mutant.start] + mutant.new.encode() + source[mutant.stop:]


def _is_python(mutant):
    try: return bool(ast.parse(mutated(mutant)))
    except SyntaxError: return False


# ---- running

class _Told:
    "A pytest plugin that writes which test failed first"
    def __init__(self, out): self.out = out
    def pytest_runtest_logreport(self, report):
        if report.failed: self.out.write_text(report.nodeid)
    def pytest_collectreport(self, report):
        if report.failed: self.out.write_text(report.nodeid + " (collection)")


def load():
    "What is loaded once, for all forks: nothing of this library"
    import hypothesis, matplotlib, networkx, pandas, pytest, safetensors.torch, scipy.stats, sklearn.metrics, torch  # noqa
    import torch._functorch.eager_transforms, torch.func, pyarrow.parquet, requests, tqdm  # noqa
    torch.set_num_threads(1)


def in_a_fork(tree: Path, tests: list[str], limit: float) -> tuple[str, str]:
    "survived, killed or time (what runs past the limit is noticed too), and which test failed first"
    told = tree / "told"
    told.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setsid()
            said = os.open(tree / "said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for number in 0, 1, 2: os.dup2(said, number)
            os.chdir(tree)
            sys.path.insert(0, str(tree))
            status = _run_tests(tests, told)
        except BaseException: traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    end, status = time.monotonic() + limit, None
    while status is None and time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            status = None
            time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError): os.killpg(child, signal.SIGKILL)  # and what it started and left
    if status is None:
        os.waitpid(child, 0)
        return "time", ""
    by = told.read_text() if told.exists() else "" if status == 0 else "import"
    return ("killed" if status else "survived"), by


def _run_tests(tests: list[str], told: Path) -> int:
    "pytest's exit status of the first file in which a test fails, else 0"
    import pytest
    for file in tests:
        name, _, some = file.partition(":")
        said = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
                "-W", "ignore::pytest.PytestAssertRewriteWarning", "--hypothesis-seed=0"]
        if status := pytest.main([f"tests/{name}", *said, *(["-k", some] if some else [])], plugins=[_Told(told)]):
            return int(status)
    return 0


def copied(folder: Path) -> Path:
    "A copy of what the tests need"
    for name in "rolebregman", "tests", "tools":
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in "pytest.ini", "settings.ini", "setup.py", "README.md", "nbs", "results":
        (folder / name).symlink_to(ROOT / name)
    return folder


def read_rows() -> dict[tuple[str, str], dict]:
    "What was run before, by module and mutant"
    if not ROWS.exists(): return {}
    with ROWS.open(newline="", encoding="utf-8") as file:
        return {(row["module"], row["mutant"]): row for row in csv.DictReader(file)}


def keep(rows: list[dict]):
    "All rows, in the order of modules and lines"
    order = list(TESTS)
    rows = sorted(rows, key=lambda row: (order.index(row["module"]), int(row["line"]), row["mutant"]))
    part = ROWS.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(ROWS)


def run(wanted: list[Mutant], minutes: float, again: bool = False):
    "The mutants that have no row yet, or survived where `again`, until the time is over"
    rows = read_rows()
    there = {(m.module, m.name): m for module in {m.module for m in wanted} for m in mutants(module)}
    rows = {key: row for key, row in rows.items() if key[0] not in {m.module for m in wanted} or key in there}
    for key, row in rows.items():
        if key in there: row["line"] = str(there[key].line)
    def is_open(m): return (row := rows.get((m.module, m.name))) is None or again and row["outcome"] == "survived"
    todo, end, limits = [m for m in wanted if is_open(m)], time.monotonic() + 60 * minutes, {}
    print(f"{len(wanted)} mutants, {len(todo)} to run", flush=True)
    load()
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        os.environ |= {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                       "ROLEBREGMAN_HYPOTHESIS": "mutants"}
        for mutant in todo:
            if time.monotonic() > end: break
            tests, file = TESTS[mutant.module], tree / f"rolebregman/{mutant.module}.py"
            if mutant.module not in limits:
                start = time.monotonic()
                found = in_a_fork(tree, tests, 900)
                limits[mutant.module] = 15 + 3 * (time.monotonic() - start) if found[0] == "survived" else 0
                said = (tree / "said").read_text()[-2000:] if found[0] != "survived" else ""
                print(f"{mutant.module}: its tests take {time.monotonic() - start:.0f} s without a mutant, and "
                      f"{'pass' if not said else f'do not pass, so none is run: {found}{chr(10)}{said}'}", flush=True)
            if not limits[mutant.module]: continue
            source = file.read_bytes()
            try:
                file.write_bytes(mutated(mutant))
                found, by = in_a_fork(tree, tests, limits[mutant.module])
            finally: file.write_bytes(source)
            by = by.partition("[")[0].removeprefix("tests/")
            rows[mutant.module, mutant.name] = dict(mutant=mutant.name, module=mutant.module, line=mutant.line,
                                                    kind=mutant.kind, outcome=found, killed_by=by)
            keep(list(rows.values()))
            if found == "survived": print(f"  survived: {mutant.module}:{mutant.line} {mutant.name}", flush=True)
    keep(list(rows.values()))


def equivalent() -> dict[tuple[str, str], str]:
    "Why a mutant computes the same, by module and mutant"
    with EQUIVALENT.open(newline="", encoding="utf-8") as file:
        return {(row["module"], row["mutant"]): row["reason"] for row in csv.DictReader(file)}


def summary():
    "How many were noticed, by module, and what was not"
    rows, same = read_rows(), equivalent()
    rest = [row for key, row in rows.items() if key not in same]
    for module in [*TESTS, None]:
        some = [row["outcome"] != "survived" for row in rest if module in (row["module"], None)]
        if some: print(f"{module or 'all':20} {sum(some):4} of {len(some):4}  {sum(some) / len(some):.0%}")
    for row in rest:
        if row["outcome"] == "survived": print(f"{row['module']}:{row['line']}  {row['mutant']}")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=450, help="mutants in all")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--minutes", type=float, default=600, help="stop then; what is left is run the next time")
    parser.add_argument("--only", nargs="+", choices=TESTS, default=list(TESTS), metavar="MODULE", help="of these")
    parser.add_argument("--again", action="store_true", help="run those once more that survived")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    args = parser.parse_args()
    if not args.summary:
        run([m for m in sample(args.number, args.seed) if m.module in args.only], args.minutes, args.again)
    summary()
