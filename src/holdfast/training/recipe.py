"""The former place of `holdfast.experiment`."""

from holdfast.experiment import Experiment, Recipe

__all__ = ["Experiment", "Recipe"]
