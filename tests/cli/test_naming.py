"A head by folder, by name, and by --head, wherever that stands"
import pytest
from command_line import run
from typer.main import get_command

from rolebregman.cli.app import app


@pytest.mark.parametrize("order", ["explain {h} {a} {b}", "explain --head {h} {a} {b}", "explain {a} {b} --head {h}",
                                   "explain {a} --head {h} {b} --json"])
def test_a_head_is_the_first_argument_or_named(project, tree, order):
    a, b = tree.nodes["id"].iloc[tree.edges["train"][0]]
    done = run(order.format(h="head", a=a, b=b), project)
    assert f"{a}" in done.stdout and f"{b}" in done.stdout


def test_the_kind_of_a_head_is_still_an_option_of_fit(project):
    run("fit pairs.csv --vectors vectors.csv --head euclidean --epochs 0 --out kind", project)
    assert "Euclidean" in (project / "kind" / "config.json").read_text()


def test_a_file_or_a_name_that_is_none_is_refused(project):
    for name in ("pairs.csv", "nothing"):
        said = " ".join(run(f"search {name} n00001", project, status=2).output.split())
        assert f"{name} is not a folder written by save_pretrained" in said and "wordnet-minilm" in said


def test_every_sub_command_that_asks_a_head_takes_it_first():
    asking = {name for name, command in get_command(app).commands.items()
              if any(one.name == "head" and one.param_type_name == "argument" for one in command.params)}
    assert asking == {"evaluate", "score", "search", "explain"}
