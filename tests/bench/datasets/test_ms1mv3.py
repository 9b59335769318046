"""Record files, written here from their description, and the reader of MS1MV3 on small ones."""

import io
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limpet.data.datasets import load_dataset
from limpet.errors import ConfigError, DataError
from limpet_bench.datasets.ms1mv3 import labelled_rows
from limpet_bench.datasets.record_io import MAGIC, RecordFile, RecordImages

MAGIC_BYTES = struct.pack("<I", MAGIC)


def framed(content: bytes) -> bytes:
    """Write a record: cut where the magic number stands at a multiple of four."""
    cuts = [place for place in range(0, len(content) - 3, 4) if content[place : place + 4] == MAGIC_BYTES]
    starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(content)]
    record = b""
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = content[start:end]
        kind = 0 if not cuts else 1 if number == 0 else 3 if number == len(cuts) else 2
        record += MAGIC_BYTES + struct.pack("<I", kind << 29 | len(part)) + part + b"\0" * (-len(part) % 4)
    return record


def packed(labels: float | Sequence[float], key: int, content: bytes = b"") -> bytes:
    if isinstance(labels, float | int):
        return struct.pack("<IfQQ", 0, labels, key, 0) + content
    return struct.pack("<IfQQ", len(labels), 0, key, 0) + struct.pack(f"<{len(labels)}f", *labels) + content


def jpeg(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (112, 112), (value, value, value)).save(buffer, "jpeg")
    return buffer.getvalue()


def write_records(folder: Path, records: dict[int, bytes], shuffled: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content, lines = b"", []
    for key, record in records.items():
        lines.append(f"{key}\t{len(content)}\n")
        content += framed(record)
    (folder / "train.rec").write_bytes(content)
    (folder / "train.idx").write_text("".join(reversed(lines) if shuffled else lines))
    (folder / "property").write_text("3,112,112\n")
    return folder


PEOPLE = [0, 0, 0, 1, 2, 2, 3, 3, 4, 4]


def official(people: Sequence[int] = PEOPLE, ranges: dict[int, tuple[int, int]] | None = None) -> dict[int, bytes]:
    """The announcement, images from key 1 on, and a record for every person with the keys of their images."""
    count = max(people) + 1
    records = {0: packed((len(people) + 1, len(people) + 1 + count), 0)}
    for row, person in enumerate(people):
        records[row + 1] = packed((float(person), 0.0), row + 1, jpeg(20 * row))
    for person in range(count):
        first = people.index(person) + 1
        places = (ranges or {}).get(person, (first, first + people.count(person)))
        records[len(people) + 1 + person] = packed(places, len(people) + 1 + person)
    return records


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_records(tmp_path / "ms1m-retinaface-t1", official())
    return tmp_path


def opened(folder: Path) -> RecordFile:
    return RecordFile(folder / "train.rec", folder / "train.idx")


# --- the data set ----------------------------------------------------------------------------------------------------


def test_people_are_held_out_classes_and_search_one_another(root: Path) -> None:
    data = load_dataset("ms1mv3", root, held_out_classes=0.4, seed=1)
    assert data.train is not None and data.leave_one_out and data.labelled and data.query is data.gallery
    assert len(data.train.class_names) == 3 and len(data.query.class_names) == 2
    by_id = dict(zip(data.train.ids, (data.train.class_names[label] for label in data.train.labels), strict=True))
    by_id |= dict(zip(data.query.ids, (data.query.class_names[label] for label in data.query.labels), strict=True))
    assert by_id == {str(row + 1): str(person) for row, person in enumerate(PEOPLE)}
    assert "10 images (5,179,510), 5 people (93,431)" in data.description
    others = {
        tuple(load_dataset("ms1mv3", root, held_out_classes=0.4, seed=seed).query.class_names) for seed in range(8)
    }
    assert len(others) > 1


def test_images_are_decoded_when_read(root: Path, brightness) -> None:
    train = load_dataset("ms1mv3", root, held_out_classes=0).train
    assert train is not None and train.shape == (3, 112, 112)
    assert brightness(train) == [20 * row for row in range(10)]
    small = load_dataset("ms1mv3", root, held_out_classes=0, image_size=56).train
    assert small is not None and small.read(np.array([9, 4])).shape == (2, 3, 56, 56)
    assert small.read(np.array([9, 4]))[:, 0, 28, 28].tolist() == [180, 80]
    upright = load_dataset("ms1mv3", root, held_out_classes=0, image_size=[56, 48]).train
    assert upright is not None and upright.read(np.array([9])).shape == (1, 3, 56, 48)


def test_all_people_can_be_trained_on(root: Path) -> None:
    data = load_dataset("ms1mv3", root, held_out_classes=0)
    assert data.train is not None and data.train.labels.tolist() == PEOPLE
    assert data.train.class_names == ("0", "1", "2", "3", "4")
    assert data.query.class_names == ("0", "2") and len(data.query) == 5
    assert "measure nothing" in data.description


@pytest.mark.parametrize("missing", ["train.rec", "train.idx"])
def test_a_missing_file_is_named(root: Path, missing: str) -> None:
    (root / "ms1m-retinaface-t1" / missing).unlink()
    with pytest.raises(DataError, match=rf"no {missing} \((.|\n)*insightface"):
        load_dataset("ms1mv3", root)


def test_shares_out_of_range_are_refused(root: Path) -> None:
    for share, message in (
        (1.0, "held_out_classes ?= ?1.0"),
        (-0.5, "held_out_classes=-0.5"),
        (0.2, "is 1.(.|\n)*two classes"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_dataset("ms1mv3", root, held_out_classes=share)


# --- who is on which image -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, -1])
def test_people_say_whose_the_images_are_without_reading_images(tmp_path: Path, step: int) -> None:
    """With 200 images only some labels are looked at: a wrong one that is not goes unnoticed, so ranges were used."""
    people = np.repeat(np.arange(20)[::step], 10).tolist()
    records = official(people)
    looked_at = set((np.unique(np.linspace(0, 199, 64).astype(int)) + 1).tolist())
    other = next(key for key in range(1, 201) if key not in looked_at)
    records[other] = packed((77.0, 0.0), other, b"")
    rows, found = labelled_rows(opened(write_records(tmp_path, records)))
    assert found.tolist() == people and rows.tolist() == list(range(1, 201))


@pytest.mark.parametrize(
    "ranges", [{0: (1, 3)}, {0: (1, 5)}, {1: (4, 4)}, {4: (9, 12)}, {0: (4, 5), 1: (1, 4)}, {2: (7, 5)}]
)
def test_every_label_is_read_where_people_do_not_say_it(tmp_path: Path, ranges: dict[int, tuple[int, int]]) -> None:
    _, found = labelled_rows(opened(write_records(tmp_path, official(ranges=ranges))))
    assert found.tolist() == PEOPLE


def test_people_may_lie_in_any_order(tmp_path: Path) -> None:
    people = [2, 2, 0, 0, 0, 1]
    file = opened(write_records(tmp_path, official(people)))
    assert labelled_rows(file)[1].tolist() == people
    other = official(people)
    other[2] = packed((1.0, 0.0), 2)  # looked at, so that every label is read
    assert labelled_rows(opened(write_records(tmp_path / "other", other)))[1].tolist() == [2, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("shuffled", [True, False])
def test_records_without_an_announcement_are_all_images(tmp_path: Path, several: bool, shuffled: bool) -> None:
    """Key 0 with several labels would announce something; files without it begin with key 1."""
    people, first = [3, 3, 9, 9, 5], int(several)
    records = {
        key: packed((float(person), 1.0) if several else float(person), key, b"xyz"[:key % 4])
        for key, person in enumerate(people, first)
    }  # fmt: skip
    rows, found = labelled_rows(opened(write_records(tmp_path, records, shuffled)))
    assert rows.tolist() == [0, 1, 2, 3, 4] and found.tolist() == people


def test_a_file_of_two_smallest_records(tmp_path: Path) -> None:
    file = opened(write_records(tmp_path, {0: packed(2.0, 0), 1: packed(1.0, 1)}))
    assert file.first_labels(np.array([1, 0])).tolist() == [[1.0], [2.0]]


# --- records ---------------------------------------------------------------------------------------------------------


def test_contents_that_hold_the_magic_number_come_back_whole(tmp_path: Path) -> None:
    contents = {
        0: b"",
        1: MAGIC_BYTES,
        2: b"abcd" + MAGIC_BYTES + MAGIC_BYTES + b"e",
        3: b"ab" + MAGIC_BYTES + b"cd",  # not at a multiple of four: left as it is
        4: MAGIC_BYTES * 3,
        5: bytes(range(256)) + MAGIC_BYTES + b"xyz",
    }
    records = {key: packed(float(key), key, content) for key, content in contents.items()}
    file = opened(write_records(tmp_path, records))
    for key, content in contents.items():
        assert file.content(key) == records[key]
        labels, rest = file.header(key)
        assert labels.tolist() == [key] and rest == content
    assert file.first_labels(np.arange(6))[:, 0].tolist() == list(range(6))


def test_another_process_maps_the_file_again(root: Path) -> None:
    images = RecordImages(opened(root / "ms1m-retinaface-t1"), np.arange(1, 11), (3, 112, 112))
    written = pickle.dumps(images)
    assert len(written) < (root / "ms1m-retinaface-t1" / "train.rec").stat().st_size / 4
    again = pickle.loads(written)  # noqa: S301
    np.testing.assert_array_equal(again.read(np.array([9, 3])), images.read(np.array([9, 3])))


def test_damage_is_named(root: Path) -> None:
    folder = root / "ms1m-retinaface-t1"
    content = bytearray((folder / "train.rec").read_bytes())
    place = int((folder / "train.idx").read_text().splitlines()[3].split("\t")[1])
    content[place] ^= 0xFF
    (folder / "train.rec").write_bytes(bytes(content))
    file = opened(folder)
    for read in (lambda: file.content(3), lambda: file.first_labels(np.arange(1, 6))):
        with pytest.raises(DataError, match=f"damaged at the record 3, byte {place}"):
            read()


def test_files_that_do_not_belong_together_are_refused(root: Path) -> None:
    folder = root / "ms1m-retinaface-t1"
    index, records = (folder / "train.idx").read_text(), (folder / "train.rec").read_bytes()
    (folder / "train.rec").write_bytes(records[:-10])
    with pytest.raises(DataError, match=f"puts the record 15 at byte .*has {len(records) - 10}"):
        load_dataset("ms1mv3", root)
    (folder / "train.rec").write_bytes(records)
    for content, message in (
        (index.replace("\n4\t", "\n40\t"), "1 records of .* are not in its index, first: 4"),
        (index.replace("\n4\t", "\n3\t"), "one of them twice"),
        (index.replace("\t", " "), "cannot be read"),
        ("", "cannot be read"),
    ):
        (folder / "train.idx").write_text(content)
        with pytest.raises(DataError, match=message):
            load_dataset("ms1mv3", root)
    (folder / "train.idx").write_text(index)
    (folder / "train.rec").write_bytes(b"")
    with pytest.raises(DataError, match=r"Cannot read .*train\.rec"):
        load_dataset("ms1mv3", root)


def test_labels_that_are_no_numbers_of_people_are_refused(tmp_path: Path) -> None:
    for label in (0.5, -1.0, float("nan"), float("inf")):
        file = opened(write_records(tmp_path, {1: packed(label, 1), 2: packed(0.0, 2)}))
        with pytest.raises(DataError, match="no whole numbers from 0"):
            labelled_rows(file)


def test_contents_change_the_digest_and_order_too(root: Path) -> None:
    train = load_dataset("ms1mv3", root, held_out_classes=0).train
    assert train is not None
    digest = train.images.content_digest
    before = digest(np.array([1]))
    assert digest(np.array([0, 1])) != digest(np.array([1, 0])) != before
    changed = official()
    changed[2] = packed((0.0, 0.0), 2, jpeg(21))
    write_records(root / "ms1m-retinaface-t1", changed)
    other = load_dataset("ms1mv3", root, held_out_classes=0).train
    assert other is not None and other.images.content_digest(np.array([1])) != before
