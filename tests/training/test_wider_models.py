"""Generations of growing width: old embeddings count as padded with zeros where they are trained over or searched."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limpet.data.image_set import ImageSet
from limpet.errors import ConfigError, SpaceMismatchError
from limpet.evaluation.chain import evaluate_chain
from limpet.evaluation.evaluate import evaluate
from limpet.export.exportable import of_release
from limpet.geometry import Hypersphere, Lorentz
from limpet.methods import METHODS
from limpet.methods.base import Head, NarrowEncoder, NarrowHead, OldModel, View
from limpet.models.card import model_card
from limpet.models.heads import SoftmaxHead
from limpet.models.release import Release, load_release
from limpet.models.specs import EncoderSpec
from limpet.testing.samples import make_embeddings
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment, Geometry, Recipe
from limpet.training.spaces import settle
from limpet.training.train import train_release

WIDTHS = (4, 6, 9)
BASE = Experiment(
    model=EncoderSpec(dim=4, channels=1, image_size=16, backbone_options={"filters": 8}),
    recipe=Recipe(epochs=3, batch_size=8, learning_rate=0.05, accelerator="cpu"),
)
PADDED = Geometry(pad_old=True)


def of_width(dim: int, method: str, **values: Any) -> Experiment:
    return replace(BASE, model=BASE.model.model_copy(update={"dim": dim}), method=method, **values)


@pytest.fixture(scope="module")
def first(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The first generation, of four dimensions."""
    return train_release(images, of_width(4, "independent"), tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def chain(images: ImageSet, first: Release, tmp_path_factory: pytest.TempPathFactory) -> list[Release]:
    """Three generations of 4, 6 and 9 dimensions."""
    releases = [first]
    for dim in WIDTHS[1:]:
        folder = tmp_path_factory.mktemp(f"free_dimensions-{dim}")
        releases.append(
            train_release(images, of_width(dim, "free_dimensions"), folder, old=releases[-1], old_images=images)
        )
        assert not (folder / "old-lifted").exists()  # old galleries stay as they are
        releases[-1] = load_release(folder)
    return releases


def test_three_generations_of_growing_width(images: ImageSet, chain: list[Release]) -> None:
    assert [release.space for release in chain] == [Hypersphere(dim) for dim in WIDTHS]
    assert [release.record.padded_from for release in chain] == [None, 4, 6]
    assert "of 6 dimensions, as if it ended in zeros" in model_card(chain[-1].record, chain[-1].space)
    assert of_release(chain[-1]).searched_dim == 6
    assert [release.record.compatible_with for release in chain[1:]] == [one.fingerprint for one in chain[:-1]]
    embedded = [embed_images(release, images) for release in chain]
    widest = chain[-1].space
    padded = [one.padded(widest) for one in embedded]
    assert [one.fingerprint for one in padded] == [release.fingerprint for release in chain]
    found = evaluate_chain([(one, one) for one in padded], resamples=50)
    assert found.matrix.shape == (3, 3) and np.isfinite(found.matrix[np.tril_indices(3)]).all()
    alone = evaluate_chain([(one, one) for one in padded[:2]], resamples=50)
    np.testing.assert_allclose(found.matrix[:2, :2], alone.matrix, equal_nan=True)
    with pytest.raises(SpaceMismatchError, match="--pad-old"):
        evaluate_chain([(one, one) for one in embedded])


def test_p_up_is_against_an_independent_model_of_the_new_width(
    images: ImageSet, chain: list[Release], tmp_path: Path
) -> None:
    independent = train_release(images, of_width(6, "independent"), tmp_path)
    old, new, third = (embed_images(release, images) for release in (*chain[:2], independent))
    padded = old.padded(new.space)
    found = evaluate(padded, new, independent=third, resamples=50)
    own = evaluate(old, old.replace(fingerprint="declared:x"), resamples=50)
    assert found.score("self_old") == own.score("self_old")  # zeros change nothing
    assert found.score("self_independent") is not None and found.p_up["sigmoid"]["map"] > 0


def test_a_method_has_the_last_word_on_the_classifier(
    images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Emptied(METHODS["independent"]):  # type: ignore[misc]
        def on_training_end(self, head: Head) -> None:
            with torch.no_grad():
                head.weight.zero_()

    monkeypatch.setitem(METHODS, "emptied", Emptied)
    one_epoch = replace(BASE.recipe, epochs=1)
    release = train_release(images, of_width(4, "emptied", recipe=one_epoch), tmp_path)
    assert release.head is not None and not release.head.weight.any()


@pytest.mark.parametrize("view", ["cached", "same"])
@pytest.mark.parametrize("name", ["p2s", "bct", "l2", "mixbct", "lce"])
def test_other_methods_train_over_a_narrower_model_where_asked(
    images: ImageSet, first: Release, tmp_path: Path, name: str, view: str
) -> None:
    losses: list[float] = []
    recipe = replace(BASE.recipe, epochs=1, old_view=view)
    experiment = of_width(7, name, geometry=PADDED, recipe=recipe)
    release = train_release(images, experiment, tmp_path, old=first, old_images=images,
                            progress=lambda event: losses.append(float(event["loss"])))  # fmt: skip
    assert np.isfinite(losses).all() and release.space == Hypersphere(7)
    assert release.record.compatible_with == first.fingerprint


def test_the_old_model_padded() -> None:
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(6, 3, generator=generator)
    head = SoftmaxHead(2, 3, bias=True)
    known = OldModel(make_embeddings(old, [0, 1] * 3), ["c0", "c1"], head, None, torch.nn.Linear(8, 3))
    padded = known.padded(Hypersphere(5))
    assert known.padded(Hypersphere(3)) is known and padded.own_space == Hypersphere(3)
    np.testing.assert_array_equal(padded.embeddings.vectors, np.pad(old.numpy(), ((0, 0), (0, 2))))
    assert isinstance(padded.head, NarrowHead) and isinstance(padded.encoder, NarrowEncoder)
    torch.testing.assert_close(padded.encoder(torch.ones(1, 8))[:, 3:], torch.zeros(1, 2))
    new = torch.randn(4, 5, generator=generator)
    logits = padded.head.logits(View.of(new, Hypersphere(5)))
    torch.testing.assert_close(logits, new @ padded.head.weight.T + head.bias)  # what rows with zeros appended score
    with pytest.raises(SpaceMismatchError, match="more dimensions"):
        known.padded(Hypersphere(2))
    with pytest.raises(SpaceMismatchError, match="hyperbolic"):
        known.padded(Lorentz(5))


REFUSED: dict[str, tuple[str, int, Geometry, str, str]] = {
    "nobody said so": ("p2s", 6, Geometry(), "4 dimensions, the new one 6", "--pad-old.*free_dimensions or oca"),
    "fewer dimensions": ("p2s", 3, PADDED, "4 dimensions, the new one 3", "--dim 4, or more"),
    "fewer dimensions of free_dimensions": (
        "free_dimensions",
        3,
        Geometry(),
        "4 dimensions, the new one 3",
        "--dim 4, or more",
    ),
    "nothing to pad": ("p2s", 4, PADDED, "has 4 dimensions, as the new one", ""),
    "onto hyperbolic space": ("hbct", 6, Geometry(lift_old=1.0), "only points of the hypersphere", "--dim 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together(first: Release, name: str) -> None:
    method, dim, geometry, given, to_do = REFUSED[name]
    with pytest.raises((ConfigError, SpaceMismatchError), match=given) as error:
        settle(geometry, METHODS[method](), dim=dim, old=first)
    assert re.search(to_do, error.value.to_do + error.value.expected)


def test_a_hyperbolic_model_is_not_padded(images: ImageSet, tmp_path: Path) -> None:
    lorentz = of_width(4, "independent", geometry=Geometry("lorentz"))
    old = train_release(images, replace(lorentz, recipe=replace(BASE.recipe, epochs=1)), tmp_path)
    with pytest.raises(SpaceMismatchError, match="divided by the root") as error:
        settle(PADDED, METHODS["bct"](), dim=6, old=old)
    assert "--dim 4" in error.value.to_do
