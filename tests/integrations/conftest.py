"A small dataset with a direction, made and not fetched"
import pytest

from rolebregman.datasets import load_dataset


@pytest.fixture(scope="module")
def toy():
    return load_dataset("toy", seed=0)
