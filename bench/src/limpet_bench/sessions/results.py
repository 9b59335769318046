"""Results of learners in sessions: the record of every session, and of a whole comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field

from limpet import Experiment
from limpet.methods import METHODS, build_method
from limpet.results import Disagreement, Part, Results
from limpet.support import Count, NonNegative, Share
from limpet_bench.sessions.plans import KS, Setting

_CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False)


class Bounds(Part):
    """Learners that are the lower and upper bounds.

    Args:
        lower: Name of the learner that ignores compatibility with earlier embeddings; None for none.
        upper: Name of the learner that trains on and re-embeds everything; None for none.
    """

    model_config = _CLOSED

    lower: str | None
    upper: str | None

    @classmethod
    def of(cls, learners: Mapping[str, Experiment]) -> Self:
        """Return the first learner with a bounding method, for each bound."""
        ends = {METHODS[experiment.method].bound: name for name, experiment in reversed([*learners.items()])}
        return cls(lower=ends.get("lower"), upper=ends.get("upper"))

    def by_name(self) -> dict[str, str]:
        """Return "lower" and "upper" by the names of the learners."""
        sides = {"lower": self.lower, "upper": self.upper}
        return {name: side for side, name in sides.items() if name is not None}


class SessionsData(Part):
    """What was learnt from and asked for.

    Args:
        name: Of the data.
        description: One line.
        training_images: Number of available training images.
        test_queries: Total number of test queries.
        classes: Number of classes of the plan.
    """

    model_config = ConfigDict(**_CLOSED, populate_by_name=True)

    name: str
    description: str
    training_images: Count = Field(alias="training images")
    test_queries: Count = Field(alias="test queries")
    classes: Count


class PlanNumbers(Part):
    """A `Plan` in numbers; lists have an entry per session.

    Args:
        name: Of the plan.
        asked: Its options.
        sessions: Number of sessions.
        known_from_start: Whether the first session knows all classes.
        introduced: Number of classes that each session introduces.
        home: Number of classes that belong to each session.
        training: Number of training images of each session, without exemplars.
        validation: Number of validation queries of each session.
    """

    model_config = _CLOSED

    name: str
    asked: dict[str, Any]
    sessions: Annotated[int, Field(ge=1)]
    known_from_start: bool
    introduced: list[Count]
    home: list[Count]
    training: list[Count]
    validation: list[Count]

    @classmethod
    def of(cls, setting: Setting) -> Self:
        """Return the numbers of a setting's plan."""
        plan, sessions = setting.plan, range(setting.plan.sessions)
        return cls(
            name=plan.name,
            asked=dict(plan.asked),
            sessions=plan.sessions,
            known_from_start=plan.known_from_start,
            introduced=[len(plan.introduced(session)) for session in sessions],
            home=[int((setting.home == session).sum()) for session in sessions],
            training=[len(plan.rows(session)) for session in sessions],
            validation=[len(rows) for rows in plan.validation],
        )


class SessionScores(Part):
    """Scores of queries after a session.

    Args:
        recall: Recall by K.
        recall_by_home: Recall@1 by the session that introduced the classes; None without queries.
        queries: Number of queries.
        queries_by_home: Number of queries by the session that introduced their classes.
    """

    model_config = _CLOSED

    recall: dict[str, Share]
    recall_by_home: list[Share | None]
    queries: Count
    queries_by_home: list[Count]


class Seconds(Part):
    """Duration of a session in seconds.

    Args:
        training: Training, validation included.
        rest: Everything else.
    """

    model_config = _CLOSED

    training: NonNegative
    rest: NonNegative

    @property
    def total(self) -> float:
        """Total duration."""
        return self.training + self.rest


class SessionRecord(SessionScores):
    """Results of one session of one learner.

    Args:
        validation_recall: Recall@1 of the validation queries in the epoch that was kept.
        best_epoch: Number of that epoch, from 0.
        epochs: Number of epochs.
        gallery_rows: Number of searched images.
        embedded_rows: Number of gallery images embedded by this session.
        replayed: Number of replayed exemplars of earlier sessions.
        trained_images: Number of images in training steps, over all epochs.
        encoded_images: Number of images that were only embedded.
        seconds: Duration.
        fingerprint: Fingerprint of the release.
    """

    validation_recall: Share
    best_epoch: Count
    epochs: Count
    gallery_rows: Count
    embedded_rows: Count
    replayed: Count
    trained_images: Count
    encoded_images: Count
    seconds: Seconds
    fingerprint: str


Records = Sequence[SessionRecord]


def average_recall(recall: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return AR@K by K: the mean of recall@K over all sessions, the first included (CVS, section 4.2).

    >>> average_recall([{"1": 0.5, "2": 1.0}, {"1": 0.25, "2": 0.5}])
    {'1': 0.375, '2': 0.75}
    """
    return {k: float(np.mean([session[k] for session in recall])) for k in recall[0]}


def forgetting(recall_by_home: Sequence[Sequence[float | None]]) -> float | None:
    """Return the loss of recall@1 of earlier sessions' classes since their best value.

    The mean, over the sessions that introduced classes but the last one, of their best recall@1 so far minus their
    last; negative where they are found better than ever before (Chaudhry et al., ECCV 2018, section 3.2).

    Args:
        recall_by_home: That of every session, None where a group was not asked.

    Returns:
        None after a single session.

    >>> forgetting([[0.9, None], [0.5, 0.8]])
    0.4
    """
    table = np.array(recall_by_home, np.float64)[:, : len(recall_by_home)]
    lost = [np.nanmax(column[:-1]) - column[-1] for column in table.T[:-1] if not np.isnan(column[:-1]).all()]
    return float(np.mean(lost)) if lost else None


class LearnerResults(Part):
    """Results of one learner.

    Args:
        method: Compatibility method.
        options: Options of the method.
        gallery_policy: Whether every image is embedded once, or all are re-embedded in every session.
        memory: Exemplar selection; None for a learner without replay.
        average_recall: AR@K by K; see `average_recall`.
        forgetting: See `forgetting`.
        sessions: Those that were run.
    """

    model_config = _CLOSED

    method: str
    options: dict[str, Any]
    gallery_policy: Literal["append", "reindex"]
    memory: str | None
    average_recall: dict[str, Share]
    forgetting: Annotated[float, Field(ge=-1, le=1)] | None
    sessions: Annotated[list[SessionRecord], Field(min_length=1)]

    @classmethod
    def of(cls, experiment: Experiment, records: Records) -> Self:
        """Return results of a learner that was trained in this way."""
        method = build_method(experiment.method, experiment.method_options)
        return cls(
            method=experiment.method,
            options=dict(experiment.method_options),
            gallery_policy=method.gallery_policy,
            memory=method.memory,
            average_recall=average_recall([record.recall for record in records]),
            forgetting=forgetting([record.recall_by_home for record in records]),
            sessions=list(records),
        )

    @property
    def embedded_again(self) -> int:
        """How many images it embedded for the gallery although an earlier session had."""
        return sum(session.embedded_rows for session in self.sessions) - self.sessions[-1].gallery_rows

    @property
    def seconds(self) -> float:
        """How many seconds it took in all sessions."""
        return sum(session.seconds.total for session in self.sessions)

    @property
    def recall_by_age(self) -> list[list[float | None]]:
        """Recall@1 after every session of the classes that each session introduced, (sessions done, groups).

        Groups are those of which anything was asked, up to the last.
        """
        rows = [session.recall_by_home for session in self.sessions]
        groups = max((place + 1 for row in rows for place, value in enumerate(row) if value is not None), default=0)
        return [row[:groups] for row in rows]


class SessionsResults(Results):
    """Learners compared in sessions.

    Args:
        seed: Of plan, weights and exemplars.
        ks: The K of recall@K.
        budget: Exemplars that learners keep at most; None where no learner has a memory.
        bounds: Which learners mark what is possible.
        data: What was learnt from and asked for.
        plan: Which images arrived when.
        model: The network.
        recipe: How every session was trained.
        learners: By name, in the order given.
    """

    model_config = _CLOSED

    KIND: ClassVar[str | None] = "sessions"
    WRITER: ClassVar[str] = "“limpet-bench sessions”"
    AGAIN: ClassVar[str] = "run “limpet-bench sessions”"

    kind: str
    title: str
    seed: int
    ks: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    budget: Count | None
    bounds: Bounds
    data: SessionsData
    plan: PlanNumbers
    model: dict[str, Any]
    recipe: dict[str, Any]
    learners: Annotated[dict[str, LearnerResults], Field(min_length=1)]

    @classmethod
    def gather(
        cls,
        setting: Setting,
        learners: Mapping[str, Experiment],
        records: Mapping[str, Records],
        *,
        title: str,
        description: str,
    ) -> Self:
        """Return results of a comparison.

        Raises:
            ConfigError: Two parts do not agree.
        """
        base = next(iter(learners.values()))
        return cls.of(
            title=title,
            seed=base.seed,
            ks=list(KS),
            budget=setting.budget,
            bounds=Bounds.of(learners),
            data=SessionsData(
                name=setting.name,
                description=description,
                training_images=len(setting.images),
                test_queries=len(setting.test),
                classes=len(setting.home),
            ),
            plan=PlanNumbers.of(setting),
            model=base.model.model_dump(mode="json"),
            recipe={**asdict(base.recipe), "head": base.head, "head_options": dict(base.head_options)},
            learners={name: LearnerResults.of(learners[name], of_learner) for name, of_learner in records.items()},
        )

    @property
    def done(self) -> int:
        """How many sessions the learners went through: all of the plan, or fewer where it was cut short."""
        return len(next(iter(self.learners.values())).sessions)

    def best_first(self) -> dict[str, LearnerResults]:
        """Return the learners by AR@1, the highest first; of equal ones the earlier comes first."""
        return dict(sorted(self.learners.items(), key=lambda item: -item[1].average_recall["1"]))

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that contradicts another."""
        plan, bounds, count, done = self.plan, self.bounds, self.plan.sessions, self.done
        if self.ks != sorted(set(self.ks)) or self.ks[0] != 1:
            yield "ks", self.ks, "1 and larger numbers, ascending"
        by_session = {
            "introduced": plan.introduced, "home": plan.home, "training": plan.training, "validation": plan.validation
        }  # fmt: skip
        for name, entries in by_session.items():
            if len(entries) != count:
                yield f"plan.{name}", entries, f"an entry for each of {count} sessions"
        for name, side in bounds.by_name().items():
            if name not in self.learners:
                yield f"bounds.{side}", f"'{name}'", f"one of {', '.join(self.learners)}"
        if bounds.lower is not None and bounds.lower == bounds.upper:
            yield "bounds", f"'{bounds.lower}' twice", "two learners"
        for name, learner in self.learners.items():
            if len(learner.sessions) != done or done > count:
                expected = f"as many as the other learners have, and at most {count}"
                yield f"learners.{name}.sessions", f"a list of {len(learner.sessions)}", expected
            yield from self._wrong_scores(f"learners.{name}", learner)

    def _wrong_scores(self, place: str, learner: LearnerResults) -> Iterator[Disagreement]:
        names, count = {str(k) for k in self.ks}, self.plan.sessions
        at_ks = f"recall at {', '.join(map(str, self.ks))}"
        if set(learner.average_recall) != names:
            yield f"{place}.average_recall", learner.average_recall, at_ks
        for number, session in enumerate(learner.sessions):
            here, recall, asked = f"{place}.sessions.{number}", session.recall_by_home, session.queries_by_home
            if set(session.recall) != names:
                yield f"{here}.recall", session.recall, at_ks
            if not len(recall) == len(asked) == count:
                yield f"{here}.recall_by_home", recall, f"an entry for each of {count} sessions, and as many queries"
            if any((value is None) != (queries == 0) for value, queries in zip(recall, asked, strict=False)):
                yield f"{here}.recall_by_home", recall, f"none just where no query was asked: {asked}"
