"""``limpet methods``."""

from __future__ import annotations

from limpet.cli.console import as_json, console, print_error, print_json, print_table
from limpet.cli.parameters import as_typed
from limpet.methods import METHODS, describe
from limpet.methods.descriptions import Description
from limpet.support.extras import installed, installing


def methods(method: str | None = None) -> int:
    """List the compatibility methods with their papers and options, or explain one of them.

    Args:
        method: Method to explain, with all its options.

    Examples:
        limpet methods
        limpet methods ndpp
    """
    if method is None:
        for error in METHODS.import_installed():
            print_error("methods", error, as_json=False)
    found = {name: describe(name) for name in (METHODS if method is None else [method])}
    if as_json():
        print_json({"methods": {name: _document(one) for name, one in found.items()}})
    elif method is None:
        rows = [
            [name, _paragraph(one, 0), ", ".join(f"{key}={value}" for key, value in one.options.items()) or "none"]
            for name, one in found.items()
        ]
        print_table("Compatibility methods", ["name", "what it is", "options (--method-options.NAME VALUE)"], rows)
    else:
        options = [f"{as_typed(f'method_options.{key}')} {value}" for key, value in found[method].options.items()]
        defaults = "\n".join(f"    {option}" for option in options or ["it has no options"])
        console.print(f"{method}: {found[method].documentation.rstrip()}\n\nDefaults:\n{defaults}")
    return 0


def check(method: str) -> int:
    """Check that a method keeps the contract of methods.

    This takes seconds, on any machine. The exit code is 1 if the contract is violated.

    Args:
        method: Name of a method, built-in or of an installed package.

    Examples:
        limpet methods check bct
    """
    from limpet.testing.contract import failures, together
    from limpet.testing.methods import code_of_method, method_contract

    checks = method_contract(method)
    broken = list(failures(checks, code_of_method(method)))
    for failure, when in together(broken):
        console.print(f"broken: {failure.check.promise}")
        for said in (failure.line, failure.found, _when(when), failure.check.meaning):
            if said:
                console.print(f"    {said}")
    promises = len({one.promise for one in checks})
    if broken:
        kept = promises - len({failure.check.promise for failure in broken})
        console.print(f"{method} keeps {kept} of {promises} promises; {len(broken)} of {len(checks)} checks failed.")
        console.print(f"Next: change what is named, and type limpet methods check {method} again.")
    else:
        console.print(f"{method} keeps all {promises} promises ({len(checks)} checks).")
    if not installed("triplet"):
        console.print(f"Not checked: classifiers with a triplet term. They require {installing('triplet')}.")
    if as_json():
        print_json(
            {
                "method": method,
                "promises": promises,
                "checks": len(checks),
                "broken": [
                    {
                        "promise": failure.check.promise,
                        "when": failure.check.circumstances,
                        "found": failure.found,
                        "line": failure.line,
                        "meaning": failure.check.meaning,
                    }
                    for failure in broken
                ],
            }
        )
    return 1 if broken else 0


def _when(circumstances: list[str]) -> str:
    """Return the first circumstances under which a promise is broken, and how many there are beside.

    >>> _when(["lorentz, one row", "lorentz, no row", ""]), _when([""])
    ('when: lorentz, one row; and 1 more', '')
    """
    known = [one for one in circumstances if one]
    more = f"; and {len(known) - 1} more" if len(known) > 1 else ""
    return f"when: {known[0]}{more}" if known else ""


def _paragraph(method: Description, number: int) -> str:
    """Return a paragraph of a method's documentation on one line; nothing where there are fewer."""
    paragraphs = method.documentation.split("\n\n")
    return " ".join(paragraphs[number].split()) if number < len(paragraphs) else ""


def _document(method: Description) -> dict[str, object]:
    facts = {**method._asdict(), "spaces": sorted(method.spaces)}
    return {"paper": _paragraph(method, 0), "about": _paragraph(method, 1), **facts}
