"The API reference: every public name has a docstring, its shapes, its place on the site, and a test"
import ast
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from test_site import Page

reference = import_module("reference")
root = Path(__file__).resolve().parents[2]
modules = {page: import_module(name) for page, name in reference.modules().items()}
ARRAYS = set("x y u v X Y features edges vectors".split())  # parameters that hold arrays also without an annotation
SHAPE = re.compile(r"(?<!\w)\((?:[^()]*,[^()]*|\.\.\.|)\)|[Ss]calar|[Ss]hape")  # as (n, d), (...), `of the shape of x`


def names():
    "Module, qualified name, what it names, and the class that it is a method or a property of"
    for module in modules.values():
        for name, value in reference.definitions(module).items():
            yield module, name, value, None
            for member, function in reference.members(value).items() if inspect.isclass(value) else ():
                yield module, f"{name}.{member}", function, value


def listing(gaps):
    return "\n".join(f"{module.__name__}.{name}: {what}" for module, name, what in gaps)


def test_every_name_has_a_docstring_of_its_own():
    gaps = []
    for module, name, value, _ in names():
        inherited = [base.__doc__ for base in value.__mro__[1:]] if inspect.isclass(value) else []
        made = reference.is_named_tuple(value) and value.__doc__.startswith(f"{name}(")  # by `NamedTuple` itself
        if not value.__doc__ or value.__doc__ in inherited or made:
            gaps.append((module, name, "has no docstring"))
    gaps += [(module, name, "has no comment behind it or above it") for module in modules.values()
             for name, said in reference.constants(module).items() if not said]
    assert not gaps, listing(gaps)


def test_every_parameter_is_described_and_every_array_has_a_shape():
    gaps = []
    for module, name, value, owner in names():
        if inspect.isclass(value) and issubclass(value, dict | Exception): continue
        said, doc, signature = reference.parameters(value, owner), value.__doc__ or "", inspect.signature(value)
        annotations = {k: p.annotation for k, p in signature.parameters.items() if k not in ("self", "cls")}
        for k, annotation in (annotations | {"return": signature.return_annotation}).items():
            explained = [getattr(part, "help", None) for part in getattr(annotation, "__metadata__", ())]  # Typer's
            if k != "return" and not (said.get(k) or any(explained) or re.search(rf"\b{k}\b", doc)):
                gaps.append((module, name, f"{k} is not described"))
            array = re.search("Tensor|ndarray", str(annotation)) or annotation is inspect._empty and k in ARRAYS
            if array and not SHAPE.search(text := f"{said.get(k) or ''} {doc}"):
                gaps.append((module, name, f"{k} has no shape: {text}"))
    assert not gaps, listing(gaps)


def test_every_name_is_on_its_page_with_a_link_to_its_source(site):
    gaps = []
    pages = {page: Page(site / f"{page}.html") for page in modules}
    of_module = {module.__name__: page for page, module in modules.items()}
    for module, name, value, _ in names():
        page = pages[of_module[module.__name__]]
        lines, start = inspect.getsourcelines(value)
        start += next(i for i, line in enumerate(lines) if re.match(r"\s*(class|def) ", line))
        if name.lower() not in page.ids: gaps.append((module, name, "is not on the page of its module"))
        if not any(link.endswith(f"/{Path(module.__file__).name}#L{start}") for link in page.links):
            gaps.append((module, name, f"has no link to line {start} of its source"))
    gaps += [(module, name, "is not on the page of its module") for page, module in modules.items()
             for name in reference.constants(module) if name not in pages[page].ids]
    assert not gaps, listing(gaps)


def sources():
    "The code of the tests, and of the notebooks' cells that are run and do not only define"
    skipped = re.compile(r"^#\| *(export|exporti|exports|slow|gpu|mirror|eval: *false)\b", re.M)
    yield from (path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py"))
    for path in (root / "nbs").rglob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not skipped.search(source) and not source.startswith(("%", "!")):
                yield source


def test_every_name_is_tried_by_a_test_or_in_a_notebook():
    nodes = [node for source in sources() for node in ast.walk(ast.parse(source))]
    tried = {node.id for node in nodes if isinstance(node, ast.Name)}
    tried |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    words = {word for node in nodes if isinstance(node, ast.Constant) for word in str(node.value).split()}
    gaps = [(module, name, "is in no test and in no notebook's cell") for module, name, _, _ in names()
            if name.split(".")[-1] not in tried  # a command is tried by typing its words
            and not (module.__name__.startswith("rolebregman.cli.")
                     and (words.issuperset(name.split("_")) or name.replace("_", "-") in words))]
    assert not gaps, listing(gaps)


def test_every_constant_is_read_by_what_is_tested():
    nodes = [node for module in modules.values() for node in ast.walk(ast.parse(inspect.getsource(module)))]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    gaps = [(module, name, "is read nowhere") for module in modules.values()
            for name in reference.constants(module) if name not in read]
    assert not gaps, listing(gaps)


@pytest.mark.parametrize("text, has", [
    ("(n, d), sources", True), ("(...)", True), ("mean, ()", True), ("of the shape of `b`", True), ("a scalar", True),
    ("rows (sorted)", False), ("from f()", False), ("", False)])
def test_a_shape_is_recognised(text, has):
    assert bool(SHAPE.search(text)) == has


@pytest.mark.parametrize("signature, shown", [
    ("heads:tuple=('a', 'b', 'c', 'd', 'e', 'f')", "heads:tuple=('a', ..., 'f')"),
    ("heads:list=['a', 'b', 'c', 'd', 'e', 'f', 'g'], # names", "heads:list=['a', ..., 'g'], # names"),
    ("heads:tuple=('a', 'b', 'c', 'd', 'e'), n:int=3", "heads:tuple=('a', 'b', 'c', 'd', 'e'), n:int=3")])
def test_of_a_long_default_the_first_and_the_last_name_are_shown(signature, shown):
    assert reference.shortened(signature) == shown
