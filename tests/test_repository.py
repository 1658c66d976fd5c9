"What the files of the repository must agree on, and what none of them may hold"
import json
import re
import subprocess
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pytest
import yaml

root = Path(__file__).resolve().parents[1]


nbs = root / "nbs"
processed = import_module("processed")
order = [nbs / name for name in processed.in_order(processed.sidebar())]
notebooks = sorted(nbs.rglob("*.ipynb"))
name_of = dict(ids=processed.below_nbs)


def test_sidebar_lists_every_notebook_once():
    assert sorted(order) == notebooks


def markdown(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def linked(path, text):
    "The notebooks that a text in a notebook links to"
    return [(path.parent / link).resolve() for link in re.findall(r"\]\((?!\w+:)([^)#\s]+\.ipynb)", text)]


@pytest.mark.parametrize("path", [p for p in notebooks if p.name != "index.ipynb"], **name_of)
def test_a_notebook_opens_with_what_one_learns_and_ends_with_what_follows(path):
    texts = markdown(path)
    opening = re.split(r"^## ", "\n".join(texts), flags=re.M)[0]
    assert re.search(r"\b[Yy]ou will\s+(see|learn|meet)\b", opening), "say before the first section what one learns"
    assert set(linked(path, texts[-1])) - {path}, "say at the end which notebook follows"


@pytest.mark.parametrize("path", notebooks, **name_of)
def test_links_lead_to_notebooks_that_exist(path):
    assert not [link for text in markdown(path) for link in linked(path, text) if link not in notebooks]


@pytest.mark.parametrize("path, after", zip(order, order[1:]), ids=map(processed.below_nbs, order[:-1]))
def test_next_is_what_follows_in_the_sidebar(path, after):
    closing = re.search(r"\bNext: .*", markdown(path)[-1], re.S)
    if closing: assert linked(path, closing[0])[:1] == [after], f"{processed.below_nbs(after)} comes next"


@pytest.mark.parametrize("path", notebooks, **name_of)
def test_the_first_cell_holds_only_what_nbdev_takes_from_it(path):
    first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    assert re.fullmatch(r"# .*\n+(> .*\n?)+\s*", first), "nbdev keeps no more of it: make a cell of the rest"


@pytest.mark.parametrize("path", notebooks, **name_of)
def test_a_notebook_shows_something_happen(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = [c for c in cells if c["cell_type"] == "code" and not "".join(c["source"]).startswith("#| hide")]
    assert any(c["outputs"] for c in shown), "no cell that a reader sees has an output"


def test_versions_agree():
    version = import_module("rolebregman").__version__
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini")
    assert config["DEFAULT"]["version"] == version
    assert yaml.safe_load((root / "CITATION.cff").read_text())["version"] == version
    assert f"\n## {version}\n" in (root / "CHANGELOG.md").read_text()


def test_torch_is_pinned_to_one_version():
    pinned = re.search(r"^TORCH := (torch==\S+)$", (root / "Makefile").read_text(), re.M)[1]
    assert pinned in (root / "constraints.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout, so there are no tracked files")
    return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


# Written in pieces, so that this file does not hold what it looks for
folders = "|".join(("home", "root", "Users", "work", "tmp", "opt", "mnt"))
own_folder = re.compile(rf"(?<![\w.:/+~-])/(?:{folders})/[A-Za-z]")
registry = re.compile("|".join(re.escape(".".join(host)) for host in (
    ("pypi", "org"), ("python" "hosted", "org"), ("registry", "npmjs"), ("deb", "debian"))))


@pytest.mark.parametrize("pattern, text", [
    (own_folder, "File " + "/ho" + "me/ada/x.py"), (own_folder, '"' + "/tm" + 'p/x"'),
    (registry, "https://py" + "pi.org/simple")])
def test_patterns_find_what_they_look_for(pattern, text):
    assert pattern.search(text)


@pytest.mark.parametrize("pattern", [own_folder, registry], ids=["absolute paths", "registry hosts"])
def test_tracked_files_name_no_machine(tracked, pattern):
    found = []
    for path in tracked:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(root)}:{i}: {line.strip()[:100]}" for i, line in enumerate(lines, 1)
                  if pattern.search(line) and '"image/' not in line]
    assert not found


def test_the_limits_that_are_promised_are_those_that_hold(monkeypatch):
    from rolebregman.common import unpacked_limit
    from rolebregman.datasets import obo, sources
    from rolebregman.heads import files
    monkeypatch.delenv("ROLEBREGMAN_MAX_GIB", raising=False)
    text = (root / "SECURITY.md").read_text()
    for said, limit in (("config has at most 1 MiB", files._LONGEST == 2**20),
                        ("at most 4 GiB and an hour", (sources.MOST_BYTES, sources.LONGEST_SECONDS) == (2**32, 3600)),
                        ("an answer within 5 seconds", sources.ANSWER_SECONDS == 5),
                        ("unpacks to at most 4 GiB", unpacked_limit() == 2**32),
                        (f"at most {obo.LONGEST_LINE:,} characters", True)):
        assert said in text and limit, said
