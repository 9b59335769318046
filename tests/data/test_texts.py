"""Small files made in the layouts that the readers expect, and the real data where it is there."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.data import TEXT_DATASETS, TextData, TextSet, load_texts
from limpet.errors import ConfigError, DataError

INTENTS = ["balance", "joke", "music", "weather"]


def sentences(part: str, count: int, intents: list[str] = INTENTS) -> list[tuple[str, str]]:
    """So many sentences of every intent; each names its part, intent and number."""
    return [(f"{part} {intent} {number}", intent) for number in range(count) for intent in intents]


def save_clinc(root: Path, **changes: Any) -> Path:
    parts = {"train": sentences("train", 5), "val": sentences("val", 2), "test": sentences("test", 4)}
    folder = root / "clinc150"
    folder.mkdir(exist_ok=True)
    (folder / "data_full.json").write_text(json.dumps({**parts, "oos_test": [["who", "oos"]], **changes}))
    return root


def save_banking(root: Path, intents: list[str] = INTENTS) -> Path:
    folder = root / "banking77"
    folder.mkdir()
    for part, count in (("train", 6), ("test", 5)):
        with (folder / f"{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "category"])
            writer.writerows(sentences(f'{part}, "of"\na bank', count))
    (folder / "categories.json").write_text(json.dumps(intents))
    return root


def opened(name: str, root: Path, **options: Any) -> TextData:
    data = load_texts(name, root, **options)
    assert isinstance(data, TextData)
    return data


def file_of(path: Path, **options: Any) -> TextSet:
    texts = load_texts(path, **options)
    assert isinstance(texts, TextSet)
    return texts


def names(texts: TextSet) -> list[str]:
    return [texts.class_names[label] for label in texts.labelled()]


def check_sentences(data: TextData) -> None:
    """Every sentence says its intent itself; none is on two sides; queries are half of the test sentences."""
    for texts in data.parts().values():
        for text, name, identifier in zip(texts.texts, names(texts), texts.ids, strict=True):
            assert text.split()[-2] == name and text.split()[0].strip(",") == identifier.split("/")[0]
    assert not set(data.train.ids) & set(data.query.ids) and not set(data.query.ids) & set(data.gallery.ids)
    assert {identifier.split("/")[0] for identifier in data.query.ids} == {"test"}


# --- the protocol ----------------------------------------------------------------------------------------------------


def test_half_of_test_searches_the_other_half_and_val(tmp_path: Path) -> None:
    data = opened("clinc150", save_clinc(tmp_path))
    check_sentences(data)
    assert [len(part) for part in data.parts().values()] == [20, 8, 16]
    assert np.bincount(data.query.labelled()).tolist() == [2] * 4
    assert Counter(identifier.split("/")[0] for identifier in data.gallery.ids) == {"test": 8, "val": 8}
    assert data.train.class_names == data.query.class_names == tuple(INTENTS)
    assert data.train.ids[4] == "train/00004" and data.train.texts[4] == "train balance 1"
    assert "out-of-scope requests are left out" in data.description and "oos" not in data.query.class_names


def test_without_a_further_part_the_other_half_is_the_gallery(tmp_path: Path) -> None:
    data = opened("banking77", save_banking(tmp_path, INTENTS[::-1]))
    check_sentences(data)
    assert [len(part) for part in data.parts().values()] == [24, 8, 12], "of five sentences, two ask"
    assert data.query.class_names == tuple(INTENTS[::-1]), "as categories.json orders them"
    assert data.query.texts[0].startswith('test, "of"\na bank'), "commas, quotes and line breaks inside a text"


@pytest.mark.parametrize(("name", "save"), [("clinc150", save_clinc), ("banking77", save_banking)])
def test_a_seed_decides_everything(tmp_path: Path, name: str, save: Callable[[Path], Path]) -> None:
    options = {"class_share": 0.75, "unseen_share": 0.34}
    root = save(tmp_path)
    first, again = (opened(name, root, seed=3, **options) for _ in range(2))
    assert [part.digest() for part in first.parts().values()] == [part.digest() for part in again.parts().values()]
    others = [opened(name, root, seed=seed, **options) for seed in range(8)]
    assert len({other.query.class_names for other in others}) > 1, "which intents are kept"
    assert len({tuple(other.train.class_names) for other in others}) > 2, "which of them are unseen"
    assert len({opened(name, root, seed=seed).query.digest() for seed in range(4)}) == 4, "which half asks"


def test_intents_left_out_of_train_are_searched(tmp_path: Path) -> None:
    root = save_clinc(tmp_path)
    whole = opened("clinc150", root, seed=1)
    some, more = (opened("clinc150", root, seed=1, unseen_share=share) for share in (0.25, 0.5))
    for data, left in ((some, 3), (more, 2)):
        check_sentences(data)
        assert len(data.train.class_names) == left and len(data.train) == 5 * left
        assert data.query.digest() == whole.query.digest() and data.gallery.digest() == whole.gallery.digest()
    assert set(more.train.class_names) < set(some.train.class_names), "a larger share leaves out the same and more"
    assert "1 intents are only in query and gallery" in some.description


def test_a_share_of_the_intents(tmp_path: Path) -> None:
    root = save_clinc(tmp_path)
    whole, part = opened("clinc150", root), opened("clinc150", root, class_share=0.5)
    check_sentences(part)
    assert [len(texts) for texts in part.parts().values()] == [10, 4, 8]
    assert part.train.class_names == part.query.class_names and len(part.query.class_names) == 2
    assert set(part.query.ids) < set(whole.query.ids), "the same half asks"
    for options in ({"class_share": 0.0}, {"class_share": 1.1}, {"unseen_share": 1.0}, {"unseen_share": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            load_texts("clinc150", root, **options)
    with pytest.raises(DataError, match="train texts of 'clinc150' have 1 class"):
        load_texts("clinc150", root, unseen_share=0.75)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": "nothing"}, "Row 0 of 'test'"),
        ({"val": [["a text", "joke"], ["a text"]]}, "Row 1 of 'val'"),
        ({"val": [["a text", 3]]}, "Row 0 of 'val'"),
        ({"train": [[" ", "joke"]]}, "1 of 25 texts are empty: 'train/00000'"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_texts("clinc150", save_clinc(tmp_path, **change))


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"no folder {tmp_path / 'clinc150'}(.|\n)*LIMPET_DATA"):
        load_texts("clinc150", tmp_path)
    path = save_clinc(tmp_path) / "clinc150" / "data_full.json"
    path.write_text('{"train": []}')
    with pytest.raises(DataError, match="holds train"):
        load_texts("clinc150", tmp_path)
    path.write_text("{")
    with pytest.raises(DataError, match="Cannot read"):
        load_texts("clinc150", tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="There is no file"):
        load_texts("clinc150", tmp_path)
    folder = save_banking(tmp_path, INTENTS[1:]) / "banking77"
    with pytest.raises(DataError, match="1 intents are in no list of intents, first: 'balance'"):
        load_texts("banking77", tmp_path)
    (folder / "train.csv").write_text("text,intent\na,b\n")
    with pytest.raises(DataError, match="columns text, intent"):
        load_texts("banking77", tmp_path)


def test_names_and_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIMPET_DATA", raising=False)
    for entry in TEXT_DATASETS.values():
        assert 20 < len(entry.description) < 100
    with pytest.raises(ConfigError, match=r"'clinc'\. Did you mean 'clinc150'"):
        load_texts("clinc")
    with pytest.raises(ConfigError, match=r"no option 'unseen'\. Did you mean 'unseen_share'"):
        load_texts("clinc150", unseen=0.2)
    with pytest.raises(DataError, match="no data root was given"):
        load_texts("banking77")


# --- your own files --------------------------------------------------------------------------------------------------


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows of equal keys as the kind of file that the path names."""
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


ROWS = [
    {"id": "n7", "text": 'say "hi",\nplease', "label": "talk"},
    {"id": "n3", "text": "NA", "label": "other"},
    {"id": "n5", "text": "größer", "label": "talk"},
]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_texts_with_ids_and_labels(tmp_path: Path, kind: str) -> None:
    texts = file_of(written(tmp_path / f"mine.{kind}", ROWS))
    assert list(texts.texts) == [row["text"] for row in ROWS] and list(texts.ids) == ["n7", "n3", "n5"]
    assert texts.class_names == ("other", "talk") and names(texts) == ["talk", "other", "talk"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_texts_alone_get_row_numbers(tmp_path: Path, kind: str) -> None:
    texts = file_of(written(tmp_path / f"mine.{kind}", [{"Text ": row["text"], "when": 3} for row in ROWS]))
    assert list(texts.ids) == ["00000000", "00000001", "00000002"] and texts.labels is None


def test_a_text_per_line(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes("\ufeffone, two\r\n  three\u2028four\n".encode())
    texts = file_of(tmp_path / "mine.txt")
    assert list(texts.texts) == ["one, two", "  three\u2028four"] and texts.labels is None


def test_whole_numbers_are_labels_and_ids_too(tmp_path: Path) -> None:
    texts = file_of(
        written(tmp_path / "a.parquet", [{"text": "x", "category": 4, "id": 9}, {"text": "y", "category": 4, "id": 1}])
    )
    assert texts.class_names == ("4",) and list(texts.ids) == ["9", "1"]


def test_columns_named_by_the_user(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", [{"q": "x", "text": "y", "intent": "i", "category": "c", "key": "k"}])
    texts = file_of(path, text_column="q", label_column="category", id_column="key")
    assert (list(texts.texts), texts.class_names, list(texts.ids)) == (["x"], ("c",), ["k"])


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"text": "x", "intent": "i", "category": "c"}, {},
         r"columns intent and category: each could be the label(.|\n)*the columns text, intent, category(.|\n)*"
         "--data-options.label_column intent"),
        ({"text": "x", "Text": "y"}, {}, "columns text and Text: each could be the text"),
        ({"words": "x", "key": "y"}, {}, r"columns words, key(.|\n)*--data-options.text_column"),
        ({"text": "x", "kind": "y"}, {"label_column": "kin"}, r"no column 'kin'\. Did you mean 'kind'"),
    ],
)  # fmt: skip
def test_columns_that_could_be_anything_are_refused(
    tmp_path: Path, row: dict[str, str], options: dict[str, str], message: str
) -> None:
    for kind in ("csv", "jsonl", "parquet"):
        with pytest.raises(DataError, match=message):
            load_texts(written(tmp_path / f"a.{kind}", [row]), **options)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\nx\n", r"Line 2 of .* has 1 values\.\nExpected: 2, one for each of text, label"),
        ("a.csv", 'text\n"x', "Cannot read"),
        ("a.csv", "text,text\nx,y\n", "several columns 'text'"),
        ("a.csv", "text\n", "holds no texts"),
        ("a.csv", "", "is empty"),
        ("a.csv", b"text\n\xff", "Cannot read"),
        ("a.csv", "text\nx\n \n", "1 of 2 texts are empty: '00000001'"),
        ("a.csv", "id,text\nn,x\nn,y\n", "Ids occur more than once: 'n'"),
        ("a.jsonl", '{"text": "x"}\n{"text"', "Line 2 of .* is no JSON"),
        ("a.jsonl", '{"text": "x"}\n["y"]', "Line 2 of"),
        ("a.jsonl", '{"text": "x", "label": "a"}\n{"text": "y"}', "value of 'label' in row 1 of .* is missing"),
        ("a.jsonl", '{"text": "x", "label": true}', "value of 'label' in row 0 of .* is True"),
        ("a.jsonl", '{"text": 0.5}', r"value of 'text' in row 0 of .* is 0\.5"),
        ("a.parquet", "no parquet", "Cannot read"),
        ("a.txt", "", "holds no texts"),
        ("a.txt", "x\n\ny\n", "1 of 3 texts are empty: '00000001'"),
        ("a.md", "x", "no file that ends in .csv"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        load_texts(path)


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", "nothing.csv"):
        with pytest.raises(DataError, match="There is no file"):
            load_texts(path)
    with pytest.raises(DataError, match="no file that ends in"):
        load_texts(tmp_path)


# --- the real data ---------------------------------------------------------------------------------------------------


def test_the_real_clinc150(data_root: Path) -> None:
    data = opened("clinc150", data_root, unseen_share=0.2)
    assert [len(part) for part in data.parts().values()] == [12_000, 2_250, 5_250]
    assert len(data.train.class_names) == 120 and len(data.query.class_names) == 150
    assert np.bincount(data.query.labelled()).tolist() == [15] * 150
    assert np.bincount(data.gallery.labelled()).tolist() == [35] * 150


def test_the_real_banking77(data_root: Path) -> None:
    data = opened("banking77", data_root)
    assert [len(part) for part in data.parts().values()] == [10_003, 1_540, 1_540]
    assert data.query.class_names[:2] == ("card_arrival", "card_linking")
    assert names(data.train)[0] == "card_arrival" and data.train.texts[0] == "I am still waiting on my card?"


@pytest.mark.parametrize(("name", "save"), [("clinc150", save_clinc), ("banking77", save_banking)])
def test_some_intents_have_no_label_and_are_still_fitted_on(
    tmp_path: Path, name: str, save: Callable[[Path], Path]
) -> None:
    root = save(tmp_path)
    whole, data = opened(name, root, seed=2), opened(name, root, seed=2, unlabelled_share=0.5)
    assert whole.unlabelled is None and data.unlabelled is not None
    assert data.unlabelled.labels is None and list(data.parts()) == ["train", "query", "gallery", "unlabelled"]
    assert len(data.train.class_names) == 2 and set(data.train.ids) | set(data.unlabelled.ids) == set(whole.train.ids)
    assert not set(data.train.ids) & set(data.unlabelled.ids)
    of_others = {text.split()[-2] for text in data.unlabelled.texts}
    assert of_others == set(INTENTS) - set(data.train.class_names)
    assert list(data.query.ids) == list(whole.query.ids) and "have no label" in data.description
    both = opened(name, root, seed=2, unseen_share=0.25, unlabelled_share=0.25)
    assert both.unlabelled is not None and len(both.train.class_names) == 2
    assert len({*both.train.ids, *both.unlabelled.ids}) == len(whole.train) * 3 // 4
    with pytest.raises(ConfigError, match=r"unlabelled_share = 0.6 and unseen_share = 0.5"):
        opened(name, root, unseen_share=0.5, unlabelled_share=0.6)
