"""Images, the data sets they come from, and who saw which of them; importable without torch.

Batches for training are in `holdfast.data.loading` and `holdfast.data.augment`, which need torch.
"""

from holdfast.data.datasets import DATASETS, Dataset, load_dataset
from holdfast.data.image_set import ImageSet
from holdfast.data.images import ArrayImages, EncodedImages, FileImages, Images
from holdfast.data.leaks import refuse_shared_ids
from holdfast.data.retrieval_data import RetrievalData
from holdfast.data.scenarios import SCENARIOS, Scenario
from holdfast.data.split import Split, check_split

__all__ = [
    "DATASETS",
    "SCENARIOS",
    "ArrayImages",
    "Dataset",
    "EncodedImages",
    "FileImages",
    "ImageSet",
    "Images",
    "RetrievalData",
    "Scenario",
    "Split",
    "check_split",
    "load_dataset",
    "refuse_shared_ids",
]
