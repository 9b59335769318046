"""Releases by name: a Python file that the user names, installed encoders, libraries that are not there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from limpet import save_release
from limpet.errors import ConfigError, LimpetError, ReleaseError
from limpet.models.installed_encoders import ENCODERS
from limpet.models.named_models import known_of, open_release, open_releases
from limpet.models.names import ModelName
from limpet.models.own_modules import probe_images

FILE = """
import torch
from torch import nn
import limpet
from sizes import SIDE

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, 4, SIDE)

    def forward(self, pixels):
        return self.layer(pixels)

def small():
    return limpet.Release.from_module(Own(), image_size=SIDE, mean=[0.5], std=[0.5])

def bare():
    return Own()

def broken():
    raise KeyError("weights.pt")

def leaves():
    raise SystemExit(3)

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sizes.py").write_text("SIDE = 12\n")
    path = tmp_path / "encoder.py"
    path.write_text(FILE)
    return path


def test_a_function_of_a_file_makes_a_release(file: Path) -> None:
    made = open_release(f"{file}:small")
    assert made.encoder.spec.module.kind == "file" and made.encoder.spec.module.file_digest
    assert made.encoder.spec.input_shape == (3, 12, 12) and made.space.dim == 4
    assert open_release(f"{file}:small").fingerprint == made.fingerprint
    assert str(file.parent) not in sys.path
    sys.modules.pop("sizes", None)


def test_its_folder_is_opened_with_the_file_and_known_without(file: Path, tmp_path: Path) -> None:
    made = open_release(f"{file}:small")
    folder = save_release(made, tmp_path / "release")
    with pytest.raises(ConfigError, match=f"--over {file}:small"):
        open_release(folder)
    again = open_release(folder, f"{file}:small")
    images = probe_images((3, 12, 12), 2)
    assert again.fingerprint == made.fingerprint and torch.equal(again.encoder(images), made.encoder(images))
    assert known_of(folder) == (made.fingerprint, made.space, ()) == known_of(f"{file}:small")
    file.write_text(FILE.replace("self.layer(pixels)", "-self.layer(pixels)"))
    with pytest.raises(ConfigError, match="code of the Own"):
        open_release(folder, f"{file}:small")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("big", "has no function 'big'.*one of Own, small, bare, broken"),
        ("number", "has no function 'number'"),
        ("bare", "returned a Own.*from_module"),
        ("broken", r"encoder\.py', line 23, raised KeyError: 'weights\.pt'"),
        ("leaves", r"line 26, raised SystemExit: 3"),
    ],
)
def test_a_function_that_gives_no_release_is_refused(function: str, message: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        open_release(f"{file}:{function}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import limpet\n\nx = 1 / 0\n", "line 3, raised ZeroDivisionError"),
        ("def one(:\n", "line 1, raised SyntaxError"),
        ("import nothing_of_this_name\n", "line 1, raised ModuleNotFoundError"),
    ],
)
def test_a_file_that_raises_is_named_with_its_line(text: str, message: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        open_release(f"{file}:small")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.py:small", "no file 'nothing.py'"),
        ("st:some/model", "'st:some/model' names no model of images"),
        ("runs/nothing", "is no release"),
        ("timm:some/model", "pip install timm"),
    ],
)
def test_what_names_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(LimpetError, match=f"(?s){message}"):
        open_release(name)
    assert "timm" not in sys.modules and "torchvision" not in sys.modules


def test_an_encoder_goes_with_the_folder_that_needs_it(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it only for a release"):
        open_release(f"{file}:small", f"{file}:small")
    folder = save_release(open_release(f"{file}:small"), tmp_path / "own")
    opened = open_releases([ModelName(f"release:{folder}"), ModelName(f"{file}:small")], f"{file}:small")
    assert len({one.fingerprint for one in opened.values()}) == 1
    with pytest.raises(ConfigError, match=r"none of .* was made of a module of yours"):
        open_releases([ModelName("release:a"), ModelName("release:b")], f"{file}:small")


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "at:noon").mkdir()
    assert [ModelName(one).short for one in ("release:runs/a", "hf:b", "hf:x/b", "x/e.py:c", "at:noon")] == [
        "a",
        "b",
        "b",
        "c",
        "at:noon",
    ]


def install(folder: Path, name: str, body: str, entries: str) -> None:
    """Write a package with entry points, as an installer leaves it."""
    (folder / f"{name}.py").write_text(body)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[limpet.encoders]\n{entries}\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> Callable[[str], None]:
    folder = tmp_path / "site"
    folder.mkdir()

    def add(entries: str) -> None:
        install(folder, "shop_encoders", FILE.replace("from sizes import SIDE", "SIDE = 12"), entries)
        monkeypatch.syspath_prepend(folder)

    yield add
    for name in ("shop", "wrong", "fails", "text"):
        del ENCODERS[name]
    sys.modules.pop("shop_encoders", None)


def test_encoders_of_installed_packages(installed: Callable[[str], None], tmp_path: Path) -> None:
    installed("shop = shop_encoders:small\nwrong = shop_encoders:bare\nfails = shop_encoders:broken\n"
              "text = shop_encoders:number")  # fmt: skip
    made = open_release("package:shop")
    folder = save_release(made, tmp_path / "release")
    assert open_release(folder).fingerprint == made.fingerprint, "an installed package builds it again by itself"
    for name, message in (
        ("wrong", "returned a Own"), ("fails", "raised KeyError"), ("text", "which is none"), ("shob", "mean 'shop'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            open_release(f"package:{name}")
    with pytest.raises(ReleaseError, match="is no release"):
        open_release("runs/shop")


TIMM = '''
import torch
from torch import nn

__version__ = "0.0"


def create_model(name, pretrained, num_classes, **options):
    """The part of the real interface that limpet uses, around a network of its own."""
    assert not pretrained and num_classes == 0
    if name != "tiny":
        raise RuntimeError(f"Unknown model ({name})")
    return nn.Sequential(nn.Conv2d(3, options.get("width", 4), 8), nn.Flatten())
'''


def test_models_of_timm_by_a_stand_in_of_its_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library itself needs torchvision, which cannot be installed beside a torch for CPUs here."""
    import json

    from safetensors.torch import save_file

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder = tmp_path / "tiny"
    folder.mkdir()
    cfg = {"input_size": [3, 8, 8], "crop_pct": 0.8, "interpolation": "bicubic", "mean": [0.4] * 3, "std": [0.2] * 3}
    config = {"architecture": "tiny", "pretrained_cfg": cfg, "model_args": {"width": 6}}
    (folder / "config.json").write_text(json.dumps(config))
    weights = {"0.weight": torch.randn(6, 3, 8, 8), "0.bias": torch.randn(6), "fc.weight": torch.randn(9, 6)}
    save_file(weights, folder / "model.safetensors")
    try:
        made = open_release(f"timm:{folder}")
        spec = made.encoder.spec
        assert spec.input_shape == (3, 10, 10) and spec.seen_sides == (8, 8) and spec.fit == "crop-bicubic"
        images = torch.rand(2, 3, 10, 10)
        expected = torch.nn.functional.conv2d(
            (images[..., 1:9, 1:9] - 0.4) / 0.2, weights["0.weight"], weights["0.bias"]
        )
        torch.testing.assert_close(made.encoder(images), expected.flatten(1))
        assert open_release(save_release(made, tmp_path / "release")).fingerprint == made.fingerprint
        save_file({"0.weight": weights["0.weight"]}, folder / "model.safetensors")
        with pytest.raises(ConfigError, match=r"lack 1 parts of the network, such as 0\.bias"):
            open_release(f"timm:{folder}")
        (folder / "config.json").write_text(json.dumps({**config, "architecture": "huge"}))
        with pytest.raises(ConfigError, match="cannot build 'huge'"):
            open_release(f"timm:{folder}")
        for changed in ({"architecture": "hf-hub:nobody/nothing"}, {"model_args": {"checkpoint_path": "weights.pth"}}):
            (folder / "config.json").write_text(json.dumps({**config, **changed}))
            with pytest.raises(ConfigError, match=r"nothing is fetched|code from elsewhere could run"):
                open_release(f"timm:{folder}")
    finally:
        sys.modules.pop("timm", None)
