"""What all learners of a comparison share: images, numbered in the order in which classes come, plan and memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.continual.plan import Plan
from holdfast.data.image_rules import Rows
from holdfast.data.image_set import ImageSet
from holdfast.errors import DataError, refuse

KS = (1, 2, 4)
"""The K of CVS's AR@K."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Images and plan of a comparison, checked once when built.

    Classes are numbered in the order in which the plan makes them known, so that a class keeps its number from session
    to session and the first ones are a classifier's first rows. Build one with `Setting.of`.

    Args:
        name: Name of the data, for records.
        images: The whole training set; row numbers are those of the plan.
        test: Queries of the classes that the plan uses.
        plan: Which images arrive when.
        home: Session that introduces each class, in the blurry setup its major session; int64 (classes,).
        budget: Exemplars that learners with a memory keep in all; None where no learner has one.
    """

    name: str
    images: ImageSet
    test: ImageSet
    plan: Plan
    home: NDArray[np.int64]
    budget: int | None

    @classmethod
    def of(cls, name: str, images: ImageSet, test: ImageSet, plan: Plan, *, budget: int | None = None) -> Setting:
        """Number the classes of images and queries in the plan's order.

        Raises:
            DataError: The plan was made for other images, queries and images name other classes or have other shapes,
                an image is among both, or a class of the plan has no query.
            ConfigError: The budget is below 1.
        """
        if not np.array_equal(plan.labels, images.labels):
            raise DataError(
                f"The plan was made for {len(plan.labels)} images, and {len(images)} others were given.",
                expected="the images whose labels the plan was made from",
            )
        refuse(budget is not None and budget < 1, f"A memory of {budget} images.", "at least 1")
        _refuse_queries(images, test, plan)
        order = plan.classes_seen(plan.sessions - 1)
        unused = np.setdiff1d(np.arange(len(images.class_names)), order)
        arranged = np.concatenate([order, unused])
        asked = test.select(np.isin(test.labels, order))
        return cls(name, _numbered(images, arranged), _numbered(asked, arranged), plan, plan.home[order], budget)

    def known(self, session: int) -> int:
        """Return how many classes are known after a session; their numbers are the first ones."""
        return len(self.plan.classes_seen(session))

    def training(self, rows: Rows, session: int) -> ImageSet:
        """Return chosen images, named in the classes known to a session."""
        return self._known(self.images.select(rows), session)

    def validation(self, session: int) -> ImageSet:
        """Return the validation queries in force after a session."""
        return self._known(self.images.select(self.plan.queries(session)), session)

    def queries(self, session: int) -> ImageSet:
        """Return the test queries of the classes known after a session."""
        return self._known(self.test.select(self.test.labels < self.known(session)), session)

    def seen_rows(self, session: int) -> Rows:
        """Return the rows that all sessions up to this one train on, in the order of the sessions."""
        return np.concatenate(self.plan.training[: session + 1])

    def brings_old_classes(self, session: int) -> bool:
        """Whether a session has images of classes that an earlier one knew."""
        labels = self.images.labels[self.plan.rows(session)]
        return session > 0 and bool((labels < self.known(session - 1)).any())

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What tells this comparison from others, as plain values."""
        digest = hashlib.sha256()
        for rows in (*self.plan.training, *self.plan.validation):
            digest.update(f"{len(rows)};".encode() + np.ascontiguousarray(rows).tobytes())
        return {
            "data": self.name,
            "images": self.images.digest(),
            "test queries": self.test.digest(),
            "plan": digest.hexdigest(),
            "order of classes": [self.plan.known_from_start, hashlib.sha256(self.plan.home.tobytes()).hexdigest()],
            "memory": self.budget,
        }

    def _known(self, images: ImageSet, session: int) -> ImageSet:
        return replace(images, class_names=images.class_names[: self.known(session)])


def _refuse_queries(images: ImageSet, test: ImageSet, plan: Plan) -> None:
    if test.class_names != images.class_names or test.shape != images.shape:
        raise DataError(
            f"Test queries of {len(test.class_names)} classes and shape {test.shape}, images of "
            f"{len(images.class_names)} and {images.shape}.",
            expected="one list of class names and one shape for both",
        )
    shared = test.ids[images.ids.find(test.ids) >= 0]
    if len(shared):
        raise DataError(
            f"{len(shared)} test queries are training images too, first: '{shared[0]}'.",
            expected="queries that no session trains on",
        )
    missing = np.setdiff1d(plan.classes_seen(plan.sessions - 1), test.labels)
    if len(missing):
        raise DataError(
            f"{len(missing)} classes of the plan have no test query, first: '{images.class_names[missing[0]]}'.",
            expected="at least one for every class",
            to_do="keep some images of every class for it: --test-images N.",
        )


def _numbered(images: ImageSet, order: NDArray[np.int64]) -> ImageSet:
    """Number the classes anew: class ``order[i]`` becomes i."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return replace(images, labels=place[images.labels], class_names=tuple(images.class_names[row] for row in order))
