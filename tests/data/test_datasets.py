"""Small files made in the layouts that the readers expect, and the real data where it is there."""

import inspect
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from limpet.data.datasets import DATASETS, load_dataset
from limpet.data.held_out import held_out_rows
from limpet.data.image_set import ImageSet
from limpet.data.leaks import refuse_shared_ids
from limpet.data.retrieval_data import RetrievalData
from limpet.errors import ConfigError, DataError
from limpet_bench.datasets.omniglot import area_weights


def save_image(path: Path, value: int, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def fill(folder: Path, classes: dict[str, int], first: int = 0) -> None:
    """Make so many images of every class, no two alike."""
    for name, count in classes.items():
        for number in range(count):
            save_image(folder / name / f"{number}.png", first)
            first += 1


# --- names, paths and options ----------------------------------------------------------------------------------------


def test_every_data_set_says_what_it_is() -> None:
    assert not DATASETS.import_installed()
    assert {"glyphs", "cifar-100", "tiny-imagenet", "in-shop", "market-1501"} < set(DATASETS)
    for dataset in DATASETS.values():
        assert 20 < len(dataset.description) < 100
        takes_folder = [
            value.kind is value.POSITIONAL_OR_KEYWORD for value in inspect.signature(dataset.read).parameters.values()
        ]
        assert any(takes_folder) is (dataset.folder is not None)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Unknown data set or folder 'omniglott'\. Did you mean 'omniglot'"):
        load_dataset("omniglott")


def test_what_is_no_data_set_may_have_been_meant_as_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"Expected: a folder of images .*, or one of glyphs, .*\nNext: check"):
        load_dataset("fotos")


def test_a_file_of_texts_is_told_where_texts_go(tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text("id,text\n1,x\n")
    with pytest.raises(DataError, match="limpet embed texts"):
        load_dataset(tmp_path / "requests.csv")


def test_a_misspelt_option_gets_the_nearest_before_anything_is_read(tmp_path: Path) -> None:
    for name in ("glyphs", "omniglot", tmp_path):
        with pytest.raises(ConfigError, match=r"has no option 'image_siz'\. Did you mean 'image_size'"):
            load_dataset(name, tmp_path, image_siz=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": "big"}, "'image_size' of the data in .* is 'big'"),
        ({"image_size": 7}, r"image_size = 7\.\nExpected: at least 8"),
        ({"held_out": "x"}, "'held_out'"),
        ({"fit": "stretch"}, "'crop', 'squash', .* or 'squash-bicubic'"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_options_of_another_type_or_out_of_range_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    fill(tmp_path, {"ape": 4, "bee": 4})
    with pytest.raises(ConfigError, match=message):
        load_dataset(tmp_path, **options)


def test_named_data_refuses_them_too(tmp_path: Path) -> None:
    (tmp_path / "omniglot").mkdir()
    with pytest.raises(ConfigError, match=r"'seed'(.|\n)*at least 0"):
        load_dataset("glyphs", seed=-1)
    with pytest.raises(ConfigError, match="image_size = 4"):
        load_dataset("omniglot", tmp_path, image_size=4)
    with pytest.raises(ConfigError, match="'strength' of the data set 'glyphs' is 'much'"):
        load_dataset("glyphs", strength="much")


def test_a_name_that_is_not_utf8_is_shown(tmp_path: Path) -> None:
    fill(tmp_path, {"ape": 4, b"caf\xe9".decode(errors="surrogateescape"): 4})
    with pytest.raises(DataError, match=r"caf\\udce9(.|\n)*rename the file or folder"):
        load_dataset(tmp_path)


def test_a_damaged_archive_is_refused_wherever_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(
        path, images=np.arange(12 * 30, dtype=np.uint16).astype(np.uint8).reshape(12, 5, 6), labels=np.repeat([7, 3], 6)
    )
    content, refused = path.read_bytes(), 0
    for place in range(0, len(content), 5):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            load_dataset(path)
        except (DataError, ConfigError):
            refused += 1
    assert refused > len(content) // 10


def test_without_a_data_root_the_message_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIMPET_DATA", raising=False)
    with pytest.raises(DataError, match=r"no data root was given(.|\n)*LIMPET_DATA(.|\n)*limpet.toml"):
        load_dataset("omniglot")


@pytest.mark.parametrize("name", ["omniglot", "tiny-imagenet-32"])
def test_a_data_set_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"no folder {tmp_path / name}(.|\n)*LIMPET_DATA"):
        load_dataset(name, tmp_path)
    with pytest.raises(DataError, match=rf"no folder {tmp_path / name}"):
        load_dataset(name, str(tmp_path))


@pytest.mark.parametrize(
    ("name", "missing"), [("omniglot", "images_background.npz"), ("tiny-imagenet-32", "train.parquet")]
)
def test_a_missing_file_is_named(tmp_path: Path, name: str, missing: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=rf"There is no file .*{missing}"):
        load_dataset(name, tmp_path)


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no folder"):
        load_dataset(tmp_path / "nothing")
    with pytest.raises(DataError, match="There is no file"):
        load_dataset(tmp_path / "nothing.npz")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="no folder and no"):
        load_dataset(tmp_path / "notes.txt")


def test_glyphs_come_by_name_without_a_root() -> None:
    data = load_dataset("glyphs", training_classes=3, validation_classes=0, evaluation_classes=2)
    assert (data.name, len(data.train.class_names)) == ("glyphs", 3)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_train_and_test_folders_are_searched_leave_one_out(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"ape": 2, "bee": 3})
    fill(tmp_path / "test", {"cat": 2, "dog": 2}, first=10)
    data = load_dataset(tmp_path, image_size=8)
    assert data.leave_one_out and data.query is data.gallery and data.validation is None
    assert data.train.class_names == ("ape", "bee")
    assert data.query.class_names == ("cat", "dog")
    assert list(data.train.ids) == ["train/ape/0.png", "train/ape/1.png"] + [f"train/bee/{n}.png" for n in range(3)]
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert data.train.read(np.array([3]))[0].tolist() == np.full((3, 8, 8), 3).tolist()


def test_query_and_gallery_folders_share_their_classes(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"ape": 2, "bee": 2})
    fill(tmp_path / "val", {"ape": 1, "bee": 1}, first=50)
    fill(tmp_path / "query", {"cat": 1, "dog": 1}, first=10)
    fill(tmp_path / "gallery", {"cow": 2, "dog": 2, "cat": 1}, first=20)
    data = load_dataset(tmp_path, image_size=8)
    assert not data.leave_one_out
    assert data.query.class_names == data.gallery.class_names == ("cat", "cow", "dog")
    assert data.query.labels.tolist() == [0, 2]
    assert data.gallery.labels.tolist() == [0, 1, 1, 2, 2]
    assert data.validation is not None and list(data.validation.ids) == ["val/ape/0.png", "val/bee/0.png"]
    refuse_shared_ids(data.train, data.gallery)


def test_a_flat_folder_holds_a_share_out(tmp_path: Path) -> None:
    fill(tmp_path, {"ape": 10, "bee": 5, "cat": 2, "dog": 1})
    data = load_dataset(tmp_path, image_size=8)
    assert data.leave_one_out
    assert np.bincount(data.query.labels, minlength=4).tolist() == [2, 2, 1, 0]
    assert np.bincount(data.train.labels).tolist() == [8, 3, 1, 1]
    assert not set(data.train.ids) & set(data.query.ids)
    again, other = load_dataset(tmp_path), load_dataset(tmp_path, seed=1)
    assert list(again.query.ids) == list(data.query.ids) != list(other.query.ids)
    assert len(load_dataset(tmp_path, held_out=0.5).query) == 5 + 2 + 1


def test_every_extension_and_subfolders_are_read_and_other_files_are_not(tmp_path: Path) -> None:
    fill(tmp_path, {"ape": 2, "bee": 4})
    for number, extension in enumerate(["jpg", "JPEG", "bmp", "webp", "gif", "tiff", "PNG"]):
        save_image(tmp_path / "ape" / "more" / f"x.{extension}", number)
    (tmp_path / "ape" / "notes.txt").write_text("x")
    (tmp_path / "ape" / "._0.png").write_text("x")
    (tmp_path / ".hidden").mkdir()
    data = load_dataset(tmp_path, image_size=8)
    assert len(data.train) + len(data.query) == 13
    for part in (data.train, data.query):
        assert part.read(np.arange(len(part))).shape[1:] == (3, 8, 8)


def test_folder_options_reach_the_images(tmp_path: Path) -> None:
    for name in ("ape", "bee"):
        for number in range(4):
            save_image(tmp_path / name / f"{number}.png", number)
            wide = Image.new("RGB", (30, 10))
            wide.paste("white", (10, 0, 20, 10))
            wide.save(tmp_path / name / f"{number}.png")
    cropped = load_dataset(tmp_path, image_size=10, channels=1).train
    squashed = load_dataset(tmp_path, image_size=10, channels=1, fit="squash").train
    assert cropped.shape == squashed.shape == (1, 10, 10)
    assert cropped.read(np.array([0])).min() > 200 > squashed.read(np.array([0])).min()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no folders of images"),
        (lambda path: fill(path, {"ape": 6}), "train images of .* have 1 class"),
        (lambda path: (fill(path, {"ape": 6}), (path / "bee").mkdir()), "1 class folders .* first: bee"),
        (lambda path: (fill(path, {"ape": 6, "bee": 6}), save_image(path / "x.png", 0)), "1 images outside"),
        (lambda path: fill(path, {"ape": 3, "bee": 3}), "two images to hold out: the largest has 3"),
        (lambda path: fill(path / "train", {"ape": 3, "bee": 3}), "train and nothing to evaluate on"),
        (lambda path: fill(path / "test", {"ape": 3, "bee": 3}), "holds test but no train"),
        (lambda path: [fill(path / part, {"a": 2, "b": 2}) for part in ("train", "query")], "train and query"),
        (
            lambda path: (fill(path / "train", {"a": 2, "b": 2}), fill(path / "test", {"a": 2})),
            "query images of .* have 1 class",
        ),
        (lambda path: (fill(path / "train", {"a": 2}), fill(path / "test", {"a": 2, "b": 1})), "train images"),
        (lambda path: (fill(path / "train", {"a": 2, "b": 2}), (path / "test").mkdir()), "no folders of images"),
    ],
)
def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(DataError, match=message):
        load_dataset(tmp_path)


def test_shares_out_of_range_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, {"ape": 6, "bee": 6})
    for share in (0, 1, -0.1):
        with pytest.raises(ConfigError, match="share="):
            load_dataset(tmp_path, held_out=share)


def test_a_class_never_gives_all_its_images() -> None:
    labels = np.repeat(np.arange(7), [1, 2, 3, 4, 5, 10, 100])
    held = np.bincount(labels[held_out_rows(labels, 0.99, seed=0)], minlength=7)
    assert held.tolist() == [0, 1, 2, 3, 4, 9, 99]


# --- arrays ----------------------------------------------------------------------------------------------------------


def save_arrays(path: Path, images: np.ndarray, **more: np.ndarray) -> Path:
    np.savez(path, **{"images": images, "labels": np.repeat([7, 3], len(images) // 2), **more})
    return path


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((12, 5, 6), None, (1, 5, 6)),
        ((12, 5, 6), "NHW", (1, 5, 6)),
        ((12, 5, 6, 3), "NHWC", (3, 5, 6)),
        ((12, 3, 5, 6), "NCHW", (3, 5, 6)),
        ((12, 5, 6, 1), "NHWC", (1, 5, 6)),
    ],
)
def test_arrays_in_every_layout(
    tmp_path: Path, shape: tuple[int, ...], layout: str | None, expected: tuple[int, int, int]
) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = load_dataset(save_arrays(tmp_path / "x.npz", images), layout=layout)
    assert data.train.shape == expected
    row = int(data.train.ids[0])
    whole = images[row] if layout != "NHWC" else images[row].transpose(2, 0, 1)
    np.testing.assert_array_equal(data.train.read(np.array([0]))[0], whole.reshape(expected))
    assert data.train.class_names == ("3", "7")
    assert data.train.class_names[data.train.labels[0]] == "7"


def test_arrays_may_bring_names_and_ids(tmp_path: Path) -> None:
    images = np.zeros((12, 5, 6), np.uint8)
    names, ids = np.array(["ape", "none", "bee"]), np.array([f"item {row}" for row in range(12)])
    path = save_arrays(tmp_path / "x.npz", images, labels=np.repeat([0, 2], 6), class_names=names, ids=ids)
    data = load_dataset(path)
    assert data.train.class_names == ("ape", "bee")
    assert set(data.train.ids) | set(data.query.ids) == set(ids)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ({"images": np.zeros((12, 5, 6, 3), np.uint8)}, {}, "pass layout='NHWC'"),
        ({"images": np.zeros((12, 5, 6), np.uint8)}, {"layout": "NHWC"}, "layout is NHWC"),
        ({"images": np.zeros((12, 5, 6), np.uint8)}, {"layout": "HW"}, "'layout' of the data in .* is 'HW'"),
        ({"images": np.zeros((12, 5, 6), np.float32)}, {}, "Pixels are float32"),
        ({"images": np.zeros((11, 5, 6), np.uint8)}, {}, "Parts of different length"),
        ({"labels": np.zeros(12)}, {}, "Labels are float64"),
        ({"labels": np.zeros(12, np.int64)}, {}, "have 1 class"),
        ({"class_names": np.array(["a", "b"])}, {}, "Labels run from 3 to 7"),
        ({"ids": np.array(["a"] * 12)}, {}, "Ids occur more than once"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(
    tmp_path: Path, content: dict[str, np.ndarray], options: dict[str, str], message: str
) -> None:
    whole = {"images": np.zeros((12, 5, 6), np.uint8), "labels": np.repeat([7, 3], 6), **content}
    np.savez(tmp_path / "x.npz", **whole)
    with pytest.raises((DataError, ConfigError), match=message):
        load_dataset(tmp_path / "x.npz", **options)


def test_archives_that_cannot_be_trusted_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, images=np.array([object()]), labels=np.zeros(1, np.int64))
    with pytest.raises(DataError, match="Cannot read"):
        load_dataset(path)
    path.write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DataError, match="Cannot read"):
        load_dataset(path)
    np.savez(path, pictures=np.zeros(3))
    with pytest.raises(DataError, match=r"holds pictures(.|\n)*images, labels"):
        load_dataset(path)
    path.write_bytes(array_file())
    with pytest.raises(DataError, match="holds a single array"):
        load_dataset(path)


def array_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


# --- Omniglot and Tiny-ImageNet in small -----------------------------------------------------------------------------


def save_omniglot(root: Path, background: int = 10, evaluation: int = 4) -> None:
    (root / "omniglot").mkdir()
    for part, classes in (("background", background), ("evaluation", evaluation)):
        paper = np.random.default_rng(classes).random((classes, 20, 105, 105)) < 0.9
        labels = np.repeat(np.arange(classes)[:, None], 20, axis=1)
        np.savez(root / "omniglot" / f"images_{part}.npz", images=paper, labels=labels)


def check_omniglot(data: RetrievalData, background: int, evaluation: int) -> None:
    assert (len(data.train), len(data.train.class_names)) == (20 * background, background)
    assert (len(data.query), len(data.gallery)) == (5 * evaluation, 15 * evaluation)
    assert {id_.split("/")[2] for id_ in data.query.ids} == {f"{drawing:02d}" for drawing in range(5)}
    assert {id_.split("/")[2] for id_ in data.gallery.ids} == {f"{drawing:02d}" for drawing in range(5, 20)}
    assert np.bincount(data.gallery.labels).tolist() == [15] * evaluation
    assert not set(data.train.class_names) & set(data.query.class_names)


def test_omniglot_in_small(tmp_path: Path) -> None:
    save_omniglot(tmp_path)
    data = load_dataset("omniglot", tmp_path)
    check_omniglot(data, 10, 4)
    assert data.train.shape == (1, 28, 28)
    assert 15 < data.train.read(np.arange(20)).mean() < 36  # a tenth of the pixels is ink
    assert load_dataset("omniglot", tmp_path, image_size=15).train.shape == (1, 15, 15)


def test_omniglot_with_fewer_classes(tmp_path: Path) -> None:
    save_omniglot(tmp_path)
    data = load_dataset("omniglot", tmp_path, class_share=0.5)
    assert (len(data.train.class_names), len(data.query.class_names)) == (5, 2)
    assert (len(data.train), len(data.query), len(data.gallery)) == (5 * 20, 2 * 5, 2 * 15)
    assert data.query.class_names == data.gallery.class_names
    whole = load_dataset("omniglot", tmp_path)
    assert set(data.train.ids) < set(whole.train.ids)
    other = load_dataset("omniglot", tmp_path, class_share=0.5, seed=1)
    assert set(other.train.class_names) != set(data.train.class_names)
    apart = load_dataset("omniglot", tmp_path, class_share=0.5, validation_fraction=0.4)
    assert apart.validation is not None
    assert set(apart.train.class_names) | set(apart.validation.class_names) == set(data.train.class_names)
    for share in (0.0, 1.5):
        with pytest.raises(ConfigError, match="class_share"):
            load_dataset("omniglot", tmp_path, class_share=share)


def test_omniglot_validation_comes_out_of_the_background_classes(tmp_path: Path) -> None:
    save_omniglot(tmp_path)
    data = load_dataset("omniglot", tmp_path, validation_fraction=0.3)
    assert data.validation is not None
    train, aside = set(data.train.class_names), set(data.validation.class_names)
    assert (len(train), len(aside), len(train | aside)) == (7, 3, 10)
    other = load_dataset("omniglot", tmp_path, validation_fraction=0.3, seed=1)
    assert set(other.train.class_names) != train
    with pytest.raises(ConfigError, match="at least two classes"):
        load_dataset("omniglot", tmp_path, validation_fraction=0.1)
    with pytest.raises(ConfigError, match="below 1"):
        load_dataset("omniglot", tmp_path, validation_fraction=1.0)


def test_omniglot_of_another_kind_is_refused(tmp_path: Path) -> None:
    save_omniglot(tmp_path)
    np.savez(tmp_path / "omniglot" / "images_evaluation.npz", images=np.zeros((4, 20, 9, 9)), labels=np.zeros((4, 20)))
    with pytest.raises(DataError, match="images float64"):
        load_dataset("omniglot", tmp_path)


@pytest.mark.parametrize(("source", "target"), [(105, 28), (3, 2), (2, 3), (7, 7)])
def test_area_weights_average(source: int, target: int) -> None:
    weights = area_weights(source, target)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(axis=0), target / source, rtol=1e-6)


def save_tiny(root: Path, classes: int = 6, train: int = 10, val: int = 3) -> None:
    folder = root / "tiny-imagenet-32"
    folder.mkdir()
    names = [f"thing {label}, other name" for label in range(classes)]
    metadata = {"classes": ",".join(f"n{label}" for label in range(classes)), "names": "|".join(names)}
    for part, count in (("train", train), ("val", val)):
        labels = np.tile(np.arange(classes), count)
        rows = {"image": [], "label": pa.array(labels, pa.int16()), "file": []}
        for row, label in enumerate(labels):
            buffer = io.BytesIO()
            Image.new("RGB", (32, 32), (int(label) * 40, row, 0)).save(buffer, "jpeg")
            rows["image"].append(buffer.getvalue())
            rows["file"].append(f"{part}_{row}.JPEG")
        pq.write_table(pa.table(rows).replace_schema_metadata(metadata), folder / f"{part}.parquet")


def reds(images: ImageSet) -> np.ndarray:
    return np.rint(images.read(np.arange(len(images)))[:, 0].mean(axis=(1, 2)) / 40)


def test_tiny_imagenet_in_small(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    data = load_dataset("tiny-imagenet-32", tmp_path)
    assert (len(data.train), len(data.query), data.leave_one_out) == (60, 18, True)
    assert data.train.class_names == data.query.class_names == tuple(f"n{n} thing {n}" for n in range(6))
    np.testing.assert_array_equal(reds(data.train), data.train.labels)
    assert data.query.ids[0] == "val/val_0.JPEG"


def test_tiny_imagenet_in_shares(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    data = load_dataset("tiny-imagenet-32", tmp_path, class_share=0.5, image_share=0.4)
    assert np.bincount(data.train.labels).tolist() == [4, 4, 4]
    assert np.bincount(data.query.labels).tolist() == [3, 3, 3]
    kept = [int(name[1]) for name in data.train.class_names]
    np.testing.assert_array_equal(reds(data.train), np.array(kept)[data.train.labels])
    np.testing.assert_array_equal(reds(data.query), np.array(kept)[data.query.labels])
    others = [load_dataset("tiny-imagenet-32", tmp_path, class_share=0.5, seed=seed) for seed in range(1, 5)]
    assert any(other.train.class_names != data.train.class_names for other in others)
    for share in (0.0, 1.1):
        with pytest.raises(ConfigError, match="class_share"):
            load_dataset("tiny-imagenet-32", tmp_path, class_share=share)


def test_some_images_of_every_class_are_set_apart_of_those_kept(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    shares = {"class_share": 0.5, "image_share": 0.8}
    whole = load_dataset("tiny-imagenet-32", tmp_path, **shares)
    data = load_dataset("tiny-imagenet-32", tmp_path, **shares, validation_fraction=0.25)
    assert np.bincount(data.validation.labels).tolist() == [2, 2, 2]
    assert sorted([*data.train.ids, *data.validation.ids]) == sorted(whole.train.ids)
    assert data.train.class_names == data.validation.class_names == whole.train.class_names
    np.testing.assert_array_equal(reds(data.query), reds(whole.query))


def test_tiny_imagenet_of_another_kind_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    path = tmp_path / "tiny-imagenet-32" / "val.parquet"
    pq.write_table(pa.table({"label": [1]}), path)
    with pytest.raises(DataError, match="has the columns label"):
        load_dataset("tiny-imagenet-32", tmp_path)
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="Cannot read"):
        load_dataset("tiny-imagenet-32", tmp_path)


# --- the real data ---------------------------------------------------------------------------------------------------


def test_the_real_omniglot(data_root: Path) -> None:
    data = load_dataset("omniglot", data_root)
    check_omniglot(data, 964, 659)
    assert 10 < data.train.read(np.arange(1000)).mean() < 30
    refuse_shared_ids(data.train, data.query)


def test_the_real_tiny_imagenet(data_root: Path) -> None:
    data = load_dataset("tiny-imagenet-32", data_root)
    assert (len(data.train), len(data.query), len(data.train.class_names)) == (100_000, 10_000, 200)
    assert np.bincount(data.train.labels).tolist() == [500] * 200
    assert data.train.class_names[0] == "n01443537 goldfish"
    assert data.query.read(np.arange(50)).std() > 30


# --- what a reader returns -------------------------------------------------------------------------------------------


def test_parts_that_do_not_fit_together_are_refused(image_set: ImageSet) -> None:
    def build(**changes: object) -> RetrievalData:
        values = {"train": image_set, "query": image_set, "gallery": image_set, "leave_one_out": True, **changes}
        return RetrievalData(name="made", validation=None, description="", **values)  # type: ignore[arg-type]

    build()
    with pytest.raises(DataError, match="disagree with leave_one_out"):
        build(leave_one_out=False)
    with pytest.raises(DataError, match="other class names"):
        build(query=image_set.compact(), leave_one_out=False)
    with pytest.raises(DataError, match="gallery images of 'made' have 1 class"):
        build(gallery=image_set[[0, 1]], leave_one_out=False)
    with pytest.raises(DataError, match="train images of 'made' have 0 classes"):
        build(train=image_set[[]])
