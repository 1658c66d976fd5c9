"What the sub-commands share"
import pytest
import typer

from rolebregman.cli.command import items_of, pairs_file, say, watched


def test_vectors_come_from_what_is_said_now(tmp_path):
    assert items_of(tmp_path, vectors=tmp_path / "v.npy").vectors == tmp_path / "v.npy"
    with pytest.raises(typer.BadParameter, match="say where vectors are: --vectors"): items_of(tmp_path)


def test_what_is_said_goes_to_standard_error(capsys):
    say("a line")
    assert capsys.readouterr() == ("", "a line\n") and not watched()


def test_a_file_of_pairs_has_its_help():
    assert pairs_file("pairs").help == "pairs"
