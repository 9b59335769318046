"""Origin and input contract of user-defined modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, FiniteFloat
from torch import Tensor, nn

from limpet.data.decoding import Fit
from limpet.data.image_size import ImageSize

Preprocess = Callable[[Tensor], Tensor]
"""Function from pixels in [0, 1], float32 (B, channels, height, width), to the input of a module."""

Kept = Literal["copy", "keep"]


class ModuleOrigin(BaseModel):
    """Origin of a module, and the choice of its output.

    Args:
        kind: "module": an object from Python code; "file": a function of a Python file; or the kind of rebuilder.
        place: Name given by the user: a folder, a name, or FILE.py:FUNCTION.
        output: Choice of output; see `selected`.
        preprocess: Digest of the code of the function that prepares pixels; None for mean and deviation alone.
        code: Digest of the code of its classes; None if installed packages provide all of them.
        file_digest: sha256 of the Python file; None for other kinds.
        config: Settings from which the architecture is rebuilt.
        weights: "copy": the release holds the weights; "keep": they stay in place and are verified at every loading.
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
        """Display name."""
        return self.place if self.kind == "module" else f"{self.kind} {self.place}"


@dataclass(frozen=True)
class ImageInput:
    """Input contract of a module, in the terms of `EncoderSpec`.

    Args:
        image_size: Height and width to read images at, or one number for both.
        fit: Way of resizing images of another size.
        centre_crop: Size of the centre crop that the module gets; None for no crop.
        mean: Mean to subtract from each channel, after scaling pixels to [0, 1].
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
        output: Choice of output; None for the default.
        origin: Values of `ModuleOrigin`.
    """

    module: nn.Module
    image_input: ImageInput
    output: str | None
    origin: Mapping[str, object]
