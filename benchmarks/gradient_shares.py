"""How much of the gradient each term of a loss has, while a model trains: the terms of NCCL, and L2 as mean squares.

    python benchmarks/gradient_shares.py     # some minutes on two cores

Trains on the tuning part of all_methods.py (extended-class, its seed, network, recipe and half its epochs). At every
tenth step the lengths of the terms' gradients at the new embeddings are compared, weights included; shown is the median
over the steps of the first and of the last epoch, and what the model came to on validation classes. Writes
gradient_shares.json and gradient_shares.txt.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from all_methods_tables import EXTENDED, INDEPENDENT
from all_methods_tasks import MODEL, RECIPE, Settings, images_of
from limpet.data.datasets import data_root
from limpet.data.scenarios import SCENARIOS
from limpet.embeddings import EmbeddingSet
from limpet.errors import DataError
from limpet.evaluation.compatibility import p_comp, p_score, p_up
from limpet.evaluation.retrieval import rank_metrics
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, Step
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment
from limpet.training.train import train_upgrade
from machine import describe

RESULTS = Path(__file__).parent / "results"
EVERY, SEED = 10, 100
D = MODEL.dim


class Case(NamedTuple):
    """One training: whose ``term`` is compared with ``against``."""

    title: str
    head: str
    method: str
    options: dict[str, Any]
    term: str
    against: str


def nccl(title: str, head: str, **options: Any) -> Case:
    return Case(f"nccl, {title}", head, "nccl", options, "logit_consensus", "consensus")


CASES = [
    *(nccl(f"printed scores, weight {weight:g}", "softmax", scores="printed", weight=weight) for weight in (1.0, 3.0)),
    *(nccl(f"unit scores, weight {weight:g}", "softmax", weight=weight) for weight in (1.0, 3.0, 10.0)),
    *(nccl(f"no scores, weight {weight:g}", "softmax", logit_weight=0.0, weight=weight) for weight in (1.0, 3.0, 10.0)),
    nccl("printed scores, weight 1", "arcface", scores="printed"),
    nccl("unit scores, weight 1", "arcface"),
    *(
        Case(f"l2, mean squares, weight {factor} D", "softmax", "l2", {"power": 2, "weight": factor * D}, "alignment",
             "task")
        for factor in (1 / D, 1, 10, 100)
    ),
]  # fmt: skip


class Watch:
    """Notes the ratio of two terms' gradients while a method trains."""

    def __init__(self, case: Case) -> None:
        self.case, self.steps = case, 0
        self.ratios: dict[int, list[float]] = {}

    def kind(self) -> type[CompatibilityMethod]:
        """Return the method's class, watched."""
        watch, kind = self, METHODS[self.case.method]

        class Watched(kind):  # type: ignore[misc, valid-type]
            def forward(self, step: Step) -> dict[str, Tensor]:
                terms: dict[str, Tensor] = super().forward(step)
                watch.see(step, terms)
                return terms

        return Watched

    def see(self, step: Step, terms: dict[str, Tensor]) -> None:
        self.steps += 1
        if self.steps % EVERY or not {self.case.term, self.case.against} <= terms.keys():
            return
        term, against = (
            torch.autograd.grad(terms[name], step.new.features, retain_graph=True)[0].norm().item()
            for name in (self.case.term, self.case.against)
        )
        ratio = term / against if against else math.nan
        if math.isfinite(ratio):  # a run that diverges has gradients that are no numbers
            self.ratios.setdefault(step.epoch, []).append(ratio)


def average_precision(query: EmbeddingSet, gallery: EmbeddingSet) -> float:
    return float(rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"].mean())


def measured(epochs: int, root: Path) -> list[dict[str, Any]]:
    """Train every case beside the old and the independent model of its head, and return what was found."""
    train, searched = images_of("tune", Settings(epochs, None, root, Path()))
    split = SCENARIOS[EXTENDED].divide(train.labels, seed=SEED)
    found = []
    for head in dict.fromkeys(case.head for case in CASES):
        base = Experiment(model=MODEL, head=head, recipe=replace(RECIPE, epochs=epochs), seed=SEED)
        with tempfile.TemporaryDirectory() as folder:

            def trained(name: str, method: str, options: dict[str, Any]) -> EmbeddingSet:
                new = replace(base, method=method, method_options=options)  # noqa: B023 - used within this turn
                release = train_upgrade(train, split, base, {name: new}, Path(folder))[name]  # noqa: B023
                return embed_images(release, searched)

            independent = trained(INDEPENDENT, INDEPENDENT, {})
            old = embed_images(train_upgrade(train, split, base, {}, Path(folder))["old"], searched)
            self_old, self_independent = (average_precision(each, each) for each in (old, independent))
            for case in (case for case in CASES if case.head == head):
                watch, kind = Watch(case), METHODS[case.method]
                record = {**case._asdict(), "self_old": self_old, "self_independent": self_independent}
                METHODS[case.method] = watch.kind()
                try:
                    new = trained(case.title, case.method, case.options)
                    own, cross = average_precision(new, new), average_precision(new, old)
                    up, comp = (
                        p_up(own, self_independent, "sigmoid"),
                        p_comp(cross, self_old, self_independent, "sigmoid"),
                    )
                    record |= {"self_new": own, "cross": cross, "p_score": 100 * p_score(comp, up)}
                except DataError as failure:
                    record["failure"] = str(failure)
                finally:
                    METHODS[case.method] = kind
                found.append(record | {"ratios": watch.ratios})
                print(row(found[-1]), flush=True)
    return found


def row(record: dict[str, Any]) -> str:
    """Return one line of the table."""
    epochs = sorted(record["ratios"], key=int)
    first, last = (f"{np.median(record['ratios'][epoch]):.2g}" for epoch in (epochs[0], epochs[-1])) if epochs else "––"
    named = f"{record['title']:38} {record['head']:8} {first:>8} {last:>8}"
    if "failure" in record:
        return f"{named}   failed: {record['failure'].split(';')[0]}"
    return (
        f"{named} {record['self_old']:6.3f} {record['cross']:6.3f} {record['self_new']:6.3f} {record['p_score']:6.1f}"
    )


def text(document: dict[str, Any]) -> str:
    """Return all that was found as a table."""
    columns = ("first", "last"), ("old", "cross", "self", "P")
    titles = " ".join([*(f"{name:>8}" for name in columns[0]), *(f"{name:>6}" for name in columns[1])])
    lines = [
        f"Omniglot, extended-class, validation characters, seed {SEED}, {document['epochs']} epochs.",
        "first, last: gradient of the term by that of the other one, as weighted, median over the steps of the first",
        "and of the last epoch. nccl: scores against embeddings; l2: alignment against the task. P: P_score.",
        "",
        f"{'':38} {'head':8} {titles}",
        *map(row, document["records"]),
        "",
        f"{document['command']}; {document['machine']}",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3, help="of every model (default: 3)")
    parser.add_argument("--root", type=Path, help="data root (default: the environment variable LIMPET_DATA)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: benchmarks/results)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    document = {
        "command": "python benchmarks/gradient_shares.py", "machine": describe(), "epochs": arguments.epochs,
        "records": measured(arguments.epochs, data_root(arguments.root)),
    }  # fmt: skip
    (arguments.out / "gradient_shares.json").write_text(json.dumps(document, indent=1) + "\n")
    (arguments.out / "gradient_shares.txt").write_text(text(document))
    print(text(document))


if __name__ == "__main__":
    main()
