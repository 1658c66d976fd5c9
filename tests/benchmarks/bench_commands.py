"""The commands that a newcomer types, in a fresh clone with an empty cache: `python tests/benchmarks/bench_commands.py`

Set-up and downloads are part of the time. Rows go to results/benchmarks.csv; a bar is in minutes.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from common import made_by, save
from fastcore.script import call_parse

ROOT = Path(__file__).parents[2]
BARS = {"make study": 8, "make test": 12}


@call_parse
def main(
    python: str = "python3",  # What the clone makes its environment with
):
    "Clone, run each command to its end, write its minutes"
    with tempfile.TemporaryDirectory() as folder:
        clone, table = Path(folder) / "clone", []
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("ROLEBREGMAN_", "OMP_"))}
        own["ROLEBREGMAN_CACHE"] = str(Path(folder) / "cache")
        for command, bar in BARS.items():
            began = time.perf_counter()
            subprocess.run([*command.split(), f"PYTHON={python}"], cwd=clone, env=own, check=True)
            seconds = time.perf_counter() - began
            table.append({"what": command, "head": "fresh clone", "ms": seconds * 1e3, "ratio": seconds / 60,
                          "against": "minutes", "bar": bar, **made_by(), "threads": os.cpu_count()})
    save(table, "benchmarks")
