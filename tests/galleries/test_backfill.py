"""Backfills that are interrupted, raced and cut off, and still end where an undisturbed one does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from limpet.embeddings import EmbeddingSet
from limpet.engines.store import Fill
from limpet.errors import ConfigError, GalleryError, LastingStoreError
from limpet.galleries import Gallery
from limpet.galleries.backfill import BackfillOptions, backfill, commit_fill
from limpet.galleries.gallery import GalleryOptions
from limpet.galleries.orders import ORDERS
from limpet.galleries.rows import rows_of
from limpet.geometry import Hypersphere, Space
from limpet.support.disk import Disk
from limpet.upgrade.filling import FillOptions

IDS = [f"i{row:02}" for row in range(20)]
SPHERE = Hypersphere(4)


class Source:
    """Embeds what it is asked for, remembers it, and does something else meanwhile."""

    def __init__(
        self,
        embed: Callable[..., EmbeddingSet],
        *,
        model: str = "new",
        space: Space = SPHERE,
        lacks: Sequence[str] = (),
    ) -> None:
        self.make, self.model, self.space, self.lacks = embed, model, space, set(lacks)
        self.fingerprint = f"declared:{model}"
        self.calls: list[list[str]] = []
        self.meanwhile: Callable[[list[str]], None] = lambda ids: None

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        self.calls.append(list(ids))
        self.meanwhile(list(ids))
        return self.make(self.model, [one for one in ids if one not in self.lacks], space=self.space)

    @property
    def asked(self) -> list[str]:
        return [identifier for call in self.calls for identifier in call]


@pytest.fixture
def source(embed) -> Source:
    return Source(embed)


def filled(url: str, embed: Callable[..., EmbeddingSet], **options: Any) -> Gallery:
    """A gallery of twenty old items of four classes, and "new" started."""
    gallery = Gallery.create(url, fingerprint="declared:old", space=SPHERE, columns={"label": "text"}, **options)
    gallery.add(embed("old", IDS), metadata={"label": [f"c{row % 4}" for row in range(20)]})
    gallery.start("declared:new", SPHERE)
    return gallery


@pytest.fixture
def shop(embed) -> Any:
    with filled("memory://", embed, count_traffic=True) as gallery:
        yield gallery


def stored(gallery: Gallery, generation: str = "g2") -> dict[str, tuple[int, bytes]]:
    """Version and vector of every row of a generation."""
    return {
        identifier: (int(version), vector.tobytes())
        for ids, versions, vectors in gallery.store.scan_rows(generation)
        for identifier, version, vector in zip(ids, versions, vectors, strict=True)
    }


def forms(embeddings: EmbeddingSet) -> dict[str, bytes]:
    """What a store keeps of points."""
    kept = embeddings.space.index_form(embeddings.vectors, "gallery")
    return {one: form.tobytes() for one, form in zip(embeddings.ids, kept, strict=True)}


@pytest.mark.parametrize(("options", "taken"), [(BackfillOptions, backfill), (GalleryOptions, Gallery)])
def test_typed_options_are_those_of_the_signature(options: Any, taken: Callable[..., Any]) -> None:
    """Names and types stand twice, for type checkers; defaults stand in the signature alone."""
    parameters = inspect.signature(taken).parameters.values()
    named = {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    hints = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
    assert {name: hint for name, hint in hints.items() if name not in FillOptions.__annotations__} == named


def test_it_fills_the_active_generation_where_none_is_started(shop, source) -> None:
    shop.swap(force="tests")
    assert shop.backfill(source).generation == "g2"
    assert shop.finish().right == 20


@pytest.mark.parametrize(("order", "interruptions"), [("id", 1), ("random", 3)])
def test_a_resumed_backfill_equals_an_uninterrupted_one(place, embed, order, interruptions) -> None:
    with filled("memory://", embed) as whole:
        undisturbed = Source(embed)
        whole.backfill(undisturbed, order=order, batch=3, seed=7)
        expected = stored(whole)
    source = Source(embed)
    filled(place, embed).close()
    for _ in range(interruptions):
        stop_at = len(source.calls) + 2
        source.meanwhile = lambda ids, stop_at=stop_at: _stop(len(source.calls) >= stop_at)
        with Gallery.open(place) as part, pytest.raises(KeyboardInterrupt):
            part.backfill(source, order=order, batch=3, seed=7)
    source.meanwhile = lambda ids: None
    with Gallery.open(place) as gallery:
        gallery.backfill(source, order=order, batch=3, seed=99)
        assert stored(gallery) == expected
        assert gallery.store.queue("g2") is None
    assert list(dict.fromkeys(source.asked)) == undisturbed.asked
    assert len(source.asked) <= 20 + 3 * interruptions


def _stop(now: bool) -> None:
    if now:
        raise KeyboardInterrupt


class Fragile(Disk):
    """Stops, or fails, when it has reached a step so many times."""

    def __init__(self) -> None:
        self.step, self.failures, self.error, self.after = "", 0, OSError("gone"), 0  # type: BaseException

    def reached(self, point: str) -> None:
        if point == self.step:
            self.after -= 1
            if self.after < 0 and self.failures:
                self.failures -= 1
                raise self.error


@pytest.mark.parametrize("step", ["memory.rows", "memory.read_back", "database.commit"])
def test_a_crash_at_the_commit_costs_one_batch_embedded_twice(tmp_path, embed, source, step) -> None:
    disk = Fragile()
    place = f"memory:{tmp_path / 'g'}"
    with filled(place, embed, disk=disk) as gallery:
        disk.step, disk.failures, disk.after, disk.error = step, 1, 2, KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            gallery.backfill(source, batch=4)
        assert len(source.calls) == 3
    with Gallery.open(place) as gallery:
        assert len(stored(gallery)) == 8
        gallery.backfill(source, batch=4)
        assert gallery.check_vectors().right == 20
    assert sorted(source.asked) == sorted([*IDS, *IDS[8:12]])


def test_damaged_files_are_not_waited_for(tmp_path, embed, source) -> None:
    place, told = f"lance:{tmp_path / 'g'}", []
    filled(place, embed).close()
    for file in (tmp_path / "g").rglob("data/*.lance"):
        file.write_bytes(file.read_bytes()[:100] + b"rubbish" * (file.stat().st_size // 7))
    with Gallery.open(place) as gallery, pytest.raises(LastingStoreError):
        gallery.backfill(source, order="uncertainty", batch=8, pause=60, progress=told.append)
    assert not any("waiting" in step for step in told)


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "uncertainty"])  # which these vectors lack
def test_every_order_ends_with_every_item(shop, source, embed, asked, order) -> None:
    shop.search(asked("old"))
    shop._write_traffic()
    done = shop.backfill(source, order=order, batch=3)
    assert (done.written, done.lacking, done.stopped) == (20, 0, "done")
    assert sorted(source.asked) == IDS


def test_an_order_that_was_begun_is_gone_on_with(shop, source, embed) -> None:
    other = Source(embed)
    with filled("memory://", embed) as same:
        same.backfill(other, order="random", batch=5, seed=3)
    shop.backfill(source, order="random", batch=5, seed=3, budget=7)
    shop.backfill(source, batch=5, budget=6)
    shop.backfill(source, order="random", batch=5, seed=4)
    assert source.asked == other.asked
    assert source.asked != sorted(source.asked)


def test_items_that_came_after_an_order_was_begun_are_filled(shop, source, embed) -> None:
    shop.backfill(source, order="random", batch=5, budget=5)
    shop.delete([one for one in IDS if one not in source.asked])
    shop.add(embed("old", ["late"]))
    assert shop.backfill(source).lacking == 0
    assert sorted(stored(shop)) == sorted(source.asked)


def test_a_budget_in_an_order_is_not_spent_on_items_that_the_source_lacks(shop, embed) -> None:
    source = Source(embed, lacks=IDS[:12])
    done = shop.backfill(source, order="random", batch=50, budget=5, seed=1)
    assert (done.embedded, done.written, done.stopped) == (5, 5, "budget")
    done = shop.backfill(source, order="random", batch=50, budget=5)
    assert (done.written, done.missing, done.lacking, done.stopped) == (3, 12, 12, "done")
    assert done.missing_ids == tuple(IDS[:12])


def test_items_that_change_meanwhile_keep_what_was_written(shop, source, embed) -> None:
    def rewrite(ids: list[str]) -> None:
        if "i05" in ids and len(source.calls) < 4:
            shop.upsert(embed("old", ["i05"], draw=1), embed("new", ["i05"], draw=1))
            shop.upsert(embed("old", ["i06"], draw=1))
            shop.delete(["i07"])

    source.meanwhile = rewrite
    done = shop.backfill(source, batch=4)
    rows = stored(shop)
    assert "i07" not in rows
    assert rows["i05"][1] == forms(embed("new", ["i05"], draw=1))["i05"]
    assert rows["i06"][1] == forms(embed("new", ["i06"]))["i06"]  # embedded again, as what it is now
    assert source.asked.count("i06") == 2
    assert (done.embedded, done.written, done.lacking) == (21, 18, 0)
    assert (len(shop), shop.check_vectors().right) == (19, 19)


def test_items_that_come_meanwhile_are_embedded_too(shop, source, embed) -> None:
    late = iter(["a before all", "z after all"])
    source.meanwhile = lambda ids: [shop.add(embed("old", [one])) for one in [next(late, None)] if one]  # type: ignore[assignment,func-returns-value]
    assert shop.backfill(source, batch=30).lacking == 0
    assert len(stored(shop)) == 22


def test_a_delete_and_a_new_item_of_the_same_name_are_two_items(shop, source, embed) -> None:
    def replace(ids: list[str]) -> None:
        if len(source.calls) == 1:
            shop.delete(["i00"])
            shop.add(embed("old", ["i00"], draw=1))

    source.meanwhile = replace
    shop.backfill(source)
    assert source.asked.count("i00") == 2
    assert shop.check_vectors().right == 20


@pytest.mark.parametrize("embedding", [False, True])
def test_an_upgrade_that_is_cancelled_meanwhile_ends_it(shop, source, embedding) -> None:
    def cancel(_: Any) -> None:
        if len(source.calls) == 2:
            shop.cancel()

    source.meanwhile = cancel if embedding else source.meanwhile
    with pytest.raises(GalleryError, match="g2 was cancelled while it was filled"):
        shop.backfill(source, batch=4, progress=None if embedding else cancel)
    assert shop.state.phase == "steady"


def test_a_fill_whose_upgrade_is_cancelled_before_its_commit_is_refused(shop, source) -> None:
    items = shop.store.scan(limit=4, lacking="g2")
    fill = Fill(rows_of(shop.state.by_name["g2"], source.embed(items.ids)), items.versions, items)
    shop.cancel()
    before = shop.store.pointer().sequence
    with pytest.raises(GalleryError, match="cancelled"):
        commit_fill(shop, fill, 1.0)
    assert shop.store.pointer().sequence == before


def test_a_swap_and_a_rollback_meanwhile_change_nothing(shop, source) -> None:
    steps: list[Callable[[], Any]] = [lambda: shop.swap(force="tests"), shop.rollback, shop.swap]
    source.meanwhile = lambda ids: steps.pop(0)() if steps else None
    assert shop.backfill(source, batch=4).lacking == 0
    assert shop.state.active == "g2"


@pytest.mark.parametrize("options", [{"order": "randon"}, {"pieces": 0}, {"wait": -1}, {"seed": -1}])
def test_options_out_of_range_are_refused_before_anything_is_embedded(shop, source, options) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))}"):
        shop.backfill(source, **options)
    assert source.calls == []
