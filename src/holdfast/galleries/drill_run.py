"""The steps of a drill, one after another, with searches throughout, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.errors import ConfigError, HoldfastError, without_secrets
from holdfast.evaluation.intervals import mean_intervals
from holdfast.galleries.drill_copy import Embedded, Sample, Sides, copied, prepare
from holdfast.galleries.drill_questions import DEPTH, Answers, Questions, Values, firsts, without_itself
from holdfast.galleries.drill_result import (
    ALIKE,
    RIGHT,
    Example,
    FirstHit,
    FirstHits,
    Gain,
    Linked,
    OrderCurve,
    Rehearsal,
    RehearsedModel,
    Searches,
    Timing,
    verdict_of,
)
from holdfast.galleries.items import draw
from holdfast.galleries.router import Hit, Reply, route

if TYPE_CHECKING:
    from holdfast.galleries.gallery import Gallery

Progress = Callable[[dict[str, Any]], None]
Scores = NDArray[np.float32]

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares of the items with a new vector at which is measured."""
SHOWN_SHARES = (0.0, 0.5, 1.0)
"""Those at which first hits are compared."""
MOST_EXAMPLES = 12

_BATCHES = 20  # of a whole backfill, with a search after each
_PROBES = 4  # queries of such a search
_TIMED = 20  # single queries
_ROUNDING = 1e-4  # between two products of the same vectors


class Run:
    """One upgrade of a copy so far.

    Args:
        items: Of the copy.
        made: Their new vectors.
        sides: What is upgraded.
        questions: Queries that search throughout.
        given: "reports", "adapter" and "score_map" as `Gallery.prepare` takes them.
        class_column: Metadata column that holds the class.
        seed: Of random orders and of intervals.
        tell: Told "step".
    """

    def __init__(
        self,
        items: Sample,
        made: Embedded,
        sides: Sides,
        questions: Questions,
        given: dict[str, Any],
        class_column: str,
        seed: int,
        tell: Progress,
    ) -> None:
        self.items, self.made, self.sides, self.questions, self.given = items, made, sides, questions, given
        self.class_column, self.seed, self.tell = class_column, seed, tell
        self.seconds: dict[str, float] = {"embed": made.seconds}
        self.steps: list[str] = []
        self.asked = self.incomplete = self.wrong = 0
        self.failed: list[str] = []
        self.milliseconds: dict[str, float] = {}
        self.curves: dict[str, OrderCurve] = {}
        self.found: dict[float, Answers] = {}
        self.left_out: dict[str, str] = {}
        self.linked: Linked = "none"
        self.at_once = False

    def whole(self, order: str) -> None:
        """Go through all steps of an upgrade, and back."""
        self.tell({"step": "copying"})
        with copied(self.items, self.sides, "memory://") as copy:
            self.before = self._ask(copy, self.questions.old, "before")
            with self._step("prepare"):
                self.linked = prepare(copy, self.made, self.sides, self.given)
            self.at_once = len(route(copy.state, copy.state.target)) > 1
            if self.at_once:
                self._swap(copy)
                self.found = dict(self._filled(copy, order, SHARES))
            else:  # old vectors and the old model serve until the last item has a new vector
                self.found = dict.fromkeys(SHARES[:-1], self.before) | dict(self._filled(copy, order, SHARES[-1:]))
                self._swap(copy)
            with self._step("complete"):
                copy.complete(allow_missing=bool(self.missing))
            self.last = self.found[1.0]
            self.curves[order] = self._curve(self.found)
            with self._step("rollback"):
                copy.rollback()
            self.after = self._ask(copy, self.questions.old, "after the rollback")

    def again(self, order: str, *, wanted: bool) -> None:
        """Measure another order on a fresh copy; leave it out if it cannot be had and nobody asked for it."""
        if not self.at_once:
            return  # no order makes a difference before all new vectors are there
        self.tell({"step": f"measuring the order {order}"})
        with copied(self.items, self.sides, "memory://") as copy:
            prepare(copy, self.made, self.sides, self.given)
            copy.swap()
            ends = {share: self.found[share] for share in (SHARES[0], SHARES[-1])}
            try:
                between = dict(self._filled(copy, order, SHARES[1:-1], probe=False))
            except ConfigError as error:
                if wanted:
                    raise
                self.left_out[order] = " ".join(error.given.split())
                return
            self.curves[order] = self._curve(dict(sorted({**ends, **between}.items())))

    @property
    def missing(self) -> int:
        """Items of the sample that the source does not have."""
        return len(self.items.old) - len(self.made.all)

    def results(self, gallery: str, items: int) -> Rehearsal:
        """Return all that was measured.

        Args:
            gallery: URL of the gallery.
            items: Items it has.
        """
        searches = Searches(
            made=self.asked, failed=tuple(self.failed[:5]), incomplete=self.incomplete, wrong=self.wrong,
            milliseconds=self.milliseconds,
        )  # fmt: skip
        old, new, equal = self.sides.old, self.sides.new, self.after.same(self.before)
        verdict = verdict_of(next(iter(self.curves.values())), searches, equal)
        return Rehearsal.of(
            gallery=without_secrets(gallery),
            items=items,
            sampled=len(self.items.old),
            missing=self.missing,
            old=RehearsedModel(name=old.name, note=old.note, fingerprint=old.fingerprint),
            new=RehearsedModel(name=new.name if new else "", note=self.sides.note, fingerprint=self.made.fingerprint),
            linked=self.linked,
            steps=self.steps,
            metric=RIGHT[0] if self.questions.relevant is not None else ALIKE[1],
            queries="given" if self.questions.own is None else "items",
            asked=len(self.questions),
            judged=self.questions.judged,
            before=self._means(self.before),
            after_rollback=self._means(self.after),
            rollback_equal=equal,
            curves=self.curves,
            left_out=self.left_out,
            first_hits=[self._first_hits(share) for share in SHOWN_SHARES if share in self.found],
            examples=self._examples(),
            timings=list(self._timings(items)),
            searches=searches,
            verdict=verdict,
            seed=self.seed,
            passed=verdict != "failed",
        )

    def _swap(self, copy: Gallery) -> None:
        with self._step("swap"):
            copy.swap(force=None if not self.missing else "a drill with items that the source does not have")

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.tell({"step": name})
        self.steps.append(name)
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun

    def _filled(
        self, copy: Gallery, order: str, shares: Sequence[float], *, probe: bool = True
    ) -> Iterator[tuple[float, Answers]]:
        """Backfill a copy share by share, and yield what new queries find at each."""
        done, size = 0, len(self.made.all)
        for share in shares:
            budget = None if share == 1 else round(share * size) - done
            if budget is None or budget > 0:
                self._fill(copy, order, budget, probe=probe)
                done = round(share * size)
            yield share, self._found(copy, f"{100 * share:g} % re-embedded" if probe else None)

    def _fill(self, copy: Gallery, order: str, budget: int | None, *, probe: bool) -> None:
        searched, begun = 0.0, time.perf_counter()

        def search(told: dict[str, Any]) -> None:
            nonlocal searched
            since = time.perf_counter()
            for asked in (self.questions.old, self.questions.new):
                self._probe(copy, asked.select(slice(0, _PROBES)))
            searched += time.perf_counter() - since

        copy.backfill(
            self.made,
            order=order,
            batch=max(1, len(self.made.all) // _BATCHES),
            budget=budget,
            seed=self.seed,
            class_column=self.class_column,
            on_step=search if probe else None,
        )
        if probe:
            if "backfill" not in self.steps:
                self.steps.append("backfill")
            taken = time.perf_counter() - begun - searched
            self.seconds["backfill"] = self.seconds.get("backfill", 0.0) + taken

    def _ask(self, copy: Gallery, queries: EmbeddingSet, point: str | None) -> Answers:
        """Let all queries rank all items."""
        reply = copy.search(queries, len(self.items.old))
        self._count(copy, reply)
        self._timed(copy, queries, point)
        return Answers.of_hits(reply.hits, self.questions, self.items.old.ids)

    def _found(self, copy: Gallery, point: str | None) -> Answers:
        """Return what new queries find now: every item by its new vector, or by what stands for it.

        Where all vectors answer the queries as they are, items are ranked by a product of matrices, and a search for
        the first ones has to agree with it.
        """
        if self.linked == "adapter":
            return self._ask(copy, self.questions.new, point)
        reply = copy.search(self.questions.new, DEPTH + 1)
        self._count(copy, reply)
        self._timed(copy, self.questions.new, point)
        scores = self._scores(copy)
        self.wrong += disagreeing(reply.hits, scores, self.items.old.ids)
        return Answers.of_scores(scores, self.questions, firsts(without_itself(reply.hits, self.questions)))

    def _scores(self, copy: Gallery) -> Scores:
        """Return the scores of all items for new queries (Q, N); minus infinity where they may not be searched."""
        ids, state = list(self.items.old.ids), copy.state
        queries = self.made.space.index_form(self.questions.new.vectors, "query")
        found = np.full((len(queries), len(ids)), -np.inf, np.float32)
        for source in reversed(route(state, state.made_by(self.made.fingerprint).name)):
            names, forms = copy.store.vectors(source.generation, ids)
            found[:, self.items.old.ids.find(names)] = queries @ forms.T
        return found

    def _timed(self, copy: Gallery, queries: EmbeddingSet, point: str | None) -> None:
        if point is not None:
            self.tell({"step": f"searching {point}"})
            self.milliseconds[point] = self._latency(copy, queries)

    def _latency(self, copy: Gallery, queries: EmbeddingSet) -> float:
        """Return the median milliseconds of single queries for ten hits."""
        taken = []
        for row in range(min(len(queries), _TIMED)):
            begun = time.perf_counter()
            copy.search(queries.select([row]), 10)
            taken.append(time.perf_counter() - begun)
        return 1000 * float(np.median(taken))

    def _probe(self, copy: Gallery, queries: EmbeddingSet) -> None:
        try:
            self._count(copy, copy.search(queries, 10))
        except HoldfastError as error:
            self.asked += len(queries)
            self.failed.append(" ".join(error.given.split()))

    def _count(self, copy: Gallery, reply: Reply) -> None:
        """Note how many answers did not see every item once."""
        self.asked += len(reply.hits)
        state = copy.state
        waits = state.prepared is not None and reply.fingerprint == state.by_name[state.prepared].fingerprint
        whole = waits or reply.uncovered <= (0 if self.at_once else self.missing)
        for hits in reply.hits:
            ids = [hit.id for hit in hits]
            if not whole or len(set(ids)) < len(ids):
                self.incomplete += 1

    def _curve(self, found: Mapping[float, Answers]) -> OrderCurve:
        """Return means and differences at the shares of one order."""
        old = self.before.right(self.questions)
        values: dict[str, list[float]] = {}
        differences: dict[str, list[Gain]] = {}
        for answers in found.values():
            per_query = self._per_query(answers)
            for name, value in per_query.items():
                values.setdefault(name, []).append(float(np.nanmean(value)))
            gains = {name: per_query[name] - before for name, before in old.items()}
            drawn = mean_intervals(gains, seed=self.seed, clusters=self.questions.classes) if gains else {}
            for name, (low, high) in drawn.items():
                differences.setdefault(name, []).append((float(np.nanmean(gains[name])), low, high))
        return OrderCurve.of(tuple(found), values, differences or None)

    def _per_query(self, answers: Answers) -> dict[str, Values]:
        """Return what the answers of every query are worth (Q,), by metric."""
        alike = {ALIKE[0]: answers.overlap(self.before), ALIKE[1]: answers.overlap(self.last)}
        return answers.right(self.questions) | alike

    def _means(self, answers: Answers) -> dict[str, float]:
        return {name: float(np.nanmean(value)) for name, value in self._per_query(answers).items()}

    def _first_hits(self, share: float) -> FirstHits:
        now, before = self.found[share], self.before
        changed = float(np.mean([a.id != b.id for a, b in zip(now.first, before.first, strict=True)]))
        right, was = now.first_right(self.questions), before.first_right(self.questions)
        if right is None or was is None:
            return FirstHits(share=share, changed=changed, fixed=None, broken=None)
        known = np.array([len(wanted) > 0 for wanted in self.questions.relevant or []])
        fixed, broken = (right & ~was)[known].mean(), (was & ~right)[known].mean()
        return FirstHits(share=share, changed=changed, fixed=float(fixed), broken=float(broken))

    def _examples(self) -> list[Example]:
        """Choose queries whose first hit changes: half of them such that lose a right one, if there are so many."""
        shares = [share for share in SHOWN_SHARES if share in self.found]
        ids, before = list(self.questions.old.ids), self.before
        right, was = self.last.first_right(self.questions), before.first_right(self.questions)

        def changes(row: int) -> bool:
            return any(self.found[share].first[row].id != before.first[row].id for share in shares)

        drawn = sorted((row for row in range(len(ids)) if changes(row)), key=lambda row: draw(self.seed, ids[row]))
        lost = [row for row in drawn if right is not None and was is not None and was[row] and not right[row]]
        chosen = lost[: MOST_EXAMPLES // 2]
        chosen += [row for row in drawn if row not in chosen][: MOST_EXAMPLES - len(chosen)]
        return [
            Example(
                query=ids[row],
                metadata=dict(self.questions.metadata[row]),
                old=self._shown(before.first[row], row),
                new={share: self._shown(self.found[share].first[row], row) for share in shares},
            )
            for row in chosen
        ]

    def _shown(self, hit: Hit, row: int) -> FirstHit:
        wanted = self.questions.relevant[row] if self.questions.relevant is not None else ()
        right = bool(np.isin(self.items.old.ids.find([hit.id]), wanted).any()) if len(wanted) else None
        return FirstHit(id=hit.id, score=hit.score, metadata=dict(hit.metadata), right=right)

    def _timings(self, items: int) -> Iterator[Timing]:
        """Yield how long every step took, and would take with as many items."""
        size, made = len(self.items.old), len(self.made.all)
        growing = {"backfill": made, "complete": size}
        if self.linked == "mapped":
            growing["prepare"] = size
        embed = self.seconds["embed"]
        yield Timing(step="embed", seconds=embed, items=made, full_seconds=self.made.typical * items)
        for step in self.steps:
            seconds, through = self.seconds[step], growing.get(step, 0)
            full = seconds * items / through if through else seconds
            yield Timing(step=step, seconds=seconds, items=through, full_seconds=full)


def disagreeing(hits: Sequence[Sequence[Hit]], scores: Scores, ids: StringArray) -> int:
    """Count the queries whose hits are not the best items by scores (Q, N), rounding apart.

    >>> hit = Hit("b", 0.5, "g1", {})
    >>> disagreeing([[hit], [hit]], np.array([[0.1, 0.5], [0.9, 0.5]], np.float32), StringArray.of(["a", "b"]))
    1
    """
    wrong = 0
    for of_one, row in zip(hits, scores, strict=True):
        said = np.array([hit.score for hit in of_one])
        own = row[ids.find([hit.id for hit in of_one])]
        best = np.sort(row)[::-1][: len(said)]
        close = [
            np.allclose(said, found, rtol=0, atol=_ROUNDING * max(1.0, np.abs(said).max())) for found in (own, best)
        ]
        wrong += not all(close)
    return wrong
