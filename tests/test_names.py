"""One name, one meaning: no two modules give a class or a type of their own the same public name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/limpet"
ALLOWED = {
    "LinkedEmbeddings",  # of LangChain and of openai, each called as its framework calls such a thing
    "ServedVectorStore",  # of LangChain and of LlamaIndex, likewise
}
REWRITTEN = ("cli", "reports")


def types_of(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the public classes and type aliases of a module, with what they are; equal aliases are one meaning."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, f"class {ast.dump(node)}"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, ast.dump(node.value)


def several_meanings(package: Path) -> dict[str, list[str]]:
    """Return the modules of every public name of a class or a type that means several things."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).with_suffix("").as_posix()
        for name, meaning in types_of(ast.parse(path.read_text(encoding="utf-8"))):
            if name[0].isupper() and not name.isupper() and not module.startswith(REWRITTEN):
                found.setdefault(name, {})[module] = meaning
    return {name: list(places) for name, places in found.items() if len(set(places.values())) > 1}


def test_public_types_have_one_meaning_each() -> None:
    assert {name: places for name, places in several_meanings(PACKAGE).items() if name not in ALLOWED} == {}


def test_several_meanings_finds_planted_ones(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Plan: ...\nRows = list[int]\nSame = list[str]\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("class Plan:\n    x = 1\nRows = list[str]\nSame = list[str]\n", encoding="utf-8")
    assert several_meanings(tmp_path) == {"Plan": ["one", "two"], "Rows": ["one", "two"]}
