"A head by folder, by name, and by --head, wherever that stands; an option that is typed twice"
import pytest
from click.testing import CliRunner
from command_line import run
from typer.main import get_command

from rolebregman.cli.app import app
from rolebregman.cli.naming import options_of


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


def of_one_value(command, path=()):
    "The words of each sub-command, and one of its options that take a value, with whether names go into it"
    subs = {name: command.get_command(None, name) for name in command.list_commands(None)} if hasattr(
        command, "list_commands") else {}
    for name, sub in subs.items(): yield from of_one_value(sub, (*path, name))
    for one in command.params:
        if one.param_type_name == "option" and not (one.is_flag or one.multiple): yield path, one


ONE_VALUE = list(of_one_value(get_command(app)))


def test_an_option_that_is_typed_twice_is_refused_by_every_sub_command():
    "The second value would have taken the place of the first without a word"
    assert len(ONE_VALUE) > 150 and len({path for path, _ in ONE_VALUE}) > 20
    for path, one in ONE_VALUE:
        done = CliRunner().invoke(get_command(app), [*path, *2 * [one.opts[0], *["1"] * one.nargs]])
        said = " ".join(done.output.split())
        assert done.exit_code == 2 and "given 2 times, takes one value" in said and one.opts[0] in said, (path, said)
        assert ("commas between" in said) == ("commas" in (one.help or "")), said


def test_an_option_that_takes_several_values_takes_them(project):
    fit = "fit pairs.csv --vectors vectors.csv --head euclidean --epochs 0"
    run(f"{fit} --set batch_size=32 --set margin=2 --out two", project)
    run("data list --json --json", project)


@pytest.mark.parametrize("words, options", [
    (["variant=dev-as-train", "limit=5", "quiet=True"], dict(variant="dev-as-train", limit=5, quiet=True)),
    (["hidden=[8, 4]", "seed=None", "text=a=b"], dict(hidden=[8, 4], seed=None, text="a=b")), ([], {})])
def test_options_are_read_as_in_python(words, options):
    assert options_of(words) == options


@pytest.mark.parametrize("word", ["all", "=3"])
def test_a_word_that_is_no_option_is_named(word):
    with pytest.raises(ValueError, match=f"'{word}' is no option, expected key=value"): options_of(["a=1", word])
