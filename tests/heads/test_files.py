"Config and weights of a head belong together, whoever writes, is killed, or edits"
import json
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rolebregman.baselines import HEADS, make_head
from rolebregman.heads import DistanceHead, load_head
from rolebregman.heads.files import config_mark, difference, open_files, read_json, sketch, write_files

D = 6
root = Path(__file__).resolve().parents[2]


def told_apart(number):
    "Heads of one kind and one shape, each with a config and with weights that say which it is"
    head = make_head("role_bregman", D, hidden=(4,), strong_convexity=float(number + 1))
    with torch.no_grad():
        for weight in head.parameters(): weight.fill_(number + 1)
    return head


def number_of(head):
    "Which of those it is; an error where config and weights are of two"
    found = {float(head.config["strong_convexity"]), *(w.flatten()[0].item() for w in head.parameters())}
    assert len(found) == 1, found
    return found.pop() - 1


KILLED = """
import os, sys
from test_files import told_apart
head = told_apart(1)
def counted(function, most, met=[]):
    def run(*args, **how):
        met.append(None)
        if len(met) > most: os._exit(9)
        return function(*args, **how)
    return run
for step in range(20):
    if not os.fork():  # the child saves, and is killed when it is to open, write out, move or remove one file more
        for name in ("open", "fsync", "replace", "unlink"): setattr(os, name, counted(getattr(os, name), step))
        head.save_pretrained(sys.argv[1] + f"/{step}")
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def killed_saves(folder):
    "Exit statuses of saves of head 1 into the folders 0, 1, ... that are killed after so many steps"
    path = os.pathsep.join([str(root), str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, "-c", KILLED, folder], capture_output=True, text=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path})
    return list(map(int, done.stdout.split()))


def test_a_save_that_is_killed_leaves_the_old_head_or_the_new_one(tmp_path):
    for step in range(20): told_apart(0).save_pretrained(tmp_path / str(step))
    statuses, found = killed_saves(tmp_path), []
    for step in range(20):
        found.append(number_of(load_head(tmp_path / str(step))))
        told_apart(2).save_pretrained(tmp_path / str(step))
        assert number_of(load_head(tmp_path / str(step))) == 2
        names = {path.name for path in (tmp_path / str(step)).iterdir()}
        assert names == {"config.json", "model.safetensors"}, "what was left over is swept"
    kills = statuses.index(0)
    assert set(statuses[:kills]) == {9} and set(statuses[kills:]) == {0}
    assert found == sorted(found) and found[:3] == [0, 0, 0] and found[kills - 2:kills] == [1, 1], found


def test_the_first_save_that_is_killed_leaves_a_head_or_none(tmp_path):
    found = []
    for step, _ in enumerate(killed_saves(tmp_path)):
        try: found.append(number_of(load_head(tmp_path / str(step))))
        except FileNotFoundError as error:
            assert "is not a folder written by save_pretrained" in str(error)
            found.append(-1)
    assert found == sorted(found) and set(found) == {-1, 1}


def test_two_writers_and_a_reader(tmp_path):
    heads, seen, done = [told_apart(0), told_apart(1)], set(), threading.Event()
    heads[0].save_pretrained(tmp_path)
    def write(head):
        for _ in range(40): head.save_pretrained(tmp_path)
    def read():
        while not done.is_set(): seen.add(number_of(load_head(tmp_path)))
    with ThreadPoolExecutor(3) as pool:
        reader, writers = pool.submit(read), [pool.submit(write, head) for head in heads]
        for writer in writers: writer.result()
        done.set()
        reader.result()
    assert seen and seen <= {0, 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("change", [{"strong_convexity": 0.7}, {"hidden": [4, 4]}, {"activation": "softplus"}])
def test_a_config_that_was_edited_is_refused(tmp_path, change):
    file = told_apart(0).save_pretrained(tmp_path) / "config.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about, indent=7))  # laid out otherwise
    assert number_of(load_head(tmp_path)) == 0
    file.write_text(json.dumps(about | {"config": about["config"] | change}))
    with pytest.raises(ValueError, match="config.json is not the config that model.safetensors was saved with"):
        load_head(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_of_another_head_is_refused(tmp_path, name):
    for number in (0, 1): told_apart(number).save_pretrained(tmp_path / str(number))
    (tmp_path / "0" / name).write_bytes((tmp_path / "1" / name).read_bytes())
    with pytest.raises(ValueError, match="it was edited, or is of another head"): load_head(tmp_path / "0")


def test_other_inputs_are_refused(tmp_path):
    file = make_head("mlp", D, inputs="raw").save_pretrained(tmp_path) / "config.json"
    file.write_text(file.read_text().replace('"raw"', '"unit"'))
    with pytest.raises(ValueError, match="is not the config"): load_head(tmp_path)


def test_a_full_disk_is_called_one_and_leaves_the_old_head(tmp_path):
    "Whatever part of a file a limit lets through"
    size = (told_apart(0).save_pretrained(tmp_path) / "model.safetensors").stat().st_size
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, 700, size // 2, size - 1):
        head = told_apart(1)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(OSError, match="File too large") as error: head.save_pretrained(tmp_path)
        finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert Path(error.value.filename).parent == tmp_path
        assert not Path(error.value.filename).name.startswith(".config.json.0"), "the file that is meant"
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# ---- what a config costs

def hostile(folder, **config):
    "A head's folder of an older version whose config asks for more than its weights hold"
    head = make_head("role_bregman", D, hidden=(4, 4))
    about = json.loads((head.save_pretrained(folder) / "config.json").read_text())
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(about | {"config": about["config"] | config}))


@pytest.mark.parametrize("config", [dict(dim=200_000, proj_dim=200_000), dict(hidden=[1] * 20_000), dict(dim=10**9),
    dict(hidden=[10**6, 10**6]), dict(extra=10**9), dict(features=10**9), dict(proj_dim=10**9), dict(dim=10**18)])
@pytest.mark.parametrize("maps", ["linear", "lowrank"])
def test_a_config_costs_nothing_before_it_is_compared_with_the_weights(tmp_path, config, maps):
    hostile(tmp_path, maps=maps, **config)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (now + (256 << 20), hard))  # 256 MB, and none of these asks for less
        with pytest.raises(ValueError, match="another head than config.json says|does not take this config"):
            load_head(tmp_path)
    finally: resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_mark_does_not_make_a_config_trusted(tmp_path):
    hostile(tmp_path, hidden=[10**6, 10**6])
    about = json.loads((tmp_path / "config.json").read_text())
    write_files(tmp_path, json.dumps(about), load_file(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match="another head than config.json says"): load_head(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "\ud800", "9" * 5000,
    '{"class": "' + "x" * 900_000 + '", "module": "m", "config": {}, "dtype": "float32"}',
    '{"class": "MLP", "module": "rolebregman.baselines", "config": {"dim": ' + "[" * 900 + "]" * 900
    + '}, "dtype": "float32"}', '{"class": "MLP", "module": "rolebregman.baselines", "config": {"'
    + "k" * 900_000 + '": 1, "dim": 6}, "dtype": "float32"}', " " * 2_000_000 + "{}"])
def test_deep_and_long_configs_give_the_usual_error(tmp_path, text):
    make_head("mlp", D).save_pretrained(tmp_path)
    save_file(load_file(tmp_path / "model.safetensors"), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(ValueError, match="config.json") as error: load_head(tmp_path)
    assert len(str(error.value)) < 1500, "it fits a screen"


def test_a_config_may_be_as_long_as_is_said_and_no_longer(tmp_path):
    (tmp_path / "c.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "c.json", 8) == {"a": 1}
    with pytest.raises(ValueError, match="it has 8 bytes, expected at most 7"): read_json(tmp_path / "c.json", 7)


def test_long_names_of_tensors_give_the_usual_error(tmp_path):
    state = make_head("mlp", D).save_pretrained(tmp_path) / "model.safetensors"
    save_file(load_file(state) | {"a." * 50_000 + "b": torch.zeros(1)}, state)
    with pytest.raises(ValueError, match="model.safetensors .* which the head does not have") as error:
        load_head(tmp_path)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("name", HEADS)
def test_a_sketch_has_the_shapes_of_the_head(name):
    head = make_head(name, D)
    before = torch.get_rng_state()
    shapes = sketch(type(head), head.config, 64)
    assert torch.equal(torch.get_rng_state(), before), "no random number is drawn for it"
    assert shapes == {key: tuple(value.shape) for key, value in head.state_dict().items()}


class Counts(DistanceHead):
    "A user's own class that needs numbers when it is made"
    def __init__(self, dim, groups):
        super().__init__(dim, groups=groups)
        self.width = int(torch.tensor(groups).max().item())
        self.register_buffer("groups", torch.tensor(groups))

    def compare(self, u, v): return (u - v).abs().sum(-1)


def test_a_class_that_cannot_be_sketched_is_made(tmp_path):
    groups = [i % 3 for i in range(1000)]
    assert load_head(Counts(D, groups).save_pretrained(tmp_path)).width == 2
    assert sketch(Counts, dict(dim=D, groups=groups), 4) is None and difference({}, None) == ""


@pytest.mark.parametrize("shapes, said", [
    ({"a": (2,)}, ""), ({}, "it holds no a"), ({"a": (2,), "b": ()}, "it holds b, which the head does not have"),
    ({"a": (3,)}, "a has shape (3,), expected (2,)")])
def test_one_difference_of_two_states_is_named(shapes, said):
    assert difference(shapes, {"a": (2,)}) == said


def test_what_the_files_say(tmp_path):
    told_apart(0).save_pretrained(tmp_path)
    with open_files(tmp_path) as (config, mark, shapes, file):
        assert mark == config_mark(read_json(config)) and set(shapes) == set(file.keys())


def test_the_same_head_is_the_same_bytes(tmp_path):
    folders = [told_apart(0).save_pretrained(tmp_path / str(i)) for i in range(8)]
    for name in ("config.json", "model.safetensors"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1


@pytest.mark.parametrize("when", ["before it is opened", "after"])
def test_a_head_that_is_saved_while_it_is_read_is_read_again(tmp_path, monkeypatch, when):
    "safe_open opens a file twice by its name: the mark could be that of the old one, and the tensors of the new one"
    told_apart(0).save_pretrained(tmp_path)
    new = [told_apart(1)]

    def meanwhile(*args):
        if new and when == "before it is opened": new.pop().save_pretrained(tmp_path)
        file = safe_open(*args)
        if new: new.pop().save_pretrained(tmp_path)
        return file
    monkeypatch.setattr("rolebregman.heads.files.safe_open", meanwhile)
    with pytest.raises(ValueError, match="model.safetensors was saved anew while it was read"):
        with open_files(tmp_path): assert not new
    told_apart(0).save_pretrained(tmp_path)
    new.append(told_apart(1))
    assert number_of(load_head(tmp_path)) == 1 and not new
