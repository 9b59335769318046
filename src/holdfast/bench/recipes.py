"""The suites that come with holdfast, by name."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from holdfast.bench.suite import Suite, read_suite
from holdfast.errors import ConfigError, unknown_name

SUFFIXES = (".yaml", ".yml")

RECIPES: dict[str, Path] = {
    path.stem: path for path in sorted(Path(str(resources.files("holdfast.recipes"))).glob("*.yaml"))
}
"""Where the suite of every name is."""


def recipe_named(name_or_path: str | Path) -> Suite:
    """Read a suite that comes with holdfast, by name, or one of your own, by path.

    Args:
        name_or_path: A name of `RECIPES`; or a YAML file, which is known by its ending or because it is there.

    Raises:
        ConfigError: There is no such suite, and the nearest name is suggested; or the file is no suite.

    >>> recipe_named("omniglot-small").title
    'Thirteen methods on a quarter of Omniglot'
    """
    path = Path(name_or_path)
    if str(name_or_path) in RECIPES:
        return read_suite(RECIPES[str(name_or_path)])
    if path.is_file():
        return read_suite(path)
    if path.suffix in SUFFIXES or path.is_dir():
        raise ConfigError(
            f"There is no file '{path}'." if not path.is_dir() else f"'{path}' is a folder.",
            expected="the YAML file of a suite, or the name of one that comes with holdfast",
            to_do="`holdfast bench` lists names.",
        )
    raise unknown_name("suite", str(name_or_path), RECIPES, listing="holdfast bench")
