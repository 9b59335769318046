"""Images and texts, the data sets they come from, and who saw which of them; importable without torch.

The names below load on first use. Batches for training are in `limpet.data.loading`, and their random changes in
`limpet.data.random_transforms`, which need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.data.datasets import DATASETS, Dataset, load_dataset
    from limpet.data.image_set import ImageSet
    from limpet.data.images import ArrayImages, EncodedImages, FileImages, Images
    from limpet.data.leaks import refuse_shared_ids
    from limpet.data.retrieval_data import RetrievalData
    from limpet.data.scenarios import SCENARIOS, Scenario, Split, check_split
    from limpet.data.text_set import TextData, TextSet
    from limpet.data.texts import TEXT_DATASETS, load_texts

_HOMES = {
    "DATASETS": "datasets",
    "SCENARIOS": "scenarios",
    "TEXT_DATASETS": "texts",
    "ArrayImages": "images",
    "Dataset": "datasets",
    "EncodedImages": "images",
    "FileImages": "images",
    "ImageSet": "image_set",
    "Images": "images",
    "RetrievalData": "retrieval_data",
    "Scenario": "scenarios",
    "Split": "scenarios",
    "TextData": "text_set",
    "TextSet": "text_set",
    "check_split": "scenarios",
    "load_dataset": "datasets",
    "load_texts": "texts",
    "refuse_shared_ids": "leaks",
}

__all__ = [
    "DATASETS",
    "SCENARIOS",
    "TEXT_DATASETS",
    "ArrayImages",
    "Dataset",
    "EncodedImages",
    "FileImages",
    "ImageSet",
    "Images",
    "RetrievalData",
    "Scenario",
    "Split",
    "TextData",
    "TextSet",
    "check_split",
    "load_dataset",
    "load_texts",
    "refuse_shared_ids",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'limpet.data' has no attribute '{name}'")
    return getattr(import_module(f"limpet.data.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
