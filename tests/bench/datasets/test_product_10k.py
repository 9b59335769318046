"""Products-10K in small, in its official layout."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import ConfigError, DataError

TRAIN = {"7": 20, "12": 25, "9": 3}  # training images of every product


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., None]) -> Path:
    folder, rows = tmp_path / "product-10k", []
    for product, count in TRAIN.items():
        for _ in range(count):
            paint(folder / "train" / f"{len(rows)}.jpg", 5 * len(rows))
            rows.append(f"{len(rows)}.jpg,{product},{int(product) // 10}")
    (folder / "train.csv").write_text("\n".join(["name,class,group", *rows]))
    for number in range(4):
        paint(folder / "test" / f"{1000 + number}.jpg", 50 * number)
    test = [f"{1000 + number}.jpg,{product},{usage}" for number, (product, usage) in enumerate(
        [("12", "Public"), ("7", "Private"), ("12", "Public"), ("9", "Private")]
    )]  # fmt: skip
    (folder / "test_kaggletest.csv").write_text("\n".join(["name,class,Usage", *test]) + "\n")
    return tmp_path


def test_train_and_test(root: Path, brightness) -> None:
    data = load_dataset("product-10k", root, image_size=8)
    assert data.train is not None and data.leave_one_out and data.query is data.gallery
    assert data.train.class_names == data.query.class_names == ("12", "7", "9")
    assert np.bincount(data.train.labels).tolist() == [25, 20, 3] and data.query.labels.tolist() == [0, 1, 0, 2]
    assert data.train.ids[21] == "train/21.jpg" and data.train.labels[21] == 0
    assert brightness(data.query) == [0, 50, 100, 150] and data.query.shape == (3, 8, 8)
    assert "48 training images (141,931), 4 test images (55,376), 3 products (9,691)" in data.description
    folder = root / "product-10k"
    (folder / "test_kaggletest.csv").rename(folder / "test.csv")
    assert list(load_dataset("product-10k", root).query.ids) == list(data.query.ids)


def test_product_m_holds_out_a_share_of_every_product_with_enough_images(root: Path) -> None:
    (root / "product-10k" / "test").rename(root / "elsewhere")
    data = load_dataset("product-10k", root, subset="Product-M", image_size=8)
    assert data.train is not None and data.leave_one_out and data.name == "product-m"
    assert data.train.class_names == ("12", "7")
    assert np.bincount(data.train.labels).tolist() == [20, 16] and np.bincount(data.query.labels).tolist() == [5, 4]
    assert not set(data.train.ids) & set(data.query.ids)
    others = [load_dataset("product-10k", root, subset="Product-M", seed=seed, held_out=0.4) for seed in (1, 2)]
    assert np.bincount(others[0].query.labels).tolist() == [10, 8]
    assert list(others[0].query.ids) != list(others[1].query.ids)
    assert "2 products (2,743)" in data.description


def test_product_m_needs_products_with_enough_images(root: Path) -> None:
    path = root / "product-10k" / "train.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-5]))
    assert load_dataset("product-10k", root, subset="Product-M") is not None
    path.write_text("\n".join(path.read_text().splitlines()[:30]))
    with pytest.raises(DataError, match="1 products have at least 20 training images"):
        load_dataset("product-10k", root, subset="Product-M")
    with pytest.raises(ConfigError, match="'subset' of the data set 'product-10k' is 'small'"):
        load_dataset("product-10k", root, subset="small")


@pytest.mark.parametrize("name", ["train.csv", "train", "test_kaggletest.csv", "test"])
def test_what_is_missing_is_named(root: Path, name: str) -> None:
    (root / "product-10k" / name).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"no .*{name}(.|\n)*products-10k\.github\.io"):
        load_dataset("product-10k", root)


def test_tables_without_classes_and_with_other_images_are_refused(root: Path) -> None:
    path = root / "product-10k" / "test_kaggletest.csv"
    for text, message in {
        "name\n1000.jpg\n": r"has the columns name\.(.|\n)*name, class",
        "name,class,Usage\n1000.jpg,,Public\n": r"Line 2 of .*'1000.jpg,'",
        "name,class\n1000.jpg,7\n9.jpg,7\n": r"1 of 2 images are not in .*'test/9.jpg'",
        "name,class\n1000.jpg,7\n1000.jpg,12\n": r"Ids occur more than once: 'test/1000.jpg'",
    }.items():
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load_dataset("product-10k", root)
