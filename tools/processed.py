"Notebooks as nbdev processes them for the docs: what the site and the README are made from"
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from nbdev.processors import FilterDefaults
from nbdev.serve_drv import main as process

_directive = re.compile(r"^#\| *([\w-]+):? *(.*)$")


def text(
    value,  # the source of a cell or the data of an output: a string, a list of lines, or None
) -> str:
    "Notebook text as one string"
    return "".join(value or "")


def doc_base() -> str:
    "Address of the published site, with a slash at its end"
    cfg = get_config()
    return f"{cfg.doc_host}{cfg.doc_baseurl}/"


def sidebar() -> list:  # names of notebooks, and sections: a `section`, which may be a notebook too, and `contents`
    "What nbs/sidebar.yml lists"
    path = get_config().nbs_path / "sidebar.yml"
    return _listed(path.read_text(encoding="utf-8")) if path.exists() else []


@cache  # every page asks for it twice, and YAML is read slowly
def _listed(text: str) -> list:
    return yaml.safe_load(text)["website"]["sidebar"]["contents"]


def in_order(
    contents: list,  # of `sidebar`
) -> Iterator[str]:  # as in `heads/ranking.ipynb`
    "The notebooks of a sidebar as a reader meets them: a chapter, then its rooms"
    for entry in contents:
        if isinstance(entry, str):
            yield entry
        else:
            yield from (entry["section"],) if entry["section"].endswith(".ipynb") else ()
            yield from in_order(entry["contents"])


def below_nbs(
    notebook: str | Path,  # a path, in full or below nbs/
) -> str:  # as in `heads/ranking.ipynb`
    "The name of a notebook in nbs/sidebar.yml"
    path = Path(notebook)
    return (path.relative_to(get_config().nbs_path.absolute()) if path.is_absolute() else path).as_posix()


def notebooks() -> list[Path]:
    "The project's notebooks in the order of nbs/sidebar.yml; what it does not list comes last"
    nbs, found = get_config().nbs_path.absolute(), sorted(path.absolute() for path in nbglob(as_path=True))
    listed = [nbs / name for name in in_order(sidebar())]
    return [path for path in listed if path in found] + [path for path in found if path not in listed]


def page_name(
    notebook: str | Path,  # a path below nbs/ or in full, as in `02_role_heads.ipynb` or `heads/ranking.ipynb`
) -> str:  # as in `role_heads` or `heads/ranking`
    "Name of a notebook's page: nbdev strips the number of a chapter"
    path = Path(below_nbs(notebook))
    return path.with_name(re.sub(r"^\d+_", "", path.stem.lower())).as_posix()


def processed(
    notebook: Path,  # a notebook of the project
) -> list[dict]:  # the cells that are shown
    "Cells of a notebook after nbdev's own processing: hidden cells gone, API documentation and links added"
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        copy = Path(folder) / notebook.name
        try:
            process((notebook, copy, FilterDefaults))
        except Exception as error:
            # Most often a cell that imports: nbdev runs it for the docs, without the cells that it builds on.
            cause = f": {error.__cause__}" if error.__cause__ else ""
            raise ValueError(f"nbdev cannot process {notebook.name} for the docs{cause}\n{error}") from error
        cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    for warning in caught:
        # nbdev's own: `Found cells containing imports and other code. See FAQ.`, then the cell
        said = [line for line in str(warning.message).splitlines() if line.strip("- ")]
        print(f"{notebook.name}: {' | '.join(said[:2])}", file=sys.stderr)
    return [cell for cell in cells if text(cell.get("source")).strip()]


def heading(
    cell: dict,  # a raw cell that holds front matter
) -> str:
    "The front matter as a heading and a one-line description in markdown"
    front = yaml.safe_load(text(cell["source"]).strip().strip("-"))
    description = front.get("description")
    return f"# {front['title']}" + (f"\n\n> {description}" if description else "")


def split_directives(
    source: str,  # of a code cell
) -> tuple[dict[str, str], str]:  # directives, and the code without them
    "Take the leading `#|` lines off a code cell"
    directives, lines = {}, source.splitlines()
    while lines and (match := _directive.match(lines[0])):
        directives[match[1]] = match[2].strip().strip("\"'")
        lines.pop(0)
    return directives, "\n".join(lines)


def outside_code(
    function,  # from markdown to markdown
    source: str,  # markdown
) -> str:
    "Apply a function to the parts of a markdown text that are not fenced code"
    parts = re.split(r"^(```.*?^```[ \t]*$)", source, flags=re.M | re.S)
    return "".join(p if i % 2 else function(p) for i, p in enumerate(parts))


def each_link(
    function,  # from the path of a notebook and the fragment, `#` and all or "", to an address
    source: str,  # markdown
) -> str:
    "Let links between notebooks lead elsewhere"
    link = re.compile(r"\]\((?!\w+:)([\w./-]+\.ipynb)(#[^)\s]*)?\)")
    return link.sub(lambda m: f"]({function(m[1], m[2] or '')})", source)
