from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limpet.cli import main
from limpet.cli.adapt import adapt
from limpet.cli.parsing import parse
from limpet.cli.places import Place
from limpet.cli.train import train


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
    path.write_text(json.dumps({"suite": suite, "machine": "a desk", "rows": rows, "facts": facts}))
    return path


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str], mine: Path) -> Callable[..., dict[str, Any]]:
    def run(*words: object) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["recommend", *map(str, words), "--evidence", str(mine), "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    return run


def test_it_shows_what_was_measured_and_what_to_type(answer, capsys, mine: Path) -> None:
    found = answer("--classes", 7, "--images", 700, "--scenario", "both")
    place, *_ = found["places"]
    assert (place["data"], place["seeds"], place["facts"]["classes"]) == ("exotic", [0, 1, 2], 7)
    assert [row["label"] for row in place["rows"]] == ["l2", "lce", "bct"]
    assert place["rows"][1]["p_comp"]["mean"] == pytest.approx(30.01) and found["not_counted"] == {}
    arguments = parse(train, shlex.split(found["next"])[2:], "train")
    assert arguments["method"] == ["lce", "bct"] and arguments["training"].method_options == {"lce": {"weight": 3}}
    assert arguments["predecessor"].scenario == "both"

    words = ["recommend", "--classes", "7", "--images", "700", "--scenario", "both", "--evidence", str(mine)]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "exotic, both (mine)" in said and "P_up below −0.05" in said and "1 data set (exotic)" in said
    assert "7 classes of 100 images; map; seeds 0, 1, 2; a desk" in said and "+30.010 (+29.985 to +30.035)" in said
    assert "What this cannot tell:" in said and "next     limpet train --data DATA --scenario both" in said


def test_the_boards_that_come_with_limpet_are_shown(capsys) -> None:
    assert main(["recommend", "--classes", "500", "--images", "20000"]) == 0
    said = capsys.readouterr().err
    assert "omniglot, extended-class (omniglot-small)" in said and "seeds 0, 1, 2; Intel" in said
    assert "what leads on one of the measured data sets does not on the next" in said


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
    assert found["next"].startswith("limpet train") and str(tmp_path / "photos") in found["next"]


def test_vectors_of_frozen_models_go_to_adapt(answer, tmp_path: Path) -> None:
    vectors, labels = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32), np.arange(12) % 3
    np.savez(tmp_path / "new.npz", ids=np.array([f"i{row}" for row in range(12)]), vectors=vectors, labels=labels)
    found = answer("--embeddings", tmp_path / "new.npz")
    assert found["situation"]["frozen"] and {place["kind"] for place in found["places"]} == {"features"}
    assert (found["situation"]["classes"], found["situation"]["images"]) == (3, 12)
    arguments = parse(adapt, shlex.split(found["next"])[2:], "adapt")
    assert arguments["models"].new == Place(str(tmp_path / "new.npz")) and arguments["compared"].auto

    np.savez(tmp_path / "bare.npz", ids=np.array([f"i{row}" for row in range(12)]), vectors=vectors)
    found = answer("--embeddings", tmp_path / "bare.npz")
    assert "limpet adapt" in found["next"] and not found["situation"]["labelled"]
    assert "your items have none" in found["cannot_tell"][0] and found["places"] == []


def test_rows_of_frozen_models_say_what_became_of_the_old_gallery(answer, capsys: pytest.CaptureFixture[str]) -> None:
    places = {place["suite"]: place["rows"] for place in answer("--classes", 150, "--frozen")["places"]}
    galleries = {row["label"]: row["gallery"] for row in places["text-upgrade"]}
    assert (galleries["both_sides"], galleries["one_side"]) == ("mapped", "as it is")
    assert {row["gallery"] for row in places["frozen-text"]} == {None}
    assert main(["recommend", "--classes", "150", "--frozen"]) == 0
    told = capsys.readouterr().err
    assert 0 < told.count("old gallery") < told.count("P_comp ")  # where it is known
    capsys.readouterr()
    assert main(["recommend", "--classes", "7"]) == 0 and "old gallery" not in capsys.readouterr().err


def test_texts_and_items_without_labels_go_to_adapt(answer, tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text,label\none,a\ntwo,a\nthree,b\n")
    found = answer("--data", tmp_path / "texts.csv")
    assert (found["situation"]["classes"], found["situation"]["images"]) == (2, 3)
    assert parse(adapt, shlex.split(found["next"])[2:], "adapt")["models"].texts == str(tmp_path / "texts.csv")
    assert all(answer(word)["next"].startswith("limpet adapt") for word in ("--unlabelled", "--frozen"))


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
    assert list(found["not_counted"]) == [str(mine)] and all(place["data"] != "exotic" for place in found["places"])
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
    assert "nothing of models trained as a whole" in answer("--classes", 7)["not_counted"][str(mine)]
