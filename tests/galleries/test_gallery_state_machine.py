"""Any sequence of writes, searches, backfills and steps of upgrades does what plain dictionaries do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from limpet.embeddings import EmbeddingSet
from limpet.errors import GalleryError
from limpet.galleries import Gallery
from limpet.galleries.state import replay
from limpet.galleries.two_stage import Rescoring
from limpet.geometry import Hypersphere

SPACE = Hypersphere(4)
IDS = [f"i{row}" for row in range(8)]
some = st.lists(st.sampled_from(IDS), min_size=1, max_size=5, unique=True)
any_number = st.integers(0, 10)


class GalleryMachine(RuleBasedStateMachine):
    """A gallery beside dictionaries of what it has to hold; generation g<n> is that of the model "m<n>"."""

    embed: ClassVar[Callable[..., EmbeddingSet]]
    same_as_a_loop: ClassVar[Callable[..., None]]
    places: ClassVar[Callable[[], str]]
    search_always: ClassVar[bool] = True

    @initialize(upgrades=st.integers(0, 2), linked=any_number, by_model=st.lists(some, min_size=3, max_size=3))
    def create(self, upgrades: int, linked: int, by_model: list[list[str]]) -> None:
        """Begin after some upgrades, with items of up to three models."""
        self.place, self.draws = type(self).places(), itertools.count()
        self.gallery = Gallery.create(self.place, fingerprint="declared:m1", space=SPACE)
        self.items: dict[str, dict[int, Any]] = {}  # points by id and generation
        self.live, self.previous = [1], []  # type: list[int], list[int]
        self.active, self.started, self.created = 1, 0, 1
        self.links: set[tuple[int, int]] = set()
        for _ in range(upgrades):
            self.start(linked)
            self.swap()
        self.upsert(by_model)

    def teardown(self) -> None:
        if hasattr(self, "gallery"):
            self.gallery.close()

    # Rows

    @rule(by_model=st.lists(some, min_size=1, max_size=3))
    def upsert(self, by_model: list[list[str]]) -> None:
        """Write some items of some of the models, newest first."""
        models = self.live[::-1][: len(by_model)]
        sets = [self.drawn(model, by_model[row]) for row, model in enumerate(models)]
        assert self.gallery.upsert(*sets) == len({one for embeddings in sets for one in embeddings.ids})
        for one in {one for embeddings in sets for one in embeddings.ids}:
            self.items[one] = {}
        for model, embeddings in zip(models, sets, strict=True):
            self.keep(model, embeddings)

    @rule(ids=some)
    def delete(self, ids: list[str]) -> None:
        assert self.gallery.delete(ids) == len([self.items.pop(one) for one in ids if one in self.items])

    @rule(budget=st.one_of(st.none(), st.integers(0, 6)), batch=st.integers(1, 4))
    def backfill(self, budget: int | None, batch: int) -> None:
        target, machine = self.started or self.active, self
        lacking = sorted(one for one, held in self.items.items() if target not in held)

        class Source:
            fingerprint, space = f"declared:m{target}", SPACE

            def embed(self, ids: Sequence[str]) -> EmbeddingSet:
                made = machine.drawn(target, ids)
                machine.keep(target, made)
                return made

        done = self.gallery.backfill(Source(), budget=budget, batch=batch)
        assert done.written == (len(lacking) if budget is None else min(budget, len(lacking)))
        assert all(target in self.items[one] for one in lacking[: done.written])
        assert done.lacking == len(lacking) - done.written

    def drawn(self, model: int, ids: Sequence[str]) -> EmbeddingSet:
        return type(self).embed(f"m{model}", ids, draw=next(self.draws), space=SPACE)

    def keep(self, model: int, embeddings: EmbeddingSet) -> None:
        for one, point in zip(embeddings.ids, embeddings.vectors, strict=True):
            self.items[one][model] = point

    # Upgrades

    @precondition(lambda self: not self.started and self.created < 5)
    @rule(linked=any_number)
    def start(self, linked: int) -> None:
        """Start the upgrade to a generation, and link it to none, some or all of the others."""
        self.created += 1
        generation = self.gallery.start(f"declared:m{self.created}", SPACE)
        assert generation.name == f"g{self.created}"
        self.started = self.created
        for other in self.live:
            if linked >> other & 1 or linked > 7:
                self.add_link(self.created, other)
        self.live.append(self.created)

    @precondition(lambda self: len(self.live) > 1)
    @rule(query=any_number, gallery=any_number)
    def link(self, query: int, gallery: int) -> None:
        ends = self.live[query % len(self.live)], self.live[gallery % len(self.live)]
        if ends[0] != ends[1]:
            self.add_link(*ends)

    def add_link(self, query: int, gallery: int) -> None:
        self.gallery.link(f"g{query}", f"g{gallery}", force="the machine says so")
        self.links.add((query, gallery))

    @precondition(lambda self: self.started)
    @rule()
    def swap(self) -> None:
        found = self.covered(self.sources(self.active) + self.sources(self.started))
        if found > self.covered(self.sources(self.started)):
            with pytest.raises(
                GalleryError, match=f"would not find {found - self.covered(self.sources(self.started))} of"
            ):
                self.gallery.swap()
            self.gallery.swap(force="the machine says so")
            self.links.add((self.started, self.active))
        else:
            self.gallery.swap()
        self.previous.append(self.active)
        self.active, self.started = self.started, 0

    @precondition(lambda self: not self.started and self.previous)
    @rule(allow=st.booleans())
    def finish(self, allow: bool) -> None:
        lacking = sum(self.active not in held for held in self.items.values())
        if lacking and not allow:
            with pytest.raises(GalleryError, match=f"{lacking} of {len(self.items)} items have no vector"):
                self.gallery.finish()
        else:
            self.gallery.finish(allow_missing=lacking)
            self.remove([one for one in self.live if one != self.active])
            self.previous = []

    @precondition(lambda self: not self.started and self.previous)
    @rule()
    def rollback(self) -> None:
        self.active, self.started = self.previous.pop(), self.active
        assert self.gallery.rollback() == sum(self.active not in held for held in self.items.values())

    @precondition(lambda self: self.started)
    @rule()
    def cancel(self) -> None:
        if self.covered(self.live) > self.covered([one for one in self.live if one != self.started]):
            with pytest.raises(GalleryError, match="no other vector"):
                self.gallery.cancel()
        else:
            self.gallery.cancel()
            self.remove([self.started])
            self.started = 0

    @rule()
    def gc(self) -> None:
        self.gallery.gc(older_than=0)

    def remove(self, gone: list[int]) -> None:
        self.live = [one for one in self.live if one not in gone]
        for held in self.items.values():
            for one in gone:
                held.pop(one, None)
        self.links = {ends for ends in self.links if not set(ends) & set(gone)}

    @rule()
    def reopen(self) -> None:
        self.gallery.close()
        self.gallery = Gallery.open(self.place)

    # What has to hold

    def sources(self, query: int) -> list[int]:
        return [query, *(one for one in reversed(self.live) if (query, one) in self.links)]

    def covered(self, generations: Sequence[int]) -> int:
        return sum(any(one in held for one in generations) for held in self.items.values())

    @rule()
    def search(self) -> None:
        held = {
            one: {f"declared:m{model}": point for model, point in points.items() if model in self.live}
            for one, points in self.items.items()
        }
        for model in self.live:
            queries = type(self).embed(f"m{model}", ["q1", "q2"], role="query", space=SPACE)
            sources = [f"m{one}" for one in self.sources(model)]
            type(self).same_as_a_loop(self.gallery, queries, held, sources, k=4)

    @precondition(lambda self: self.started or self.previous)
    @rule(first=any_number, candidates=st.integers(1, 5), budget=st.one_of(st.none(), st.integers(0, 3)))
    def search_in_two_stages(self, first: int, candidates: int, budget: int | None) -> None:
        """Let the target's model score again what another one finds; what it embeds is kept."""
        target, machine = self.started or self.active, self
        other, asked = self.live[first % len(self.live)], ["q1", "q2"]
        sources = self.sources(other)
        lists = []
        for row in range(len(asked)):
            ranked = self.ranked(other, row, sources)
            extra = [] if self.covered(sources) == len(self.items) else self.ranked(target, row, [target])[:candidates]
            strangers = [one for one in extra if not any(source in self.items[one] for source in sources)]
            lists.append((ranked, [*ranked[:candidates], *(strangers if other != target else [])]))
        wanted: dict[str, None] = {}
        for _, chosen in lists:
            lacking = [one for one in chosen if target not in self.items[one] and one not in wanted]
            wanted |= dict.fromkeys(lacking[:budget])

        class Source:
            fingerprint, space = f"declared:m{target}", SPACE

            def embed(self, ids: Sequence[str]) -> EmbeddingSet:
                assert list(ids) == list(wanted)
                made = machine.drawn(target, ids)
                machine.keep(target, made)
                return made

        queries = {model: self.queries(model) for model in (other, target)}
        rescore = Rescoring(Source(), candidates, None if other == target else queries[other], budget)
        lacks = any(target not in held for held in self.items.values())
        if other == target and lacks and len(self.sources(target)) == 1:
            with pytest.raises(GalleryError, match="Nothing lets queries"):
                self.gallery.search(queries[target], 4, rescore=rescore)
            return
        reply = self.gallery.search(queries[target], 4, rescore=rescore)
        assert reply.embedded == reply.kept == len(wanted)
        for row, (ranked, chosen) in enumerate(lists):
            again = [one for one in self.ranked(target, row, [target]) if one in chosen]
            rest = [one for one in chosen if one not in again]
            expected = [*again, *rest, *(one for one in ranked[candidates:])][:4]
            assert [hit.id for hit in reply.hits[row]] == expected

    def queries(self, model: int) -> EmbeddingSet:
        return type(self).embed(f"m{model}", ["q1", "q2"], role="query", space=SPACE)

    def ranked(self, model: int, row: int, sources: list[int]) -> list[str]:
        """Rank items for a query, each by its first vector among those that the query may search."""
        query = self.queries(model).vectors[row].astype(np.float64)
        scores = {}
        for one, held in self.items.items():
            own = next((source for source in sources if source in held), None)
            if own is not None:
                scores[one] = float(query @ held[own])
        return sorted(scores, key=lambda one: (-scores[one], one))

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        if not hasattr(self, "gallery"):
            return
        pointer, state = self.gallery.now()
        assert replay([entry.event for entry in self.gallery.store.journal()]) == state
        assert (pointer.items, state.active) == (len(self.items), f"g{self.active}")
        assert (state.started, state.previous) == (
            f"g{self.started}" if self.started else None, tuple(f"g{one}" for one in self.previous)
        )  # fmt: skip
        assert list(state.by_name) == [f"g{one}" for one in self.live]
        assert set().union(*pointer.held) <= {f"g{one}" for one in self.live}
        for generation in self.live:
            assert pointer.covered([f"g{generation}"]) == self.covered([generation])
        if type(self).search_always:
            self.search()

    @rule()
    def count(self) -> None:
        """Read everything: rows and items."""
        for generation in self.live:
            found = self.gallery.check_vectors(f"g{generation}")
            assert (found.items, found.right, found.wrong) == (len(self.items), self.covered([generation]), {})
            rows = {one: point for ids, _, part in self.gallery.store.scan_rows(f"g{generation}")
                    for one, point in zip(ids, part, strict=True)}  # fmt: skip
            expected = {one: held[generation] for one, held in self.items.items() if generation in held}
            assert sorted(rows) == sorted(expected)
            for one, point in rows.items():
                np.testing.assert_allclose(point, expected[one], atol=1e-6)


def run(machine: dict[str, Any], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        type("Machine", (GalleryMachine,), machine),
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=bool(os.environ.get("CI"))
        ),
    )


def parts(embed: Any, same_as_a_loop: Any, folder: Path, kind: str, **more: Any) -> dict[str, Any]:
    number = itertools.count()
    places = staticmethod(lambda: f"{kind}:{folder / str(next(number))}")
    return {"embed": staticmethod(embed), "same_as_a_loop": staticmethod(same_as_a_loop), "places": places, **more}


def test_a_gallery_in_memory_does_what_dictionaries_do(embed, same_as_a_loop, tmp_path) -> None:
    run(parts(embed, same_as_a_loop, tmp_path, "memory"), examples=12, steps=20)


def test_a_gallery_of_lance_does_what_dictionaries_do(embed, same_as_a_loop, tmp_path) -> None:
    run(parts(embed, same_as_a_loop, tmp_path, "lance", search_always=False), examples=3, steps=12)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "examples"), [("memory", 100), ("lance", 15)])
def test_long_histories_do_what_dictionaries_do(embed, same_as_a_loop, tmp_path, kind, examples) -> None:
    run(parts(embed, same_as_a_loop, tmp_path, kind), examples=examples, steps=40)
