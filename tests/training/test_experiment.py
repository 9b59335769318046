"""What is wrong with settings is said in one way, whoever wrote them."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from limpet.data.augment import Augmentation
from limpet.errors import ConfigError
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Geometry, Recipe

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown setting": ({"sed": 1}, r"Unknown setting 'sed' of the experiment\. Did you mean 'seed'"),
    "an unknown setting of the recipe": ({"recipe": {"epoch": 1}}, r"'epoch' of the recipe\. Did you mean 'epochs'"),
    "of what is drawn anew": ({"recipe": {"augmentation": {"flop": 1}}}, "'flop' of the recipe: augmentation.*'flip'"),
    "an unknown setting of the geometry": ({"geometry": {"spaces": 1}}, "'spaces' of the geometry.*'space'"),
    "of the network": ({"model": {"dims": 1}}, "encoder has no option 'dims'"),
    "a value out of range": ({"recipe": {"epochs": 0}}, r"The recipe was given epochs=0\.\nExpected: at least 1$"),
    "a value of another type": ({"recipe": {"epochs": "few"}}, r"epochs='few'\."),
    "a rule of several fields": ({"recipe": {"schedule": "steps"}}, "milestones=.*\n.*epochs for the schedule 'steps'"),
    "a rule of the augmentation": ({"recipe": {"augmentation": {"scale": 2}}}, r"scale=2.*\n.*below 1"),
    "a word for a mapping": ({"geometry": "lorentz"}, r"geometry='lorentz'\.\nExpected: a mapping of settings"),
    "an item of a list": ({"recipe": {"milestones": ["one"]}}, "milestones='one'"),
    "an unknown method": ({"method": "p2z"}, "Unknown method 'p2z'. Did you mean 'p2s'"),
    "an unknown option of it": ({"method": "p2s", "options": {"weigth": 1.0}}, "no option 'weigth'"),
    "a seed below 0": ({"seed": -1}, "seed=-1"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_settings_are_refused(what: str) -> None:
    values, said = WRONG[what]
    with pytest.raises(ConfigError, match=said):
        Experiment.from_settings(values)


def test_settings_that_are_written_out_are_read_back() -> None:
    experiment = Experiment(
        method="p2s",
        method_options={"weight": 2.0},
        model=EncoderSpec(dim=8, mean=(0.1, 0.2, 0.3)),
        geometry=Geometry("lorentz", curvature=2.0),
        recipe=Recipe(schedule="steps", milestones=(1, 2), augmentation=Augmentation(flip=True)),
        seed=3,
    )
    again = Experiment.from_settings(experiment.settings())
    assert again.settings() == experiment.settings() and again.method_options["temperature"] == 0.07
    assert (again.model, again.geometry, again.recipe, again.seed) == (
        experiment.model, experiment.geometry, experiment.recipe, 3
    )  # fmt: skip


def test_settings_are_values() -> None:
    recipe = Recipe(epochs=3)
    assert copy.deepcopy(recipe) == recipe == dataclasses.replace(Recipe(), epochs=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.epochs = 4  # type: ignore[misc]
    with pytest.raises(ConfigError, match="epochs=0"):
        dataclasses.replace(recipe, epochs=0)
