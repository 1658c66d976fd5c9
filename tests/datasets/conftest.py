"What tests of datasets share"
import pytest

from rolebregman.datasets import FetchError, fetch


@pytest.fixture(scope="module")
def real_go():
    try:
        return fetch("go-basic.obo", quiet=True)
    except FetchError as e:
        pytest.skip(f"the Gene Ontology cannot be had here: {str(e).splitlines()[0]}")
