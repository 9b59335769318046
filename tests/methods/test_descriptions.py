"""Methods are described by their source, which says the same as the classes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from limpet.errors import ConfigError
from limpet.methods import METHODS, describe
from limpet.methods.descriptions import from_class, from_source


@pytest.mark.parametrize("name", METHODS.places)
def test_the_source_says_what_the_class_is(name: str) -> None:
    assert from_source(METHODS.places[name]) == from_class(METHODS[name]) == describe(name)


def test_only_what_is_asked_for_is_imported() -> None:
    code = (
        "import sys; from limpet.methods import METHODS, describe; "
        "described = [describe(name) for name in METHODS]; assert 'torch' not in sys.modules; "
        "METHODS['bct']; assert 'limpet.methods.bct' in sys.modules and 'limpet.methods.nccl' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_method_that_is_no_plain_class_of_its_own_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Derived(METHODS["bct"]):  # type: ignore[misc,valid-type]
        """A method of somebody's own."""

    monkeypatch.setitem(METHODS, "derived", Derived)
    found = describe("derived")
    assert found.documentation == "A method of somebody's own." and found.options == describe("bct").options
    with pytest.raises(ValueError, match="inherits"):
        from_source("limpet.methods.base:PrototypeClassifier")
    with pytest.raises(ConfigError, match="Unknown method 'bcd'"):
        describe("bcd")
