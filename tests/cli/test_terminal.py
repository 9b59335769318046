"""Whatever ids, labels and names of files hold, terminals and logs get text; documents for machines are exact."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.cli import console as screen
from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.errors import DataError, printable
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

WILD = "red\x1b[2J\x1b]0;title\x07\rgone\nlimpet: all is well\u202eexe.\u2066\x9b31m"
TAME = r"red\x1b[2J\x1b]0;title\x07\rgone\nlimpet: all is well\u202eexe.\u2066\x9b31m"


def calm(text: str) -> bool:
    """Whether a terminal would only show this text, line by line."""
    return printable(text, keep="\n") == text and "limpet: all is well" not in text.splitlines()


@pytest.fixture
def gallery(tmp_path: Path) -> str:
    """Three items with control characters in an id and in a label."""
    vectors = np.eye(3, 4, dtype=np.float32)
    items = EmbeddingSet(
        ids=["a", WILD, "c"], vectors=vectors, fingerprint="declared:v1", space=Hypersphere(4), labels=np.arange(3),
        class_names=["x", WILD + "!", "z"],
    )  # fmt: skip
    url = f"memory:{tmp_path / 'g'}"
    with Gallery.create(url, fingerprint="declared:v1", space=Hypersphere(4), columns={"label": "text"}) as made:
        made.add(items)
    return url


def test_signs_that_steer_a_terminal_are_written_out() -> None:
    assert printable(WILD) == TAME
    assert printable("Zoë’s 猫 👩‍🔬\tend") == "Zoë’s 猫 👩‍🔬\tend"
    assert printable("a\nb\u2028c\udc80", keep="\n") == "a\nb\\u2028c\\udc80"


def test_errors_are_calm_for_people_and_exact_for_programs(logged) -> None:
    error = DataError(f"The id '{WILD}'.", expected=f"not {WILD}", to_do="leave it out.")
    assert error.given == f"The id '{WILD}'." and error.expected == f"not {WILD}"
    assert str(error).splitlines() == [f"The id '{TAME}'.", f"Expected: not {TAME}", "Next: leave it out."]
    with logged(logging.ERROR) as log:
        logging.getLogger("somebody's").error("failed: %s", error)
    assert calm(log.text)


def test_hits_are_shown_and_printed_as_json(gallery: str, capsys) -> None:
    assert main(["gallery", "search", gallery, "--like", "a", "--k", "2", "--json"]) == 0
    said = capsys.readouterr()
    assert calm(said.err) and TAME in said.err and f"{TAME}!" in said.err
    hits = json.loads(said.out)["queries"][0]["hits"]
    assert {hit["id"]: hit["metadata"]["label"] for hit in hits}[WILD] == WILD + "!"


def test_findings_are_shown_and_printed_as_json(tmp_path: Path, capsys) -> None:
    folder = tmp_path / WILD.replace("/", "")
    assert main(["gallery", "status", str(folder), "--json"]) == 2
    said = capsys.readouterr()
    assert calm(said.err) and TAME in said.err
    assert str(folder) in json.loads(said.out)["error"]["given"]


@pytest.mark.parametrize("words", [["--like", WILD + "?"], ["--where", f"{WILD}=1", "--like", "a"], [f"--{WILD}", "1"]])
def test_words_that_are_refused(words: list[str], gallery: str, capsys) -> None:
    assert main(["gallery", "search", gallery, *words]) == 2
    said = capsys.readouterr().err
    assert calm(said) and r"\x1b[2J" in said


def test_files_that_are_refused(gallery: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / f"{WILD.replace('/', '')}.parquet"
    pq.write_table(pa.table({"id": [WILD, WILD], "vector": [[1.0, 0, 0, 0]] * 2}), path)
    assert main(["gallery", "import", gallery, "--embeddings", str(path)]) == 2
    said = capsys.readouterr().err
    assert calm(said) and TAME in said
    undecodable = tmp_path / b"\xff.safetensors".decode(errors="surrogateescape")
    assert main(["evaluate", "--old", str(undecodable), "--new", str(undecodable), "--out", str(tmp_path / "o")]) == 2
    assert calm(capsys.readouterr().err)


def test_columns_and_class_names_of_files(tmp_path: Path, capsys) -> None:
    vectors = np.eye(3, 4, dtype=np.float32)
    items = EmbeddingSet(
        ids=["a", "b", WILD], vectors=vectors, fingerprint="declared:v1", space=Hypersphere(4), role="document",
        labels=np.arange(3), class_names=["x", "y", WILD], columns={WILD: np.arange(3)},
    )  # fmt: skip
    path = storage.save(items, tmp_path / "e.safetensors")
    for words in (
        ["gallery", "create", f"memory:{tmp_path / 'g'}", "--embeddings", str(path), "--columns", "x:y"],
        ["evaluate", "--old", str(path), "--new", str(path), "--out", str(tmp_path / "out")],
    ):
        main(words)
        assert calm(capsys.readouterr().err)


def test_everything_that_is_rendered_passes_one_place(capsys) -> None:
    screen.console.print(f"one {WILD.replace(chr(10), ' ')}\ntwo")
    screen.print_table(WILD, ["a", WILD], [["1", WILD], ["2", "b"]])
    with screen.console.status(WILD.replace("\n", " ")):
        pass
    shown = capsys.readouterr().err
    assert calm(shown) and "\ntwo\n" in shown and shown.count(TAME) == 3
