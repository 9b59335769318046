"""Images, texts, data sets, and splits into the training data of old and new model; importable without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.data.arrays import read_npz
    from limpet.data.augment import Augmentation, RandAugment, ResizedCrop
    from limpet.data.datasets import DATASETS, Dataset, load_dataset, option_names
    from limpet.data.decoding import Fit, Pixels, Shape, check_target, decode, fitted
    from limpet.data.held_out import held_out_rows, hold_out
    from limpet.data.image_set import ImageSet
    from limpet.data.image_size import ImageSize, SquareSize, readable_sides
    from limpet.data.images import (
        ArrayImages,
        DecodedImages,
        EncodedImages,
        FileImages,
        Images,
        PreparedImages,
        RowNumbers,
        keep_decoded,
    )
    from limpet.data.leaks import refuse_shared_ids
    from limpet.data.loading import encoding_loader, generator_at
    from limpet.data.random_transforms import random_affine, random_flip
    from limpet.data.retrieval_data import UNLABELLED, RetrievalData
    from limpet.data.sampling import check_labels, class_counts, generator_of, lowest_of_each_class
    from limpet.data.scenarios import SCENARIOS, Labels, Scenario, Split, check_split
    from limpet.data.text_files import read_csv
    from limpet.data.text_set import TextData, TextSet
    from limpet.data.texts import TEXT_DATASETS, load_texts
    from limpet.embeddings.trained_on import Digests, digests_of

__all__ = [
    "DATASETS", "SCENARIOS", "TEXT_DATASETS", "UNLABELLED", "ArrayImages", "Augmentation", "Dataset",
    "DecodedImages", "Digests", "EncodedImages", "FileImages", "Fit", "ImageSet", "ImageSize", "Images", "Labels",
    "Pixels", "PreparedImages", "RandAugment", "ResizedCrop", "RetrievalData", "RowNumbers", "Scenario", "Shape",
    "Split", "SquareSize", "TextData", "TextSet", "check_labels", "check_split", "check_target", "class_counts",
    "decode", "digests_of", "encoding_loader", "fitted", "generator_at", "generator_of", "held_out_rows",
    "hold_out", "keep_decoded", "load_dataset", "load_texts", "lowest_of_each_class", "option_names",
    "random_affine", "random_flip", "read_csv", "read_npz", "readable_sides", "refuse_shared_ids",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)
