"The API reference: what is public, how it is documented, and what nbdev itself leaves out of a page"
import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

from execnb.nbio import mk_cell
from fastcore.docments import docments
from nbdev.config import get_config
from nbdev.doclinks import NbdevLookup
from nbdev.process import Processor
from nbdev.showdoc import BasicMarkdownRenderer, _ext_link
from processed import doc_base, page_name

COLAB = "https://colab.research.google.com/github"
COMMAND = ("cli", "command", "own_files")  # modules where a command's name means the command


def modules() -> dict[str, str]:  # as in {"main_results": "rolebregman.study.main_results"}
    "Names of the library's modules, by the page that documents each"
    library, found = get_config().lib_path, {}
    for path in sorted(library.glob("[!_]*.py")):
        notebook = re.search(r"File to edit: \S*?([\w-]+\.ipynb)", path.read_text(encoding="utf-8"))[1]
        found[page_name(notebook)] = f"{library.name}.{path.stem}"
    return found


def function_of(member):
    "What stands behind a method or a property; None for anything else"
    for attribute in ("__func__", "fget", "func"):  # of class methods, properties and cached properties
        member = getattr(member, attribute, member)
    return inspect.unwrap(member) if inspect.isfunction(member) else None


def members(cls: type) -> dict:  # functions by name
    "The public methods and properties that a class defines itself"
    found = {name: function_of(value) for name, value in vars(cls).items() if not name.startswith("_")}
    return {name: function for name, function in found.items() if function}


def definitions(module: ModuleType) -> dict:  # classes and functions by name
    "The public classes and functions that a module defines itself"
    named = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in named.items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__}


def _comments(lines: list[str], nodes: list) -> dict[str, str]:  # by the name that is assigned
    "The comment behind each assignment, or the one on the lines above it"
    found = {}
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            behind = [m[1] for i in (node.lineno, node.end_lineno) if (m := re.search(r" # (.*)$", lines[i - 1]))]
            above = []
            for line in reversed(lines[:node.lineno - 1]):
                if not (m := re.match(r"\s*# (?!%%)(.*)", line)): break
                above.insert(0, m[1])
            found[getattr(target, "id", "")] = behind[0] if behind else " ".join(above)
    return found


def constants(module: ModuleType) -> dict[str, str]:  # what is said of each
    "What else a module makes public and defines itself"
    source, defined = inspect.getsource(module), definitions(module)
    said = {name: said for name, said in _comments(source.splitlines(), ast.parse(source).body).items()
            if name in module.__all__ and name not in defined}
    # Typer's options say themselves what they are.
    options = {name: getattr(part, "help", "") for name in said
               for part in getattr(getattr(module, name), "__metadata__", ())}
    return said | options


def is_named_tuple(obj) -> bool:
    "Is it a class made by `NamedTuple`?"
    return inspect.isclass(obj) and issubclass(obj, tuple) and hasattr(obj, "_fields")


def _fields(cls: type) -> tuple[list[str], list]:
    "The source of a class by line, and its fields"
    source = inspect.getsource(cls)
    return source.splitlines(), [n for n in ast.parse(source).body[0].body if isinstance(n, ast.AnnAssign)]


def parameters(
    obj,  # a function or a class
    owner: type | None = None,  # the class that it is a method of
) -> dict[str, str | None]:  # comment by name; `return` for what is returned
    "What the comments behind parameters say; where they say nothing, those in the library's classes that are extended"
    if is_named_tuple(obj): return _comments(*_fields(obj))
    if inspect.isclass(obj): same = obj.__mro__[1:]
    else: same = [function_of(vars(base).get(obj.__name__)) for base in owner.__mro__[1:]] if owner else []
    found = docments(obj, args_kwargs=True)
    for other in same:
        if other and other.__module__.startswith(get_config().lib_name):
            found |= {name: said for name, said in docments(other, args_kwargs=True).items() if not found.get(name)}
    return found


def _documentation(cls: type, member: str, function) -> str:
    "What nbdev shows of a method or property"
    bound = isinstance(vars(cls)[member], classmethod)
    renderer = BasicMarkdownRenderer(getattr(cls, member) if bound else function, name=f"{cls.__name__}.{member}")
    said = parameters(function, cls)
    for name, parameter in renderer.dm.dm.items(): parameter["docment"] = said.get(name)
    return renderer._repr_markdown_()


def _command(function) -> str:
    "The signature of a command with the help of its options; empty where there are none"
    parameters = inspect.signature(function).parameters.values() if inspect.isfunction(function) else ()
    typed = [(p, *get_args(p.annotation)[:2]) for p in parameters if hasattr(p.annotation, "__metadata__")]
    lines = [f"    {p.replace(annotation=kind)}, # {getattr(option, 'help', '')}" for p, kind, option in typed]
    code = "\n".join([f"def {function.__name__}(", *lines, "):"]) if lines else ""
    return re.sub(r"\b(pathlib\.|Posix(?=Path))", "", code)


def line_of(value) -> int:
    "Where a function or a class begins in its file, decorators aside"
    lines, start = inspect.getsourcelines(value)
    return start + next(i for i, line in enumerate(lines) if re.match(r"\s*(class|def) ", line))


def _shown_by(cell) -> str:
    "What a cell documents, as in `show_doc(ICNN.gradient, title_level=4)`"
    found = re.search(r"^show_doc\(([\w.]+)", cell.source, flags=re.M) if cell.cell_type == "code" else None
    return found[1] if found else ""


class Reference(Processor):
    """The last of nbdev's processors (`procs` in settings.ini) adds to a page what the others leave out.

    A link to Colab under the title; the fields of named tuples; at the end the methods and properties that the text
    has not shown, and the constants. And it sets links right: to the source of what is shown, where several modules
    have the name; none inside code or headings; and from a name to the page's own, or else to the library's rather
    than to the command of that name."""

    def begin(self):
        self.page = page_name(self.nb.path_)
        name = modules().get(self.page)
        self.defined = definitions(module := import_module(name)) if name else {}
        cfg = get_config()
        if name:
            self.source = f"{cfg.git_url}/blob/{cfg.branch}/{name.replace('.', '/')}.py"
            self.nb.cells.extend(self.section(module))
        for cell in self.nb.cells:
            if cell.cell_type == "markdown": cell.source = self.links(cell.source)
            for data in (output.get("data", {}) for output in cell.get("outputs", [])):
                if "text/markdown" in data:
                    text = self.title("".join(data["text/markdown"]), _shown_by(cell))
                    # nbdev emphasises no more than the first line of the first paragraph.
                    text = re.sub(r"^\*(\S.*)\*\n((?:.+\n?)+)", lambda m: f"*{m[1]} {' '.join(m[2].split())}*\n", text,
                                  flags=re.M)
                    data["text/markdown"] = self.links(self.fields(text)).splitlines(True)
        address = f"{COLAB}/{cfg.user}/{cfg.repo}/blob/{cfg.branch}/{cfg.nbs_path.name}/{Path(self.nb.path_).name}"
        link = f"[Open in Colab]({address}) ([what to run there first](index.ipynb#in-colab))"
        self.nb.cells.insert(1, mk_cell(link, "markdown", id="colab"))

    def title(self, text: str, name: str) -> str:
        "The documentation of `name` under its full name, with the link to its source"
        first, _, member = name.partition(".")
        value = self.defined.get(first)
        if member and value: value = members(value).get(member)
        if not value: return text
        source = _ext_link(f"{self.source}#L{line_of(value)}", "source", 'style="float:right; font-size:smaller"')
        pattern = re.compile(r"(\[source\]\(\S*\)\{[^}]*\}\s+)?^(#+ )\S+$", flags=re.M)
        return pattern.sub(lambda m: f"{source}\n\n{m[2]}{name}", text, count=1)

    def fields(self, text: str) -> str:
        "The documentation of a named tuple shows its fields, that of a command its options"
        for name, value in self.defined.items():
            code = _command(value)
            if is_named_tuple(value):
                lines, nodes = _fields(value)
                code = "\n".join([lines[0], *(line for n in nodes for line in lines[n.lineno - 1:n.end_lineno])])
            if code:
                text = re.sub(rf"^def {name}\(.*?\n```$", f"{code}\n```".replace("\\", r"\\"), text, flags=re.M | re.S)
        return text

    def section(self, module: ModuleType) -> list:
        "Cells with what the text has not shown"
        shown = {_shown_by(cell) for cell in self.nb.cells}
        more = [(cls, member, function) for name, cls in self.defined.items() if inspect.isclass(cls)
                for member, function in members(cls).items() if f"{name}.{member}" not in shown]
        asis = "#| echo: false\n#| output: asis\n"
        cells = [mk_cell(f"{asis}show_doc({cls.__name__}.{member})") for cls, member, _ in more]
        for cell, what in zip(cells, more):
            data = {"text/markdown": NbdevLookup().linkify(_documentation(*what)).splitlines(True)}
            cell.outputs = [dict(output_type="display_data", metadata={}, data=data)]
        if said := constants(module):
            text = "\n".join(f'- <a id="{name}"></a>`{name}`: {about}' for name, about in said.items())
            cells.append(mk_cell(NbdevLookup().linkify(text), "markdown"))
        title = mk_cell(f"## Reference of `{module.__name__}`", "markdown")
        for i, cell in enumerate([title, *cells]): cell["id"] = f"reference-{i}"
        return [title, *cells] if cells else []

    def address(self, name: str, found: str) -> str | None:
        "Where a name in backticks leads on this page; `found` is what nbdev takes it for"
        owners = [cls for cls, value in self.defined.items() if inspect.isclass(value) and name in members(value)]
        if name in self.defined: return f"{self.page}.html#{name.lower()}"
        if owners: return f"{self.page}.html#{owners[0].lower()}.{name.lower()}"
        if not found.startswith("cli.html") or self.page in COMMAND: return found
        symbols = NbdevLookup().entries[get_config().lib_name]["syms"]
        others = [names[f"{module}.{name}"][0] for module, names in symbols.items()
                  if module.split(".")[-1] not in COMMAND and f"{module}.{name}" in names]
        return others[0].removeprefix(doc_base()) if others else None

    def links(self, text: str) -> str:
        "Set right the links of names in backticks"
        def link(match):
            whole, name = match[1], match[1].removesuffix("()")
            address = None if fenced or line.startswith("#") else self.address(name, match[2])
            return f"[`{whole}`]({doc_base()}{address})" if address else f"`{whole}`"

        lines, fenced = text.split("\n"), False
        for i, line in enumerate(lines):
            if line.startswith("```"): fenced = not fenced
            lines[i] = re.sub(rf"\[`([^`]+)`\]\({re.escape(doc_base())}([^)]+)\)", link, line)
        return "\n".join(lines)
