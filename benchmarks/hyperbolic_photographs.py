"""HBCT's Table 2 with Figure 2 on photographs: the suites of the GPU kit with a ResNet that two cores can train.

100 classes of Tiny-ImageNet at 32 pixels, half of the images of each, 30 epochs. ResNet-18 has a quarter of its
filters, and a stem with a stride of 4. Each part is a suite; an interrupted one continues:

    limpet-bench run benchmarks/hyperbolic_photographs.py:objectives --seeds 0 1
    limpet-bench run benchmarks/hyperbolic_photographs.py:euclidean --seeds 0 1
    limpet-bench run benchmarks/hyperbolic_photographs.py:clipping --seeds 0 1
    limpet-bench run benchmarks/hyperbolic_photographs.py:infonce --seeds 0 1
    python benchmarks/hyperbolic_photographs.py       # writes results/hyperbolic_photographs.json, .md and .svg

The page has what is finished. Intervals are those of 2,000 draws of classes, the same for all rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from numpy.typing import NDArray

from limpet.data.datasets import data_root, load_dataset
from limpet.embeddings import EmbeddingSet
from limpet.evaluation.compatibility import p_comp, p_up
from limpet.evaluation.retrieval import rank_metrics
from limpet.models.release import load_release
from limpet.training.encode import embed_images
from limpet_bench.pictures.histograms import histograms
from limpet_bench.suite import Data, Run, Suite, Training
from limpet_bench.suites.published import published
from machine import describe

sys.path.insert(0, str(Path(__file__).parent / "gpu"))

import suites as kit

RESULTS = Path(__file__).parent / "results"
CELLS = Path(__file__).parents[1] / "runs" / "bench" / "cells"
PHOTOGRAPHS = Data("tiny-imagenet-32", {"class_share": 0.5, "image_share": 0.5})
METRICS = ("recall@1", "map")
DRAWS = 2000

PAPER = {(row.label, row.metric): row.printed for row in published("hbct-table-2")}
"""P_up and P_comp of the paper's Table 2, on CIFAR-100."""


def trained_here(training: Training) -> Training:
    """Return the training with a small network, the paper's batches and the precision that processors are fast in."""
    narrow = {"filters": 16, "stem": "imagenet"}
    return training.but(model={"backbone_options": narrow}, recipe={"batch_size": 128, "precision": "32-true"})


def at_hand(suite: Suite) -> Suite:
    def small(run: Run) -> Run:
        if run.old is None:
            raise ValueError(f"the run '{run.label}' has no old model")
        return replace(run, data=PHOTOGRAPHS, training=trained_here(run.training), old=trained_here(run.old))

    description = (
        f"{suite.description} Here with half of the images of each class, a quarter of the filters, and a stem with a"
        " stride of 4."
    )
    return replace(suite, description=description, runs=tuple(map(small, suite.runs)))


def objectives() -> Suite:
    return at_hand(kit.hbct_objectives())


def infonce() -> Suite:
    return at_hand(kit.hbct_infonce())


def euclidean() -> Suite:
    return at_hand(kit.hbct_euclidean())


def clipping() -> Suite:
    return at_hand(kit.hbct_clipping())


class Model(NamedTuple):
    """A finished model.

    Args:
        place: "hypersphere", or the radius at which the vectors of the old model are clipped.
        row: What it is called.
        seed: Of the training.
        folder: Of its release.
    """

    place: str
    row: str
    seed: int
    folder: Path


def models_in(cells: Path) -> list[Model]:
    """Return the finished models of these suites, by what their records say."""
    found = []
    for file in sorted(cells.glob("train/*/cell.json")):
        record = json.loads(file.read_text())
        settings = record["settings"]
        how = settings["experiment"]
        if settings["data"]["name"] != PHOTOGRAPHS.name or how["model"]["backbone_options"].get("filters") != 16:
            continue
        old, zeta, options = record["label"].startswith("old "), how["model"].get("zeta"), how["options"]
        place = "hypersphere" if zeta is None else f"ζ = {zeta if old else zeta - 0.2:g}"
        row = "old" if old else how["method"]
        row += " with InfoNCE" if options.get("contrast") == "infonce" else ""
        row += (
            (", without entailment" if "InfoNCE" in row else " without entailment")
            if options.get("entail_weight") == 0 else ""
        )  # fmt: skip
        found.append(
            Model(place, row, settings["seed"] if "seed" in settings else how["seed"], file.parent / "release")
        )
    return found


def by_class(query: EmbeddingSet, gallery: EmbeddingSet) -> NDArray[np.float64]:
    """Return the means of every class, (metrics, classes)."""
    found = rank_metrics(query, gallery, METRICS, exclude_same_id=True)
    return np.array(
        [[found[metric][query.labels == label].mean() for label in np.unique(query.labels)] for metric in METRICS]
    )


def measured(models: list[Model], root: Path) -> dict[str, Any]:
    """Search with every model, alone and in the gallery of its old one; only seeds that all rows have count."""
    images = load_dataset(PHOTOGRAPHS.name, root, **PHOTOGRAPHS.options).query
    embedded = {one[:3]: embed_images(load_release(one.folder), images) for one in models}
    classes = {one[:3]: load_release(one.folder).classes for one in models if one.row == "old"}
    rows: dict[str, dict[str, Any]] = defaultdict(dict)
    for (place, row, seed), vectors in embedded.items():
        old = embedded.get((place, "old", seed))
        if old is None:
            continue
        found = {"self": by_class(vectors, vectors).tolist()}
        if row != "old":
            found["cross"] = by_class(vectors, old).tolist()
        rows[f"{place} | {row}"][str(seed)] = found
    uncertainty = {}
    for (place, row, seed), vectors in embedded.items():
        if row == "old" and place != "hypersphere":
            panel = histograms("uncertainty", vectors, {}, classes[place, row, seed]).panels["old"]
            uncertainty[f"{place} | {seed}"] = {
                "auc": panel.auc, "edges": list(panel.edges),
                **{name: {"clipped": group.clipped, "mean": group.mean, "counts": list(group.counts)}
                   for name, group in panel.groups.items()},
            }  # fmt: skip
    return {"machine": describe("torch"), "rows": rows, "uncertainty": uncertainty}


class Scores:
    """P's of every row and their draws over classes."""

    def __init__(self, record: dict[str, Any], metric: int) -> None:
        self.rows = {tuple(name.split(" | ")): found for name, found in record["rows"].items()}
        self.metric = metric
        count = len(next(iter(next(iter(self.rows.values())).values()))["self"][0])
        drawn = np.random.default_rng(0).integers(count, size=(DRAWS, count))
        self.weights = np.vstack([np.ones(count), *(np.bincount(one, minlength=count) for one in drawn)]) / count

    def seeds(self, *rows: tuple[str, str]) -> list[str]:
        """Return the seeds that these rows, and the old and the independent models of their places, have in common."""
        needed = {*rows, *((place, row) for place, _ in rows for row in ("old", "independent"))}
        return sorted(set.intersection(*(set(self.rows.get(row, ())) for row in needed)))

    def means(self, row: tuple[str, str], system: str, seeds: list[str]) -> NDArray[np.float64]:
        """Return means over classes, of all classes first and then of every draw, (seeds, 1 + draws)."""
        found = [self.rows[row][seed][system][self.metric] for seed in seeds]
        return np.asarray(np.array(found) @ self.weights.T)

    def p(self, row: tuple[str, str], seeds: list[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return P_up and P_comp, means over the seeds, (1 + draws)."""
        own, old = (self.means((row[0], other), "self", seeds) for other in ("independent", "old"))
        up = p_up(self.means(row, "self", seeds), own)
        comp = p_comp(self.means(row, "cross", seeds), old, own)
        return np.mean(up, axis=0), np.mean(comp, axis=0)

    def difference(self, first: tuple[str, str], second: tuple[str, str]) -> NDArray[np.float64]:
        """Return a difference of P_comp over the seeds that both rows have."""
        seeds = self.seeds(first, second)
        return self.p(first, seeds)[1] - self.p(second, seeds)[1]


def told(values: NDArray[np.float64]) -> str:
    low, high = np.percentile(values[1:], [2.5, 97.5])
    return f"{values[0]:+.3f} [{low:+.3f}, {high:+.3f}]".replace("-", "−")


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    scores = {metric: Scores(record, number) for number, metric in enumerate(METRICS)}
    lines = [
        "# HBCT on photographs: Table 2 and Figure 2", "",
        "`python benchmarks/hyperbolic_photographs.py`, whose first lines name the suites. Tiny-ImageNet at 32 pixels: "
        "the old model knows 50 of 100 classes, the new one all of them, with half of the images of each; 5,000 val "
        "images search one another. ResNet-18 with a quarter of its filters and a stem with a stride of 4, 30 epochs; "
        "weights and temperatures are those of the paper, and of the rivals one of its ten settings, chosen before "
        "anything ran. P's are raw, compared with the old and the independent model of the same space and radius; "
        "intervals of 95 % are over classes. Differences are over the seeds that both rows have.", "",
    ]  # fmt: skip
    for metric, found in scores.items():
        lines += [
            f"## {metric}", "",
            "| space | model | seeds | self | cross | P_up | P_comp | paper's P_up, P_comp |",
            "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
        ]  # fmt: skip
        for place, row in sorted(found.rows, key=lambda one: (one[0] == "hypersphere", one[0], one[1] != "old",
                                                              one[1] != "independent", one[1])):  # fmt: skip
            seeds = found.seeds((place, row))
            if not seeds:
                continue
            own = f"{', '.join(seeds)} | {found.means((place, row), 'self', seeds)[:, 0].mean():.3f}"
            if row == "old":
                lines.append(f"| {place} | old | {own} | | | | |")
                continue
            cross = f"{found.means((place, row), 'cross', seeds)[:, 0].mean():.3f}"
            printed = PAPER.get((row, metric), {}) if place == "ζ = 1" else {}
            paper = ", ".join(f"{value:.3f}" for value in printed.values())
            up, comp = found.p((place, row), seeds)
            lines.append(f"| {place} | {row} | {own} | {cross} | {told(up)} | {told(comp)} | {paper} |")
        lines += ["", "| difference of P_comp | seeds | |", "| --- | --- | ---: |"]
        for first, second in pairs(found):
            seeds = ", ".join(found.seeds(first, second))
            lines.append(f"| {words(first, second)} | {seeds} | {told(found.difference(first, second))} |")
        lines += [""]
    lines += [
        "## Figure 2: uncertainty of the old model", "",
        "![Uncertainty of the old model](hyperbolic_photographs.svg)", "",
        "| clipped at | seed | clipped, seen | clipped, unseen | uncertainty, seen | uncertainty, unseen | AUC |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for name, one in sorted(record["uncertainty"].items()):
        place, seed = name.split(" | ")
        shares = " | ".join(f"{100 * one[group]['clipped']:.0f} %" for group in ("seen", "unseen"))
        means = " | ".join(f"{one[group]['mean']:.3f}" for group in ("seen", "unseen"))
        lines.append(f"| {place} | {seed} | {shares} | {means} | {one['auc']:.3f} |")
    return "\n".join([*lines, "", f"{record['machine']}.", ""])


def pairs(found: Scores) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Return what the paper compares, of rows that are there."""
    first, sphere, infonce = "ζ = 1", "hypersphere", "hbct with InfoNCE"
    wanted = [
        ((first, "hbct"), (first, "hbct without entailment")),
        ((first, infonce), (first, f"{infonce}, without entailment")),
        ((first, "hbct"), (first, infonce)),
        ((first, "hbct without entailment"), (first, f"{infonce}, without entailment")),
        ((first, "hbct"), (sphere, "hot_refresh")),
        ((first, "hbct"), (sphere, "hoc")),
        (("ζ = 2", "hbct"), (first, "hbct")),
        (("ζ = 2", "hbct"), (sphere, "hot_refresh")),
        (("ζ = 2", "hbct"), (sphere, "hoc")),
    ]
    return [pair for pair in wanted if found.seeds(*pair)]


def words(first: tuple[str, str], second: tuple[str, str]) -> str:
    """Return what a difference is called, with the places of its rows where one row is compared with itself."""
    if first[1] == second[1]:
        return f"{first[1]} with {first[0]} − with {second[0]}"
    return f"{first[1]}{'' if first[0] == 'ζ = 1' else f' with {first[0]}'} − {second[1]}"


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw the uncertainty of the old models of the first seed, by whether they have seen the class."""
    points = [
        {
            "clipped at": name.split(" | ")[0],
            "class": group,
            "low": low,
            "high": high,
            "none": 0,
            "share": count / total,
        }
        for name, one in record["uncertainty"].items()
        if name.endswith(" | 0")
        for group in ("seen", "unseen")
        for total in [sum(one[group]["counts"])]
        for low, high, count in zip(one["edges"], one["edges"][1:], one[group]["counts"], strict=False)
    ]
    chart = (
        alt.Chart(alt.Data(values=points), width=330, height=200)
        .mark_bar(opacity=0.6)
        .encode(
            alt.X("low:Q", title="uncertainty", scale=alt.Scale(zero=False)),
            alt.X2("high:Q"),
            alt.Y2("none:Q"),
            alt.Y("share:Q", stack=None, title="share of images", axis=alt.Axis(format="%")),
            alt.Color("class:N", title=None, scale=alt.Scale(domain=["seen", "unseen"], range=["#4c78a8", "#e07b39"])),
            alt.Column("clipped at:N", title="Old model of seed 0, by whether it has seen the class of the image"),
        )
        .resolve_scale(x="independent", y="independent")
    )
    chart.save(str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=CELLS, help="folder of finished steps of limpet-bench")
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--out", type=Path, default=RESULTS / "hyperbolic_photographs")
    parser.add_argument("--tables-only", action="store_true", help="write .md and .svg again from the .json")
    arguments = parser.parse_args()
    file = arguments.out.with_suffix(".json")
    if not arguments.tables_only:
        file.write_text(json.dumps(measured(models_in(arguments.cells), data_root(arguments.root))) + "\n")
    record = json.loads(file.read_text())
    arguments.out.with_suffix(".md").write_text(page(record))
    draw(record, arguments.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
