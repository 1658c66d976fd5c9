"The tools that keep notebooks, library and README.md in step, each run as a program on a project of one notebook"
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

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
    (tmp_path / "rolebregman" / "__init__.py").write_text((root / "rolebregman" / "__init__.py").read_text())
    return tmp_path


def run(tool, project, *args):
    command = [sys.executable, root / "tools" / tool, *args]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)


# README.md

index = [
    cell("markdown", "# Tiny\n\n> A small project"),
    cell("code", "#| hide\nsecret = 1"),
    cell("markdown", "See [the study](07_main_results.ipynb#tables) and ![a picture](images/overview.png)."),
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


@pytest.fixture
def exported(project):
    write_notebook(project / "nbs" / "00_numbers.ipynb", module)
    for command in ("nbdev_clean", "nbdev_export"):
        subprocess.run([Path(sys.executable).parent / command], cwd=project, check=True, timeout=120)
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
    ("$$\na \\\\ b \\tag{1}\n$$", "\\begin{equation*}\na \\\\ b \\tag{1}\n\\end{equation*}"),
    ("## The law {#sec-law}", "(sec-law)=\n## The law"),
    ("as in @sec-law, and a@sec-mail", "as in [](#sec-law), and a@sec-mail"),
    ("$$\nx\n$$ {#eq-x}\nby @eq-x", "$$\nx\n$$ (eq-x)\nby {eq}`eq-x`"),
    ("::: {.callout-note}\nText\n:::", ":::{note}\nText\n:::"),
    ('::: {.callout-tip title="Try it"}\nText\n:::', ":::{admonition} Try it\n:class: tip\nText\n:::"),
    ("[heads](02_heads.ipynb#maps)", "[heads](heads.ipynb#maps)"),
    ("[sources](03a_sources.ipynb)", "[sources](sources.ipynb)"),
    ("Text\n\n![A tree](a.png)\n", "Text\n\n:::{figure} a.png\n:alt: A tree\n\nA tree\n:::\n"),
    ("| 1 ± 2 |", "| 1\u00a0±\u00a02 |"),
])
def test_myst(quarto, myst):
    assert import_module("build_site").to_myst(quarto) == myst


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


def test_punctuation_stays_with_formulas_and_names():
    code, formula = '<code class="docutils literal">x y</code>', '<span class="math notranslate">\\(t\\)</span>'
    link = f'<a href="q">{code}</a>'
    html = f"<p>({link}), {formula}. {code} z</p><h4>Head.some_name<a href='#'>#</a></h4>"
    assert import_module("build_site").kept_together(html) == (
        f'<p><span class="kept">({link}),</span> <span class="kept">{formula}.</span> {code} z</p>'
        "<h4>Head.<wbr>some_<wbr>name<a href='#'>#</a></h4>")


def test_code_in_markdown_is_not_translated():
    outside_code = import_module("processed").outside_code
    assert outside_code(str.upper, "a\n```py\nb\n```\nc\n") == "A\n```py\nb\n```\nC\n"


def test_a_notebook_missing_in_the_sidebar_is_an_error():
    with pytest.raises(SystemExit, match="08_new.ipynb"):
        import_module("build_site").toctrees(["index.ipynb", "08_new.ipynb"], ["index.ipynb"])
