"""``limpet demo``."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from limpet.cli.console import as_json, console, counting_progress, print_json, progress_bar, training_progress
from limpet.cli.evidence import Pictures, write_evidence
from limpet.cli.options import DataSets
from limpet.cli.settings import Settings, Typed
from limpet.embeddings.sides import QueriesAndGallery
from limpet.support.extras import installed, require

if TYPE_CHECKING:
    from limpet.data.retrieval_data import RetrievalData
    from limpet.embeddings import EmbeddingSet
    from limpet.evaluation.results import Evaluation
    from limpet.galleries import Gallery
    from limpet.galleries.router import Hit
    from limpet.galleries.served import Served
    from limpet.models.release import Release
    from limpet.training.experiment import Experiment

METHODS_SHOWN = ("independent", "p2s", "bct")
SERVED = "p2s"  # the compatible model that the live gallery changes to
METHODS_ALL = (*METHODS_SHOWN, "l2", "mixbct", "advbct")
TENTHS = 10
HITS = 100
QUERIES = 300
BAR = 40  # characters for a value of 1


def demo(
    *,
    settings: Settings = Settings(),
    typed: Typed = Typed(""),
    out: Path = Path("runs/demo"),
    all: bool = False,
    seed: int = 0,
) -> int:
    """Run the main workflow on rendered characters: train, embed, evaluate, report.

    An old model learns 120 of 400 characters. New models learn all of them: one without any alignment, the others so
    that their queries search the old model's gallery. All are measured on 200 characters that none has seen. Finally, a
    live gallery is migrated from the old model to a compatible one, rolled back, and searched over HTTP.

    Args:
        out: Output folder for releases, embeddings, results.json, report.html and the gallery; existing models and
            embeddings are reused.
        all: Train every method, not only independent, p2s and bct.
        seed: Random seed of the demo.

    Examples:
        limpet demo --out runs/demo
    """
    require("`limpet demo`", "train", "report", "gallery", "demo")
    from limpet.models.card import write_card  # help is printed without these
    from limpet.reports.evaluation import summary_rows
    from limpet.reports.markdown import markdown_table
    from limpet.results import Data

    started = time.monotonic()
    data = DataSets(data_options={"seed": seed}).images("glyphs")
    releases = _train(data, METHODS_ALL if all else METHODS_SHOWN, out, seed)
    sides = {name: _embed(name, release, data, out) for name, release in releases.items()}
    evaluations = _evaluate(sides, seed)
    results = write_evidence(
        evaluations,
        sides["old"],
        {name: sides[name] for name in evaluations},
        out,
        title="Can new models search the gallery that the old model embedded?",
        data=Data(
            name=data.name,
            description=data.description,
            numbers={"queries": len(data.query), "gallery images": len(data.gallery),
                     "characters to search": len(data.query.class_names)},
        ),
        models={name: summary(release) for name, release in releases.items()},
        pictures=Pictures(data),
        seed=seed,
        command=typed,
    )  # fmt: skip
    settings.write(out)
    for name, release in releases.items():
        write_card(release.record, release.space, out / name, markdown_table(*summary_rows(results)))
    gallery = live_gallery(sides["old"], sides[SERVED], out, SERVED, seed)
    gallery.tell()
    if as_json():
        print_json({**results.to_dict(), "gallery": gallery.to_dict()})
    console.print(f"{time.monotonic() - started:.0f} s in all", style="dim")
    return 0


def experiment(seed: int) -> Experiment:
    """Return how the demo trains, as benchmarks/comparison.py --validate chose it on the validation characters."""
    from limpet.models.specs import EncoderSpec
    from limpet.training.experiment import Experiment, Recipe

    return Experiment(
        model=EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 32}),
        recipe=Recipe(epochs=6, learning_rate=0.05, warmup_epochs=0.5, accelerator="cpu"),
        seed=seed,
    )


def summary(release: Release) -> dict[str, object]:
    """Return what the report says of a release."""
    record = release.record
    return {
        "backbone": record.encoder.name,
        "dim": record.encoder.dim,
        "method": record.method,
        "options": record.method_options,
        "trained on": record.data.get("name", ""),
        "images": record.data.get("images", ""),
        "fingerprint": record.fingerprint,
        "seed": record.seed,
    }


def _train(data: RetrievalData, methods: tuple[str, ...], out: Path, seed: int) -> dict[str, Release]:
    from limpet.data.scenarios import SCENARIOS
    from limpet.training.train import train_upgrade

    base = experiment(seed)
    return train_upgrade(
        data.to_train_on(),
        SCENARIOS["extended-class"].divide(data.to_train_on().labels, seed=seed),
        base,
        {name: replace(base, method=name) for name in methods},
        out,
        data_name="glyphs, extended-class",
        on_run=training_progress,
    )


def _embed(name: str, release: Release, data: RetrievalData, out: Path) -> QueriesAndGallery:
    from limpet.embeddings import storage
    from limpet.training.encode import embed_images

    opened = {}
    for part, images in (("query", data.query), ("gallery", data.gallery)):
        path = out / "embeddings" / name / f"{part}.safetensors"
        with progress_bar(f"embed {name} {part}", len(images)) as bar:
            storage.save(embed_images(release, images, progress=bar), path)
        opened[part] = storage.load(path)
    return QueriesAndGallery(opened["query"], opened["gallery"])


def _evaluate(sides: dict[str, QueriesAndGallery], seed: int) -> dict[str, Evaluation]:
    from limpet.evaluation.evaluate import evaluate

    reference = sides["independent"]
    with counting_progress("evaluate", len(sides) - 1) as on_done:
        evaluations = {}
        for name in sides:
            if name != "old":
                evaluations[name] = evaluate(sides["old"], sides[name], independent=reference, seed=seed)
                on_done(1)
    return evaluations


@dataclass(frozen=True)
class Carried:
    """What queries found in a live gallery while its model was changed.

    Args:
        before: The old model's queries before the swap.
        steps: The new model's queries after it, by the share of the items that had a new vector.
        same_after_rollback: Whether the old model's queries found the very hits of before once it was rolled back.
        same_over_http: Whether the new model's queries find the same hits over HTTP; None without the extra `serve`.
    """

    before: Served
    steps: Mapping[float, Served]
    same_after_rollback: bool
    same_over_http: bool | None

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""

        def scores(found: Served) -> dict[str, float]:
            return {"map": found.map_at_k, "recall": found.recall_at_1}

        steps = [{"share": share, **scores(found)} for share, found in self.steps.items()]
        same = {"same_after_rollback": self.same_after_rollback, "same_over_http": self.same_over_http}
        return {"before": scores(self.before), "steps": steps, **same}

    def tell(self) -> None:
        """Print it."""
        console.print(f"\nA live gallery changes its model (mAP of the first {HITS} hits)", style="bold")
        steps = {f"new queries, {100 * share:3.0f} %": found for share, found in self.steps.items()}
        for name, found in {"old queries, before": self.before, **steps}.items():
            console.print(f"  {name:<22} {found.map_at_k:.3f}  {'█' * round(BAR * found.map_at_k)}")
        back = "the very hits of before" if self.same_after_rollback else "other hits than before: this is a bug"
        console.print(f"Swapped in one step, backfilled while it answered; after a rollback old queries find {back}.")
        if self.same_over_http is not None:
            same = "the same hits" if self.same_over_http else "other hits: this is a bug"
            console.print(f"Served for a moment: over HTTP new queries find {same}. `limpet serve` shows the console.")


def live_gallery(old: QueriesAndGallery, new: QueriesAndGallery, out: Path, name: str, seed: int) -> Carried:
    """Create a gallery with the old release, swap to the compatible one, backfill in tenths, and roll back.

    Args:
        out: Folder of the demo: the gallery goes there, and its results.json vouches for the swap.
    """
    from limpet.galleries import Gallery
    from limpet.upgrade.vector_sources import FileVectors

    folder = out / "gallery"
    shutil.rmtree(folder, ignore_errors=True)
    rows = np.sort(np.random.default_rng(seed).permutation(len(old.query))[:QUERIES])
    asked_old, asked_new = old.query[rows], new.query[rows]
    steps: dict[float, Served] = {}
    with Gallery.create(
        str(folder),
        fingerprint=old.gallery.fingerprint,
        space=old.gallery.space,
        columns={"label": "text"},
        note="old",
    ) as gallery:
        gallery.add(old.gallery)
        before = _asked(gallery, asked_old)
        gallery.start(new.gallery.fingerprint, new.gallery.space, reports=[out], note="new")
        gallery.swap()
        source = FileVectors([out / "embeddings" / name / "gallery.safetensors"])
        with counting_progress("backfill", len(gallery)) as progress:
            for tenth in range(TENTHS + 1):
                if tenth:
                    part = -(-len(gallery) // TENTHS)
                    progress(gallery.backfill(source, order="random", seed=seed, budget=part, batch=512).written)
                found, steps[tenth / TENTHS] = _asked(gallery, asked_new)
        gallery.rollback()
        after = _asked(gallery, asked_old)
        gallery.swap()
    same = _over_http(folder, asked_new) == found if installed("serve") else None
    return Carried(before[1], steps, before[0] == after[0], same)


def _over_http(gallery: Path, queries: EmbeddingSet) -> list[list[Hit]]:
    """Serve a gallery for a moment, and return what queries find over HTTP."""
    from limpet.service.client import Client
    from limpet.service.processes import ServiceProcesses
    from limpet.service.settings import ServiceSettings

    with tempfile.TemporaryDirectory(prefix="limpet-serve-") as folder:
        service = ServiceProcesses(ServiceSettings(str(gallery), Path(folder), port=0))
        try:
            service.init_processes()
            with Client(f"http://127.0.0.1:{service.settings.port}") as client:
                return client.search(queries, k=HITS).hits
        finally:
            service.terminate_all()
            service.join_all()


def _asked(gallery: Gallery, queries: EmbeddingSet) -> tuple[list[list[Hit]], Served]:
    from limpet.galleries.served import class_names_of, items_of_class, served

    reply = gallery.search(queries, k=HITS)
    return reply.hits, served(reply, class_names_of(queries), items_of_class(gallery.store), HITS)
