"""What the old classifier says of a batch, beside what the new one says of the same classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.methods.base import OldModel, Step
from holdfast.methods.predecessor import frozen, rows_by_name


class OldScores(nn.Module):
    """The frozen old classifier, whose classes are matched with columns of the new one by name.

    Args:
        old: The predecessor.
        method: Name of the method, for the message.
        without: Option of that method, with its value, that does without the old classifier.

    Raises:
        ConfigError: There is no old classifier, or it knows none of the new classes.
    """

    new_columns: Tensor
    old_columns: Tensor

    def __init__(self, old: OldModel, method: str, without: str) -> None:
        super().__init__()
        rows = rows_by_name(old.classes, old.embeddings.class_names or ())
        if old.head is None or not bool((rows >= 0).any()):
            missing = "was discarded" if old.head is None else "shares no class with the new data"
            raise ConfigError(
                f"{method} compares scores with those of the old classifier, which {missing}.",
                expected="an old release with its classifier, and classes that it knows",
                to_do=f"or do without it: --method_options.{without} (with several methods, "
                f"--method_options.{method}.{without}).",
            )
        self.classifier = frozen(old.head)
        self.register_buffer("new_columns", torch.nonzero(rows >= 0)[:, 0])
        self.register_buffer("old_columns", rows[rows >= 0])

    def forward(self, step: Step) -> tuple[Tensor, Tensor]:
        """Return the scores of the shared classes, the new classifier's of the new view and the old one's of the old.

        Both (B, S), in the order of the new classes; gradients flow through the first.
        """
        new = step.head.logits(step.new).index_select(1, self.new_columns)
        return new, self.classifier.logits(step.predecessor).index_select(1, self.old_columns).detach()
