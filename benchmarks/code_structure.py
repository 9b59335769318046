"""How much code there is, how it is cut, and what one evaluation enters: two revisions side by side.

    python benchmarks/code_structure.py --before FOLDER     # a checkout of an earlier revision; this one is "after"

Counted by parsing: lines and files per package, files of fewer than 100 lines, parameters and returned values that are
annotated as dictionaries of anything, packages whose modules import each other in a circle; what is code and what
docstrings, and how much of it holds abilities that came after the rebuilding was planned. Counted by running: files
and functions of ours that `limpet evaluate` enters for 400 items with a page; seconds of processor time until
commands have started, the least of five. Writes code_structure.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import numpy as np

from machine import describe

HERE = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
SHORT = 100
COUNTED = ("lines", "files", "short", "anything", "circle")


class Planned(NamedTuple):
    """What the plan of the rebuilding expected of packages.

    Args:
        packages: Their names.
        lines: Expected, for the abilities of that time.
        later: Patterns of modules whose abilities came afterwards.
        reason: Why they are above it.
    """

    packages: tuple[str, ...]
    lines: int
    later: tuple[str, ...]
    reason: str


PLAN = (
    Planned(("reports",), 2_600, ("suite_figures", "picture_file", "charts/maps", "charts/strips", "charts/histograms",
                                  "charts/arrivals", "charts/panels"),
            "every chart is drawn for desks, phones and paper, on pages by itself and in figures by Matplotlib, with a "
            "text that says what it shows; every kind of results is spoken of in sentences of its own"),
    Planned(("cli",), 3_400, ("attach", "fine_tune", "export", "completion", "places",
                              "gallery/backup"),
            "about 60 commands; help is made from docstrings, so that each option is explained where it is taken"),
    Planned(("evaluation",), 4_400, ("pictures/*", "mixing", "accuracy"),
            "the counting engine was not to be touched; verdicts guard several metrics, with intervals over classes"),
    Planned(("data",), 4_800, ("image_operations", "augmentation_policies", "text_pairs", "token_set", "item_facts",
                               "image_size"),
            "a file for every official layout of a data set, with its own refusals"),
    Planned(("galleries",), 4_000, ("backup", "doctor/repair"),
            "rehearsal and plan stand on the gallery, and stayed as long as what they measure"),
    Planned(("bench",), 2_800, ("figures", "figure_values", "gathering", "pictures"),
            "tasks for sessions, chains and own models; `recommend` says what every row rests on"),
    Planned(("methods", "losses"), 3_900, ("free_dimensions", "oca", "both_sides", "keep", "ssp", "d3still"),
            "a file for every paper; more than a third are docstrings"),
    Planned(("stores",), 4_000, ("where", "backup_files", "forks", "*/backup", "lance/rebuilding", "lance/leases",
                                 "lance/checks", "postgres/graphs"),
            "the commit path was not to be touched; it learned to bear disks that fail"),
    Planned(("adapters", "adapting"), 2_300, ("fastfill",),
            "comparing, learning curves and advice came along; scikit-learn's manners and pairs that may be wrong"),
    Planned(("training",), 2_100, ("compatibility_loss", "fine_tuning", "loggers", "code"),
            "runs go on where they were stopped, with several processes and on GPUs"),
    Planned(("models",), 1_800, ("api/*", "own_modules", "named_models", "timm_models", "image_towers", "text_tower",
                                 "trainable", "pair_losses", "names"),
            "text models from folders of several libraries; published weights"),
    Planned(("continual",), 1_200, (), "typed results, and learners whose sessions go on where they were stopped"),
    Planned(("embeddings",), 1_100, ("tables", "table_pass", "files"), "files of others, read in bounded memory"),
    Planned(("geometry", "top level"), 1_100, ("hub", "steps", "extras", "registry", "source_code", "documents"),
            "a third space; one file of settings that all validate with (`experiment.py`)"),
)  # fmt: skip
STARTED = {
    "limpet --help": ["--help"],
    "limpet evaluate --help": ["evaluate", "--help"],
    "limpet methods": ["methods"],
    "limpet gallery status": ["gallery", "status", "--gallery", "{gallery}"],
}
TRACED = """
import sys, json
from pathlib import Path
source, out, *words = sys.argv[1:]
files, functions = set(), set()
def note(frame, event, argument):
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith(source) and not code.co_name.startswith("<"):
            files.add(code.co_filename)
            functions.add((code.co_filename, code.co_qualname))
sys.setprofile(note)
from limpet.cli import main
status = main(words)
sys.setprofile(None)
Path(out).write_text(json.dumps({"files": len(files), "functions": len(functions), "status": status}))
"""


class Package(NamedTuple):
    """What stands in one package."""

    files: int
    short: int
    lines: int
    anything: int
    circle: int


def packages(root: Path) -> dict[str, Package]:
    """Return what is in every package below ``src/limpet``; modules at its top are "top level"."""
    source = root / "src" / "limpet"
    by_package: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).parts
        by_package.setdefault(parts[0] if len(parts) > 1 else "top level", []).append(path)
    return {name: _package(source, paths) for name, paths in sorted(by_package.items())}


def _package(source: Path, paths: list[Path]) -> Package:
    lengths = [len(path.read_text().splitlines()) for path in paths]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    anything = sum(_takes_anything(tree) for tree in trees.values())
    short = sum(0 < length < SHORT for length in lengths)
    return Package(len(paths), short, sum(lengths), anything, len(_in_circles(source, trees)))


def _takes_anything(tree: ast.Module) -> int:
    """Count parameters and returned values of public functions that are dictionaries or mappings of anything."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            given = node.args
            hints = [one.annotation for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            said = [ast.unparse(hint) for hint in (*hints, node.returns) if hint is not None]
            found += sum("dict[str, Any]" in text or "Mapping[str, Any]" in text for text in said)
    return found


def kinds_of_lines(paths: Iterable[Path]) -> Counter[str]:
    """Count lines of code, of docstrings, and blank ones or comments."""
    counted: Counter[str] = Counter()
    for path in paths:
        lines = path.read_text().splitlines()
        documented: set[int] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            for one in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
                if (
                    isinstance(one, ast.Expr)
                    and isinstance(one.value, ast.Constant)
                    and isinstance(one.value.value, str)
                ):
                    documented |= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
        for number, line in enumerate(lines, 1):
            plain = line.strip()
            counted["docstrings" if number in documented else "code" if plain and plain[0] != "#" else "blank"] += 1
    return counted


def _of(root: Path, packages: Iterable[str]) -> list[Path]:
    source = root / "src" / "limpet"
    return [path for name in packages
            for path in (source.glob("*.py") if name == "top level" else (source / name).rglob("*.py"))]  # fmt: skip


def against_plan(root: Path) -> list[str]:
    """Return the table of what the plan expected, what is there, and why it is more."""
    lines = [
        "## Beside the plan",
        "",
        "The plan of the rebuilding expected so many lines of a package, for the abilities of that time. Later: lines",
        "of modules whose abilities came afterwards. Packages that came afterwards stand at the end.",
        "",
        "| package | expected | there is | later | code | docstrings | blank | why more |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    planned = {name for one in PLAN for name in one.packages}
    after = [Planned((name,), 0, ("*",), "came afterwards") for name in packages(root) if name not in planned]
    sums: Counter[str] = Counter()
    for one in (*PLAN, *after):
        paths = _of(root, one.packages)
        kinds = kinds_of_lines(paths)
        later = sum(kinds_of_lines(path for path in paths if _matches(root, path, one.later)).values())
        row = {"expected": one.lines, "there": sum(kinds.values()), "later": later,
               **{kind: kinds[kind] for kind in ("code", "docstrings", "blank")}}  # fmt: skip
        sums.update(row)
        lines.append(_plan_row(" and ".join(one.packages), row, one.reason))
    return [*lines, _plan_row("**all**", sums, "")]


def _plan_row(name: str, row: Mapping[str, int], reason: str) -> str:
    return f"| {name} | " + " | ".join(f"{value:,}" for value in row.values()) + f" | {reason} |"


def _matches(root: Path, path: Path, patterns: Iterable[str]) -> bool:
    parts = path.relative_to(root / "src" / "limpet").with_suffix("").parts
    within = "/".join(parts[1:] if len(parts) > 1 else parts)
    return any(fnmatch(within, pattern) for pattern in patterns)


def _in_circles(source: Path, trees: dict[Path, ast.Module]) -> set[str]:
    """Return modules that import each other in a circle when they are loaded; not for types, not within functions."""
    names = {_module(source, path): path for path in trees}
    needs = {name: _imports(trees[path], set(names)) & set(names) for name, path in names.items()}
    reached = {name: _reach(name, needs) for name in names}
    return {name for name in names if name in reached[name]}


def _module(source: Path, path: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module, known: set[str]) -> set[str]:
    """Return modules that are imported; what is imported from a package is the package where it is no module of it."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            within = (f"{node.module}.{one.name}" for one in node.names)
            found |= {one if one in known else node.module for one in within}
    return found


def _reach(start: str, needs: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(needs[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(needs[name])
    return found


def evaluation(root: Path, folder: Path) -> dict[str, int]:
    """Run ``limpet evaluate`` with a page on two sets of vectors, and count what it enters."""
    generator = np.random.default_rng(0)
    labels = np.arange(400) % 40
    centres = generator.standard_normal((40, 16))
    for name, noise in (("old", 1.5), ("new", 1.0)):
        vectors = (centres[labels] + noise * generator.standard_normal((400, 16))).astype(np.float32)
        np.savez(folder / f"{name}.npz", vectors=vectors, labels=labels, ids=[f"i{row}" for row in range(400)])
    words = ["evaluate", "--old", f"{folder}/old.npz", "--new", f"{folder}/new.npz", "--out", f"{folder}/out"]
    out = folder / "counted.json"
    source = str(root / "src" / "limpet")
    _run(root, ["-c", TRACED, source, str(out), *words, "--report", "html"])
    found: dict[str, int] = json.loads(out.read_text())
    return found


def start_up(root: Path, words: list[str], folder: Path) -> float:
    """Return the processor's seconds of a command, the least of five; the first run, which compiles, not counted."""
    gallery = folder / "gallery"
    if not gallery.exists():
        created = [
            "gallery",
            "create",
            "--gallery",
            str(gallery),
            "--embeddings",
            f"{folder}/old.npz",
            "--model",
            "old",
        ]
        _run(root, ["-m", "limpet", *created])
    command = ["-m", "limpet", *(word.format(gallery=gallery) for word in words)]
    return min([_run(root, command) for _ in range(6)][1:])


def _run(root: Path, words: list[str]) -> float:
    before = os.times()
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def page(roots: dict[str, Path]) -> str:
    """Return the tables."""
    counted = {when: packages(root) for when, root in roots.items()}
    lines = [
        "# How the code is cut",
        "",
        "Two revisions, counted by parsing. Short: files of fewer than 100 lines. Anything: parameters and returned",
        "values of public functions that are dictionaries of anything. Circle: modules that import each other.",
        "",
        *(f"{when.capitalize()}: {_revision(root)}  " for when, root in roots.items()),
        "",
        "| package | " + " | ".join(f"{what} before | after" for what in COUNTED) + " |",
        "| --- | " + " | ".join(["---: | ---:"] * len(COUNTED)) + " |",
    ]
    names = sorted({name for found in counted.values() for name in found})
    nothing = Package(0, 0, 0, 0, 0)
    for name in names:
        before, after = (counted[when].get(name, nothing) for when in ("before", "after"))
        lines.append(_row(name, before, after))
    sums = [
        Package(*(sum(values) for values in zip(*counted[when].values(), strict=True))) for when in ("before", "after")
    ]
    lines.append(_row("**all**", *sums))
    tests = {when: Counter(_lines_of_tests(root)) for when, root in roots.items()}
    lines += ["", "| | before | after |", "| --- | ---: | ---: |"]
    lines.append(f"| lines of tests | {tests['before']['lines']:,} | {tests['after']['lines']:,} |")
    lines.append(f"| files of tests | {tests['before']['files']:,} | {tests['after']['files']:,} |")
    readme = {when: len((root / "README.md").read_text().splitlines()) for when, root in roots.items()}
    lines.append(f"| lines of README | {readme['before']:,} | {readme['after']:,} |")
    entered, started = {}, {}
    for when, root in roots.items():
        with tempfile.TemporaryDirectory() as name:
            entered[when] = evaluation(root, Path(name))
            started[when] = {said: start_up(root, words, Path(name)) for said, words in STARTED.items()}
    for what in ("files", "functions"):
        lines.append(f"| {what} entered by `limpet evaluate` | {entered['before'][what]} | {entered['after'][what]} |")
    for said in STARTED:
        lines.append(f"| `{said}`, processor seconds | {started['before'][said]:.2f} | {started['after'][said]:.2f} |")
    lines += ["", *against_plan(roots["after"])]
    return "\n".join([*lines, "", describe(), "", "`python benchmarks/code_structure.py --before FOLDER`", ""])


def _revision(root: Path) -> str:
    """Return the commit that is checked out in a folder, with its subject."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%h %s"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _row(name: str, before: Package, after: Package) -> str:
    pairs = ((before.lines, after.lines), (before.files, after.files), (before.short, after.short))
    more = ((before.anything, after.anything), (before.circle, after.circle))
    return f"| {name} | " + " | ".join(f"{one:,} | {other:,}" for one, other in (*pairs, *more)) + " |"


def _lines_of_tests(root: Path) -> dict[str, int]:
    paths = list((root / "tests").rglob("*.py"))
    return {"files": len(paths), "lines": sum(len(path.read_text().splitlines()) for path in paths)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier revision")
    given = parser.parse_args()
    text = page({"before": given.before.resolve(), "after": HERE})
    (RESULTS / "code_structure.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
