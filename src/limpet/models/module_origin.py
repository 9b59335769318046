"""Where a module that limpet did not write came from, and which images it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, FiniteFloat
from torch import Tensor, nn

from limpet.data.decoding import Fit
from limpet.data.image_size import ImageSize

Preprocess = Callable[[Tensor], Tensor]
"""From pixels in [0, 1], float32 (B, channels, height, width), to what a module takes."""

Kept = Literal["copy", "keep"]


class ModuleOrigin(BaseModel):
    """Where a module came from, and what is taken of it.

    Args:
        kind: "module": an object that Python code gave; "file": a function of a Python file; or what builds it anew.
        place: What people named: a folder, a name, or FILE.py:FUNCTION.
        output: What is taken of what it returns; see `selected`.
        preprocess: Digest of the code of the function that prepares pixels; None for mean and deviation alone.
        code: Digest of the code of its classes; None where installed packages bring all of them.
        file_digest: sha256 of the Python file; None for other kinds.
        config: Settings from which the architecture is built anew.
        weights: "copy": the release holds them; "keep": they stay where they are, and are proven at every loading.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["module", "file", "entry point", "transformers", "timm"] = "module"
    place: str
    class_name: str
    output: str
    preprocess: str | None = None
    code: str | None = None
    file_digest: str | None = None
    config: dict[str, Any] = {}
    weights: Kept = "copy"
    weights_at: str | None = None

    @property
    def called(self) -> str:
        """What people call it."""
        return self.place if self.kind == "module" else f"{self.kind} {self.place}"


@dataclass(frozen=True)
class ImageInput:
    """What a module takes, as `EncoderSpec` says it.

    Args:
        image_size: Height and width that images are read at, or one number for both.
        fit: How images of another size are brought to it.
        centre_crop: Of their middle, which the module sees; None for all of them.
        mean: Subtracted from each channel, after scaling pixels to [0, 1].
    """

    image_size: ImageSize
    channels: int = 3
    fit: Fit = "crop"
    centre_crop: ImageSize | None = None
    mean: tuple[FiniteFloat, ...] = (0.0,)
    std: tuple[FiniteFloat, ...] = (1.0,)


class OpenedModule(NamedTuple):
    """A module that was opened from files of its library.

    Args:
        output: What is taken of what it returns; None for its default.
        origin: Values of `ModuleOrigin`.
    """

    module: nn.Module
    image_input: ImageInput
    output: str | None
    origin: Mapping[str, object]
