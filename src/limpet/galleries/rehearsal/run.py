"""The steps of a rehearsal, with searches throughout, and its results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, LimpetError, unknown_name, without_secrets
from limpet.evaluation.compatibility import negative_flip_rate, positive_flip_rate
from limpet.evaluation.intervals import mean_intervals
from limpet.evaluation.ranking.scores import score_blocks
from limpet.evaluation.thresholds import Thresholds
from limpet.galleries.gallery import Gallery
from limpet.galleries.items import draw
from limpet.galleries.orders import ORDERS
from limpet.galleries.rehearsal.queries import DEPTH, Answers, GivenQueries, Queries, Values
from limpet.galleries.rehearsal.results import (
    ALIKE,
    FIRST,
    RIGHT,
    ChangedQuery,
    FirstHit,
    FirstHitChanges,
    Gain,
    Linked,
    OrderCurve,
    Rehearsal,
    RehearsedModel,
    Searches,
    Timing,
    TwoStages,
    verdict_of,
)
from limpet.galleries.rehearsal.sample import EmbeddedSample, RehearsalSample, RehearsedUpgrade
from limpet.galleries.router import Hit, Reply, route
from limpet.galleries.two_stage import Rescoring
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import PositiveInt, Seed, checked
from limpet.upgrade.vector_sources import VectorSource

_Scores = NDArray[np.float32]

_MOST_QUERIES = 200
MOST_EXAMPLES = 12
_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Shares of the items with a new vector at which searches are measured."""
SHOWN_SHARES = (0.0, 0.5, 1.0)
"""Shares at which first hits are compared."""

_MOST_CANDIDATES = 100  # maximum per query of two-stage search
_FEWEST_CANDIDATES = 10

_BATCHES = 20  # batches of a whole backfill, with a search after each
_PROBES = 4  # queries of such a search
_TIMED = 20  # single queries
_ROUNDING = 1e-4  # between two products of the same vectors


@showing("rehearsal")
@checked
def rehearse(
    gallery: Gallery,
    source: VectorSource,
    *,
    sample: Annotated[int, Ge(20)] = 2000,
    queries: tuple[EmbeddingSet, EmbeddingSet] | None = None,
    relevant: Mapping[str, Sequence[str]] | None = None,
    orders: Sequence[str] | None = None,
    reports: Sequence[Path] = (),
    adapter: Path | None = None,
    score_map: Path | None = None,
    class_column: str = "label",
    most_queries: PositiveInt = _MOST_QUERIES,
    seed: Seed = 0,
    progress: Progress[Told] = None,
    live: tuple[str, int] | None = None,
) -> Rehearsal:
    """Rehearse the upgrade of a gallery on a copy in memory; the gallery is only read.

    The copy holds the stored vectors of a random sample. Its upgrade is started with the links that the gallery has for
    the new model, or those given here, swapped, backfilled, rolled back, swapped again and finished, while old and new
    queries search it.
    If no link lets new queries search old vectors, the copy is backfilled before it is swapped. A sample has fewer
    items that compete for a query than the gallery, so scores are higher; compare the differences only.

    Args:
        gallery: Gallery to rehearse the upgrade of.
        source: Source of the new model's vectors; it embeds the sample.
        sample: Number of items in the copy; relevant items of the queries come first.
        queries: Queries embedded by the old and by the new model, with the same ids; logged queries are best. By
            default, sampled items search for the others.
        relevant: Ids of the relevant items of each query, by its id. By default, items of the query's class are
            relevant: the query's label is compared with the class column of the items.
        orders: Names in `ORDERS`; the first one is rehearsed completely. By default, all that can be used.
        reports: See `Gallery.start`; only if the upgrade is not started yet.
        adapter: See `Gallery.start`; only if the upgrade is not started yet.
        score_map: See `Gallery.start`; only if the upgrade is not started yet.
        class_column: Metadata column that holds the class.
        most_queries: Maximum number of queries.
        seed: Random seed of the sample, of random orders and of the examples shown.
        progress: "rich" or "tqdm" for a progress bar, or a function that is called with "step", and with "done" and
            "total" while items are embedded.
        live: URL and number of items of the index that an application owns, if the gallery holds a sample of it.
            Two-stage search is left out, because such an index does not support it.

    Raises:
        ConfigError: A number is out of range, an order is unknown, or given links are already in the gallery.
        UpgradeStateError: The source is of the active model.
        DataError: The source is of another model than the started upgrade, or has none of the sampled items.
        GalleryError: A report does not pass, or is about other models.
    """
    for name in orders or ():
        if name not in ORDERS:
            raise unknown_name("order", name, ORDERS)
    pointer = gallery.store.pointer()
    upgrade = RehearsedUpgrade.of(gallery, source, reports, adapter, score_map)
    given = None if queries is None else GivenQueries.of(*queries, relevant, most_queries, seed)
    listener(progress)({"step": "sampling"})
    items = RehearsalSample.of(gallery, upgrade.old, sample, seed, given.answers if given is not None else ())
    made = EmbeddedSample(source, list(items.old.ids), progress)
    asked = (
        Queries.of_items(items, made, class_column, most_queries, seed)
        if given is None
        else Queries.given(given, items, class_column)
    )
    names = list(orders or ["random", *(name for name in ORDERS if name not in ("random", "id"))])
    run = _Run(upgrade, items, made, asked, seed, progress)
    run.whole(names[0])
    if live is None:
        run.in_two_stages()
    for order in names[1:]:
        run.again(order, wanted=orders is not None)
    return run.results(*(live or (gallery.store.url, pointer.items)), attached=live is not None)


class _Run:
    """State of one upgrade of a copy."""

    def __init__(
        self,
        upgrade: RehearsedUpgrade,
        items: RehearsalSample,
        made: EmbeddedSample,
        queries: Queries,
        seed: int,
        progress: Progress[Told],
    ) -> None:
        self.upgrade, self.items, self.made, self.queries = upgrade, items, made, queries
        self.seed, self.progress = seed, progress
        self.missing = len(items) - len(made)  # sampled items that the source does not have
        self.seconds = {"embed": made.seconds}
        self.steps: list[str] = []
        self.asked = self.incomplete = self.wrong = 0
        self.failed: list[str] = []
        self.milliseconds: dict[str, float] = {}
        self.curves: dict[str, OrderCurve] = {}
        self.answers: dict[float, Answers] = {}  # answers of new queries, by share of the items with a new vector
        self.left_out: dict[str, str] = {}
        self.linked: Linked = "none"
        self.two_stage: TwoStages | None = None
        self.at_once = False  # whether new queries may search old vectors, so that the swap can come first

    def whole(self, order: str) -> None:
        listener(self.progress)({"step": "copying"})
        with self.items.copy(self.upgrade.old.note) as copy:
            self.before = self._ask(copy, self.queries.old, "before", len(self.items))
            self.right_before = self.before.right(self.queries)
            with self._step("start"):
                self.linked = self.upgrade.start(copy, self.made)
            self.at_once = len(route(copy.state, copy.state.target)) > 1
            if self.at_once:
                with self._step("swap"):
                    self._swap(copy)
                self.answers = dict(self._filled(copy, order, _SHARES))
            else:  # old vectors and the old model serve until the last item has a new vector
                self.answers = dict.fromkeys(_SHARES[:-1], self.before) | dict(self._filled(copy, order, _SHARES[-1:]))
                with self._step("swap"):
                    self._swap(copy)
            self.last = self.answers[_SHARES[-1]]
            self.curves[order] = self._curve(self.answers)
            with self._step("rollback"):
                copy.rollback()
            self.after = self._ask(copy, self.queries.old, "after the rollback", len(self.items))
            self._swap(copy)
            with self._step("finish"):
                copy.finish(allow_missing=len(copy))

    def again(self, order: str, *, wanted: bool) -> None:
        """Measure another order on a fresh copy; skip it if it is impossible and was not requested (`wanted`)."""
        if not self.at_once:
            return  # without a link, the order makes no difference until all new vectors are written
        listener(self.progress)({"step": f"measuring the order {order}"})
        with self.items.copy(self.upgrade.old.note) as copy:
            self.upgrade.start(copy, self.made)
            copy.swap()
            try:
                between = dict(self._filled(copy, order, _SHARES[1:-1], probe=False))
            except ConfigError as error:
                if wanted:
                    raise
                self.left_out[order] = " ".join(error.given.split())
                return
            ends = {share: self.answers[share] for share in (_SHARES[0], _SHARES[-1])}
            self.curves[order] = self._curve(dict(sorted({**ends, **between}.items())))

    def in_two_stages(self) -> None:
        listener(self.progress)({"step": "searching in two stages"})
        queries, own = self.queries, int(self.queries.own is not None)  # an item also finds itself
        count = min(_MOST_CANDIDATES, max(_FEWEST_CANDIDATES, len(self.items) // 10))
        first: list[float] = []
        again: list[float] = []
        with self.items.copy(self.upgrade.old.note) as copy:
            copy.start(self.made.fingerprint, self.made.space)

            def search(rows: Sequence[int], k: int) -> Reply:
                rescore = Rescoring(self.made, count + own, queries.old[list(rows)])
                return copy.search(queries.new[list(rows)], k, rescore=rescore)

            embedded = 0
            for taken in (first, again):
                for row in range(min(len(queries), _TIMED)):
                    begun = time.perf_counter()
                    reply = search([row], 10)
                    taken.append(time.perf_counter() - begun + reply.embedded * self.made.seconds_per_item)
                    embedded += reply.embedded
            reply = search(range(len(queries)), len(self.items))
            self._count(copy, reply)
            answers = Answers.of_hits(reply.hits, queries, self.items.old.ids)
        values = self._per_query(answers)
        gains = self._gains(values)
        self.two_stage = TwoStages(
            candidates=count,
            values={name: float(np.nanmean(value)) for name, value in values.items()},
            differences=gains or None,
            encoded_per_query=(embedded + reply.embedded) / len(queries),
            encoded=(embedded + reply.embedded) / len(self.items),
            first_milliseconds=1000 * float(np.median(first)),
            again_milliseconds=1000 * float(np.median(again)),
        )

    def results(self, gallery: str, size: int, *, attached: bool) -> Rehearsal:
        """Return all measured results.

        Args:
            gallery: URL of the index.
            size: Number of items in the index.
            attached: Whether an application owns it.
        """
        searches = Searches(
            made=self.asked, failed=tuple(self.failed[:5]), incomplete=self.incomplete, wrong=self.wrong,
            milliseconds=self.milliseconds,
        )  # fmt: skip
        old, new, equal = self.upgrade.old, self.upgrade.new, self.after.same(self.before)
        marks = self.queries.new.trained_on
        share = None if marks is None else float(marks.mean())
        verdict = verdict_of(next(iter(self.curves.values())), searches, equal, share)
        return Rehearsal.of(
            gallery=without_secrets(gallery),
            attached=attached,
            items=size,
            sampled=len(self.items),
            missing=self.missing,
            old=RehearsedModel(name=old.name, note=old.note, fingerprint=old.fingerprint),
            new=RehearsedModel(name=new.name if new else "", note=self.upgrade.note, fingerprint=self.made.fingerprint),
            linked=self.linked,
            steps=self.steps,
            metric=RIGHT[0] if self.queries.relevant is not None else ALIKE[1],
            queries="given" if self.queries.own is None else "items",
            asked=len(self.queries),
            judged=self.queries.judged,
            trained=None if marks is None else int(marks.sum()),
            before=self._means(self.before),
            after_rollback=self._means(self.after),
            rollback_equal=equal,
            curves=self.curves,
            left_out=self.left_out,
            first_hits=[self._first_hits(share) for share in SHOWN_SHARES],
            examples=self._examples(),
            timings=list(self._timings(size)),
            searches=searches,
            verdict=verdict,
            seed=self.seed,
            passed=verdict != "failed",
            two_stage=self.two_stage,
            thresholds=self._thresholds(),
        )

    def _thresholds(self) -> dict[str, Thresholds]:
        """Return the thresholds after the swap and at the end, as far as scores can be compared with thresholds."""
        ends = {"swap": self.answers[0.0]} if self.at_once and self.linked != "adapter" else {}  # which merges by rank
        return {
            step: found
            for step, answers in {**ends, "finish": self.last}.items()
            if (found := answers.thresholds(self.before, self.queries, self.seed)) is not None
        }

    # The steps of the upgrade

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        listener(self.progress)({"step": name})
        self.steps.append(name)
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun

    def _swap(self, copy: Gallery) -> None:
        copy.swap(force="a rehearsal with items that the source does not have" if self.missing else None)

    def _filled(
        self, copy: Gallery, order: str, shares: Sequence[float], *, probe: bool = True
    ) -> Iterator[tuple[float, Answers]]:
        done, size = 0, len(self.made)
        for share in shares:
            budget = None if share == 1 else round(share * size) - done
            if budget is None or budget > 0:
                self._fill(copy, order, budget, probe=probe)
                done = round(share * size)
            point = f"{100 * share:g} % re-embedded" if probe else None
            yield share, self._ask(copy, self.queries.new, point, DEPTH + 1)

    def _fill(self, copy: Gallery, order: str, budget: int | None, *, probe: bool) -> None:
        searched, begun = 0.0, time.perf_counter()

        def search(told: Told) -> None:
            nonlocal searched
            since = time.perf_counter()
            for queries in (self.queries.old, self.queries.new):
                self._probe(copy, queries[:_PROBES])
            searched += time.perf_counter() - since

        copy.backfill(
            self.made,
            order=order,
            batch=max(1, len(self.made) // _BATCHES),
            budget=budget,
            seed=self.seed,
            progress=search if probe else None,
        )
        if probe:
            if "backfill" not in self.steps:
                self.steps.append("backfill")
            taken = time.perf_counter() - begun - searched
            self.seconds["backfill"] = self.seconds.get("backfill", 0.0) + taken

    # The searches

    def _ask(self, copy: Gallery, queries: EmbeddingSet, point: str | None, depth: int) -> Answers:
        """Return the answers of queries now: every item by the vector that they may search.

        Items are ranked by their exact scores, so that equal vectors tie, and a search for all items has to agree with
        this ranking. If an adapter maps queries, scores of several kinds are merged, and the search ranks all items.
        """
        mapped = self.linked == "adapter" and queries.fingerprint == self.made.fingerprint
        reply = copy.search(queries, len(self.items) if mapped else depth)
        self._count(copy, reply)
        self._time(copy, queries, point)
        ids, state = self.items.old.ids, copy.state
        if mapped:
            return Answers.of_hits(reply.hits, self.queries, ids)
        scores = np.full((len(queries), len(ids)), -np.inf, np.float32)  # of vectors that may not be searched
        for source in reversed(route(state, state.made_by(queries.fingerprint).name)):
            names, forms = copy.store.vectors(source.generation, list(ids))
            asked = queries.space.query_form(queries.vectors, state.by_name[source.generation].geometry)
            for start, block in score_blocks(asked, forms) if len(names) else ():
                scores[start : start + len(block), ids.find(names)] = block
        self.wrong += disagreeing(reply.hits, scores, ids)
        return Answers.of_scores(scores, reply.hits, self.queries)

    def _time(self, copy: Gallery, queries: EmbeddingSet, point: str | None) -> None:
        if point is None:
            return
        listener(self.progress)({"step": f"searching {point}"})
        seconds = []
        for row in range(min(len(queries), _TIMED)):
            begun = time.perf_counter()
            copy.search(queries[[row]], 10)
            seconds.append(time.perf_counter() - begun)
        self.milliseconds[point] = 1000 * float(np.median(seconds))

    def _probe(self, copy: Gallery, queries: EmbeddingSet) -> None:
        try:
            self._count(copy, copy.search(queries, 10))
        except LimpetError as error:
            self.asked += len(queries)
            self.failed.append(" ".join(error.given.split()))

    def _count(self, copy: Gallery, reply: Reply) -> None:
        """Count answers that did not contain every item once."""
        self.asked += len(reply.hits)
        state = copy.state
        waits = state.started is not None and reply.fingerprint == state.by_name[state.started].fingerprint
        whole = waits or reply.uncovered <= (0 if self.at_once else self.missing)
        for hits in reply.hits:
            ids = [hit.id for hit in hits]
            if not whole or len(set(ids)) < len(ids):
                self.incomplete += 1

    # Metrics of the answers

    def _per_query(self, answers: Answers) -> dict[str, Values]:
        """Return the metrics of the answers of every query (Q,), by name."""
        alike = {ALIKE[0]: answers.overlap(self.before), ALIKE[1]: answers.overlap(self.last)}
        return answers.right(self.queries) | alike

    def _means(self, answers: Answers) -> dict[str, float]:
        return {name: float(np.nanmean(value)) for name, value in self._per_query(answers).items()}

    def _curve(self, answers: Mapping[float, Answers]) -> OrderCurve:
        values: dict[str, list[float]] = {}
        differences: dict[str, list[Gain]] = {}
        for of_share in answers.values():
            per_query = self._per_query(of_share)
            for name, value in per_query.items():
                values.setdefault(name, []).append(float(np.nanmean(value)))
            for name, gain in self._gains(per_query).items():
                differences.setdefault(name, []).append(gain)
        return OrderCurve.of(tuple(answers), values, differences or None)

    def _gains(self, values: Mapping[str, Values]) -> dict[str, Gain]:
        """Return the gains over the answers before the swap, by metric of `RIGHT`; none without labels.

        Args:
            values: Metrics of the answers of every query (Q,), by name.
        """
        gains = {name: values[name] - before for name, before in self.right_before.items()}
        intervals = mean_intervals(gains, seed=self.seed, clusters=self.queries.classes) if gains else {}
        return {name: (float(np.nanmean(gains[name])), low, high) for name, (low, high) in intervals.items()}

    def _first_hits(self, share: float) -> FirstHitChanges:
        now, before = self.answers[share], self.before
        changed = float(np.mean([a.id != b.id for a, b in zip(now.first, before.first, strict=True)]))
        if not self.right_before:
            return FirstHitChanges(share=share, changed=changed, fixed=None, broken=None)
        right, was = now.right(self.queries)[FIRST], self.right_before[FIRST]
        fixed, broken = positive_flip_rate(was, right), negative_flip_rate(was, right)
        return FirstHitChanges(share=share, changed=changed, fixed=fixed, broken=broken)

    def _examples(self) -> list[ChangedQuery]:
        """Choose queries whose first hit changes; half of them lose a relevant one, if there are enough of these."""
        ids, before = list(self.queries.old.ids), self.before
        shown = {share: self.answers[share].first for share in SHOWN_SHARES}
        losses = self.right_before[FIRST] - self.last.right(self.queries)[FIRST] if self.right_before else None
        changing = [
            row for row in range(len(ids)) if any(first[row].id != before.first[row].id for first in shown.values())
        ]
        drawn = sorted(changing, key=lambda row: draw(self.seed, ids[row]))
        lost = [] if losses is None else [row for row in drawn if losses[row] > 0]
        chosen = lost[: MOST_EXAMPLES // 2]
        chosen += [row for row in drawn if row not in chosen][: MOST_EXAMPLES - len(chosen)]
        return [
            ChangedQuery(
                query=ids[row],
                metadata=dict(self.queries.metadata[row]),
                old=self._shown(before.first[row], row),
                new={share: self._shown(first[row], row) for share, first in shown.items()},
            )
            for row in chosen
        ]

    def _shown(self, hit: Hit, row: int) -> FirstHit:
        wanted = self.queries.relevant[row] if self.queries.relevant is not None else ()
        right = bool(np.isin(self.items.old.ids.find([hit.id]), wanted).any()) if len(wanted) else None
        return FirstHit(id=hit.id, score=hit.score, metadata=dict(hit.metadata), right=right)

    def _timings(self, size: int) -> Iterator[Timing]:
        """Yield the duration of every step, and the estimate for `size` items."""
        growing = {"backfill": len(self.made), "finish": len(self.items)}
        if self.linked == "mapped":
            growing["start"] = len(self.items)
        full = self.made.seconds_per_item * size
        yield Timing(step="embed", seconds=self.seconds["embed"], items=len(self.made), full_seconds=full)
        for step in self.steps:
            seconds, through = self.seconds[step], growing.get(step, 0)
            full = seconds * size / through if through else seconds
            yield Timing(step=step, seconds=seconds, items=through, full_seconds=full)


def disagreeing(hits: Sequence[Sequence[Hit]], scores: _Scores, ids: StringArray) -> int:
    """Count the queries whose hits are not the best items by scores (Q, N), up to rounding.

    >>> hit = Hit("b", 0.5, "g1", {})
    >>> disagreeing([[hit], [hit]], np.array([[0.1, 0.5], [0.9, 0.5]], np.float32), StringArray.of(["a", "b"]))
    1
    """
    wrong = 0
    found = np.split(ids.find([hit.id for of_one in hits for hit in of_one]), np.cumsum([*map(len, hits)]))[:-1]
    for of_one, row, rows in zip(hits, scores, found, strict=True):
        said = np.array([hit.score for hit in of_one])
        best = np.sort(row)[::-1][: len(said)]
        tolerance = _ROUNDING * max(1.0, np.abs(said).max())
        wrong += not np.abs(np.stack([row[rows], best]) - said).max() <= tolerance
    return wrong
