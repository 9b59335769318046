"""Pages in a real browser, at the widths of a desk, a tablet and a phone, for the tests of all reports."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (1280, 768, 390)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-renderer-backgrounding --hide-scrollbars "
    "--window-size=1400,900 --remote-debugging-pipe"
)
MEASURE = """(async (text, widths) => {
const frame = document.createElement('iframe');
Object.assign(frame, {height: 900, srcdoc: text, style: 'border:0'});
await new Promise(loaded => { frame.onload = loaded; document.body.replaceChildren(frame); });
return widths.map(width => {
  frame.width = width;
  const page = frame.contentDocument, root = page.documentElement, overlaps = [], outside = [];
  page.querySelectorAll('details').forEach(details => { details.open = true; });
  const shown = e => e.getClientRects().length > 0;
  for (const chart of [...page.querySelectorAll('svg.chart')].filter(shown)) {
    const texts = [...chart.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
    for (const [words, box] of texts)
      if (box.left < 0 || box.right > root.clientWidth) outside.push(words);
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
        overlaps.push(a + ' | ' + b);
    }));
  }
  for (const e of [...page.querySelectorAll('body *')].filter(e => shown(e) && !e.closest('.scroll')))
    if (e.getBoundingClientRect().right > root.clientWidth + 1) outside.push(e.tagName + '.' + e.getAttribute('class'));
  return {client: root.clientWidth, scroll: root.scrollWidth, overlaps, outside,
          charts: [...page.querySelectorAll('svg.chart')].filter(shown).length,
          pictures: [...page.querySelectorAll('.picture')].filter(shown).length,
          smallest: Math.min(...[...page.querySelectorAll('svg.chart text')].filter(shown)
                             .map(e => e.getBoundingClientRect().height))};
});
})"""

VIOLATIONS = """(async (contrast, others) => {
const seen = new Map(), numbers = new Map(), looks = new Map();
const look = at => {  // a number that differs where colours of an element or around it may
  if (at && !looks.has(at)) {
    const own = getComputedStyle(at);
    const key = [look(at.parentElement), at.tagName, at.getAttribute('class'), own.color, own.backgroundColor,
                 own.opacity].join();
    if (!numbers.has(key)) numbers.set(key, numbers.size);
    looks.set(at, numbers.get(key));
  }
  return looks.get(at);
};
for (const element of document.querySelectorAll('body *')) {
  if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const own = getComputedStyle(element), key = [look(element), own.fill, own.fontSize, own.fontWeight].join();
  if (!seen.has(key)) seen.set(key, element);  // cells of a table look alike: one is measured
}
const code = {exclude: [['pre code > span']]};  // words of code in their colours mean nothing else, and are many
const runs = [await axe.run({include: [...seen.values()]}, {runOnly: contrast}), await axe.run(code, others)];
return runs.flatMap(run => run.violations).map(one =>
  one.id + ': ' + one.nodes.map(node => node.target.join(' ')).join(' | '));
})"""
CONTRAST = ["color-contrast", "link-in-text-block"]
"""Rules of axe about colours."""

READ = """new Promise(read => (function wait() {
  if (location.protocol === 'about:' || document.readyState !== 'complete') return setTimeout(wait, 10);
  document.querySelectorAll('details').forEach(details => { details.open = true; });
  read(true);
})())"""

SETTLED = """new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)))
.then(() => Promise.allSettled(document.getAnimations().map(one => one.finished))).then(() => true)"""
"""Wait until colours have changed, which the site does little by little."""

SEARCH = """new Promise(done => {
  const look = () => {
    const field = document.querySelector('.md-search__input');
    const hits = [...document.querySelectorAll('.md-search-result__link')].map(link => link.href);
    if (hits.length) return done(hits);
    const opened = document.querySelector('#__search');
    if (opened && !opened.checked) opened.click();
    if (field && field.value !== WORDS) field.value = WORDS;
    if (field) for (const kind of ['focus', 'keyup', 'input']) field.dispatchEvent(new Event(kind, {bubbles: true}));
    setTimeout(look, 200);
  };
  look();
})"""
"""Type into the search field until there are hits."""


class Browser:
    """A browser told what to do in its DevTools protocol, by pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._asked, self._read, self._session, self._tab = process, 0, b"", "", ""

    def ask(self, method: str, **values: Any) -> dict[str, Any]:
        """Return what a command answers."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked += 1
        command = {"id": self._asked, "method": method, "params": values}
        command |= {"sessionId": self._session} if self._session else {}
        self._process.stdin.write(json.dumps(command).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            while b"\0" not in self._read:
                assert select.select([self._process.stdout], [], [], 600)[0], f"no answer to {method}"
                self._read += (more := os.read(self._process.stdout.fileno(), 1 << 20))
                assert more, f"the browser ended at {method}"
            message, _, self._read = self._read.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == self._asked:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def measured(self, page: str) -> dict[int, dict[str, Any]]:
        """Show a page in a frame that takes all widths and return what the browser measured, by width."""
        if not self._session:
            self.open("about:blank")
        measured = self.run(f"{MEASURE}({json.dumps(page)}, {json.dumps(WIDTHS)})")
        results: dict[int, dict[str, Any]] = {result["client"]: result for result in measured}
        assert list(results) == list(WIDTHS)
        return results

    def open(self, url: str, width: int = 1400, scheme: str = "light") -> None:
        """Open a page in a new tab in place of the last one; scripts run in it from now on.

        Args:
            url: Its address.
            width: Of the screen.
            scheme: The colours that the reader prefers, "light" or "dark": pages may read this while they load.
        """
        self._session, last = "", self._tab
        self._tab = self.ask("Target.createTarget", url="about:blank")["targetId"]
        if last:
            self.ask("Target.closeTarget", targetId=last)
        self._session = self.ask("Target.attachToTarget", targetId=self._tab, flatten=True)["sessionId"]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=url)  # answers when the page takes the place of the blank one

    def show(self, page: Path | str, width: int, scheme: str) -> None:
        """Open a page at a width, in the light or the dark scheme, with all details open, and wait until it is read."""
        self.open(page if isinstance(page, str) else page.as_uri(), width, scheme)
        self.run(READ)

    def barriers(self, page: Path | str) -> list[str]:
        """Return what keeps people with assistive technology, or with a phone, from reading a page."""
        axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
        every = {"rules": {rule: {"enabled": False} for rule in CONTRAST}}
        narrow = {"runOnly": ["scrollable-region-focusable"]}  # all else is the same at every width
        barriers: list[str] = []
        self.show(page, 1280, "light")
        self.run(f"{axe};0")
        for width, scheme, others in ((1280, "light", every), (390, "dark", narrow)):
            self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.run(SETTLED)
            found = self.run(f"{VIOLATIONS}({json.dumps(CONTRAST)}, {json.dumps(others)})")
            wider = ["wider than the screen"] * (self.run("document.documentElement.scrollWidth") > width)
            barriers += [f"{scheme}: {barrier}" for barrier in (*found, *wider)]
        return barriers

    def searched(self, words: str) -> list[str]:
        """Type words into the search field of a site and return the addresses of the hits."""
        hits: list[str] = self.run(SEARCH.replace("WORDS", json.dumps(words)))
        return hits

    def run(self, script: str) -> Any:
        """Return what a script, or its promise, comes to in the page that is open."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """Start a browser, which reads commands from its descriptor 3 and answers on 4."""
    command = [str(BROWSER), *FLAGS.split(), f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        browser = Browser(process)
        yield browser
        browser.ask("Browser.close")
