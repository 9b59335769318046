"""How ``limpet train`` and ``limpet-bench sessions`` train, as a group of options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from limpet.cli.choices import options_by_method
from limpet.cli.options import Network
from limpet.cli.parameters import RARE, Named, Options

if TYPE_CHECKING:
    from limpet.data.image_set import ImageSet
    from limpet.models.specs import EncoderSpec
    from limpet.training.experiment import Experiment, Geometry, Recipe


@dataclass(frozen=True)
class Training(Options):
    """Training options.

    Args:
        method_options: Options of the method; for several methods, a mapping from names to options.
        head_options: Options of the head, such as scale and margin of arcface, or triplet of any head.
        recipe: Training settings, such as --recipe.epochs 30: epochs, batch-size, items-per-class, optimizer,
            learning-rate, backbone-rate, momentum, nesterov, weight-decay, schedule, milestones, power, warmup-epochs,
            clip-norm, augmentation.NAME, old-view, precision, channels-last, freeze-batch-norm, trainable.last,
            trainable.lora, accelerator, devices, workers, data-on-device.
        seed: Random seed for initial weights, data order, augmentation, sampling and the method.
    """

    method_options: Named = field(default_factory=dict)
    head_options: Annotated[Named, RARE] = field(default_factory=dict)
    recipe: Named = field(default_factory=dict)
    seed: int = 0

    @property
    def settled(self) -> Recipe:
        """The recipe of every training."""
        from limpet.training.experiment import Recipe, recipe_with

        return recipe_with(Recipe(), self.recipe)

    def experiments(
        self,
        methods: Sequence[str],
        network: Network,
        images: ImageSet,
        *,
        head: str,
        projection: str,
        zeta: float | None = None,
        geometry: Geometry | None = None,
        start: EncoderSpec | None = None,
    ) -> dict[str, Experiment]:
        """Return what is trained, by method.

        Args:
            head: Classifier of the training, settled.
            projection: From backbone to embedding, settled.
            zeta: Distance from the origin to which points of a space that has one reach.
            start: The model that training goes on from.
        """
        from limpet.training.experiment import Experiment, Geometry

        base = Experiment(
            model=network.encoder(images, projection, zeta, start),
            geometry=geometry or Geometry(),
            head=head,
            head_options=self.head_options,
            recipe=self.settled,
            weights=network.weights,
            freeze_backbone=network.freeze_backbone,
            seed=self.seed,
        )
        chosen = options_by_method(methods, self.method_options)
        return {name: replace(base, method=name, method_options=options) for name, options in chosen.items()}
