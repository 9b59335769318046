"""Whether new thresholds keep the precision that they say, on queries that nothing was measured on.

    python benchmarks/thresholds.py --data ../shared/data       # LIMPET_DATA when left out

Sentences of CLINC150 and BANKING77 search others of the same intent. The old model is wordllama (256 numbers), the
new one MiniLM-L6 (384). "re-embedded" is the new model on its own index; "through a link" are its queries, mapped by
ridge that was fitted on the training sentences, on the old index. `Thresholds` is measured on half of the queries,
drawn anew with each seed, and asked for the old thresholds at which the old model's precision on these is nearest to
0.5, 0.7, 0.8, 0.9 and 0.95. The other half of the queries then says how precise both thresholds are. "inside" counts
the seeds whose precision lies within the interval that was stated for it; 95 % should. The last columns are the
precision with the threshold that an isotonic map of scores gives (the score to expect, fitted on the 20 nearest items
and 20 others of each query), and with the one that as many items pass, which needs no labels. Means over seeds.
Writes thresholds.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from frozen_models_tasks import embedded
from limpet.adapters import ScoreMap, build_adapter
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.thresholds import Thresholds
from machine import describe

RESULTS = Path(__file__).parent / "results"
PRECISIONS = (0.5, 0.7, 0.8, 0.9, 0.95)
NEAREST, OTHERS = 20, 20  # of a query, on which the isotonic map is fitted

Scores = NDArray[np.float32]
Relevant = NDArray[np.bool_]


class Asked(NamedTuple):
    """One old threshold in one seed, on the queries that were left out."""

    way: str
    wanted: float
    old: float
    new: float
    stated: float
    interval: tuple[float, float]
    before: float
    after: float
    expected: float
    as_many: float

    @property
    def inside(self) -> bool:
        """Whether the precision lies within the stated interval."""
        return self.interval[0] <= self.after <= self.interval[1]


def precision(scores: Scores, relevant: Relevant, threshold: float | None) -> float:
    """Return the share of the passing items that are relevant."""
    passing = scores >= (np.inf if threshold is None else threshold)
    return float(relevant[passing].mean()) if passing.any() else 1.0


def similarities(queries: EmbeddingSet, items: EmbeddingSet) -> Scores:
    """Return cosines (queries, items)."""
    found: Scores = queries.vectors @ items.vectors.T
    return found


def expected_scores(old: Scores, new: Scores, rng: np.random.Generator) -> ScoreMap:
    """Fit the score to expect on the nearest items of each query and some others."""
    near = np.argpartition(-old, NEAREST, axis=1)[:, :NEAREST]
    items = np.concatenate([near, rng.integers(old.shape[1], size=(len(old), OTHERS))], axis=1)
    return ScoreMap.fit(*(np.take_along_axis(one, items, axis=1).ravel() for one in (old, new)))


def of_seed(data: str, seed: int, root: Path, work: Path) -> Iterator[Asked]:
    """Measure thresholds on half of the queries, and what they are worth on the other half."""
    old, new = embedded(data, "", seed, root, work)
    link = build_adapter("ridge", {"direction": "new_to_old"}).fit(old["train"], new["train"])
    before = similarities(old["query"], old["gallery"])
    ways = {
        "re-embedded": similarities(new["query"], new["gallery"]),
        "through a link": similarities(link.apply(new["query"]), old["gallery"]),
    }
    relevant = old["query"].labels[:, None] == old["gallery"].labels[None]
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(before))
    here, there = np.sort(drawn[: len(drawn) // 2]), np.sort(drawn[len(drawn) // 2 :])
    for way, after in ways.items():
        measured = Thresholds.of(before[here], after[here], (relevant[here], relevant[here]), seed=seed)
        as_many = Thresholds.of(before[here], after[here], seed=seed)
        expected = expected_scores(before[here], after[here], rng)
        for wanted in PRECISIONS:
            row = min(measured.rows, key=lambda one: abs((one.precision_before or 0) - wanted))
            assert row.precision is not None and row.precision_interval is not None
            worth = [
                precision(after[there], relevant[there], threshold)
                for threshold in (row.new, float(expected.apply(row.old).values), as_many.at(row.old).new)
            ]
            yield Asked(way, wanted, row.old, row.new, row.precision, row.precision_interval,
                        precision(before[there], relevant[there], row.old), *worth)  # fmt: skip


def table(found: list[Asked], seeds: int) -> list[str]:
    """Return one data set's table, and how many of all lie inside."""
    head = ["new scores", "old threshold", "new", "precision before", "stated", "after", "inside", "score to expect",
            "as many pass"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    for way in dict.fromkeys(one.way for one in found):
        for wanted in PRECISIONS:
            some = [one for one in found if (one.way, one.wanted) == (way, wanted)]
            mean = {name: np.mean([getattr(one, name) for one in some]) for name in
                    ("old", "new", "before", "stated", "after", "expected", "as_many")}  # fmt: skip
            low, high = np.mean([one.interval for one in some], axis=0)
            lines.append(
                f"| {way} | {mean['old']:.2f} | {mean['new']:.2f} | {mean['before']:.3f} | {mean['stated']:.3f} "
                f"[{low:.3f}, {high:.3f}] | {mean['after']:.3f} | {sum(one.inside for one in some)} of {seeds} | "
                f"{mean['expected']:.3f} | {mean['as_many']:.3f} |"
            )
    return [*lines, "", f"{sum(one.inside for one in found)} of {len(found)} lie within their stated interval.", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LIMPET_DATA"))
    parser.add_argument("--work", type=Path, default=Path("runs/thresholds"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "thresholds.md")
    arguments = parser.parse_args()
    lines = ["# Do new thresholds keep their precision?", "", describe(), ""]
    for data in ("clinc150", "banking77"):
        found = [one for seed in range(arguments.seeds) for one in of_seed(data, seed, arguments.data, arguments.work)]
        lines += [f"## {data}", "", f"{arguments.seeds} seeds (`--seeds`).", "", *table(found, arguments.seeds)]
        print("\n".join(lines), flush=True)
    arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
