"""ROxford and RParis in small, in their official layout, and their ground truth."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limpet.data.datasets import load_dataset
from limpet.errors import DataError
from limpet_bench.datasets.revisited import RevisitedTruth

GALLERY = ["all_souls_000001", "all_souls_000002", "ashmolean_000007", "oxford_003410"]
QUERIES = ["all_souls_000013", "ashmolean_000000"]


def truth() -> dict[str, Any]:
    return {
        "imlist": list(GALLERY),
        "qimlist": list(QUERIES),
        "gnd": [
            {"bbx": [10.2, 5.0, 29.8, 25.0], "easy": [0], "hard": [1], "junk": [3]},
            {"bbx": [0.0, 0.0, 40.0, 30.0], "easy": [], "hard": [2], "junk": []},
        ],
    }


def write(folder: Path, content: Any, name: str = "gnd_roxford5k") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., None]) -> Path:
    for folder, name in (("roxford5k", "gnd_roxford5k"), ("rparis6k", "gnd_rparis6k")):
        write(tmp_path / folder, truth(), name)
        for number, image in enumerate(GALLERY + QUERIES):
            paint(tmp_path / folder / "jpg" / f"{image}.jpg", 30 * number, (40, 30))
    return tmp_path


# --- the reader ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["roxford", "rparis"])
def test_queries_search_photographs_by_the_names_of_the_ground_truth(root: Path, name: str, brightness) -> None:
    data = load_dataset(name, root, image_size=16)
    assert data.train is None and not data.leave_one_out and not data.labelled
    assert list(data.gallery.ids) == GALLERY and list(data.query.ids) == QUERIES
    assert brightness(data.gallery) == [0, 30, 60, 90] and brightness(data.query) == [120, 150]
    assert data.query.shape == data.gallery.shape == (3, 16, 16)
    assert data.query.fit == data.gallery.fit == "crop"
    assert "2 queries (70), 4 photographs" in data.description


def test_queries_are_cropped_to_their_boxes(root: Path) -> None:
    """A white square from (10, 5) to (30, 25): the box of query 0, when rounded; query 1 shows the whole image."""
    for name in QUERIES:
        image = Image.new("RGB", (40, 30))
        image.paste("white", (10, 5, 30, 25))
        image.save(root / "roxford5k" / "jpg" / f"{name}.jpg", quality=100)
    query = load_dataset("roxford", root, image_size=20, fit="squash").query
    pixels = query.read(np.array([1, 0]))
    assert query.fit == "squash"
    assert pixels[1].min() > 250
    assert pixels[0, :, 0].max() < 5 and pixels[0, :, 10, 10].min() > 250
    whole = load_dataset("roxford", root, image_size=20, fit="squash", crop_queries=False)
    assert "2 whole queries" in whole.description and list(whole.query.ids) == QUERIES
    assert np.array_equal(whole.query.read(np.array([0])), pixels[:1]), "without their boxes both show the same"


@pytest.mark.parametrize("crop_queries", [True, False])
def test_queries_and_photographs_may_be_higher_than_wide(root: Path, crop_queries: bool) -> None:
    data = load_dataset("roxford", root, image_size=[24, 16], crop_queries=crop_queries)
    assert data.query.shape == data.gallery.shape == (3, 24, 16)
    assert data.query.read(np.array([0])).shape == (1, 3, 24, 16)


def test_boxes_are_of_the_stored_pixels_and_crops_are_turned_upright(root: Path) -> None:
    """Stored lying on its side (orientation 6: turn a quarter right): the left of the crop ends up above."""
    image = Image.new("RGB", (40, 30))
    image.paste("white", (10, 5, 20, 25))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(root / "roxford5k" / "jpg" / f"{QUERIES[0]}.jpg", quality=100, exif=exif)
    pixels = load_dataset("roxford", root, image_size=20).query.read(np.array([0]))[0, 0]
    assert pixels[:8].min() > 250 and pixels[12:].max() < 5


def test_boxes_change_the_digest_and_what_lies_outside_is_left_out(root: Path) -> None:
    before = load_dataset("roxford", root).query.digest()
    content = truth()
    content["gnd"][0]["bbx"] = [10.2, -3.0, 29.8, 500.0]
    write(root / "roxford5k", content)
    query = load_dataset("roxford", root, image_size=16).query
    assert query.digest() != before
    assert abs(int(query.read(np.array([0])).mean()) - 120) < 5


def test_a_box_outside_of_its_image_is_refused_when_read(root: Path) -> None:
    content = truth()
    content["gnd"][0]["bbx"] = [50, 50, 60, 60]
    write(root / "roxford5k", content)
    query = load_dataset("roxford", root).query
    with pytest.raises(DataError, match=r"all_souls_000013\.jpg: the box .* outside of an image of 40 x 30"):
        query.read(np.array([0]))


def test_a_damaged_query_is_named(root: Path) -> None:
    (root / "roxford5k" / "jpg" / f"{QUERIES[1]}.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"ashmolean_000000\.jpg: no known image format"):
        load_dataset("roxford", root).query.read(np.array([1]))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("gnd_roxford5k.json", r"no gnd_roxford5k\.json(.|\n)*revisitop"),
        ("jpg", r"no jpg/ \(the photographs\)(.|\n)*revisitop"),
        (f"jpg/{GALLERY[2]}.jpg", r"1 of 4 images are not in .*first: 'ashmolean_000007\.jpg"),
        (f"jpg/{QUERIES[0]}.jpg", r"1 of 2 images are not in .*first: 'all_souls_000013\.jpg"),
    ],
)
def test_what_is_missing_first_is_named(root: Path, missing: str, message: str) -> None:
    (root / "roxford5k" / missing).rename(root / "elsewhere")
    with pytest.raises(DataError, match=message):
        load_dataset("roxford", root)


def test_names_that_lead_out_of_the_folder_are_refused(root: Path) -> None:
    for name in ("../gnd", "/etc/passwd"):
        content = truth()
        content["imlist"][1] = name
        write(root / "roxford5k", content)
        with pytest.raises(DataError, match=f"names '{name}'"):
            load_dataset("roxford", root)


# --- the ground truth ------------------------------------------------------------------------------------------------


def check(read: RevisitedTruth) -> None:
    assert read.gallery_names == tuple(GALLERY) and read.query_names == tuple(QUERIES) and len(read) == 2
    assert [rows.tolist() for rows in read.easy] == [[0], []]
    assert [rows.tolist() for rows in read.hard] == [[1], [2]]
    assert [rows.tolist() for rows in read.junk] == [[3], []]
    assert {rows.dtype for part in (read.easy, read.hard, read.junk) for rows in part} == {np.dtype(np.int64)}
    assert read.boxes.tolist() == [[10.2, 5.0, 29.8, 25.0], [0.0, 0.0, 40.0, 30.0]]


def test_ground_truth_is_read_from_a_file_or_its_folder(tmp_path: Path) -> None:
    check(RevisitedTruth.read(write(tmp_path, truth())))
    check(RevisitedTruth.read(tmp_path))


def damaged(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    content = truth()
    change(content)
    return content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("gnd"), "KeyError, 'gnd'"),
        (lambda c: c.pop("imlist"), "KeyError, 'imlist'"),
        (lambda c: c["gnd"][0].pop("junk"), "KeyError, 'junk'"),
        (lambda c: c["gnd"].pop(), "2 query_names, 1 easy"),
        (lambda c: c["imlist"].__setitem__(1, GALLERY[0]), "gallery image is named twice"),
        (lambda c: c["qimlist"].__setitem__(1, QUERIES[0]), "query is named twice"),
        (lambda c: (c["qimlist"].clear(), c["gnd"].clear()), "No query is named"),
        (lambda c: c["imlist"].__setitem__(1, 7), "names that are no texts"),
        (lambda c: c["gnd"][0]["easy"].append(4), r"Row 4 for the query 'all_souls_000013'(.|\n)*0 to 3"),
        (lambda c: c["gnd"][1]["junk"].append(-1), "Row -1 for the query 'ashmolean_000000'"),
        (lambda c: c["gnd"][0]["hard"].append(0), r"Row 0 \('all_souls_000001'\) is listed twice"),
        (lambda c: c["gnd"][0]["easy"].append(0), "is listed twice"),
        (lambda c: c["gnd"][0]["easy"].append(1.5), "no whole numbers"),
        (lambda c: c["gnd"][0]["easy"].append(True), "no whole numbers"),
        (lambda c: c["gnd"][0].__setitem__("easy", "0"), "a str where a list belongs"),
        (lambda c: c["gnd"][0]["bbx"].pop(), "bbx has 3 numbers"),
        (lambda c: c["gnd"][0].__setitem__("bbx", [5, 5, 5, 9]), "box .5.0, 5.0, 5.0, 9.0. of the query"),
        (lambda c: c["gnd"][0].__setitem__("bbx", [0, 0, float("inf"), 9]), "Infinity is no number"),
    ],
)
def test_a_ground_truth_that_cannot_be_right_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        RevisitedTruth.read(write(tmp_path, damaged(change)))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds 0 files gnd"):
        RevisitedTruth.read(tmp_path)
    with pytest.raises(DataError, match=r"list indices"):
        RevisitedTruth.read(write(tmp_path, [1, 2]))
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(DataError, match=r"Cannot read .*x\.json"):
        RevisitedTruth.read(tmp_path / "x.json")
    with pytest.raises(DataError, match=r"Cannot read .*y\.json"):
        RevisitedTruth.read(tmp_path / "y.json")
    with pytest.raises(DataError, match=r"is a pickle(.|\n)*revisited_truth"):
        RevisitedTruth.read(tmp_path / "y.pkl")


def test_ground_truths_import_without_torch() -> None:
    """Protocols of evaluation read them, and those import without torch."""
    modules = "revisited, landmarks, ijbc"
    code = f"import sys; from limpet_bench.datasets import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
