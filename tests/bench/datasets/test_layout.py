"""What all readers of official layouts share: what must be there, lists, tables, and pictures that lists name."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limpet.data.datasets import DATASETS, load_dataset
from limpet.errors import ConfigError, DataError
from limpet_bench.datasets.layout import (
    Needed,
    fields_of,
    listed_images,
    refuse_missing_images,
    require,
    table_of,
    text_of,
    unlike,
)

NEEDED = [Needed("list.txt", "the list", ("Anno/list.txt", "lists/list.txt")), Needed("images/", "the images")]


def test_what_is_there_is_found_in_the_first_of_its_places(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for place in ("lists", "Anno", "."):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "list.txt").write_text("x")
        assert require(tmp_path, NEEDED, "birds", "its page") == [tmp_path / place / "list.txt", tmp_path / "images"]


def test_the_first_missing_thing_is_named_with_the_layout_and_the_source(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        require(tmp_path, NEEDED, "birds", "its page")
    assert error.value.given.endswith(f"{tmp_path}: no list.txt or Anno/list.txt or lists/list.txt (the list).")
    assert "images/ (the images)" in error.value.expected and "from its page" in error.value.to_do
    (tmp_path / "list.txt").write_text("x")
    with pytest.raises(DataError, match=r"no images/ \(the images\)"):
        require(tmp_path, NEEDED, "birds", "its page")


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    (tmp_path / "images").write_text("x")
    (tmp_path / "list.txt").mkdir()
    assert [one.find(tmp_path) for one in NEEDED] == [None, None]


def test_listed_images_keep_the_order_of_the_list(tmp_path: Path, paint: Callable[..., None], brightness) -> None:
    for number, name in enumerate(["a/2.png", "b/1.png", "a/1.png"]):
        paint(tmp_path / name, 50 * number)
    images = listed_images(
        tmp_path, ["b/1.png", "a/2.png", "a/1.png"], ["dog", "cat", "dog"], (8, 16), "squash",
        columns={"camera": np.array([3, 1, 2])},
    )  # fmt: skip
    assert images.shape == (3, 8, 16) and images.fit == "squash"
    assert (images.class_names, images.labels.tolist()) == (("cat", "dog"), [1, 0, 1])
    assert list(images.ids) == ["b/1.png", "a/2.png", "a/1.png"]
    assert (brightness(images), images.columns["camera"].tolist()) == ([50, 0, 100], [3, 1, 2])
    with pytest.raises(ConfigError, match="image_size = 16x7"):
        listed_images(tmp_path, ["b/1.png"], ["dog"], (16, 7), "squash")


def test_images_that_a_list_names_and_a_folder_lacks_are_counted(tmp_path: Path, paint: Callable[..., None]) -> None:
    paint(tmp_path / "a" / "1.png")
    files = ["a/1.png", *(f"a/{number}.png" for number in range(2, 7)), "b/1.png"]
    with pytest.raises(DataError, match=r"6 of 7 images are not in .*'a/2.png', 'a/3.png', 'a/4.png' and 3 more"):
        refuse_missing_images(tmp_path, files)
    refuse_missing_images(tmp_path, files[:1])


def test_a_short_line_is_shown_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"\xef\xbb\xbfheader\r\na  b c\r\n\r\nd\te\r\n")
    assert fields_of(path, 2, "two words", skip=1) == [["a", "b", "c"], ["d", "e"]]
    assert fields_of(path, 1, "words", separator="\t") == [["header"], ["a  b c"], ["d", "e"]]
    with pytest.raises(DataError, match=r"Line 4 of .*list.txt is 'd\te'\.\nExpected: three words"):
        fields_of(path, 3, "three words", skip=1)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="UTF-8"):
        text_of(path)


def test_a_table_needs_its_columns_and_its_values(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text('class,name,group\n3,"a,b.jpg",0\n4,c.jpg,1\n')
    assert table_of(path, ("name", "class")) == [("a,b.jpg", "3"), ("c.jpg", "4")]
    with pytest.raises(DataError, match=r"has the columns class, name, group\.\nExpected: a header with name, weight"):
        table_of(path, ("name", "weight"))
    path.write_text("name,class\na.jpg,3\nb.jpg\n")
    with pytest.raises(DataError, match=r"Line 3 .*'b.jpg,'\.\nExpected: name,class in every row"):
        table_of(path, ("name", "class"))
    path.write_text("")
    with pytest.raises(DataError, match="no header at all"):
        table_of(path, ("name", "class"))


def test_counts_that_are_not_those_published_are_said() -> None:
    assert unlike({"images": 5, "classes": 2}, {"images": 5, "classes": 2}) == ""
    assert unlike({"images": 4, "classes": 2}, {"images": 5_000, "classes": 2}).endswith(": 4 images (5,000)")


def test_a_folder_that_is_not_there_says_where_the_data_set_is_obtained(tmp_path: Path) -> None:
    for name, dataset in DATASETS.items():
        if dataset.obtained:
            with pytest.raises(DataError, match=rf"no folder {tmp_path}(.|\n)*{re.escape(dataset.obtained)}"):
                load_dataset(name, tmp_path)


def test_an_empty_folder_says_what_is_missing_and_where_it_is_obtained(tmp_path: Path) -> None:
    for name, dataset in DATASETS.items():
        if dataset.obtained:
            (tmp_path / str(dataset.folder)).mkdir()
            with pytest.raises(DataError, match=rf"{name}.*is not complete in(.|\n)*{re.escape(dataset.obtained)}"):
                load_dataset(name, tmp_path)
