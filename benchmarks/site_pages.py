"""Measure the built site in Chromium: weight, loading, search and accessibility of its pages.

    make docs && PYTHONPATH=. python benchmarks/site_pages.py build/site

Writes ``benchmarks/results/site_pages.txt``. Half an hour on two cores, most of it axe's.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.reports.browser import Browser, started

from machine import describe

RESULT = Path(__file__).parent / "results" / "site_pages.txt"
LISTINGS = ("source", "results/files")
"""Listings of files, all from one template: axe looks at the heaviest of them only."""
HEAVIEST = 5
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


class Quiet(SimpleHTTPRequestHandler):
    """A server that prints nothing."""

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


def main() -> None:
    """Measure, and write down."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("site", type=Path)
    options.add_argument("--most", type=int, help="pages that axe looks at, spread over all weights; all without it")
    asked = options.parse_args()
    site = asked.site.resolve()
    pages = sorted(site.rglob("*.html"), key=lambda page: -page.stat().st_size)
    pages.remove(site / "404.html")  # has absolute links, for a server
    named = {page: page.relative_to(site).as_posix() for page in pages}
    plain = [page for page in pages if not named[page].startswith(LISTINGS)]
    looked = [*plain, *[page for page in pages if page not in plain][:HEAVIEST]]
    every = len(looked)
    looked = looked[:: -(-every // (asked.most or every))]
    lines = [f"{describe()}", f"{len(pages)} pages, {sum(page.stat().st_size for page in pages) / 1e6:.1f} MB"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    online = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory() as profile, started(Path(profile)) as browser:
        lines += ["", "the heaviest pages, from a local server: kB, milliseconds until loaded, and of a processor"]
        for page in pages[:HEAVIEST]:
            until, busy = loading(browser, f"{online}/{named[page]}")
            lines.append(f"{page.stat().st_size / 1000:6.0f} {until:6.0f} {busy:6.0f}  {named[page]}")
            print(lines[-1], flush=True)
        lines += ["", "searches for “zero downtime”: hits"]
        for kind, start in (("from the disk", site.as_uri()), ("from a server", online)):
            browser.open(f"{start}/index.html")
            lines.append(f"{len(browser.searched('zero downtime')):6d}  {kind}")
        barriers = []
        for at, page in enumerate(looked):
            barriers += browser.barriers(page)
            print(f"{at + 1} of {len(looked)}: {named[page]}, {len(barriers)} so far", flush=True)
    lines += [
        "",
        f"axe, in light at 1,280 pixels and in dark at 390, on {len(looked)} of {every} pages: "
        f"{len(barriers)} violations",
    ]
    RESULT.write_text("\n".join([*lines, *barriers]) + "\n", encoding="utf-8")
    server.shutdown()


if __name__ == "__main__":
    main()
