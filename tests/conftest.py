"What holds for every test: one thread, fixed seeds, no state that leaks from one test into the next"
import random

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")
torch.set_num_threads(1)


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
