"""Links that let queries of one model search vectors of another: a report on the two, or an adapter between them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limpet.engines.store import Store, digest_of
from limpet.errors import ConfigError, GalleryError, SpaceMismatchError
from limpet.galleries.router import RoutedGeneration
from limpet.galleries.state import GalleryState, Generation, Link
from limpet.geometry import Space

if TYPE_CHECKING:
    from limpet.adapters import Adapter
    from limpet.adapters.score_map import ScoreMap
    from limpet.evaluation.ranking.cohort import Cohort
    from limpet.evaluation.ranking.merging import ScoreScale
    from limpet.evaluation.results import Evaluation, EvaluationResults, System
    from limpet.results import ModelIdentity

_LOADED = 16  # adapters and score maps that a process caches
_SYSTEMS: tuple[System, ...] = ("self_old", "self_new", "cross")
_NEXT = "measure it: `limpet evaluate --old … --new …` writes results.json."


def link_from_report(path: Path, query: Generation, gallery: Generation) -> Link:
    """Return the link that a report of `limpet evaluate` permits from queries of one model to the vectors of another.

    A new model passes on old vectors with the verdict "compatible". It does not pass if it is better in one metric and
    clearly worse in another guarded one, or better only on queries that it was trained on. For a rollback, old queries
    on new vectors, the report must be one with the models exchanged; they pass if they find at least what they find in
    their own gallery.

    Raises:
        GalleryError: The file is no such report, it is about other models, or it finds them incompatible.
    """
    from limpet.evaluation.compatibility import TRAINED_SHARE

    evaluation = _evaluation_in(path, query, gallery)
    metric, worse = evaluation.gate_metric, evaluation.clearly_worse()
    scores: dict[str, float | None] = {system: evaluation.score(system) for system in _SYSTEMS}
    verdict = "mixed" if evaluation.verdict == "compatible" and worse else evaluation.verdict
    trained = evaluation.trained_on.get("new")
    counted = {} if trained is None else {f"trained on {side}": count for side, count in trained.to_dict().items()}
    evidence = {"metric": metric, "verdict": verdict, **scores, **counted}
    backwards = _number(query) < _number(gallery)
    cross, own = scores["cross"], scores["self_new"]
    held_out = (evaluation.trained_share or 0) <= TRAINED_SHARE
    reached = held_out and cross is not None and own is not None and cross >= own
    if not (verdict == "compatible" or (backwards and reached)):
        shown = ", ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None) or "no scores"
        lost = "".join(
            f"; clearly worse in {name}: {_written(evaluation.score('self_old', name))} with old queries, "
            f"{_written(evaluation.score('cross', name))} with new ones"
            for name in worse
        )
        again = {
            "mixed": "evaluate again with --guard and the metrics that count, ",
            "not held out": "evaluate again with queries that the new model was not trained on, ",
        }.get(verdict, "")
        if trained is not None and not held_out:
            lost += f"; the model was trained on {trained.queries:,} of {evaluation.protocol.queries:,} queries"
        raise GalleryError(
            f"'{path}' says that queries of {query.name} on vectors of {gallery.name} are "
            f"{'compatible in' if verdict == 'mixed' else verdict + ' in'} {metric} ({shown}){lost}.",
            expected="a report that they may",
            to_do=f"{again}fill the new generation before the swap, or force it with a reason that is recorded "
            "(--force REASON).",
        )
    return Link(query.name, gallery.name, "report", str(path), evidence)


def _number(generation: Generation) -> int:
    return int(generation.name.lstrip("g"))


def _written(score: float | None) -> str:
    return "no score" if score is None else f"{score:.3f}"


def _evaluation_in(path: Path, query: Generation, gallery: Generation) -> Evaluation:
    from limpet.evaluation.results import EvaluationResults

    try:
        results = EvaluationResults.load(path)
    except ConfigError as error:
        raise GalleryError(
            f"'{path}' is no compatibility report: {error.given}", expected="results.json of an evaluation", to_do=_NEXT
        ) from error
    evaluation = next(_about(results, query, gallery), None)
    if evaluation is None:
        about = {model: results.first.fingerprints.get(model) for model in ("new", "old")}
        named = [fingerprint.removeprefix("declared:") for fingerprint in (gallery.fingerprint, query.fingerprint)
                 if fingerprint.startswith("declared:")]  # fmt: skip
        raise GalleryError(
            f"'{path}' is about other models: queries of {_fingerprint(about['new'])} on a gallery of "
            f"{_fingerprint(about['old'])}.",
            expected=f"queries of {query.fingerprint} on a gallery of {gallery.fingerprint}",
            to_do=_NEXT
            if len(named) < 2
            else f"say whose vectors these are and measure again: `limpet evaluate "
            f"--old … --new … --old-name {shlex.quote(named[0])} --new-name {shlex.quote(named[1])}`.",
        )
    return evaluation


def _fingerprint(model: ModelIdentity | None) -> str:
    return "none" if model is None else model.fingerprint


def _about(results: EvaluationResults, query: Generation, gallery: Generation) -> Iterator[Evaluation]:
    for evaluation in results.evaluations.values():
        old, new = (evaluation.fingerprints.get(model) for model in ("old", "new"))
        mapped = evaluation.mapped or {}
        own = new is not None and new.fingerprint == query.fingerprint and "query" not in mapped
        if own and gallery.fingerprint == (mapped.get("gallery") or (old and old.fingerprint)):
            yield evaluation


@dataclass(frozen=True)
class Bridge:
    """An adapter between the active generation and a new model.

    Args:
        origin: Display name of its source.
        mapped: The generation of mapped vectors; None if the adapter maps queries.
        score_map: Digest of the accompanying map of scores, if there is one.
    """

    origin: str
    old: Generation
    mapped: Generation | None
    adapter: str
    score_map: str | None
    files: Mapping[str, bytes]

    @classmethod
    def of(
        cls,
        state: GalleryState,
        adapter: Path | Adapter,
        score_map: Path | ScoreMap | Cohort | None,
        fingerprint: str,
        space: Space,
    ) -> Bridge:
        """Check that an adapter is between the active generation and a new model, and return its bridge.

        Raises:
            ConfigError: The adapter is between other models.
            SpaceMismatchError: The adapter is between other spaces.
        """
        from limpet.adapters.score_map import load_score_map
        from limpet.adapters.storage import load_adapter, pack_adapter

        given = load_adapter(adapter) if isinstance(adapter, Path) else adapter
        origin, name = (str(adapter.resolve()), adapter.name) if isinstance(adapter, Path) else (given.kind, given.kind)
        old = state.by_name[state.active]
        _refuse_others(given, f"The adapter '{origin}'", old, fingerprint, space)
        content = pack_adapter(given)
        files = {(digest := digest_of(content)): content}
        if given.direction == "old_to_new":
            mapped = Generation(
                name=f"g{state.created + 1}",
                fingerprint=given.mapped_fingerprint,
                space=given.fitted.target_space.record(),
                mapped_from=old.name,
                adapter=digest,
                note=f"{old.name} mapped by '{name}'",
            )
            return cls(origin, old, mapped, digest, None, files)
        if score_map is None:
            return cls(origin, old, None, digest, None, files)
        scores = packed_scores(load_score_map(score_map) if isinstance(score_map, Path) else score_map)
        return cls(origin, old, None, digest, digest_of(scores), {**files, digest_of(scores): scores})

    def link(self, new: str) -> Link:
        """Return the link that the adapter permits to queries of the new model's generation."""
        if self.mapped is not None:
            return Link(new, self.mapped.name, "mapped", self.origin)
        return Link(new, self.old.name, "adapter", self.origin, adapter=self.adapter, score_map=self.score_map)


def _refuse_others(adapter: Adapter, what: str, old: Generation, fingerprint: str, space: Space) -> None:
    """Refuse an adapter between other models or spaces than those of a generation and a new model."""
    fitted, ends = adapter.fitted, (old.fingerprint, fingerprint)
    if (fitted.source, fitted.target) not in (ends, ends[::-1]):
        raise ConfigError(
            f"{what} maps {fitted.source} to {fitted.target}.",
            expected=f"one between {old.fingerprint} and {fingerprint}",
            to_do="fit one for these two: `limpet adapt --old A --new B`.",
        )
    spaces = (fitted.source_space, fitted.target_space)
    expected = (old.geometry, space) if adapter.direction == "old_to_new" else (space, old.geometry)
    if spaces != expected:
        raise SpaceMismatchError(
            f"{what} maps from the {spaces[0]} to the {spaces[1]}.",
            expected=f"one from the {expected[0]} to the {expected[1]}",
            to_do="fit it on the points that the gallery holds.",
            intact="The gallery is intact.",
        )


class Files:
    """Adapters, score maps and cohorts of a gallery, each read once; the content of a digest never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loaded: dict[tuple[Callable[[Store, str], Any], str], Any] = {}

    def adapter(self, name: str) -> Adapter:
        """Return an adapter that the state names."""
        adapter: Adapter = self._once(read_adapter, name)
        return adapter

    def scores(self, name: str) -> ScoreMap | Cohort:
        """Return the score map or the cohort that the state names."""
        scores: ScoreMap | Cohort = self._once(read_scores, name)
        return scores

    def scales(self, asked: Sequence[tuple[RoutedGeneration, NDArray[np.float32]]]) -> dict[str, Sequence[ScoreScale]]:
        """Return the scales that convert scores of sources to those of the queries' own vectors, if there are any.

        Args:
            asked: Sources and the queries as each is searched (Q, D), the queries' own first.

        Returns:
            One scale per query, by generation.
        """
        scales: dict[str, Sequence[ScoreScale]] = {}
        for source, form in asked:
            if source.link is not None and source.link.score_map is not None:
                from limpet.evaluation.ranking.cohort import Cohort

                scores = self.scores(source.link.score_map)
                own = asked[0][1]
                scales[source.generation] = (
                    scores.lines(own, form) if isinstance(scores, Cohort) else [scores] * len(form)
                )
        return scales

    def _once(self, read: Callable[[Store, str], Any], name: str) -> Any:
        loaded = self._loaded.get((read, name))
        if loaded is None:
            if len(self._loaded) >= _LOADED:
                self._loaded.clear()
            loaded = self._loaded[read, name] = read(self._store, name)
        return loaded


def read_adapter(store: Store, name: str) -> Adapter:
    """Read an adapter that a state names.

    Raises:
        GalleryError: The gallery does not have it.
        ReleaseError: The adapter was modified.
    """
    from limpet.adapters.storage import unpack_adapter

    return unpack_adapter(store.file(name), name)


def read_scores(store: Store, name: str) -> ScoreMap | Cohort:
    """Read the score map or the cohort that a state names.

    Raises:
        GalleryError: The gallery does not have it.
        DataError: The file is neither.
    """
    from limpet.adapters.score_map import unpack_score_map
    from limpet.evaluation.ranking.cohort import is_cohort, unpack_cohort

    content = store.file(name)
    return unpack_cohort(content, name) if is_cohort(content) else unpack_score_map(content, name)


def packed_scores(scores: ScoreMap | Cohort) -> bytes:
    """Return a score map or a cohort as bytes; equal objects give equal bytes."""
    from limpet.adapters.score_map import ScoreMap, pack_score_map
    from limpet.evaluation.ranking.cohort import pack_cohort

    return pack_score_map(scores) if isinstance(scores, ScoreMap) else pack_cohort(scores)
