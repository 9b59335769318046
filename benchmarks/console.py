"""Photograph the console of `limpet serve` in the middle of an upgrade of the example shop.

    python benchmarks/console.py

Writes docs/images/console_*.png; takes Chromium.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from limpet import Client

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PORT = 8529
PLACE = f"http://127.0.0.1:{PORT}"
PAGES = {"overview": "", "compare": "compare?q=my+parcel+did+not+come&k=5", "doctor": "doctor"}
LIMPET = [sys.executable, "-m", "limpet"]


def photograph(page: Page, name: str) -> None:
    """Write an image of the page that is open, in few colours."""
    content = page.screenshot(full_page=True)
    Image.open(io.BytesIO(content)).convert("RGB").quantize(128).save(IMAGES / f"console_{name}.png", optimize=True)


def main() -> None:
    """Upgrade the shop, and photograph it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*LIMPET, "examples", "copy", "shop-gallery"], cwd=folder, check=True)
        shop = Path(folder) / "shop-gallery"
        create = [*LIMPET, "gallery", "create", "live", "--texts", "requests.csv", "--model", "st:models/v1"]
        subprocess.run(create, cwd=shop, check=True)
        words = ["serve", "live", "--model", "st:models/v1", "--model", "st:models/v2", "--texts", "requests.csv"]
        with subprocess.Popen([*LIMPET, *words, "--port", str(PORT)], cwd=shop) as service:
            try:
                with Client(PLACE, retries=60) as client, sync_playwright() as started:
                    client.take_step("start", model="st:models/v2")
                    items = client.status()["items"]
                    browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
                    page = browser.new_page(viewport={"width": 1180, "height": 400}, device_scale_factor=1.5)
                    client.take_step("backfill", budget=items // 2)
                    job = client.take_step("backfill", batch=4, rate=20.0, wait=False)
                    page.goto(f"{PLACE}/console/upgrade")
                    page.wait_for_selector('progress[aria-label="Backfill"][value]')
                    photograph(page, "upgrade")
                    client.http.delete(f"/v1/jobs/{job['id']}")
                    client.take_step("backfill", budget=items // 4)
                    client.take_step("doctor", model="st:models/v1")
                    for name, path in PAGES.items():
                        page.goto(f"{PLACE}/console/{path}")
                        photograph(page, name)
                    browser.close()
            finally:
                service.terminate()


if __name__ == "__main__":
    main()
