"""Adapters and heads compared, as tables."""

from __future__ import annotations

import numpy as np

from holdfast.adapters import ScoreMap
from holdfast.adapters.compare import CandidateScores, Gap, Score
from holdfast.adapters.results import AdaptResults, ScoreMapRecord
from holdfast.reports.formats import MISSING, interval, percent, plain_text, score, signed
from holdfast.reports.markdown import Table
from holdfast.reports.svg import Scale
from holdfast.wording import metric_name

OLD, REEMBEDDED = "old model as it is", "everything re-embedded"

_THRESHOLDS = 10  # about so many are read off a map


def thresholds(score_map: ScoreMapRecord) -> list[tuple[float, float]]:
    """Return round old scores within the range of a map, each with the new score that stands for it.

    >>> found = ScoreMapRecord(error=0.1, text="", knots=[(0.55, 0.2), (0.65, 0.3), (0.75, 0.4)])
    >>> [f"{old:g} {new:.2f}" for old, new in thresholds(found)][1:4]
    ['0.58 0.23', '0.6 0.25', '0.62 0.27']
    """
    old, new = np.array(score_map.knots, np.float64).T
    found = ScoreMap("old_to_new", old, new)
    round_scores = Scale(float(old[0]), float(old[-1]), 0, 1).ticks(_THRESHOLDS)
    return [(at, found.threshold(at)) for at in round_scores if old[0] <= at <= old[-1]]


def adapt_table(results: AdaptResults, *, typeset: bool = False) -> Table:
    """Return columns and rows: the old model as it is, the candidates, best first, and everything re-embedded.

    Scores are fractions; a dash stands for what is missing, "– failed" for what could not be measured (`failures` says
    why), and a column of which nothing is known is left out. Minus signs are hyphens unless ``typeset``.
    """
    columns = [
        "candidate",
        "kind",
        f"cross ({metric_name(results.protocol.metric)})",
        "minus self (old)",
        "gain recovered",
        "after backfill",
        "unseen classes",
        "fit seconds",
    ]
    unseen = next((found.unseen for found in results.candidates if found.unseen), None)
    old, new = results.systems.self_old, results.systems.self_new
    gained, after = signed(new.mean - old.mean), score(new.mean)
    rows = [
        [OLD, MISSING, _written(old), MISSING, MISSING, MISSING, score(unseen.self_old if unseen else None), MISSING],
        *(_row(found, new) for found in results.by_score()),
        [
            REEMBEDDED,
            MISSING,
            _written(new),
            gained,
            MISSING,
            after,
            score(unseen.self_new if unseen else None),
            MISSING,
        ],
    ]
    known = [place for place in range(len(columns)) if {row[place] for row in rows} - {MISSING}]
    if not typeset:
        rows = [[row[0], *map(plain_text, row[1:])] for row in rows]
    return [columns[place] for place in known], [[row[place] for place in known] for row in rows]


def _row(found: CandidateScores, new: Score) -> list[str]:
    if found.cross is None or found.cross_minus_self_old is None:
        return [found.name, found.kind, f"{MISSING} failed", *[MISSING] * 4, _seconds(found.seconds)]
    backfilled = found.own or new  # without a gallery of its own, that of the new model
    return [
        found.name,
        found.kind,
        _written(found.cross),
        _written(found.cross_minus_self_old, sign=True),
        percent(found.recovered).replace("-", "−"),
        score(backfilled.mean),
        score(found.unseen.cross if found.unseen else None),
        _seconds(found.seconds),
    ]


def failures(results: AdaptResults) -> list[str]:
    """Say of every candidate that failed why it did, each on one line."""
    reasons = {found.name: found.failed for found in results.by_score() if found.failed is not None}
    return [f"{name} failed: {' '.join(reason.split())}" for name, reason in reasons.items()]


def _written(found: Score | Gap, *, sign: bool = False) -> str:
    return f"{(signed if sign else score)(found.mean)} {interval(found.interval, sign=sign)}"


def _seconds(found: float | None) -> str:
    """Write a time.

    >>> _seconds(0.0312), _seconds(41.37), _seconds(1234.5), _seconds(None)
    ('0.03', '41.4', '1,234', '–')
    """
    if found is None:
        return MISSING
    return f"{found:.2f}" if found < 10 else f"{found:.1f}" if found < 100 else f"{found:,.0f}"
