"""Images and texts, the data sets they come from, and who saw which of them; importable without torch.

Batches for training are in `holdfast.data.loading` and `holdfast.data.augment`, which need torch.
"""

from holdfast.data.datasets import DATASETS, Dataset, load_dataset
from holdfast.data.image_set import ImageSet
from holdfast.data.images import ArrayImages, EncodedImages, FileImages, Images
from holdfast.data.leaks import refuse_shared_ids
from holdfast.data.retrieval_data import RetrievalData
from holdfast.data.scenarios import SCENARIOS, Scenario
from holdfast.data.split import Split, check_split
from holdfast.data.text_data import TextData
from holdfast.data.text_set import TextSet
from holdfast.data.texts import TEXT_DATASETS, load_texts

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
