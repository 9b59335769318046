"""Images that a service embeds: queries and items, with a release of images in place of a text model."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from limpet import Client, Gallery
from limpet.cli.serve import Embedders, _model
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.embeddings import StringArray
from limpet.errors import DataError, ServiceError
from limpet.models.encoder import Encoder
from limpet.models.names import ModelName
from limpet.models.release import Release, release_of, save_release
from limpet.models.specs import EncoderSpec
from limpet.service import encoders
from limpet.service.encoders import ImageModel
from limpet.training.encode import embed_images
from limpet.upgrade.vector_sources import ImageItems
from service.services import served

SIZE = 12


def release(dim: int) -> Release:
    """A model of images: a fixed linear map of the pixels."""
    torch.manual_seed(dim)
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, dim)).eval()
    return Release.from_module(module, image_size=SIZE)


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 3, SIZE, SIZE), dtype=np.uint8)


def image_set(pixels: np.ndarray) -> ImageSet:
    ids = StringArray.of(map(str, range(len(pixels))))
    return ImageSet(ArrayImages(pixels), np.zeros(len(pixels), np.int64), ("",), ids)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def of_one_shape(pixels: np.ndarray, spec: Any = None) -> ImageItems:
    return ImageItems(image_set(pixels))


@pytest.fixture(scope="module")
def models() -> tuple[tuple[str, Any], ...]:
    return tuple((f"pixels-{dim}", partial(_opened, release(dim))) for dim in (8, 16))


def _opened(made: Release, known: Any) -> ImageModel:
    return ImageModel(made)


@pytest.fixture
def client(tmp_path: Path, pixels: np.ndarray, models: Any) -> Iterator[Client]:
    url, old = f"memory:{tmp_path / 'live'}", models[0][1](()).release
    with Gallery.create(url, fingerprint=old.fingerprint, space=old.space) as gallery:
        gallery.add(embed_images(old, image_set(pixels), labelled=False))
    with served(url, models=models, images=partial(of_one_shape, pixels)) as service:
        service.until_it_writes()
        with Client(str(service.base_url)) as opened:
            yield opened


def test_images_are_found_through_an_upgrade(client: Client, pixels: np.ndarray, models: Any) -> None:
    def nearest() -> list[str]:
        return [hits[0].id for hits in client.search([png(one) for one in pixels[3:6]], 1).hits]

    assert nearest() == ["3", "4", "5"]
    client.take_step("start", model="pixels-16")
    assert client.take_step("backfill")["result"]["lacking"] == 0
    client.take_step("swap", force="a test")
    reply = client.search([png(pixels[7])], 1)
    assert (reply.hits[0][0].id, reply.fingerprint) == ("7", models[1][1](()).fingerprint)
    assert nearest() == ["3", "4", "5"] and reply.hits[0][0].score == pytest.approx(1, abs=1e-5)
    new = np.random.default_rng(1).integers(0, 256, (3, 30, SIZE), dtype=np.uint8)
    assert client.upsert(items={"new": png(new)}) == 1
    [item] = client.fetch(["new"])
    assert item["generations"] == ["g1", "g2"]
    assert client.search([png(new)], 1).hits[0][0].id == "new"


def test_what_is_no_image_is_refused(client: Client, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    good = png(pixels[0])
    with pytest.raises(DataError, match="image 1"):
        client.search([good, b"no image"])
    with pytest.raises(DataError, match="image 0"):
        client.upsert(items={"a": good[:-40]})
    with pytest.raises(ServiceError, match="embeds images, no texts"):
        client.search(["a text"])
    monkeypatch.setattr(encoders, "_MOST_PIXELS", SIZE * SIZE - 1)
    with pytest.raises(DataError, match="12 x 12 pixels"):
        client.search([good])
    assert client.fetch(["a"]) == []


def test_the_command_tells_models_of_images_by_their_record(tmp_path: Path) -> None:
    spec = EncoderSpec(dim=4, image_size=16, channels=1, backbone_options={"filters": 4})
    save_release(release_of(Encoder(spec)), tmp_path / "trained")
    assert isinstance(_model(Embedders(), ModelName(f"release:{tmp_path / 'trained'}"), ()), ImageModel)
    file = tmp_path / "own.py"
    file.write_text(
        "from torch import nn\nfrom limpet.models.release import Release\n\n\ndef make():\n"
        f"    module = nn.Sequential(nn.Flatten(), nn.Linear({3 * SIZE * SIZE}, 8))\n"
        f"    return Release.from_module(module, image_size={SIZE})\n"
    )
    assert isinstance(_model(Embedders(), ModelName(f"{file}:make"), ()), ImageModel)
    text = _model(Embedders(), ModelName("package:wordllama"), ())
    assert not isinstance(text, ImageModel)
