"""The models of gallery_upgrade.py, and what they make of queries and gallery: trained once, then opened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comparison import SUITES
from frozen_models_tasks import NEW, OLD, part_of
from hyperbolic_tasks import LORENTZ, RECIPE, SPACES
from hyperbolic_tasks import MODEL as LORENTZ_MODEL
from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.data.datasets import load_dataset
from limpet.data.scenarios import SCENARIOS
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import EvaluationResults
from limpet.models.text_encoders import embed_texts, open_text_encoder
from limpet.results import Data
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment
from limpet.training.train import train_upgrade


@dataclass(frozen=True)
class Upgrade:
    """All that one upgrade of a gallery needs.

    Args:
        old: Queries and gallery by the old model, with class names.
        new: The same items by the new model.
        report: results.json that vouches for new queries on the old gallery.
        adapter: Folder of an adapter, where only that links the two.
        calibrated: Whether a cohort is drawn after every tenth, by which scores of old and new vectors are compared.
    """

    old: tuple[EmbeddingSet, EmbeddingSet]
    new: tuple[EmbeddingSet, EmbeddingSet]
    report: Path
    adapter: Path | None = None
    calibrated: bool = False


def hypersphere(seed: int, root: Path, work: Path) -> Upgrade:
    """p2s on Omniglot, extended-class, as comparison.py trains it."""
    suite = SUITES["omniglot"]
    base = Experiment(model=suite.model, recipe=suite.recipe, seed=seed)
    return _trained(base, replace(base, method="p2s"), seed, root, work)


def lorentz(seed: int, root: Path, work: Path) -> Upgrade:
    """hbct on Omniglot, extended-class, in Lorentz space, as hyperbolic.py trains it with the weight it chose."""
    base = Experiment(model=LORENTZ_MODEL, recipe=replace(RECIPE, epochs=5), seed=seed, **SPACES[LORENTZ])
    return _trained(base, replace(base, method="hbct", method_options={"weight": 0.1}), seed, root, work)


def _trained(old: Experiment, new: Experiment, seed: int, root: Path, work: Path) -> Upgrade:
    data = load_dataset("omniglot", root, image_size=old.model.image_size)
    split = SCENARIOS["extended-class"].divide(data.train.labels, seed=seed)
    releases = train_upgrade(data.train, split, old, {"new": new}, work / "releases")
    sides = {}
    for name, release in releases.items():
        for part, images in (("query", data.query), ("gallery", data.gallery)):
            file = work / "embeddings" / name / f"{part}.safetensors"
            if not file.exists():
                storage.save(embed_images(release, images), file)
        sides[name] = tuple(
            storage.load(work / "embeddings" / name / f"{part}.safetensors") for part in ("query", "gallery")
        )
    return Upgrade(sides["old"], sides["new"], reported(sides["old"], sides["new"], work / "report"))


def adapter_of_gallery(seed: int, root: Path, work: Path) -> Upgrade:
    """Two frozen text models on CLINC150; ridge, fitted on the training sentences, maps the old gallery."""
    return _adapted("ridge", "old_to_new", seed, root, work)


def adapter_of_queries(seed: int, root: Path, work: Path) -> Upgrade:
    """The same two models; procrustes maps new queries, and results of old and new rows are merged by rank."""
    return _adapted("procrustes", "new_to_old", seed, root, work)


def calibrated(make: Callable[[int, Path, Path], Upgrade]) -> Callable[[int, Path, Path], Upgrade]:
    """The same, with `limpet gallery calibrate` after every tenth."""
    return lambda seed, root, work: replace(make(seed, root, work), calibrated=True)


def _adapted(name: str, direction: str, seed: int, root: Path, work: Path) -> Upgrade:
    split = load_texts("clinc150", root, seed=seed).parts()
    parts = {}
    for model in (OLD, NEW):
        encoder = open_text_encoder(model)
        whole = [embed_texts(encoder, texts, cache=work.parent / "texts") for texts in split.values()]
        parts[model] = {
            name: part_of(embeddings, texts) for (name, texts), embeddings in zip(split.items(), whole, strict=True)
        }
    adapter = build_adapter(name, {"direction": direction}).fit(parts[OLD]["train"], parts[NEW]["train"])
    shutil.rmtree(work / "adapter", ignore_errors=True)
    folder = save_adapter(adapter, work / "adapter")
    old, new = ((parts[model]["query"], parts[model]["gallery"]) for model in (OLD, NEW))
    back = direction == "old_to_new"
    cross = (new[0], adapter.apply(old[1])) if back else (adapter.apply(new[0]), old[1])
    return Upgrade(old, new, reported(old, new, work / "report", cross=cross), folder)


def reported(old: Any, new: Any, folder: Path, **options: Any) -> Path:
    """Measure the upgrade as `limpet evaluate` does, and return its results."""
    found = evaluate(old, new, curve=False, metrics=("recall@1", "map"), **options)
    data = Data(name="gallery", description="", numbers={"gallery": len(old[1])})
    return EvaluationResults.of(title="Upgrade", data=data, models={}, evaluations={"new": found}).save(folder)


UPGRADES: dict[str, Callable[[int, Path, Path], Upgrade]] = {
    "omniglot, hypersphere (p2s)": hypersphere,
    "omniglot, Lorentz space (hbct)": lorentz,
    "clinc150, adapter of the gallery (ridge)": adapter_of_gallery,
    "clinc150, adapter of queries (procrustes), merged by rank": adapter_of_queries,
    "clinc150, adapter of the gallery (ridge), calibrated": calibrated(adapter_of_gallery),
    "clinc150, adapter of queries (procrustes), calibrated": calibrated(adapter_of_queries),
}
