"The wheel: built from the project, unpacked where there is nothing but the core's requirements, and used"
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

root = Path(__file__).resolve().parents[1]
settings = ConfigParser(delimiters=["="])
settings.read(root / "settings.ini")
config = settings["DEFAULT"]


def requirements(name):
    return [Requirement(line) for line in config[name].split()]


def installed(wanted):
    "Names of what is installed for these requirements, and of what that requires in turn"
    found, todo = {}, list(wanted)
    while todo:
        requirement = todo.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or requirement.marker and not requirement.marker.evaluate({"extra": ""}): continue
        try: found[name] = distribution(name)
        except PackageNotFoundError: continue
        todo += map(Requirement, found[name].requires or [])
    return found


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    "An environment's folder with the wheel and links to the packages that the core asks for, and no others"
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.py", "settings.ini", "README.md", "LICENSE"): shutil.copy(root / name, source)
    shutil.copytree(root / "rolebregman", source / "rolebregman", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    wheel, = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages := folder / "packages")
    for dist in installed(requirements("requirements")).values():
        for top in {file.parts[0] for file in dist.files if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists(): (packages / top).symlink_to(dist.locate_file(top))
    return packages


def python(packages, script):
    "Run a script that sees the standard library and these packages alone"
    code = f"import sys; sys.path.insert(0, {str(packages)!r})\n{script}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=120)


def test_the_wheel_says_what_settings_say(empty):
    about = (empty / f"rolebregman-{config['version']}.dist-info" / "METADATA").read_text()
    asked = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", about, re.M)]
    core = {str(r) for r in asked if not r.marker}
    assert core == {str(r) for r in requirements("requirements")}
    extras = {key.removesuffix("_requirements") for key in config if key.endswith("_requirements")}
    assert set(re.findall(r"^Provides-Extra: (.*)$", about, re.M)) == extras


def test_the_wheel_holds_every_module_face_and_table(empty):
    library = root / "rolebregman"
    held = {path.relative_to(empty / "rolebregman") for path in (empty / "rolebregman").rglob("*") if path.is_file()}
    shipped = {path.relative_to(library) for path in (library / "shipped").glob("*/*") if path.is_file()}
    wanted = {path.relative_to(library) for path in library.rglob("*") if path.suffix in (".py", ".pyi", ".toml")}
    assert held == wanted | shipped and any(path.suffix == ".pyi" for path in held)
    assert len({path for path in shipped if path.name == "model.safetensors"}) == 2


def test_the_source_archive_holds_the_heads(empty, tmp_path):
    "What a wheel may be built from elsewhere"
    source = empty.parent / "source"
    build = [sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path]
    subprocess.run(build, check=True, capture_output=True, timeout=120, cwd=source)
    archive, = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        held = {"/".join(name.split("/")[1:]) for name in packed.getnames()}
    shipped = {path.relative_to(root).as_posix() for path in (root / "rolebregman" / "shipped").glob("*/*")}
    assert shipped and shipped <= held


def test_a_head_that_comes_with_the_package_is_loaded_and_decides_with_the_core_alone(empty):
    ran = python(empty, """
import numpy as np
from rolebregman import load_head
from rolebregman.heads import shipped_heads
for name in shipped_heads():
    head = load_head(name)
    x, y = np.random.default_rng(0).normal(size=(2, 3, head.dim)).astype("float32")
    print(name, head.decide(x, y).sum(1).tolist())
try: load_head("nothing")
except FileNotFoundError as error: print(error)
""")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["go-minilm", "wordnet-minilm"]
    assert "that come with the package: go-minilm, wordnet-minilm" in lines[2]


def test_every_face_hands_on_its_names_with_the_core_alone(empty):
    "All but what says by itself which extra it needs"
    ran = python(empty, """
import importlib, pkgutil
import rolebregman
for name in ["rolebregman"] + [f"rolebregman.{m.name}" for m in pkgutil.iter_modules(rolebregman.__path__) if m.ispkg]:
    package = importlib.import_module(name)
    for public in dir(package):
        try: getattr(package, public)
        except ImportError as error:
            if "pip install" not in str(error): raise
print("done")
""")
    assert ran.stdout.endswith("done\n"), ran.stderr


def test_importing_a_head_takes_no_more_than_two_seconds_beyond_torch(empty):
    ran = python(empty, """
import torch
from time import perf_counter
start = perf_counter()
import rolebregman
from rolebregman.heads import BregmanHead
print(perf_counter() - start)
""")
    assert float(ran.stdout) < 2  # it takes some hundredths


def test_the_command_helps_without_torch(empty):
    ran = python(empty, """
from rolebregman.cli.command import app
app(["--help"], standalone_mode=False)
assert "torch" not in sys.modules
""")
    assert ran.stderr == "" and "Usage:" in ran.stdout


def test_nothing_else_is_there(empty):
    assert "No module named 'pytest'" in python(empty, "import pytest").stderr


def test_a_head_is_fitted_on_own_pairs_and_no_extra_is_imported(empty):
    ran = python(empty, """
import numpy as np, pandas as pd
from rolebregman.datasets import from_pairs
from rolebregman.evaluation import evaluate
from rolebregman.heads import BregmanHead
from rolebregman.retrieval import TargetIndex
from rolebregman.training import TrainConfig, fit
names = [f"n{i}" for i in range(40)]
pairs = pd.DataFrame(dict(source=names[1:], target=[names[(i - 1) // 2] for i in range(1, 40)]))
ds = from_pairs(pairs, np.random.default_rng(0).normal(size=(40, 8)), ids=names)
head = BregmanHead(ds.dim, hidden=(16,))
history = fit(head, ds, TrainConfig(epochs=2), progress=False)
assert len(history) == 2 and 0 <= evaluate(head, ds)["ranking_accuracy"] <= 1
TargetIndex(head, ds.features).search(ds.features[:2], k=3)
print(*{name.split(".")[0] for name in sys.modules})
""")
    assert ran.returncode == 0, ran.stderr
    core, loaded = set(installed(requirements("requirements"))), set(ran.stdout.split())
    extras = [key for key in config if key.endswith("_requirements")]
    for requirement in sum(map(requirements, extras), []):
        try: files = distribution(requirement.name).files
        except PackageNotFoundError: continue
        if requirement.name.lower() not in core:
            assert not loaded & {file.parts[0] for file in files if len(file.parts) > 1}, requirement.name
