"""A tiny transformer is fine-tuned to search the gallery of an old model of text."""

from __future__ import annotations

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, ReleaseError
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere
from limpet.methods import METHODS
from limpet.models.names import ModelName
from limpet.models.release import load_release
from limpet.models.specs import EncoderSpec, FeatureSpec
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder
from limpet.training.compatible_head import load_head
from limpet.training.events import TrainingStep
from limpet.training.experiment import TEXT_RECIPE, Experiment, Recipe, Trainable
from limpet.training.fine_tuning import FineTuned, Start, fine_tune, load_fine_tuned
from tiny_text_model import WORDS, some_texts, write_tiny_model

QUICK = dataclasses.replace(
    TEXT_RECIPE, epochs=1, batch_size=32, learning_rate=1e-2, backbone_rate=1.0, accelerator="cpu"
)
LEARNS = dataclasses.replace(QUICK, epochs=6, batch_size=16)
FOR_ONE_UPGRADE = [name for name, method in METHODS.items() if not method.sessions_only]
FEW = some_texts(32, seed=1)
MANY = some_texts(200, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> TextEncoder:
    return open_text_encoder(folder)


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    return open_text_encoder(write_tiny_model(tmp_path_factory.mktemp("deeper"), layers=2))


@pytest.fixture
def hasty_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the head that comes first take a single step."""
    recipe = dataclasses.replace(QUICK, backbone_rate=None)
    monkeypatch.setattr("limpet.training.fine_tuning.head_recipe", lambda items: recipe)


def by_old(texts: TextSet) -> EmbeddingSet:
    """Embed with static words of 8 dimensions, those of a class near each other."""
    rng = np.random.default_rng(9)
    centres = {kind: 4 * rng.normal(size=8) for kind in "abcd"}
    table = {word: rng.normal(size=8) + (0 if word.startswith("any") else centres[word[0]]) for word in WORDS}
    rows = np.stack([sum(table[word] for word in text.split()) for text in texts.texts])
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = StringArray.of(texts.class_names)
    return EmbeddingSet(vectors, texts.ids, "declared:old", Hypersphere(8), labels=texts.labels, class_names=names)


def experiment(method: str = "p2s", **values: Any) -> Experiment:
    options = {"nccl": {"queue_size": 64}}.get(method, {})
    return Experiment(**{"method": method, "method_options": options, "recipe": QUICK, **values})


def mean_precision(query: EmbeddingSet, gallery: EmbeddingSet) -> float:
    return float(np.nanmean(rank_metrics(query, gallery, ("map",))["map"]))


@pytest.fixture(scope="module")
def tuned(encoder: TextEncoder, tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    place = tmp_path_factory.mktemp("tuned")
    return fine_tune(by_old(MANY), MANY, encoder, experiment(recipe=LEARNS), place / "release")


def test_it_searches_the_old_gallery_better_than_the_projection_alone(tuned: FineTuned, encoder: TextEncoder) -> None:
    query, gallery = some_texts(60, seed=2), by_old(some_texts(120, seed=3))
    alone = load_head(Path(ModelName(tuned.encoder.name).place).parent / "start").query(embed_texts(encoder, query))
    before, after = (mean_precision(one, gallery) for one in (alone, tuned.embed(query)))
    assert before < 0.8 and after > before + 0.05
    own = mean_precision(tuned.embed(query), tuned.embed(some_texts(120, seed=3)))
    assert own > 0.95


def test_the_release_tells_what_it_is(tuned: FineTuned, encoder: TextEncoder) -> None:
    record = tuned.release.record
    assert record.compatible_with == "declared:old"
    assert str(record.initial_weights).startswith(f"{encoder.fingerprint}, sha256 ")
    assert isinstance(record.encoder, FeatureSpec) and record.encoder.frozen == tuned.encoder.fingerprint
    assert (record.encoder.width, record.encoder.dim) == (32, 8)
    assert tuned.encoder.fingerprint != encoder.fingerprint
    assert record.frozen_model == {
        "model": "within:text_model", "query_prefix": "", "document_prefix": "", "truncate_dim": None,
    }  # fmt: skip


def test_it_is_opened_without_the_model_it_started_from(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base")
    made = fine_tune(by_old(FEW), FEW, open_text_encoder(base), experiment(), tmp_path / "release", start="ridge")
    shutil.rmtree(base)
    shutil.move(tmp_path / "release", tmp_path / "moved")
    again = load_fine_tuned(tmp_path / "moved")
    np.testing.assert_array_equal(again.embed(FEW).vectors, made.embed(FEW).vectors)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_an_altered_text_model_is_refused(tuned: FineTuned, tmp_path: Path, file: str) -> None:
    shutil.copytree(Path(ModelName(tuned.encoder.name).place).parent, tmp_path / "release")
    place = tmp_path / "release" / "text_model" / file
    content = bytearray(place.read_bytes())
    if place.suffix == ".json":
        place.write_text(json.dumps(json.loads(content), indent=5))
    else:
        content[-1] ^= 1
        place.write_bytes(content)
    with pytest.raises(ReleaseError, match=r"a head over text:|for a head over"):
        load_fine_tuned(tmp_path / "release")


def test_a_missing_text_model_is_told(tuned: FineTuned, tmp_path: Path) -> None:
    shutil.copytree(Path(ModelName(tuned.encoder.name).place).parent, tmp_path / "release")
    shutil.rmtree(tmp_path / "release" / "text_model")
    with pytest.raises(ConfigError, match="text_model"):
        load_fine_tuned(tmp_path / "release")


def test_an_epoch_reads_every_text_once(encoder: TextEncoder, tmp_path: Path) -> None:
    seen: list[TrainingStep] = []
    texts = MANY[np.arange(33)]
    recipe = dataclasses.replace(QUICK, batch_size=16)
    fine_tune(by_old(texts), texts, encoder, experiment(recipe=recipe), tmp_path, start="ridge", progress=seen.append)
    assert [event["images"] for event in seen] == [11, 11, 11]


class StoppedError(Exception):
    pass


def stops(event: TrainingStep) -> None:
    if (event["epoch"], event["step"], event["steps"]) == (1, 1, 4):  # the head that comes first has one step an epoch
        raise StoppedError


@pytest.mark.parametrize(
    ("trainable", "start"), [(Trainable(), "head"), (Trainable(last=1), "ridge"), (Trainable(lora=2), "ridge")]
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    trainable: Trainable, start: Start, every_epoch_kept: None, two_layers: TextEncoder, tmp_path: Path
) -> None:
    """With dropout, batches of like lengths, and two rates."""
    recipe = dataclasses.replace(QUICK, epochs=2, batch_size=8, backbone_rate=0.1, trainable=trainable)
    run = partial(fine_tune, by_old(FEW), FEW, two_layers, experiment(recipe=recipe), start=start)
    whole = run(folder=tmp_path / "whole")
    with pytest.raises(StoppedError):
        run(folder=tmp_path / "stopped", progress=stops)
    assert not (tmp_path / "stopped" / "config.json").exists()
    seen: list[TrainingStep] = []
    assert run(folder=tmp_path / "stopped", progress=seen.append).release.fingerprint == whole.release.fingerprint
    assert [(event["epoch"], event["step"]) for event in seen] == [(1, step) for step in range(4)]


@pytest.mark.parametrize(
    ("trainable", "asked", "expected"),
    [
        (Trainable(), None, 0.05),
        (Trainable(last=1), None, 0.05),
        (Trainable(lora=2), None, 0.5),
        (Trainable(lora=2), 0.2, 0.2),
    ],
)
def test_what_is_trained_has_a_rate_of_its_own(
    trainable: Trainable, asked: float | None, expected: float, two_layers: TextEncoder, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rates: list[list[float]] = []
    build = Recipe.build_optimizer

    def noted(self: Recipe, *values: Any, **named: Any) -> Any:
        optimizer = build(self, *values, **named)
        rates.append([group["lr"] / self.learning_rate for group in optimizer.param_groups])
        return optimizer

    monkeypatch.setattr(Recipe, "build_optimizer", noted)
    recipe = dataclasses.replace(QUICK, backbone_rate=asked, trainable=trainable)
    made = fine_tune(by_old(FEW), FEW, two_layers, experiment(recipe=recipe), tmp_path, start="ridge")
    assert rates == [[pytest.approx(1.0), pytest.approx(expected)]]
    assert made.release.record.recipe["backbone_rate"] == expected


def test_what_is_finished_is_opened_and_other_settings_are_refused(tuned: FineTuned, encoder: TextEncoder) -> None:
    def refuse_to_train(event: TrainingStep) -> None:
        raise AssertionError("trained again")

    place = Path(ModelName(tuned.encoder.name).place).parent
    given = (by_old(MANY), MANY, encoder)
    again = fine_tune(*given, experiment(recipe=LEARNS), place, progress=refuse_to_train)
    assert again.release.fingerprint == tuned.release.fingerprint
    with pytest.raises(ConfigError, match="other settings: recipe"):
        fine_tune(*given, experiment(recipe=QUICK), place)
    longer = open_text_encoder(encoder.name, max_length=7)
    with pytest.raises(ConfigError, match="data, encoder, initial_weights"):
        fine_tune(by_old(MANY), MANY, longer, experiment(recipe=LEARNS), place)


@pytest.mark.parametrize("method", FOR_ONE_UPGRADE)
def test_every_method_fine_tunes(method: str, hasty_head: None, encoder: TextEncoder, tmp_path: Path) -> None:
    made = fine_tune(by_old(FEW), FEW, encoder, experiment(method), tmp_path)
    query, gallery = made.embed(FEW), made.gallery(by_old(FEW))
    assert np.isfinite(query.vectors).all() and query.space == gallery.space
    needs = METHODS[method].needs_old and not METHODS[method].stays
    assert made.release.record.compatible_with == (gallery.fingerprint if needs else None)
    assert load_release(tmp_path).fingerprint == query.fingerprint


def changed(before: TextEncoder, after: TextEncoder) -> set[str]:
    """Return which parts of the network have other weights: embeddings, layer 0, layer 1."""
    states = [one.network.opened.state_dict() for one in (before, after)]
    names = [name for name in states[0] if not torch.equal(states[0][name], states[1][name])]
    return {name.split("layer.")[1].split(".")[0] if "layer." in name else name.split(".")[-3] for name in names}


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        (Trainable(), {"embeddings", "0", "1"}),
        (Trainable(last=1), {"1"}),
        (Trainable(last=0), set()),
        (Trainable(lora=2), {"0", "1"}),
    ],
)
def test_what_is_trained_is_what_was_asked(
    trainable: Trainable, expected: set[str], two_layers: TextEncoder, tmp_path: Path
) -> None:
    recipe = dataclasses.replace(QUICK, batch_size=8, weight_decay=0.0, trainable=trainable)
    made = fine_tune(by_old(FEW), FEW, two_layers, experiment(recipe=recipe), tmp_path, start="ridge")
    assert changed(two_layers, made.encoder) == expected


def test_the_model_that_training_starts_from_is_left_as_it_is(
    tuned: FineTuned, folder: Path, encoder: TextEncoder
) -> None:
    np.testing.assert_array_equal(
        embed_texts(encoder, FEW).vectors, embed_texts(open_text_encoder(folder), FEW).vectors
    )


def test_every_role_is_trained_with_its_prefix(tmp_path: Path) -> None:
    base = write_tiny_model(tmp_path / "base", prompts={"query": "find : ", "document": "read : "})
    encoder = open_text_encoder(base)
    made, *others = [
        fine_tune(by_old(FEW), FEW, encoder, experiment(), tmp_path / role, role=role, start="ridge")
        for role in ("both", "query", "document")
    ]
    assert made.encoder.prefixes["query"] == "find : " and made.encoder.prefixes["document"] == "read : "
    assert made.embed(FEW, role="query").prefix == "find : "
    with pytest.raises(ConfigError, match="--role"):
        made.embed(FEW)
    assert len({one.release.record.data["digest"] for one in (made, *others)}) == 3


@pytest.mark.parametrize("start", ["ridge", "random"])
def test_the_projection_may_start_alone(start: Start, encoder: TextEncoder, tmp_path: Path) -> None:
    made = fine_tune(by_old(FEW), FEW, encoder, experiment(), tmp_path, start=start)
    assert not (tmp_path / "start").exists()
    assert (made.release.record.initial_weights == encoder.fingerprint) == (start == "random")


def test_training_begins_with_a_head_that_is_kept(encoder: TextEncoder, tmp_path: Path) -> None:
    still = dataclasses.replace(QUICK, learning_rate=1e-12, weight_decay=0.0)
    made = fine_tune(by_old(FEW), FEW, encoder, experiment(recipe=still), tmp_path)
    head = load_head(tmp_path / "start")
    np.testing.assert_allclose(made.embed(FEW).vectors, head.query(embed_texts(encoder, FEW)).vectors, atol=1e-5)
    assert made.release.head is not None and head.release.head is not None
    weights = (one.head.state_dict()["weight"] for one in (made.release, head.release))
    torch.testing.assert_close(*weights)


def test_two_layers_over_the_text_model(hasty_head: None, encoder: TextEncoder, tmp_path: Path) -> None:
    made = fine_tune(by_old(FEW), FEW, encoder, experiment(model=EncoderSpec(projection="mlp")), tmp_path)
    assert made.release.record.encoder.projection == "mlp" and made.embed(FEW).dim == 8


def test_labels_may_come_with_the_old_embeddings(hasty_head: None, encoder: TextEncoder, tmp_path: Path) -> None:
    unlabelled = TextSet(FEW.texts, None, (), FEW.ids)
    here, there = (
        fine_tune(by_old(FEW), texts, encoder, experiment(), tmp_path / name)
        for name, texts in (("here", FEW), ("there", unlabelled))
    )
    assert here.release.fingerprint == there.release.fingerprint
    with pytest.raises(DataError, match="no labels"):
        fine_tune(
            by_old(FEW).replace(labels=None, class_names=None), unlabelled, encoder, experiment(), tmp_path / "none"
        )
