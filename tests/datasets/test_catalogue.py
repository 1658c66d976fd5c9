"""The catalogue is complete, and every checksum that is written down is used."""
import re
import tomllib
from importlib.resources import files

from rolebregman.datasets import SOURCES, cached_path


def test_every_source_is_complete():
    raw = [f for s in SOURCES.values() for f in s.files]
    assert all(re.fullmatch("[0-9a-f]{64}", f.sha256) and f.size > 0 for f in raw if f.sha256)
    assert not any(f.name.endswith((".bin", ".pkl", ".pt")) for f in raw) # nothing that would have to be unpickled
    for s in SOURCES.values():
        assert s.licence and s.places
        assert s.note or any(p.kind != "mirror" for p in s.places) # what to do where there is no mirror
        assert len({cached_path(s, f) for f in s.files}) == len(s.files)
    paths = [cached_path(s, f) for s in SOURCES.values() for f in s.files]
    assert len(set(paths)) == len(paths) # no source overwrites the files of another


def test_every_checksum_is_one_of_a_source():
    written = tomllib.loads((files("rolebregman.datasets")/"catalogue.toml").read_text("utf-8"))
    known = {s.name: {f.name: dict(size=f.size, sha256=f.sha256) for f in s.files if f.sha256}
             for s in SOURCES.values()}
    assert written == {name: raw for name, raw in known.items() if raw}
