from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from holdfast.cli import main
from holdfast.cli.adapt import adapt
from holdfast.cli.parsing import parse
from holdfast.cli.train import train

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Evidence of a user's own, so far above any other that it decides wherever it is near."""
    values = {"lce": (30.0, 3.0, 0.0), "bct": (10.0, 1.0, 0.0), "l2": (50.0, 1.0, -0.4)}
    rows: list[dict[str, Any]] = [
        {
            "data": "exotic", "scenario": "both", "label": name, "method": name, "options": {"weight": weight},
            "seed": seed, "metric": "map", "scores": {}, "p_comp": comp + 0.01 * seed, "p_up": up, "seconds": 12.0,
            "failure": None,
        }
        for name, (comp, weight, up) in values.items()
        for seed in range(3)
    ]  # fmt: skip
    facts = {"exotic": {"both": {"images": 700, "classes": 7, "old_classes": 3}}}
    path = tmp_path / "mine.json"
    suite = {"name": "mine", "title": "", "description": "", "metric": "map", "kind": "images"}
    path.write_text(json.dumps({"suite": suite, "rows": rows, "facts": facts}))
    return path


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str], mine: Path) -> Callable[..., dict[str, Any]]:
    def run(*words: object) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["recommend", *map(str, words), "--evidence", str(mine), "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return run


def test_it_recommends_and_says_what_to_type(answer, capsys, mine: Path) -> None:
    found = answer("--classes", 7, "--images", 700, "--scenario", "both")
    assert (found["action"], found["method"], found["options"]) == ("train", "lce", {"weight": 3.0})
    assert [one["label"] for one in found["labels"]] == ["lce", "bct", "l2"] and found["not_told_apart"] == ["lce"]
    assert found["evidence"][0]["distance"]["classes"] == 1 and found["evidence"][0]["facts"]["classes"] == 7
    (command,) = found["next"]
    arguments, _ = parse(train, shlex.split(command)[2:], "train")
    assert arguments["method"] == ["lce"] and arguments["method_options"] == {"weight": 3}

    words = ["recommend", "--classes", "7", "--images", "700", "--scenario", "both", "--evidence", str(mine)]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "Train with 'lce'" in said and "P_up below −0.05" in said and "1 data set (exotic)" in said
    assert "next     holdfast train --data DATA --old RELEASE --method lce --method_options.weight 3.0" in said
    assert found["worth"]["sentence"] in said and found["worth"]["detail"] in said


def test_the_shipped_evidence_speaks_against_the_rule(capsys) -> None:
    """As benchmarks/results/recommend.md has it; once the rule does better, the sentence and this test change."""
    committed = json.loads((RESULTS / "recommend.json").read_text())
    (default,) = [one for one in committed["nearest"] if one["count"] == committed["default"]]
    rows = {one["strategy"]: one for one in default["summaries"]}
    assert main(["recommend", "--classes", "500", "--images", "20000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["worth"]
    rule, always, chance = found["summaries"]
    assert (rule, always, chance) == (rows["the rule"], rows[always["strategy"]], rows["one at random"])
    assert rule["regret"] > max(always["regret"], chance["regret"]) and "does worse than always" in found["sentence"]
    assert main(["recommend", "--classes", "500", "--images", "20000"]) == 0
    first, second = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("Train", "By its own"))]
    assert "Train with" in first and second == found["sentence"]


def test_without_a_recommendation_there_is_nothing_to_judge(capsys) -> None:
    assert main(["recommend", "--unlabelled", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["worth"] is None


def test_rivals_are_to_be_compared_on_the_users_data(answer, mine: Path) -> None:
    document = json.loads(mine.read_text())
    for row in document["rows"]:
        row["p_comp"] = {"bct": 30.1, "lce": 30.0, "l2": 0.0}[row["method"]] + 0.5 * row["seed"] * (
            row["method"] == "bct"
        )
    mine.write_text(json.dumps(document))
    found = answer("--classes", 7, "--images", 700, "--scenario", "both")
    assert found["method"] == "bct" and found["not_told_apart"] == ["bct", "lce"]
    first, second = (parse(train, shlex.split(line)[2:], "train")[0] for line in found["next"])
    assert first["method"] == ["bct"] and first["method_options"] == {}  # its own default is not repeated
    assert second["method"] == ["bct", "lce"] and second["scenario"] == "both"
    assert second["method_options"] == {"lce": {"weight": 3}}


def test_images_are_counted(answer, tmp_path: Path) -> None:
    for label in range(4):
        (tmp_path / f"photos/kind{label}").mkdir(parents=True)
        for number in range(5):
            pixels = np.full((8, 8, 3), 20 * label + number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"photos/kind{label}/{number}.png")
    found = answer("--data", tmp_path / "photos", "--scenario", "both")
    assert (found["situation"]["classes"], found["situation"]["images"]) == (
        4,
        12,
    )  # two of each are kept for searching
    assert found["action"] == "train" and str(tmp_path / "photos") in found["next"][0]


def test_vectors_of_frozen_models_go_to_adapt(answer, tmp_path: Path) -> None:
    vectors, labels = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32), np.arange(12) % 3
    np.savez(tmp_path / "new.npz", ids=np.array([f"i{row}" for row in range(12)]), vectors=vectors, labels=labels)
    found = answer("--embeddings", tmp_path / "new.npz")
    assert (found["action"], found["method"], found["situation"]["frozen"]) == ("adapt", None, True)
    assert (found["situation"]["classes"], found["situation"]["images"]) == (3, 12)
    assert "two frozen models" in found["sentences"][0]
    arguments, _ = parse(adapt, shlex.split(found["next"][0])[2:], "adapt")
    assert arguments["new"] == tmp_path / "new.npz" and arguments["auto"]

    np.savez(tmp_path / "bare.npz", ids=np.array([f"i{row}" for row in range(12)]), vectors=vectors)
    found = answer("--embeddings", tmp_path / "bare.npz")
    assert found["action"] == "adapt" and not found["situation"]["labelled"]
    assert "your items have none" in found["sentences"][0] and found["labels"] == []


def test_texts_and_items_without_labels_go_to_adapt(answer, tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text,label\none,a\ntwo,a\nthree,b\n")
    found = answer("--data", tmp_path / "texts.csv")
    assert found["action"] == "adapt" and (found["situation"]["classes"], found["situation"]["images"]) == (2, 3)
    assert parse(adapt, shlex.split(found["next"][0])[2:], "adapt")[0]["texts"] == str(tmp_path / "texts.csv")
    assert answer("--unlabelled")["action"] == "adapt" and answer("--frozen")["action"] == "adapt"


def test_wrong_use(fails, tmp_path: Path) -> None:
    assert "Nothing was said of your data" in fails("recommend")
    assert "--data and --classes" in fails("recommend", "--data", "glyphs", "--classes", 3)
    assert "--images" in fails("recommend", "--images", 30)
    assert "--data and --images" in fails("recommend", "--data", "glyphs", "--images", 30)
    assert "5 images of 10 classes" in fails("recommend", "--classes", 10, "--images", 5)
    assert "scenario" in fails("recommend", "--classes", 10, "--scenario", "open-clas")
    assert "Cannot read" in fails("recommend", "--classes", 10, "--evidence", tmp_path / "absent.json")


def unable(document: dict[str, Any], what: str) -> dict[str, Any]:
    """Return a document that can say nothing, of one of several kinds."""
    rows: list[dict[str, Any]] = document["rows"]
    if what == "sessions":
        document["suite"]["kind"] = "sessions"
    if what in ("sessions", "undefined"):
        rows = [{**row, "p_comp": None} for row in rows]
    if what == "failed":
        rows = [{**row, "p_comp": None, "failure": "The loss is NaN. Next: a lower rate."} for row in rows]
    if what == "references":
        rows = [{**row, "method": "independent", "label": "independent"} for row in rows[:3]]
    return {**document, "rows": rows}


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("sessions", "does not count: it is of sessions, which have no old model and so no P_comp"),
        ("undefined", "P_comp and P_up for every seed; 'lce' on exotic, both (mine): P_comp is not defined."),
        ("failed", "'lce' on exotic, both (mine): The loss is NaN. Next: a lower rate.\n"),
        ("references", "does not count: it has no runs of methods that align with an old model"),
    ],
)
def test_evidence_of_the_user_that_can_say_nothing_is_named_with_the_reason(what, why, answer, capsys, mine) -> None:
    words = ["--classes", "7", "--images", "700", "--scenario", "both"]
    assert answer(*words)["not_counted"] == {}
    mine.write_text(json.dumps(unable(json.loads(mine.read_text()), what)))
    found = answer(*words)
    assert list(found["not_counted"]) == [str(mine)] and found["method"] != "lce"
    assert main(["recommend", *words, "--evidence", str(mine)]) == 0
    said = capsys.readouterr().err
    assert f"'{mine}' does not count: " in said and why in said and ".." not in said.replace("../", "")


def test_whole_models_say_nothing_of_frozen_ones_and_classes_nothing_without_any(answer, mine) -> None:
    assert "nothing of heads over frozen ones" in answer("--frozen")["not_counted"][str(mine)]
    assert "your items have none" in answer("--unlabelled")["not_counted"][str(mine)]
    document = json.loads(mine.read_text())
    document["suite"]["kind"] = "features"
    mine.write_text(json.dumps(document))
    assert answer("--frozen")["not_counted"] == {}
