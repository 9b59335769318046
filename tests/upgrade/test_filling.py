"""What every backfill promises, whatever it fills."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crash.applications import QdrantApplication
from crash.shop import Shop, lasting_shop
from limpet.attached.postgres import filling as postgres_filling
from limpet.embeddings import EmbeddingSet
from limpet.engines.checks import damaged
from limpet.errors import BudgetError, ConfigError, DataError, LastingStoreError, SpaceMismatchError, StoreError
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere
from limpet.upgrade import filling
from limpet.upgrade.filling import PASSES, Backfilled, Filling, FillOptions, LeftOut
from limpet.upgrade.vector_sources import points_of

DIM = 8
IDS = [str(number) for number in range(10, 30)]  # the same order as numbers and as texts


def drawn(model: str, identifier: str, draw: int) -> np.ndarray:
    point = np.random.default_rng(zlib.crc32(f"{model}/{identifier}/{draw}".encode())).normal(size=DIM)
    return (point / np.linalg.norm(point)).astype(np.float32)


class Clock:
    """Time passes while somebody sleeps, and only then."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


class Live:
    """Twenty items of an old model, which may be filled with vectors of a new one.

    Args:
        clock: Passes while something is written.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.draws = clock, dict.fromkeys(IDS, 0)
        self.failures: list[Exception] = []
        self.takes = 0.0  # seconds of a write
        self.writes = 0

    def fill(self, source: Any, **options: Any) -> Backfilled:
        raise NotImplementedError

    def rewrite(self, identifier: str) -> None:
        """Let the application write an item."""
        self.draws[identifier] += 1

    def filled(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def writing(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """Let a write take its time, and fail where it is to fail."""

        def call(*values: Any, **named: Any) -> Any:
            self.clock.sleep(self.takes)
            self.writes += 1
            if self.failures:
                raise self.failures.pop()
            return write(*values, **named)

        return call

    def check(self, ids: Sequence[str]) -> None:
        """Compare what is there with what the source makes of these items as they are now."""
        found = self.filled()
        assert sorted(found) == sorted(ids)
        for one in ids:
            np.testing.assert_allclose(found[one], drawn("new", one, self.draws[one]), atol=1e-3)


class Source:
    """Embeds items as they are, remembers which, and does something else meanwhile."""

    def __init__(self, live: Live, model: str = "new", dim: int = DIM) -> None:
        self.live, self.fingerprint, self.space = live, f"declared:{model}", Hypersphere(dim)
        self.lacks, self.without_text, self.calls = set[str](), set[str](), list[list[str]]()
        self.meanwhile: Callable[[], object] = lambda: None

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        self.calls.append(list(ids))
        there = [one for one in ids if one not in self.lacks | self.without_text]
        vectors = np.array([drawn("new", one, self.live.draws[one]) for one in there], np.float32).reshape(-1, DIM)
        made = points_of(self, there, vectors)
        self.meanwhile()
        return made

    @property
    def asked(self) -> list[str]:
        return [identifier for call in self.calls for identifier in call]


class LiveGallery(Live):
    def __init__(self, clock: Clock, url: str) -> None:
        super().__init__(clock)
        self.gallery = Gallery.create(url, fingerprint="declared:old", space=Hypersphere(DIM))
        self.gallery.add(self._old(IDS))
        self.gallery.start("declared:new", Hypersphere(DIM))
        store: Any = self.gallery.store
        store.commit = self.writing(store.commit)

    def _old(self, ids: Sequence[str]) -> EmbeddingSet:
        vectors = np.array([drawn("old", one, self.draws[one]) for one in ids])
        return EmbeddingSet(ids=list(ids), vectors=vectors, fingerprint="declared:old", space=Hypersphere(DIM))

    def fill(self, source: Any, **options: Any) -> Backfilled:
        return self.gallery.backfill(source, **options)

    def rewrite(self, identifier: str) -> None:
        super().rewrite(identifier)
        self.gallery.upsert(self._old([identifier]))

    def filled(self) -> dict[str, np.ndarray]:
        return {
            one: vector
            for ids, _, vectors in self.gallery.store.scan_rows("g2")
            for one, vector in zip(ids, vectors, strict=True)
        }


class LiveTable(Live):
    def __init__(self, clock: Clock, shop: Shop, patch: pytest.MonkeyPatch) -> None:
        super().__init__(clock)
        self.shop = shop.renew()
        shop.fill(30)
        shop.execute("DELETE FROM shop.items WHERE id < 10")
        patch.setattr(postgres_filling, "write_batch", self.writing(postgres_filling.write_batch))
        self.attachment = shop.start()

    def fill(self, source: Any, **options: Any) -> Backfilled:
        return self.attachment.backfill(source, **options)

    def rewrite(self, identifier: str) -> None:
        super().rewrite(identifier)
        self.shop.execute(
            "UPDATE shop.items SET title = %s WHERE id = %s", [f"draw {self.draws[identifier]}", int(identifier)]
        )

    def filled(self) -> dict[str, np.ndarray]:
        rows = self.shop.execute("SELECT id::text, emb_limpet_new::text FROM shop.items WHERE emb_limpet_new NOTNULL")
        return {one: np.array(json.loads(vector)) for one, vector in rows}


class LiveCollection(Live):
    def __init__(self, clock: Clock, folder: Path, number: int) -> None:
        super().__init__(clock)
        self.application = QdrantApplication(f"qdrant:{folder / 'q'}", str(folder / f"{number}.db"))
        for one in IDS:
            self.application.write(int(one), f"item {one}", "old")
        self.attachment = self.application.start()
        self.attachment.engine.put = self.writing(self.attachment.engine.put)

    def fill(self, source: Any, **options: Any) -> Backfilled:
        return self.attachment.backfill(source, **options)

    def rewrite(self, identifier: str) -> None:
        super().rewrite(identifier)
        self.application.write(int(identifier), f"draw {self.draws[identifier]}", "old")

    def filled(self) -> dict[str, np.ndarray]:
        there = self.application.contents(self.attachment.engine.target("new"))
        return {str(one): np.array(vector) for one, (_, vector) in there.items()}


Make = Callable[[Clock, pytest.MonkeyPatch], AbstractContextManager[Live]]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Make places of a kind, one after the other."""
    numbers, kind = iter(range(1000)), request.param

    @contextmanager
    def gallery(clock: Clock, patch: pytest.MonkeyPatch) -> Iterator[Live]:
        live = LiveGallery(clock, "memory://" if kind == "memory" else f"lance:{tmp_path / str(next(numbers))}")
        with live.gallery:
            yield live

    @contextmanager
    def collection(clock: Clock, patch: pytest.MonkeyPatch) -> Iterator[Live]:
        live = LiveCollection(clock, tmp_path, next(numbers))
        with live.attachment:
            yield live
        live.application.close()

    if kind != "table":
        yield collection if kind == "collection" else gallery
        return

    with lasting_shop(request.getfixturevalue("postgres_server")) as shop:

        @contextmanager
        def table(clock: Clock, patch: pytest.MonkeyPatch) -> Iterator[Live]:
            live = LiveTable(clock, shop, patch)
            with live.attachment:
                yield live

        yield table


def every_item_gets_its_vector(live: Live, source: Source) -> None:
    told: list[Any] = []
    done = live.fill(source, batch=8, progress=told.append)
    assert (done.embedded, done.written, done.missing, done.lacking, done.stopped) == (20, 20, 0, 0, "done")
    assert [len(call) for call in source.calls] == [8, 8, 4]
    assert [(step["done"], step["total"]) for step in told] == [(8, 20), (16, 20), (20, 20)]
    live.check(IDS)
    again = live.fill(source)
    assert (again.embedded, again.stopped, len(source.calls)) == (0, "done", 3)


def a_budget_is_kept_to_the_item(live: Live, source: Source) -> None:
    done = live.fill(source, batch=8, budget=11)
    assert (done.embedded, done.written, done.lacking, done.stopped) == (11, 11, 9, "budget")
    assert [len(call) for call in source.calls] == [8, 3]
    assert live.fill(source, budget=0).stopped == "budget" and len(source.calls) == 2
    done = live.fill(source, budget=9)
    assert (done.written, done.lacking, done.stopped) == (9, 0, "done")


def a_budget_is_not_spent_on_items_that_the_source_lacks(live: Live, source: Source) -> None:
    source.lacks = set(IDS[:12])
    done = live.fill(source, batch=50, budget=5)
    assert (done.embedded, done.written, done.stopped) == (5, 5, "budget")
    done = live.fill(source, batch=50, budget=5)
    assert (done.written, done.missing, done.lacking, done.stopped) == (3, 12, 12, "done")
    assert done.missing_ids == tuple(IDS[:12])


def a_rate_is_kept(live: Live, source: Source) -> None:
    done = live.fill(source, batch=4, rate=100, budget=12)
    assert done.seconds == pytest.approx(0.12)
    done = live.fill(source, batch=4, rate=0.001, seconds=0.5)  # the second batch would be due in an hour
    assert (done.written, done.stopped, done.seconds) == (4, "time", pytest.approx(0.5))


def a_share_of_the_time_is_kept(live: Live, source: Source) -> None:
    live.takes = 0.1
    done = live.fill(source, batch=10, share=0.25)
    assert done.written == 20 and live.writes >= 2
    assert done.seconds == pytest.approx(0.4 * live.writes)


def no_batch_begins_after_the_time_is_up(live: Live, source: Source) -> None:
    assert (live.fill(source, seconds=0.0).stopped, source.calls) == ("time", [])
    source.meanwhile = lambda: live.clock.sleep(0.5)
    done = live.fill(source, batch=4, seconds=0.5)
    assert (done.written, done.lacking, done.stopped) == (4, 16, "time")


def what_the_source_lacks_is_named_and_stays(live: Live, source: Source) -> None:
    source.lacks, source.without_text = {"13", "27"}, {"15"}
    done = live.fill(source, batch=6)
    assert (done.written, done.missing_ids, done.without_text_ids, done.lacking) == (17, ("13", "27"), ("15",), 3)
    assert (done.missing, done.without_text, done.stopped) == (2, 1, "done")
    live.check([one for one in IDS if one not in ("13", "15", "27")])


def a_source_of_another_model_is_refused(live: Live, source: Source) -> None:
    with pytest.raises(DataError, match="declared:newest"):
        live.fill(Source(live, "newest"))
    with pytest.raises(SpaceMismatchError, match="dimension 9"):
        live.fill(Source(live, dim=9))
    assert live.filled() == {}


def what_was_not_asked_for_is_refused(live: Live, source: Source) -> None:
    embed: Any = source.embed
    for change in (
        {"fingerprint": "declared:newest"}, {"form": "features"}, {"ids": [f"x{row}" for row in range(20)]}
    ):  # fmt: skip
        source.embed = lambda ids, change=change: embed(ids).replace(**change)  # type: ignore[method-assign,misc]
        with pytest.raises(DataError, match="The source made"):
            live.fill(source)
    assert live.filled() == {}


def a_source_that_may_spend_no_more_ends_it(live: Live, source: Source) -> None:
    def spent() -> None:
        if len(source.calls) == 3:
            raise BudgetError("nothing is left")

    source.meanwhile = spent
    done = live.fill(source, batch=8)
    assert (done.embedded, done.written, done.lacking, done.stopped) == (16, 16, 4, "budget")


def an_outage_is_waited_for(live: Live, source: Source) -> None:
    told: list[Any] = []
    live.failures = [StoreError("gone")] * 3
    done = live.fill(source, batch=20, retries=3, pause=1.0, progress=told.append)
    assert (done.written, done.lacking, live.failures) == (20, 0, [])
    assert [step["waiting"] for step in told if "waiting" in step] == [1.0, 2.0, 4.0]
    assert source.asked == IDS  # nothing was embedded again
    live.check(IDS)


def a_place_that_stays_out_of_reach_ends_it_and_another_run_goes_on(live: Live, source: Source) -> None:
    live.failures = [StoreError("gone")] * 3
    with pytest.raises(StoreError, match="gone"):
        live.fill(source, retries=2)
    assert live.fill(source).written == 20
    live.check(IDS)


def damage_is_not_waited_for(live: Live, source: Source) -> None:
    live.failures = [damaged("A row", "its digest is another one")]
    with pytest.raises(LastingStoreError, match="digest"):
        live.fill(source, pause=60.0)
    assert live.clock.passed == 0


def items_that_change_meanwhile_come_again(live: Live, source: Source) -> None:
    source.meanwhile = lambda: live.rewrite("12") if len(source.calls) == 1 else None
    done = live.fill(source, batch=4)
    assert (done.embedded, done.written, done.lacking, done.stopped) == (21, 20, 0, "done")
    assert source.asked.count("12") == 2
    live.check(IDS)


def an_item_that_is_rewritten_for_ever_does_not_hold_it_up(live: Live, source: Source) -> None:
    source.meanwhile = lambda: live.rewrite("10")
    done = live.fill(source)
    assert (done.written, done.lacking, done.stopped) == (19, 1, "done")
    assert source.asked.count("10") == PASSES
    live.check(IDS[1:])


def options_out_of_range_are_refused(live: Live, source: Source) -> None:
    for options in ({"batch": 0}, {"rate": 0.0}, {"share": 1.5}, {"budget": -1}, {"retries": -1}, {"pause": -1.0}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
            live.fill(source, **options)
    assert source.calls == []


PROMISES = [
    every_item_gets_its_vector, a_budget_is_kept_to_the_item, a_budget_is_not_spent_on_items_that_the_source_lacks,
    a_rate_is_kept, a_share_of_the_time_is_kept, no_batch_begins_after_the_time_is_up,
    what_the_source_lacks_is_named_and_stays, a_source_of_another_model_is_refused, what_was_not_asked_for_is_refused,
    a_source_that_may_spend_no_more_ends_it, an_outage_is_waited_for,
    a_place_that_stays_out_of_reach_ends_it_and_another_run_goes_on, damage_is_not_waited_for,
    items_that_change_meanwhile_come_again, an_item_that_is_rewritten_for_ever_does_not_hold_it_up,
    options_out_of_range_are_refused,
]  # fmt: skip


@pytest.mark.parametrize("make", ["memory", "lance", "table", "collection"], indirect=True)
def test_a_backfill_keeps_its_promises(make: Make, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    for promise in PROMISES:
        clock = Clock()
        with subtests.test(promise.__name__), monkeypatch.context() as patch, make(clock, patch) as live:
            patch.setattr(filling, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))
            promise(live, Source(live))


def test_typed_options_are_those_of_the_loop() -> None:
    """Names and types stand twice, for type checkers; defaults stand in the signature alone."""
    parameters = inspect.signature(Filling).parameters.values()
    named = {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert {name: hint.__forward_arg__ for name, hint in FillOptions.__annotations__.items()} == named


def test_items_without_a_vector_are_counted_and_the_first_are_named() -> None:
    left = LeftOut(SimpleNamespace(without_text={"05"}))  # type: ignore[arg-type]
    for start in (60, 0, 30):
        left.add({f"{number:02}" for number in range(start, start + 30)})
    assert (len(left), len(left.missing), len(left.without_text)) == (90, 89, 1)
    assert left.missing.first == [f"{number:02}" for number in range(21) if number != 5]
    assert left.without_text.first == ["05"]
