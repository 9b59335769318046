"""Embedding images: mirrored ones, features and points, and what goes with the rows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.vector_set import VectorSet
from limpet.errors import ConfigError
from limpet.geometry import SPACES
from limpet.methods.base import Batch
from limpet.models.release import Release
from limpet.models.specs import EncoderSpec
from limpet.training.encode import embed_images, encode_features
from limpet.training.experiment import Experiment, Geometry, Recipe
from limpet.training.train import train_release


@pytest.fixture(scope="module", params=sorted(SPACES))
def release(make_images: Callable[..., ImageSet], tmp_path_factory, request: pytest.FixtureRequest) -> Release:
    experiment = Experiment(
        model=EncoderSpec(dim=6, channels=1, image_size=16, backbone_options={"filters": 4}),
        geometry=Geometry(request.param),
        recipe=Recipe(epochs=1, batch_size=8, accelerator="cpu"),
    )
    return train_release(make_images(16, 2), experiment, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def faces(make_images: Callable[..., ImageSet]) -> ImageSet:
    """Images whose left and right differ, with two columns."""
    images = make_images(7, 3)
    pixels = images.read(np.arange(7))
    pixels[..., :8] //= 3
    columns = {"template": np.arange(7) // 2, "detector_score": np.linspace(0.5, 1, 7, dtype=np.float32)}
    return ImageSet(ArrayImages(pixels), images.labels, images.class_names, images.ids, columns)


def mirrored(images: ImageSet) -> ImageSet:
    return replace(images, images=ArrayImages(images.read(np.arange(len(images)))[..., ::-1].copy()))


def test_features_of_the_mirrored_image_are_added_before_anything_is_normalised(
    release: Release, faces: ImageSet
) -> None:
    plain, turned = (embed_images(release, images, form="features").vectors for images in (faces, mirrored(faces)))
    assert np.abs(plain - turned).max() > 1e-3  # or the test would say nothing
    found = embed_images(release, faces, form="features", flip=True, batch_size=3)
    assert found.form == "features"
    np.testing.assert_allclose(found.vectors, plain + turned, rtol=1e-4, atol=1e-5)
    points = embed_images(release, faces, flip=True)
    expected = release.space.project(torch.from_numpy(plain + turned)).numpy()
    np.testing.assert_allclose(points.vectors, expected, rtol=1e-4, atol=1e-5)
    again = embed_images(release, mirrored(faces), form="features", flip=True)
    np.testing.assert_allclose(again.vectors, found.vectors, rtol=1e-4, atol=1e-5)


def test_mirroring_leaves_the_model_in_its_mode(release: Release, faces: ImageSet) -> None:
    for mode in (True, False):
        release.encoder.train(mode)
        embed_images(release, faces, flip=True)
        assert {module.training for module in release.encoder.modules()} == {mode}
    release.encoder.eval()


def test_ids_labels_and_columns_carry_over(release: Release, faces: ImageSet) -> None:
    for form in ("points", "features"):
        found = embed_images(release, faces, form=form)  # type: ignore[arg-type]
        assert list(found.ids) == list(faces.ids) and found.labels is not None
        assert found.labels.tolist() == faces.labels.tolist() and list(found.class_names or ()) == list(
            faces.class_names
        )
        for name, values in faces.columns.items():
            assert found.columns[name].dtype == values.dtype and found.columns[name].tolist() == values.tolist()
        assert ("uncertainty" in found.columns) == (form == "points" and release.space.name == "lorentz")


def test_labels_that_mean_nothing_are_left_out(release: Release, faces: ImageSet) -> None:
    found = embed_images(release, faces, labelled=False)
    assert found.labels is None and found.class_names is None and set(faces.columns) <= set(found.columns)
    np.testing.assert_array_equal(found.vectors, embed_images(release, faces).vectors)


def test_vectors_cannot_be_mirrored(release: Release, faces: ImageSet) -> None:
    vectors = VectorSet.of(embed_images(release, faces))
    with pytest.raises(ConfigError, match="flip of vectors"):
        embed_images(release, vectors, flip=True)


def test_encode_features_reads_a_model_in_training_as_in_evaluation() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).train()
    inputs, rows = torch.randn(8, 3), torch.arange(8)
    batch = Batch(inputs, rows, rows, torch.zeros(8, dtype=torch.bool))
    features, labels = encode_features(model, [batch])
    torch.testing.assert_close(features, inputs / (1 + 1e-5) ** 0.5)  # of the statistics that it began with
    assert model.training and torch.equal(labels, rows)
    assert not model[0].running_mean.any() and model[0].num_batches_tracked == 0
