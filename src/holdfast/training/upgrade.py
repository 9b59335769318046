"""A whole comparison on one data set: the old model, the independent one, and compatible ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.data.image_set import ImageSet
from holdfast.data.split import Split
from holdfast.models.release import Release
from holdfast.training.recipe import Experiment
from holdfast.training.train import OnStep, train_release

OnRun = Callable[[str], AbstractContextManager[OnStep]]


def train_upgrade(
    images: ImageSet,
    split: Split,
    old: Experiment,
    new: Mapping[str, Experiment],
    folder: Path,
    *,
    data_name: str = "",
    on_run: OnRun | None = None,
    tensorboard: bool = False,
) -> dict[str, Release]:
    """Train the old model on its share of the images, then every new model on theirs.

    Finished releases in the folder are loaded instead of trained, so an interrupted comparison continues.

    Args:
        images: The whole training set.
        split: Which rows the old and the new models see.
        old: How the old model is trained; its method is "independent".
        new: How each new model is trained, by name; "independent" among them is the reference.
        folder: Every release goes to a sub-folder of its name.
        data_name: Name of the data, for the record.
        on_run: Opens a context for the run of a given name, which gives what is told every step.
        tensorboard: Also write TensorBoard's event files.

    Returns:
        The releases by name, "old" first.
    """
    old_images = images.select(split.old).compact()
    new_images = images.select(split.new).compact()
    shared: dict[str, Any] = {"data_name": data_name, "tensorboard": tensorboard}

    def run(name: str, images: ImageSet, experiment: Experiment, **predecessor: Any) -> Release:
        if on_run is None:
            return train_release(images, experiment, folder / name, **shared, **predecessor)
        with on_run(name) as on_step:
            return train_release(images, experiment, folder / name, on_step=on_step, **shared, **predecessor)

    releases = {"old": run("old", old_images, replace(old, method="independent", method_options={}))}
    for name, experiment in new.items():
        releases[name] = run(
            name, new_images, experiment, old=releases["old"], old_images=old_images, cache=folder / "cache"
        )
    return releases
