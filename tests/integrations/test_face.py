"Names are handed on lazily, and a missing library names its extra"
import subprocess
import sys
import warnings

import pytest

import rolebregman.integrations as integrations


def test_importing_loads_no_library():
    script = ("import sys, rolebregman.integrations as i; heavy = {'torch', 'transformers', 'sentence_transformers', "
              "'pytorch_metric_learning', 'pykeen', 'sklearn', 'huggingface_hub'}; print(heavy & set(sys.modules))")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


@pytest.mark.parametrize("name", dir(integrations))
def test_every_name_is_there_and_documented(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries warn of while they are imported
        assert getattr(integrations, name).__doc__


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "rolebregman.integrations.metric_learning", raising=False)
    for name in ("as_pml_distance", "metric_learning"): monkeypatch.delattr(integrations, name, raising=False)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.distances", None)
    with pytest.raises(ImportError, match=r"as_pml_distance needs another package .*rolebregman\[metric\]"):
        integrations.as_pml_distance  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'as_pml'"):
        integrations.as_pml  # noqa: B018


def test_a_room_is_handed_on_as_its_names_are(monkeypatch):
    assert {"hub", "HubHead", "SHOWN", "model_card"} <= set(dir(integrations))
    assert integrations.hub.SHOWN is integrations.SHOWN
    assert dir(integrations) == sorted(integrations.__all__)
    monkeypatch.delitem(sys.modules, "rolebregman.integrations.pykeen", raising=False)
    monkeypatch.delattr(integrations, "pykeen", raising=False)
    monkeypatch.setitem(sys.modules, "pykeen.models", None)
    with pytest.raises(ImportError, match=r"pykeen needs another package .*rolebregman\[kg\]"):
        integrations.pykeen  # noqa: B018


def test_an_error_in_a_room_that_needs_no_extra_stays_what_it_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "rolebregman.integrations.hub", raising=False)
    for name in ("hub", "HubHead"): monkeypatch.delattr(integrations, name, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="huggingface_hub") as error: integrations.HubHead  # noqa: B018
    assert "pip install" not in str(error.value)
