"""Digests of source code that do not depend on comments, docstrings and layout."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib.util import cache_from_source, find_spec
from itertools import count
from pathlib import Path
from typing import Any, Literal

from limpet.errors import refuse

Standing = Literal["same", "other"]
"""Whether the installed code or other code computed a result."""


INSTALLED = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")})
"""Folders of installed packages, whose code is identified by their versions."""


@lru_cache(maxsize=512)  # what trains one method is, but for that method, what trains another
def bare_code(source: str) -> str:
    r"""Return source code in one layout, without comments, docstrings, imports for type checkers and ``__all__``.

    >>> bare_code('def one():  # counts\n    "It is one."\n    return 1')
    'def one():\n    return 1'
    """
    tree = ast.parse(source)
    for node in _statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _computes_nothing(one)] or [ast.Pass()]
    return ast.unparse(tree)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the statements within it, skipping expressions, which contain no definitions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child)


def definition_at(place: str) -> ast.ClassDef | ast.FunctionDef:
    """Return the definition of a class or function without importing it.

    Args:
        place: Location, such as ``"limpet.methods.bct:BCT"``. The packages above its module are imported.

    Raises:
        OSError: The module has no source file.
        ValueError: The module has no such definition.
    """
    module, _, name = place.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"There is no source of {module}.")
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name)
    return found


def digest_of(paths: Iterable[Path]) -> str:
    """Return a digest over the code in these files without comments, docstrings and layout."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + _bare_code_of(path).encode() + b"\0")
    return digest.hexdigest()[:16]


def _bare_code_of(path: Path) -> str:
    """Return the bare code of a file, cached beside Python's bytecode because unparsing is slow."""
    source = path.read_text(encoding="utf-8")
    made_from = _checksum(_own_source() + source)
    kept = Path(cache_from_source(str(path))).with_suffix(".bare")
    with suppress(OSError, UnicodeDecodeError):
        head, _, bare = kept.read_text(encoding="utf-8").partition("\n")
        if head == f"{made_from} {_checksum(bare)}":
            return bare
    bare = bare_code(source)
    if not sys.dont_write_bytecode:
        with suppress(OSError):  # as Python does in a folder that others may write
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f"{kept.name}.{os.getpid()}")
            part.write_text(f"{made_from} {_checksum(bare)}\n{bare}", encoding="utf-8")
            part.replace(kept)
    return bare


@cache
def _own_source() -> str:
    """Return the source of this module and the Python version, on which bare code depends."""
    return sys.version + Path(__file__).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def version_of(thing: Any) -> str:
    """Return the digest of the package that defines a class or function; "" for limpet's own."""
    thing = inspect.unwrap(thing.func if isinstance(thing, partial) else thing)
    name = thing.__module__.partition(".")[0]
    if name == "limpet":
        return ""
    package = getattr(sys.modules.get(name), "__path__", None)
    if package is None:
        return digest_of([Path(inspect.getfile(thing))])
    return digest_of(path for folder in package for path in sorted(Path(folder).rglob("*.py")))


def standing(recorded: str | None, today: str) -> Standing:
    """Return whether a recorded digest is that of the installed code.

    >>> standing("ab", "ab"), standing("ab", "cd")
    ('same', 'other')
    """
    return "same" if recorded == today else "other"


def put_beside(folder: Path) -> Path:
    """Rename a folder to the first free of FOLDER.before-1, FOLDER.before-2, ..., and return its new path.

    Raises:
        ConfigError: The folder is the working directory or contains it.
    """
    refuse(
        Path.cwd().is_relative_to(folder.resolve()),
        f"'{folder}' is to be kept under another name, and is where you are.",
        "a folder that can be renamed: the same command from outside of it",
    )
    beside = next(
        path for number in count(1) if not (path := folder.with_name(f"{folder.name}.before-{number}")).exists()
    )
    return folder.rename(beside)


def combined(own: str, things: Iterable[Any]) -> str:
    """Return the combined digest of limpet's own code and of the packages that define classes or functions."""
    return hashlib.sha256(json.dumps([own, *map(version_of, things)]).encode()).hexdigest()[:16]


def own_code(kinds: Iterable[type]) -> str | None:
    """Return a digest over the code of classes outside installed packages; None if there are none.

    A class without source, such as one from a prompt, is identified by its name.
    """
    own = sorted({_source(kind) for kind in kinds if not _installed(kind)})
    return hashlib.sha256("\0".join(own).encode()).hexdigest()[:16] if own else None


def callable_code(function: Callable[..., Any]) -> str:
    """Return a digest over the code of a function or a callable object, with its plain values.

    Other objects that it refers to are not in the digest.
    """
    values: object = None
    if isinstance(function, partial):
        values = [list(function.args), dict(function.keywords)]
        function = function.func
    if not (inspect.isfunction(function) or inspect.isbuiltin(function) or inspect.ismethod(function)):
        values = [values, {name: value for name, value in vars(function).items() if not name.startswith("_")}]
        source = _source(type(function))
    else:
        source = _source(function)
    written = json.dumps(values, sort_keys=True, default=lambda value: type(value).__qualname__)
    return hashlib.sha256(f"{source}\0{written}".encode()).hexdigest()[:16]


def _source(thing: Any) -> str:
    """Return the bare code of a class or function; its name if it has no source."""
    try:
        return bare_code(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):  # a lambda within a line is no statement of its own
        code = getattr(thing, "__code__", None)
        name = getattr(thing, "__qualname__", type(thing).__qualname__)
        return name if code is None else f"{name}\0{code.co_code.hex()}\0{code.co_names}\0{_plain(code.co_consts)}"


def _plain(constants: Iterable[object]) -> list[str]:
    return [repr(one) for one in constants if isinstance(one, str | bytes | int | float | complex | None)]


def _installed(kind: type) -> bool:
    try:
        file = Path(inspect.getfile(kind)).resolve()
    except (OSError, TypeError):  # builtin, or typed at a prompt
        return kind.__module__.partition(".")[0] in ("builtins", "torch")
    return any(file.is_relative_to(folder) for folder in INSTALLED)


def _computes_nothing(node: ast.stmt) -> bool:
    """Return whether a statement is a bare string, an import for type checkers, or the list of public names."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False
