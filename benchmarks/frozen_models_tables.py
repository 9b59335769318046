"""From the records of frozen_models.py to its page of Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

SYSTEMS, MIXED, AUTO = "systems", "mixed", "auto"
MERGES = {
    "one_index": "old rows through ridge (gallery), one index",
    "calibrated": "queries through procrustes, scores calibrated",
    "reciprocal_rank": "queries through procrustes, reciprocal ranks",
    "raw": "queries through procrustes, scores as they are",
}
UNSEEN = "half of the intents unseen"
TITLES = {"clinc150": "CLINC150", "banking77": "BANKING77"}
REFERENCE = (
    "Figures of an earlier quick prototype on CLINC150, with another draw of 2,000 test queries against 5,500 "
    "sentences: self(old) 54.6, self(new) 67.5, Procrustes 58.3, ridge 57.2, a linear head with prototype contrast "
    "71.6 and 84.1 by itself."
)

Document = dict[str, Any]
Record = dict[str, Any]


def page(document: Document) -> str:
    """Return all tables with what has to be known to read them."""
    seeds = document["seeds"]
    parts = [
        "# Two frozen models of text: static words and MiniLM-L6",
        "",
        f"{document['machine']}; {document['wall_minutes']:.1f} minutes of work with {document['processes']} "
        f"processes of one thread each; seeds {', '.join(map(str, seeds))}.",
        "",
        "mAP in percent, of half of the test sentences searching all others that nothing was fitted on: mean over "
        "seeds ± standard deviation. A seed draws that half, the intents that are left out, and all training; most of "
        "the deviation is that of the queries, and common to all rows. *minus self(old)* is the paired difference, "
        f"with its 95 % bootstrap interval over the queries of seed {seeds[0]}. *recovered* is the share of what "
        "embedding everything anew would bring. *after backfill* is what the same queries find among sentences "
        "embedded anew. *fit* is the median time, one thread, another fit beside it.",
        "",
        "`--auto` is what `limpet adapt` recommends from held-out sentences to fit on; where half of the intents are "
        "unseen, it was told so (`--unseen-share 0.5`).",
        "",
        REFERENCE,
    ]
    for data, title in TITLES.items():
        for variant in ("", UNSEEN):
            found = [one for one in document["records"] if (one["data"], one["variant"]) == (data, variant)]
            parts += ["", f"## {title}{f', {variant}' if variant else ''}", "", *table(found, seeds)]
            parts += ["", *chosen(found, seeds), "", *halfway(found)]
    failures = [one for one in document["records"] if "failure" in one]
    parts += [f"\nFailed: {one['data']}, seed {one['seed']}, {one['candidate']}: {one['failure']}" for one in failures]
    return "\n".join(parts) + "\n"


def table(records: Sequence[Record], seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one table, the best cross-test first."""
    bases = by_seed(records, SYSTEMS)
    if not bases:
        yield "No record yet."
        return
    unseen = "unseen" in bases[0]
    parts_of = ["seen", "unseen"] if unseen else []
    columns = ["", "cross", "minus self(old)", "recovered", "after backfill", *parts_of, "fit"]
    yield f"| {' | '.join(columns)} |"
    yield f"|---|{'---:|' * (len(columns) - 1)}"

    def parts(side: str, found: Sequence[Record]) -> list[str]:
        return [percent([one[part][side] for one in found]) for part in ("seen", "unseen")] if unseen else []

    yield row("old model as it is, self(old)", percent([one["self_old"] for one in bases]), "", "0 %", "",
              *parts("self_old", bases), "")  # fmt: skip
    names = {one["candidate"] for one in records if "cross" in one}
    for name in sorted(names, key=lambda name: -mean(by_seed(records, name), "cross")):
        found = by_seed(records, name)
        yield row(
            name, percent([one["cross"] for one in found]), difference(found[0]), recovered(found, bases),
            percent([one["own"] for one in found]) if "own" in found[0] else "", *parts("cross", found),
            f"{statistics.median(one['fit_seconds'] for one in found):.1f} s",
        )  # fmt: skip
    yield row("everything embedded anew, self(new)", percent([one["self_new"] for one in bases]), "", "100 %", "",
              *parts("self_new", bases), "")  # fmt: skip


def by_seed(records: Sequence[Record], name: str) -> list[Record]:
    """Return the records of one candidate, in order of their seeds."""
    found = [one for one in records if one["candidate"] == name and "failure" not in one]
    return sorted(found, key=lambda one: int(one["seed"]))


def mean(records: Sequence[Record], key: str) -> float:
    return statistics.mean(float(one[key]) for one in records)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def percent(values: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def difference(record: Record) -> str:
    low, high = record["interval"]["cross_minus_self_old"]
    return f"{100 * record['cross_minus_self_old']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def recovered(found: Sequence[Record], bases: Sequence[Record]) -> str:
    gain = mean(bases, "self_new") - mean(bases, "self_old")
    return f"{100 * (mean(found, 'cross') - mean(bases, 'self_old')) / gain:.0f} %"


def chosen(records: Sequence[Record], seeds: Sequence[int]) -> Iterator[str]:
    """Yield what --auto recommends for every seed, beside the best candidate it had to choose from."""
    for auto in by_seed(records, AUTO):
        by_name = {one["candidate"]: one for one in records if one["seed"] == auto["seed"] and "cross" in one}
        compared = [by_name[name] for name in auto["candidates"] if name in by_name]
        best = max(compared, key=lambda one: float(one["cross"]))
        picked = by_name.get(auto["recommended"] or "")
        low, high = (100 * end for end in best["interval"]["cross"])
        ends = f"[{low:.1f}, {high:.1f}]"
        if picked is None:
            said = f"the best of its candidates is {scored(best)}"
        else:
            inside = "within" if 100 * picked["cross"] >= low else "OUTSIDE"
            said = f"{scored(picked)}, {inside} the interval {ends} of the best of its candidates, {scored(best)}"
        yield f"- `--auto`, seed {auto['seed']}: {auto['action']}; {said}."


def halfway(records: Sequence[Record]) -> Iterator[str]:
    """Yield what is found while half of the gallery is embedded anew, and how results of both halves are merged."""
    found = by_seed(records, MIXED)
    if not found:
        return
    yield "Half of the gallery embedded anew, the other half as the old model embedded it:"
    yield ""
    yield "| how both halves are searched | mAP |"
    yield "|---|---:|"
    for key, words in MERGES.items():
        yield row(words, percent([one["mixed"][key] for one in found]))


def scored(record: Record) -> str:
    return f"{record['candidate']} ({100 * record['cross']:.1f})"
