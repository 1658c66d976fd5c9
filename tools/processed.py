"Notebooks as nbdev processes them for the docs: what the site and the README are made from"
import json
import re
import sys
import warnings
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


def notebooks() -> list[Path]:
    "The project's notebooks in number order, which is the order of their imports"
    return sorted(nbglob(as_path=True))


def page_name(
    notebook: str,  # file name, as in `03a_sources.ipynb`
) -> str:  # as in `sources`
    "Name of a notebook's page: nbdev strips the number"
    return re.sub(r"^\d+[a-zA-Z0-9]*_", "", Path(notebook).stem.lower())


def processed(
    notebook: Path,  # a notebook of the project
    folder: Path,  # where the processed copy may be written
) -> list[dict]:  # the cells that are shown
    "Cells of a notebook after nbdev's own processing: hidden cells gone, API documentation and links added"
    copy = Path(folder) / notebook.name
    with warnings.catch_warnings(record=True) as caught:
        try:
            process((notebook, copy, FilterDefaults))
        except Exception as error:
            # Most often a cell that imports: nbdev runs it for the docs, without the cells that it builds on.
            cause = f": {error.__cause__}" if error.__cause__ else ""
            raise ValueError(f"nbdev cannot process {notebook.name} for the docs{cause}\n{error}") from error
    for warning in caught:
        # nbdev's own: `Found cells containing imports and other code. See FAQ.`, then the cell
        said = [line for line in str(warning.message).splitlines() if line.strip("- ")]
        print(f"{notebook.name}: {' | '.join(said[:2])}", file=sys.stderr)
    return [c for c in json.loads(copy.read_text(encoding="utf-8"))["cells"] if text(c.get("source")).strip()]


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
