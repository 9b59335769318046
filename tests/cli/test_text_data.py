"""``limpet data`` for texts: what is in them, and what would spoil a score."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.cli import main
from limpet.cli.data import Suspects, contradicting_texts, repeated_texts
from limpet.data.text_set import TextSet

Fails = Callable[..., str]


@pytest.fixture
def clinc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write CLINC150 in small: two intents, two sentences of each in train, one in val, two in test."""
    monkeypatch.setenv("LIMPET_DATA", str(tmp_path))
    return partial(_clinc, tmp_path)


def _clinc(folder: Path, **changes: list[list[str]]) -> None:
    parts = {
        part: [[f"{part} {intent} {row}" + "!" * row, intent] for intent in ("greet", "pay") for row in range(size)]
        for part, size in (("train", 2), ("val", 1), ("test", 2))
    }
    for part, more in changes.items():
        parts[part] += more
    (folder / "clinc150").mkdir(parents=True)
    (folder / "clinc150" / "data_full.json").write_text(json.dumps(parts))


def document(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["data", *map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["data", *map(str, words)]) == code
    return " ".join(capsys.readouterr().err.split())


def test_a_data_set_is_described_part_by_part(capsys: pytest.CaptureFixture[str], clinc: Callable[..., None]) -> None:
    clinc()
    found = document(capsys, "describe", "clinc150")
    assert not found["leave_one_out"] and "half of test" in found["description"]
    assert {name: (part["texts"], part["classes"]) for name, part in found["parts"].items()} == {
        "train": (4, 2), "query": (2, 2), "gallery": (4, 2),
    }  # fmt: skip
    train = found["parts"]["train"]
    assert (train["smallest_class"], train["largest_class"]) == (2, 2)
    lengths = sorted(map(len, ("train greet 0", "train greet 1!", "train pay 0", "train pay 1!")))
    assert (train["shortest"], train["median"], train["longest"]) == (lengths[0], 12.5, lengths[-1])
    assert train["examples"] == [
        {"text": "train greet 0", "class": "greet"},
        {"text": "train greet 1!", "class": "greet"},
        {"text": "train pay 1!", "class": "pay"},
    ]
    told = said(capsys, "describe", "clinc150")
    assert "texts a class" in told and "11, 12.5, 14" in told and "train pay 1!" in told and "half of test" in told


def test_options_of_the_reader_count(capsys: pytest.CaptureFixture[str], clinc: Callable[..., None]) -> None:
    clinc(train=[["hi", "other"]], test=[["ho", "other"], ["hu", "other"]])
    whole = document(capsys, "describe", "clinc150")
    part = document(capsys, "describe", "clinc150", "--data-options.class_share", "0.67")
    assert whole["parts"]["gallery"]["classes"] == 3 and part["parts"]["gallery"]["classes"] == 2


def written(folder: Path, kind: str) -> Path:
    texts, labels = ["play a song", "what is my balance", "play a song"], ["music", "money", "news"]
    path = folder / f"mine.{kind}"
    if kind == "csv":
        path.write_text("\n".join(["text,intent", *map(",".join, zip(texts, labels, strict=True))]))
    elif kind == "parquet":
        pq.write_table(pa.table({"text": texts, "intent": labels}), path)
    elif kind == "jsonl":
        rows = [{"text": text, "intent": label} for text, label in zip(texts, labels, strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_text("\n".join(texts))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "txt"])
def test_files_are_described_and_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    described = document(capsys, "describe", path)
    part, labelled = described["parts"]["texts"], kind != "txt"
    assert described["leave_one_out"] and part["texts"] == 3 and part["classes"] == (3 if labelled else None)
    assert part["examples"][1] == {"text": "what is my balance", "class": "money" if labelled else None}
    found = document(capsys, "check", path, code=1)
    assert found["repeated"] == {"texts": {"count": 1, "ids": ["00000002"]}} and found["leak"]
    contradicting = {"count": 2, "ids": ["00000000", "00000002"]}
    assert found["contradicting"] == (contradicting if labelled else None)
    told = said(capsys, "check", path, code=1)
    assert "Texts that repeat an earlier one: 1 ('00000002')." in told
    assert ("Texts with more than one class: 2 ('00000000', '00000002')." in told) == labelled
    assert "every text is a query among all others" in said(capsys, "describe", path).lower()


def test_texts_of_two_parts_and_of_two_classes_are_found(
    capsys: pytest.CaptureFixture[str], clinc: Callable[..., None]
) -> None:
    same = [[f"train pay {row}" + "!" * row, "greet"] for row in range(2)]
    clinc(val=[["train greet 0", "greet"], ["train greet 1!", "greet"], *same])
    words = ["check", "clinc150"]
    found = document(capsys, *words, code=1)
    assert found["repeated"] == {
        "train and query": {"count": 0, "ids": []},
        "train and gallery": {"count": 4, "ids": ["val/00002", "val/00003", "val/00004"]},
        "query and gallery": {"count": 0, "ids": []},
    }
    assert found["contradicting"] == {"count": 4, "ids": ["train/00002", "train/00003", "val/00004"]}
    told = said(capsys, *words, code=1)
    assert "Texts in train and gallery alike: 4 ('val/00002', 'val/00003', 'val/00004' and 1 more)." in told
    assert "('train/00002', 'train/00003', 'val/00004' and 1 more)." in told and "query alike" not in told


def test_a_class_alone_can_contradict(capsys: pytest.CaptureFixture[str], clinc: Callable[..., None]) -> None:
    clinc(train=[["train pay 0", "greet"]])
    found = document(capsys, "check", "clinc150", code=1)
    assert not found["leak"] and found["contradicting"]["count"] == 2


def test_sound_texts_pass(capsys: pytest.CaptureFixture[str], clinc: Callable[..., None]) -> None:
    clinc()
    words = ["check", "clinc150"]
    found = document(capsys, *words)
    assert found["texts"] == 10 and found["readable"] and not found["leak"]
    assert "all 10 texts can be read, and none is empty. None is in two parts, and none has two" in said(capsys, *words)


def test_findings_are_those_of_a_slow_loop() -> None:
    words = ["a", "b", "a", "c", "b", "d", "a", "e"]
    labels = [0, 1, 0, 2, 2, 1, 0, 0]

    def texts(rows: range, prefix: str) -> TextSet:
        ids = [f"{prefix}{row}" for row in rows]
        return TextSet([words[r] for r in rows], np.array([labels[r] for r in rows]), ("x", "y", "z"), ids)

    parts = {"train": texts(range(3), "t"), "query": texts(range(3, 5), "q"), "gallery": texts(range(5, 8), "g")}
    items = [
        (name, identifier, text, label)
        for name, part in parts.items()
        for identifier, text, label in zip(part.ids, part.texts, part.labelled().tolist(), strict=True)
    ]
    for pair, found in repeated_texts(parts).items():
        first, second = pair.split(" and ")
        known = {text for name, _, text, _ in items if name == first}
        expected = [identifier for name, identifier, text, _ in items if name == second and text in known]
        assert found == Suspects(len(expected), expected[:3])
    expected = [i for _, i, text, label in items if any(t == text and c != label for _, _, t, c in items)]
    assert contradicting_texts(parts) == Suspects(len(expected), expected[:3]) and expected == ["t1", "q4"]


def test_lengths_are_characters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("später\nheute schon\n", encoding="utf-8")
    part = document(capsys, "describe", tmp_path / "mine.txt")["parts"]["texts"]
    assert (part["shortest"], part["longest"]) == (6, 11)


def test_empty_texts_are_refused_with_their_ids(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("one\n \ntwo\n\n")
    assert "2 of 4 texts are empty: '00000001', '00000003'" in fails("data", "check", tmp_path / "mine.txt")


def test_unknown_names_are_told_from_missing_files(fails: Fails, tmp_path: Path) -> None:
    assert "Did you mean 'clinc150'?" in fails("data", "describe", "clinc15")
    assert "Did you mean 'omniglot'?" in fails("data", "check", "omnglot")
    assert "There is no file" in fails("data", "check", tmp_path / "mine.csv")
    assert "There is no folder" in fails("data", "check", tmp_path / "photos")
