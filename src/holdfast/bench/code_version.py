"""Which code computed a cell: a digest that changes with what is computed, not with what is said about it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import holdfast

COMPUTING = (
    "geometry", "embeddings", "losses", "adapters", "methods", "data", "models", "training", "evaluation", "continual",
)  # fmt: skip
"""Packages whose code decides what a cell becomes."""

OF_CELLS = ("steps", "session_steps", "sources", "experiments")
"""Modules of this package that do."""


@cache
def code_version() -> str:
    """Return the digest of all code of holdfast that computes, 16 hexadecimal digits."""
    root = Path(holdfast.__file__).parent
    packages = [path for package in COMPUTING for path in sorted((root / package).rglob("*.py"))]
    return digest_of([*packages, *(root / "bench" / f"{name}.py" for name in OF_CELLS)])


def method_version(method: type) -> str:
    """Return the digest of the package that defines a method; "" for holdfast's own, whose code counts already."""
    name = method.__module__.partition(".")[0]
    if name == "holdfast":
        return ""
    package = getattr(sys.modules.get(name), "__path__", None)
    if package is None:
        return digest_of([Path(inspect.getfile(method))])
    return digest_of(path for folder in package for path in sorted(Path(folder).rglob("*.py")))


def digest_of(paths: Iterable[Path]) -> str:
    """Return a digest over the code in these files without comments, docstrings and layout."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + bare_code(path.read_text(encoding="utf-8")).encode() + b"\0")
    return digest.hexdigest()[:16]


def bare_code(source: str) -> str:
    r"""Return source code in one layout, without comments and docstrings.

    >>> bare_code('def one():  # counts\n    "It is one."\n    return 1')
    'def one():\n    return 1'
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a text alone: a docstring, or the description of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
