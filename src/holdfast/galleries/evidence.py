"""What a compatibility report says of two models, as the reason for a link between two generations."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError, GalleryError
from holdfast.galleries.state import Generation, Link

if TYPE_CHECKING:
    from holdfast.evaluation.results import Evaluation, EvaluationResults, System
    from holdfast.results import ModelIdentity

_SYSTEMS: tuple[System, ...] = ("self_old", "self_new", "cross")
_NEXT = "measure it: `holdfast evaluate --old … --new …` writes results.json; the gallery is intact."


def link_from_report(path: Path, query: Generation, gallery: Generation) -> Link:
    """Return the link that a report of `holdfast evaluate` gives to queries of one model on the vectors of another.

    A new model passes on old vectors with the verdict "compatible"; better in one metric and clearly worse in another
    that is guarded is not enough. For the way back, old queries on new vectors, the report is one of the exchanged
    models, and they pass if they find at least what they find in their own gallery.

    Args:
        path: results.json, or its folder.
        query: Generation whose model embeds the queries.
        gallery: Generation whose vectors they are to search.

    Raises:
        GalleryError: It is no such report, it is about other models, or it says that they are not compatible.
    """
    evaluation = _evaluation_in(path, query, gallery)
    metric, worse = evaluation.gate_metric, evaluation.clearly_worse()
    scores: dict[str, float | None] = {system: evaluation.score(system) for system in _SYSTEMS}
    verdict = "mixed" if evaluation.verdict == "compatible" and worse else evaluation.verdict
    evidence = {"metric": metric, "verdict": verdict, **scores}
    backwards = _number(query) < _number(gallery)
    cross, own = scores["cross"], scores["self_new"]
    reached = cross is not None and own is not None and cross >= own
    if not (verdict == "compatible" or (backwards and reached)):
        lost = "".join(f"; clearly worse in {name}: {_change(evaluation, name)}" for name in worse)
        guards = "evaluate again with --guard and the metrics that count, " if verdict == "mixed" else ""
        raise GalleryError(
            f"'{path}' says that queries of {query.name} on vectors of {gallery.name} are "
            f"{'compatible in' if verdict == 'mixed' else verdict + ' in'} {metric} ({_shown(scores)}){lost}.",
            expected="a report that they may",
            to_do=f"{guards}fill the new generation before the swap, or force it with a reason that is recorded "
            "(--force REASON); the gallery is intact.",
        )
    return Link(query.name, gallery.name, "report", str(path), evidence)


def _number(generation: Generation) -> int:
    return int(generation.name.lstrip("g"))


def _change(evaluation: Evaluation, metric: str) -> str:
    old, cross = evaluation.score("self_old", metric), evaluation.score("cross", metric)
    return f"{_written(old)} with old queries, {_written(cross)} with new ones"


def _written(score: float | None) -> str:
    return "no score" if score is None else f"{score:.3f}"


def _shown(scores: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None) or "no scores"


def _evaluation_in(path: Path, query: Generation, gallery: Generation) -> Evaluation:
    from holdfast.evaluation.results import EvaluationResults

    try:
        results = EvaluationResults.load(path)
    except ConfigError as error:
        raise GalleryError(
            f"'{path}' is no compatibility report: {error.given}", expected="results.json of an evaluation", to_do=_NEXT
        ) from error
    found = next(_about(results, query, gallery), None)
    if found is None:
        about = {model: results.first.fingerprints.get(model) for model in ("new", "old")}
        named = [fingerprint.removeprefix("declared:") for fingerprint in (gallery.fingerprint, query.fingerprint)
                 if fingerprint.startswith("declared:")]  # fmt: skip
        raise GalleryError(
            f"'{path}' is about other models: queries of {_fingerprint(about['new'])} on a gallery of "
            f"{_fingerprint(about['old'])}.",
            expected=f"queries of {query.fingerprint} on a gallery of {gallery.fingerprint}",
            to_do=_NEXT
            if len(named) < 2
            else f"say whose vectors these are and measure again: `holdfast evaluate "
            f"--old … --new … --old-model {shlex.quote(named[0])} --new-model {shlex.quote(named[1])}`; the gallery is "
            "intact.",
        )
    return found


def _fingerprint(model: ModelIdentity | None) -> str:
    return "none" if model is None else model.fingerprint


def _about(results: EvaluationResults, query: Generation, gallery: Generation) -> Iterator[Evaluation]:
    """Yield what was measured of queries of one model, as they are, on vectors of the other, mapped or not."""
    for evaluation in results.evaluations.values():
        old, new = (evaluation.fingerprints.get(model) for model in ("old", "new"))
        mapped = evaluation.mapped or {}
        own = new is not None and new.fingerprint == query.fingerprint and "query" not in mapped
        if own and gallery.fingerprint == (mapped.get("gallery") or (old and old.fingerprint)):
            yield evaluation
