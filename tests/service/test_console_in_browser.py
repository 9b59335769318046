"""The console in a real browser: whole upgrades by its pages, also without JavaScript, and what axe says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from importlib import resources
from typing import Any

import pytest

from limpet.upgrade.vector_sources import TextItems
from reports.browser import BROWSER
from service.services import Served, served
from service.test_upgrades import TEXTS, table_of_texts, text_set, texts_url  # noqa: F401

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]
LOOKS = [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Any]:
    """Open pages, and fail for what a browser complains of, such as a script that the policy forbids."""
    complaints: list[str] = []
    contexts = []

    def page(client: Served, width: int = 1280, scheme: str = "light", *, scripts: bool = True) -> Any:
        context = chromium.new_context(
            base_url=str(client.base_url), viewport={"width": width, "height": 900}, color_scheme=scheme,
            java_script_enabled=scripts,
        )  # fmt: skip
        contexts.append(context)
        made = context.new_page()
        made.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
        made.on("pageerror", lambda error: complaints.append(str(error)))
        made.on("request", lambda one: one.url.startswith(str(client.base_url)) or complaints.append(one.url))
        return made

    yield page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def client(texts_url: str, words: Any) -> Iterator[Served]:  # noqa: F811
    with served(texts_url, models=words, texts=partial(TextItems, text_set())) as made:
        yield made.until_it_writes()


def taken(page: Any, step: str, typed: str = "", **options: str) -> None:
    """Take a step by its card, from its dry run to its end."""
    page.goto("/console/upgrade")
    card = page.get_by_role("article").filter(has=page.get_by_role("heading", name=step, exact=False).first)
    for name, value in options.items():
        field = card.locator(f"[name={name}]")
        if not field.is_visible():
            card.get_by_text("Options").click()
        (field.select_option if field.evaluate("e => e.tagName") == "SELECT" else field.fill)(value)
    card.get_by_role("button", name="Dry run").click()
    check = page.locator(f"#check-{step.lower()}")
    playwright.expect(check.get_by_role("heading")).to_be_focused()
    if typed:
        check.get_by_label("to confirm").fill(typed)
    check.get_by_role("button", name=f"{step} now").click()
    page.wait_for_url("**/console/jobs/*")
    playwright.expect(page.locator(".job .badge")).to_have_text("done", timeout=60_000)


def barriers(page: Any) -> list[str]:
    """Return what axe finds on a page, and whether it is wider than its window."""
    if not page.evaluate("typeof axe != 'undefined'"):
        page.evaluate((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8") + ";0")
    found = page.evaluate("axe.run().then(one => one.violations.map(v => v.id + ': ' + v.nodes.map(n => n.target)))")
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*(f"{page.url} {one}" for one in found), *[f"{page.url} is too wide"] * wide]


def test_a_whole_upgrade_of_a_gallery(client: Served, opened: Any) -> None:
    page = opened(client)
    taken(page, "Start", model="words-256")
    slow = client.post("/v1/upgrade/backfill", json={"budget": 20, "batch": 2, "rate": 8}).json()
    page.goto("/console/upgrade")
    bar = page.get_by_role("progressbar", name="Backfill", exact=True)
    playwright.expect(bar).to_have_attribute("value", re.compile("[1-9]"))  # it moves on a page that stays
    playwright.expect(page.locator("#said")).to_have_text("Backfill: done.", timeout=30_000)
    playwright.expect(bar).to_have_count(0)
    assert client.wait(slow)["status"] == "done"
    playwright.expect(page.get_by_text("20 of 60 items, 40 are left")).to_be_visible()
    taken(page, "Backfill")
    page.goto("/console/upgrade")
    page.get_by_label("Threshold of the old model").fill("0.8")
    page.get_by_role("button", name="Measure").click()
    playwright.expect(page.get_by_text("A threshold of 0.8 on old scores becomes")).to_be_focused()
    taken(page, "Swap")
    assert client.get("/v1").json()["active"] == "g2"
    taken(page, "Rollback")
    assert client.get("/v1").json()["active"] == "g1"
    taken(page, "Swap")
    taken(page, "Verify")
    taken(page, "Finish", typed="finish")
    assert [one["name"] for one in client.get("/v1").json()["generations"]] == ["g2"]
    page.goto("/console/compare")
    page.get_by_label("Text").fill(TEXTS["t7"])
    page.get_by_role("button", name="Compare").click()
    playwright.expect(
        page.get_by_role("heading", name="10 of 10 hits are the same, the first one too.")
    ).to_be_focused()
    playwright.expect(page.locator(".hits li").first).to_contain_text(TEXTS["t7"])
    page.goto("/console/doctor")
    page.get_by_role("button", name="Examine").click()
    playwright.expect(page.locator(".job .badge")).to_have_text("done")
    page.goto("/console/doctor")
    playwright.expect(page.get_by_role("heading", level=1)).to_have_text("The index is healthy.")


def test_pages_work_without_javascript_and_by_keyboard(client: Served, opened: Any) -> None:
    page = opened(client, scripts=False)
    page.goto("/console/upgrade")
    page.get_by_label("New model").fill("words-256")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Start now").press("Enter")
    page.wait_for_url("**/console/jobs/*")
    while page.locator(".job .badge").inner_text() != "done":
        page.reload()
    page.goto("/console/")
    assert "is being prepared" in page.get_by_role("heading", level=1).inner_text()
    page.goto("/console/compare?item=t3")
    assert "has no vector of g2" in page.get_by_role("alert").inner_text()
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"


def test_a_whole_upgrade_of_a_table(postgres_server: Any, words: Any, opened: Any) -> None:
    model = words[0][1](())
    url = table_of_texts(postgres_server.url(), "shown_texts", model)
    with served(url, models=words) as client:
        page = opened(client)
        page.goto("/console/doctor")
        page.get_by_label("Embed the sample again with").select_option("words-64")
        page.get_by_role("button", name="Examine").click()
        playwright.expect(page.locator(".job .badge")).to_have_text("done", timeout=30_000)
        taken(page, "Start", model="words-256", old=model.fingerprint)
        taken(page, "Backfill")
        for narrow in LOOKS[:2]:
            small = opened(client, *narrow)
            for path in ("", "upgrade", "upgrade/swap", "compare", "journal"):
                small.goto(f"/console/{path}")
                assert barriers(small) == []
        taken(page, "Index")
        taken(page, "Swap", writes="new")
        assert client.get("/v1/upgrade").json()["phase"] == "swapped"
        taken(page, "Finish", typed="finish")
        page.goto("/console/")
        playwright.expect(page.get_by_role("heading", level=1)).to_have_text("No upgrade is started.")
        page.goto("/console/journal")
        playwright.expect(page.get_by_role("row").nth(1)).to_contain_text("finish")


def test_every_page_is_accessible_and_fits_a_phone(client: Served, opened: Any) -> None:
    assert client.take("start", model="words-256")["status"] == "done"
    client.take("backfill", budget=30)
    failed = client.take("swap")
    assert client.take("doctor", sample=5)["status"] == "done"
    slow = client.post("/v1/upgrade/backfill", json={"batch": 1, "rate": 0.2}).json()
    paths = [
        "",
        "upgrade",
        "compare",
        "compare?q=red+shelf",
        "compare?item=t59",
        "doctor",
        "journal",
        "jobs",
        "keys",
        "login",
    ]
    paths += ["upgrade/cancel", "upgrade/finish", "thresholds", f"jobs/{failed['id']}", f"jobs/{slow['id']}"]
    found = []
    for look in LOOKS:
        page = opened(client, *look)
        for path in paths:
            page.goto(f"/console/{path}")
            found += barriers(page)
    assert json.dumps(found, indent=1) == "[]"
    client.delete(f"/v1/jobs/{slow['id']}")
