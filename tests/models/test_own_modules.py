"""Any module as a release: a snapshot with an identity, which is opened again only as what it was."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from limpet import Release, load_release, save_release
from limpet.errors import ConfigError, DataError, LimpetError, ReleaseError
from limpet.geometry import Hypersphere
from limpet.models.own_modules import probe_images, same_probe, selected
from limpet.models.seeding import seeded
from limpet.support.source_code import bare_code, callable_code, own_code


class Net(nn.Module):
    """A user's own network, with batch statistics and dropout, which heed the mode."""

    def __init__(self, seed: int = 0, dim: int = 5, channels: int = 3) -> None:
        super().__init__()
        with seeded(seed):
            self.first, self.norm = nn.Conv2d(channels, 8, 3, stride=2), nn.BatchNorm2d(8)
            self.drop, self.last = nn.Dropout(0.5), nn.Linear(8, dim)
            self.norm.running_mean.normal_()

    def forward(self, pixels: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(pixels)).relu().mean((2, 3))))


class Returns(nn.Module):
    """A network that returns whatever a function makes of its pixels (B, 3, 16, 16) and of its vectors (B, 5)."""

    def __init__(self, answer) -> None:
        super().__init__()
        self.net, self.answer = Net(), answer

    def forward(self, pixels: Tensor) -> object:
        return self.answer(pixels, self.net(pixels))


def release(module: nn.Module | None = None, **values) -> Release:
    return Release.from_module(Net() if module is None else module, **{"image_size": 16, **values})


def doubled(pixels: Tensor) -> Tensor:
    """Prepare pixels."""
    return 2 * pixels - 1  # as some networks want them


def negated(pixels: Tensor) -> Tensor:
    return -2 * pixels + 1


def test_a_release_embeds_what_the_module_embeds_of_normalised_pixels() -> None:
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
    made = release(mean=mean, std=std)
    images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    pixels = (images / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    torch.testing.assert_close(made.encoder(images), Net().eval()(pixels))
    assert made.space == Hypersphere(5) and made.fingerprint.startswith("release:")
    assert made.encoder.spec.name == "Net" and made.encoder.spec.input_words == "3 × 16 × 16 pixels"


def test_the_module_is_left_as_it_is_and_the_release_does_not_follow_it() -> None:
    module = Net().half().train()
    made = release(module)
    assert module.training and module.last.weight.dtype == torch.float16 and module.last.weight.requires_grad
    assert not made.encoder.training and not any(one.requires_grad for one in made.encoder.parameters())
    images = probe_images((3, 16, 16), 3)
    before = made.encoder(images)
    module.last.weight.data.zero_()
    assert torch.equal(made.encoder(images), before) and before.dtype == torch.float32


def test_a_folder_holds_weights_and_no_code(tmp_path: Path) -> None:
    made = release(preprocess=doubled)
    folder = save_release(made, tmp_path / "own")
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    with pytest.raises(ConfigError, match=r"(?s)module of your own.*load_release\(FOLDER, module="):
        load_release(folder)
    again = load_release(folder, module=Net(seed=1), preprocess=doubled)  # whatever weights it has
    images = probe_images((3, 16, 16), 3)
    assert again.fingerprint == made.fingerprint and torch.equal(again.encoder(images), made.encoder(images))
    assert load_release(folder, module=made).fingerprint == made.fingerprint


def test_weights_may_stay_with_the_module_and_are_proven(tmp_path: Path) -> None:
    folder = save_release(release(weights="keep"), tmp_path / "own")
    assert (folder / "model.safetensors").stat().st_size < 100
    assert load_release(folder, module=Net()).fingerprint == release().fingerprint, "where they are does not count"
    with pytest.raises(ReleaseError, match=r"(?s)weights of Net changed since .* make a new release"):
        load_release(folder, module=Net(seed=1))


def test_what_decides_vectors_is_the_identity_and_nothing_else_is() -> None:
    torch.manual_seed(0)
    prints = {
        release().fingerprint, release(Net(seed=1)).fingerprint, release(mean=[0.5]).fingerprint,
        release(image_size=20).fingerprint, release(image_size=20, centre_crop=16).fingerprint,
        release(fit="squash").fingerprint, release(preprocess=doubled).fingerprint,
        release(preprocess=negated).fingerprint, release(Returns(lambda pixels, vectors: vectors)).fingerprint,
    }  # fmt: skip
    assert len(prints) == 9
    assert release(Net(), output="tensor", dim=5).fingerprint == release().fingerprint


class First(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels[:, :, :3, :3].flatten(1)


class Last(nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels[:, :, -3:, -3:].flatten(1)


def test_two_modules_without_weights_are_two_models() -> None:
    assert release(First()).fingerprint != release(Last()).fingerprint


def test_code_that_computes_otherwise_is_refused(tmp_path: Path) -> None:
    folder = save_release(release(), tmp_path / "own")

    class Other(Net):
        def forward(self, pixels: Tensor) -> Tensor:
            return -super().forward(pixels)

    with pytest.raises(ConfigError, match="code of the"):
        load_release(folder, module=Other())
    with pytest.raises(ConfigError, match="preprocessing function"):
        load_release(folder, module=Net(), preprocess=doubled)
    record = json.loads((folder / "config.json").read_text())
    assert record["probe"] and not same_probe(np.negative(record["probe"]), record["probe"])


def test_a_function_that_the_module_calls_and_that_changed_is_noticed(tmp_path: Path) -> None:
    """Its weights and the code of its classes are the same: only the probe tells."""
    one, other = (Returns(lambda pixels, vectors, sign=sign: sign * vectors) for sign in (1, -1))
    folder = save_release(release(one), tmp_path / "own")
    load_release(folder, module=one)
    with pytest.raises(ReleaseError, match="same weights, and makes other vectors"):
        load_release(folder, module=other)


def test_a_probe_of_a_machine_that_rounds_otherwise_is_the_same() -> None:
    assert same_probe([1.0, 2.0, 2.0001], [1.0, 2.0, 2.0]) and not same_probe([1.0, 2.0, 2.5], [1.0, 2.0, 2.0])
    assert not same_probe([1.0], [1.0, 2.0]) and not same_probe([float("nan")] * 2, [1.0, 2.0])


ANSWERS = {
    "pooler_output": lambda pixels, vectors: {"last_hidden_state": vectors[:, None], "pooler_output": vectors},
    "image_embeds": lambda pixels, vectors: SimpleNamespace(image_embeds=vectors, pooler_output=0 * vectors),
    "tensor": lambda pixels, vectors: vectors[:, :, None, None],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_usual_outputs_are_found(name: str) -> None:
    made = release(Returns(ANSWERS[name]))
    assert made.encoder.spec.module.output == name and made.encoder.spec.dim == 5
    images = probe_images((3, 16, 16), 2)
    torch.testing.assert_close(made.encoder(images), release().encoder(images))


def test_outputs_by_name() -> None:
    tokens = torch.arange(12.0).view(2, 3, 2)
    record = SimpleNamespace(last_hidden_state=tokens, feature_maps=(tokens, tokens[..., None].transpose(1, 2)))
    assert torch.equal(selected(record, "cls"), tokens[:, 0]) and torch.equal(selected(record, "mean"), tokens.mean(1))
    assert torch.equal(selected(record, "feature_maps"), tokens.mean(1))
    assert torch.equal(selected((0, tokens[:, 0]), "1"), tokens[:, 0])
    assert torch.equal(selected(tokens, "mean"), tokens.mean(1)) and torch.equal(selected(tokens, "cls"), tokens[:, 0])
    assert torch.equal(selected(tokens[..., None].transpose(1, 2), "mean"), tokens.mean(1))


def test_weights_that_share_memory_or_lie_otherwise_are_saved(tmp_path: Path) -> None:
    module = Net()
    module.twin = module.last
    module.first.weight.data = module.first.weight.data.to(memory_format=torch.channels_last)
    folder = save_release(release(module), tmp_path / "own")
    assert load_release(folder, module=module).fingerprint == release(module).fingerprint


WRONG = {
    "a tuple": (Returns(lambda pixels, vectors: (vectors, vectors)), {}, r"a tuple of 2.*output='0'"),
    "no known key": (Returns(lambda pixels, vectors: {"logits": vectors}), {}, r"a dict with logits.*output='KEY'"),
    "another output": (Returns(lambda pixels, vectors: {"a": vectors}), {"output": "b"}, "without 'b'"),
    "an output that is none": (Returns(lambda pixels, vectors: {"a": 3}), {"output": "a"}, "is a int"),
    "maps": (Returns(lambda pixels, vectors: pixels), {}, r"\(2, 3, 16, 16\).*output='mean'"),
    "one vector in all": (Returns(lambda pixels, vectors: vectors[:1]), {}, r"\(1, 5\) for 2 images"),
    "growing": (
        Returns(lambda pixels, vectors: vectors.repeat(1, len(pixels))), {}, r"\(2, 10\) for 2 images and \(3, 15\)",
    ),
    "not a number": (Returns(lambda pixels, vectors: vectors / 0), {}, "not finite"),
    "zero": (Returns(lambda pixels, vectors: 0 * vectors), {}, "zero for an image"),
    "random": (Returns(lambda pixels, vectors: torch.rand_like(vectors)), {}, "same images again"),
    "the batch": (
        Returns(lambda pixels, vectors: vectors - 0.5 * vectors.mean(0)), {}, "depends on the other images",
    ),
    "bytes": (Returns(lambda pixels, vectors: pixels.byte().float().flatten(1) + 1), {}, r"same vector.*1 / 255"),
    "other channels": (Net(channels=1), {}, r"raised RuntimeError for images \(2, 3, 16, 16\).*channels"),
    "its preprocessing": (Net(), {"preprocess": lambda pixels: pixels["x"]}, "preprocessing raised"),
    "another dimension": (Net(), {"dim": 7}, "dim = 7, of a module of 5"),
    "a class": (Net, {}, r"the class Net.*call the class"),
    "a function": (doubled, {}, "a function"),
    "both": (Net(), {"preprocess": doubled, "mean": [0.5]}, "preprocess was given with mean"),
    "too small": (Net(), {"image_size": 4}, "image_size"),
    "a deviation of 0": (Net(), {"std": [0.0]}, "divide the pixels"),
    "an unknown fit": (Net(), {"fit": "stretch"}, "fit"),
    "a crop beyond the image": (Net(), {"centre_crop": 20}, "at most the image_size"),
    "weights elsewhere": (Net(), {"weights": "link"}, "'copy' or 'keep'"),
    "another space": (Net(), {"space": Hypersphere(7)}, "5 dimensions and the hypersphere of dimension 7"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_encoder_is_refused_in_words(name: str) -> None:
    module, values, message = WRONG[name]
    with pytest.raises(LimpetError, match=f"(?s){message}"):
        release(module, **values)


def test_a_module_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    module = Net()
    with (
        (tmp_path / "log").open("w") as module.file,
        pytest.raises(ConfigError, match=r"(?s)copied: TypeError.*open f"),
    ):
        release(module)


def test_a_module_that_changes_its_dimension_later_is_refused() -> None:
    made = release(Returns(lambda pixels, vectors: vectors if len(pixels) < 4 else vectors[:, :3]))
    with pytest.raises(DataError, match=r"returned \(4, 3\) for 4 images"):
        made.encoder(probe_images((3, 16, 16), 4))


def test_comments_and_layout_are_no_code() -> None:
    assert callable_code(doubled) != callable_code(negated)
    text = 'def doubled(pixels):\n    """Other words."""\n    return (2*pixels) - 1\n'
    assert bare_code(text) == "def doubled(pixels):\n    return 2 * pixels - 1"
    assert own_code([nn.Linear]) is None and own_code([Net, nn.Linear]) == own_code([Net])
    assert callable_code(nn.Sequential(nn.Identity())) == callable_code(nn.Sequential(nn.Identity()))
