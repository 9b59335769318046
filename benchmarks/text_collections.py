"""What links two frozen text models for real queries: four collections whose answers people judged.

    python benchmarks/text_collections.py --data ../shared/data       # HOLDFAST_DATA when left out

The documents were embedded by static words (wordllama, 256 numbers), the queries by MiniLM-L6 (384). Every document is
a pair to fit on, and none has a label; queries are fitted on nowhere. Numbers are nDCG@10 of the judged queries in
percent; "- old" is what a row brings beyond the old model, with intervals of 95 % over queries, and "of the gain" its
share of what embedding everything anew brings. "by agreement" is what `holdfast adapt` takes without judgements, from
documents that ask for each other; "by judged queries" is what it takes with `--relevant`: each half of the queries is
measured with what the other half chose, over five divisions (the intervals are those of the queries' means over them).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.adapters.adapt import Choice, candidates_of, suitable_adapters
from holdfast.adapters.compare import measure
from holdfast.adapters.held_out import Judged, asked_by, hold_out
from holdfast.adapters.pairs import without_doubtful
from holdfast.embeddings import EmbeddingSet
from holdfast.evaluation.intervals import mean_interval
from holdfast.evaluation.protocols.relevance_lists import Pairs, Relevance
from judged_texts import COLLECTIONS, collection
from machine import describe

RESULTS = Path(__file__).parent / "results"
METRIC = "ndcg@10"
DIVISIONS = 5
OLD, ANEW = "old model as it is", "everything embedded anew"

Values = NDArray[np.float64]


def measured(name: str, root: Path, work: Path) -> dict[str, Any]:
    """Return nDCG@10 of every query by row, and what agreement chooses."""
    found = collection(name, root, work)
    documents, queries = found.documents, found.queries
    pairs = Pairs.read(root / "text-collections" / name / "relevant.parquet")
    relevance = Relevance(pairs=pairs, judged=True, unknown="leave-out")
    choice = Choice(suitable_adapters(documents["old"], documents["new"]), heads={})
    judged = Judged.of(queries["old"], queries["new"], relevance)
    asked = asked_by(judged, documents["old"], documents["new"])
    trusted = without_doubtful(asked.fit_old, asked.fit_new)[0].ids
    candidates = candidates_of(choice, False, work, trusted=trusted)
    rows = {name: score(judged.old if name == OLD else judged.new, documents[side], relevance)
            for name, side in ((OLD, "old"), (ANEW, "new"))}  # fmt: skip
    for one in candidates:
        link = one.fit(*asked.all_to_fit)
        rows[one.name] = score(link.query(judged.new), link.gallery(documents["old"]), relevance)
    split = hold_out(documents["old"], documents["new"])
    agreement = measure(candidates, split, resamples=200)
    names = [one.name for one in candidates]
    by_agreement = agreement.best.name if agreement.best else ""
    return {
        "rows": {name: values.tolist() for name, values in rows.items()},
        "candidates": names,
        "agreement": {one.name: one.cross.mean for one in agreement.candidates if one.cross},
        "by agreement": by_agreement,
        "documents": len(documents["old"]),
    }


def score(query: EmbeddingSet, gallery: EmbeddingSet, relevance: Relevance) -> Values:
    """Return nDCG@10 of every query; NaN where nothing answers it."""
    return relevance.measure(query, gallery, (METRIC,))[METRIC]


def chosen_by_halves(rows: dict[str, Values], names: list[str], seed: int = 0) -> Values:
    """Return the mean score of every query with what the other half of the queries chose, the old model among it."""
    scores = np.stack([rows[name] for name in (OLD, *names)])
    answered = np.flatnonzero(~np.isnan(scores[0]))
    rng, total = np.random.default_rng(seed), np.full(scores.shape[1], np.nan)
    total[answered] = 0
    for _ in range(DIVISIONS):
        halves = np.array_split(rng.permutation(answered), 2)
        for asked, other in (halves, halves[::-1]):
            best = scores[:, other].mean(axis=1).argmax()
            total[asked] += scores[best, asked] / DIVISIONS
    return total


def section(name: str, found: dict[str, Any]) -> list[str]:
    """Return the part of the page on one collection."""
    rows = {row: np.array(values, np.float64) for row, values in found["rows"].items()}
    answered = ~np.isnan(rows[OLD])
    rows = {row: 100 * values[answered] for row, values in rows.items()}
    gain = rows[ANEW].mean() - rows[OLD].mean()
    lines = [
        f"## {name}",
        "",
        f"{found['documents']:,} documents, {int(answered.sum())} queries that something answers.",
        "",
        "| nDCG@10 | cross | - old | of the gain | agreement |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    chosen = {
        f"**by agreement** ({found['by agreement']})": rows[found["by agreement"]],
        "**by judged queries**": chosen_by_halves(rows, found["candidates"]),
    }
    for row, values in {**rows, **chosen}.items():
        gap = values - rows[OLD]
        low, high = mean_interval(gap)
        brings = "–" if row == OLD else f"{gap.mean():+.1f} [{low:+.1f}, {high:+.1f}]".replace("-", "−")
        share = "–" if row == OLD else f"{100 * gap.mean() / gain:.0f} %".replace("-", "−")
        agrees = found["agreement"].get(row)
        lines.append(
            f"| {row} | {values.mean():.1f} | {brings} | {share} | {'–' if agrees is None else f'{agrees:.2f}'} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HOLDFAST_DATA", "")))
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    parser.add_argument("--work", type=Path, default=Path("runs/text-collections"))
    parser.add_argument("--out", type=Path, default=RESULTS / "text_collections.json")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    lines = ["# Two frozen text models and judged queries", "", " ".join((__doc__ or "").split("\n\n")[2].split()), ""]
    for name in COLLECTIONS:
        if name in given.collections and (given.again or name not in found):
            found[name] = measured(name, given.data, given.work)
            given.out.write_text(json.dumps(found) + "\n")
        if name in found:
            lines += section(name, found[name])
            print("\n".join(section(name, found[name])), flush=True)
    given.out.with_suffix(".md").write_text("\n".join([*lines, describe()]) + "\n")


if __name__ == "__main__":
    main()
