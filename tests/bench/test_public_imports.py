"""The bench stands on documented names of limpet alone."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
Public = Mapping[str, frozenset[str]]


def used(tree: ast.Module, is_module: Callable[[str], bool]) -> Iterator[str]:
    """Yield every name of limpet that a file imports, reads from a module that it imported, or writes in a string.

    A name is "limpet.data:ImageSet"; a whole module is "limpet.data:".
    """
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "limpet":
            for alias in node.names:
                if is_module(place := f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = place
                else:
                    yield f"{node.module}:{alias.name}"
        elif isinstance(node, ast.Import):
            modules |= {
                alias.asname or alias.name: alias.name for alias in node.names if alias.name.split(".")[0] == "limpet"
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, _, name = node.value.partition(":")
            if is_module(module):
                yield f"{module}:{name}"
    yield from (f"{module}:" for module in modules.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := modules.get(ast.unparse(node.value))):
            yield f"{module}:{node.attr}"


def undocumented(tree: ast.Module, public: Public, is_module: Callable[[str], bool]) -> list[str]:
    """Return the names in use that are not documented; those with two underscores are Python's."""
    places = (place.partition(":") for place in used(tree, is_module))
    return sorted({
        f"{module}:{name}"
        for module, _, name in places
        if module not in public or (name and name not in public[module] and not name.startswith("__"))
    })  # fmt: skip


def test_the_bench_imports_documented_names_only() -> None:
    documented = runpy.run_path(str(ROOT / "docs" / "generate.py"))["public_modules"]()
    public = {module: frozenset(names) for module, names in documented.items()}

    def is_module(name: str) -> bool:
        path = ROOT.joinpath("src", *name.split("."))
        return name.startswith("limpet.") and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())

    planted = ast.parse(
        "from limpet.data import images, ImageSet\nimport limpet\nhome = 'limpet.support.disk:read_text'\n"
        "limpet.evaluate, limpet.nothing, limpet.__file__, images.Images"
    )
    assert undocumented(planted, public, is_module) == [
        "limpet.data.images:", "limpet.data.images:Images", "limpet.support.disk:read_text", "limpet:nothing",
    ]  # fmt: skip
    files = sorted((ROOT / "bench/src").rglob("*.py"))
    found = {str(path): undocumented(ast.parse(path.read_text("utf-8")), public, is_module) for path in files}
    assert files and {name: names for name, names in found.items() if names} == {}
