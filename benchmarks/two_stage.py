"""What two-stage search finds and costs, beside maps and complete re-embedding.

    python benchmarks/two_stage.py --data ../shared/data       # LIMPET_DATA when left out

The gallery was embedded by static words (wordllama, 256 numbers); the new model is MiniLM-L6 (384). Four collections
with human relevance judgements (nDCG@10 over their queries) and two sets of intents (mAP): half of the test sentences
search the others. Candidates come from old queries, from new queries that ridge maps ("mapped query"), or from a
gallery that `local` maps ("mapped gallery"), and MiniLM scores the first N again. Maps are fitted on pairs without
labels: of the collections on a third of the documents, 2,000 at most, of the intents on 8,000 training sentences, drawn
by each of three seeds; values are means over the seeds. Nothing is chosen by what it scores, but in the rows "chosen by
judged queries", of all ways or of those with so many candidates: there each half of the queries is measured with the
way that the other half found most with, embedding everything anew left out, over five divisions. Intervals (95 %) draw
queries, or whole classes of them. "encoded" are items that a query encodes on average when all ask in turn and vectors
are kept, and the share of the gallery that is encoded afterwards; for maps, the pairs that both models have to encode.
Latencies are of single queries for ten hits in a gallery of LanceDB, without embedding the query, each with candidates
that were not encoded before and then again; medians and the largest of 20 queries, one thread of a shared machine.
Writes two_stage.md and two_stage.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

from judged_texts import COLLECTIONS, MODELS, collection, texts_in
from limpet.adapters import build_adapter
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.intervals import Draws, clusters_of
from limpet.evaluation.retrieval import rank_metrics
from limpet.evaluation.two_stage import rescored, rescored_metrics
from limpet.galleries import Gallery
from limpet.galleries.two_stage import Rescoring
from limpet.linking.compare import means_of
from limpet.models.text_encoders import embed_texts, open_text_encoder
from limpet.upgrade.vector_sources import TextItems, TextVectors
from machine import describe
from partial_labels import embedded
from text_collections import chosen_by_halves

RESULTS = Path(__file__).parent / "results"
INTENTS = ("clinc150", "banking77")
SIZES = (10, 30, 100, 300)
MAPS = ("ridge", "local")
CHOSEN = "chosen by judged queries"
OLD, NEW = "old model as it is", "everything embedded anew"
TIMED = 20

Values = NDArray[np.float64]
Sides = tuple[EmbeddingSet, EmbeddingSet]


class Task(NamedTuple):
    """What searches what, and what to fit maps on.

    Args:
        old: Queries and gallery by the old model.
        new: The same by the new one.
        pairs: Items to fit on, by both.
        fewer: How many of them each seed draws.
        metric: The metric.
        relevant: Gallery rows that answer each query; None for those of its class.
    """

    old: Sides
    new: Sides
    pairs: tuple[EmbeddingSet, EmbeddingSet]
    fewer: int
    metric: str
    relevant: list[NDArray[np.int64]] | None


class Measured(NamedTuple):
    """Values of every query, items encoded per query, and the share of the gallery after all; NaN where pairs are."""

    values: Values
    per_query: float
    share: float


def task_of(name: str, root: Path, work: Path) -> Task:
    """Read and embed a data set."""
    if name in COLLECTIONS:
        found = collection(name, root, work)
        old, new = ((found.queries[side], found.documents[side]) for side in MODELS)
        return Task(old, new, (old[1], new[1]), min(2000, len(old[1]) // 3), "ndcg@10", found.relevant)
    sets = embedded(name, root, work)
    old, new = ((sets[side, "query"], sets[side, "gallery"]) for side in MODELS)
    bare = [sets[side, "train"].replace(labels=None, class_names=None) for side in MODELS]
    return Task(old, new, (bare[0], bare[1]), 8000, "map", None)


def measured(task: Task, seeds: Sequence[int]) -> dict[str, Measured]:
    """Measure every way, by its name; of what a seed draws, means over the seeds."""
    parts = [dict(ways(task, seed)) for seed in seeds]
    found = {
        name: Measured(*(np.mean([getattr(part[name], what) for part in parts], axis=0) for what in Measured._fields))
        for name in parts[0]
    }
    if task.relevant is not None:
        rows = {name: one.values for name, one in found.items()}
        among = {CHOSEN: [name for name in rows if name not in (OLD, NEW)]}
        among |= {f"{CHOSEN}, {count}": [name for name in rows if name.endswith(f", {count}")] for count in SIZES}
        for name, names in among.items():
            found[name] = Measured(chosen_by_halves(rows, names), np.nan, np.nan)
    return found


def ways(task: Task, seed: int) -> Iterator[tuple[str, Measured]]:
    """Yield every way to search with the pairs that one seed draws."""

    def one_stage(sides: Sides) -> Values:
        return rank_metrics(*sides, (task.metric,), relevant=task.relevant)[task.metric]

    yield OLD, Measured(one_stage(task.old), 0, 0)
    yield NEW, Measured(one_stage(task.new), 0, 1)
    rows = np.sort(np.random.default_rng(seed).permutation(len(task.pairs[0]))[: task.fewer])
    pairs = [side[rows] for side in task.pairs]
    firsts = {"old queries": task.old}
    for name in MAPS:
        backwards, forwards = (
            build_adapter(name, {"direction": way}).fit(*pairs) for way in ("new_to_old", "old_to_new")
        )
        by_query, by_gallery = (backwards.apply(task.new[0]), task.old[1]), (task.new[0], forwards.apply(task.old[1]))
        yield f"mapped query, {name}", Measured(one_stage(by_query), 0, np.nan)
        yield f"mapped gallery, {name}", Measured(one_stage(by_gallery), 0, np.nan)
        if name == MAPS[0]:
            firsts["mapped query"] = by_query
        else:
            firsts["mapped gallery"] = by_gallery
    for name, sides in firsts.items():
        for count in SIZES:
            found = rescored(sides, task.new, count)
            values = rescored_metrics(sides, task.new, count, (task.metric,), relevant=task.relevant)[task.metric]
            yield f"two stages, {name}, {count}", Measured(values, float(found.new_encodings.mean()), found.encoded)


def table(task: Task, found: Mapping[str, Measured]) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of one data set, and the same as plain values."""
    draws = Draws(2000, 0.95, 0, clusters_of(task.old[0].labels, "auto", "queries", "labels"))
    old, new = found[OLD].values, found[NEW].values
    gains = means_of({name: one.values - old for name, one in found.items()}, draws)
    beyond = means_of({name: one.values - new for name, one in found.items()}, draws)
    lines = [
        f"{len(task.old[1]):,} items, {len(task.old[0]):,} queries, maps fitted on {task.fewer:,} pairs.",
        "",
        f"| way | {task.metric.replace('ndcg', 'nDCG').replace('map', 'mAP')} | minus old | minus embedded anew | "
        "encoded per query | encoded in all |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    record: dict[str, Any] = {}
    for name, one in found.items():
        mean = 100 * float(np.nanmean(one.values))
        apart = [_written(gains[name]) if name != OLD else "–", _written(beyond[name]) if name != NEW else "–"]
        share = f"{task.fewer:,} pairs" if np.isnan(one.share) else f"{100 * one.share:.1f} %"
        cost = ["–", "100 %"] if name == NEW else [f"{one.per_query:.1f}", share]
        cost = ["–", "–"] if np.isnan(one.per_query) else cost
        lines.append(f"| {name} | {mean:.1f} | {' | '.join([*apart, *cost])} |")
        record[name] = {
            "mean": mean, "minus_old": _numbers(gains[name]), "minus_new": _numbers(beyond[name]),
            "encoded_per_query": None if np.isnan(one.per_query) else one.per_query,
            "encoded": None if np.isnan(one.share) else one.share,
        }  # fmt: skip
    return [*lines, ""], record


def _written(gap: Any) -> str:
    mean, low, high = _numbers(gap)
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def _numbers(gap: Any) -> list[float]:
    return [100 * value for value in (gap.mean, *gap.interval)]


def latencies(name: str, root: Path, work: Path) -> dict[str, Any]:
    """Time single queries in a gallery on disk, whose candidates MiniLM embeds where they were not before."""
    folder = root / "text-collections" / name
    documents, asked = (texts_in(folder / f"{part}.parquet") for part in ("documents", "queries"))
    encoders = {side: open_text_encoder(model) for side, model in MODELS.items()}
    gallery_of = embed_texts(encoders["old"], documents, role="document", cache=work / name / "old" / "documents")
    old, new = (
        embed_texts(one, asked, role="query", cache=work / name / side / "queries") for side, one in encoders.items()
    )
    source = TextVectors(encoders["new"], TextItems(documents))
    times: dict[str, list[float]] = {"old query alone": []}
    embedded_: dict[str, list[int]] = {}
    for count in (30, 100):
        with (
            tempfile.TemporaryDirectory() as place,
            Gallery.create(f"{place}/live", fingerprint=old.fingerprint, space=old.space) as gallery,
        ):
            gallery.add(gallery_of)
            gallery.start(new.fingerprint, new.space)
            gallery.search(old[[0]], 10)
            for row in range(min(TIMED, len(old))):
                first, second = old[[row]], new[[row]]
                if count == 100:
                    times["old query alone"].append(_timed(partial(gallery.search, first, 10))[0])
                rescore = Rescoring(source, count, first)
                for what in ("first", "again"):
                    key = f"two stages, {count} candidates, {what}"
                    seconds, reply = _timed(partial(gallery.search, second, 10, rescore=rescore))
                    times.setdefault(key, []).append(seconds)
                    embedded_.setdefault(key, []).append(reply.embedded)
    return {
        key: {"median": float(np.median(of)), "largest": max(of), "embedded": float(np.median(embedded_.get(key, [0])))}
        for key, of in times.items()
    }


def _timed(call: Any) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = call()
    return 1000 * (time.perf_counter() - begun), result


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """Return what a run that was interrupted has kept, or make and keep it."""
    if not path.exists():
        path.write_text(json.dumps(make()))
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--sets", nargs="+", default=[*COLLECTIONS, *INTENTS])
    parser.add_argument("--timed", nargs="*", default=["npl"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/two-stage"))
    parser.add_argument("--out", type=Path, default=RESULTS / "two_stage.md")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["# Two-stage search", "", " ".join((__doc__ or "").split("\n\n")[2].split()), ""]
    record: dict[str, Any] = {"machine": describe(), "seeds": given.seeds, "sets": {}, "milliseconds": {}}
    for name in given.sets:
        of_set, record["sets"][name] = kept(
            given.work / f"{name}-{len(given.seeds)}.json",
            lambda: table(task := task_of(name, given.data, given.work), measured(task, given.seeds)),  # noqa: B023
        )
        lines += [f"## {name}", "", *of_set]
        print("\n".join(of_set), flush=True)
    for name in given.timed:
        record["milliseconds"][name] = found = kept(
            given.work / f"{name}-milliseconds.json",
            lambda: latencies(name, given.data, given.work),  # noqa: B023
        )
        lines += [f"## Milliseconds of a query, {name}", "", "| search | median | largest | encoded |",
                  "| --- | ---: | ---: | ---: |"]  # fmt: skip
        lines += [
            f"| {key} | {of['median']:.1f} | {of['largest']:.1f} | {of['embedded']:.0f} |" for key, of in found.items()
        ]
        print("\n".join([*lines[-len(found) :], ""]), flush=True)
        lines.append("")
    given.out.write_text("\n".join([*lines, describe(), "", f"Seeds {', '.join(map(str, given.seeds))}."]) + "\n")
    given.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
