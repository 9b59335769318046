"""Shadow and canary: a share of live text searches asks the model that is prepared, or is answered by it."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet import Client
from limpet.data.text_set import TextSet
from limpet.embeddings import StringArray
from limpet.errors import ConfigError
from limpet.evaluation.agreement import compared
from limpet.galleries import Gallery
from limpet.service.settings import ServiceSettings
from limpet.upgrade.vector_sources import TextItems
from service.services import Served, served

WORDS = ["red", "blue", "green", "white", "large", "small", "round", "flat"]
TEXTS = {f"t{number}": f"a {WORDS[number % 8]} {WORDS[number // 8 % 8]} shelf {number % 7}" for number in range(60)}
ASKED = [f"the {one} and {other} one" for one in WORDS for other in WORDS[:4]]


def text_set(texts: dict[str, str] | None = None) -> TextSet:
    held = TEXTS if texts is None else texts
    return TextSet(StringArray.of(held.values()), None, (), StringArray.of(held))


@pytest.fixture
def texts_url(tmp_path: Path, words: Any) -> str:
    url = f"memory:{tmp_path / 'texts'}"
    made = words[0][1](()).embed(text_set(), role="document")
    with Gallery.create(url, fingerprint=made.fingerprint, space=made.space) as gallery:
        gallery.add(made)
    return url


@pytest.fixture
def live(texts_url: str, words: Any, request: Any) -> Iterator[Served]:
    """A service whose gallery has vectors of both models; the test says which share is shadow or canary."""
    with served(texts_url, models=words, texts=partial(TextItems, text_set()), **request.param) as client:
        client.until_it_writes()
        client.take("start", model="words-256")
        assert searched(client, ASKED[:1])["active"] == "g1"
        assert client.get("/v1/upgrade/evidence").json()["prepared"] is None, "its queries cannot find all items yet"
        client.take("backfill")
        yield client


def searched(client: Served, texts: list[str], **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/search", json={"texts": texts, "k": 5, **more})
    assert answer.status_code == 200, answer.text
    return {**answer.json(), "request": answer.headers["x-request-id"]}


def shadowed(client: Served, queries: int) -> dict[str, Any]:
    """Return the evidence once the shadow has asked both models so many queries."""
    while (found := client.get("/v1/upgrade/evidence").json())["shadow"]["queries"] < queries:
        threading.Event().wait(0.01)
    return dict(found)


@pytest.mark.parametrize("live", [{"shadow": 1.0}], indirect=True)
def test_the_overlap_of_the_shadow_is_that_of_all_vectors(live: Served, words: Any, texts_url: str) -> None:
    requests = [searched(live, [text])["request"] for text in ASKED]
    with Client(str(live.base_url)) as client:
        client.click(requests[3], "t3")
        assert client.evidence()["prepared"] == "g2"
    found = shadowed(live, len(ASKED))
    ranked = []
    for _, opened in words:
        model = opened(())
        queries = model.embed(text_set({str(number): text for number, text in enumerate(ASKED)}), role="query").vectors
        items = model.embed(text_set(), role="document").vectors
        ranked.append(np.argsort(-(queries @ items.T), axis=1, kind="stable")[:, :10])
    expected = compared(*ranked)
    shadow = found["shadow"]
    assert shadow["queries"] == len(ASKED) and found["prepared"] == "g2"
    assert shadow["alike"]["overlap"]["mean"] == pytest.approx(expected["overlap"].mean(), abs=0.01)
    low, high = shadow["alike"]["overlap"]["interval"]
    assert low <= shadow["alike"]["overlap"]["mean"] <= high and shadow["thresholds"]["kept"] == "number"
    assert set(shadow["milliseconds"]) == {"old", "new"} and found["canary"]["old"]["answers"] == len(ASKED)
    assert found["canary"]["new"]["answers"] == 0
    page = live.get("/console/upgrade").text
    assert (
        f"{len(ASKED)} queries that both models answered" in page
        and f"{shadow['alike']['overlap']['mean']:.3f}" in page
    )

    made = {side: np.load(io.BytesIO(live.get(f"/v1/upgrade/evidence/{side}.npz").content)) for side in ("old", "new")}
    assert list(made["old"]["ids"]) == list(made["new"]["ids"]) and made["new"]["vectors"].shape == (len(ASKED), 256)
    clicks = list(csv.reader(io.StringIO(live.get("/v1/upgrade/evidence/clicks.csv").text)))
    assert clicks == [["query", "item"], [f"{requests[3]}.0", "t3"]] and clicks[1][0] in made["old"]["ids"]
    live.take("swap")
    assert live.get("/v1/upgrade/evidence").json()["shadow"]["queries"] == 0, "what was said before the swap is over"


@pytest.mark.parametrize("live", [{"canary": 0.4}], indirect=True)
def test_a_canary_answers_a_share_of_the_requests_by_their_key(live: Served) -> None:
    models = {key: searched(live, [ASKED[0]], route_key=key)["model"] for key in map(str, range(60))}
    again = {key: searched(live, [ASKED[1]], route_key=key)["model"] for key in models}
    generations = {one["model"]: one["name"] for one in live.get("/v1").json()["generations"]}
    assert models == again and {generations[one] for one in models.values()} == {"g1", "g2"}
    share = np.mean([generations[one] == "g2" for one in models.values()])
    assert 0.2 < share < 0.6
    old = next(model for model, name in generations.items() if name == "g1")
    assert {searched(live, [text], model=old)["model"] for text in ASKED[:8]} == {old}, "its model was asked for"
    found = live.get("/v1/upgrade/evidence").json()["canary"]
    assert found["new"]["answers"] == round(120 * share) and found["old"]["answers"] == 120 - round(120 * share)
    with Client(str(live.base_url)) as client:
        named = {client.search([ASKED[0]], route_key="7", request=f"r{time}").fingerprint for time in range(5)}
        client.click("r3", "t1")
        arm = client.evidence()["canary"][{"g1": "old", "g2": "new"}[generations[models["7"]]]]
    assert named == {models["7"]} and arm["clicked"]["mean"] == pytest.approx(1 / arm["answers"])
    assert found["new"]["clicked"]["mean"] == 0 and found["new"]["milliseconds"]["mean"] > 0
    assert f"<td>{found['new']['answers']}</td>" in live.get("/console/upgrade").text


def test_a_share_is_at_most_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shadow"):
        ServiceSettings("live", tmp_path, shadow=1.5)
