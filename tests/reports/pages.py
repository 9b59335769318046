"""A page as its reader meets it, for the tests of all reports."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}  # tags that are never closed


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
