"""Results of `limpet adapt` on two frozen models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from limpet.adapters import SuspectPairs
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.thresholds import Thresholds
from limpet.linking.compare import CandidateKind, CandidateScores, Comparison, Directions, Effect, LearningCurve
from limpet.linking.held_out import HeldOut
from limpet.linking.recommend import Action, Recommendation
from limpet.linking.two_stage import TwoStage
from limpet.models.long_texts import LongTextsRecord
from limpet.results import Disagreement, Part, Results
from limpet.support.ranges import Count, Fraction, PositiveInt, Share

KIND_OF: dict[Action, CandidateKind] = {"adapt": "adapter", "train a head": "head"}
"""Kind of candidate by action, for actions that use one."""


class PairCounts(Part):
    """The pairs of items: their number, classes, and anomalies."""

    name: str
    pairs: Count
    labelled: bool
    classes: Count | None
    sentences: list[str]


class ComparedModel(Part):
    """One of the two models."""

    name: str
    fingerprint: str
    dim: PositiveInt


class Models(Part):
    """Both models."""

    old: ComparedModel
    new: ComparedModel


class Suspects(Part):
    """Share of mismatched pairs, with its interval."""

    share: Share
    low: Share
    high: Share
    tested: Count
    sentence: str


class AdaptProtocol(Part):
    """Measurement protocol; see `Comparison`.

    Args:
        judged: Number of queries with human judgements; None if items are the queries.
        provisional: Whether scores are agreement with re-embedding alone.
        splits: Number of splits of the pairs.
    """

    fitted_on: Count
    held_out: Count
    unseen_classes: Count
    metric: Literal["map", "overlap@10", "ndcg@10"]
    direction: Directions
    level: Fraction
    resamples: PositiveInt
    seed: int
    resample: Literal["queries", "classes"]
    guards: list[str]
    judged: PositiveInt | None
    provisional: bool
    splits: PositiveInt


class Systems(Part):
    """What both models score by themselves."""

    self_old: Effect
    self_new: Effect

    def by_name(self) -> dict[str, Effect]:
        """Return both scores by name."""
        return {"self_old": self.self_old, "self_new": self.self_new}


class Names(NamedTuple):
    """Names of the data and the two models."""

    data: str
    old: str
    new: str


class AdaptResults(Results):
    """Results of a comparison of adapters and heads.

    Args:
        data: The pairs.
        models: Both models.
        suspects: Share of mismatched pairs; None if not estimated.
        protocol: Measurement protocol.
        systems: Scores of both models by themselves.
        candidates: Scores of the candidates, in the order given.
        best_adapter: Name of the best adapter; None without any.
        best_head: Name of the best head; None without any.
        best: Name of the better of both.
        learning_curve: Scores by number of pairs; None if not measured.
        thresholds: New thresholds for old scores; None if unknown.
        recommendation: Recommended action.
        two_stage: Scores of two-stage search, without any fit; None if not measured.
        long_texts: Texts that a model truncated, by model.
    """

    KIND: ClassVar[str | None] = "adapt"
    WRITER: ClassVar[str] = "“limpet adapt”"
    AGAIN: ClassVar[str] = "run “limpet adapt”"

    kind: str
    title: str
    data: PairCounts
    models: Models
    suspects: Suspects | None
    protocol: AdaptProtocol
    systems: Systems
    candidates: Annotated[list[CandidateScores], Field(min_length=1)]
    best_adapter: str | None
    best_head: str | None
    best: str | None
    learning_curve: LearningCurve | None
    thresholds: Thresholds | None
    recommendation: Recommendation
    two_stage: TwoStage | None = None
    long_texts: tuple[LongTextsRecord, ...] = ()

    @classmethod
    def gather(
        cls,
        held_out: HeldOut,
        comparison: Comparison,
        recommendation: Recommendation,
        *,
        title: str,
        names: Names,
        direction: Directions,
        pair_sentences: Sequence[str] = (),
        suspects: SuspectPairs | None = None,
        curve: LearningCurve | None = None,
        thresholds: Thresholds | None = None,
        two_stage: TwoStage | None = None,
        long_texts: Sequence[LongTextsRecord] = (),
    ) -> Self:
        """Return the results of the measurements; unknown values and recovered shares that are not finite are None.

        Raises:
            ConfigError: Two parts contradict each other.
        """
        best, adapter, head = comparison.best, comparison.best_adapter, comparison.best_head
        return cls.of(
            title=title,
            data=PairCounts(
                name=names.data, pairs=held_out.pairs, labelled=held_out.labelled, classes=held_out.classes,
                sentences=list(pair_sentences),
            ),
            models=Models(old=_model(names.old, held_out.old), new=_model(names.new, held_out.new)),
            suspects=suspects and Suspects(**vars(suspects), sentence=suspects.sentence()),
            protocol=_protocol(comparison, direction),
            systems=Systems(self_old=comparison.self_old, self_new=comparison.self_new),
            candidates=list(comparison.candidates),
            best_adapter=adapter and adapter.name,
            best_head=head and head.name,
            best=best and best.name,
            learning_curve=curve if curve and curve.points else None,
            thresholds=thresholds,
            recommendation=recommendation,
            two_stage=two_stage,
            long_texts=tuple(long_texts),
        )  # fmt: skip

    @property
    def answered(self) -> bool:
        """Whether labels or judged queries define relevance; otherwise all scores are provisional."""
        return self.data.labelled or self.protocol.judged is not None

    def by_score(self) -> list[CandidateScores]:
        """Return the candidates by descending cross-test; failed ones come last, in their order."""
        return sorted(self.candidates, key=lambda candidate: -candidate.cross.mean if candidate.cross else 1.0)

    def named(self, name: str | None) -> CandidateScores | None:
        """Return the candidate with this name; None if there is none."""
        return next((candidate for candidate in self.candidates if candidate.name == name), None)

    @property
    def recommended(self) -> CandidateScores | None:
        """The recommended candidate; None if the recommended action uses none."""
        return self.named(self.recommendation.candidate) if self.recommendation.action in KIND_OF else None

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that is inconsistent with another."""
        data, protocol, metric = self.data, self.protocol, self.protocol.metric
        judged = protocol.judged is not None
        expected = "ndcg@10" if judged else "map" if data.labelled else "overlap@10"
        if metric != expected:
            why = "queries were judged" if judged else f"data.labelled is {data.labelled}"
            yield "protocol.metric", f"'{metric}'", f"'{expected}', as {why}"
        if protocol.provisional != (metric == "overlap@10"):
            yield "protocol.provisional", protocol.provisional, f"{metric == 'overlap@10'}, as the metric is '{metric}'"
        if (data.classes is None) == data.labelled:
            yield "data.classes", data.classes, f"a number just where data.labelled is True, not {data.labelled}"
        yield from self._wrong_candidates()
        yield from self._wrong_names()
        if self.learning_curve:
            yield from self._wrong_curve(self.learning_curve)
        if self.thresholds:
            yield from self.thresholds.disagreements("thresholds")

    def _wrong_candidates(self) -> Iterator[Disagreement]:
        names = [candidate.name for candidate in self.candidates]
        for number, candidate in enumerate(self.candidates):
            if candidate.name in names[:number]:
                yield f"candidates.{number}.name", f"'{candidate.name}' again", "a name of its own for each"
            for key in ("cross", "cross_minus_self_old", "self_new_minus_cross"):
                if (getattr(candidate, key) is None) != (candidate.failed is not None):
                    given = None if getattr(candidate, key) is None else getattr(candidate, key).to_dict()
                    yield f"candidates.{number}.{key}", given, "none just where “failed” says why"
        for place, score in self._scores():
            low, high = score.interval
            if low > high:
                yield f"{place}.interval", [low, high], "the lower end first"

    def _scores(self) -> Iterator[tuple[str, Effect]]:
        yield from ((f"systems.{system}", score) for system, score in self.systems.by_name().items())
        if (found := self.two_stage) is not None:
            for key in ("cross", "cross_minus_self_old", "self_new_minus_cross"):
                yield f"two_stage.{key}", getattr(found, key)
        for number, candidate in enumerate(self.candidates):
            for key, score in candidate.scores():
                yield f"candidates.{number}.{key}", score
        for number, point in enumerate(self.learning_curve.points if self.learning_curve else ()):
            yield f"learning_curve.points.{number}.cross", point.cross

    def _wrong_names(self) -> Iterator[Disagreement]:
        advice = self.recommendation
        named: dict[str, tuple[str | None, CandidateKind | None]] = {
            "best": (self.best, None),
            "best_adapter": (self.best_adapter, "adapter"),
            "best_head": (self.best_head, "head"),
            "recommendation.candidate": (advice.candidate, KIND_OF.get(advice.action)),
        }
        for place, (name, kind) in named.items():
            fitting = [one.name for one in self.by_score() if not one.failed and kind in (None, one.kind)]
            if name is not None and name not in fitting:
                what = f"measured {kind}s" if kind else "measured candidates"
                yield place, f"'{name}'", f"one of the {what}: {', '.join(fitting) or 'none'}"
        if advice.action == "adapt" and advice.candidate is None:
            yield "recommendation.candidate", None, "the adapter that is recommended"

    def _wrong_curve(self, curve: LearningCurve) -> Iterator[Disagreement]:
        names, pairs = [candidate.name for candidate in self.candidates], [point.pairs for point in curve.points]
        if curve.candidate not in names:
            yield "learning_curve.candidate", f"'{curve.candidate}'", f"one of {', '.join(names)}"
        if any(a >= b for a, b in pairwise(pairs)):
            yield "learning_curve.points", f"at {pairs}", "numbers of pairs that rise"
        if curve.enough is not None and curve.enough not in pairs:
            yield "learning_curve.enough", curve.enough, f"one of {', '.join(map(str, pairs))}, or none"


def _model(name: str, embeddings: EmbeddingSet) -> ComparedModel:
    return ComparedModel(name=name, fingerprint=embeddings.fingerprint, dim=embeddings.dim)


def _protocol(comparison: Comparison, direction: Directions) -> AdaptProtocol:
    draws = comparison.draws
    return AdaptProtocol.model_validate({
        "fitted_on": comparison.fitted_on,
        "held_out": comparison.held_out,
        "unseen_classes": comparison.unseen_classes,
        "metric": comparison.metric,
        "direction": direction,
        "level": draws.level,
        "resamples": draws.resamples,
        "seed": draws.seed,
        "resample": "queries" if draws.clusters is None else "classes",
        "guards": list(comparison.guards),
        "judged": comparison.judged,
        "provisional": comparison.provisional,
        "splits": comparison.splits,
    })  # fmt: skip
