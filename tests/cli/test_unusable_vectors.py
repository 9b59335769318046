"""One zero, NaN or infinite vector refuses a whole file, with the option that leaves it out and names it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import limpet
from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.cli import main

IDS = [f"i{row:02}" for row in range(40)]
BAD = {"i03": 0.0, "i17": np.nan, "i30": np.inf}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """old and new vectors as .npz and .parquet, of which three of the old ones cannot be used."""
    monkeypatch.chdir(tmp_path)
    rng, labels = np.random.default_rng(0), np.arange(40) % 5
    for name, noise in (("old", 1.0), ("new", 0.4)):
        vectors = (np.eye(5, 8)[labels] + noise * rng.normal(size=(40, 8))).astype(np.float32)
        if name == "old":
            for one, value in BAD.items():
                vectors[IDS.index(one)] = value
        np.savez(f"{name}.npz", vectors=vectors, ids=np.array(IDS), labels=labels)
        table = {"id": IDS, "vector": list(vectors), "label": labels}
        pq.write_table(pa.table(table), f"{name}.parquet")
    return tmp_path


def run(words: str) -> int:
    return main(words.split())


NEW = "--new new.npz --resamples 100"
COMMANDS = {
    "evaluate": f"evaluate --old old.npz {NEW} --out out",
    "evaluate a table": f"evaluate --old parquet:old.parquet {NEW} --out out",
    "evaluate chain": "evaluate chain old.npz new.npz --resamples 100 --out out",
    "adapt": f"adapt --old old.npz {NEW} --adapter procrustes --out out",
    "gallery create": "gallery create memory:live --embeddings old.npz --name v1",
    "gallery create from a table": "gallery create memory:live --embeddings old.parquet --name v1",
    "gallery import": "gallery import memory:there --embeddings old.npz --name v1",
    "gallery import from a table": "gallery import memory:there --embeddings old.parquet --name v1 --batch 20",
    "gallery add": "gallery add memory:there --embeddings old.npz --name v1",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_unusable_vectors_are_refused_with_the_option_or_left_out_by_name(
    command: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "there" in COMMANDS[command]:
        assert run("gallery create memory:there --name v1 --dim 8") == 0
    capsys.readouterr()
    assert run(COMMANDS[command]) == 2
    said = capsys.readouterr().err
    assert "--skip-unusable" in said and "i17" in said
    again = COMMANDS[command].replace("memory:live", "memory:again")  # an import that was refused leaves it empty
    assert run(f"{again} --skip-unusable") in ((0,) if "gallery" in command else (0, 1))
    said = " ".join(capsys.readouterr().err.split())
    assert "left out 3 items whose vector is zero, NaN or infinite: 'i03', 'i17', 'i30'" in said
    if "gallery" in command:
        place = "memory:there" if "there" in COMMANDS[command] else "memory:again"
        assert run(f"gallery status {place} --json") == 0
        assert json.loads(capsys.readouterr().out)["items"] == 37
    else:
        assert (files / "out" / "results.json").exists()


def test_commands_without_the_option_do_not_name_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gallery create memory:live --embeddings new.npz --name new") == 0
    for made in ("old.npz --name v1", "parquet:old.parquet --name v1"):
        for command in ("start memory:live --model", "backfill memory:live --model"):
            capsys.readouterr()
            assert run(f"upgrade {command} {made}") == 2
            said = capsys.readouterr().err
            assert "i17" in said and "remove their rows" in said and "--skip-unusable" not in said


def test_stored_vectors_are_mapped_without_what_cannot_be_used(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = limpet.load_embeddings("new.npz", model="a")
    save_adapter(build_adapter("procrustes", {}).fit(new, new.replace(fingerprint="declared:b")), files / "adapter")
    command = "embed stored old.npz --name b --model adapter:adapter --out made"
    assert run(command) == 2 and "--skip-unusable" in capsys.readouterr().err
    assert run(f"{command} --skip-unusable") == 0 and "left out 3 items" in capsys.readouterr().err
    assert list(limpet.load_embeddings("made").ids) == [one for one in IDS if one not in BAD]


def test_ids_labels_and_columns_stay_with_their_vectors(files: Path) -> None:
    unusable: list[str] = []
    found = limpet.load_embeddings("old.npz", unusable=unusable)
    with np.load("old.npz") as given:
        kept = np.array([one not in BAD for one in IDS])
        assert unusable == list(BAD) and list(found.ids) == list(np.array(IDS)[kept])
        np.testing.assert_array_equal(found.vectors, given["vectors"][kept])
        np.testing.assert_array_equal(found.labels, given["labels"][kept])
