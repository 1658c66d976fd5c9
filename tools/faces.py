"What each package hands on: `__init__.pyi` of a package lists the public names of its modules, for editors and lazy_loader"
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
    "What `__init__.pyi` says. Raises a `ValueError` for a name that two modules have, or that a module and a name share"
    modules = sorted(path for path in package.glob("*.py") if not path.name.startswith("_"))
    owners, lines = {path.stem: "a module" for path in modules}, []
    for path in modules:
        names = public_names(path)
        for name in names:
            if name in owners:
                print(f"{path}: {name!r} is {owners[name]} of {package.name} already", file=sys.stderr)
            owners[name] = f"a name in {path.name}"
        lines += [f"from .{path.stem} import {name} as {name}" for name in names]
    return "\n".join([f"from . import {path.stem} as {path.stem}" for path in modules] + lines) + "\n"


def stubs() -> dict[Path, str]:  # text by file
    "The faces of all packages that have one; that of the library itself is written by hand"
    faces = sorted(get_config().lib_path.glob("*/__init__.py"))
    folders = [path.parent for path in faces if "__getattr__" in path.read_text(encoding="utf-8")]
    return {folder / "__init__.pyi": stub(folder) for folder in folders}


@call_parse
def main(
    check: bool = False,  # write nothing; fail where a face is not what the modules make
):
    "Write the faces"
    for path, text in stubs().items():
        if path.exists() and path.read_text(encoding="utf-8") == text: continue
        if check: sys.exit(f"{path} is not what its modules make: run .venv/bin/python tools/faces.py")
        path.write_text(text, encoding="utf-8")
