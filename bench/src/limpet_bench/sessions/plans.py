"""Session plans: which images and classes arrive in which session, in the three setups of CVS.

Paper: Continual Learning for Visual Search with Backward Consistent Feature Embedding (CVPR 2022, Section 4). The
setups are pure functions of a seed and of the labels of the whole training set, int64 (N,). Plans hold row numbers of
that set. Sessions are numbered from 0 here, and from 1 in messages and in the paper. The public lists were drawn with
another random generator: the counts agree with them, the drawn images do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from limpet.data import ImageSet, Labels, RowNumbers, check_labels, generator_of, lowest_of_each_class
from limpet.errors import DataError, refuse, unknown_name

_CLOSE = 1e-9  # added before rounding down, because 0.29 * 100 is 28.999999999999996


@dataclass(frozen=True, eq=False)
class Plan:
    """The images of every session, validated when built.

    Args:
        name: Name of the setup.
        labels: Class of every image of the training set, int64 (N,).
        training: Rows that each session trains on and adds to the gallery, ascending; one array per session.
        validation: Rows that each session sets aside as validation queries, ascending; one array per session.
        home: Session that introduces each class (in the blurry setup, its major session), int64 (largest label + 1,);
            -1 for an unused class.
        known_from_start: Whether all classes and all queries are known from the first session on, as in the blurry
            setup.
        asked: Options that the plan was made with, by name.

    Raises:
        ConfigError: A session has no training image, a row occurs twice, or the first session has no validation query.
    """

    name: str
    labels: Labels
    training: tuple[RowNumbers, ...]
    validation: tuple[RowNumbers, ...]
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
        """Number of sessions."""
        return len(self.training)

    def rows(self, session: int) -> RowNumbers:
        """Return the rows that a session trains on and adds to the gallery, ascending."""
        return self.training[self._known(session)]

    def queries(self, session: int) -> RowNumbers:
        """Return the rows of the validation queries used after a session, ascending.

        These are the queries of all sessions so far, or of all sessions if all classes are known from the start.
        """
        last = self.sessions if self.known_from_start else self._known(session) + 1
        return np.sort(np.concatenate(self.validation[:last]))

    def introduced(self, session: int) -> NDArray[np.int64]:
        """Return the classes that a session introduces, ascending; the first blurry session introduces all."""
        if self.known_from_start:
            return np.flatnonzero(self.home >= 0) if self._known(session) == 0 else np.empty(0, np.int64)
        return np.flatnonzero(self.home == self._known(session))

    def classes_seen(self, session: int) -> NDArray[np.int64]:
        """Return the classes known after a session, in order of introduction: the rows of a growing classifier."""
        return np.concatenate([self.introduced(earlier) for earlier in range(self._known(session) + 1)])

    @cached_property
    def training_counts(self) -> NDArray[np.int64]:
        """Number of training images by class and session, (largest label + 1, sessions)."""
        return self._counts(self.training)

    @cached_property
    def validation_counts(self) -> NDArray[np.int64]:
        """Number of validation queries set aside, by class and session, (largest label + 1, sessions)."""
        return self._counts(self.validation)

    def _counts(self, parts: tuple[RowNumbers, ...]) -> NDArray[np.int64]:
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


Spread = Literal["all", "others"]


def disjoint(labels: Labels, *, sessions: int = 5, validation: float | int = 0.1, seed: int = 0) -> Plan:
    """Plan sessions with disjoint classes: each class arrives in one session, with all its images.

    Args:
        labels: Class of every image (N,).
        sessions: Number of sessions. Classes are divided evenly; the first sessions get one more if there is a
            remainder.
        validation: Share of each session's images that become queries, stratified by class (paper: 0.1, 0.05 for
            Tiny-ImageNet). An integer is a count per class (see `general_incremental`).
        seed: Random seed for classes and queries.

    Raises:
        DataError: The labels are not int64 (N,) from 0.
        ConfigError: The plan is impossible: too few classes, a class with a single image, or an option out of range.
    """
    counts = _class_counts(labels)
    _check_sessions(sessions, int((counts > 0).sum()))
    generator = generator_of(seed)
    home = _homes(counts, _even_parts(int((counts > 0).sum()), sessions), generator)
    asked = {"sessions": sessions, "validation": validation, "seed": seed}
    return _plan("disjoint", labels, home[labels], home, asked, generator)


def blurry(
    labels: Labels,
    *,
    sessions: int = 5,
    minor_share: float = 0.1,
    spread: Spread = "all",
    validation: float | int = 0.1,
    seed: int = 0,
) -> Plan:
    """Plan blurry sessions: every class has a major session, and a share of its images goes to sessions in rotation.

    All classes and all queries are known from the first session on. The default departs from the paper: there, a
    share 1 - M of the images of a class is in its major session. The released lists spread the share M over all J
    sessions including the major one, which then holds (1 - M) + M / J. The default follows the released lists.

    Args:
        labels: Class of every image (N,).
        sessions: Number of sessions J; major classes are divided evenly.
        minor_share: M, above 0 and below 1. Of a class with n images, round(M n), half rounded up, are spread.
        spread: Sessions that receive the minor share: "all" (released lists), or only the "others" (paper).
        validation: As in `disjoint`; a count per class is taken from its major session.
        seed: Random seed for classes, images and queries.

    Raises:
        DataError: The labels are not int64 (N,) from 0.
        ConfigError: The plan is impossible: too few classes, a class with a single image, an empty session, or an
            option out of range.
    """
    counts = _class_counts(labels)
    _check_sessions(sessions, int((counts > 0).sum()))
    _check_share("minor_share", minor_share)
    if spread not in get_args(Spread):
        raise unknown_name("spread", spread, get_args(Spread))
    generator = generator_of(seed)
    home = _homes(counts, _even_parts(int((counts > 0).sum()), sessions), generator)
    dealt = np.floor(minor_share * counts + 0.5 + _CLOSE).astype(np.int64)
    by_home = np.argsort(home, kind="stable")
    first = np.zeros_like(dealt)  # the rotation continues from class to class, so that sessions stay equally large
    first[by_home] = np.cumsum(dealt[by_home]) - dealt[by_home]
    rank = _random_ranks(labels, counts, generator)
    turn = first[labels] + rank
    others = (home[labels] + 1 + turn % (sessions - 1)) % sessions
    session = np.where(rank < dealt[labels], turn % sessions if spread == "all" else others, home[labels])
    asked: dict[str, object] = {"sessions": sessions, "minor_share": minor_share, "spread": spread}
    asked |= {"validation": validation, "seed": seed}
    return _plan("blurry", labels, session, home, asked, generator, known_from_start=True)


def general_incremental(
    labels: Labels,
    *,
    first_classes: int = 20,
    new_classes: int = 20,
    old_share: float = 0.1,
    sessions: int = 5,
    new_images: int | None = None,
    validation: float | int = 0.1,
    seed: int = 0,
) -> Plan:
    """Plan general incremental sessions (S, C, M, L): later sessions add new classes, and new images of earlier ones.

    A class gives n_new images in its first session. In a later session with n_old earlier classes, each of these gives
    floor(M / (1 - M) · C · n_new / n_old) images, at least one, until it has none left. The released CIFAR-100 lists
    follow this rule with n_new = 400. The paper does not define n_new. Here it is chosen per class: the largest number
    for which a class of the first session could give all its shares, and at least one. Classes of later sessions use
    the same number although they give fewer shares, which keeps M; their remaining images are not used. M is only
    approximate where shares are rounded down or raised to one image: Omniglot's (192, 192, 40 %, 5) with 16 images
    gives 7, then 4, 2, 1, 1.

    Args:
        labels: Class of every image (N,).
        first_classes: S, number of classes of the first session.
        new_classes: C, number of classes that each later session adds; S + C (L - 1) classes are used.
        old_share: M, above 0 and below 1: share of a later session's images that belong to earlier classes.
        sessions: L, number of sessions.
        new_images: n_new for all classes; None chooses it per class as above.
        validation: Share of each session's images that become queries, stratified by class (paper: 0.1, 0.05 for
            Tiny-ImageNet and iNat-M). An integer is a count per class, taken once, from the session that introduces
            the class (Product-M: 2).
        seed: Random seed for classes, images and queries.

    Raises:
        DataError: The labels are not int64 (N,) from 0.
        ConfigError: The plan is impossible: too few classes or images, or an option out of range.
    """
    counts = _class_counts(labels)
    _check_share("old_share", old_share)
    given = f"first_classes = {first_classes}, new_classes = {new_classes}, sessions = {sessions}"
    refuse(min(first_classes, new_classes) < 1 or sessions < 2, f"{given}.", "at least 1, 1 and 2")
    sizes = [first_classes] + [new_classes] * (sessions - 1)
    classes = int((counts > 0).sum())
    refuse(sum(sizes) > classes, f"{given} need {sum(sizes)} classes, the data has {classes}.", f"at most {classes}")
    generator = generator_of(seed)
    home = _homes(counts, sizes, generator)
    rates = old_share / (1 - old_share) * new_classes / np.cumsum(sizes)[:-1]
    shares = _shares(counts, home, rates, new_images)
    rank = _random_ranks(labels, counts, generator)
    session = (rank[:, None] >= np.cumsum(shares, axis=1)[labels]).sum(axis=1)
    asked: dict[str, object] = {"first_classes": first_classes, "new_classes": new_classes, "old_share": old_share}
    asked |= {"sessions": sessions, "new_images": new_images, "validation": validation, "seed": seed}
    return _plan("general-incremental", labels, session, home, asked, generator)


PLANS: dict[str, Callable[..., Plan]] = {
    "disjoint": disjoint,
    "blurry": blurry,
    "general-incremental": general_incremental,
}
"""The setups by name."""


def _shares(
    counts: NDArray[np.int64], home: NDArray[np.int64], rates: NDArray[np.float64], new_images: int | None
) -> NDArray[np.int64]:
    """Return how many images every class gives to every session (largest label + 1, sessions).

    A class may have fewer images than the sum of its row; the last sessions then get fewer.

    Args:
        counts: Number of images of every class (largest label + 1,).
        home: Session that introduces each class; -1 for an unused class, whose row is meaningless.
        rates: Images of an earlier class in each later session, per image of a new class (sessions - 1,).
        new_images: Images of a class in its first session; None uses the largest number that fits.
    """
    tried = np.arange(1, int(counts.max()) + 1)
    needed = tried + np.maximum(1, np.floor(tried[:, None] * rates + _CLOSE).astype(np.int64)).sum(axis=1)
    fitting = np.maximum(1, np.searchsorted(needed, counts, side="right"))
    if new_images is not None:
        smallest, least = counts[home >= 0].min(), int(fitting[home >= 0].min())
        wrong = f"new_images = {new_images}; the smallest class has {smallest} images."
        refuse(not 1 <= new_images <= least, wrong, f"from 1 to {least}, so that its later shares fit too")
        fitting = np.full_like(fitting, new_images)
    later = np.floor(fitting[:, None] * rates + _CLOSE).astype(np.int64)
    shares = np.concatenate([np.zeros_like(later[:, :1]), np.maximum(1, later)], axis=1)
    place = np.arange(shares.shape[1])
    return np.where(place > home[:, None], shares, np.where(place == home[:, None], fitting[:, None], 0))


def _plan(
    name: str,
    labels: Labels,
    session: NDArray[np.int64],
    home: NDArray[np.int64],
    asked: Mapping[str, object],
    generator: np.random.Generator,
    *,
    known_from_start: bool = False,
) -> Plan:
    """Build a plan: set aside the queries of every session; an image whose session is out of range is not used."""
    count = int(home.max()) + 1
    own = [np.flatnonzero((session == place) & (home[labels] >= 0)) for place in range(count)]
    aside = [_queries(labels, rows, home == place, asked["validation"], generator) for place, rows in enumerate(own)]
    training = tuple(np.setdiff1d(rows, taken, assume_unique=True) for rows, taken in zip(own, aside, strict=True))
    return Plan(name, labels, training, tuple(aside), home, known_from_start, dict(asked))


def _queries(
    labels: Labels, rows: RowNumbers, at_home: NDArray[np.bool_], validation: object, generator: np.random.Generator
) -> RowNumbers:
    own, given = labels[rows], f"validation = {validation}"
    counts = np.bincount(own, minlength=len(at_home))
    if isinstance(validation, int | np.integer):
        least = int(counts[at_home].min())
        refuse(
            not 1 <= validation < least,
            f"{given} of a class with {least} images in its first session.",
            f"a share, or a number from 1 to {least - 1} per class" if least > 1 else "a share above 0 and below 1",
        )
        wanted = np.where(at_home, validation, 0)
    else:
        refuse(not isinstance(validation, float) or not 0 < validation < 1, f"{given}.", "a share above 0 and below 1")
        wanted = _stratified(counts, float(validation), generator)  # type: ignore[arg-type]
    return rows[lowest_of_each_class(own, generator.random(len(rows)), wanted)]


def _stratified(counts: NDArray[np.int64], share: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return how many images of every class to take, so that together they are a share of all images.

    The total is rounded and at least one. Every class keeps at least one image. Shares of classes are rounded down;
    the rest is added one by one to the classes that lost most by rounding, in random order among equal losses.
    """
    exact = share * counts
    most = np.maximum(counts - 1, 0)
    taken: NDArray[np.int64] = np.minimum(np.floor(exact + _CLOSE).astype(np.int64), most)
    total = max(1, int(exact.sum() + 0.5 + _CLOSE))
    lost = np.where(taken < most, np.round(exact - taken, 9), -1.0)
    order = np.lexsort((generator.random(len(counts)), -lost))[: max(0, total - int(taken.sum()))]
    taken[order[lost[order] > 0]] += 1
    return taken


def _class_counts(labels: Labels) -> NDArray[np.int64]:
    """Return the number of images of every class (largest label + 1,), or refuse the labels."""
    check_labels(labels)
    counts = np.bincount(labels)
    single = np.flatnonzero(counts == 1)
    refuse(
        len(single) > 0,
        f"{len(single)} classes have a single image, first: {single[:1].tolist()}.",
        "two or more, so that one can be searched for among the others",
    )
    return counts


def _check_sessions(sessions: int, classes: int) -> None:
    refuse(
        not 2 <= sessions <= classes,
        f"sessions = {sessions} for {classes} classes.",
        "at least 2, and a class for each",
    )


def _check_share(name: str, share: float) -> None:
    refuse(not 0 < share < 1, f"{name} = {share}.", "a share above 0 and below 1")


def _even_parts(classes: int, sessions: int) -> list[int]:
    return [classes // sessions + (place < classes % sessions) for place in range(sessions)]


def _homes(counts: NDArray[np.int64], sizes: list[int], generator: np.random.Generator) -> NDArray[np.int64]:
    """Assign shuffled classes to sessions with `sizes` classes each, and -1 to the remaining classes."""
    shuffled = generator.permutation(np.flatnonzero(counts))[: sum(sizes)]
    home = np.full(len(counts), -1, np.int64)
    home[shuffled] = np.repeat(np.arange(len(sizes)), sizes)
    return home


def _random_ranks(labels: Labels, counts: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Number the images of every class from 0, in random order."""
    order = np.lexsort((generator.random(len(labels)), labels))
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


KS = (1, 2, 4)
"""The K of AR@K in CVS."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Images and plan of a comparison, validated when built. Build one with `Setting.of`.

    Classes are numbered in the order in which the plan introduces them. So a class keeps its number in all sessions,
    which is also its row in the classifier.

    Args:
        name: Name of the data, for records.
        images: The whole training set; the plan holds its row numbers.
        test: Test queries of the classes that the plan uses.
        plan: The images of every session.
        home: Session that introduces each class (in the blurry setup, its major session), int64 (classes,).
        budget: Total number of exemplars for learners with a memory; None if no learner has one.
    """

    name: str
    images: ImageSet
    test: ImageSet
    plan: Plan
    home: NDArray[np.int64]
    budget: int | None

    @classmethod
    def of(cls, name: str, images: ImageSet, test: ImageSet, plan: Plan, *, budget: int | None = None) -> Setting:
        """Number the classes of images and queries in the order of the plan.

        Raises:
            DataError: The plan was made for other images, queries and images differ in class names or shape, they
                share an image, or a class of the plan has no query.
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
        asked = test[np.isin(test.labels, order)]
        return cls(name, _numbered(images, arranged), _numbered(asked, arranged), plan, plan.home[order], budget)

    def known(self, session: int) -> int:
        """Return how many classes are known after a session; they are numbered from 0."""
        return len(self.plan.classes_seen(session))

    def training(self, rows: RowNumbers, session: int) -> ImageSet:
        """Return the images of some rows, with the names of the classes known after a session."""
        return self._known(self.images[rows], session)

    def validation(self, session: int) -> ImageSet:
        """Return the validation queries used after a session."""
        return self._known(self.images[self.plan.queries(session)], session)

    def queries(self, session: int) -> ImageSet:
        """Return the test queries of the classes known after a session."""
        return self._known(self.test[self.test.labels < self.known(session)], session)

    def seen_rows(self, session: int) -> RowNumbers:
        """Return the rows that all sessions up to this one train on, in the order of the sessions."""
        return np.concatenate(self.plan.training[: session + 1])

    def brings_old_classes(self, session: int) -> bool:
        """Return whether a session has images of classes that are known after the session before."""
        labels = self.images.labels[self.plan.rows(session)]
        return session > 0 and bool((labels < self.known(session - 1)).any())

    @cached_property
    def plan_digest(self) -> str:
        """Digest of the rows that every session trains on and sets aside."""
        digest = hashlib.sha256()
        for rows in (*self.plan.training, *self.plan.validation):
            digest.update(f"{len(rows)};".encode() + np.ascontiguousarray(rows).tobytes())
        return digest.hexdigest()

    @cached_property
    def identity(self) -> dict[str, object]:
        """Everything that identifies this comparison, as plain values."""
        return {
            "data": self.name,
            "images": self.images.digest(),
            "test queries": self.test.digest(),
            "plan": self.plan_digest,
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
    """Renumber the classes: class ``order[i]`` becomes i."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return replace(images, labels=place[images.labels], class_names=tuple(images.class_names[row] for row in order))
