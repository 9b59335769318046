"""Linking two frozen models through the command line, on planted vectors and on texts by a static model."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import SuspectPairs, suspect_pairs
from limpet.adapters import storage as adapter_storage
from limpet.adapters.score_map import load_score_map
from limpet.adapters.storage import load_adapter
from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Lorentz
from limpet.linking.adapt import Choice, open_link, save_link, suitable_adapters, usual_heads
from limpet.linking.results import AdaptResults
from limpet.models.text_encoders import TextEncoder
from limpet.reports.adapt import adapt_headline, adapt_table, failures, render_adapt_report
from limpet.training.experiment import HEAD_RECIPE

Fails = Callable[..., str]
Plant = Callable[..., Path]
NAMED = ["--old-name", "a", "--new-name", "b"]
WITH_PAGE = ["--adapter", "ridge", "--direction", "new_to_old", "--resamples", "200"]
RIDGE = [*WITH_PAGE, "--report", "none"]


def sides(folder: Path) -> list[object]:
    return ["adapt", "--old", folder / "old.npz", "--new", folder / "new.npz"]


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """Run a command for people and return what it said; nothing goes to standard output."""
    capsys.readouterr()
    assert main([*map(str, words)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def rewritten(path: Path, **changes: Any) -> Path:
    """Write a file of vectors again with some arrays changed; None leaves one out."""
    arrays = {**np.load(path), **changes}
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, planted: Plant) -> Path:
    return planted(tmp_path_factory.mktemp("good"))


@pytest.fixture
def mine(tmp_path: Path, planted: Plant) -> Path:
    """The same, for tests that change something."""
    return planted(tmp_path / "mine")


@pytest.fixture(scope="module")
def linked(good: Path) -> Path:
    """A finished run with an adapter."""
    assert main([*map(str, [*sides(good), *RIDGE, *NAMED, "--threshold", "0.5", "7", "--out", good / "out"])]) == 0
    return good / "out"


def opened(folder: Path) -> tuple[EmbeddingSet, EmbeddingSet]:
    old, new = (storage.from_npz(folder / f"{side}.npz", fingerprint=f"declared:{side[0]}") for side in ("old", "new"))
    return old, new.replace(labels=old.labels)


@pytest.mark.parametrize(
    ("damped", "kind", "items"),
    [(True, "adapter", 600), pytest.param(False, "head", 900, marks=pytest.mark.slow)],
)
def test_the_best_is_the_best_on_items_that_nobody_saw(
    capsys: pytest.CaptureFixture[str], planted: Plant, tmp_path: Path, damped: bool, kind: str, items: int
) -> None:
    folder = planted(tmp_path / "seen", items, damped=damped)
    words = [
        "--direction",
        "new_to_old",
        "--guard",
        "none",
        "--recipe.epochs",
        "10",
        "--recipe.batch-size",
        "32",
    ]
    named = ["--old-name", "o", "--new-name", "n", "--report", "none", "--out", tmp_path / "out"]
    found = run(capsys, *sides(folder), *words, *named)
    advised, saved = found["recommendation"], tmp_path / "out" / kind
    assert advised["action"] == {"adapter": "adapt", "head": "train a head"}[kind]
    assert advised["candidate"] == found["best"] and found["saved"] == str(saved)

    old, new = opened(planted(tmp_path / "fresh", 600, seed=2, damped=damped))
    words = ["embed", "stored", tmp_path / "fresh" / "new.npz", "--name", "n", "--out", tmp_path / "mapped"]
    scheme = {"adapter": "adapter", "head": "release"}[kind]
    (entry,) = run(capsys, *words, "--model", f"{scheme}:{saved}")["embeddings"]
    reached = precision(storage.load(entry["file"]).replace(labels=old.labels), old)
    assert reached > precision(old, old) + 0.02
    recipe = dataclasses.replace(HEAD_RECIPE, epochs=10, batch_size=32)
    heads = {name: dataclasses.replace(one, recipe=recipe) for name, one in usual_heads(as_it_is=True).items()}
    choice = Choice(suitable_adapters(old, new), heads=heads, direction="new_to_old")
    assert [one["name"] for one in found["candidates"]] == [
        *choice.adapters,
        *(f"head {name}" for name in choice.fitting_heads()),
    ]
    # A head is advised only where it is surely ahead of the best adapter, so that an adapter may be behind some head.
    for one in (one for one in found["candidates"] if kind in ("head", one["kind"])):
        link = open_link(save_link(one["name"], *opened(folder), choice, tmp_path / one["name"]))
        assert precision(link.query(new), old) < reached + 0.01, one["name"]


def precision(query: EmbeddingSet, gallery: EmbeddingSet) -> float:
    return float(np.nanmean(rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"]))


def test_what_was_mapped_can_be_evaluated(capsys, planted: Plant, linked: Path, tmp_path: Path) -> None:
    fresh = planted(tmp_path / "fresh", seed=2)
    given = ["evaluate", "--old", fresh / "old.npz", "--new", fresh / "new.npz", *NAMED, "--resamples", "50"]
    found = run(capsys, *given, "--link", linked / "adapter", "--report", "none", "--out", tmp_path / "e")
    assert found["verdict"] == "compatible" and found["cross"]["map"] > found["self_old"]["map"]
    mapped = ["embed", "stored", fresh / "new.npz", "--name", "b", "--model", f"adapter:{linked / 'adapter'}"]
    (entry,) = run(capsys, *mapped, "--out", tmp_path / "mapped")["embeddings"]
    old, _ = opened(fresh)
    again = storage.load(entry["file"]).replace(labels=old.labels)
    assert found["cross"]["map"] == pytest.approx(precision(again, old))


@pytest.mark.parametrize(("wrong", "words"), [(1.0, "bear no relation"), (0.5, "are suspect")])
def test_pairs_that_were_mixed_up(capsys, planted: Plant, tmp_path: Path, wrong: float, words: str) -> None:
    folder, out = planted(tmp_path / "data", 600, wrong=wrong), tmp_path / "out"
    found = run(capsys, *sides(folder), *WITH_PAGE, "--out", out, code=1)
    assert found["recommendation"]["action"] == "check the pairs" and found["saved"] is None
    assert words in found["recommendation"]["sentences"][0] and "Look whether the ids" in str(found["recommendation"])
    suspects = suspect_pairs(*opened(folder))
    assert SuspectPairs(*(found["suspects"][key] for key in ("share", "low", "high", "tested"))) == suspects
    assert suspects.low < wrong + 1e-9 and abs(suspects.share - wrong) < 0.12
    assert {file.name for file in out.iterdir()} == {"results.json", "report.html", "adapt.toml"}
    said = told(capsys, *sides(folder), *RIDGE, "--out", out, code=1)
    assert "Check the pairs first" in said and "saved" not in said and "next" not in said


def duplicated(folder: Path) -> None:
    for side in ("old", "new"):
        arrays = np.load(folder / f"{side}.npz")
        more = {name: np.concatenate([arrays[name], arrays[name][:30]]) for name in arrays if name != "ids"}
        rewritten(folder / f"{side}.npz", ids=np.array([f"i{row}" for row in range(330)]), **more)


def constant(folder: Path) -> None:
    vectors = np.load(folder / "new.npz")["vectors"]
    rewritten(folder / "new.npz", vectors=np.hstack([vectors, np.full((300, 2), 0.5, np.float32)]))


def stretched(folder: Path) -> None:
    vectors = np.load(folder / "new.npz")["vectors"] * np.linspace(0.1, 9, 300, dtype=np.float32)[:, None]
    rewritten(folder / "new.npz", vectors=vectors)


def unpaired(folder: Path) -> None:
    arrays = np.load(folder / "new.npz")
    rewritten(folder / "new.npz", ids=arrays["ids"][50:], vectors=arrays["vectors"][50:])


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        (duplicated, ["30 vectors of the old model repeat", "30 vectors of the new model repeat"]),
        (constant, ["2 of the 18 coordinates of the new model are constant: they say nothing."]),
        (stretched, ["The vectors of the new model have lengths from 0.1 to 9: only their directions count."]),
        (
            unpaired,
            ["250 items are paired by id.", "50 items of the old model have no partner and are left out: '1-0'"],
        ),
    ],
)
def test_odd_pairs_are_told_and_used(capsys, mine: Path, tmp_path: Path, change: Any, sentences: list[str]) -> None:
    change(mine)
    said = told(capsys, *sides(mine), *RIDGE, "--out", tmp_path / "out")
    for sentence in sentences:
        assert sentence in said
    results = AdaptResults.load(tmp_path / "out")
    assert all(sentence in said for sentence in results.data.sentences)
    assert results.recommendation.candidate == "ridge"


def test_lengths_change_nothing(capsys, mine: Path, linked: Path, tmp_path: Path) -> None:
    stretched(mine)
    found = run(capsys, *sides(mine), *RIDGE, *NAMED, "--out", tmp_path / "out")
    for one, other in zip(found["candidates"], AdaptResults.load(linked).to_dict()["candidates"], strict=True):
        assert one["cross"]["mean"] == pytest.approx(other["cross"]["mean"], abs=1e-3)
    maps = [load_score_map(out / "score_map.json") for out in (tmp_path / "out", linked)]
    assert maps[0].apply(0.5).values == pytest.approx(maps[1].apply(0.5).values, abs=1e-3)


def test_adapt_takes_other_floating_types(capsys, mine: Path, linked: Path, tmp_path) -> None:
    rewritten(mine / "new.npz", vectors=np.load(mine / "new.npz")["vectors"].astype(np.float64))
    found = run(capsys, *sides(mine), *RIDGE, *NAMED, "--out", tmp_path / "out")
    assert found["candidates"][0]["cross"] == AdaptResults.load(linked).to_dict()["candidates"][0]["cross"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"vectors": np.full((300, 16), np.nan, np.float32)}, "300 of 300 vectors hold NaN"),
        ({"vectors": np.zeros((300, 16), np.float32)}, "no zero vectors"),
        ({"ids": np.array([f"x{row}" for row in range(300)])}, "None of the 300 items of the old model ('1-0'"),
        ({"ids": np.array(["x"] * 300)}, "ids occur more than once"),
        ({"ids": np.array([f"1-{row}" for row in range(281, 581)])}, "19 pairs of embeddings of the same items"),
        ({"labels": (np.arange(300) + 1) % 10}, "300 items have different labels in two sets"),
    ],
)
def test_vectors_that_cannot_be_linked(fails: Fails, mine: Path, tmp_path, arrays: Any, message: str) -> None:
    rewritten(mine / "new.npz", **arrays)
    said = fails(*sides(mine), *RIDGE, "--out", tmp_path / "out")
    assert message in said and "Next:" in said and not (tmp_path / "out").exists()


def test_files_that_cannot_be_read(fails: Fails, good: Path, tmp_path: Path) -> None:
    (tmp_path / "new.npz").write_bytes(b"hello")
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "new.npz", "is a text file"), (tmp_path / "no.npz", "There is no"), (tmp_path / "empty", "nothing"),
    ):  # fmt: skip
        assert message in fails("adapt", "--old", good / "old.npz", "--new", path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_model_on_both_sides(fails: Fails, good: Path, tmp_path: Path) -> None:
    for new, more in ((good / "old.npz", []), (good / "new.npz", ["--old-name", "x", "--new-name", "x"])):
        said = fails("adapt", "--old", good / "old.npz", "--new", new, *more, "--out", tmp_path / "out")
        assert "these are the same model" in said and "--old-name and --new-name" in said
    assert not (tmp_path / "out").exists()


def test_points_of_another_space(fails: Fails, good: Path, tmp_path: Path) -> None:
    new = storage.from_npz(good / "new.npz", fingerprint="declared:b")
    path = storage.save(
        EmbeddingSet(new.vectors, new.ids, "declared:c", Lorentz(16, 1.0)), tmp_path / "new.safetensors"
    )
    said = fails("adapt", "--old", good / "old.npz", "--new", path, "--out", tmp_path / "out")
    assert "The new embeddings are on the Lorentz space" in said and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--adapter", "rigde"], "Did you mean 'ridge'?"),
        (["--adapter", "ridge", "ridge"], "each adapter once"),
        (["--adapter", "ridge", "--adapter-options.penalti", "1"], "Did you mean 'penalty'?"),
        (["--adapter", "ridge", "local", "--adapter-options.penalty", "1"], "--adapter-options.ridge.OPTION"),
        (["--adapter", "ridge", "--adapter-options.direction", "old_to_new"], "one direction for all adapters"),
        (["--adapter", "ridge", "mean_drift"], "--adapter mean_drift for models of 12 and 16 dimensions"),
        (["--adapter-options.penalty", "1"], "--adapter-options without --adapter"),
        (["--method-options.weight", "1"], "--method-options without --method"),
        (["--method", "p2z"], "Did you mean 'p2s'?"),
        (["--method", "cvs"], "--method cvs, which learns in sessions"),
        (["--method", "p2s", "--method-options.wait", "1"], "no option 'wait'"),
        (["--method", "p2s", "--direction", "old_to_new"], "--direction was given with heads alone"),
        (["--adapter", "ridge", "--recipe.epochs", "3"], "--recipe was given with adapters alone"),
        (["--adapter", "ridge", "--projection", "mlp"], "--projection was given with adapters alone"),
        (["--projection", "mlp"], "--projection was given without --method"),
        (["--unseen-share", "1"], "unseen_share=1.0"),
        (["--head", "arcfaze"], "Did you mean 'arcface'?"),
        (["--recipe.augmentation.flip", "true"], "random changes of images do not go through vectors"),
        (["--recipe.epochs", "0"], "epochs=0"),
        (["--resamples", "0"], "--resamples 0"),
        (["--direction", "sideways"], "sideways"),
        (["--threshold", "inf"], "inf"),
        (["--seed", "-1"], "seed=-1"),
        (["--texts", "clinc150"], "--texts, but no model to embed them"),
        (["--role", "query"], "--role was given without --texts"),
        (["--data-options.label_column", "x"], "--data-options was given without --texts"),
        (["--model-options.truncate-dim", "4"], "--model-options with vectors of the new model"),
        (["--old", "package:wordllama"], "package:wordllama without --texts"),
        (["--old", "release:head"], "names no model of texts"),
    ],
)
def test_options_that_do_not_go_together(fails: Fails, good: Path, tmp_path, words: list[str], message: str) -> None:
    said = fails(*sides(good), *words, "--out", tmp_path / "out")
    assert message in said and "Traceback" not in said and not (tmp_path / "out").exists()


def test_sides_that_were_not_given(fails: Fails, good: Path, tmp_path: Path) -> None:
    out, old, new = ["--out", tmp_path / "out"], ["--old", good / "old.npz"], ["--new", good / "new.npz"]
    assert "--old requires an argument" in fails("adapt", *new, *out)
    assert "--new requires an argument" in fails("adapt", *old, *out)
    assert "package:wordllama without --texts" in fails("adapt", *old, "--new", "package:wordllama", *out)
    texts = ["--texts", tmp_path / "no.csv", "--new", "package:wordllama"]
    assert "There is no file" in fails("adapt", *old, *texts, *out)
    said = fails("adapt", *texts, "--old", "package:wordllama", "--old-name", "a", *out)
    assert "--old-name with --old package:wordllama" in said
    assert not (tmp_path / "out").exists()


def test_heads_need_labels(fails: Fails, mine: Path, capsys, tmp_path: Path) -> None:
    rewritten(mine / "old.npz", labels=None)
    said = fails(*sides(mine), "--method", "p2s", "--out", tmp_path / "out")
    assert "--method p2s for items without labels" in said and not (tmp_path / "out").exists()
    for option in (["--recipe.epochs", 3], ["--unseen-share", 0.3], ["--head", "arcface"]):
        assert "for items without labels" in fails(*sides(mine), *option, "--out", tmp_path / "out")
    found = run(capsys, *sides(mine), *RIDGE, "--out", tmp_path / "out", code=3)  # unknown without labels
    assert found["recommendation"]["action"] == "adapt" and (tmp_path / "out" / "adapter").exists()
    assert found["protocol"]["metric"] == "overlap@10" and not found["data"]["labelled"]
    assert "agreement with re-embedding, not correctness" in found["recommendation"]["sentences"][-1]


def test_labels_may_come_with_the_new_side(capsys, mine: Path, linked: Path, tmp_path: Path) -> None:
    labels = np.load(mine / "old.npz")["labels"]
    rewritten(mine / "old.npz", labels=None), rewritten(mine / "new.npz", labels=labels)
    found = run(capsys, *sides(mine), *RIDGE, *NAMED, "--out", tmp_path / "out")
    assert found["candidates"][0]["cross"] == AdaptResults.load(linked).to_dict()["candidates"][0]["cross"]


def test_the_folder_of_another_run_is_kept(fails: Fails, linked: Path, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in linked.rglob("*") if file.is_file()}
    said = fails("adapt", "--old", "never read", "--new", "never read", "--out", linked)
    assert "holds the adapter of an earlier run" in said and str(linked / "adapter") in said
    assert before == {file: file.read_bytes() for file in linked.rglob("*") if file.is_file()}
    (tmp_path / "file").write_text("")
    assert "is a file" in fails("adapt", "--old", "a", "--new", "b", "--out", tmp_path / "file")


def test_results_are_one_document_and_what_the_page_shows(capsys, good: Path, tmp_path: Path) -> None:
    found = run(capsys, *sides(good), *WITH_PAGE, "--out", tmp_path / "out")
    results = AdaptResults.load(tmp_path / "out")
    assert {key: value for key, value in found.items() if key not in ("saved", "asked_thresholds")} == results.to_dict()
    assert found["asked_thresholds"] == [] and found["saved"] == str(tmp_path / "out" / "adapter")
    page = " ".join(re.sub(r"<[^>]*>", " ", (tmp_path / "out" / "report.html").read_text()).split())
    _, rows = adapt_table(results)
    for cell in (cell for row in rows for cell in row):
        assert " ".join(cell.split()) in page
    assert " ".join(adapt_headline(results).split()) in page and results.data.sentences[0] in page


def test_people_see_the_same_numbers_and_how_to_go_on(capsys, good: Path, tmp_path: Path) -> None:
    said = told(capsys, *sides(good), *RIDGE, "--out", tmp_path / "out")
    results = AdaptResults.load(tmp_path / "out")
    _, rows = adapt_table(results)
    assert all(row[0] in said and row[2] in said for row in rows) and adapt_headline(results) in said
    assert all(sentence in said for sentence in results.recommendation.sentences)
    assert (
        f"results  {tmp_path / 'out' / 'results.json'}" in said and f"saved    {tmp_path / 'out' / 'adapter'}" in said
    )


def test_settings_in_a_file_do_the_same_again(capsys, linked: Path, tmp_path: Path) -> None:
    settings = tomllib.loads((linked / "adapt.toml").read_text())["adapt"]
    assert (settings["old-name"], settings["resamples"], settings["threshold"]) == ("a", 200, [0.5, 7.0])
    again = run(capsys, "adapt", "--config", linked / "adapt.toml", "--out", tmp_path / "again")
    first = AdaptResults.load(linked).to_dict()
    for results in (first, again):
        for one in results["candidates"]:
            del one["seconds"]
    same = [key for key in first if key != "recommendation"]  # which tells how long it took
    assert {key: again[key] for key in same} == {key: first[key] for key in same}
    assert load_adapter(linked / "adapter").fingerprint == load_adapter(tmp_path / "again" / "adapter").fingerprint


def test_thresholds_are_told_and_one_outside_loses_nothing(capsys, good: Path, tmp_path: Path) -> None:
    words = [*sides(good), *RIDGE, "--threshold", "0.5", "7", "0.2"]
    found = run(capsys, *words, "--out", tmp_path / "a")
    inside, outside, low = found["asked_thresholds"]
    known = AdaptResults.load(tmp_path / "a").thresholds
    assert inside == known.at(0.5).to_dict() and low == known.at(0.2).to_dict()
    assert (outside["old"], outside["new"]) == (7, None) and outside["problem"].startswith("expected one from ")
    assert found["saved"] is not None
    said = " ".join(told(capsys, *words, "--out", tmp_path / "b").split())
    assert f"A threshold of 0.5 on old scores becomes {inside['new']:.4g} [" in said and "of them are relevant" in said
    assert f"There is no new threshold for 7: {outside['problem']}." in said
    assert (tmp_path / "b" / "results.json").exists() and (tmp_path / "b" / "adapter" / "config.json").exists()


def test_scores_without_relation_have_no_thresholds(capsys, mine: Path, tmp_path: Path) -> None:
    ones = np.ones((300, 12), np.float32)
    rewritten(mine / "old.npz", vectors=ones)
    found = run(capsys, *sides(mine), *RIDGE, "--threshold", "0.5", "--out", tmp_path / "out", code=1)
    assert "bear no relation" in found["asked_thresholds"][0]["problem"]
    assert found["thresholds"] is None and not (tmp_path / "out" / "score_map.json").exists()


def test_candidates_that_fail_are_told_with_the_reason(capsys, good: Path, tmp_path: Path) -> None:
    words = ["--adapter", "ridge", "low_rank", "--adapter-options.low_rank.rank", "99", "--resamples", "100"]
    said = told(capsys, *sides(good), *words, "--out", tmp_path / "out")
    results = AdaptResults.load(tmp_path / "out")
    assert len(failures(results)) == 2 and all(line in said for line in failures(results))
    assert "low_rank failed: low_rank was given rank=99 Expected: at most 12" in said
    said = told(
        capsys, *sides(good), "--adapter", "low_rank", "--adapter-options.rank", "99", "--out", tmp_path / "b", code=1
    )
    assert "Every candidate failed" in said and not (tmp_path / "b" / "adapter").exists()


def typed(said: str, **words: object) -> list[str]:
    """Return the command that was said to come next, with its capital words filled in."""
    (line,) = (line for line in said.splitlines() if line.startswith("next"))
    command = shlex.split(line)[2:]
    assert line.split()[1] == "limpet"
    return [str(words.get(word, word)) for word in command]


@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
def test_the_next_command_does_what_it_says(capsys, good: Path, planted: Plant, tmp_path: Path, direction: str) -> None:
    words = ["--adapter", "ridge", "--direction", direction, "--resamples", "100", "--report", "none"]
    said = told(capsys, *sides(good), *words, "--old-name", "the old one", "--out", tmp_path / "my out")
    fresh, mapped = planted(tmp_path / "fresh", seed=2), tmp_path / "mapped"
    (fresh / "new.npz").replace(good / "queries.npz")
    new_side = direction == "new_to_old"
    given = good / "queries.npz" if new_side else fresh / "old.npz"
    command = typed(said, **{"NEW_QUERIES" if new_side else "OLD_GALLERY": given, "DIR": mapped})
    assert main(command) == 0
    adapter = load_adapter(tmp_path / "my out" / "adapter")
    found = storage.load(mapped / "adapter" / "embeddings.safetensors")
    assert adapter.direction == direction and found.fingerprint == adapter.mapped_fingerprint
    assert found.dim == (12 if new_side else 16)


def test_names_are_printed_as_they_are_and_differ(capsys, mine: Path, tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        shutil.copy(mine / f"{side}.npz", tmp_path / side / "vectors.npz")
    given = ["adapt", "--old", tmp_path / "old" / "vectors.npz", "--new", tmp_path / "new" / "vectors.npz"]
    title = run(capsys, *given, *RIDGE, "--out", tmp_path / "a")["title"]
    assert title == f"Can {given[4]} search what {given[2]} embedded?"
    said = told(capsys, *given, *RIDGE, "--old-name", "x:a:", "--new-name", "y", "--out", tmp_path / ":b:")
    assert "Can y search what x:a: embedded?" in said.replace("🅰", ":a:") and f"{tmp_path / ':b:'}" in said


def of_texts(root: Path) -> list[object]:
    return ["adapt", "--texts", root / "requests.csv", "--old", root / "old.npz", "--new", "package:wordllama",
            "--model-options.truncate-dim", "32", "--adapter", "procrustes", "--direction", "new_to_old",
            "--report", "none"]  # fmt: skip


def test_texts_are_embedded_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, requests: Path, tmp_path: Path
) -> None:
    words, out = of_texts(requests), tmp_path / "out"
    first = run(capsys, *words, "--out", out)
    assert first["data"]["name"] == "requests" and first["models"]["new"]["dim"] == 32
    assert first["recommendation"]["action"] == "adapt" and len(list((out / "cache").iterdir())) == 1
    shutil.rmtree(out / "adapter")

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("embedded again")

    monkeypatch.setattr(TextEncoder, "encode", never)
    second = run(capsys, *words, "--out", out)
    assert second["candidates"][0]["cross"] == first["candidates"][0]["cross"]
    with pytest.raises(AssertionError, match="embedded again"):
        main([*map(str, words), "--out", str(tmp_path / "other")])


def test_texts_of_one_model_under_two_truncations(capsys, fails: Fails, requests: Path, tmp_path: Path) -> None:
    words = [
        "adapt",
        "--texts",
        requests / "requests.csv",
        "--old",
        "package:wordllama",
        "--new",
        "package:wordllama",
        "--out",
    ]
    assert "these are the same model" in fails(*words, tmp_path / "same")
    capsys.readouterr()
    code = main([*map(str, [*words, tmp_path / "out", "--model-options.truncate-dim", "32", *RIDGE]), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["title"] == "Can wordllama (32 dimensions) search what wordllama (256 dimensions) embedded?"
    assert code == 1 and found["recommendation"]["action"] == "keep the old model" and found["saved"] is None


def test_results_hold_the_texts_that_a_model_cuts(requests: Path, tmp_path: Path) -> None:
    words = [*of_texts(requests), "--model-options.max-length", "3", "--out", tmp_path / "out"]
    assert main([*map(str, words)]) in (0, 1)  # so short, the texts may say too little
    results = AdaptResults.load(tmp_path / "out")
    [told] = results.long_texts
    assert (told.limit, told.on_long) == (3, "warn") and 0 < told.long <= told.read == results.data.pairs
    assert told.sentence in html.unescape(render_adapt_report(results))


def test_the_next_command_for_texts_opens_the_same_model(
    capsys: pytest.CaptureFixture[str], requests: Path, tmp_path: Path
) -> None:
    said = told(capsys, *of_texts(requests), "--out", tmp_path / "out")
    (tmp_path / "queries.txt").write_text("is it raining\nplay a song\n")
    command = typed(said, QUERIES=tmp_path / "queries.txt", DIR=tmp_path / "mapped")
    assert "--model-options.truncate-dim" in command and main(command) == 0
    found = storage.load(tmp_path / "mapped" / "adapter" / "embeddings.safetensors")
    assert (len(found), found.role) == (2, "query")
    words = ["--model", "package:wordllama", "--model-options.truncate-dim", 32, "--role", "query"]
    words += ["--out", tmp_path / "queries"]
    run(capsys, "embed", "texts", tmp_path / "queries.txt", *words)
    raw = storage.load(tmp_path / "queries" / "wordllama" / "embeddings.safetensors")
    mapped = open_link(tmp_path / "out" / "adapter").query(raw)
    np.testing.assert_array_equal(mapped.vectors, found.vectors)
    assert mapped.fingerprint == found.fingerprint


def test_what_an_interrupted_run_left_is_found_before_anything_is_computed(
    fails: Fails, mine: Path, tmp_path: Path
) -> None:
    (tmp_path / "out" / "head").mkdir(parents=True)
    (tmp_path / "out" / "head" / "checkpoint.safetensors").touch()
    said = fails(*sides(mine), *RIDGE, "--out", tmp_path / "out")
    assert "holds the head of an earlier run" in said and not (tmp_path / "out" / "results.json").exists()


def test_stored_embeddings_take_no_options_of_other_sources(fails: Fails, mine: Path, tmp_path: Path) -> None:
    for option in (["--batch-size", 7], ["--device", "cpu:1"], ["--data-options.label_column", "z"]):
        words = ["stored", mine / "new.npz", "--model", "adapter:nowhere", *option, "--out", tmp_path / "out"]
        assert f"Unknown option: {option[0].partition('.')[0]}" in fails("embed", *words)


def test_what_other_code_made_is_said_to_be_and_made_anew_when_asked(
    capsys: pytest.CaptureFixture[str], fails: Fails, linked: Path, good: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = Path(shutil.copytree(linked, tmp_path / "out"))
    words = [*sides(good), *RIDGE, *NAMED, "--out", out]
    for more in ([], ["--again"]):
        said = fails(*words, *more)
        assert "holds the adapter of an earlier run." in said and "--again" not in said, "today's code made it"
    versions = json.loads((out / "adapter" / "config.json").read_text())["versions"]
    monkeypatch.setattr(adapter_storage, "_code_of_limpet", lambda module: "changed")
    said = fails(*words)
    assert "of an earlier run, made by other code than that of today" in said and "--again" in said
    told(capsys, *words, "--again")
    assert (out / "adapter.before-1" / "config.json").read_bytes() == (linked / "adapter" / "config.json").read_bytes()
    anew = json.loads((out / "adapter" / "config.json").read_text())["versions"]
    assert anew["code"] != versions["code"] and load_adapter(out / "adapter").fingerprint
    assert "--again" not in fails(*words)


def test_an_unfinished_head_is_put_beside_once_all_options_are_known_to_be_right(
    capsys: pytest.CaptureFixture[str], fails: Fails, mine: Path, tmp_path: Path
) -> None:
    head = tmp_path / "out" / "head"
    head.mkdir(parents=True)
    (head / "checkpoint.safetensors").touch()
    words = [*sides(mine), *RIDGE, *NAMED, "--out", tmp_path / "out", "--again"]
    fails(*words, "--guard", "recal@1")
    assert (head / "checkpoint.safetensors").exists()
    assert "head.before-1" in told(capsys, *words)
    assert not head.exists() and (tmp_path / "out" / "head.before-1" / "checkpoint.safetensors").exists()


GALLERY = ["--adapter", "ridge", "--direction", "old_to_new", "--resamples", "200"]


def judge(folder: Path, items: int = 60) -> tuple[list[object], Path]:
    """Write queries, copies of some items by both models, and judgements: other items of their class answer them."""
    found = {side: dict(np.load(folder / f"{side}.npz")) for side in ("old", "new")}
    for side in ("old", "new"):
        np.savez(folder / f"{side}-queries.npz", vectors=found[side]["vectors"][:items],
                 ids=np.array([f"q{row}" for row in range(items)]))  # fmt: skip
    labels, ids = found["old"]["labels"], found["old"]["ids"]
    rows = [(f"q{row}", ids[item], 2 if item % 2 else 1, item == row) for row in range(items)
            for item in np.flatnonzero(labels == labels[row])]  # fmt: skip
    path = folder / "relevant.csv"
    path.write_text("\n".join(["query,item,grade,ignore", *(",".join(map(str, row)) for row in rows)]) + "\n")
    words = ["--old-queries", folder / "old-queries.npz", "--new-queries", folder / "new-queries.npz"]
    return [*words, "--relevant", path], path


def test_judged_queries_measure_without_labels(capsys: pytest.CaptureFixture[str], mine: Path, tmp_path: Path) -> None:
    asked, _ = judge(mine)
    rewritten(mine / "old.npz", labels=None)
    provisional = run(capsys, *sides(mine), *GALLERY, *NAMED, "--out", tmp_path / "alone", code=3)
    assert provisional["protocol"]["provisional"] and provisional["protocol"]["metric"] == "overlap@10"
    page = (tmp_path / "alone" / "report.html").read_text()
    assert "Provisional: without labels or judged queries" in page and "overlap@10, provisional" in page
    found = run(capsys, *sides(mine), *GALLERY, *NAMED, *asked, "--out", tmp_path / "out")
    assert (found["protocol"]["metric"], found["protocol"]["judged"]) == ("ndcg@10", 60)
    assert not found["protocol"]["provisional"] and not found["data"]["labelled"]
    assert found["recommendation"]["action"] == "adapt" and found["protocol"]["fitted_on"] == 300
    page = (tmp_path / "out" / "report.html").read_text()
    assert "rovisional" not in page and "60 judged queries search 300 items" in page
    assert AdaptResults.load(tmp_path / "out").answered


def test_judged_queries_that_do_not_fit(fails: Fails, mine: Path, tmp_path: Path) -> None:
    asked, path = judge(mine)
    words = [*sides(mine), *RIDGE, *NAMED, "--out", tmp_path / "out"]
    assert "--relevant without queries" in fails(*words, "--relevant", path)
    assert "--old-queries without --relevant" in fails(*words, *asked[:2])
    assert "--old-queries EMBEDDINGS" in fails(*words, *asked[2:])
    assert "--unseen-share with --relevant" in fails(*words, *asked, "--unseen-share", "0.3")
    np.savez(mine / "new-queries.npz", vectors=np.eye(16, dtype=np.float32), ids=np.arange(16).astype(str))
    assert "None of the 60 queries" in fails(*words, *asked)


def test_queries_of_texts_are_embedded_as_queries(
    capsys: pytest.CaptureFixture[str], requests: Path, tmp_path: Path
) -> None:
    rows = (requests / "requests.csv").read_text().splitlines()[1:41]
    queries = tmp_path / "queries.csv"
    queries.write_text("\n".join(["id,text", *(f"q{n},{row.rpartition(',')[0]}" for n, row in enumerate(rows))]) + "\n")
    old = storage.from_npz(requests / "old.npz", fingerprint="declared:old")
    np.savez(tmp_path / "old-queries.npz", vectors=old.vectors[:40], ids=np.array([f"q{n}" for n in range(40)]))
    relevant = tmp_path / "relevant.csv"
    relevant.write_text("query,item\n" + "".join(f"q{n},{old.ids[m]}\n" for n in range(40) for m in (n, n + 1)))
    asked = ["--queries", queries, "--old-queries", tmp_path / "old-queries.npz", "--relevant", relevant]
    found = run(capsys, *of_texts(requests), *asked, "--out", tmp_path / "out", code=1)
    assert found["protocol"]["judged"] == 40 and found["protocol"]["metric"] == "ndcg@10"
