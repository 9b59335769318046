"""Measure the structure of the code, and compare two revisions.

    python tools/structure.py --before CHECKOUT      # this checkout is "after"; writes structure.md beside this file
    python tools/structure.py --commands             # prints the number of options of each command of this checkout

Counted by parsing: lines and files of each package, public names, class names that are used more than once, import
cycles (including imports within functions and by string), and test functions. Counted by running: test items, files and
functions entered by an evaluation and by a search, options of every command, processor seconds of start-up, and the
sizes of the wheels.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "benchmarks"))

SOURCES = {"limpet": "src/limpet", "limpet_bench": "bench/src/limpet_bench"}
TRACED = """
import json, sys
from pathlib import Path
folders, out, *words = sys.argv[1:]
entered = set()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(tuple(folders.split(":"))):
        entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))
sys.setprofile(note)
from limpet.cli import main
try:
    main(words)
except SystemExit:
    pass
sys.setprofile(None)
entered = {one for one in entered if not one[1].startswith("<")}
Path(out).write_text(json.dumps([len({file for file, _ in entered}), len(entered)]))
"""

COUNTED = """
import json
from limpet.cli.app import app_for
from limpet.cli.program import COMMANDS
counts = {}
for path in COMMANDS:
    app = app_for(path)
    for word in path.split():
        app = app[word]
    counts[path] = sum(argument.show for argument in app.assemble_argument_collection())
print(json.dumps(counts))
"""
"""Script that counts the arguments and options of each command that its help shows."""


def modules(root: Path) -> dict[str, Path]:
    """Return the files of both packages by module name."""
    found = {}
    for package, folder in SOURCES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


def imports(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Yield the known modules that a file imports anywhere, by statement or by string, except for type checking."""
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names] + [node.module]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value.partition(":")[0]] if re.fullmatch(r"limpet[\w.]*(:\w+)?", node.value) else []
        else:
            continue
        yield from (
            (one for one in names[:-1] if one in known) if len(names) > 1 else (one for one in names if one in known)
        )
        if len(names) > 1 and not any(one in known for one in names[:-1]) and names[-1] in known:
            yield names[-1]


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _executed(child)


def circles(needs: dict[str, set[str]]) -> list[set[str]]:
    """Return the import cycles: strongly connected components with more than one module."""
    reach: dict[str, set[str]] = {}
    for start in needs:
        seen, waiting = set(), list(needs[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(needs.get(name, ()))
        reach[start] = seen
    groups = {frozenset({one} | {other for other in reach[one] if one in reach[other]}) for one in needs}
    return [set(group) for group in groups if len(group) > 1]


def parsed(root: Path) -> dict[str, object]:
    """Return the measurements of one checkout that need only parsing."""
    files = modules(root)
    trees = {name: ast.parse(path.read_text()) for name, path in files.items()}
    lines: Counter[str] = Counter()
    count: Counter[str] = Counter()
    defined: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in files.items():
        parts = name.split(".")
        package = ".".join(parts[:2]) if len(parts) > 2 or path.stem == "__init__" else f"{parts[0]} (top level)"
        lines[package] += len(path.read_text().splitlines())
        count[package] += 1
        for node in trees[name].body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [one.id for one in node.targets if isinstance(one, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                names = []
            for one in names:
                if not one.startswith("_"):
                    defined[one].add(name)
    inner = set(files) - set(SOURCES)  # without the top modules, which import everything and hold the version
    needs = {name: set(imports(trees[name], inner)) - {name} for name in inner}
    rings = circles(needs)
    tests = [path for folder in ("tests", "bench/tests") for path in (root / folder).rglob("test_*.py")]
    functions = sum(len(re.findall(r"^\s*def test_", path.read_text(), re.M)) for path in tests)
    every_test = [path for folder in ("tests", "bench/tests") for path in (root / folder).rglob("*.py")]
    scripts = [path for folder in ("benchmarks", "tools") for path in (root / folder).rglob("*.py")]
    return {
        "lines": lines,
        "files": count,
        "public names": sum(map(len, defined.values())),
        "classes that share a name": sum(
            len(where) > 1 and name[0].isupper() and not name.isupper() for name, where in defined.items()
        ),
        "circles of files": len(rings),
        "files in the largest circle": max(map(len, rings), default=0),
        "test functions": functions,
        "lines of tests": sum(len(path.read_text().splitlines()) for path in every_test),
        "scripts of measurements": len(scripts),
        "lines of these scripts": sum(len(path.read_text().splitlines()) for path in scripts),
    }


def run(root: Path, words: list[str], folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run Python on one checkout; return the completed process and its processor seconds."""
    path = os.pathsep.join(str(root / source) for source in ("src", "bench/src"))
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""},
    )  # fmt: skip
    after = os.times()
    return done, after.children_user + after.children_system - before.children_user - before.children_system


def vectors(folder: Path) -> None:
    """Write vectors of two models for the same 400 items, as old.npz and new.npz."""
    generator = np.random.default_rng(0)
    labels = np.arange(400) % 40
    centres = generator.standard_normal((40, 16))
    for name, noise in (("old", 1.5), ("new", 1.0)):
        rows = (centres[labels] + noise * generator.standard_normal((400, 16))).astype(np.float32)
        np.savez(folder / f"{name}.npz", vectors=rows, labels=labels, ids=[f"i{row}" for row in range(400)])


def ran(root: Path, commands: dict[str, list[str]]) -> dict[str, object]:
    """Return the measurements of one checkout that need running it.

    Args:
        root: The checkout.
        commands: Arguments of the commands "create", "evaluate" and "search" in that checkout.
    """
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vectors(folder)
        run(root, ["-m", "limpet", *commands["create"]], folder)
        for what in ("evaluate", "search"):
            out = folder / "entered.json"
            out.unlink(missing_ok=True)
            sources = ":".join(str(root / source) for source in SOURCES.values())
            done, _ = run(root, ["-c", TRACED, sources, str(out), *commands[what]], folder)
            if not out.exists():
                sys.exit(f"{what}: {done.stderr}")
            found[f"files entered by `{what}`"], found[f"functions entered by `{what}`"] = json.loads(out.read_text())
        for said in ("--help", "evaluate --help", "gallery --help"):
            seconds = min(run(root, ["-m", "limpet", *said.split()], folder)[1] for _ in range(6))
            found[f"`limpet {said}`, processor seconds"] = round(seconds, 2)
        for package, place in (("limpet", root), ("limpet-bench", root / "bench")):
            if (place / "pyproject.toml").exists():
                built = folder / package
                command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(built), str(place)]
                run(root, command, folder)
                found[f"wheel of {package}, kB"] = next(built.glob("*.whl")).stat().st_size // 1000
    counts = slots(root, HERE)
    found["commands"], found["option slots"] = (len(counts), sum(counts.values())) if counts else ("–", "–")
    done, _ = run(root, ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not gpu"], root)
    collected = re.search(r"(\d+)(?:/\d+)? tests? collected", done.stdout)
    found["test items"] = int(collected[1]) if collected else "?"
    return found


def slots(root: Path, folder: Path) -> dict[str, int]:
    """Return the number of options of every command of a checkout; empty if it does not use Cyclopts."""
    done, _ = run(root, ["-c", COUNTED], folder)
    counts: dict[str, int] = json.loads(done.stdout) if done.returncode == 0 else {}
    return counts


COMMANDS = {
    "create": ["gallery", "create", "gallery", "--embeddings", "old.npz", "--name", "old"],
    "evaluate": ["evaluate", "--old", "old.npz", "--new", "new.npz", "--out", "out", "--report", "html"],
    "search": ["gallery", "search", "gallery", "--queries", "old.npz", "--name", "old", "--k", "5"],
}
EARLIER = {"--name": "--model"}
"""Options of this revision, and their names in the earlier one."""


def page(before: Path) -> str:
    """Return the Markdown page with the measurements of both checkouts."""
    from machine import describe

    roots = (before, HERE)
    static = [parsed(root) for root in roots]
    before_words = {name: [EARLIER.get(word, word) for word in words] for name, words in COMMANDS.items()}
    moving = [ran(root, words) for root, words in zip(roots, (before_words, COMMANDS), strict=True)]
    heads = [
        subprocess.run(["git", "-C", str(root), "log", "-1", "--format=%h %s"], capture_output=True, text=True).stdout
        for root in roots
    ]
    text = ["# How the code is cut", "", f"Before: {heads[0].strip()}. After: {heads[1].strip()}.", "",
            "| package | lines before | after | files before | after |",
            "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for package in sorted({name for one in static for name in one["lines"]}):
        row = [one[kind][package] for kind in ("lines", "files") for one in static]
        text.append(f"| {package} | " + " | ".join(f"{value:,}" for value in row) + " |")
    sums = [sum(one[kind].values()) for kind in ("lines", "files") for one in static]
    text += ["| **all** | " + " | ".join(f"{value:,}" for value in sums) + " |", "", "| | before | after |",
             "| --- | ---: | ---: |"]  # fmt: skip
    for side in (static, moving):
        for what in dict.fromkeys(name for one in side for name in one if name not in ("lines", "files")):
            text.append(f"| {what} | {side[0].get(what, '–')} | {side[1].get(what, '–')} |")
    return "\n".join([*text, "", describe(), "", "`python tools/structure.py --before CHECKOUT`", ""])


def main() -> None:
    """Write structure.md, or print the number of options of every command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--before", type=Path, help="a checkout of the earlier revision")
    asked.add_argument("--commands", action="store_true", help="print the options of every command, and end")
    given = parser.parse_args()
    if given.commands:
        counts = slots(HERE, HERE)
        print(*(f"{count:>4}  {path}" for path, count in counts.items()), sep="\n")
        print(f"{sum(counts.values())} option slots of {len(counts)} commands")
        return
    text = page(given.before.resolve())
    (Path(__file__).parent / "structure.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
