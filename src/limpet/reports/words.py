"""Wording shared by all results: verdicts, findings, terms and explanations of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from limpet.evaluation.first_hits import FirstHits
from limpet.evaluation.metrics import HANGS
from limpet.evaluation.results import Evaluation, ProtocolRecord, System
from limpet.evaluation.test_sets import SetScores
from limpet.evaluation.ties import Ties
from limpet.reports.formats import MISSING, interval, percent, score, signed
from limpet.support.wording import listed, metric_name

if TYPE_CHECKING:
    from limpet.linking.compare import Effect

__all__ = ["Finding", "first_hit_cell"]

Judged = Evaluation | SetScores
"""Results that have a verdict."""


MARKS = {"compatible": "✓", "inconclusive": "?", "not compatible": "✗", "unlabelled": "–", "mixed": "±",
         "not held out": "!"}  # fmt: skip
"""Symbols of the verdicts."""


SHAPES = {"compatible": 0, "inconclusive": 1, "not compatible": 3, "unlabelled": 0, "mixed": 2, "not held out": 4}
"""Numbers of the marks for verdicts in charts; see `plots.style.SHAPES`."""


OLD, REEMBEDDED = "old model as it is", "everything re-embedded"
"""Baselines of candidates that link two models."""


SYSTEMS: dict[System, str] = {
    "self_old": "old queries, old gallery",
    "cross": "new queries, old gallery: after the swap",
    "self_new": "new queries, new gallery: re-embedded",
    "self_independent": "independent model on its own gallery",
}
"""Systems that are compared on every test set."""


FIRST_HIT = ("recall@1", "cmc@1", "rank@1")
"""Metrics of the first hit."""


CLICKS = (
    "Clicks only know what the old system showed, so no verdict is spoken: a better answer that nobody was shown "
    "counts as wrong."
)


_NOTES = {
    "map-trapezoid": "mean average precision, measured between places as the Oxford and Paris benchmarks do; 1 if "
    "every right item comes before every wrong one",
    "mp": "mean precision: the share of right items among the first {}, or as many as it takes to find all",
    "tar": "the share of genuine pairs that are accepted where a share of {} of the other pairs is accepted too",
    "tpir": "the share of probes whose subject is found first and accepted, where a share of {} of the probes that "
    "belong to nobody is accepted too",
    "rank": "the share of probes whose subject is among the first {} found",
}


@dataclass(frozen=True)
class Finding:
    """Findings of results, or of one model, one test set or one subject.

    Args:
        headline: Most important finding, in one line.
        sentences: Measurements, followed by further findings.
        verdict: A key of `MARKS`; None without a verdict.
        name: Name of the subject, if it is a part of the results.
        steps: Named numbers to compare: of the current system, the new one, and so on.
    """

    headline: str
    sentences: tuple[str, ...]
    next_steps: tuple[str, ...] = ()
    verdict: str = ""
    name: str = ""
    steps: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> list[str]:
        """Lines below the headline: measurements, next steps, and further findings."""
        return [*self.sentences[:1], *(f"Next: {step}" for step in self.next_steps), *self.sentences[1:]]


def measured(evaluations: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
    """Return the evaluations that have scores."""
    return {name: record for name, record in evaluations.items() if record.scored}


def with_interval(mean: Effect) -> str:
    """Write a mean with its interval."""
    return f"{score(mean.mean)} {interval(mean.interval)}"


def spoken_verdict(record: Judged) -> str:
    """Format a verdict for reading; a verdict on several metrics names them.

    >>> from types import SimpleNamespace
    >>> spoken_verdict(SimpleNamespace(verdict="mixed", gate_metric="map", worse=("recall@1", "recall@5")))
    'compatible in mAP, worse at the first hit (recall@1) and in recall@5'
    """
    if record.verdict != "mixed":
        return record.verdict
    return f"compatible in {metric_name(record.gate_metric)}, worse {listed(worse_places(record))}"


def first_hits(found: FirstHits | None) -> str:
    """Describe the change of first hits, to follow a verdict; empty if no single answer is right or wrong.

    >>> found = FirstHits(metric="recall@1", before=0.712, after=0.698, healed=0.154, broken=0.168, net=-0.014,
    ...                   interval=(-0.02, -0.01))
    >>> first_hits(found).replace("\N{NO-BREAK SPACE}", " ")
    'first hits net −1.4 % (16.8 % break, 15.4 % heal; recall@1 0.712 → 0.698)'
    """
    if found is None:
        return ""
    shares = f"{percent(found.broken)} break, {percent(found.healed)} heal"
    scores = f"{metric_name(found.metric)} {score(found.before)} → {score(found.after)}"
    return f"{net_first_hits(found)} ({shares}; {scores})"


def net_first_hits(found: FirstHits) -> str:
    """Format how many more first hits a swap fixes than breaks."""
    what, net = "first hits" if found.metric in FIRST_HIT else "answers", found.net or 0.0
    sign = "" if abs(net) < 0.0005 else "−" if net < 0 else "+"
    return f"{what} net {sign}{percent(abs(net))}"


def first_hit_cell(found: FirstHits | None) -> str:
    """Write first hits before and after a swap, and their net change, for a table."""
    return MISSING if found is None else f"{score(found.before)} to {score(found.after)} ({signed(found.net)})"


def short_verdict(record: Judged) -> str:
    """Write a verdict for a table.

    >>> from types import SimpleNamespace
    >>> short_verdict(SimpleNamespace(verdict="mixed", gate_metric="map"))
    'compatible in mAP only'
    """
    return f"compatible in {metric_name(record.gate_metric)} only" if record.verdict == "mixed" else record.verdict


def worse_places(record: Judged) -> list[str]:
    """Say where new queries are clearly worse than old ones."""
    return places(record.worse)


def places(metrics: Iterable[str]) -> list[str]:
    """Say where something is worse.

    >>> places(["recall@1", "map"])
    ['at the first hit (recall@1)', 'in mAP']
    """
    return [
        f"at the first hit ({metric_name(metric)})" if metric in FIRST_HIT else f"in {metric_name(metric)}"
        for metric in metrics
    ]


def metric_note(metric: str) -> str:
    """Explain a metric in one line.

    >>> metric_note("recall@1")
    'the share of queries whose first result is right'
    """
    family, _, depth = metric.partition("@")
    if family in ("recall", "cmc"):
        first = "result is" if depth == "1" else f"{depth} results hold one that is"
        return f"the share of queries whose first {first} right"
    if family in _NOTES:
        return _NOTES[family].format(depth)
    extent = "" if not depth else ", over as many places as there are right items" if depth == "r" else f" at {depth}"
    return f"mean average precision{extent}; 1 if every right item comes before every wrong one"


_SEARCHES = {
    "self_old": "old queries",
    "cross": "new queries on the old gallery",
    "self_new": "new queries and gallery",
    "self_independent": "independent queries and gallery",
}
_TOLD = 0.01  # minimum share of queries or vectors for which ties are reported
_NAMED = 6  # searches or models that are named one by one


def tie_notes(ties: Ties | None, protocol: ProtocolRecord, metrics: Iterable[str]) -> list[str]:
    """Warn about ties, equal vectors, and depths that include the whole gallery."""
    notes = []
    if ties is not None:
        if ties.constant:
            sides = _first([f"the {side}" for side in ties.constant])
            notes.append(f"All vectors of {sides} are equal: that model tells nothing apart.")
        repeated = [
            f"{percent(share)} ({model} model)"
            for model, share in ties.repeated.items()
            if share >= _TOLD and f"{model} gallery" not in ties.constant
        ]
        if repeated:
            notes.append(
                f"{_first(repeated)} of the gallery vectors repeat another one: their items cannot be told apart."
            )
        hanging = [
            f"{percent(share)} ({_SEARCHES.get(search, search)})"
            for search, share in ties.queries.items()
            if share >= _TOLD
        ]
        if hanging:
            notes.append(
                f"Ties: the order of items with equal scores changes the average precision of {_first(hanging)} of "
                f"{protocol.units} by {HANGS} or more. Scores are means over all orders; an index returns one of them."
            )
    items = protocol.gallery
    deep = [
        metric_name(metric)
        for metric in metrics
        if (found := re.fullmatch(r"(recall|cmc)@(\d+)", metric)) and int(found[2]) >= items
    ]
    if deep:
        notes.append(f"With {items:,} gallery items, {listed(deep)} finds everything: ask for fewer places.")
    return notes


def _first(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return listed(names) if more <= 0 else listed([*names[:_NAMED], f"{more} more"])
