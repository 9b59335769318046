"""Google Landmarks v2 in small, in its official layout."""

from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import ConfigError, DataError
from limpet_bench.datasets.landmarks import LandmarksTruth

TRAIN = {f"{number:016x}": landmark for number, landmark in enumerate([9, 9, 9, 10, 10, 203], 0xAB0 << 52)}
CLEAN = [name for name, landmark in TRAIN.items() if landmark != 203][1:]
INDEX = [f"{number:016x}" for number in range(0x1A2 << 52, (0x1A2 << 52) + 4)]
TEST = [f"{number:016x}" for number in range(0xF00 << 52, (0xF00 << 52) + 4)]
SOLUTION = (
    "id,images,Usage\n"
    f"{TEST[0]},{INDEX[0]} {INDEX[2]},Public\n"
    f"{TEST[1]},None,Ignored\n"
    f"{TEST[2]},{INDEX[3]},Private\n"
    f"{TEST[3]},None,Private\n"
)


@pytest.fixture
def root(tmp_path: Path, paint: Callable[..., None]) -> Path:
    folder = tmp_path / "gldv2"
    for number, (part, names) in enumerate({"train": list(TRAIN), "index": INDEX, "test": TEST}.items()):
        for row, name in enumerate(names):
            paint(folder / part / name[0] / name[1] / name[2] / f"{name}.jpg", 80 * number + 10 * row, (30, 20))
    lines = [f"{name},http://example.org/{name}.jpg,{landmark}" for name, landmark in TRAIN.items()]
    (folder / "train.csv").write_text("\n".join(["id,url,landmark_id", *lines]) + "\n")
    (folder / "train_clean.csv").write_text(f"landmark_id,images\n10,{CLEAN[2]} {CLEAN[3]}\n9,{CLEAN[0]} {CLEAN[1]}\n")
    (folder / "index.csv").write_text("\n".join(["id", *INDEX]) + "\n")
    (folder / "retrieval_solution_v2.1.csv").write_text(SOLUTION)
    return tmp_path


# --- the reader ------------------------------------------------------------------------------------------------------


def test_the_cleaned_set_trains_and_queries_of_the_solution_search_the_index(root: Path, brightness) -> None:
    data = load_dataset("gldv2", root, image_size=16)
    assert data.train is not None and not data.labelled and not data.leave_one_out
    assert data.train.class_names == ("9", "10")
    assert list(data.train.ids) == [CLEAN[2], CLEAN[3], CLEAN[0], CLEAN[1]]
    assert data.train.labels.tolist() == [1, 1, 0, 0] and brightness(data.train) == [30, 40, 10, 20]
    assert list(data.gallery.ids) == INDEX and brightness(data.gallery) == [80, 90, 100, 110]
    assert list(data.query.ids) == [TEST[0], TEST[2], TEST[3]] and brightness(data.query) == [160, 180, 190]
    assert data.train.shape == data.query.shape == data.gallery.shape == (3, 16, 16)
    assert "2 to train on; 3 queries (both)" in data.description
    assert "4 training images (1,580,470), 2 landmarks (81,313)" in data.description


def test_all_training_images_are_an_option_and_so_is_the_usage(root: Path) -> None:
    data = load_dataset("gldv2", root, clean=False, usage="Public", fit="squash")
    assert data.train is not None and data.train.class_names == ("9", "10", "203")
    assert list(data.train.ids) == list(TRAIN) and data.train.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert list(data.query.ids) == [TEST[0]] and data.query.fit == "squash"
    assert "(4,132,914)" in data.description


def test_lists_may_lie_beside_their_images(root: Path) -> None:
    folder = root / "gldv2"
    for name, part in {"train_clean.csv": "train", "index.csv": "index"}.items():
        (folder / name).rename(folder / part / name)
    (folder / "retrieval_solution_v2.1.csv").rename(folder / "test" / "retrieval_solution.csv")
    data = load_dataset("gldv2", root)
    assert data.train is not None and (len(data.train), len(data.gallery), len(data.query)) == (4, 4, 3)


def test_landmarks_can_be_held_out_classes_where_there_is_no_index(root: Path, paint: Callable[..., None]) -> None:
    folder = root / "gldv2"
    for name in ("index.csv", "retrieval_solution_v2.1.csv", "index", "test"):
        (folder / name).rename(root / name)
    more = {f"{number:016x}": 300 + number % 4 for number in range(8)}
    with (folder / "train.csv").open("a") as file:
        for name, landmark in more.items():
            paint(folder / "train" / name[0] / name[1] / name[2] / f"{name}.jpg")
            file.write(f"{name},x,{landmark}\n")
    data = load_dataset("gldv2", root, clean=False, held_out_classes=0.5, seed=3)
    assert data.train is not None and data.labelled and data.leave_one_out
    assert len(data.query.class_names) == 4 and len(data.train.class_names) == 3
    assert not set(data.query.class_names) & set(data.train.class_names)
    assert len(data.train) + len(data.query) == 14
    other = load_dataset("gldv2", root, clean=False, held_out_classes=0.5, seed=4)
    assert list(other.query.ids) != list(data.query.ids)
    for share, message in (
        (1.5, "held_out_classes ?= ?1.5"),
        (0.1, "held_out_classes = 0.1 of 7 classes is 1"),
        (-0.1, "-0.1"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_dataset("gldv2", root, clean=False, held_out_classes=share)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("train_clean.csv", r"no train_clean\.csv or train/train_clean\.csv \((.|\n)*home page of Google Landmarks v2"),
        ("train", "no train/"),
        ("index.csv", r"no index\.csv"),
        ("retrieval_solution_v2.1.csv", r"no retrieval_solution_v2\.1\.csv or "),
        ("index", "no index/"),
        ("test", "no test/"),
        (f"train/a/b/0/{CLEAN[1]}.jpg", f"1 of 4 images are not in .*first: 'a/b/0/{CLEAN[1]}"),
        (f"index/1/a/2/{INDEX[1]}.jpg", f"1 of 4 images are not in .*first: '1/a/2/{INDEX[1]}"),
        (f"test/f/0/0/{TEST[2]}.jpg", f"1 of 3 images are not in .*first: 'f/0/0/{TEST[2]}"),
    ],
)
def test_what_is_missing_first_is_named(root: Path, missing: str, message: str) -> None:
    (root / "gldv2" / missing).rename(root / "elsewhere")
    with pytest.raises(DataError, match=message):
        load_dataset("gldv2", root)


def test_lists_that_cannot_be_used_are_refused(root: Path) -> None:
    folder = root / "gldv2"
    (folder / "index.csv").write_text("id\n../../../secret\n")
    with pytest.raises(DataError, match=r"names the image '\.\./\.\./\.\./secret'"):
        load_dataset("gldv2", root)
    (folder / "train_clean.csv").write_text("landmark_id,images\nnine,x\n")
    with pytest.raises(DataError, match=r"train_clean\.csv cannot be read: .*nine"):
        load_dataset("gldv2", root)
    (folder / "train_clean.csv").write_text("landmark,images\n9,x\n")
    with pytest.raises(DataError, match=r"train_clean\.csv cannot be read: .*landmark_id"):
        load_dataset("gldv2", root)
    (folder / "train_clean.csv").write_text("")
    with pytest.raises(DataError, match=r"train_clean\.csv cannot be read: .*[Ee]mpty"):
        load_dataset("gldv2", root)


# --- the solution ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("usage", "rows"), [("Public", [0]), ("Private", [2, 3]), ("both", [0, 2, 3])])
def test_a_usage_has_its_queries_and_ignored_ones_never_count(root: Path, usage: str, rows: list[int]) -> None:
    truth = LandmarksTruth.read(root / "gldv2", usage=usage)
    assert truth.query_names == tuple(TEST[row] for row in rows) and len(truth) == len(rows)
    answers = {0: (INDEX[0], INDEX[2]), 2: (INDEX[3],), 3: ()}
    assert truth.relevant == tuple(answers[row] for row in rows)


def test_a_query_may_have_more_answers_than_a_page(tmp_path: Path) -> None:
    names = [f"{number:016x}" for number in range(20_000)]
    path = tmp_path / "solution.csv"
    path.write_text(f"Usage,id,images\nPublic,{TEST[0]},{' '.join(names)}\n")
    assert LandmarksTruth.read(path).relevant == (tuple(names),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,images\na,b\n", "cannot be read: .*Usage"),
        ("id,images,Usage\na,b,public\n", "the usage 'public'"),
        ("id,images,Usage\na,b,Private\n", "no queries of usage 'Public'"),
        ("id,images,Usage\na,b,Public\na,c,Public\n", "query is named twice"),
        ("id,images,Usage\na,b c b,Public\n", "answers the query 'a' twice"),
        ("id,images,Usage\na,b\n", "cannot be read"),
    ],
)
def test_solutions_that_cannot_be_right_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "solution.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        LandmarksTruth.read(path, usage="Public")


def test_other_usages_and_missing_solutions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"usage = 'all'(.|\n)*Public, Private, both"):
        LandmarksTruth.read(tmp_path, usage="all")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"No retrieval solution(.|\n)*retrieval_solution_v2\.1\.csv"):
        LandmarksTruth.read(tmp_path)
    with pytest.raises(DataError, match="There is no file"):
        LandmarksTruth.read(tmp_path / "solution.csv")
