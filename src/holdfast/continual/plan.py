"""Which images and classes arrive in which session, as one value that was checked when it was built.

Sessions count from 0 here and from 1 in messages and in papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from holdfast.data.image_rules import Labels, Rows
from holdfast.errors import refuse


@dataclass(frozen=True, eq=False)
class Plan:
    """The images of every session, checked once when built.

    Args:
        name: Name of the setup.
        labels: Class of every image of the training set, int64 (N,).
        training: Rows each session trains on and adds to the gallery, ascending; one array per session.
        validation: Rows each session sets aside as validation queries, ascending; one array per session.
        home: Session that introduces each class, in the blurry setup its major session; -1 for a class never used;
            int64 (largest label + 1,).
        known_from_start: Whether the first session knows all classes and asks all queries: the blurry setup.
        asked: What the plan was made from, by name.

    Raises:
        ConfigError: A session has no image, a row occurs twice, or the first session has no validation query.
    """

    name: str
    labels: Labels
    training: tuple[Rows, ...]
    validation: tuple[Rows, ...]
    home: NDArray[np.int64]
    known_from_start: bool
    asked: Mapping[str, object]

    def __post_init__(self) -> None:
        _check(self)

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(rows)) for rows in self.training)
        return f"Plan('{self.name}': {sizes} images of {int((self.home >= 0).sum())} classes)"

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self.training)

    def rows(self, session: int) -> Rows:
        """Return the rows that a session trains on and adds to the gallery, ascending."""
        return self.training[self._known(session)]

    def queries(self, session: int) -> Rows:
        """Return the validation queries in force after a session, ascending: those of all sessions so far, or all."""
        last = self.sessions if self.known_from_start else self._known(session) + 1
        return np.sort(np.concatenate(self.validation[:last]))

    def introduced(self, session: int) -> NDArray[np.int64]:
        """Return the classes that a session makes known, ascending: all of them in the first blurry session."""
        if self.known_from_start:
            return np.flatnonzero(self.home >= 0) if self._known(session) == 0 else np.empty(0, np.int64)
        return np.flatnonzero(self.home == self._known(session))

    def classes_seen(self, session: int) -> NDArray[np.int64]:
        """Return the classes known after a session, in the order they came: rows of a classifier that grows."""
        return np.concatenate([self.introduced(earlier) for earlier in range(self._known(session) + 1)])

    @cached_property
    def training_counts(self) -> NDArray[np.int64]:
        """Training images by class and session, (largest label + 1, sessions)."""
        return self._counts(self.training)

    @cached_property
    def validation_counts(self) -> NDArray[np.int64]:
        """Validation queries that each session sets aside, by class and session, (largest label + 1, sessions)."""
        return self._counts(self.validation)

    def _counts(self, parts: tuple[Rows, ...]) -> NDArray[np.int64]:
        return np.stack([np.bincount(self.labels[rows], minlength=len(self.home)) for rows in parts], axis=1)

    def _known(self, session: int) -> int:
        refuse(
            not 0 <= session < self.sessions,
            f"session = {session} of a plan with {self.sessions} sessions.",
            f"from 0 to {self.sessions - 1}",
        )
        return session


def _check(plan: Plan) -> None:
    everything = np.concatenate([*plan.training, *plan.validation])
    repeated = np.flatnonzero(np.bincount(everything, minlength=1) > 1)
    refuse(
        len(repeated) > 0, f"{len(repeated)} images occur more than once, first: row {repeated[:1].tolist()}.", "once"
    )
    for place, rows in enumerate(plan.training, start=1):
        refuse(len(rows) == 0, f"Session {place} of the {plan.name} plan has no training images.", "at least one")
    refuse(len(plan.queries(0)) == 0, "Session 1 has no validation query.", "a class with two images in it")
