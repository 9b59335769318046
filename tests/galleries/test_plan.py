from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError
from limpet.galleries import Gallery
from limpet.galleries.plan import plan
from limpet.geometry import Hypersphere, Lorentz
from limpet.upgrade.plan import BackfillPlan

Embed = Callable[..., EmbeddingSet]
IDS = [f"i{row:03d}" for row in range(200)]


class Clocked:
    """A source with a clock of its own: a batch takes 0.5 seconds and 0.01 per item, the first batch 100 more."""

    fingerprint, space = "declared:new", Hypersphere(4)

    def __init__(self, embed: Embed, lacking: Sequence[str] = ()) -> None:
        self.make, self.lacking, self.now = embed, set(lacking), 0.0
        self.batches: list[list[str]] = []

    def clock(self) -> float:
        return self.now

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        self.now += 0.5 + 0.01 * len(ids) + (0 if self.batches else 100)
        self.batches.append(list(ids))
        return self.make("new", [name for name in ids if name not in self.lacking])


@pytest.fixture
def started(gallery: Gallery, embed: Embed, reported: Callable[..., Path]) -> Gallery:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", Hypersphere(4), reports=[reported()])
    return gallery


def test_speed_is_that_of_a_warm_source_on_items_it_has_not_seen(started: Gallery, embed: Embed) -> None:
    source = Clocked(embed)
    found = plan(started, source, sample=100, batch=20, clock=source.clock, price_per_thousand=0.4)
    assert [len(batch) for batch in source.batches] == [20, 20, 10, 20, 20, 10]
    asked = [name for batch in source.batches for name in batch]
    assert len(set(asked)) == 100 and set(asked) <= set(IDS) and sorted(asked) != asked
    assert found.items_per_second == pytest.approx(50 / 2.0)  # three batches and 50 items
    assert found.seconds == pytest.approx(200 / 25) and found.cost == pytest.approx(0.08)
    assert (found.sampled, found.missing, found.missing_ids, found.found_rows) == (100, 0, (), 200)


def test_missing_items_cost_no_time_and_are_named(started: Gallery, embed: Embed) -> None:
    source = Clocked(embed, lacking=IDS[::4])
    found = plan(started, source, sample=1000, batch=1000, clock=source.clock, price_per_thousand=1000)
    assert (found.sampled, found.missing, found.found_rows) == (200, 50, 150)
    assert found.missing_ids == tuple(IDS[::4][:20])
    timed = len([name for name in source.batches[1] if name not in source.lacking])
    assert found.items_per_second == pytest.approx(timed / 1.5) and found.cost == 150
    assert found.seconds == pytest.approx(150 / (timed / 1.5))


def test_a_source_that_has_nothing(started: Gallery, embed: Embed) -> None:
    source = Clocked(embed, lacking=IDS)
    found = plan(started, source, sample=10, clock=source.clock, budget_seconds=60)
    assert (found.missing, found.items_per_second, found.seconds, found.found_rows) == (10, None, None, 0)
    assert found.rows_within_budget == 0


def test_rows_and_bytes_are_those_of_what_is_lacking(started: Gallery, embed: Embed) -> None:
    before = started.store.pointer()
    found = plan(started)
    assert (found.generation, found.items, found.rows, found.bytes_written) == ("g2", 200, 200, 200 * 4 * 4)
    assert found.bytes_until_finish == started.store.upkeep("g1").bytes > 0
    assert (found.sampled, found.items_per_second, found.seconds, found.cost) == (0, None, None, None)
    assert started.store.pointer() == before, "nothing was changed"
    started.backfill(Clocked(embed, lacking=IDS[150:]))
    source = Clocked(embed)
    left = plan(started, source)
    assert (left.rows, left.sampled, left.bytes_written) == (50, 50, 50 * 16)
    assert left.bytes_until_finish == found.bytes_until_finish, "what was filled is here to stay"
    assert sorted(name for batch in source.batches for name in batch) == IDS[150:]


def test_a_plan_of_more_items_multiplies_what_was_measured(
    place: str, embed: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with Gallery.create(place, fingerprint="declared:old", space=Hypersphere(4), columns={"title": "text"}) as gallery:
        gallery.add(embed("old", IDS), metadata={"title": ["a cat"] * 200})
        gallery.start("declared:new", Hypersphere(4))
        before, few = gallery.store.pointer(), plan(gallery, Clocked(embed))
        source = Clocked(embed)
        found = plan(gallery, source, sample=100, clock=source.clock, items=1_000_000, machines=4, price_per_thousand=2)
        assert gallery.store.pointer() == before and not list(scratch.iterdir()), "nothing was changed, nothing is left"
    assert (found.items, found.rows, found.like) == (1_000_000, 1_000_000, 200)
    assert found.bytes_written == 16_000_000 and found.bytes_until_finish == 5_000 * few.bytes_until_finish
    assert found.seconds == pytest.approx(1_000_000 / 50) and found.cost == 2_000  # one batch of 0.5 + 50 * 0.01 s
    in_folder = place.startswith(("memory:", "lance:"))
    assert in_folder == (found.commit_seconds is not None) == (found.bytes_stored is not None)
    if in_folder:
        assert found.stored_per_item is not None and 16 < found.stored_per_item < 1000
        assert found.total_seconds == max(found.commit_seconds or 0, 1_000_000 / 50 / 4)
    assert (few.like, few.committed_per_second, few.total_seconds) == (None, None, None)


def test_a_plan_of_more_items_needs_items_that_lack_a_vector(started: Gallery, embed: Embed) -> None:
    started.backfill(Clocked(embed))
    with pytest.raises(ConfigError, match="every item here has a new vector"):
        plan(started, Clocked(embed), items=1_000)


def test_the_index_form_counts_for_bytes(embed: Embed) -> None:
    with Gallery.create("memory://", fingerprint="declared:old", space=Lorentz(4)) as gallery:
        gallery.add(embed("old", ["a", "b"], space=Lorentz(4)))
        gallery.start("declared:new", Lorentz(4))
        assert plan(gallery).bytes_written == 2 * (4 + 2) * 4


SCORES = ("self_old", "cross", "self_new")


def test_links_are_those_of_the_report(started: Gallery, reported: Callable[..., Path]) -> None:
    record = json.loads(reported().read_text())["evaluations"]["new"]
    (said,) = plan(started).meanwhile
    assert "vectors of g1, too (report" in said and all(f"{record[name]['map']:.3f}" in said for name in SCORES)
    json.dumps(plan(started).to_dict())


def test_a_plan_without_a_link_names_none(gallery: Gallery, embed: Embed) -> None:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", Hypersphere(4))
    assert plan(gallery).meanwhile == ()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"budget_cost": 0.05, "price_per_thousand": 0.5}, 100),
        ({"budget_cost": 9.0, "price_per_thousand": 0.5}, 180),
        ({"budget_cost": 9.0, "price_per_thousand": 0.0}, 180),
        ({"budget_seconds": 4.0, "items_per_second": 25.9}, 103),
        ({"budget_seconds": 4.0, "items_per_second": 25.0, "budget_cost": 0.01, "price_per_thousand": 0.5}, 20),
    ],
)
def test_rows_within_a_budget(limits: dict[str, Any], expected: int | None) -> None:
    found = BackfillPlan("g2", 1000, 200, 0, 0, sampled=100, missing=10, **limits)
    assert found.rows_within_budget == expected
    assert found.to_dict()["rows_within_budget"] == expected


def test_a_query_in_two_stages_embeds_its_candidates_at_most() -> None:
    found = BackfillPlan("g2", 1000, 200, 0, 0, items_per_second=50.0, price_per_thousand=0.5, candidates=30)
    assert found.seconds_per_query == pytest.approx(0.6)
    assert found.cost_per_query == pytest.approx(0.015)
    few = BackfillPlan("g2", 1000, 20, 0, 0, items_per_second=50.0)
    assert (few.seconds_per_query, few.cost_per_query) == (pytest.approx(0.4), None)
    assert BackfillPlan("g2", 1000, 200, 0, 0).to_dict()["seconds_per_query"] is None


def test_wrong_numbers_and_sources_are_refused(started: Gallery, embed: Embed) -> None:
    for values, message in (
        ({"sample": 1}, "sample=1"), ({"candidates": 0}, "candidates=0"),
        ({"batch": 0}, "batch=0"), ({"price_per_thousand": -1.0}, "at least 0"),
        ({"budget_cost": 1.0}, "price_per_thousand"), ({"budget_seconds": 1.0}, "a source to measure"),
        ({"budget_seconds": float("nan")}, "budget_seconds=nan"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            plan(started, **values)  # type: ignore[arg-type]
    source = Clocked(embed)
    source.fingerprint = "declared:other"
    with pytest.raises(DataError, match="those of g2: declared:new"):
        plan(started, source)
    assert source.batches == []
