"""A page as its reader meets it, for the tests of all reports."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}  # tags that are never closed
MISSPELT = {
    "a per cent without a space": r"\d%",
    "a hyphen for a minus": r"(?<![\w.−-])-\.?\d",
    "thousands without a comma": r"(?<![\w.,:/#-])(?!(?:19|20)\d\d\b)\d{4,}(?![\w.:-])",
    "a decimal point without its zero": r"(?<![\w.])\.\d",
}
Tables = dict[str, dict[str, list[str]]]


class Page(HTMLParser):
    """The tags, classes, addresses and visible words of a page; complains about tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.marked: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            str(found)
            for name, found in attrs
            if name in ("src", "href", "action", "data", "srcset") and not str(found).startswith("#")
        ]
        self.marked += [(tag, str(found)) for name, found in attrs if name == "class"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.open):  # what stands there has to stand beside the charts too
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def terms(page: str) -> list[str]:
    """Return the terms that a page explains."""
    return re.findall(r"<dfn>(.*?)</dfn>", page)


def tables_of(text: str) -> Tables:
    """Return every table of a text in Markdown, by the line above it: its rows by their first cell."""
    tables: Tables = {}
    for caption, table in re.findall(r"^([^|\n][^\n]*)\n\n((?:\|[^\n]*\n)+)", text, flags=re.MULTILINE):
        columns, sides, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        assert rows and all(len(row) == len(columns) for row in (sides, *rows)), caption
        assert all(re.fullmatch(" ---:? ", side) for side in sides), caption
        cells = [[cell.strip().replace("\\", "") for cell in row] for row in rows]
        tables[caption.removeprefix("## ").removesuffix(":").replace("\\", "")] = {row[0]: row[1:] for row in cells}
    return tables


def misspelt_numbers(page: str) -> list[str]:
    """Return the numbers that readers meet in another spelling than 1,234 and 0.5 and −0.5 and 12 %.

    Code, fingerprints and versions of programs are left out.
    """
    shown = re.sub(r"<(style|script|code|desc|title)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", shown))
    return [
        f"{what}: {found}"
        for what, pattern in MISSPELT.items()
        for found in re.findall(rf".{{0,20}}{pattern}.{{0,10}}", text)
    ]


def assert_contents_lead_to_sections(text: str) -> None:
    """Assert that the verdict comes first, the method last, and that every section after the verdict has a link."""
    first, *rest = re.findall(r'<h2 id="([\w-]+)"', text)
    assert first == "verdict" and rest[-1] == "how"
    assert re.findall(r'<a href="#([\w-]+)"', text) == rest
    assert "script" not in Page(text).tags


def assert_self_contained(page: str, *, pictures: bool = False) -> None:
    """Assert that a page loads nothing and runs nothing; with pictures some are part of it."""
    read = Page(page)
    assert page.lstrip().startswith("<!DOCTYPE html>") and read.tags[:2] == ["html", "head"]
    assert not {"script", "link", "iframe", *(() if pictures else ("img",))} & set(read.tags)
    assert read.addresses == []
    assert "@import" not in page and "@font-face" not in page
    assert page.count("url(") == page.count("url(data:image/png;base64,")
    assert (page.count("url(") > 0) == pictures
    assert page.replace("http://www.w3.org/2000/svg", "").count("://") == 0
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page


def assert_follows_the_scheme(page: str) -> None:
    """Assert that a page has styles for dark screens, narrow ones and paper, and defines every variable it uses."""
    style = page.partition("<style>")[2].partition("</style>")[0]
    for query in ("prefers-color-scheme:dark", "media print", "max-width:640px"):
        assert query in style
    assert set(re.findall(r"var\((--[a-z-]+)\)", style)) <= set(re.findall(r"(--[a-z-]+):", style))
