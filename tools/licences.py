"""List the licences of all dependencies, and fail if one is incompatible with the Apache License 2.0.

    python tools/licences.py          # `make licences`; reads the metadata of the installed packages

Dependencies are used as libraries. So weak copyleft (LGPL, MPL) is allowed; strong copyleft and restrictions on use are
not. The extras `docs` and `dev` are not distributed to users, and are ignored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOT_PASSED_ON = {"docs", "dev"}
ALLOWED = re.compile(
    r"\b(Apache|MIT|BSD|0BSD|ISC|PSF|PSFL|Python Software Foundation|MPL|Mozilla Public|LGPL|"
    r"Lesser General Public|zlib|Unlicense|HPND|CC0|CNRI|Public Domain|BSL-1\.0)\b|(Apache|BSD|MIT)[- ]", re.IGNORECASE,
)  # fmt: skip
REFUSED = re.compile(r"\b(AGPL|Affero|(?<!L)GPL|SSPL|BUSL|proprietary|NonCommercial|CC-BY-NC)", re.IGNORECASE)


def dependencies(name: str, extras: frozenset[str], seen: set[str]) -> Iterator[str]:
    """Yield all direct and indirect requirements of a package with some extras, each once.

    Requirements of packages that are not installed are unknown, and are left out.

    Args:
        name: Name of the package.
        extras: Extras of the package.
        seen: Packages that were already yielded; it is updated.
    """
    try:
        required = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, required):
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras}
        )
        inner = canonicalize_name(requirement.name)
        key = f"{inner}[{','.join(sorted(requirement.extras))}]"
        if wanted and key not in seen:
            seen.add(key)
            yield inner
            yield from dependencies(inner, frozenset(requirement.extras), seen)


def licence(name: str) -> str:
    """Return the licence that an installed package declares.

    This is its licence expression, or else its classifiers, or else the first line of its licence field.
    """
    metadata = distribution(name).metadata
    expression = metadata.get("License-Expression")
    classified = [
        one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or [] if one.startswith("License :: ")
    ]
    named = [one for one in classified if one != "OSI Approved"]
    return expression or "; ".join(named) or (metadata.get("License") or "").strip().partition("\n")[0]


def judged(text: str) -> str:
    """Return "" for a compatible licence, else "incompatible" or "unknown".

    >>> judged("LGPL-3.0-only"), judged("BSD-3-Clause AND MIT")
    ('', '')
    >>> judged("GPL-3.0-or-later"), judged("")
    ('incompatible', 'unknown')
    """
    if re.search(r"\bOR\b", text) and ALLOWED.search(text):
        return ""
    if REFUSED.search(text):
        return "incompatible"
    return "" if ALLOWED.search(text) else "unknown"


def main() -> None:
    """Print the list; exit with status 1 if a licence is incompatible or unknown."""
    declared = distribution("limpet").metadata.get_all("Provides-Extra") or []
    extras = frozenset(declared) - NOT_PASSED_ON
    names = {name for name in dependencies("limpet", extras, set()) if name != "limpet"}
    wrong = 0
    for name in sorted(names):
        try:
            text, version = licence(name), distribution(name).version
        except PackageNotFoundError:
            print(f"{name:36} not installed, not looked at")
            continue
        problem = judged(text)
        wrong += bool(problem)
        print(f"{name:36} {version:18} {text[:70]}{f'  <- {problem}' * bool(problem)}")
    print(f"{len(names)} packages, {wrong} with a licence that is unknown or incompatible")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
