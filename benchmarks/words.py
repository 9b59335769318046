"""Count the words that a reader meets at two commits, and set ten pages side by side.

Run it at the root of the repository; it writes ``benchmarks/results/words.md``.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

BEFORE = "83c8cc2"
RESULT = Path(__file__).parent / "results" / "words.md"
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/index.md",
    "docs/installing.md",
    "docs/concepts/verdict.md",
    "docs/concepts/spaces.md",
    "docs/tutorials/files.md",
    "docs/tutorials/attach.md",
    "docs/tutorials/images.md",
    "docs/extending/method.md",
)
PARTS = {
    "docs/tutorials/attach.md": (
        "docs/tutorials/same_column.md",
        "docs/tutorials/collections.md",
        "docs/reference/attached_tables.md",
        "docs/reference/attached_collections.md",
    )
}
"""Pages that were divided since, and where the other parts are."""
FIRST = 60
LONG = 20  # words: writing.md of the house asks for at most about as many in a sentence


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def texts(commit: str) -> dict[str, str]:
    """Return the pages and the modules of both packages at a commit, by path."""
    paths = [
        path
        for path in git("ls-tree", "-r", "--name-only", commit).splitlines()
        if re.fullmatch(r"(docs/.*|README|CONTRIBUTING)\.md(\.in)?|(src|bench/src)/.*\.py", path)
    ]
    asked = "".join(f"{commit}:{path}\n" for path in paths).encode()
    said = subprocess.run(["git", "cat-file", "--batch"], input=asked, check=True, capture_output=True).stdout
    found = {}
    for path in paths:
        head, _, said = said.partition(b"\n")
        size = int(head.split()[-1])
        found[path], said = said[:size].decode(), said[size + 1 :]
    return found


def docstrings(module: str) -> Iterator[str]:
    """Yield the docstrings of a module, of its classes and functions."""
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def words(text: str) -> int:
    """Count the words of prose: blocks of code and the targets of links are none."""
    prose = re.sub(r"```.*?```", " ", text, flags=re.S)
    return len(re.findall(r"\w[\w'’-]*", re.sub(r"\]\([^)]*\)|<[^>]*>", " ", prose)))


def counted(found: dict[str, str]) -> dict[str, int]:
    """Return how many words each kind of text has."""
    modules = {path: sum(map(words, docstrings(text))) for path, text in found.items() if path.endswith(".py")}
    pages = {path: words(text) for path, text in found.items() if not path.endswith(".py")}
    return {
        "README": pages.pop("README.md"),
        "CONTRIBUTING": pages.pop("CONTRIBUTING.md"),
        "other hand-written pages": sum(pages.values()),
        "docstrings of the commands, which are their help texts": sum(
            count for path, count in modules.items() if "/cli/" in path
        ),
        "other docstrings": sum(count for path, count in modules.items() if "/cli/" not in path),
    }


def prose_of(page: str) -> str:
    """Return a page without blocks of code, headings, pictures and the targets of links."""
    prose = re.sub(
        r"(?s:\A---.*?---\n|```.*?```|<!--.*?-->)|^#.*$|!\[[^]]*\]\([^)]*\)|\{[^}]*\}", " ", page, flags=re.M
    )
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose)


def sentences(page: str) -> list[int]:
    """Return the words of every sentence of a page; a list's items are sentences, and tables have none."""
    lines = re.sub(r"^\s*(?:\||<).*$", "\n", prose_of(page), flags=re.M)
    parts = re.split(r"(?<=[.!?:])[*)”]*\s+|\n\s*\n|\n\s*(?:[-*]|\d+\.) ", re.sub(r"`[^`]*`", "code", lines))
    return [count for count in map(words, parts) if count > 1]


def compared(before: str, after: str) -> list[str]:
    """Return what a reader of a page meets, before and after, as cells of a table."""
    cells = []
    for page in (before, after):
        lengths = sentences(page)
        cells.append(
            (
                f"{words(page):,}",
                f"{sum(lengths) / len(lengths):.1f}",
                f"{sum(length > LONG for length in lengths) / len(lengths):.0%}",
                str(len(re.findall(r"^```\w", page, flags=re.M))),
                "yes" if "limpet examples copy" in page else "no",
                "yes" if re.search(r"^\*\d+ minutes, ", page, flags=re.M) else "no",
            )
        )
    return [f"{old} → {new}" for old, new in zip(*cells, strict=True)]


def whole(path: str, found: dict[str, str]) -> str:
    """Return a page and the parts that were divided off."""
    return "\n\n".join(found[part] for part in (path, *PARTS.get(path, ())))


def beginning(page: str) -> str:
    """Return the first words of a page as one cell of a table."""
    plain = prose_of(page).replace("|", " ").split()
    return " ".join(plain[:FIRST]) + (" …" if len(plain) > FIRST else "")


def main() -> None:
    """Count, and write the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--before", default=BEFORE)
    options.add_argument("--after", default="HEAD")
    asked = options.parse_args()
    commits = [git("rev-parse", "--short", commit).strip() for commit in (asked.before, asked.after)]
    before, after = map(texts, commits)
    rows = [
        f"| {kind} | {count:,} | {now:,} | {now / count - 1:+.0%} |"
        for (kind, count), now in zip(counted(before).items(), counted(after).values(), strict=True)
    ]
    totals = [sum(counted(found).values()) for found in (before, after)]
    size = [
        (sum(text.count("\n") for path, text in found.items() if path.endswith(".py")), sum(map(bool, every)))
        for found in (before, after)
        for every in [[one for path, text in found.items() if path.endswith(".py") for one in docstrings(text)]]
    ]
    lines = [
        "# Words before and after",
        "",
        f"Words of prose, without blocks of code, at the commits `{commits[0]}` and `{commits[1]}`, counted by "
        "`python benchmarks/words.py`.",
        "",
        "| text | before | after | change |",
        "|---|---:|---:|---:|",
        *rows,
        f"| all | {totals[0]:,} | {totals[1]:,} | {totals[1] / totals[0] - 1:+.0%} |",
        "",
        f"Both packages had {size[0][0]:,} lines and {size[0][1]:,} docstrings before, and have {size[1][0]:,} lines "
        f"and {size[1][1]:,} docstrings after: other work between the two commits added code and pages, too.",
        "",
        "## Ten pages",
        "",
        f"Words of prose; words a sentence, without tables; sentences of more than {LONG} words; blocks of code; "
        "whether a page begins with sample data, and says how long it takes. The tests ran the blocks before, too, "
        "but on data that only the tests made. A divided page counts with its parts, which are: "
        + "; ".join(f"{page} with {', '.join(parts)}" for page, parts in PARTS.items())
        + ".",
        "",
        "| page | words | words a sentence | long sentences | blocks | sample data | minutes stated |",
        "|---|---|---|---|---|---|---|",
        *(f"| {path} | {' | '.join(compared(before[path], whole(path, after)))} |" for path in PAGES),
        "",
        f"## Their first {FIRST} words",
        "",
        f"`git show {commits[0]}:PAGE` prints a whole page as it was.",
    ]
    for path in PAGES:
        lines += ["", f"### {path}", "", "| before | after |", "|---|---|"]
        lines += [f"| {beginning(before.get(path, 'No such page.'))} | {beginning(after[path])} |"]
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
