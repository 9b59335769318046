"""Going on from an earlier run: rows by name, files that say when they are damaged, histories."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from limpet.errors import ConfigError, DataError
from limpet.methods import build_method
from limpet.models.encoder import Encoder
from limpet.models.heads import build_head, inherit_rows
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Recipe
from limpet.training.run_state import History, load_history, save_history
from limpet.training.schedules import cosine_restarts
from limpet.training.train import train_release
from limpet.training.warm_start import WarmStart, begin_warm, load_carried

SPEC = EncoderSpec(dim=6, channels=1, image_size=16, backbone_options={"filters": 4})
EXPERIMENT = Experiment(model=SPEC, head="softmax", recipe=Recipe(epochs=1, batch_size=8, accelerator="cpu"))


@pytest.mark.parametrize(("name", "options"), [("softmax", {"bias": True}), ("normalised", {}), ("lorentz", {})])
def test_known_classes_take_their_rows_and_new_ones_keep_their_own(name, options) -> None:
    old, new = build_head(name, 3, 4, options), build_head(name, 5, 4, options)
    before = {key: value.clone() for key, value in new.named_parameters()}
    inherit_rows(new, old, torch.tensor([2, -1, 0, -1, 1]))
    for key, value in new.named_parameters():
        expected = before[key].clone()
        for row, source in ((0, 2), (2, 0), (4, 1)):
            expected[row] = dict(old.named_parameters())[key][source]
        assert torch.equal(value, expected)


def test_rows_of_another_kind_or_dimension_are_refused() -> None:
    head = build_head("softmax", 3, 4, {})
    for other in (build_head("softmax", 3, 5, {}), build_head("softmax", 3, 4, {"bias": True})):
        with pytest.raises(ConfigError, match="one kind and dimension"):
            inherit_rows(head, other, torch.tensor([0, 1, 2]))


@pytest.fixture(scope="module")
def release(images, tmp_path_factory):
    return train_release(images, EXPERIMENT, tmp_path_factory.mktemp("first"))


def test_a_run_cannot_go_on_from_another_network_or_without_a_classifier(release, images) -> None:
    warm_start, method, head = (
        WarmStart(np.zeros(32, np.bool_)),
        build_method("independent", {}),
        build_head("softmax", 4, 6, {}),
    )
    deeper = Encoder(SPEC.model_copy(update={"backbone_options": {"filters": 6}}))
    for old, encoder in ((None, Encoder(SPEC)), (replace(release, head=None), Encoder(SPEC)), (release, deeper)):
        with pytest.raises(ConfigError, match="very same network"):
            begin_warm(warm_start, old, encoder, head, method, images.class_names)


def test_select_keeps_the_first_best_epoch_and_the_history_says_which(images, tmp_path) -> None:
    scores = iter([0.1, 0.7, 0.7, 0.2])
    experiment = replace(EXPERIMENT, recipe=replace(EXPERIMENT.recipe, epochs=4))
    train_release(images, experiment, tmp_path, select=lambda model: next(scores))
    history = load_history(tmp_path)
    assert history.best_epoch == 1 and [epoch["score"] for epoch in history.epochs] == [0.1, 0.7, 0.7, 0.2]
    assert history.images == 4 * 32 and history.seconds > 0


def test_a_finished_sequel_is_not_taken_for_that_of_another_memory(release, images, tmp_path) -> None:
    marks = np.arange(32) >= 24
    train_release(images, EXPERIMENT, tmp_path, old=release, warm_start=WarmStart(marks))
    again = train_release(images, EXPERIMENT, tmp_path, old=release, warm_start=WarmStart(marks))
    assert again.record.initial_weights == release.fingerprint
    with pytest.raises(ConfigError, match="other settings"):
        train_release(images, EXPERIMENT, tmp_path, old=release, warm_start=WarmStart(~marks))


def test_damaged_files_are_named(tmp_path) -> None:
    assert load_carried(tmp_path) == {}
    (tmp_path / "carried.safetensors").write_bytes(b"no such thing")
    with pytest.raises(DataError, match=r"carried\.safetensors"):
        load_carried(tmp_path)
    with pytest.raises(DataError, match=r"history\.json"):
        load_history(tmp_path)
    save_history(History([{"loss": 1.0}], 0, 2.0, 5), tmp_path)
    assert load_history(tmp_path) == History([{"loss": 1.0}], 0, 2.0, 5)


def test_a_history_tells_how_long_its_run_waited_for_data(tmp_path) -> None:
    assert History().waiting_share == 0 and History([], None, 4.0, 5, 1.0).waiting_share == 0.25
    save_history(History([{"loss": 1.0}], None, 4.0, 5, 1.0), tmp_path)
    found = load_history(tmp_path)
    assert (found.seconds, found.waiting) == (4.0, 1.0)
    earlier = {"epochs": [{"loss": 1.0}], "best_epoch": None, "seconds": 4.0, "images": 5}
    (tmp_path / "history.json").write_text(json.dumps(earlier))  # before waiting was measured
    assert load_history(tmp_path) == found and load_history(tmp_path).waiting == 0


def test_the_rate_of_cvs_ends_with_a_whole_cycle() -> None:
    rate = cosine_restarts(0.01, 0.1)
    factors = [rate.at(epoch, 3, 10, 256) for epoch in range(256)]
    assert factors[0] == 0.1 and all(factors[2**n] == 1.0 for n in range(8))
    assert factors[255] == min(factors[128:]) < 0.0102
    assert factors[3] == pytest.approx(0.01 + 0.99 / 2)  # half way down the cycle of two


def test_a_learner_in_sessions_does_not_train_a_single_model(images, tmp_path) -> None:
    with pytest.raises(ConfigError, match="learns in sessions"):
        train_release(images, replace(EXPERIMENT, method="finetune"), tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_that_a_stopped_run_left_beside_its_release_is_removed(release, images, tmp_path) -> None:
    train_release(images, EXPERIMENT, tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"left over")
    train_release(images, EXPERIMENT, tmp_path)
    assert not (tmp_path / "checkpoint.safetensors").exists()
