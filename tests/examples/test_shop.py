"""The sample data: copying it, and whether its vectors are those of its models."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from limpet.cli import main
from limpet.data.image_folder import image_folder
from limpet.errors import ConfigError
from limpet.examples import SHOP, copy_examples
from limpet.models.text_encoders import open_text_encoder

LIMIT = 2**20


def test_the_shipped_files_are_small() -> None:
    assert sum(path.stat().st_size for path in SHOP.rglob("*") if path.is_file()) < LIMIT


def test_a_second_copy_adds_what_is_missing_and_keeps_changes(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "shop"
    first = copy_examples(folder)
    assert Path("requests.csv") in first and len(first) == len(set(first))
    (folder / "requests.csv").write_text("mine")
    (folder / "photos/ring/07.png").unlink()
    (folder / "runs").mkdir()
    assert copy_examples(folder) == [Path("photos/ring/07.png")]
    assert (folder / "requests.csv").read_text() == "mine"


def test_copy_writes_the_same_photos_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        copy_examples(tmp_path / name)
    photos = sorted((tmp_path / "a").rglob("*.png"))
    assert len(photos) == 200
    for photo in photos:
        assert photo.read_bytes() == (tmp_path / "b" / photo.relative_to(tmp_path / "a")).read_bytes()


def test_copy_takes_an_empty_folder_and_refuses_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["examples", "copy", str(tmp_path / "empty")]) == 0
    assert "README.md" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("of another project")
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(ConfigError, match=name) as refused:
            copy_examples(tmp_path / name)
        assert "limpet examples copy" in refused.value.to_do
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["README.md"]


def test_photos_are_a_data_set_of_ten_classes(tmp_path: Path) -> None:
    copy_examples(tmp_path / "shop")
    data = image_folder(tmp_path / "shop" / "photos")
    assert len(data.train.class_names) == 10 and len(data.train) + len(data.gallery) == 200


@pytest.mark.parametrize(("name", "column"), [("requests", "text"), ("questions", "text"), ("products", "title")])
def test_stored_vectors_are_those_of_the_models(name: str, column: str) -> None:
    with (SHOP / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for model in ("v1", "v2"):
        stored = pq.read_table(SHOP / "vectors" / f"{name}-{model}.parquet").to_pydict()
        vectors = open_text_encoder(f"st:{SHOP / 'models' / model}").encode([row[column] for row in rows])
        np.testing.assert_allclose(stored["vector"], vectors, atol=1e-5)
        assert stored["id"] == [row["id"] for row in rows]


def test_the_second_model_answers_more_held_out_questions() -> None:
    right = {}
    for model in ("v1", "v2"):
        questions, requests = (
            pq.read_table(SHOP / "vectors" / f"{name}-{model}.parquet").to_pydict()
            for name in ("questions", "requests")
        )
        nearest = (np.array(questions["vector"]) @ np.array(requests["vector"]).T).argmax(axis=1)
        right[model] = np.mean(np.array(requests["label"])[nearest] == questions["label"])
    assert 0.3 < right["v1"] < right["v2"] - 0.1
