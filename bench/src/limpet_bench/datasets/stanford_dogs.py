"""Stanford Dogs: 120 breeds of ImageNet (Khosla et al., Novel Dataset for Fine-Grained Categorization, 2011)."""

from __future__ import annotations

import zlib
from pathlib import Path

from limpet.data import Dataset, Fit, ImageSize, RetrievalData
from limpet.errors import DataError
from limpet_bench.datasets.layout import Needed, listed_images, require, unlike

OBTAINED = "its home page, vision.stanford.edu/aditya86/ImageNetDogs (images.tar and lists.tar)"
_NEEDED = (
    Needed("train_list.mat", "the list of images to train on", ("lists/train_list.mat",)),
    Needed("test_list.mat", "the list of images to search", ("lists/test_list.mat",)),
    Needed("Images/", "the images in folders of breeds"),
)
_OFFICIAL = {"training images": 12_000, "test images": 8_580, "breeds": 120}


def stanford_dogs(root: Path, *, image_size: ImageSize = 224, fit: Fit = "crop") -> RetrievalData:
    """Photographs of dogs: training on the train split, leave-one-out search on the test split.

    Official counts: 12,000 training images (100 per breed) and 8,580 test images of 120 breeds.

    Args:
        root: Folder with ``Images/BREED``, and with ``train_list.mat`` and ``test_list.mat`` directly in it or in
            ``lists``.
        image_size: Height and width of the images in pixels, or one number for both.
        fit: "crop" keeps the aspect ratio (shorter side to size, centre crop), "squash" does not.

    Raises:
        DataError: A list or an image is missing, or a list is unreadable.
    """
    train_list, test_list, images = require(root, _NEEDED, "stanford-dogs", OBTAINED)
    files = {"train": _files(train_list), "test": _files(test_list)}
    breeds = sorted({_breed(file) for part in files.values() for file in part})
    train, test = (
        listed_images(images, part, [_breed(file) for file in part], image_size, fit, class_names=breeds)
        for part in files.values()
    )
    counts = (len(train), len(test), len(breeds))
    return RetrievalData.of_one_set(
        name="stanford-dogs",
        train=train,
        evaluation=test,
        description=f"photographs of {len(breeds)} breeds of dogs, {len(train):,} to train on; every one of "
        f"{len(test):,} test images searches the others{unlike(dict(zip(_OFFICIAL, counts, strict=True)), _OFFICIAL)}",
    )


def _breed(file: str) -> str:
    return file.split("/")[0]


def _files(path: Path) -> list[str]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        listed = loadmat(path, variable_names=["file_list"]).get("file_list")
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        NotImplementedError,
        MatReadError,
        zlib.error,
    ) as error:
        raise DataError(f"Cannot read {path}: {error}.", expected="a MATLAB file with a file_list") from error
    files = [str(cell[0]) for cell in listed.ravel() if len(cell)] if listed is not None else []
    wrong = [file for file in files if file.count("/") != 1]
    if not files or wrong:
        raise DataError(
            f"{path} lists {len(files)} images{f', one of them {wrong[0]}' if wrong else ''}.",
            expected="a file_list with cells as 'n02085620-Chihuahua/n02085620_5927.jpg'",
            to_do=f"get it again from {OBTAINED}.",
        )
    return files


STANFORD_DOGS = Dataset(stanford_dogs, "dogs of 120 breeds, 12,000 images to train on", "stanford-dogs", OBTAINED)
