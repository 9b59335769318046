"""Measure every page of the built site, every kind of report and the outputs of the notebooks in Chromium.

    make docs && PYTHONPATH=. python benchmarks/site_pages.py build/site

It loads pages from a local server, searches the site, and runs axe in light and dark. Writes
``benchmarks/results/site_pages.txt``; ``--only NAME`` looks at pages with this text in their names, and writes nothing.
Hours on a busy machine: with ``--kept FILE``, an interrupted run goes on where axe stopped; ``--minutes`` ends one.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import threading
import time
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.bench.reports.test_documents import DOCUMENTS as BENCH_DOCUMENTS
from tests.reports.browser import Browser, started
from tests.reports.test_every_page_in_browser import RENDER
from tests.reports.test_example_documents import DOCUMENTS, KINDS

from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.leaderboard import render_leaderboard
from machine import describe

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/site_pages.txt"
HEAVIEST = 12  # pages that are loaded; a lighter one is not slower
SLOWEST = 5
SLOW = 500  # milliseconds from which a page is loaded again: other work on the machine delays single loads
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
OUTPUTS = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>:root{{color-scheme:light dark;font-family:sans-serif}}
@media (prefers-color-scheme:dark){{:root{{background:#111;color:#e0e0e0}}}}
.output{{overflow-x:auto}}</style></head>
<body><main><h1>{title}</h1>{outputs}</main></body></html>
"""
"""A page as notebooks show what their cells return, on white or nearly black."""


class Server(SimpleHTTPRequestHandler):
    """A server that prints nothing, and may hide the index of words, which every page prepares for searches."""

    searchable = True

    def do_GET(self) -> None:
        """Answer with a file."""
        if self.searchable or "/search/" not in self.path:
            super().do_GET()
        else:
            self.send_error(404)

    def log_message(self, format: str, *words: object) -> None:
        """Print nothing."""


def loading(browser: Browser, address: str) -> tuple[float, float]:
    """Return the milliseconds until a page is loaded, and those of a processor in its main thread."""
    browser.open("about:blank")
    browser.ask("Performance.enable", timeDomain="threadTicks")
    browser.ask("Page.navigate", url=address)
    browser.run(f"""new Promise(done => (function wait() {{
      location.protocol !== 'about:' && {LOADED} ? done(1) : setTimeout(wait, 10);
    }})())""")
    metrics = {one["name"]: one["value"] for one in browser.ask("Performance.getMetrics")["metrics"]}
    return browser.run(LOADED), 1000 * metrics["TaskDuration"]


def fastest(browser: Browser, address: str) -> tuple[float, float]:
    """Return the fastest of up to three loads; one is enough for a page that is not slow."""
    found = [loading(browser, address)]
    while min(found)[0] > SLOW and len(found) < 3:
        found.append(loading(browser, address))
    return min(found)


def shown(output: dict[str, dict[str, list[str]]]) -> str:
    """Return what a cell of a notebook shows, as HTML."""
    data = output.get("data", {})
    drawn = "".join(data.get("text/html", ()) or data.get("image/svg+xml", ()))
    return drawn or f"<pre>{escape(''.join(output.get('text', ()) or data['text/plain']))}</pre>"


def other_pages(folder: Path) -> list[Path]:
    """Write a report of every kind, and the outputs of every notebook, and return their files."""
    made = {f"report {name}": RENDER[kind](kind.load(DOCUMENTS / f"{name}.json")) for name, kind in KINDS.items()}
    made["report leaderboard"] = render_leaderboard(Leaderboard.load(BENCH_DOCUMENTS / "leaderboard.json"))
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = "".join(
            f'<div class="output" tabindex="0" role="group" aria-label="Output">{shown(output)}</div>'
            for cell in cells
            for output in cell.get("outputs", ())
        )
        made[f"notebook {path.stem}"] = OUTPUTS.format(title=path.stem, outputs=outputs)
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return [folder / f"{name}.html" for name in made]


def read_kept(path: Path | None) -> dict[str, list[str]]:
    """Return what axe found in an interrupted run, by page."""
    if path is None or not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Measure, and write down."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("site", type=Path)
    options.add_argument("--only", default="", help="text in the names of the pages to look at")
    options.add_argument("--kept", type=Path, help="file of JSON lines: what axe found, by page")
    options.add_argument("--minutes", type=float, default=math.inf, help="after which axe looks at no further page")
    asked = options.parse_args()
    site = asked.site.resolve()
    pages = sorted(site.rglob("*.html"), key=lambda page: page.stat().st_size)
    named = {page: page.relative_to(site).as_posix() for page in pages}
    pages = [page for page in pages if asked.only in named[page]]
    weight = sum(page.stat().st_size for page in pages) / 1e6
    lines = [f"{describe()}", f"{len(pages)} pages, {weight:.1f} MB"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    online = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as browser:
        if not asked.only:
            lines += ["", "searches for “zero downtime”: hits"]
            for kind, start in (("from the disk", site.as_uri()), ("from a server", online)):
                browser.open(f"{start}/index.html")
                lines.append(f"{len(browser.searched('zero downtime')):6d}  {kind}")
        barriers: list[str] = []
        kept, end = read_kept(asked.kept), time.monotonic() + 60 * asked.minutes
        others = [page for page in other_pages(Path(folder)) if asked.only in page.stem]
        Server.searchable = False  # takes longer than axe does
        for page in [*others, *pages]:
            name = named.get(page, page.stem)
            if name not in kept and time.monotonic() > end:
                continue
            if name not in kept:
                kept[name] = browser.barriers(page.as_uri() if page in others else f"{online}/{name}")
                print("\n".join([name, *kept[name]]), flush=True)
                if asked.kept is not None:
                    with asked.kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([name, kept[name]]) + "\n")
            barriers += [f"{name}, {barrier}" for barrier in kept[name]]
        Server.searchable = True
        took = {page: fastest(browser, f"{online}/{named[page]}") for page in pages[-HEAVIEST:]}
    looked = len(kept.keys() & set(named.values()))
    late, busiest = (sum(one[at] >= 1000 for one in took.values()) for at in (0, 1))
    lines += [
        "",
        f"the {len(took)} heaviest pages, loaded from a local server: {late} take a second or more, "
        f"{busiest} of them a second of a processor",
        "the slowest: kB, milliseconds until loaded, and of a processor",
    ]
    for page in sorted(took, key=lambda page: took[page], reverse=True)[:SLOWEST]:
        until, busy = took[page]
        lines.append(f"{page.stat().st_size / 1000:6.0f} {until:6.0f} {busy:6.0f}  {named[page]}")
    lines += [
        "",
        f"axe, in light at 1,280 pixels and in dark at 390, on {looked} of {len(pages)} pages of the site, "
        f"{sum(page.stem.startswith('report ') for page in others)} reports and the outputs of "
        f"{sum(page.stem.startswith('notebook ') for page in others)} notebooks: {len(barriers)} violations",
    ]
    print("\n".join([*lines, *barriers]))
    if not asked.only:
        RESULT.write_text("\n".join([*lines, *barriers]) + "\n", encoding="utf-8")
    server.shutdown()


if __name__ == "__main__":
    main()
