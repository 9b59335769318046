"""A tiny transformer learns from pairs and triplets of texts, and searches the gallery of an old model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.text_pairs import TextPairs
from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.models.names import ModelName
from limpet.models.pair_losses import TripletLoss
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder
from limpet.training.events import TrainingStep
from limpet.training.experiment import TEXT_RECIPE, Experiment
from limpet.training.fine_tuning import FineTuned, fine_tune
from tiny_text_model import WORDS, write_tiny_model

TOPICS, FILLERS = WORDS[:24], WORDS[24:]
QUICK = dataclasses.replace(
    TEXT_RECIPE, epochs=1, batch_size=16, learning_rate=1e-2, backbone_rate=1.0, accelerator="cpu"
)
LEARNS = dataclasses.replace(QUICK, epochs=6)
CLASSLESS = [name for name, one in METHODS.items() if one.without_classes is not None and not one.sessions_only]


def columns(count: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """Return anchors, positives of the same topic and negatives of another; one word of each tells it."""
    rng = np.random.default_rng(seed)

    def text(topic: int) -> str:
        words = rng.choice(FILLERS, rng.integers(3, 7)).tolist()
        words.insert(int(rng.integers(0, len(words) + 1)), TOPICS[topic % 24])
        return " ".join(words)

    rows = range(count)
    return [text(row) for row in rows], [text(row) for row in rows], [text(row + 5) for row in rows]


def by_old(texts: TextSet) -> EmbeddingSet:
    rng = np.random.default_rng(9)
    table = {word: (2 if word in TOPICS else 1) * rng.normal(size=8) for word in WORDS}
    rows = np.stack([sum(table[word] for word in text.split()) for text in texts.texts])
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = None if texts.labels is None else StringArray.of(texts.class_names)
    return EmbeddingSet(vectors, texts.ids, "declared:old", Hypersphere(8), labels=texts.labels, class_names=names)


def by_topic(texts: list[str]) -> TextSet:
    labels = np.arange(len(texts)) % 24
    return TextSet(texts, labels, tuple(TOPICS), [f"{row}" for row in range(len(texts))])


PAIRS = TextPairs.of(columns(240, seed=1)[:2])
FEW = TextPairs.of(columns(24, seed=2)[:2])
ASKED, ANSWERS = map(by_topic, columns(120, seed=3)[:2])


def recall(query: EmbeddingSet, gallery: EmbeddingSet) -> float:
    return float(np.nanmean(rank_metrics(query, gallery, ("recall@1",))["recall@1"]))


def experiment(method: str = "l2", recipe: Any = QUICK, **options: Any) -> Experiment:
    return Experiment(method=method, method_options=options, recipe=recipe)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    return open_text_encoder(write_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def tuned(encoder: TextEncoder, tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    return fine_tune(by_old(PAIRS.texts), PAIRS, encoder, experiment(recipe=LEARNS), tmp_path_factory.mktemp("l2"))


def test_pairs_are_found_and_the_old_gallery_is_searched_as_well(
    tuned: FineTuned, encoder: TextEncoder, tmp_path: Path
) -> None:
    old = by_old(ANSWERS)
    untrained = recall(embed_texts(encoder, ASKED), embed_texts(encoder, ANSWERS))
    assert recall(tuned.embed(ASKED), tuned.embed(ANSWERS)) > untrained + 0.3
    today = recall(by_old(ASKED), old)
    assert recall(tuned.embed(ASKED), old) > today
    alone = fine_tune(by_old(FEW.texts), FEW, encoder, experiment("independent"), tmp_path)
    assert recall(alone.embed(ASKED), old) < today / 2


def test_the_release_says_what_it_was_trained_on(tuned: FineTuned) -> None:
    record = tuned.release.record
    assert record.data["pairs"] == "240" and record.data["loss"] == "RankingLoss(scale=20)"
    assert record.head is None and tuned.release.classes == () and record.compatible_with == "declared:old"
    card = (Path(ModelName(tuned.encoder.name).place).parent / "README.md").read_text()
    assert "240 pairs, RankingLoss(scale=20)" in card


@pytest.mark.parametrize("method", CLASSLESS)
def test_every_method_that_needs_no_classes_trains_on_pairs(method: str, encoder: TextEncoder, tmp_path: Path) -> None:
    made = fine_tune(by_old(FEW.texts), FEW, encoder, experiment(method), tmp_path)
    assert made.embed(ASKED).dim == 8


@pytest.mark.parametrize("method", [name for name in METHODS if name not in CLASSLESS])
def test_every_other_one_is_refused_with_those_that_do(method: str, encoder: TextEncoder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"'{method}' needs classes") as error:
        fine_tune(by_old(FEW.texts), FEW, encoder, experiment(method), tmp_path / "out")
    assert error.value.expected == f"one of {', '.join(CLASSLESS)}"
    assert not (tmp_path / "out").exists()


def test_triplets_are_trained_by_both_losses(encoder: TextEncoder, tmp_path: Path) -> None:
    triplets = TextPairs.of(columns(24, seed=2))
    for name, task in (("ranking", None), ("triplet", TripletLoss(3, margin=0.5))):
        made = fine_tune(by_old(triplets.texts), triplets, encoder, experiment(), tmp_path / name, task=task)
        assert made.release.record.data["triplets"] == "24"
    assert made.release.record.data["loss"] == "TripletLoss(margin=0.5)"


def test_an_epoch_takes_every_pair_once_and_a_stopped_run_goes_on(
    every_epoch_kept: None, encoder: TextEncoder, tmp_path: Path
) -> None:
    seen: list[TrainingStep] = []
    asked = experiment(recipe=dataclasses.replace(QUICK, epochs=2, batch_size=10))
    old = by_old(FEW.texts)
    whole = fine_tune(old, FEW, encoder, asked, tmp_path / "whole", progress=seen.append)
    assert [event["images"] for event in seen] == [16] * 6  # texts of 3 times 8 pairs

    def stops(event: TrainingStep) -> None:
        if event["epoch"] * event["steps"] + event["step"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fine_tune(old, FEW, encoder, asked, tmp_path / "stopped", progress=stops)
    again = fine_tune(old, FEW, encoder, asked, tmp_path / "stopped", progress=(later := []).append)
    assert len(later) == 3 and again.release.fingerprint == whole.release.fingerprint


def test_anchors_are_queries_of_a_model_with_prefixes(tmp_path: Path) -> None:
    place = write_tiny_model(tmp_path / "base", prompts={"query": "find : ", "document": "read : "})
    asking = open_text_encoder(place)
    from limpet.training.fine_tuning import embedded_before

    found = embedded_before(asking, FEW)
    queries, documents = (embed_texts(asking, FEW.texts, role=role).vectors for role in ("query", "document"))
    for side, expected in enumerate((queries, documents)):
        rows = FEW.rows[:, side]
        np.testing.assert_allclose(found.vectors[rows], expected[rows], atol=1e-6)


def test_what_does_not_fit_pairs_is_told(encoder: TextEncoder, tmp_path: Path) -> None:
    old = by_old(FEW.texts)
    with pytest.raises(DataError, match="lack 3 of 48 texts"):
        fine_tune(old[np.arange(45)], FEW, encoder, experiment(), tmp_path / "a")
    with pytest.raises(ConfigError, match=r"denoise=0\.5, by which it looks at classes"):
        fine_tune(old, FEW, encoder, experiment("mixbct", denoise=0.5), tmp_path / "b")
    with pytest.raises(ConfigError, match="'head' of pairs"):
        fine_tune(old, FEW, encoder, experiment(), tmp_path / "c", start="head")
    with pytest.raises(ConfigError, match="items_per_class = 2"):
        recipe = dataclasses.replace(QUICK, items_per_class=2)
        fine_tune(old, FEW, encoder, experiment(recipe=recipe), tmp_path / "d")
    with pytest.raises(ConfigError, match="for texts with labels"):
        fine_tune(by_old(ASKED), ASKED, encoder, experiment(), tmp_path / "e", task=TripletLoss(3))
    with pytest.raises(ConfigError, match="classifier 'softmax' for pairs"):
        fine_tune(old, FEW, encoder, dataclasses.replace(experiment(), head="softmax"), tmp_path / "f")
