"""What links two frozen text models for real queries: four collections whose answers people judged.

    python benchmarks/text_collections.py --data ../shared/data       # LIMPET_DATA when left out

The documents were embedded by static words (wordllama, 256 numbers), the queries by MiniLM-L6 (384). Pairs to fit on
are documents that both models embedded, all of them or a half (the mean of three draws), and none has a label; queries
are fitted on nowhere. Numbers are nDCG@10 of the judged queries in percent; "- old" is what a row brings beyond the
old model, with intervals of 95 % over queries, and "of the gain" its share of what embedding everything anew brings.
With all documents as pairs the new model has embedded everything once, and the map spares only to store it; with half
of them it has not. "and new pairs" are mapped galleries in which documents of the pairs have what the new model gave
them (`limpet upgrade backfill --model`); "calibrated" takes scores of the mapped ones to the others' scale, by
what queries score on the documents of the pairs (`limpet gallery calibrate`). "by agreement" is what `limpet adapt`
takes without judgements, from documents that ask for each other; "by judged queries" is what it takes with
`--relevant`, the old model among the choices: each half of the queries is measured with what the other half chose, over
five divisions.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from half_backfilled import CHOSEN, by_cohort, merged
from judged_texts import COLLECTIONS, Collection, collection
from limpet.adapters.pairs import without_doubtful
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.intervals import mean_interval
from limpet.evaluation.metrics import metrics_named
from limpet.evaluation.protocols.relevance_lists import Relevance, RelevancePairs
from limpet.evaluation.ranking.engine import Ranked
from limpet.linking.adapt import Choice, candidates_of, suitable_adapters
from limpet.linking.compare import measure
from limpet.linking.held_out import hold_out
from machine import describe

RESULTS = Path(__file__).parent / "results"
METRIC = "ndcg@10"
DIVISIONS = 5
SHARES = {"1": 1, "0.5": 3}
"""Shares of the documents that are pairs, and how often they are drawn."""
SAID = {"1": "all documents", "0.5": "half of the documents"}
WITH_PAIRS, CALIBRATED = " and new pairs", " and new pairs, calibrated"
PARTS = {"chosen": "", "with_pairs": WITH_PAIRS, "calibrated": CALIBRATED}
"""What is kept of the candidate that agreement chooses, and what is added to its name there."""
OLD, ANEW = "old model as it is", "everything embedded anew"

Values = NDArray[np.float64]


def measured(name: str, root: Path, work: Path) -> dict[str, Any]:
    """Return nDCG@10 of every query by row, and what agreement chooses, by the share of documents that are pairs."""
    found = collection(name, root, work)
    documents, queries = found.documents, found.queries
    pairs = RelevancePairs.read(root / "text-collections" / name / "relevant.parquet")
    relevance = Relevance(pairs=pairs, judged=True, unknown="leave-out")
    sides = [(queries["old"], documents["old"]), (queries["new"], documents["new"])]
    references = {row: score(*sides[side], relevance).tolist() for side, row in enumerate((OLD, ANEW))}
    shares = {}
    for share, seeds in SHARES.items():
        draws = [drawn(found, relevance, share, seed) for seed in range(seeds)]
        rows = {row: np.mean([one[0][row] for one in draws], axis=0).tolist() for row in draws[0][0]}
        agreement = {row: float(np.mean([one[1][row] for one in draws])) for row in draws[0][1]}
        names = [max(agrees, key=agrees.__getitem__) for _, agrees in draws]
        chose = list(zip(draws, names, strict=True))
        shares[share] = {
            "rows": rows,
            "agreement": agreement,
            **{
                key: np.mean([one.get(best + what, one[best]) for (one, _), best in chose], axis=0).tolist()
                for key, what in PARTS.items()
            },
            "names": names,
        }
    return {"references": references, "shares": shares, "documents": len(documents["old"])}


def drawn(found: Collection, relevance: Relevance, share: str, seed: int) -> tuple[dict[str, Values], dict[str, float]]:
    """Return nDCG@10 of every query by candidate, fitted on some of the documents, and its agreement among these."""
    documents, queries = found.documents, found.queries["new"]
    count = round(float(share) * len(documents["old"]))
    rows = np.sort(np.random.default_rng(seed).permutation(len(documents["old"]))[:count])
    old, new = (documents[side][rows] for side in ("old", "new"))
    embedded = np.isin(np.arange(len(documents["old"])), rows)
    trusted = without_doubtful(old, new, seed=seed)[0].ids
    choice = Choice(suitable_adapters(old, new), heads={})
    candidates = candidates_of(choice, False, Path(), seed, trusted=trusted)
    scores = {}
    for one in candidates:
        link = one.fit(old, new, None)
        query, gallery = link.query(queries), link.gallery(documents["old"])
        scores[one.name] = score(query, gallery, relevance)
        if one.direction == "old_to_new" and not embedded.all():
            vectors = np.where(embedded[:, None], documents["new"].vectors, gallery.vectors)
            scores[one.name + WITH_PAIRS] = score(query, gallery.replace(vectors=vectors), relevance)
            sides = query.vectors @ gallery.vectors.T, query.vectors @ documents["new"].vectors.T
            pairs = (new, gallery[rows]), (new, new)
            scaled = by_cohort(sides[0], (query, query), *pairs, seed, (CHOSEN,))
            [mixed] = (scores for way, scores in merged(*sides, embedded, scaled) if way in scaled)
            scores[one.name + CALIBRATED] = gain(mixed, found.relevant)
    agreement = measure(candidates, hold_out(old, new, seed=seed), resamples=2)
    return scores, {one.name: one.cross.mean for one in agreement.candidates if one.cross}


def score(query: EmbeddingSet, gallery: EmbeddingSet, relevance: Relevance) -> Values:
    """Return nDCG@10 of every query; NaN where nothing answers it."""
    return relevance.measure(query, gallery, (METRIC,))[METRIC]


def gain(scores: NDArray[np.float32], relevant: list[NDArray[np.int64]]) -> Values:
    """Return nDCG@10 of what orders the documents of every query (Q, N); NaN where nothing answers it."""
    ranks = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    found = [np.sort(row[right]) for row, right in zip(ranks, relevant, strict=True)]
    return metrics_named([METRIC])[METRIC](Ranked.of(found, [scores.shape[1]] * len(scores)))


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
    known = {row: np.array(values, np.float64) for row, values in found["references"].items()}
    answered = ~np.isnan(known[OLD])
    lines = [
        f"## {name}",
        "",
        f"{found['documents']:,} documents, {int(answered.sum())} queries that something answers.",
    ]
    for share, of_share in found["shares"].items():
        rows = known | {row: np.array(values, np.float64) for row, values in of_share["rows"].items()}
        chosen = {
            f"**by agreement** ({', '.join(dict.fromkeys(of_share['names']))})": np.array(of_share["chosen"]),
            **{f"**by agreement{PARTS[key]}**": np.array(of_share[key]) for key in parts_of(share)[1:]},
            "**by judged queries**": chosen_by_halves(rows, list(of_share["rows"])),
        }
        gain = np.nanmean(known[ANEW] - known[OLD])
        lines += [
            "",
            f"{name}, pairs of {SAID[share]}:",
            "",
            "| nDCG@10 | cross | - old | of the gain | agreement |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]
        for row, values in {**rows, **chosen}.items():
            gap = 100 * (values - known[OLD])[answered]
            low, high = mean_interval(gap)
            brings = "–" if row == OLD else f"{gap.mean():+.1f} [{low:+.1f}, {high:+.1f}]".replace("-", "−")
            part = "–" if row == OLD else f"{gap.mean() / gain:.0f} %".replace("-", "−")
            agrees = of_share["agreement"].get(row)
            shown = f"{100 * np.nanmean(values):.1f} | {brings} | {part} | {'–' if agrees is None else f'{agrees:.2f}'}"
            lines.append(f"| {row} | {shown} |")
    return [*lines, ""]


def parts_of(share: str) -> list[str]:
    """Return the parts that differ: where all documents are pairs, all of them have new vectors."""
    return list(PARTS)[: 1 if share == "1" else None]


def summary(found: Mapping[str, Any]) -> list[str]:
    """Return one table of what is taken by agreement in each collection, and what it brings of the gain in percent."""
    columns = [(share, key) for share in SHARES for key in parts_of(share)]
    titles = [f"pairs of {SAID[share]}{PARTS[key]}" for share, key in columns]
    lines = ["## Summary", "", f"| nDCG@10 | {OLD} | {ANEW} | {' | '.join(titles)} |", "| --- |" + " ---: |" * 6]
    for name in found:
        old, anew = (np.nanmean(np.array(found[name]["references"][row], np.float64)) for row in (OLD, ANEW))
        cells = []
        for share, key in columns:
            mean = np.nanmean(np.array(found[name]["shares"][share][key], np.float64))
            cells.append(f"{100 * mean:.1f} ({100 * (mean - old) / (anew - old):.0f} %)".replace("-", "−"))
        lines.append(f"| {name} | {100 * old:.1f} | {100 * anew:.1f} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    parser.add_argument("--work", type=Path, default=Path("runs/text-collections"))
    parser.add_argument("--out", type=Path, default=RESULTS / "text_collections.json")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    lines: list[str] = []
    for name in COLLECTIONS:
        if name in given.collections and (given.again or name not in found):
            found[name] = measured(name, given.data, given.work)
            given.out.write_text(json.dumps(found) + "\n")
        if name in found:
            lines += section(name, found[name])
            print("\n".join(section(name, found[name])), flush=True)
    about = ["# Two frozen text models and judged queries", "", " ".join((__doc__ or "").split("\n\n")[2].split()), ""]
    given.out.with_suffix(".md").write_text("\n".join([*about, *summary(found), *lines, describe()]) + "\n")


if __name__ == "__main__":
    main()
