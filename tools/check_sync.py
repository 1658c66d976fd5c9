"Are the notebooks clean, and are the library and README.md what they make? Nothing in the working tree is touched."
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fastcore.script import call_parse
from nbdev.config import get_config

# nbdev writes no module index while this is set.
_env = {k: v for k, v in os.environ.items() if k != "IN_TEST"}


def _nbdev(command: str, root: Path):
    "Run one of nbdev's commands in `root`; a message on stderr counts as a failure, for nbdev_clean only warns"
    run = subprocess.run([Path(sys.executable).parent / command], cwd=root, env=_env, capture_output=True, text=True)
    if run.returncode or run.stderr.strip():
        sys.exit(f"{command} failed:\n{run.stdout}{run.stderr}")


def _differences(mine: Path, made: Path, pattern: str) -> list[str]:
    "Names of files that differ between two folders, or that are in only one of them"
    names = {p.relative_to(f) for f in (mine, made) for p in f.rglob(pattern)
             if not any(part.startswith((".", "_")) for part in p.relative_to(f).parts[:-1])}
    return sorted(str(n) for n in names if not (mine / n).is_file() or not (made / n).is_file()
                  or (mine / n).read_bytes() != (made / n).read_bytes())


def out_of_step(
    root: Path,  # of the project: where settings.ini is
    nbs: str = "nbs",  # folder of the notebooks in it
    lib: str = "rolebregman",  # folder of the library in it
) -> list[str]:  # one line for each file that is out of step
    "Clean and export a copy of the project, and compare"
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copy(root / "settings.ini", copy)
        shutil.copytree(root / nbs, copy / nbs, symlinks=True, ignore=shutil.ignore_patterns(".*"))
        # Only __init__.py is carried over, so that a module whose notebook is gone shows up as well.
        (copy / lib).mkdir()
        shutil.copy(root / lib / "__init__.py", copy / lib)
        _nbdev("nbdev_clean", copy)
        problems += [f"{nbs}/{n} is not clean: run .venv/bin/nbdev_clean"
                     for n in _differences(root / nbs, copy / nbs, "*.ipynb")]
        _nbdev("nbdev_export", copy)
        for name in _differences(root / lib, copy / lib, "*.py"):
            if not (copy / lib / name).exists():
                problems.append(f"{lib}/{name} comes from no notebook: remove it, or export it from one in {nbs}/")
            elif not (root / lib / name).exists():
                problems.append(f"{lib}/{name} is missing: run .venv/bin/nbdev_export")
            else:
                problems.append(f"{lib}/{name} is not what its notebook exports: make the change in the notebook, "
                                "then run .venv/bin/nbdev_export")
    return problems


@call_parse
def main():
    "Fail with a line for each notebook that is not clean and each module that is not what its notebook exports"
    cfg = get_config()
    if problems := out_of_step(cfg.config_path, cfg.nbs_path.name, cfg.lib_path.name):
        sys.exit("\n".join(problems))
