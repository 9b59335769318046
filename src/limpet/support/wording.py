"""Wording of numbers and metric names in messages; for report pages see `limpet.reports.formats`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

INDEPENDENT = (
    "for images by `limpet train --method independent`, for texts by `limpet fine-tune --method independent`; for a "
    "head over a frozen model, that model itself"
)
"""How to train an independent model, for messages."""


def whole_percent(share: float) -> str:
    """Write a share in whole per cent, with a non-breaking space.

    >>> whole_percent(0.624).replace("\N{NO-BREAK SPACE}", " ")
    '62 %'
    """
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


_METRICS = {
    "map": "mAP",
    "map-trapezoid": "mAP by trapezoids",
    "mp": "mP",
    "ndcg": "nDCG",
    "mrr": "MRR",
    "cmc": "CMC",
    "ar": "AR",
    "tar": "TAR",
    "tpir": "TPIR",
    "p_up": "P_up",
    "p_comp": "P_comp",
    "p_score": "P_score",
    "self_old": "self (old)",
    "self_independent": "self (independent)",
    "self_new": "self (new)",
}
"""Names of metrics and derived measures as in the literature; other names stay unchanged."""


def metric_name(metric: str) -> str:
    """Write the name of a metric as the literature does.

    >>> metric_name("map"), metric_name("map@r"), metric_name("recall@5"), metric_name("cmc@1"), metric_name("tar@1e-4")
    ('mAP', 'mAP@R', 'recall@5', 'CMC@1', 'TAR@1e-4')
    >>> metric_name("p_comp"), metric_name("overlap@10 with new"), metric_name("my-own@3")
    ('P_comp', 'overlap@10 with new', 'my-own@3')
    """
    family, at, depth = metric.partition("@")
    return _METRICS.get(family, family) + at + ("R" if depth == "r" else depth)


def counted(number: int, word: str) -> str:
    """Write a number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """Write a duration in the unit that suits it.

    >>> " ".join(duration(taken) for taken in (0.00042, 0.05, 7.25, 75, 130, 4000, 9000, 300_000, None))
    '0.4 ms 50 ms 7.2 s 75 s 2.2 min 67 min 2.5 h 3.5 days –'
    """
    if seconds is None:
        return "–"
    for limit, unit, name in ((1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.{int(seconds < 10 * unit)}f} {name}"
    return f"{seconds / 86_400:.1f} days"


def model_name(fingerprint: str) -> str:
    """Return the display name of a model: its declared name, or the beginning of its fingerprint.

    >>> model_name("declared:v1"), model_name("release:" + 64 * "0")
    ('v1', 'release:00000000')
    """
    kind, _, name = fingerprint.partition(":")
    return name if kind == "declared" else f"{kind}:{name[:8]}"


def aligned(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table as lines of equal columns, the first to the left and others to the right.

    >>> aligned(["model", "mAP"], [["a", "0.413"]])
    ['model    mAP', 'a      0.413']
    """
    lines = [columns, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def listed(names: Sequence[str]) -> str:
    """Write names one after another.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"]), listed([])
    ('a', 'a and b', 'a, b and c', '')
    """
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
