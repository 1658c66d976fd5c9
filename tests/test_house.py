"The house: chapters on top, rooms in folders, packages that import downwards only, faces that hand on names"
import ast
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

root = Path(__file__).resolve().parents[1]
library, nbs = root / "rolebregman", root / "nbs"
modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(library.rglob("*.py"))
           if path.name != "_modidx.py"}
rooms = {path: tree for path, tree in modules.items() if not path.name.startswith("_")}
# What each package may import: itself and those named here, with all that they may import in turn
BELOW = dict(common=(), theory=(), icnn=("common",), heads=("icnn",), baselines=("heads",), retrieval=("heads",),
             datasets=("common",), evaluation=("datasets", "heads"), training=("evaluation",),
             interpretability=("training", "baselines"), integrations=("training", "baselines", "retrieval"),
             study=("interpretability", "integrations"), cli=("study",))


def below(package):
    return {package}.union(*(below(name) for name in BELOW[package]))


def package_of(path):
    return path.relative_to(library).parts[0].removesuffix(".py")


def imports(path, tree):
    "(module as it is written in full, name, node) of all that a module imports from the library"
    here = ("rolebregman", *path.relative_to(library).with_suffix("").parts)[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(here[:len(here) + 1 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            if module.split(".")[0] == "rolebregman":
                yield from ((module, alias.name, node) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "", node) for alias in node.names if alias.name.startswith("rolebregman."))


def listing(found):
    return "\n".join(f"{path.relative_to(root)}:{line}: {what}" for path, line, what in found)


def test_every_package_has_its_place():
    assert {package_of(path) for path in rooms} == set(BELOW)


def test_packages_import_downwards_only():
    up = []
    for path, tree in rooms.items():
        for module, name, node in imports(path, tree):
            target = module.split(".")[1] if "." in module else name
            if target != "__version__" and target not in below(package_of(path)):
                up.append((path, node.lineno, f"{package_of(path)} stands below {target}"))
    assert not up, listing(up)


def test_modules_named_by_a_string_are_the_heads_that_a_file_names_and_nothing_else():
    "Such an arrow no import shows: a saved head says the package that its class is in"
    named = [path.relative_to(library).as_posix() for path, tree in rooms.items() for node in ast.walk(tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
             and "rolebregman" in ast.unparse(node)]
    assert named == ["heads/distance_head.py"]


def arrows(kept=lambda node: True):
    "module -> the modules that it imports, by its imports that are kept"
    names = {".".join(path.relative_to(library).with_suffix("").parts): path for path in rooms}
    found = {}
    for name, path in names.items():
        to = {f"{module}.{what}".removeprefix("rolebregman.") for module, what, node in imports(path, modules[path])
              if kept(node)}
        found[name] = {target if target in names else target.rpartition(".")[0] for target in to} & set(names)
    return found


def longest(arrows):
    "The longest chain of imports from each module, itself first. Fails where one leads back to itself"
    chains = {}

    def walk(name, way):
        assert name not in way, " > ".join([*way[way.index(name):], name])
        if name not in chains:
            below = [walk(other, (*way, name)) for other in sorted(arrows[name])]
            chains[name] = [name, *max(below, key=len, default=[])]
        return chains[name]

    return max((walk(name, ()) for name in arrows), key=len)


def test_no_two_modules_import_each_other_and_the_house_stays_low():
    "Floors are the modules of the longest chain: 13 before the house, as it loads; with those in functions a circle"
    functions = [node for tree in rooms.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    everywhere, on_load = longest(arrows()), longest(arrows(lambda node: id(node) not in inside))
    assert len(everywhere) <= 13, " > ".join(everywhere)
    assert len(on_load) <= 11, " > ".join(on_load)
    packages = {name: set() for name in BELOW}
    for name, to in arrows().items():
        packages[name.split(".")[0]] |= {other.split(".")[0] for other in to} - {name.split(".")[0]}
    assert len(longest(packages)) <= 7, " > ".join(longest(packages))


def test_modules_are_imported_where_names_live_and_not_through_faces():
    "A face would bring in the whole package, and hide an arrow"
    through = [(path, node.lineno, f"{module} hands on {name}") for path, tree in rooms.items()
               for module, name, node in imports(path, tree) if name and name != "__version__"
               and (library / "/".join(module.split(".")[1:])).is_dir()
               and not (library / "/".join([*module.split(".")[1:], f"{name}.py"])).exists()]
    assert not through, listing(through)


def test_modules_name_each_other_from_where_they_stand():
    "nbdev makes it so, but for an import of three lines and more, which it does not see"
    absolute = [(path, node.lineno, node.module) for path, tree in rooms.items() for node in tree.body
                if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] == "rolebregman"]
    assert not absolute, listing(absolute)


def test_no_private_name_crosses_a_module():
    private = re.compile(r"_(?!_)\w*")
    found = [(path, node.lineno, f"{name} of {module}") for path, tree in rooms.items()
             for module, name, node in imports(path, tree) if private.fullmatch(name)]
    for path, tree in rooms.items():
        own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
               and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")}
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        own |= {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign)
                for target in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(target, ast.Name)}
        found += [(path, node.lineno, f".{node.attr}") for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                  and private.fullmatch(node.attr) and node.attr not in own | OF_LIBRARIES]
    assert not found, listing(found)


OF_LIBRARIES = {"_exit", "_version", "_asdict", "_fields", "_replace", "_dynamo"}  # private by name only


def test_no_patches_and_no_changes_of_another_modules_names():
    found = []
    for path, tree in rooms.items():
        taken = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                 and (node.level or (node.module or "").startswith("rolebregman")) for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
                if any(name.startswith("unittest") for name in names): found.append((path, node.lineno, "unittest"))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner, what = node.func.value, node.func.attr
                if isinstance(owner, ast.Name) and owner.id in taken and what in (
                        "update", "setdefault", "append", "extend", "pop", "clear", "insert", "remove"):
                    found.append((path, node.lineno, f"{owner.id}.{what}(...)"))
            targets = getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(
                node, ast.Assign | ast.AugAssign) else []
            for target in targets:
                owner = getattr(target, "value", None)
                whole = isinstance(target, ast.Attribute | ast.Subscript) and isinstance(owner, ast.Name)
                if whole and owner.id in taken:
                    found.append((path, node.lineno, ast.unparse(target)))
    assert not found, listing(found)


def test_no_star_imports_in_library_and_notebooks():
    found = [(path, node.lineno, "import *") for path, tree in modules.items() for node in ast.walk(tree)
             if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    found += [(path, 0, "import *") for path in nbs.rglob("*.ipynb")
              if re.search(r"^ *\"?from [\w.]+ import \*", path.read_text(encoding="utf-8"), re.M)]
    assert not found, listing(found)


notebooks = sorted(nbs.rglob("*.ipynb"))


@cache
def cells_of_code(path):
    "(id, lines, tree) of each cell of code but nbdev's own last one, what is no Python left out"
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "nbdev.nbdev_export()" in source: continue
        lines = ["pass" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines()]
        found.append((cell["id"], lines, ast.parse("\n".join(lines))))
    return found


def test_names_say_what_they_are():
    "What a cell binds or defines has none of the names that say nothing; what a module exports stands in a cell"
    empty = {"unsaid", "called", "many", "told", "put", "take", "small", "middle"}
    found = []
    for path in notebooks:
        for cell, _, tree in cells_of_code(path):
            for node in ast.walk(tree):
                name = (node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                        else node.arg if isinstance(node, ast.arg)
                        else node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else "")
                if name in empty: found.append((path, cell, f"{name}, line {node.lineno}"))
    assert not found, listing(found)


@pytest.mark.parametrize("path", notebooks, ids=lambda path: path.relative_to(nbs).as_posix())
def test_numbers_stand_on_top_and_a_room_is_the_module_of_its_name(path):
    place = path.relative_to(nbs).with_suffix("")
    source = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    target = re.search(r"^#\| *default_exp +(\S+)", source, re.M)
    if len(place.parts) == 1:
        assert re.fullmatch(r"index|common|\d\d_[a-z_]+", place.name), "on top stand chapters: two digits and words"
        return
    assert len(place.parts) == 2, "a room is in the folder of its chapter"
    assert not re.search(r"\d", str(place)), "a room has no number"
    assert place.parts[0] == "guides" or target and target[1] == ".".join(place.parts), "a room exports its module"


@pytest.mark.parametrize("path", rooms, ids=lambda path: path.relative_to(library).as_posix())
def test_tests_mirror_the_code(path):
    place = path.relative_to(library)
    assert (root / "tests" / place.with_name(f"test_{place.name}")).exists()


def test_chapters_are_counted_without_a_gap():
    numbers = sorted(int(path.name[:2]) for path in nbs.glob("[0-9]*.ipynb"))
    assert numbers == list(range(len(numbers)))


faces = sorted(library.rglob("__init__.py"))


@pytest.mark.parametrize("path", faces, ids=lambda path: path.parent.name)
def test_a_face_defines_nothing_and_hands_on_public_names(path):
    tree = modules[path]
    if "AUTOGENERATED" not in path.read_text(encoding="utf-8"):
        assert not [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        assert len(path.read_text(encoding="utf-8").splitlines()) <= (10 if path.parent == library else 6)
    package = importlib.import_module(".".join(path.relative_to(root).parent.parts))
    for name in getattr(package, "__all__", dir(package)):
        value = getattr(package, name)
        home = str(getattr(value, "__module__", ""))
        of_library = home.startswith("rolebregman.")
        public = getattr(importlib.import_module(home), "__all__", [name]) if of_library else [name]
        assert name in public, f"{name} is not public in {home}"
    assert set(getattr(package, "__all__", ())) <= set(dir(package))


def test_the_front_door_has_the_names_of_the_design():
    import rolebregman
    names = ("BregmanHead DistanceHead TargetIndex TrainConfig compare evaluate fit from_pairs load_dataset load_head "
             "make_head").split()
    assert set(names) <= set(rolebregman.__all__)
    assert all(callable(getattr(rolebregman, name)) for name in names)
    with pytest.raises(AttributeError, match="attribute nothing"): getattr(rolebregman, "nothing")  # noqa: B009
    said = {alias.asname for node in ast.parse((library / "__init__.pyi").read_text(encoding="utf-8")).body
            if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert said == set(rolebregman.__all__), "editors are told the same"
    stubs = importlib.import_module("faces").stubs()
    assert stubs and all(path.read_text(encoding="utf-8") == text for path, text in stubs.items())


def test_the_front_door_opens_without_loading_anything():
    "Not even the module that would read the list for editors"
    run = "import sys; before = set(sys.modules); import rolebregman; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", run], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["lazy_loader", "rolebregman"]


def test_modules_and_exported_cells_stay_readable():
    long = [(path, 0, f"{lines} lines") for path in rooms
            if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 420]  # about 400, and room for a metric
    for path in notebooks:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and re.match(r"#\| *export", source) and source.count("\n") >= 60:
                long.append((path, 0, f"an exported cell of {source.count(chr(10)) + 1} lines, id {cell['id']}"))
    assert not long, listing(long)


def test_an_import_stands_apart_from_what_a_cell_does():
    "Where the library is documented, every cell that imports is run, without the cells before it"
    mixed = []
    for path in notebooks:
        cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        if not any("#| default_exp" in "".join(cell["source"]) for cell in cells): continue
        for cell in cells:
            source = "".join(cell["source"])
            body = ast.parse(source).body
            imported = [isinstance(node, ast.Import | ast.ImportFrom) for node in body]
            if any(imported) and not all(imported) and "#| export" not in source and "nbdev" not in source:
                mixed.append((path, 0, f"id {cell['id']} imports and does more: give its imports a cell of their own"))
    assert not mixed, listing(mixed)


def parts(node):
    "The blocks of a compound statement"
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt): yield block
    yield from (handler.body for handler in getattr(node, "handlers", []))


def test_a_statement_has_a_line_of_its_own_but_for_a_guard():
    leaves = ast.Raise | ast.Return | ast.Continue | ast.Break
    found = []
    for path, tree in rooms.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree):
            guard = isinstance(node, ast.If) and not node.orelse and len(node.body) == 1
            for statement in (statement for block in parts(node) for statement in block):
                line = lines[statement.lineno - 1]
                before = line.encode()[:statement.col_offset].decode().strip()
                if not before or before == "el" or guard and isinstance(statement, leaves): continue
                found.append((path, statement.lineno, line.strip()))
    assert not found, listing(found)


def test_no_cell_puts_two_statements_on_a_line():
    "But for nbdev's own last cell"
    found = []
    for path in notebooks:
        for _, lines, tree in cells_of_code(path):
            for node in ast.walk(tree):
                for block in parts(node):
                    starts = [statement.lineno for statement in block]
                    found += [(path, line, lines[line - 1].strip()) for line in set(starts) if starts.count(line) > 1]
    assert not found, listing(found)


def test_what_is_said_of_a_parameter_begins_in_one_way():
    "In lower case, two spaces behind the code; a name keeps its capital"
    names = set("False True None DataFrame DataFrames Hessian Spearman SemEval HyperLex Float64".split())
    found = []
    for path in rooms:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            said = re.match(r"\s+[\w*].*,( +)# (\w*)|\s*\)(?: -> .*)?:( +)# (\w*)", line)
            if not said: continue
            spaces, word = (said[1], said[2]) if said[1] else (said[3], said[4])
            if len(spaces) < 2 or re.fullmatch("[A-Z][a-z]+", word) and word not in names:
                found.append((path, number, line.strip()))
    assert not found, listing(found)


def test_code_that_is_shown_in_a_text_fits_a_page():
    "88 characters; lines of a file that is shown as it is are as long as they are"
    long = []
    for path in sorted(nbs.rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                blocks = re.findall(r"^```(?:py|python|sh)\n(.*?)^```", "".join(cell["source"]), re.M | re.S)
                long += [(path.name, line) for block in blocks for line in block.splitlines() if len(line) > 88]
    assert not long
