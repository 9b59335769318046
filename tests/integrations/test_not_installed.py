"""Without a framework its module says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from limpet.errors import ConfigError


@pytest.mark.parametrize(
    ("module", "package", "install"),
    [("langchain", "langchain_core", "langchain-core"), ("llama_index", "llama_index", "llama-index-core")],
)
def test_what_to_install(module: str, package: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"limpet.integrations.{module}", raising=False)
    with pytest.raises(ConfigError, match=f"pip install {install}"):
        importlib.import_module(f"limpet.integrations.{module}")
