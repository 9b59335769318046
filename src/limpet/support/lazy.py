"""Load the names of a module on first use, so that importing it stays fast."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def on_first_use(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that exports what it imports below ``if TYPE_CHECKING:``.

    That block is read from the source, so that type checkers and Python share one list of places.
    """
    source = Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
    places = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def getattribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home, defined = places[name]
        from limpet.support.extras import needing

        with needing(f"{module}.{name}"):
            return getattr(import_module(home), defined)

    return getattribute, lambda: list(sys.modules[module].__all__)
