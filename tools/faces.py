"What each package hands on: its `__init__.pyi` lists the public names of its modules, for editors and lazy_loader"
import ast
import sys
from pathlib import Path

from fastcore.script import call_parse
from nbdev.config import get_config


def public_names(
    module: Path,  # a file of the library
) -> list[str]:  # sorted
    "The names in `__all__` of a module, which is read and not imported"
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def stub(
    package: Path,  # a folder of the library
) -> str:
    "What `__init__.pyi` says. Raises a `ValueError` for names that two modules have, or that a module and a name share"
    modules = sorted(path for path in package.glob("*.py") if not path.name.startswith("_"))
    owners, lines, twice = {path.stem: "a module" for path in modules}, [], []
    for path in modules:
        names = public_names(path)
        twice += [f"{package.name}/{path.name}: {name!r} is {owners[name]} already" for name in names if name in owners]
        owners |= dict.fromkeys(names, f"a name in {path.name}")
        lines += [f"from .{path.stem} import {name} as {name}" for name in names]
    if twice: raise ValueError("\n".join(twice))
    return "\n".join([f"from . import {path.stem} as {path.stem}" for path in modules] + lines) + "\n"


def stubs() -> dict[Path, str]:  # text by file
    "The faces of all packages that have one; that of the library itself is written by hand"
    faces = sorted(get_config().lib_path.glob("*/__init__.py"))
    folders = [path.parent for path in faces if "attach_stub" in path.read_text(encoding="utf-8")]
    made, problems = {}, []
    for folder in folders:
        try: made[folder / "__init__.pyi"] = stub(folder)
        except ValueError as problem: problems.append(str(problem))
    if problems: raise ValueError("\n".join([*problems, "A face hands on each name once: rename, or make private"]))
    return made


def faces_out_of_step() -> list[str]:  # one line for each face
    "Which faces are not what their modules make, and what to do about it"
    try:
        made = stubs()
    except ValueError as problem:
        return [str(problem)]
    return [f"{path.parent.name}/{path.name} is not what its modules make: run .venv/bin/python tools/faces.py"
            for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


@call_parse
def main(
    check: bool = False,  # write nothing; fail where a face is not what the modules make
):
    "Write the faces"
    if check and (problems := faces_out_of_step()): sys.exit("\n".join(problems))
    try:
        for path, text in () if check else stubs().items(): path.write_text(text, encoding="utf-8")
    except ValueError as problem:
        sys.exit(str(problem))
