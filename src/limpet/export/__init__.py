"""What limpet fitted and trained, as files for serving code that does not have limpet.

`open_exportable` opens an adapter, a head or a release of images; `export` writes it in one of the `formats` and proves
that what was written gives the same vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.export.formats import Format
from limpet.export.npz import NumpyArrays
from limpet.export.onnx_model import OnnxModel
from limpet.export.sentence_transformers_folder import Base, SentenceTransformersFolder

if TYPE_CHECKING:
    from limpet.models.text_encoders import TextEncoder


def formats(encoder: TextEncoder | None = None, base: Base = "copy") -> dict[str, Format]:
    """Return all formats by what people type.

    Args:
        encoder: The frozen model of text whose vectors are mapped, for the formats that it is a part of.
        base: Whether they copy its weights, or keep them where they are.
    """
    return {one.name: one for one in (SentenceTransformersFolder(encoder, base), OnnxModel(), NumpyArrays())}
