"""Compare links between two frozen models, given embeddings of the same items, and save the recommended one."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limpet.adapters import ADAPTERS, Direction, ScoreMap, SuspectPairs, build_adapter, suspect_pairs
from limpet.adapters.base import Adapter
from limpet.adapters.pairs import DOUBTED, FEWEST_TESTED, matched, without_doubtful
from limpet.adapters.score_map import ScoreMapError
from limpet.adapters.storage import ADAPTER_FILE, load_adapter, save_adapter
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.embedding_set import check_given
from limpet.embeddings.same_items import refuse_lengths, refuse_one_model
from limpet.errors import ConfigError, DataError, refuse, unknown_name
from limpet.evaluation.intervals import Resampled
from limpet.evaluation.thresholds import Thresholds
from limpet.linking.compare import (
    Candidate,
    Comparison,
    Directions,
    FittedLink,
    LearningCurve,
    OnFit,
    learning_curve,
    measure,
)
from limpet.linking.held_out import (
    HeldOut,
    Judged,
    Unlabelled,
    all_pairs,
    apart,
    asked_by,
    hold_out,
    paired,
    uncovered_share,
)
from limpet.linking.recommend import Recommendation, recommend
from limpet.linking.two_stage import TwoStage, two_stage
from limpet.methods import build_method
from limpet.models.specs import EncoderSpec
from limpet.support.extras import installed, installing, needing, require
from limpet.support.progress import Progress, listener, showing
from limpet.support.reporting import Charted
from limpet.support.wording import whole_percent
from limpet.training.experiment import HEAD_RECIPE, Experiment, head_recipe

if TYPE_CHECKING:
    from limpet.models.release_record import FrozenModel
    from limpet.training.compatible_head import CompatibleHead
    from limpet.training.events import TrainingStep

HEAD = "head "  # prefix of the name of its method
FEW_HELD_OUT, SPLITS = 400, 5
"""With fewer than `FEW_HELD_OUT` held-out items, an inconclusive comparison is repeated over `SPLITS` splits in all."""
UNSEEN_SHARE = 0.1  # default share of the classes, if the share without labels is unknown
DIRECTIONS: dict[Direction, str] = {"new_to_old": "", "old_to_new": " (gallery)"}  # suffix of the name of an adapter


def usual_heads(unlabelled: bool = False, *, as_it_is: bool = False) -> dict[str, Experiment]:
    """Return the heads that are compared by default; none if the extra `train` is not installed.

    Two layers separate known classes better than one, and unknown classes worse. "two-step" stays in the space of the
    new model, and an adapter maps the old gallery there: it also learns from pairs without a label. "both sides" does
    so too, and learns that map together with the head. Both keep the neighbours of items without a label, which helps
    for classes that no label covers, and hurts if only labels of single items are missing; "two-step, free" does not.

    If the old gallery cannot be rewritten, "one side" replaces these three: with one layer or two, it maps to the
    stored old vectors, and also learns from pairs without a label.

    Args:
        unlabelled: Whether some pairs have no label; only then does "two-step, free" differ.
        as_it_is: Whether the old gallery must not be changed.
    """
    if not installed("train"):
        return {}
    heads = {
        "p2s": Experiment(method="p2s", recipe=HEAD_RECIPE),
        "p2s, two layers": Experiment(method="p2s", model=EncoderSpec(projection="mlp"), recipe=HEAD_RECIPE),
    }
    if as_it_is:
        for name, projection in (("one side", "linear"), ("one side, two layers", "mlp")):
            heads[name] = Experiment(
                method="one_side", model=EncoderSpec(projection=projection), head="normalised",
                head_options={"temperature": 1 / 6}, recipe=HEAD_RECIPE,
            )  # fmt: skip
        return heads
    staying: dict[str, tuple[str, dict[str, Any]]] = {"two-step": ("keep", {}), "both sides": ("both_sides", {})}
    if unlabelled:
        staying["two-step, free"] = "keep", {"weight": 0.0}
    for name, (method, options) in staying.items():
        heads[name] = Experiment(
            method=method, method_options=options, model=EncoderSpec(projection="residual"), head="normalised",
            head_options={"temperature": 1 / 6}, recipe=dataclasses.replace(HEAD_RECIPE, schedule="constant"),
        )  # fmt: skip
    return heads


@dataclass(frozen=True)
class Choice:
    """Candidates to compare.

    Args:
        adapters: Unique names from `ADAPTERS`.
        heads: Experiment of every head, by name; compared if there are labels. With the recipe `HEAD_RECIPE`, batches
            are smaller for few items, and some methods use a lower rate for wide vectors (`head_recipe`).
        direction: What is mapped: the new queries, the old gallery, or each in turn. If only queries are mapped, heads
            that map the old gallery are left out.
        usual: Whether these are the default candidates; those left out because an extra is missing are then reported.
    """

    adapters: Sequence[str] = field(default_factory=lambda: fittable_adapters())
    adapter_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    heads: Mapping[str, Experiment] = field(default_factory=usual_heads)
    direction: Directions = "both"
    usual: bool = False

    def __post_init__(self) -> None:
        for name in self.adapters:
            if name not in ADAPTERS:
                raise ADAPTERS.unknown(name)
            require(f"Fitting the adapter '{name}'", ADAPTERS[name].extra, or_else="compare others")
        refuse(len(set(self.adapters)) < len(self.adapters), f"The adapters {', '.join(self.adapters)}.", "each once")
        refuse(not self.adapters and not self.heads, "Nothing to compare.", "an adapter or a method for a head")
        self._refuse_lost_options()
        for name in self.directed():
            self.build(name)
        for head in self.heads.values():
            build_method(head.method, head.method_options)

    def _refuse_lost_options(self) -> None:
        for name, options in self.adapter_options.items():
            if name not in self.adapters:
                raise unknown_name("adapter in the options", name, self.adapters)
            refuse(
                "direction" in options,
                f"The adapter '{name}' was given direction={options.get('direction')}.",
                "one direction for all adapters: the choice's own (--direction)",
            )

    def directed(self) -> dict[str, tuple[str, Direction]]:
        """Return the adapter and its direction by the name of the candidate."""
        names: dict[str, tuple[str, Direction]] = {}
        for direction, remark in DIRECTIONS.items():
            if self.direction in ("both", direction):
                names |= {f"{name}{remark}": (name, direction) for name in self.adapters}
        return names

    def fitting_heads(self) -> dict[str, Experiment]:
        """Return all heads or, if only queries are mapped, those that do not change the old gallery."""
        return {name: one for name, one in self.heads.items() if self.direction != "new_to_old" or not _stays(one)}

    @property
    def tested(self) -> Direction:
        """The direction in which pairs are tested."""
        return "old_to_new" if self.direction == "old_to_new" else "new_to_old"

    def build(self, candidate: str) -> Adapter:
        """Return an unfitted adapter by the name of its candidate."""
        name, direction = self.directed()[candidate]
        return build_adapter(name, {**self.adapter_options.get(name, {}), "direction": direction})


@dataclass(frozen=True, repr=False)
class Adapted(Charted):
    """The comparison of links between two models, and a recommendation.

    Args:
        suspects: Estimated share of pairs of different items.
        curve: Quality of the recommended or best candidate by number of pairs.
        score_map: Map from old scores to those of that candidate; None if the scores are unrelated.
        two_stage: Two-stage search without a fit: old candidates, re-scored by the new model.
    """

    held_out: HeldOut
    suspects: SuspectPairs
    comparison: Comparison
    recommendation: Recommendation
    curve: LearningCurve | None
    score_map: FittedScoreMap | None
    sentences: tuple[str, ...]
    two_stage: TwoStage

    @property
    def thresholds(self) -> Thresholds | None:
        """Thresholds on old scores, mapped to the scores of that candidate."""
        return None if self.score_map is None else self.score_map.thresholds

    @property
    def followed(self) -> str | None:
        """Name of the candidate of the learning curve and the score map; None if all failed."""
        return _followed(self.comparison, self.recommendation)


def fittable_adapters() -> tuple[str, ...]:
    """Return the names of the adapters that can be fitted with the installed extras; `left_out` lists the others."""
    return tuple(name for name, one in ADAPTERS.items() if one.extra is None or installed(one.extra))


def suitable_adapters(old: EmbeddingSet, new: EmbeddingSet) -> tuple[str, ...]:
    """Return the `fittable_adapters` that support the dimensions of two models."""
    return tuple(name for name in fittable_adapters() if old.dim == new.dim or not ADAPTERS[name].equal_dimensions)


def left_out(labelled: bool) -> tuple[str, ...]:
    """Return one sentence per missing extra about the candidates that it would add.

    Args:
        labelled: Whether items have labels, which heads need.
    """
    absent: dict[str, list[str]] = {}
    for name, adapter in ADAPTERS.items():
        if adapter.extra is not None and not installed(adapter.extra):
            absent.setdefault(adapter.extra, []).append(name)
    if labelled and not installed("train"):
        absent.setdefault("train", []).append("heads")
    return tuple(
        f"Not compared: {', '.join(names)}. They require an extra: {installing(extra)} in the checkout of limpet."
        for extra, names in absent.items()
    )


@showing("training")
def adapt(
    old: EmbeddingSet,
    new: EmbeddingSet,
    choice: Choice | None = None,
    *,
    unseen_share: float | None = None,
    unlabelled: Sequence[str] = (),
    unseen_pairs: bool | None = None,
    judged: Judged | None = None,
    guards: Sequence[str] | None = None,
    resamples: int = 2000,
    resample: Resampled = "auto",
    curve: bool = True,
    seed: int = 0,
    on_fit: OnFit | None = None,
    progress: Progress[TrainingStep] = None,
) -> Adapted:
    """Compare adapters and heads that let a new model's queries search old vectors, and recommend one.

    Candidates, learning curve and score map are measured on pairs that no fit has seen (see `hold_out`). `save_link`
    fits the recommended candidate on all pairs.

    Args:
        old: Embeddings of the old model.
        new: Embeddings of the same items by the new model, paired by id; labels may come with either set.
        choice: What to compare. Default: every adapter that suits the dimensions and, with labels, four heads.
        unseen_share: Share of the classes that is held out from all fitting. Default: the share of items without a
            label that seem to belong to new classes (`uncovered_share`), or a tenth.
        unlabelled: Class names that mean "class unknown"; see `hold_out`.
        unseen_pairs: Whether items of unseen classes are used for fitting without their labels; see `hold_out`.
            Default: if there are other items without a label.
        judged: Queries with judged answers. They measure nDCG@10 among all items, which may all be used for fitting.
            Default: held-out items search each other.
        guards: Metrics at which a recommended candidate must not be clearly worse; see `measure`.
        resamples: Number of bootstrap resamples.
        resample: Draw "queries", or whole "classes"; "auto" draws classes if there are labels.
        curve: Whether to measure how many pairs are needed; this fits one candidate several times.
        seed: Random seed of the split, the draws and the training of heads; adapters have a seed of their own.
        on_fit: Callback after every candidate; see `measure`.
        progress: "rich" or "tqdm" for a bar, or a function that is called with every `TrainingStep` of
            a head's training.

    Raises:
        ConfigError: The choice is not possible, such as heads alone without labels.
        DataError: Too few pairs are given, both sets are of one model, or labels contradict each other.
        EmptyOverlapError: No id occurs in both sets.
        SpaceMismatchError: A set is not on the hypersphere.
    """
    check_given(old=old, new=new)
    unasked = left_out(old.labels is not None or new.labels is not None) if choice is None or choice.usual else ()
    choice = choice or Choice(suitable_adapters(old, new), heads=usual_heads(bool(unlabelled) or bool(unseen_pairs)))
    direction = choice.tested
    refuse_lengths(old, new, "adapters and heads read")
    refuse_one_model(old, new)
    pairs = matched(old, new, direction=direction, minimum=FEWEST_TESTED)
    told: tuple[str, ...] = ()
    if judged is not None:
        useless = unseen_share is not None or unseen_pairs is not None
        refuse(useless, "A share of unseen classes, with judged queries.", "one of the two: judged queries measure")
        held_out = asked_by(judged, old, new, unlabelled)
        absent = len(judged.relevance.pairs) - judged.relevance.known_pairs(judged.old, held_out.old)
        told = (f"{absent:,} judgements are left out: of queries or items that not both models embedded.",) * bool(
            absent
        )
    else:
        if unseen_share is None:
            unseen_share, told = _unseen_share(old, new, unlabelled, seed)
        split = partial(
            hold_out, old, new, unseen_share=unseen_share, unlabelled=unlabelled,
            unseen_pairs=bool(unlabelled) if unseen_pairs is None else unseen_pairs,
        )  # fmt: skip
        held_out = split(seed=seed)
    suspects, trusted = suspect_pairs(old, new, direction=direction, seed=seed), None
    if suspects.low > DOUBTED:
        fitted = all_pairs(held_out.fit_old, held_out.fit_new, held_out.unlabelled)
        trusted = without_doubtful(*fitted, direction=direction, seed=seed)[0].ids
        told += (f"Adapters are fitted on {len(trusted):,} of {len(fitted[0]):,} pairs; the others are likely wrong.",)
    with tempfile.TemporaryDirectory(prefix="limpet-") as folder:
        candidates = [
            _fitted_once(one, held_out)
            for one in candidates_of(choice, held_out.labelled, Path(folder), seed, listener(progress), trusted)
        ]
        draws: dict[str, Any] = {"resamples": resamples, "resample": resample, "seed": seed}
        comparison = measure(candidates, held_out, guards=guards, on_fit=on_fit, **draws)
        recommendation = recommend(comparison, suspects)
        if trusted is None and judged is None and _left_open(comparison, recommendation):
            further = [split(seed=seed + number) for number in range(1, SPLITS)]
            comparison = measure(candidates, held_out, guards=guards, further=further, on_fit=on_fit, **draws)
            recommendation = recommend(comparison, suspects)
            told += (
                f"{len(held_out.old)} held-out items left open what helps, so the pairs were split {SPLITS} times, and "
                "candidates measured on all splits; two-stage search and the learning curve are of the first.",
            )
        name = _followed(comparison, recommendation)
        followed = next((one for one in candidates if one.name == name), None)
        return Adapted(
            held_out=held_out,
            suspects=suspects,
            comparison=comparison,
            recommendation=recommendation,
            curve=learning_curve(followed, held_out, **draws) if followed and curve else None,
            score_map=score_map_of(followed.fit(*held_out.all_to_fit), held_out, seed) if followed else None,
            sentences=(*pairs.report.sentences(), *told, *unasked),
            two_stage=two_stage(held_out, **draws),
        )


def _left_open(comparison: Comparison, recommendation: Recommendation) -> bool:
    """Return whether the gain of a candidate is inconclusive and further splits of the few labelled items may help.

    Splits share items, so intervals over all splits require that whole classes are drawn.
    """
    best, by_class = comparison.best, comparison.draws.clusters is not None
    few = comparison.held_out < FEW_HELD_OUT and not comparison.provisional and by_class
    return few and recommendation.candidate is None and best is not None and best.cross_minus_self_old.mean > 0


def _fitted_once(candidate: Candidate, held_out: HeldOut) -> Candidate:
    links: list[FittedLink] = []

    def fit(old: EmbeddingSet, new: EmbeddingSet, unlabelled: Unlabelled) -> FittedLink:
        if old is not held_out.fit_old:
            return candidate.fit(old, new, unlabelled)
        if not links:
            links.append(candidate.fit(old, new, unlabelled))
        return links[0]

    return dataclasses.replace(candidate, fit=fit)


def _unseen_share(
    old: EmbeddingSet, new: EmbeddingSet, unlabelled: Sequence[str], seed: int
) -> tuple[float, tuple[str, ...]]:
    """Return the default share of the classes to exclude from fitting, and a sentence on why."""
    known, rest = apart(*paired(old, new), unlabelled)[1:]
    if rest is None:
        return UNSEEN_SHARE, ()
    share, count = uncovered_share(known, rest[1], seed), len(rest[1])
    return share * count / (len(known) + count), (
        f"About {whole_percent(share)} of the {count:,} items without a label seem to be of classes that no label "
        "covers; as many classes are kept from fitting (--unseen-share).",
    )


def candidates_of(
    choice: Choice,
    labelled: bool,
    folder: Path,
    seed: int = 0,
    progress: Callable[[TrainingStep], object] | None = None,
    trusted: StringArray | None = None,
) -> list[Candidate]:
    """Return the candidates to fit and measure, adapters first.

    Raises:
        ConfigError: Only heads are chosen, and no labels are given.
    """
    if not labelled and not choice.adapters:
        raise ConfigError(
            f"Heads ({', '.join(choice.heads)}) for items without labels.",
            expected="labels with either side; adapters need none",
            to_do="give labels, or leave out --method.",
        )

    def adapter(name: str, old: EmbeddingSet, new: EmbeddingSet, unlabelled: Unlabelled) -> FittedLink:
        old, new = all_pairs(old, new, unlabelled)
        if trusted is not None:
            old, new = (one[trusted.find(one.ids) >= 0] for one in (old, new))
        return FittedLink.of_adapter(choice.build(name).fit(old, new))

    def head(experiment: Experiment, old: EmbeddingSet, new: EmbeddingSet, unlabelled: Unlabelled) -> FittedLink:
        from limpet.training.compatible_head import train_head

        place, how = Path(tempfile.mkdtemp(dir=folder)), _for_vectors(experiment, new, seed)
        return link_of_head(train_head(old, new, how, place, unlabelled=unlabelled, progress=progress))

    directed = choice.directed().items()
    candidates = [Candidate(name, "adapter", partial(adapter, name), direction) for name, (_, direction) in directed]
    if labelled:
        candidates += [
            Candidate(HEAD + name, "head", partial(head, one), "old_to_new" if _stays(one) else None)
            for name, one in choice.fitting_heads().items()
        ]
    return candidates


def _stays(head: Experiment) -> bool:
    return build_method(head.method, head.method_options).stays


def _for_vectors(experiment: Experiment, new: EmbeddingSet, seed: int) -> Experiment:
    """Return the experiment of a head for these vectors: the default recipe depends on their number and dimension."""
    recipe = experiment.recipe
    if dataclasses.replace(recipe, schedule=HEAD_RECIPE.schedule).decides() == HEAD_RECIPE.decides():
        slower = build_method(experiment.method, experiment.method_options).slower_when_wide
        usual = head_recipe(len(new), new.dim if slower else 0)
        recipe = dataclasses.replace(recipe, batch_size=usual.batch_size, learning_rate=usual.learning_rate)
    return dataclasses.replace(experiment, recipe=recipe, seed=seed)


def link_of_head(head: CompatibleHead) -> FittedLink:
    """Return the link of a trained head; after a full backfill, the gallery holds the head's own embeddings."""
    return FittedLink(query=head.query, gallery=head.gallery, own=head.query)


@showing("training")
def save_link(
    name: str,
    old: EmbeddingSet,
    new: EmbeddingSet,
    choice: Choice,
    folder: Path,
    *,
    unlabelled: Sequence[str] = (),
    frozen_model: FrozenModel | None = None,
    data_name: str = "",
    seed: int = 0,
    progress: Progress[TrainingStep] = None,
) -> Path:
    """Fit a candidate on all pairs and save it: an adapter below ``adapter``, a head below ``head``.

    Args:
        name: Name of the candidate, as in the comparison.
        old: All embeddings of the old model.
        new: All embeddings of the new model.
        choice: The compared candidates.
        folder: Output folder.
        unlabelled: Class names that mean "no label".
        frozen_model: How to reopen the new model, for the record of a head.
        data_name: Name of the data, for the record of a head.
        seed: Random seed for the training of a head.
        progress: "rich" or "tqdm" for a bar, or a function that is called with every `TrainingStep` of a head.

    Returns:
        The folder of the saved adapter or head.

    Raises:
        ConfigError: No candidate has this name.
        ReleaseError: The folder holds something else, or cannot be written.
    """
    old, new, rest = apart(*paired(old, new), unlabelled)  # as in the measured fits
    if name in choice.directed():
        old, new = without_doubtful(*all_pairs(old, new, rest), direction=choice.tested, seed=seed)
        return save_adapter(choice.build(name).fit(old, new), folder / "adapter")
    heads = [HEAD + method for method in choice.fitting_heads()]
    if name not in heads:
        raise unknown_name("candidate", name, [*choice.directed(), *heads])
    experiment = _for_vectors(choice.heads[name.removeprefix(HEAD)], new, seed)
    from limpet.training.compatible_head import train_head

    place = folder / "head"
    train_head(
        old, new, experiment, place, unlabelled=rest, frozen_model=frozen_model, data_name=data_name, progress=progress
    )  # fmt: skip
    return place


def _followed(comparison: Comparison, recommendation: Recommendation) -> str | None:
    best = comparison.best
    return recommendation.candidate or (best.name if best else None)


def open_link(folder: str | Path) -> FittedLink:
    """Open a link saved by `save_link`, an adapter or a head, as maps of `EmbeddingSet`s.

    Raises:
        ReleaseError: The folder holds no link, or the link was altered.
    """
    if (Path(folder) / ADAPTER_FILE).exists():
        return FittedLink.of_adapter(load_adapter(folder))
    with needing(f"Opening '{folder}', which holds no adapter and may hold a head,"):
        from limpet.training.compatible_head import load_head
    return link_of_head(load_head(Path(folder)))


_QUERIES = 1000  # at most
_NEAREST = 20  # nearest items of a query that both systems score
OTHERS = 20  # random items of a query that both systems score


@dataclass(frozen=True, eq=False)
class FittedScoreMap:
    """A map from old scores to those of a link, with the scored pairs that it was fitted on.

    Args:
        error: Error on queries that it was not fitted on.
        old_scores: Scores of the old system (P,).
        new_scores: Scores of the same pairs of query and item through the link (P,).
        queries: Query of every pair (P,).
        thresholds: Mapped thresholds on old scores, from all pairs of these queries; None if there are too few.
    """

    score_map: ScoreMap
    error: ScoreMapError
    old_scores: NDArray[np.float64]
    new_scores: NDArray[np.float64]
    queries: NDArray[np.int64]
    thresholds: Thresholds | None = None


def score_map_of(link: FittedLink, held_out: HeldOut, seed: int = 0) -> FittedScoreMap | None:
    """Map the old system's scores to those of new queries through a link on the old gallery.

    At most 1,000 held-out items, or judged queries, are each paired with the 20 items that the old system ranks first
    and with 20 random ones; both systems score the same pairs. The error is cross-validated over whole queries.
    Thresholds are measured on all pairs of these queries.

    Returns:
        None if all old scores are equal, or scores through the link do not increase with them.
    """
    rng = np.random.default_rng(seed)
    old, new = held_out.asking
    rows = np.sort(rng.permutation(len(old))[:_QUERIES])
    before = _similarities(old[rows], held_out.old)
    if held_out.judged is None:
        before[np.arange(len(rows)), rows] = np.nan  # an item does not find itself
    items = _scored_items(before, rng)
    after = _similarities(link.query(new[rows]), link.gallery(held_out.old))
    relevant, thresholds = _relevant(rows, held_out), None
    with suppress(DataError):
        thresholds = Thresholds.of(
            before, np.where(np.isnan(before), np.nan, after), None if relevant is None else (relevant, relevant),
            seed=seed,
        )  # fmt: skip
    queries = np.repeat(np.arange(len(rows)), items.shape[1])
    old_scores, new_scores = (np.take_along_axis(one, items, axis=1).ravel() for one in (before, after))
    try:
        score_map = ScoreMap.fit(old_scores, new_scores)
        error = score_map.error_of(old_scores, new_scores, queries=queries, seed=seed)
    except DataError:
        return None
    return FittedScoreMap(score_map, error, old_scores, new_scores, queries, thresholds)


def _relevant(rows: NDArray[np.int64], held_out: HeldOut) -> NDArray[np.bool_] | None:
    """Return which items are relevant to the queries in these rows (Q, N); None if unknown."""
    if held_out.judged is None:
        labels = held_out.old.labels
        return None if labels is None else labels[rows][:, None] == labels
    relevant = np.zeros((len(rows), len(held_out.old)), bool)
    answers = held_out.judged.relevance.answers(held_out.judged.old, held_out.old).relevant
    for place, row in enumerate(rows.tolist()):
        relevant[place, answers[row]] = True
    return relevant


def _similarities(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.float64]:
    similarity = query.space.similarity_array(_points(query), _points(gallery))
    return similarity.astype(np.float32).astype(np.float64)  # rounded, so that equal pairs tie in any position


def _points(embeddings: EmbeddingSet) -> NDArray[np.float64]:
    """Return points as float64, normalised for the cosine, which must not depend on lengths."""
    vectors, space = np.asarray(embeddings.vectors, np.float64), embeddings.space
    return space.project_array(vectors) if embeddings.form == "features" else space.canonical_array(vectors)


def _scored_items(scores: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the items to score for every query (Q, up to 40): its nearest items, and random ones."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : scores.shape[1] - 1]  # NaN, the query itself, is last
    nearest = order[:, :_NEAREST]
    rest = order[:, _NEAREST:]
    if not rest.shape[1]:
        return nearest
    drawn = rng.integers(rest.shape[1], size=(len(scores), min(OTHERS, rest.shape[1])))
    return np.concatenate([nearest, np.take_along_axis(rest, drawn, axis=1)], axis=1)
