"""Whether what leads on other data sets leads on the next: every data set of the shipped boards left out in turn.

    python benchmarks/left_out.py       # seconds; reads what comes with limpet, trains nothing; writes left_out.md

For a data set that is left out, the row is taken that stands highest on the others in the same scenario, by its mean
rank in raw P_comp among the rows that keep P_up there (-0.05 or more). Regret is what the best row has more in P_comp,
whose unit is all that there is to be gained on a data set: 0 is the best choice. Beside it always taking one row, for
every row that was run everywhere; where a row loses P_up it has no regret, and is counted. Rows that leave the old
gallery as it is stand by themselves, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from limpet.bench.recommend import Place, read_places

RESULTS = Path(__file__).parent / "results"
BOARDS = {
    "Heads and adapters over frozen models": ("text-upgrade", "image-upgrade"),
    "Models that are trained": ("omniglot-small", "tiny-imagenet-small"),
}
Case = tuple[str, str]  # scenario and data set
Gains = dict[Case, dict[str, float]]  # P_comp of the rows of every case that keep P_up


def chosen(others: Sequence[dict[str, float]]) -> str:
    """Return the row with the best mean rank among those that all of the others have."""
    shared = sorted(set.intersection(*map(set, others)))
    ranks = [np.argsort(np.argsort([-place[label] for label in shared])) for place in others]
    return shared[int(np.mean(ranks, axis=0).argmin())]


def led_elsewhere(gains: Gains) -> dict[Case, str]:
    """Return the row that is taken in every case."""
    return {
        (scenario, data): chosen([rows for (of, one), rows in gains.items() if of == scenario and one != data])
        for scenario, data in gains
    }


def regret(gains: Gains, taken: dict[Case, str]) -> dict[Case, float]:
    """Return the regret of every case whose row keeps P_up."""
    return {case: max(rows.values()) - rows[taken[case]] for case, rows in gains.items() if taken[case] in rows}


def section(title: str, places: Sequence[Place], as_it_is: bool) -> Iterator[str]:
    """Yield a table of every case, and one of always taking a row."""
    complete = {
        (place.scenario, place.trained_on): [
            row for row in place.complete if not (as_it_is and row.gallery == "mapped")
        ]
        for place in places
    }
    gains = {
        case: {row.label: row.p_comp.mean for row in rows if row.p_comp is not None and row.keeps_quality}
        for case, rows in complete.items()
    }
    taken = led_elsewhere(gains)
    found = regret(gains, taken)
    yield from (f"## {title}", "", "| left out | taken | P_comp | best there | P_comp | regret |")
    yield "| --- | --- | ---: | --- | ---: | ---: |"
    for (scenario, data), rows in gains.items():
        label, best = taken[scenario, data], max(rows, key=rows.__getitem__)
        own, lost = (
            f"{value:.3f}" if value is not None else "–" for value in (rows.get(label), found.get((scenario, data)))
        )
        yield f"| {data}, {scenario} | {label} | {own} | {best} | {rows[best]:.3f} | {lost} |"
    everywhere = set.intersection(*({row.label for row in rows} for rows in complete.values()))
    always = {label: regret(gains, dict.fromkeys(gains, label)) for label in everywhere}
    shown = {"what led elsewhere": found, **dict(sorted(always.items(), key=lambda one: _order(one[1])))}
    yield from ("", "| always | P_up lost | mean regret | worst |", "| --- | ---: | ---: | ---: |")
    for label, values in shown.items():
        numbers = (f"{of(list(values.values())):.3f}" if values else "–" for of in (np.mean, max))
        yield f"| {label} | {len(gains) - len(values)} of {len(gains)} | {' | '.join(numbers)} |"
    yield ""


def _order(values: dict[Case, float]) -> tuple[int, float]:
    return -len(values), float(np.mean([*values.values()])) if values else 0.0


def page() -> str:
    """Return left_out.md."""
    places = read_places()
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = ["# Whether what leads on other data sets leads on the next", "", about, ""]
    for title, suites in BOARDS.items():
        of = [place for place in places if place.suite in suites]
        lines += section(title, of, False)
        if any(row.gallery == "mapped" for place in of for row in place.rows):
            lines += section(f"{title}: those that leave the old gallery as it is", of, True)
    return "\n".join([*lines, "`python benchmarks/left_out.py`", ""])


def main() -> None:
    (RESULTS / "left_out.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
