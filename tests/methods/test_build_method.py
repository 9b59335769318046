"""How methods are built: by name, with options that are checked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from limpet.errors import ConfigError
from limpet.methods import METHODS
from limpet.methods.base import OldModel


def test_unknown_method_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'p2z'\. Did you mean 'p2s'\?(.|\n)*limpet methods"):
        METHODS["p2z"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("l2", {"power": 3}), ("l2", {"weight": -1.0}), ("l2", {"power": 2, "hinge": 0.1}),
        ("p2s", {"temperature": 0.0}), ("p2s", {"weight": -1.0}), ("bct", {"temperature": -1.0}),
        ("mixbct", {"ratio": 1.5}),
        ("mixbct", {"denoise": 0.0}), ("mixbct", {"old_scale": "x"}), ("advbct", {"classes": "x"}),
        ("advbct", {"gamma_schedule": "x"}), ("advbct", {"iqr": -1.0}), ("advbct", {"weight": -1.0}),
        ("advbct", {"critic_on": "x"}), ("bct", {"classifier": "x"}),
    ],
)  # fmt: skip
def test_impossible_options(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        METHODS[name](**options)


def test_prototypes_of_classes_without_items_are_refused(world) -> None:
    from limpet.errors import DataError

    empty = world.embeddings.replace(class_names=[*world.embeddings.class_names, "nobody"])
    with pytest.raises(DataError, match="1 of 7 classes have no item"):
        METHODS["p2s"]().prepare(OldModel(empty, ()), torch.nn.Identity(), world.head, world.space)


def test_every_method_has_tests_of_its_own() -> None:
    there = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(METHODS.places) <= there
