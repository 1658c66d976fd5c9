"The tools that keep notebooks, library and README.md in step, each run as a program on a project of one notebook"
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import yaml
from bs4 import BeautifulSoup

root = Path(__file__).resolve().parents[2]


def cell(kind, source, outputs=()):
    code = dict(execution_count=None, outputs=list(outputs)) if kind == "code" else {}
    return dict(cell_type=kind, metadata={}, source=source.splitlines(True), **code)


def stream(text): return dict(output_type="stream", name="stdout", text=text.splitlines(True))


def write_notebook(path, cells):
    kernel = dict(display_name="python3", language="python", name="python3")
    cells = [c | dict(id=f"c{i}") for i, c in enumerate(cells)]
    nb = dict(cells=cells, metadata=dict(kernelspec=kernel), nbformat=4, nbformat_minor=5)
    path.write_text(json.dumps(nb, indent=1) + "\n")
    return path


def read_outputs(path):
    return [c["outputs"] for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "settings.ini").write_text((root / "settings.ini").read_text())
    (tmp_path / "nbs").mkdir()
    (tmp_path / "rolebregman").mkdir()
    (tmp_path / "rolebregman" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    return tmp_path


def run(tool, project, *args):
    command = [sys.executable, root / "tools" / tool, *args]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)


# README.md

index = [
    cell("markdown", "# Tiny\n\n> A small project"),
    cell("code", "#| hide\nsecret = 1"),
    cell("markdown", "See [the study](07_main_results.ipynb#tables), "
         "[ranks](heads/ranking.ipynb) and ![a picture](images/overview.png)."),
    cell("code", "1 + 1", [dict(output_type="execute_result", execution_count=None, metadata={},
                                data={"text/plain": ["2"]})]),
    cell("code", "#| echo: false\nprint('table')", [stream("table\n")]),
    cell("markdown", "```sh\necho ![kept](as.png)\n```"),
]


def test_readme_is_what_github_shows(project):
    write_notebook(project / "nbs" / "index.ipynb", index)
    assert run("build_readme.py", project).returncode == 0
    text = (project / "README.md").read_text()
    assert text.startswith("# Tiny\n\n> A small project\n")
    assert "secret" not in text and "print(" not in text
    assert re.search(r"\[the study\]\(https://[^)]+/main_results\.html#tables\)", text)
    assert re.search(r"\[ranks\]\(https://[^)]+/heads/ranking\.html\)", text)
    assert "![a picture](nbs/images/overview.png)" in text
    assert "```python\n1 + 1\n```\n\n    2\n" in text
    assert "\n    table\n" in text
    assert "echo ![kept](as.png)" in text, "code is not rewritten"


def test_readme_check_sees_a_change(project):
    write_notebook(project / "nbs" / "index.ipynb", index)
    assert run("build_readme.py", project, "--check").returncode != 0, "there is no README.md yet"
    run("build_readme.py", project)
    assert run("build_readme.py", project, "--check").returncode == 0
    (project / "README.md").write_text((project / "README.md").read_text() + "by hand\n")
    checked = run("build_readme.py", project, "--check")
    assert checked.returncode != 0 and "build_readme.py" in checked.stderr
    assert "by hand" in (project / "README.md").read_text(), "a check writes nothing"


def test_readme_refuses_a_picture_it_cannot_hold(project):
    drawn = dict(output_type="display_data", metadata={}, data={"image/png": "aGVsbG8="})
    write_notebook(project / "nbs" / "index.ipynb", [index[0], cell("code", "draw()", [drawn])])
    built = run("build_readme.py", project)
    assert built.returncode != 0 and "images/" in built.stderr


# Notebooks and library in step

module = [
    cell("markdown", "# Numbers\n\n> A module"),
    cell("code", "#| default_exp numbers"),
    cell("code", "#| export\ndef double(x): return 2 * x"),
]


room = [
    cell("markdown", "# Pairs\n\n> A room"),
    cell("code", "#| default_exp many.pairs"),
    cell("code", "#| export\nfrom rolebregman.numbers import double\n\ndef twice(x): return double(x), double(x)"),
]
face = "import lazy_loader\n\n__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)\n"


@pytest.fixture
def exported(project):
    write_notebook(project / "nbs" / "00_numbers.ipynb", module)
    (project / "nbs" / "many").mkdir()
    write_notebook(project / "nbs" / "many" / "pairs.ipynb", room)
    for command in ("nbdev_clean", "nbdev_export"):
        subprocess.run([Path(sys.executable).parent / command], cwd=project, check=True, timeout=120)
    (project / "rolebregman" / "many" / "__init__.py").write_text(face)
    (project / "rolebregman" / "many" / "table.toml").write_text("one = 1\n")
    assert run("faces.py", project).returncode == 0
    assert run("check_sync.py", project).stderr == ""
    return project


def test_sync_names_a_module_changed_by_hand(exported):
    path = exported / "rolebregman" / "numbers.py"
    path.write_text(path.read_text().replace("2 * x", "3 * x"))
    checked = run("check_sync.py", exported)
    assert checked.returncode != 0 and "rolebregman/numbers.py" in checked.stderr and "nbdev_export" in checked.stderr
    assert "3 * x" in path.read_text(), "a check writes nothing"


def test_sync_names_a_notebook_that_is_not_clean(exported):
    path = exported / "nbs" / "00_numbers.ipynb"
    path.write_text(path.read_text().replace('"execution_count": null', '"execution_count": 7'))
    checked = run("check_sync.py", exported)
    assert checked.returncode != 0 and "nbs/00_numbers.ipynb is not clean" in checked.stderr


def test_sync_names_modules_without_notebook_and_notebooks_without_module(exported):
    (exported / "rolebregman" / "left_over.py").write_text("x = 1\n")
    (exported / "rolebregman" / "numbers.py").unlink()
    checked = run("check_sync.py", exported)
    assert checked.returncode != 0
    assert "rolebregman/left_over.py comes from no notebook" in checked.stderr
    assert "rolebregman/numbers.py is missing" in checked.stderr


def test_sync_looks_into_packages(exported):
    path = exported / "rolebregman" / "many" / "pairs.py"
    path.write_text(path.read_text() + "x = 1\n")
    (exported / "rolebregman" / "many" / "left_over.py").write_text("x = 1\n")
    said = run("check_sync.py", exported).stderr
    assert "rolebregman/many/pairs.py is not what its notebook exports" in said
    assert "rolebregman/many/left_over.py comes from no notebook" in said and "table.toml" not in said


def test_sync_and_faces_name_a_face_that_its_modules_do_not_make(exported):
    path = exported / "rolebregman" / "many" / "__init__.pyi"
    made = path.read_text()
    assert made == "from . import pairs as pairs\nfrom .pairs import twice as twice\n"
    path.write_text("from .pairs import thrice as thrice\n")
    for checked in (run("check_sync.py", exported), run("faces.py", exported, "--check")):
        assert checked.returncode != 0 and "many/__init__.pyi" in checked.stderr and "tools/faces.py" in checked.stderr
    assert run("faces.py", exported).returncode == 0 and path.read_text() == made


@pytest.mark.parametrize("names, said", [
    ("'twice'", "'twice' is a name in pairs.py"), ("'pairs'", "'pairs' is a module")])
def test_a_face_hands_on_each_name_once(exported, names, said):
    (exported / "rolebregman" / "many" / "triples.py").write_text(f"__all__ = [{names}]\n")
    written = run("faces.py", exported)
    assert written.returncode != 0 and f"many/triples.py: {said}" in written.stderr


# Execution

def test_execution_keeps_outputs_and_repeats_them(project):
    path = write_notebook(project / "nbs" / "a.ipynb", [
        cell("code", "import random; random.seed(0); print(random.random(), hash('a'))"),
        cell("code", "x = 1", [stream("of an earlier run\n")]),
        cell("code", "#| slow\nprint('now')", [stream("when it was run\n")]),
        cell("code", "#| eval: false\nraise ValueError", [stream("kept\n")]),
    ])
    assert run("execute_notebooks.py", project, "nbs/a.ipynb").returncode == 0
    first, text = read_outputs(path), path.read_text()
    assert first[0] and first[1] == [], "the output of a cell that prints nothing now is gone"
    assert [o[0]["text"] for o in first[2:]] == [["when it was run\n"], ["kept\n"]]
    assert run("execute_notebooks.py", project, "nbs/a.ipynb").returncode == 0
    assert path.read_text() == text


@pytest.mark.parametrize("source, words", [
    ("x = 1 / 0", "ZeroDivisionError"),
    ("import warnings; warnings.warn('look here')", "look here"),
    ("import os; os._exit(3)", "failed"),
])
def test_execution_stops_at_a_fault_and_saves_nothing(project, source, words):
    path = write_notebook(project / "nbs" / "a.ipynb", [cell("code", "print(1)"), cell("code", source)])
    before = path.read_bytes()
    executed = run("execute_notebooks.py", project)
    assert executed.returncode != 0 and "a.ipynb" in executed.stderr and words in executed.stderr
    if "_exit" not in source:
        assert "cell 2" in executed.stderr
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["a.ipynb"]


def test_execution_has_a_time_limit(project):
    path = write_notebook(project / "nbs" / "a.ipynb", [cell("code", "import time; time.sleep(60)")])
    executed = run("execute_notebooks.py", project, "nbs/a.ipynb", "--timeout", "5")
    assert executed.returncode != 0 and "stopped after 5 s" in executed.stderr
    assert read_outputs(path) == [[]]


# Quarto's markdown in MyST

@pytest.mark.parametrize("quarto, myst", [
    ("## The law {#sec-law}", "(sec-law)=\n## The law"),
    ("as in @fig-law, and a@fig-mail", "as in [Figure 1](#fig-law), and a@fig-mail"),
    ("[heads](02_heads.ipynb#maps)", "[heads](heads.ipynb#maps)"),
    ("[a](../02_heads.ipynb), [b](heads/ranking.ipynb)", "[a](../heads.ipynb), [b](heads/ranking.ipynb)"),
    ("[elsewhere](https://a.org/02_heads.ipynb)", "[elsewhere](https://a.org/02_heads.ipynb)"),
    ("so it is\n$$x\\,.$$\nand $y$ too", "so it is\n\n$$x\\,.$$\n\nand $y$ too"),
    ("so\n$$\nx\n$$\nand\n$$y$$", "so\n\n$$\nx\n$$\n\nand\n\n$$y$$\n"),
])
def test_myst(quarto, myst):
    assert import_module("build_site").to_myst(quarto, {"fig-law": "Figure 1"}) == myst


def test_figures_and_tables_are_numbered_for_each_page():
    build = import_module("build_site")
    cells = [cell("code", f"#| label: {name}\n1") for name in ("fig-a", "tbl-a", "fig-b", "setup")]
    labels = build.figure_labels(cells)
    assert labels == {"fig-a": "Figure 1", "tbl-a": "Table 1", "fig-b": "Figure 2"}
    assert build.to_myst("as @fig-b shows", labels) == "as [Figure 2](#fig-b) shows"


def test_what_is_printed_in_columns_is_not_broken_into_lines():
    printed = [dict(text=t) for t in ("one line, which may be long", "name   value\nmrr    0.5", '{\n  "mrr": 0.5\n}')]
    assert [import_module("build_site").in_columns(dict(outputs=[p])) for p in printed] == [False, True, False]
    table = dict(data={"text/html": "<table></table>", "text/plain": "name   value"})
    assert not import_module("build_site").in_columns(dict(outputs=[dict(text="a sentence"), table]))


def test_a_name_is_in_the_index_of_the_search_by_itself_and_a_method_and_a_command_behind_it():
    entries = import_module("build_site").index_entries
    said = "[source](x.py#L1){.source}\n\n### %s\n\n```python\ndef f(): pass\n```\n"
    assert entries(said % "fit", "training") == "```{index} !fit\n```\n\n"
    assert entries(said % "Head.save", "heads") == "```{index} !Head.save, !.save\n```\n\n"
    assert entries(said % "fit", "cli/fitting") == "```{index} !$fit\n```\n\n"
    assert entries("no heading", "training") == ""


def test_what_newcomers_look_for_leads_to_pages_that_exist():
    pages = {import_module("processed").page_name(path) for path in import_module("processed").notebooks()}
    assert set(import_module("build_site").SOUGHT) <= pages


def test_the_summary_of_folded_code_is_the_authors():
    folded = dict(cell("code", '#| code-fold: true\n#| code-summary: "How"\n1'), id="a")
    made = import_module("build_site").to_sphinx(folded, {})
    assert made["metadata"]["tags"] == ["hide-input"] and made["metadata"]["mystnb"] == dict(code_prompt_show="How")


def test_only_the_icons_that_are_named_are_left(tmp_path):
    script = tmp_path / "_static" / "scripts" / "fontawesome.js"
    script.parent.mkdir(parents=True)
    left = 'a={moon:[1,2,[],"f1","M1"],"circle-half":[1,2,[9680,"adjust"],"f2",["M2","M3"]],'
    script.write_text(left + 'bug:[1,2,[],"f3","M4"]}')
    (tmp_path / "index.html").write_text('<i class="fa-solid fa-moon"></i><i class="fa-adjust"></i>')
    import_module("build_site").slim_icons(tmp_path)
    assert script.read_text() == left + "}"
    script.write_text("another build of it")
    with pytest.raises(SystemExit, match="holds no icons"): import_module("build_site").slim_icons(tmp_path)


def sphinx(folder, page):
    "The body of a page as Sphinx renders it with our transforms, without a theme"
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(root / 'tools' / 'site')!r})\nfrom transforms import slug\n"
        "extensions, html_theme = ['myst_nb', 'transforms'], 'basic'\nmyst_enable_extensions = ['dollarmath']\n"
        "myst_heading_anchors, myst_heading_anchors_html_ids, myst_heading_slug_func = 4, True, slug\n")
    (folder / "index.md").write_text("# Page\n\n" + page)
    (folder / "a.png").write_bytes(b"")
    build = [sys.executable, "-m", "sphinx", "-q", folder, folder / "html"]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    return (folder / "html" / "index.html").read_text()


def test_sphinx_sets_captions_tags_anchors_and_punctuation(tmp_path):
    html = sphinx(tmp_path, "![A tree](a.png)\n\n$$\na \\\\ b \\tag{1}\n$$\n\n"
                            "by (`x`), and [`y`](#z.a_b); $t$’s `w`, 9 % of `1 % 2`\n\n## Z.a_b\n")
    assert re.search(r'<figure.*<img alt="A tree".*<figcaption>\s*<p><span class="caption-text">A tree<', html, re.S)
    assert "\\begin{equation*}\na \\\\ b \\tag{1}\n\\end{equation*}" in html and r"\begin{split}" not in html
    kept = [span.get_text() for span in BeautifulSoup(html, "html.parser").select("span.kept")]
    assert kept == ["(x),", "y;", r"\(t\)’s", "w,"]
    assert 'id="z.a_b"' in html and 'href="#z-a-b"' in html
    assert "9\u00a0% of" in html.replace("&#160;", "\u00a0") and '>%</span>' in html


@pytest.mark.parametrize("heading, anchor", [
    ("Head.save_pretrained", "head.save_pretrained"), ("What's new, and why?", "whats-new-and-why"),
    ("3 parts", "parts")])
def test_anchors_are_those_of_quarto(heading, anchor, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools" / "site")
    assert import_module("transforms").slug(heading) == anchor


def test_code_in_markdown_is_not_translated():
    outside_code = import_module("processed").outside_code
    assert outside_code(str.upper, "a\n```py\nb\n```\nc\n") == "A\n```py\nb\n```\nC\n"


chapter = dict(section="01_icnn.ipynb", contents=["icnn/parts.ipynb"])
contents = ["index.ipynb", "guides/own.ipynb", dict(section="Method", contents=["00_theory.ipynb", chapter])]


def test_the_order_of_the_sidebar_is_that_of_a_reader():
    assert list(import_module("processed").in_order(contents)) == [
        "index.ipynb", "guides/own.ipynb", "00_theory.ipynb", "01_icnn.ipynb", "icnn/parts.ipynb"]


def test_a_chapter_has_a_toctree_of_its_rooms():
    trees = import_module("build_site").toctrees(contents)
    assert trees["01_icnn.ipynb"] == ["```{toctree}\n:hidden:\n\n/icnn/parts\n```"]
    assert trees["index.ipynb"] == ["```{toctree}\n:hidden:\n\n/guides/own\n```",
                                    "```{toctree}\n:hidden:\n:caption: Method\n\n/theory\n/icnn\n```"]


def test_a_notebook_missing_in_the_sidebar_is_an_error():
    with pytest.raises(SystemExit, match="08_new.ipynb"):
        import_module("build_site").translated(["index.ipynb", "08_new.ipynb"])


# The reference

class _Base:
    def score(self): pass


class Public(_Base):
    "Two things. And more of them"
    def _private(self): pass

    def save(self):
        "Keep it"


def test_members_include_those_of_private_bases():
    assert list(import_module("reference").members(Public)) == ["score", "save"]


def test_a_link_of_the_author_holds_no_other_link():
    reference = import_module("reference")
    page = reference.Reference(None)
    page.defined, page.page, page.path, page.notebooks = {}, "heads/ranking", Path("heads/ranking.ipynb"), {
        "evaluation": "05_evaluation.ipynb", "heads/ranking": "heads/ranking.ipynb"}
    name = f"[`compare`]({reference.doc_base()}evaluation.html#compare)"
    ours = "[`compare`](../05_evaluation.ipynb#compare)"
    assert page.links(f"{name}, [{name}](../x.ipynb)") == f"{ours}, [`compare`](../x.ipynb)"
    assert page.links(f"## {name}\n```\n{name}\n```") == "## `compare`\n```\n`compare`\n```"


def test_a_table_has_no_column_that_counts_its_rows():
    table = import_module("tables").without_row_numbers
    frame = pd.DataFrame(dict(head=["mlp", "iqe"], mrr=[0.5, 0.75]))
    assert table(frame.to_html()).split() == frame.to_html(index=False).split()
    for kept in (frame.set_index("head"), frame[::-1], frame.rename_axis("seed"), frame.set_axis([0, 2])):
        assert table(kept.to_html()) == kept.to_html(), "a column that says something is left"


@pytest.mark.parametrize("write", [pd.DataFrame.to_html, pd.DataFrame.to_markdown])
def test_the_best_of_a_column_is_bold(write):
    bold = import_module("tables").with_best_in_bold
    frame = pd.DataFrame({"MRR": ["0.9 ± 0.1", "0.5 ± 0.0", "0.9 ± 0.2"], "seconds": [3, 2, 1]}, index=["a", "b", "c"])
    made = bold(write(frame))
    assert re.findall(r"(?:<strong>|\*\*)(.*?)(?:</strong>|\*\*)", made) == ["0.9 ± 0.1", "0.9 ± 0.2"]
    assert re.sub(r"</?strong>|\*\*| +", "", made) == write(frame).replace(" ", "")
    assert bold(write(frame[["seconds"]])) == write(frame[["seconds"]])


def test_of_ranks_the_smallest_is_bold_and_not_the_largest():
    ranks = pd.DataFrame({"rank in MRR": [3.5, 1.25, 20.0], "mean rank": [3, 10, 2]})
    made = import_module("tables").with_best_in_bold(ranks.to_html())
    assert re.findall("<strong>(.*?)</strong>", made) == ["1.25", "2"]


def test_a_table_in_html_has_no_markdown_and_breaks_names_behind_underscores_only():
    as_html = import_module("tables").as_html
    made = as_html(pd.DataFrame({"of_two_words": ["83.1/**100.0**"], "one": ["2 ** 3 ** 4"]}).to_html(index=False))
    assert "83.1/<strong>100.0</strong>" in made and "<th>of_<wbr/>two_<wbr/>words</th>" in made
    assert "<th>one</th>" in made


def test_a_table_of_groups_is_left_as_it_is():
    groups = pd.DataFrame(dict(MRR=[1, 2, 3]), index=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]))
    assert import_module("tables").with_best_in_bold(groups.to_html()) == groups.to_html()


def notebook_cell(source): return import_module("execnb.nbio").mk_cell(source)


@pytest.mark.parametrize("source, folded", [
    ("plot()", True), ("#| label: fig-a\nplot()", True), ("#| echo: false\nplot()", False),
    ("#| code-fold: show\nplot()", False), ("#| output: asis\nshow_doc(f)", False)])
def test_code_of_results_is_folded_where_the_author_says_nothing(source, folded):
    import_module("reference").fold(made := notebook_cell(source))
    assert (made.source != source) == folded and ("code-fold: true" in made.source) == folded


def test_a_picture_without_a_description_has_its_caption_for_one():
    describe = import_module("reference").describe_picture
    describe(bare := notebook_cell('#| fig-cap: "A tree"\nplot()'))
    assert bare.source == '#| fig-alt: "A tree"\n#| fig-cap: "A tree"\nplot()'
    describe(told := notebook_cell('#| fig-alt: "Dots"\n#| fig-cap: "A tree"\nplot()'))
    assert told.source.startswith('#| fig-alt: "Dots"\n#| fig-cap')


def test_a_command_shows_what_is_typed():
    searching, said = import_module("rolebregman.cli.searching"), import_module("reference").command_help
    shown = said(searching.score)
    assert shown.startswith("Usage: rolebregman score [OPTIONS]") and "\n  --json " in shown
    assert "as_json" not in shown and "Write the distances of pairs" not in shown, "that stands in the docstring"
    assert said(searching.say) == said(import_module) == ""


def test_a_name_in_a_summary_leads_to_where_it_is_shown():
    row = import_module("reference").row
    assert row("Head.save", Public.save) == ("[`Head.save`](#head.save)", "Keep it")
    assert row("double", Public, "../01_icnn.ipynb") == ("[`double`](../01_icnn.ipynb#double)", "Two things")
    assert row("HEADS", "by name", "../01_icnn.ipynb")[0] == '<a href="../icnn.html#HEADS"><code>HEADS</code></a>'
    assert row("HEADS", "by name")[0] == '<a href="#HEADS"><code>HEADS</code></a>'


def parts_of_the_sidebar(contents):
    return [entry["section"] for entry in contents if not isinstance(entry, str)]


def test_no_part_of_the_sidebar_has_the_name_of_a_page():
    processed = import_module("processed")
    titles = [json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"][0].strip("# \n")
              for path in processed.notebooks()]
    names = [name.casefold() for name in [*titles, *parts_of_the_sidebar(processed.sidebar())]]
    assert len(set(names)) == len(names)
    assert parts_of_the_sidebar(processed.sidebar()) == ["Start", "Use", "Understand", "Study", "Reference"]


def test_both_builders_wrap_code_and_quarto_follows_the_reader():
    settings = yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))
    html, website = settings["format"]["html"], settings["website"]
    assert html["code-overflow"] == "wrap" and html["respect-user-color-scheme"] and html["css"] == "styles.css"
    assert website["page-navigation"] and "github.com" in website["navbar"]["tools"][0]["href"]
    workflow = (root / ".github" / "workflows" / "docs.yaml").read_text(encoding="utf-8")
    pinned = re.search(r"^QUARTO := (\S+)", (root / "Makefile").read_text(encoding="utf-8"), re.M)[1]
    assert f"version: {pinned}\n" in workflow, "the workflow and make docs name one Quarto"


# Stands in for Quarto where `nbdev_docs` calls it: what it is asked for, and files where Quarto writes them.
quarto = f"""#!{sys.executable}
import os, re, sys
from pathlib import Path

here, out = Path.cwd(), Path("_docs")
with open(os.environ["QUARTO_ASKED"], "a") as asked: print(*sys.argv[1:], sep="|", file=asked)
out.mkdir(exist_ok=True)
if "-t" in sys.argv: (out / "README.md").write_text("Quarto's own")
elif os.environ.get("QUARTO_FAILS"): sys.exit(3)
else:
    for path in here.rglob("*.ipynb"):
        name = re.search(r"output-file: (\\w+.html)", text := path.read_text())  # of which nbdev leaves out the number
        (out / name[1]).write_text(text)
"""


@pytest.fixture
def documented(tmp_path):
    "A copy of the project with three of its pages, and a stand-in for Quarto on the PATH"
    project, path = tmp_path / "project", tmp_path / "path"
    for name in ("tools", "rolebregman"):
        shutil.copytree(root / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "settings.ini", "_quarto.yml", "README.md", "nbs/_quarto.yml", "nbs/sidebar.yml",
                 "nbs/styles.css", "nbs/index.ipynb", "nbs/02_role_heads.ipynb", "nbs/guides/get_started.ipynb"):
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(root / name, project / name)
    path.mkdir()
    (path / "quarto").write_text(quarto)
    (path / "quarto").chmod(0o755)
    environment = {name: said for name, said in os.environ.items() if name != "PYTHONPATH"}  # make says what is needed
    environment |= dict(PATH=f"{path}:{os.environ['PATH']}", QUARTO_ASKED=str(path / "asked"))

    def make(*wanted, **more):
        command = ["make", "-o", ".venv/.dev", *wanted, f"BIN={Path(sys.executable).parent}"]
        return subprocess.run(command, cwd=project, env=environment | more, capture_output=True, text=True, timeout=300)

    written = subprocess.run([sys.executable, "tools/build_readme.py"], cwd=project, timeout=120, capture_output=True,
                             env=environment | dict(PYTHONPATH="."))
    assert written.returncode == 0, written.stderr
    os.utime(project / "README.md", (0, 0))  # older than its notebook, so nbdev_docs lets Quarto write one
    return project, make


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed: apt-get install make")
def test_make_docs_drives_quarto_and_keeps_the_readme(documented):
    project, make = documented
    before = (project / "README.md").read_bytes()
    made = make("docs")
    assert made.returncode == 0, made.stderr
    asked = (project.parent / "path" / "asked").read_text().splitlines()
    assert [line.split("|")[0] for line in asked] == ["render", "render"]
    assert asked[0].endswith("-o|README.md|-t|gfm|--no-execute") and asked[1] == "render|--no-cache"
    assert {page.name for page in (project / "_docs").glob("*.html")} == {
        "index.html", "role_heads.html", "get_started.html"}, "numbers are not part of an address"
    page = (project / "_docs" / "role_heads.html").read_text()
    assert "Reference of `rolebregman.heads.role_head`" in page, "our own processor has had its turn"
    assert (project / "README.md").read_bytes() == before
    assert "Quarto's own" not in (project / "README.md").read_text()


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed: apt-get install make")
def test_make_docs_fails_with_quarto_and_keeps_the_readme_all_the_same(documented):
    project, make = documented
    before = (project / "README.md").read_bytes()
    made = make("docs", QUARTO_FAILS="1")
    assert made.returncode != 0 and not (project / "_docs").exists()
    assert (project / "README.md").read_bytes() == before
