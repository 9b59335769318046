"""A new model of more dimensions than the old one, from training to the verdict, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from limpet.cli import main
from limpet.models.release import load_record

QUICK = ["--recipe.epochs", "2", "--recipe.batch-size", "32", "--backbone-options.filters", "8"]


@pytest.fixture(scope="module")
def wider(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 20 dimensions over the old one of 16, a third of 24 over it, and what both embedded."""
    root = tmp_path_factory.mktemp("wider")
    photos = str(made / "photos")
    for name, old, dim in (("second", made / "runs" / "old", "20"), ("third", root / "second", "24")):
        words = [
            "train",
            "--data",
            photos,
            "--old",
            f"release:{old}",
            "--method",
            "free_dimensions",
            "--dim",
            dim,
            *QUICK,
        ]
        assert main([*words, "--out", str(root / name)]) == 0
    releases = [f"release:{root / name}" for name in ("second", "third")]
    words = ["embed", "images", photos, "--model", *releases, "--out", str(root / "embedded")]
    assert main(words) == 0
    return root


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json", "--resamples", "50"]) in (0, 1)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_old_vectors_count_as_padded_where_that_is_said(made: Path, wider: Path, tmp_path: Path, fails, capsys) -> None:
    record = load_record(wider / "second")
    assert (record.space["dim"], record.padded_from, record.method) == (20, 16, "free_dimensions")
    sides = ["--old", made / "embedded" / "old", "--new", wider / "embedded" / "second", "--out", tmp_path / "report"]
    assert "--pad-old" in fails("evaluate", *sides)
    found = told(capsys, "evaluate", *sides, "--pad-old")
    plain = ["--old", made / "embedded" / "old", "--new", made / "embedded" / "bct", "--out", tmp_path / "plain"]
    assert found["self_old"] == told(capsys, "evaluate", *plain, "--report", "none")["self_old"]
    models = json.loads((tmp_path / "report" / "results.json").read_text())["models"]
    assert models["old"]["dim"] == 16 and models["old"]["padded_to"] == 20
    assert "adapter" in fails("evaluate", *sides, "--pad-old", "--link", tmp_path)
    narrow = ["--old", wider / "embedded" / "second", "--new", made / "embedded" / "bct", "--out", tmp_path / "back"]
    assert "more dimensions" in fails("evaluate", *narrow, "--pad-old")


def test_a_chain_grows(made: Path, wider: Path, tmp_path: Path, fails, capsys) -> None:
    places = [made / "embedded" / "old", *(wider / "embedded" / name for name in ("second", "third"))]
    assert "--pad-old" in fails("evaluate", "chain", *places, "--out", tmp_path / "out")
    found = told(capsys, "evaluate", "chain", *places, "--pad-old", "--out", tmp_path / "out")
    assert len(found["matrix"]) == 3 and found["models"] == ["old", "second", "third"]


def test_a_scenario_with_a_narrower_old_model(made: Path, tmp_path: Path) -> None:
    words = ["train", "--data", str(made / "photos"), "--scenario", "extended-class", "--method", "p2s", "oca"]
    words += ["--scenario-options.old-fraction", "0.5", "--dim", "12", "--old-dim", "8", "--pad-old", *QUICK]
    assert main([*words, "--recipe.epochs", "1", "--out", str(tmp_path)]) == 0
    dims = {name: load_record(tmp_path / name).space["dim"] for name in ("old", "independent", "p2s", "oca")}
    assert dims == {"old": 8, "independent": 12, "p2s": 12, "oca": 12}


def test_what_does_not_go_together(made: Path, tmp_path: Path, fails) -> None:
    photos, out = ["--data", made / "photos"], ["--out", tmp_path / "x"]
    old = ["--old", f"release:{made / 'runs' / 'old'}"]
    assert "--pad-old" in fails("train", *photos, *old, "--method", "p2s", "--dim", "20", *out)
    assert "no --pad-old" in fails("train", *photos, *old, "--method", "p2s", "--dim", "16", "--pad-old", *out)
    assert "--old-dim 8 without" in fails("train", *photos, *old, "--method", "p2s", "--old-dim", "8", *out)
    assert "without an old model" in fails("train", *photos, "--method", "independent", "--pad-old", *out)
