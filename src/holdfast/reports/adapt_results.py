"""The results document of adapters and heads compared: checked, written to and read from results.json, as a table.

What it holds is measured by `holdfast adapt`; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from holdfast.adapters import ScoreMap
from holdfast.reports.adapt_schema import AdaptSchema
from holdfast.reports.document_kind import DocumentKind
from holdfast.reports.formats import MISSING, interval, metric_name, percent, plain_text, score, signed
from holdfast.reports.results import versions
from holdfast.reports.svg import Scale
from holdfast.reports.tables import Table

SCHEMA_VERSION = 1
OLD, REEMBEDDED = "old model as it is", "everything re-embedded"

Document = dict[str, Any]
Candidate = Mapping[str, Any]  # one entry of "candidates"
Mean = Mapping[str, Any]  # a mean with its interval
Disagreement = tuple[str, Any, str]  # a place, what it is, and what another part asks for

_WHERE, _AGAIN = "These results of adapters", "run “holdfast adapt”"
_MEASURED = ("cross", "cross_minus_self_old", "self_new_minus_cross")  # of every candidate that did not fail
_KIND_OF = {"adapt": "adapter", "train a head": "head"}
_THRESHOLDS = 10  # about so many are read off a map


def adapt_document(found: Mapping[str, Any]) -> Document:
    """Return what was measured with the versions that measured it, checked.

    Raises:
        ConfigError: Something is missing, unknown, no finite number or out of range, or two parts do not agree.
    """
    return checked_adapt({**found, **versions()})


def _disagreements(document: Document) -> Iterator[Disagreement]:
    """Yield every part that contradicts another."""
    data, metric = document["data"], document["protocol"]["metric"]
    expected = "map" if data["labelled"] else "overlap@10"
    if metric != expected:
        yield "protocol.metric", f"'{metric}'", f"'{expected}', as data.labelled is {data['labelled']}"
    if (data["classes"] is None) == data["labelled"]:
        yield "data.classes", data["classes"], f"a number just where data.labelled is True, not {data['labelled']}"
    yield from _wrong_candidates(document)
    yield from _wrong_names(document)
    if document["learning_curve"]:
        yield from _wrong_curve(document["learning_curve"], document)
    if document["score_map"]:
        yield from _wrong_map(document["score_map"]["knots"])


ADAPT = DocumentKind(
    kind="adapt",
    version=SCHEMA_VERSION,
    schema=AdaptSchema,
    where=_WHERE,
    keys="the keys of “holdfast adapt”, and finite numbers",
    again=_AGAIN,
    disagreements=_disagreements,
)
checked_adapt, write_adapt, read_adapt = ADAPT.checked, ADAPT.write, ADAPT.read


def _wrong_candidates(document: Document) -> Iterator[Disagreement]:
    names = [candidate["name"] for candidate in document["candidates"]]
    for number, candidate in enumerate(document["candidates"]):
        if candidate["name"] in names[:number]:
            yield f"candidates.{number}.name", f"'{candidate['name']}' again", "a name of its own for each"
        for key in _MEASURED:
            if (candidate[key] is None) != (candidate["failed"] is not None):
                yield f"candidates.{number}.{key}", candidate[key], "none just where “failed” says why"
    for place, mean in _means(document):
        low, high = mean["interval"]
        if low > high:
            yield f"{place}.interval", [low, high], "the lower end first"


def _means(document: Document) -> Iterator[tuple[str, Mean]]:
    """Yield every mean with its interval, and its place."""
    for system, mean in document["systems"].items():
        yield f"systems.{system}", mean
    for number, candidate in enumerate(document["candidates"]):
        for key in (*_MEASURED, "own"):
            if candidate[key]:
                yield f"candidates.{number}.{key}", candidate[key]
    for number, point in enumerate((document["learning_curve"] or {"points": []})["points"]):
        yield f"learning_curve.points.{number}.cross", point["cross"]


def _wrong_names(document: Document) -> Iterator[Disagreement]:
    """Yield every name that is not that of a measured candidate of the right kind."""
    action = document["recommendation"]["action"]
    named = {
        "best": (document["best"], None),
        "best_adapter": (document["best_adapter"], "adapter"),
        "best_head": (document["best_head"], "head"),
        "recommendation.candidate": (document["recommendation"]["candidate"], _KIND_OF.get(action)),
    }
    for place, (name, kind) in named.items():
        fitting = [c["name"] for c in by_score(document) if not c["failed"] and kind in (None, c["kind"])]
        if name is not None and name not in fitting:
            what = f"measured {kind}s" if kind else "measured candidates"
            yield place, f"'{name}'", f"one of the {what}: {', '.join(fitting) or 'none'}"
    if action == "adapt" and document["recommendation"]["candidate"] is None:
        yield "recommendation.candidate", None, "the adapter that is recommended"


def _wrong_curve(curve: Mapping[str, Any], document: Document) -> Iterator[Disagreement]:
    names, pairs = [found["name"] for found in document["candidates"]], [point["pairs"] for point in curve["points"]]
    if curve["candidate"] not in names:
        yield "learning_curve.candidate", f"'{curve['candidate']}'", f"one of {', '.join(names)}"
    if any(a >= b for a, b in pairwise(pairs)):
        yield "learning_curve.points", f"at {pairs}", "numbers of pairs that rise"
    if curve["enough"] is not None and curve["enough"] not in pairs:
        yield "learning_curve.enough", curve["enough"], f"one of {', '.join(map(str, pairs))}, or none"


def _wrong_map(knots: list[list[float]]) -> Iterator[Disagreement]:
    for before, after in pairwise(knots):
        if before[0] >= after[0] or before[1] > after[1]:
            yield "score_map.knots", f"{before} before {after}", "old scores that rise, and new ones that do not fall"


def by_score(document: Mapping[str, Any]) -> list[Candidate]:
    """Return the candidates, the highest cross-test first; those that failed come last, in their order."""
    candidates: list[Candidate] = document["candidates"]
    return sorted(candidates, key=lambda found: -found["cross"]["mean"] if found["cross"] else 1.0)


def candidate_named(document: Mapping[str, Any], name: str) -> Candidate:
    """Return the candidate of a name."""
    return next(found for found in document["candidates"] if found["name"] == name)


def recommended(document: Mapping[str, Any]) -> str | None:
    """Return the candidate that is to be used; None where the recommendation is to do something else."""
    advised = document["recommendation"]
    return advised["candidate"] if advised["action"] in _KIND_OF else None


def thresholds(score_map: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return round old scores within the range of a map, each with the new score that stands for it.

    >>> [f"{old:g} {new:.2f}" for old, new in thresholds({"knots": [[0.55, 0.2], [0.65, 0.3], [0.75, 0.4]]})][1:4]
    ['0.58 0.23', '0.6 0.25', '0.62 0.27']
    """
    old, new = np.array(score_map["knots"], np.float64).T
    found = ScoreMap("old_to_new", old, new)
    round_scores = Scale(float(old[0]), float(old[-1]), 0, 1).ticks(_THRESHOLDS)
    return [(at, found.threshold(at)) for at in round_scores if old[0] <= at <= old[-1]]


def adapt_table(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return columns and rows: the old model as it is, the candidates, best first, and everything re-embedded.

    Scores are fractions; a dash stands for what is missing, "– failed" for what could not be measured (`failures` says
    why), and a column of which nothing is known is left out. Minus signs are hyphens unless ``typeset``.
    """
    columns = [
        "candidate",
        "kind",
        f"cross ({metric_name(document['protocol']['metric'])})",
        "minus self (old)",
        "gain recovered",
        "after backfill",
        "unseen classes",
        "fit seconds",
    ]
    unseen: Mapping[str, float] = next((found["unseen"] for found in document["candidates"] if found["unseen"]), {})
    old, new = document["systems"]["self_old"], document["systems"]["self_new"]
    gained, after = signed(new["mean"] - old["mean"]), score(new["mean"])
    rows = [
        [OLD, MISSING, _written(old), MISSING, MISSING, MISSING, score(unseen.get("self_old")), MISSING],
        *(_row(found, new) for found in by_score(document)),
        [REEMBEDDED, MISSING, _written(new), gained, MISSING, after, score(unseen.get("self_new")), MISSING],
    ]
    known = [place for place in range(len(columns)) if {row[place] for row in rows} - {MISSING}]
    if not typeset:
        rows = [[row[0], *map(plain_text, row[1:])] for row in rows]
    return [columns[place] for place in known], [[row[place] for place in known] for row in rows]


def _row(found: Candidate, new: Mean) -> list[str]:
    if found["failed"] is not None:
        return [found["name"], found["kind"], f"{MISSING} failed", *[MISSING] * 4, _seconds(found["seconds"])]
    backfilled = found["own"] or new  # without a gallery of its own, that of the new model
    return [
        found["name"],
        found["kind"],
        _written(found["cross"]),
        _written(found["cross_minus_self_old"], sign=True),
        percent(found["recovered"]).replace("-", "−"),
        score(backfilled["mean"]),
        score((found["unseen"] or {}).get("cross")),
        _seconds(found["seconds"]),
    ]


def failures(document: Mapping[str, Any]) -> list[str]:
    r"""Say of every candidate that failed why it did, each on one line.

    >>> failures({"candidates": [{"name": "ridge", "cross": None, "failed": "3 pairs.\nExpected: at least 20"}]})
    ['ridge failed: 3 pairs. Expected: at least 20']
    """
    reasons = {found["name"]: found["failed"] for found in by_score(document) if found["failed"] is not None}
    return [f"{name} failed: {' '.join(reason.split())}" for name, reason in reasons.items()]


def _written(found: Mean, *, sign: bool = False) -> str:
    return f"{(signed if sign else score)(found['mean'])} {interval(found['interval'], sign=sign)}"


def _seconds(found: float | None) -> str:
    """Write a time.

    >>> _seconds(0.0312), _seconds(41.37), _seconds(1234.5), _seconds(None)
    ('0.03', '41.4', '1,234', '–')
    """
    if found is None:
        return MISSING
    return f"{found:.2f}" if found < 10 else f"{found:.1f}" if found < 100 else f"{found:,.0f}"
