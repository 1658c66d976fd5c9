"What holds for every test: one thread, fixed seeds, no state that leaks from one test into the next"
import gc
import multiprocessing
import os
import random
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from rolebregman.datasets import FetchError, fetch

sys.modules["outdated"] = None  # with which OGB, when it is imported, asks PyPI for a later version, in a thread
matplotlib.use("Agg")
torch.set_num_threads(1)
gc.set_threshold(20_000, 20, 20)  # looking for garbage as often as Python does takes a tenth of the time of all tests
# A machine that does other work is slow, and that says nothing about the library.
settings.register_profile("rolebregman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Where a program asks whether a test fails at all: no smaller example is looked for, and the same ones are drawn.
settings.register_profile("mutants", settings.get_profile("rolebregman"), phases=[Phase.explicit, Phase.generate],
                          derandomize=True, database=None)
settings.load_profile(os.environ.get("ROLEBREGMAN_HYPOTHESIS", "rolebregman"))
root = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True, scope="module")
def settled():
    """What is there by now, most of it imported, is passed over when garbage is looked for.

    Libraries look for it after every batch (PyKEEN), and among a million objects that takes as long as the batch."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seed():
    "The same random numbers for a test whether it runs alone or with the others"
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return 0


@pytest.fixture(autouse=True)
def default_dtype():
    "A test that sets torch's default dtype leaves float32 behind"
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def copies():
    "Makes processes that are copies of the test's own, in which everything is imported; skipped where none can be made"
    if torch.cuda.is_available(): pytest.skip("a process that has used a GPU's threads cannot be copied")
    if "fork" not in multiprocessing.get_all_start_methods(): pytest.skip("this system does not copy processes")
    return multiprocessing.get_context("fork")


@pytest.fixture(scope="session")
def site():
    "Folder of the rendered site; a test that needs it is skipped where it is missing or older than the notebooks"
    index = root / "_site" / "html" / "index.html"
    if not index.exists():
        pytest.skip("_site/html is not built: run make site")
    if index.stat().st_mtime < max(p.stat().st_mtime for p in (root / "nbs").rglob("*.ipynb")):
        pytest.skip("_site/html is older than the notebooks: run make site")
    return index.parent


@pytest.fixture
def own_cache(tmp_path, monkeypatch, request):
    "A cache of the test's own and no mirror, unless it asks for `real` files"
    if "real" not in request.fixturenames:
        monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("ROLEBREGMAN_MIRROR", raising=False)


@pytest.fixture
def real():
    "A source that is skipped, with the reason, where it cannot be had"

    def get(name):
        try:
            return fetch(name, quiet=True)
        except FetchError as error:
            pytest.skip(str(error).splitlines()[0])

    return get
