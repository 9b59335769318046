"""``holdfast methods``."""

from __future__ import annotations

import inspect
from typing import Any

from holdfast.cli.console import print_json, print_table
from holdfast.cli.parsing import parse


def methods(json: bool = False) -> None:
    """List the compatibility methods.

    Args:
        json: Print one JSON document instead of a table.
    """


def described() -> dict[str, dict[str, Any]]:
    """Return every method with the first lines of its documentation and its options."""
    from holdfast.methods import METHODS

    METHODS.load_installed()
    found = {}
    for name, method in METHODS.items():
        paragraphs = inspect.cleandoc(method.__doc__ or "").split("\n\n")
        options = inspect.signature(method).parameters.values()
        found[name] = {
            "paper": " ".join(paragraphs[0].split()),
            "about": " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else "",
            "options": {option.name: option.default for option in options},
            "needs_old": method.needs_old,
            "sessions_only": method.sessions_only,
            "spaces": sorted(method.spaces),
        }
    return found


def main(words: list[str]) -> int:
    """Print the table."""
    arguments, _ = parse(methods, words, "methods")
    found = described()
    if arguments["json"]:
        print_json({"methods": found})
        return 0
    rows = [
        [name, entry["paper"], ", ".join(f"{key}={value}" for key, value in entry["options"].items()) or "none"]
        for name, entry in found.items()
    ]
    print_table("Compatibility methods", ["name", "what it is", "options (--method_options.NAME VALUE)"], rows)
    return 0
