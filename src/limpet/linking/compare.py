"""Links between two frozen models, fitted on the same pairs and compared by retrieval among held-out items."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from limpet.adapters import Adapter, Direction
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError, LimpetError, refuse
from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.intervals import Draws, Resampled, chosen_interval, clusters_of
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.linking.held_out import HeldOut, Unlabelled
from limpet.results import Defined, Difference, Finite, Part
from limpet.support.ranges import Count, NonNegative, PositiveInt, Share

CandidateKind = Literal["adapter", "head"]
Directions = Literal["both", "new_to_old", "old_to_new"]
Values = NDArray[np.float64]  # one per query
_Name = TypeVar("_Name", bound=Hashable)

AGREEMENT = "overlap@10"
_FIRST_HIT = "recall@1"
JUDGED = "ndcg@10"
UNSEEN = "unseen classes"
GUARDS = (_FIRST_HIT, UNSEEN)
"""Default metrics at which a recommended candidate must not be clearly worse: the first hit, and new classes."""


class Effect(Part):
    """Mean over queries of a score or of a difference of two scores, with its interval."""

    mean: Difference
    interval: tuple[Difference, Difference]

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.interval[0] > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.interval[1] < 0


def means_of(columns: Mapping[_Name, Values], draws: Draws) -> dict[_Name, Effect]:
    """Return the mean of every column (Q,) with its interval; all columns share the resampled queries.

    >>> means_of({"a": np.array([0.25, 0.25, np.nan])}, Draws(resamples=10))
    {'a': Effect(mean=0.25, interval=(0.25, 0.25))}
    """
    intervals = draws.intervals(columns)
    return {name: Effect(mean=float(np.nanmean(values)), interval=intervals[name]) for name, values in columns.items()}


class Unseen(Part):
    """Mean scores and gain of queries of classes excluded from fitting, which search all held-out items."""

    self_old: Share
    cross: Share
    self_new: Share
    queries: Count
    gain: Effect | None = None


class Loss(Part):
    """Metric, or `UNSEEN`, at which a candidate is clearly worse than the old model, with the means of both."""

    name: str
    self_old: Share
    cross: Share
    gain: Effect


class CandidateScores(Part):
    """Results of one candidate; scores are None if it failed. See `Measured` for the others.

    Args:
        kind: "adapter" or "head".
        direction: Direction of an adapter; "old_to_new" for a head whose old gallery goes through one, None for others.
        seconds: Wall time of the fit.
        cross: Score of new queries through the link on the old gallery through the link.
        self_new_minus_cross: Further gain from re-embedding; for a head, from re-embedding with that head.
        recovered: Share of the gain from this re-embedding that the link recovers; None if no gain was shown.
        own: Score of the same queries on a gallery re-embedded for them; None if that is the new model's own.
        unseen: Scores on unseen classes; None without any.
        failed: Why the fit or the use failed; None if it did not.
        worse: Guards at which it is clearly worse than the old model.
        as_best: Interval of its gain, corrected for the choice of the best of its kind; None for other candidates.
        first_hits: Changes of first hits from the old model; None without labels and judgements.
    """

    name: Annotated[str, Field(min_length=1)]
    kind: CandidateKind
    direction: Direction | None = None
    seconds: NonNegative | None
    cross: Effect | None
    cross_minus_self_old: Effect | None
    self_new_minus_cross: Effect | None
    recovered: Finite | None
    own: Effect | None
    unseen: Unseen | None
    failed: str | None
    worse: tuple[Loss, ...] = ()
    as_best: tuple[Finite, Finite] | None = None
    first_hits: FirstHits | None = None

    def scores(self) -> Iterator[tuple[str, Effect]]:
        """Yield the measured effects, by name."""
        for name in ("cross", "cross_minus_self_old", "self_new_minus_cross", "own"):
            if (score := getattr(self, name)) is not None:
                yield name, score


class Measured(CandidateScores):
    """A candidate that was measured."""

    seconds: NonNegative
    cross: Effect
    cross_minus_self_old: Effect
    self_new_minus_cross: Effect
    recovered: Defined = None
    own: Effect | None = None
    unseen: Unseen | None = None
    failed: None = None

    @property
    def brings(self) -> Effect:
        """Gain of the candidate, with its interval corrected for the choice."""
        return Effect(mean=self.cross_minus_self_old.mean, interval=self.as_best or self.cross_minus_self_old.interval)

    @property
    def helps(self) -> bool:
        """Whether the whole interval of the gain is above 0."""
        return self.brings.above_zero


@dataclass(frozen=True)
class Comparison:
    """Candidates measured on the same held-out items; scores are fractions in [0, 1], larger is better.

    Args:
        metric: Name of the metric; "overlap@10" is agreement with re-embedding, not correctness.
        fitted_on: Number of pairs that every candidate was fitted on.
        held_out: Number of items that the queries search; each of them is a query, unless queries were judged.
        unseen_classes: Number of their classes that were excluded from fitting.
        judged: Number of queries with human judgements; None if the held-out items are the queries.
        splits: Number of random splits of the pairs; all have the same sizes.
        self_old: Score of the old model's queries on its gallery.
        self_new: Score of the new model's queries on the re-embedded gallery.
        head_lead: Cross score of the best head minus that of the best adapter; None unless both exist.
    """

    metric: str
    fitted_on: int
    held_out: int
    unseen_classes: int
    draws: Draws
    self_old: Effect
    self_new: Effect
    self_new_minus_self_old: Effect
    candidates: tuple[CandidateScores, ...]
    head_lead: Effect | None = None
    guards: tuple[str, ...] = ()
    judged: int | None = None
    splits: int = 1

    @property
    def provisional(self) -> bool:
        """Whether all scores are agreement with re-embedding, so that correctness is unknown."""
        return self.metric == AGREEMENT

    @property
    def best(self) -> Measured | None:
        """The candidate with the highest cross, the first of equal ones; None if all failed."""
        return self._best("adapter", "head")

    @property
    def best_adapter(self) -> Measured | None:
        """The adapter with the highest cross; None if there is none."""
        return self._best("adapter")

    @property
    def best_head(self) -> Measured | None:
        """The head with the highest cross; None if there is none."""
        return self._best("head")

    def _best(self, *kinds: CandidateKind) -> Measured | None:
        measured = [one for one in self.candidates if isinstance(one, Measured) and one.kind in kinds]
        return max(measured, key=lambda one: one.cross.mean, default=None)


class CandidateProgress(TypedDict):
    """Progress report on a finished candidate.

    Args:
        kind: "adapter" or "head".
        failed: Why the candidate failed; None if it did not.
    """

    name: str
    kind: CandidateKind
    seconds: float
    failed: str | None


EmbeddingMap = Callable[[EmbeddingSet], EmbeddingSet]
Scorer = Callable[[EmbeddingSet, EmbeddingSet], Mapping[str, Values]]
OnFit = Callable[[CandidateProgress], None]
Column = str | tuple[str, str]  # a system, or a measure of a candidate

FIRST = 10  # items compared by AGREEMENT


def identity(embeddings: EmbeddingSet) -> EmbeddingSet:
    """Return the embeddings unchanged."""
    return embeddings


@dataclass(frozen=True)
class FittedLink:
    """A fitted link that lets new queries search the old gallery; all maps keep ids, order and labels.

    Args:
        query: Map from the new model's query embeddings to the queries of the search.
        gallery: Map from the old model's gallery embeddings to the gallery of the search.
        own: Map from the new model's embeddings to gallery rows after a full backfill; None if these are the new
            model's embeddings themselves.
    """

    query: EmbeddingMap
    gallery: EmbeddingMap
    own: EmbeddingMap | None = None

    @classmethod
    def of_adapter(cls, adapter: Adapter) -> Self:
        """Return the link of a fitted adapter, which maps queries or gallery according to its direction."""
        if adapter.direction == "new_to_old":
            return cls(query=adapter.apply, gallery=identity)
        return cls(query=identity, gallery=adapter.apply)


@dataclass(frozen=True)
class Candidate:
    """A way to link two models.

    Args:
        name: Candidate name, such as "ridge" or "head ndpp".
        kind: "adapter" if it needs no labels, "head" if it is trained with labels.
        fit: Function that fits the candidate on the embeddings of the same items by the old and the new model, paired
            by id, in any order, and on those of further items without labels.
        direction: Direction of an adapter; "old_to_new" for a head whose old gallery goes through an adapter, None for
            other heads.
    """

    name: str
    kind: CandidateKind
    fit: Callable[[EmbeddingSet, EmbeddingSet, Unlabelled], FittedLink]
    direction: Direction | None = None


def measure(
    candidates: Sequence[Candidate],
    held_out: HeldOut,
    *,
    metric: str | None = None,
    guards: Sequence[str] | None = None,
    further: Sequence[HeldOut] = (),
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
    on_fit: OnFit | None = None,
) -> Comparison:
    """Fit every candidate, and compare retrieval through the links among the held-out items.

    A candidate that raises a `LimpetError` stays in the comparison, with the reason.

    Args:
        candidates: Candidates to compare, at least one, with unique names.
        held_out: Pairs to fit on, and items to measure with.
        metric: A metric of `rank_metrics`, or "overlap@10"; by default "ndcg@10" with judged queries, "map" with
            labels, "overlap@10" without either.
        guards: Metrics, and "unseen classes", at which candidates should not be clearly worse than the old model; by
            default recall@1 and unseen classes, or none without labels and judgements.
        further: Further splits of the same labelled pairs, if few are held out: every candidate is fitted on each, and
            all held-out items are queries among those of their split.
        resamples: Number of bootstrap resamples.
        resample: Draw "queries", or whole "classes"; "auto" draws classes if there are labels.
        level: Confidence level of the intervals.
        seed: Random seed of the bootstrap.
        on_fit: Callback for every finished candidate, with its name, kind, seconds, and the reason if it failed.

    Raises:
        ConfigError: No candidate was given, two have the same name, or an option is wrong.
        DataError: The metric needs labels, and there are none.
    """
    splits = (held_out, *further)
    draws = draws_of(splits, resamples, level, seed, resample)
    _check_names(candidates)
    metric = metric_for(held_out, metric)
    guards = _guarded(guards, held_out.answered and metric != AGREEMENT)
    answers = [] if metric == AGREEMENT else [_FIRST_HIT]
    scored = list(dict.fromkeys([metric, *(name for name in guards if name != UNSEEN), *answers]))
    scores = [(split, score_by(scored, split)) for split in splits]
    old, new = (
        _one_after_another([score(split.asking[side], (split.old, split.new)[side]) for split, score in scores])
        for side in (0, 1)
    )
    fitted = [_fitted(candidate, scores, on_fit) for candidate in candidates]
    done = [one for one in fitted if isinstance(one, _Fitted)]
    means = means_of(_columns(old[metric], new[metric], done, metric), draws)
    guarding = _Guarding(metric, guards, old, new, np.concatenate([split.unseen for split in splits]), draws)
    comparison = Comparison(
        metric=metric,
        fitted_on=held_out.fitted_on,
        held_out=len(held_out.old),
        unseen_classes=held_out.unseen_classes,
        draws=draws,
        self_old=means["self_old"],
        self_new=means["self_new"],
        self_new_minus_self_old=means["gain"],
        candidates=tuple(_measured(one, means, guarding) if isinstance(one, _Fitted) else one for one in fitted),
        guards=guards,
        judged=None if held_out.judged is None else len(held_out.asking[0]),
        splits=len(splits),
    )
    comparison = replace(comparison, candidates=_as_best(comparison, done, guarding))
    return replace(comparison, head_lead=_head_lead(comparison, done))


def _guarded(guards: Sequence[str] | None, judged: bool) -> tuple[str, ...]:
    """Return the names of the guards; by default none if relevance is unknown."""
    if guards is None:
        return GUARDS if judged else ()
    for name in guards:
        if name != UNSEEN:
            metrics_named((name,))
    if guards and not judged:
        raise DataError(
            f"{', '.join(guards)} cannot be guarded: nothing here says what is right.",
            expected="labels in either of the two sets and a metric that asks them, or nothing to guard",
            to_do="give labels to know what is right, or leave --guard out.",
        )
    return tuple(guards)


def draws_of(splits: Sequence[HeldOut], resamples: int, level: float, seed: int, resample: Resampled = "auto") -> Draws:
    """Return the bootstrap draws for means over the held-out items of all splits: by class if they have classes.

    A query of several splits is drawn with all its results.
    """
    asking = [split.asking[0] for split in splits]
    known = [one.labels for one in asking if one.labels is not None]
    labels = np.concatenate(known) if known else None
    clusters = clusters_of(labels, resample, "queries", "labels")
    if clusters is None and len(splits) > 1:
        clusters = np.unique(np.concatenate([list(one.ids) for one in asking]), return_inverse=True)[1]
    return Draws(resamples, level, seed, clusters)


def metric_for(held_out: HeldOut, metric: str | None = None) -> str:
    """Return the name of the metric, or the default for such items.

    Raises:
        ConfigError: The metric is unknown.
        DataError: The metric needs labels, and there are none.
    """
    if metric is None:
        return JUDGED if held_out.judged is not None else "map" if held_out.labelled else AGREEMENT
    if metric == AGREEMENT:
        return metric
    metrics_named((metric,))
    if not held_out.answered:
        raise DataError(
            f"The metric '{metric}' for items without labels.",
            expected=f"labels in either of the two sets, or the metric '{AGREEMENT}'",
            to_do="give labels to know what is right, or measure agreement with re-embedding.",
        )
    return metric


def score_by(metrics: Sequence[str], held_out: HeldOut) -> Scorer:
    """Return the function that scores queries on a gallery, one value per query; a query does not find itself."""
    judged = held_out.judged
    if AGREEMENT in metrics:
        again = first_ten(held_out.asking[1], held_out.new)
        return lambda query, gallery: {AGREEMENT: share_of(again, first_ten(query, gallery))}
    if judged is not None:
        return lambda query, gallery: judged.relevance.measure(query, gallery, tuple(metrics))
    return lambda query, gallery: rank_metrics(query, gallery, tuple(metrics), exclude_same_id=True)


def first_ten(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.int64]:
    """Return the nearest rows of each query, without itself (Q, 10), padded with -1."""
    return top_k(query, gallery, FIRST, exclude_same_id=True).rows


def share_of(wanted: NDArray[np.int64], rows: NDArray[np.int64]) -> Values:
    """Return the share of the wanted items of every query (Q, k) that is among others (Q, m); -1 is padding."""
    same = (rows[:, :, None] == wanted[:, None, :]) & (wanted >= 0)[:, None, :]
    found: Values = same.any(axis=1).sum(axis=1) / np.maximum((wanted >= 0).sum(axis=1), 1)
    return found


def cross_of(link: FittedLink, held_out: HeldOut, score: Scorer) -> Mapping[str, Values]:
    """Score new queries through a link on the old gallery, one value per query, by metric.

    Raises:
        DataError: A map of the link lost, added or reordered items.
    """
    return score(_mapped(link.query, held_out.asking[1]), _mapped(link.gallery, held_out.old))


def _mapped(map_: EmbeddingMap, embeddings: EmbeddingSet) -> EmbeddingSet:
    found = map_(embeddings)
    if found.ids != embeddings.ids:
        raise DataError(
            f"A link made {len(found)} items, or another order, of {len(embeddings)}.",
            expected="the same ids in the same order",
            to_do="change the vectors only: embeddings.replace(vectors=...).",
        )
    return found


def _check_names(candidates: Sequence[Candidate]) -> None:
    names = [candidate.name for candidate in candidates]
    refuse(not names, "No candidates.", "at least one adapter or head to compare")
    repeated = sorted({name for name in names if names.count(name) > 1})
    refuse(bool(repeated), f"Several candidates of one name: {', '.join(repeated)}.", "one name per candidate")


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A fitted candidate, with values per query by metric: for "cross", and for "own" if its link has one."""

    candidate: Candidate
    seconds: float
    values: Mapping[str, Mapping[str, Values]]


def _fitted(
    candidate: Candidate, scores: Sequence[tuple[HeldOut, Scorer]], on_fit: OnFit | None
) -> _Fitted | CandidateScores:
    seconds, failed, values = 0.0, None, list[Mapping[str, Mapping[str, Values]]]()
    for split, score in scores:
        started = time.perf_counter()
        try:
            link = candidate.fit(split.fit_old, split.fit_new, split.unlabelled)
            seconds += time.perf_counter() - started
            values.append(_values(link, split, score))
        except LimpetError as error:
            failed = " ".join(str(error).splitlines())
            break
    seconds = seconds if failed is None else time.perf_counter() - started
    if on_fit is not None:
        on_fit({"name": candidate.name, "kind": candidate.kind, "seconds": seconds, "failed": failed})
    if failed is not None:
        return CandidateScores(
            name=candidate.name, kind=candidate.kind, direction=candidate.direction, seconds=seconds, failed=failed,
            cross=None, cross_minus_self_old=None, self_new_minus_cross=None, recovered=None, own=None, unseen=None,
        )  # fmt: skip
    found = {system: _one_after_another([of_split[system] for of_split in values]) for system in values[0]}
    return _Fitted(candidate, seconds / len(scores), found)


def _one_after_another(found: Sequence[Mapping[str, Values]]) -> Mapping[str, Values]:
    return {name: np.concatenate([values[name] for values in found]) for name in found[0]}


def _values(link: FittedLink, held_out: HeldOut, score: Scorer) -> dict[str, Mapping[str, Values]]:
    values = {"cross": cross_of(link, held_out, score)}
    if link.own is not None:
        values["own"] = score(_mapped(link.query, held_out.asking[1]), _mapped(link.own, held_out.new))
    return values


def _columns(old: Values, new: Values, fitted: Sequence[_Fitted], metric: str) -> dict[Column, Values]:
    """Return all columns to average, by name, so that they share the bootstrap draws."""
    columns: dict[Column, Values] = {"self_old": old, "self_new": new, "gain": new - old}
    for one in fitted:
        name, cross = one.candidate.name, one.values["cross"][metric]
        columns |= {(name, system): values[metric] for system, values in one.values.items()}
        after = one.values["own"][metric] if "own" in one.values else new  # a head is compared with its own gallery
        columns |= {(name, "brings"): cross - old, (name, "lacks"): after - cross, (name, "gain"): after - old}
    return columns


def _measured(one: _Fitted, means: Mapping[Column, Effect], guarding: _Guarding) -> Measured:
    name = one.candidate.name
    brings, gain = means[name, "brings"], means[name, "gain"]
    return Measured(
        name=name,
        kind=one.candidate.kind,
        direction=one.candidate.direction,
        seconds=one.seconds,
        cross=means[name, "cross"],
        cross_minus_self_old=brings,
        self_new_minus_cross=means[name, "lacks"],
        recovered=brings.mean / gain.mean if gain.above_zero else None,
        own=means.get((name, "own")),
        unseen=guarding.on_unseen(one.values["cross"]),
        worse=guarding.losses(one.values["cross"]),
        first_hits=guarding.first_hits(one.values["cross"]),
    )


@dataclass(frozen=True, eq=False)
class _Guarding:
    """Finds the guards on which candidates are clearly worse than the old model.

    Args:
        unseen: Mask of the queries of classes excluded from fitting (Q,).
    """

    metric: str
    guards: tuple[str, ...]
    old: Mapping[str, Values]
    new: Mapping[str, Values]
    unseen: NDArray[np.bool_]
    draws: Draws

    def on_unseen(self, cross: Mapping[str, Values]) -> Unseen | None:
        systems = np.stack([values[self.metric] for values in (self.old, cross, self.new)])
        counted = self.unseen & ~np.isnan(systems).any(axis=0)
        if not counted.any():
            return None
        old, reached, new = systems[:, counted].mean(axis=1).tolist()
        gain = means_of({UNSEEN: (systems[1] - systems[0])[counted]}, self.draws.of(counted))[UNSEEN]
        return Unseen(self_old=old, cross=reached, self_new=new, queries=int(counted.sum()), gain=gain)

    def first_hits(self, cross: Mapping[str, Values]) -> FirstHits | None:
        if _FIRST_HIT not in self.old:
            return None
        return FirstHits.of(_FIRST_HIT, self.old[_FIRST_HIT], cross[_FIRST_HIT], self.draws)

    def losses(self, cross: Mapping[str, Values]) -> tuple[Loss, ...]:
        metrics = [name for name in self.guards if name not in (UNSEEN, self.metric)]
        gains = means_of({name: cross[name] - self.old[name] for name in metrics}, self.draws) if metrics else {}
        losses = []
        for name, gain in gains.items():
            old, reached = (float(np.nanmean(values[name])) for values in (self.old, cross))
            losses.append(Loss(name=name, self_old=old, cross=reached, gain=gain))
        unseen = self.on_unseen(cross) if UNSEEN in self.guards else None
        if unseen is not None and unseen.gain is not None:
            losses.append(Loss(name=UNSEEN, self_old=unseen.self_old, cross=unseen.cross, gain=unseen.gain))
        return tuple(loss for loss in losses if loss.gain.below_zero)


def _as_best(comparison: Comparison, fitted: Sequence[_Fitted], guarding: _Guarding) -> tuple[CandidateScores, ...]:
    """Return the candidates; the best of each kind gets an interval corrected for the choice among its kind."""
    found = []
    for one in comparison.candidates:
        if one is comparison.best_adapter or one is comparison.best_head:
            rivals = {
                rival.candidate.name: rival.values["cross"][guarding.metric]
                for rival in fitted
                if rival.candidate.kind == one.kind
            }
            draws = guarding.draws
            interval = chosen_interval(
                rivals, guarding.old[guarding.metric], resamples=draws.resamples, level=draws.level, seed=draws.seed,
                clusters=draws.clusters,
            )  # fmt: skip
            one = one.model_copy(update={"as_best": interval if len(rivals) > 1 else None})
        found.append(one)
    return tuple(found)


def _head_lead(comparison: Comparison, fitted: Sequence[_Fitted]) -> Effect | None:
    adapter, head = comparison.best_adapter, comparison.best_head
    if adapter is None or head is None:
        return None
    cross = {one.candidate.name: one.values["cross"][comparison.metric] for one in fitted}
    return means_of({"lead": cross[head.name] - cross[adapter.name]}, comparison.draws)["lead"]


FIRST_SIZE = 64
_NEGLIGIBLE = 0.005  # half a point of the metric
_PLAIN = 0.02  # a loss that counts even if it may be chance


class CurvePoint(Part):
    """A number of pairs, and the score of the candidate fitted on them."""

    pairs: PositiveInt
    cross: Effect


class LearningCurve(Part):
    """Cross scores of one candidate by the number of pairs it was fitted on.

    Args:
        points: Points by ascending number of pairs, without numbers that it cannot be fitted on.
        enough: Smallest number of pairs from which no size is two points worse than all pairs, or was shown to be half
            a point worse; None if every smaller size is, so that even more pairs may help, or if all pairs cannot be
            fitted.
        last_step: Gain of all pairs over the next smaller number; as many further pairs will likely gain no more. None
            if unknown.
    """

    candidate: str
    points: list[CurvePoint]
    enough: int | None
    last_step: Effect | None = None


def learning_curve(
    candidate: Candidate,
    held_out: HeldOut,
    *,
    sizes: Sequence[int] | None = None,
    metric: str | None = None,
    resamples: int = 2000,
    resample: Resampled = "auto",
    level: float = 0.95,
    seed: int = 0,
) -> LearningCurve:
    """Fit a candidate on random subsets of the pairs, each within the next, and measure all on the same held-out items.

    Args:
        candidate: Candidate to fit.
        held_out: What to fit on and what to measure with.
        sizes: Numbers of pairs to fit on, in any order; all pairs are added, and larger numbers are left out. By
            default 64, 128, 256 and so on.
        metric: See `measure`.
        resamples: Number of bootstrap resamples.
        resample: See `measure`.
        level: Confidence level of the intervals.
        seed: Random seed of the subsets and the bootstrap.

    Raises:
        ConfigError: A size is below 1, or an option is wrong.
        DataError: The metric needs labels, and there are none.
    """
    draws, pairs = draws_of([held_out], resamples, level, seed, resample), held_out.fitted_on
    refuse(min(sizes or [1]) < 1, f"A size of {min(sizes or [1])} pairs.", "at least 1")
    metric = metric_for(held_out, metric)
    score = score_by([metric], held_out)
    order = np.random.default_rng(seed).permutation(pairs)
    values: dict[int, Values] = {}
    for size in sizes_up_to(pairs, sizes):
        try:
            fitted_on = held_out.subset(np.sort(order[:size])) if size < pairs else held_out.all_to_fit
            link = candidate.fit(*fitted_on)
            values[size] = cross_of(link, held_out, score)[metric]
        except LimpetError:
            continue
    means = means_of(values, draws) if values else {}
    points = [CurvePoint(pairs=size, cross=mean) for size, mean in means.items()]
    enough, last = _enough(values, pairs, draws), None
    smaller = [size for size in values if size < pairs]
    if pairs in values and smaller:
        last = means_of({"last": values[pairs] - values[max(smaller)]}, draws)["last"]
    return LearningCurve(candidate=candidate.name, points=points, enough=enough, last_step=last)


def sizes_up_to(pairs: int, sizes: Sequence[int] | None = None) -> list[int]:
    """Return the sizes below the number of pairs, ascending, and that number.

    >>> sizes_up_to(300), sizes_up_to(64), sizes_up_to(300, [400, 20])
    ([64, 128, 256, 300], [64], [20, 300])
    """
    if sizes is None:
        sizes = [FIRST_SIZE * 2**step for step in range(max(1, pairs).bit_length())]
    return [*sorted({size for size in sizes if size < pairs}), pairs]


def _enough(values: dict[int, Values], pairs: int, draws: Draws) -> int | None:
    if len(values) < 2 or pairs not in values:
        return None
    losses = means_of({size: values[pairs] - cross for size, cross in values.items() if size < pairs}, draws)
    enough = None
    for size, loss in sorted(losses.items(), reverse=True):
        if loss.mean >= _NEGLIGIBLE and (loss.above_zero or loss.mean >= _PLAIN):
            break
        enough = size
    return enough
