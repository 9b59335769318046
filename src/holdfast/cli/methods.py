"""``holdfast methods``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.cli.console import console, print_error, print_json, print_table
from holdfast.cli.parsing import parse
from holdfast.methods import METHODS


def methods(method: str | None = None, json: bool = False) -> None:
    """List the compatibility methods, or explain one of them: ``holdfast methods ndpp``.

    Args:
        method: Name of the one to explain, with all its options.
        json: Print one JSON document instead of a table.
    """


def check(method: str, json: bool = False) -> None:
    """Check that a method keeps what all methods promise: ``holdfast methods check NAME``.

    Takes seconds, on any machine; 1 is returned where a promise is broken.

    Args:
        method: Its name; that of an installed package will do.
        json: Print one JSON document as well.
    """


def described(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return methods with the first lines of their documentation and their options."""
    from holdfast.methods.descriptions import describe

    found = {}
    for name in names:
        one = describe(name)
        paragraphs = one.documentation.split("\n\n")
        found[name] = {
            "paper": " ".join(paragraphs[0].split()),
            "about": " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else "",
            "documentation": one.documentation,
            "options": one.options,
            "needs_old": one.needs_old,
            "sessions_only": one.sessions_only,
            "spaces": sorted(one.spaces),
        }
    return found


def main(words: list[str]) -> int:
    """Print the table, or one method's documentation, or what a method promises and breaks."""
    if words[:1] == ["check"]:
        return _check(words[1:])
    arguments, _ = parse(methods, words, "methods")
    name = arguments["method"]
    if name is None:
        for error in METHODS.import_installed():
            print_error("methods", error, as_json=False)
    found = described(METHODS if name is None else [name])
    if arguments["json"]:
        print_json({"methods": found})
        return 0
    if name is not None:
        defaults = "\n".join(f"    --method_options.{key} {value}" for key, value in found[name]["options"].items())
        console.print(
            f"{name}: {found[name]['documentation'].rstrip()}\n\nDefaults:\n{defaults or '    it has no options'}"
        )
        return 0
    rows = [
        [name, entry["paper"], ", ".join(f"{key}={value}" for key, value in entry["options"].items()) or "none"]
        for name, entry in found.items()
    ]
    print_table("Compatibility methods", ["name", "what it is", "options (--method_options.NAME VALUE)"], rows)
    return 0


def _check(words: list[str]) -> int:
    from holdfast.testing import failures, method_contract

    arguments, _ = parse(check, words, "methods check")
    name = arguments["method"]
    checks = method_contract(name)
    broken = list(failures(checks))
    for failure in broken:
        console.print(f"broken: {failure.check}\n    {failure.found}", markup=False)
    promises = len({one.promise for one in checks})
    if broken:
        kept = promises - len({failure.check.promise for failure in broken})
        console.print(f"{name} keeps {kept} of {promises} promises; {len(broken)} of {len(checks)} checks failed.")
        console.print("Next: what each promise means stands in holdfast/testing/methods.py, under its name.")
    else:
        console.print(f"{name} keeps all {promises} promises ({len(checks)} checks).")
    if arguments["json"]:
        print_json(
            {
                "method": name,
                "promises": promises,
                "checks": len(checks),
                "broken": [
                    {"promise": failure.check.promise, "when": failure.check.circumstances, "found": failure.found}
                    for failure in broken
                ],
            }
        )
    return 1 if broken else 0
