"""The built-in suites, and suites in Python files: functions that return a `Suite`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from limpet.errors import ConfigError, LimpetError, reason, unknown_name
from limpet_bench.suite import Suite, check_suite
from limpet_bench.suites import advbct, cvs, hbct, mixbct, ndpp, own

Build = Callable[[], Suite]


def functions_of(module: ModuleType) -> dict[str, Build]:
    """Return the functions of a module that build a suite: without arguments, and annotated as returning one."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not inspect.signature(value).parameters
        and value.__annotations__.get("return") in (Suite, "Suite")
    }


def _named(module: ModuleType, prefix: str = "") -> dict[str, Build]:
    return {f"{prefix}{name}".replace("_", "-"): build for name, build in functions_of(module).items()}


PAPERS: Mapping[str, ModuleType] = {"ndpp": ndpp, "hbct": hbct, "cvs": cvs, "advbct": advbct, "mixbct": mixbct}
"""Modules of the papers, by name."""

_OF_PAPERS = [item for paper, module in PAPERS.items() for item in _named(module, f"{paper}-").items()]
SUITES: Mapping[str, Build] = dict(sorted([*_OF_PAPERS, *_named(own).items()]))
"""Functions that build the built-in suites, by name."""


def suite_named(name_or_place: str | Path) -> Suite:
    """Return a built-in suite by name, or one of your own by file.

    Args:
        name_or_place: A name of `SUITES`; or a Python file, ``mine.py``, whose functions return suites. Of several
            functions one is named: ``mine.py:table_2``.

    Raises:
        ConfigError: There is no such suite, or it names something unknown.

    >>> suite_named("omniglot-small").title
    'Thirteen methods on a quarter of Omniglot'
    """
    name = str(name_or_place)
    if name in SUITES:
        return built(SUITES[name], name, f"the suite '{name}'")
    place, _, function = name.partition(".py:")
    path = Path(f"{place}.py" if function else name)
    if path.is_dir() or (path.suffix != ".py" and not path.is_file()):
        if path.suffix or path.is_dir():
            raise ConfigError(
                f"'{path}' is {'a folder' if path.is_dir() else 'no Python file'}.",
                expected="a Python file with a function that returns a Suite, or the name of a built-in suite",
                to_do="`limpet-bench suites` lists names.",
            )
        raise unknown_name("suite", name, SUITES, listing="limpet-bench suites")
    if not path.is_file():
        raise ConfigError(
            f"There is no file '{path}'.", expected="a Python file", to_do="`limpet-bench suites` lists names."
        )
    found = functions_of(_imported(path))
    if function and function not in found:
        raise unknown_name(f"suite in '{path}'", function, found)
    if not found or (len(found) > 1 and not function):
        raise ConfigError(
            f"'{path}' has {len(found) or 'no'} functions that return a suite.",
            expected="one function such as `def suite() -> Suite`, without arguments",
            to_do=f"name one: {path}:FUNCTION, of {', '.join(found)}." if found else "",
        )
    chosen = function or next(iter(found))
    called = path.stem if len(found) == 1 else f"{path.stem}-{chosen.replace('_', '-')}"
    return built(found[chosen], called, f"'{path}'")


def built(build: Build, name: str, where: str) -> Suite:
    """Build a suite, give it a name if it has none, and refuse unknown names before anything is run.

    Raises:
        ConfigError: A setting, method, data set, scenario or metric is unknown, or a value is of another type.
    """
    try:
        suite = build()
    except LimpetError:
        raise
    except Exception as error:  # the user's file can raise anything
        raise ConfigError(
            f"{where} raises {type(error).__name__}: {reason(error)}.", expected="a function that returns a Suite"
        ) from error
    if not isinstance(suite, Suite):
        raise ConfigError(f"{where} returns {type(suite).__name__}.", expected="a Suite")
    suite = replace(suite, name=suite.name or name, title=suite.title or name)
    check_suite(suite)
    return suite


def _imported(path: Path) -> ModuleType:
    """Run the Python file of a suite; no bytecode is written beside it."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except Exception as error:
        raise ConfigError(
            f"'{path}' cannot be imported: {type(error).__name__}, {reason(error)}.",
            expected="a Python file with a function that returns a Suite",
        ) from error
    return module
