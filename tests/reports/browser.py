"""Pages in a real browser, at the widths of a desk, a tablet and a phone, for the tests of all reports."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import unquote

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (1280, 768, 390)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --window-size=1400,900 --virtual-time-budget=20000"
)
MEASURE = """
const results = [...document.querySelectorAll('iframe')].map(frame => {
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
document.body.innerHTML = '<pre id="result">' + btoa(encodeURIComponent(JSON.stringify(results))) + '</pre>';
"""


def measured(page: str, folder: Path) -> dict[int, dict[str, Any]]:
    """Show a page in frames of all widths and return what the browser measured, by width."""
    frames = "".join(
        f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
        for width in WIDTHS
    )
    script = f"<script>window.addEventListener('load', () => {{ {MEASURE} }});</script>"
    wrapper = folder / "wrapper.html"
    wrapper.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{frames}{script}</body>", encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(BROWSER), *FLAGS.split(), profile, "--dump-dom", wrapper.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="result">([A-Za-z0-9+/=]+)</pre>', dom)
    assert found is not None, dom[:500]
    results: dict[int, dict[str, Any]] = {
        result["client"]: result for result in json.loads(unquote(b64decode(found[1]).decode()))
    }
    assert list(results) == list(WIDTHS)
    return results
