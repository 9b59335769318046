"""Chains of models and several test sets on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.cli import main
from limpet.embeddings import storage
from limpet.evaluation.chain import ChainResults
from limpet.evaluation.compatibility import compatibility_matrix
from limpet.evaluation.test_sets import CombinationResults

CLASSES, ITEMS, DIM = 10, 8, 10
NOISE = {"e1": 1.6, "e2": 1.2, "e3": 0.8, "worse": 1.7, "i2": 1.0, "i3": 0.6, "weak": 1.9}

WRONG_CELL = 'stroke="var(--bad)" stroke-width="2.6"'


def vectors(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng, own = np.random.default_rng(seed), np.random.default_rng(sum(map(ord, name)) + seed)
    labels = np.repeat(np.arange(CLASSES), ITEMS)
    centres, item = rng.normal(size=(CLASSES, DIM))[labels], rng.normal(size=(len(labels), DIM))
    found = centres + NOISE[name] * (0.9 * item + 0.5 * own.normal(size=item.shape))
    if name in ("i2", "i3", "weak"):
        found = found @ np.linalg.qr(np.random.default_rng(len(name)).normal(size=(DIM, DIM)))[0]
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per test set with a file per model."""
    root = tmp_path_factory.mktemp("chain")
    for seed, test_set in enumerate(("roxford", "rparis", "gldv2")):
        (root / test_set).mkdir()
        for name in NOISE:
            values, labels = vectors(name, seed)
            ids = np.array([f"{test_set}-{row}" for row in range(len(labels))])
            np.savez(root / test_set / f"{name}.npz", vectors=values, labels=labels, ids=ids)
    return root


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = main([*map(str, words), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def chain_words(files: Path, *names: str) -> list[object]:
    return ["evaluate", "chain", *(files / "roxford" / f"{name}.npz" for name in names), "--resamples", 100]


def test_a_compatible_chain(capsys, files: Path, tmp_path: Path) -> None:
    third = [files / "roxford" / f"{name}.npz" for name in ("i2", "i3")]
    words = [*chain_words(files, "e1", "e2", "e3"), "--independent", *third, "--out", tmp_path / "out"]
    code, found, said = run(capsys, *words)
    assert code == 0 and found["compatible"] and found["violations"] == 0 and found["models"] == ["e1", "e2", "e3"]
    opened = [
        storage.from_npz(files / "roxford" / f"{name}.npz", fingerprint=f"declared:{name}") for name in found["models"]
    ]
    expected = compatibility_matrix([(one, one) for one in opened], "map", exclude_same_id=True)
    assert np.array(found["matrix"], float) == pytest.approx(expected, nan_ok=True)
    assert found["p_comp"]["raw"]["own"][1][0] == found["p_comp"]["raw"]["independent"][1][0]
    assert ChainResults.load(tmp_path / "out").to_dict() == found
    assert said.index("the old model is the chain’s own") < said.index("the old model is the independent one")
    assert "Every newer model can search every older gallery." in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('stroke="var(--ink)" stroke-width="1.4"') == 2 * 3 and WRONG_CELL not in page
    assert "embeddings = [" in (tmp_path / "out" / "evaluate-chain.toml").read_text()


def test_a_violation_is_exit_code_1_and_told(capsys, files: Path, tmp_path: Path) -> None:
    words = [*chain_words(files, "e1", "e2", "e3", "worse"), "--gate-metric", "recall@1", "--out", tmp_path / "out"]
    code, found, said = run(capsys, *words)
    matrix = found["matrix"]
    wrong = [(i, j) for i in range(4) for j in range(i) if matrix[i][j] <= matrix[j][j]]
    assert code == 1 and wrong and found["violations"] == len(wrong) and found["metric"] == "recall@1"
    assert "not compatible" in said and "Queries of worse on the gallery of e3 score" in said
    assert (tmp_path / "out" / "report.html").read_text().count(WRONG_CELL) == 2 * len(wrong)


def test_what_is_not_defined_is_said_in_words(capsys, files: Path, tmp_path: Path) -> None:
    third = [files / "roxford" / f"{name}.npz" for name in ("i2", "weak")]
    words = [*chain_words(files, "e1", "e2", "e3"), "--independent", *third, "--out", tmp_path / "out"]
    code, found, said = run(capsys, *words)
    assert code == 0 and found["p_comp"]["sigmoid"]["own"][2][1] is None
    alone, old = found["independent_self"][2], found["matrix"][1][1]
    assert f"e3 on e2 ({alone:.3f} against {old:.3f})" in said
    assert "RuntimeWarning" not in said


def test_folders_of_embed_are_models_too(capsys, files: Path, tmp_path: Path) -> None:
    rows = np.arange(CLASSES * ITEMS)
    for name in ("e1", "e2"):
        made = storage.from_npz(files / "roxford" / f"{name}.npz", fingerprint=f"declared:{name}")
        (tmp_path / name).mkdir()
        storage.save(made[rows[rows % 4 == 0]], tmp_path / name / "query.safetensors")
        storage.save(made[rows[rows % 4 > 0]], tmp_path / name / "gallery.safetensors")
    both = ["evaluate", "chain", tmp_path / "e1", tmp_path / "e2"]
    code, found, _ = run(capsys, *both, "--out", tmp_path / "out")
    assert code == 0 and found["models"] == ["e1", "e2"] and found["protocol"]["queries"] == 20
    assert found["data"]["description"] == "queries and a gallery"
    alone = [*both, files / "roxford" / "e3.npz", "--out", tmp_path / "none"]
    code, error, _ = run(capsys, *alone)
    assert code == 2 and "'e1' and 'e3' follow different protocols" in error["error"]["given"]


@pytest.mark.parametrize(
    ("names", "more", "given"),
    [
        (["e1"], [], "1 model in a chain"),
        (["e1", "e1"], [], "e1.npz' was given twice"),
        (["e1", "e2"], ["--old", "x", "--metrics", "map"], "Unknown option: --old."),
        (["e1", "e2"], ["--curve", "no"], "Unknown option: --curve."),
        (["e1", "e2"], ["--gate-metric", "recal@1"], "recal@1"),
        (["e1", "nowhere"], [], "There is no"),
    ],
)
def test_bad_chains(capsys, files: Path, tmp_path: Path, names: list[str], more: list[str], given: str) -> None:
    code, found, _ = run(capsys, *chain_words(files, *names), *more, "--out", tmp_path / "out")
    assert code == 2 and given in found["error"]["given"]
    assert not (tmp_path / "out").exists()


def test_independent_models_of_other_number_or_other_items(capsys, files: Path, tmp_path: Path) -> None:
    words = [*chain_words(files, "e1", "e2", "e3"), "--out", tmp_path / "out", "--independent"]
    code, found, _ = run(capsys, *words, files / "roxford" / "i2.npz")
    assert code == 2 and found["error"]["given"] == "1 independent models for a chain of 3."
    others = [files / "rparis" / f"{name}.npz" for name in ("i2", "i3")]
    code, found, _ = run(capsys, *words, *others)
    assert (
        code == 2 and "80 items of the 'e1' queries are not in the independent 'e2' queries" in found["error"]["given"]
    )


# --- several test sets -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of e1 -> e2 beside i3 on every test set, the last by recall@1; and one of another model."""
    root = tmp_path_factory.mktemp("runs")

    def evaluate(test_set: str, folder: str, new: str = "e2", third: str = "i3", *more: str) -> None:
        words = ["evaluate", "--resamples", "100", "--curve", "no", "--report", "none", "--out", root / folder, *more]
        for option, name in (("old", "e1"), ("new", new), ("independent", third)):
            words += [f"--{option}", files / test_set / f"{name}.npz", f"--{option}-name", name]
        assert main([str(word) for word in words]) in (0, 1)

    evaluate("roxford", "roxford")
    evaluate("rparis", "rparis")
    evaluate("gldv2", "gldv2", "e2", "i3", "--gate-metric", "recall@1")
    evaluate("gldv2", "other", "e3")
    return root


def test_several_test_sets(capsys, runs: Path, tmp_path: Path) -> None:
    words = ["evaluate", "combine", *(runs / name for name in ("roxford", "rparis", "gldv2"))]
    code, found, said = run(capsys, *words, "--out", tmp_path / "all")
    records = {
        name: json.loads((runs / name / "results.json").read_text())["evaluations"]["e2"] for name in found["sets"]
    }
    assert [record["metric"] for record in found["sets"].values()] == ["map", "map", "recall@1"]
    for name, record in records.items():
        metric = record["gate_metric"]
        assert found["sets"][name]["p_comp"]["sigmoid"] == pytest.approx(record["p_comp"]["sigmoid"][metric])
        assert found["sets"][name]["verdict"] == record["verdict"]
    for key in ("p_up", "p_comp"):
        values = [record[key]["sigmoid"][record["gate_metric"]] for record in records.values()]
        assert found["mean"][key]["sigmoid"] == pytest.approx(np.mean(values))
        assert f"{100 * np.mean(values):.2f} [" in said
    verdicts = {record["verdict"] for record in records.values()}
    assert code == (0 if verdicts == {"compatible"} else 1) and found["compatible"] == (code == 0)
    assert CombinationResults.load(tmp_path / "all").to_dict() == found
    assert "roxford" in (tmp_path / "all" / "report.html").read_text()


def test_one_metric_for_all(capsys, runs: Path, tmp_path: Path) -> None:
    words = ["evaluate", "combine", runs / "rparis", runs / "gldv2" / "results.json", "--metric", "recall@5"]
    code, found, _ = run(capsys, *words, "--out", tmp_path / "all")
    assert {record["metric"] for record in found["sets"].values()} == {"recall@5"} and code in (0, 1)


def test_a_set_that_is_not_compatible_is_exit_code_1(capsys, files: Path, runs: Path, tmp_path: Path) -> None:
    names = ("roxford", "rparis")
    for name in names:
        words = ["evaluate", "--old", files / name / "e3.npz", "--new", files / name / "worse.npz", "--curve", "no"]
        words += ["--old-name", "e3", "--new-name", "worse", "--resamples", "50", "--report", "none"]
        assert main([*map(str, words), "--out", str(tmp_path / name)]) == 1
    code, found, said = run(
        capsys, "evaluate", "combine", *(tmp_path / name for name in names), "--out", tmp_path / "b"
    )
    assert code == 1 and not found["compatible"] and found["mean"]["p_score"] is None
    assert "not shown to be compatible on any of 2 test sets" in said and "No independent model was evaluated" in said


def test_without_labels_nothing_is_told(capsys, files: Path, tmp_path: Path) -> None:
    quick = ["--resamples", "50", "--report", "none", "--out"]
    for test_set in ("roxford", "rparis"):
        (tmp_path / test_set).mkdir()
        for name in ("e1", "e3"):
            with np.load(files / test_set / f"{name}.npz") as found:
                np.savez(tmp_path / test_set / f"{name}.npz", vectors=found["vectors"], ids=found["ids"])
        old, new = (tmp_path / test_set / f"{name}.npz" for name in ("e1", "e3"))
        words = ["evaluate", "--old", old, "--new", new, "--old-name", "e1", "--new-name", "e3", "--curve", "no"]
        assert run(capsys, *words, *quick, tmp_path / "out" / test_set)[0] == 3
    (tmp_path / "clicks.csv").write_text("query,item\n" + "".join(f"rparis-{row},rparis-0\n" for row in range(1, 40)))
    words = ["evaluate", "chain", old, new, "--relevant", tmp_path / "clicks.csv"]
    assert run(capsys, *words, *quick, tmp_path / "chain")[0] == 3


def test_what_cannot_be_combined(capsys, files: Path, runs: Path, tmp_path: Path) -> None:
    chain = tmp_path / "chained"
    run(capsys, *chain_words(files, "e1", "e2"), "--report", "none", "--out", chain)
    for words, given in (
        ([runs / "roxford"], "1 evaluations to combine"),
        ([runs / "roxford", runs / "roxford"], "was given twice"),
        (
            [runs / "roxford", runs / "other"],
            "'roxford' and 'other' have another new model: declared:e2 and declared:e3",
        ),
        ([runs / "roxford", runs / "rparis", "--metric", "tar@1e-4"], "was not measured in tar@1e-4"),
        ([runs / "roxford", runs / "rparis", "--old", "x"], "Unknown option: --old."),
        ([runs / "roxford", runs / "rparis", "--resamples", "9"], "Unknown option: --resamples."),
        ([runs / "roxford", chain], "results of the kind 'chain'"),
        ([runs / "roxford", tmp_path], "Cannot read"),
    ):
        code, found, _ = run(capsys, "evaluate", "combine", *words, "--out", tmp_path / "out")
        assert code == 2 and given in found["error"]["given"], found
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "altered",
    [
        {"self_new": None},
        {"cross": {"map": None}},
        {"mean_interval": {"self_new": {"map": [0.1, None]}}},
        {"interval": {"map": {"cross_minus_self_old": [None, 0.1]}}},
    ],
)
def test_undefined_numbers_cannot_be_combined(capsys, runs: Path, tmp_path: Path, altered: dict[str, Any]) -> None:
    document = json.loads((runs / "rparis" / "results.json").read_text())
    document["evaluations"]["e2"] |= altered
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "results.json").write_text(json.dumps(document))
    words = ["evaluate", "combine", runs / "roxford", tmp_path / "odd", "--out", tmp_path / "out"]
    code, found, _ = run(capsys, *words)
    assert code == 2 and "'odd' has a score or an interval in map that is not defined" in found["error"]["given"]
    assert not (tmp_path / "out").exists()


def test_results_never_replace_what_they_are_made_of(capsys, files: Path, runs: Path) -> None:
    before = (runs / "rparis" / "results.json").read_bytes()
    words = ["evaluate", "combine", runs / "roxford", runs / "rparis" / "results.json", "--out", runs / "rparis"]
    code, found, _ = run(capsys, *words)
    assert code == 2 and "over what is read there" in found["error"]["given"]
    assert (runs / "rparis" / "results.json").read_bytes() == before


def test_names_of_folders_may_be_numbers(capsys, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("e1", "e2"), start=1):
        Path(str(number)).mkdir()
        made = storage.from_npz(files / "roxford" / f"{name}.npz", fingerprint=f"declared:{name}")
        storage.save(made, tmp_path / str(number) / "embeddings.safetensors")
    code, found, _ = run(capsys, "evaluate", "chain", 1, 2, "--resamples", 20)
    assert code == 0 and found["models"] == ["1", "2"]


def test_the_smallest_effect_and_ties_are_in_results_of_a_chain(capsys, files: Path, tmp_path: Path) -> None:
    words = [*chain_words(files, "e1", "e2", "e3"), "--min-effect", "0.9", "--out", tmp_path / "out"]
    code, found, _ = run(capsys, *words)
    assert code == 1 and found["min_effect"] == 0.9 and found["violations"] == len(found["pairs"])
    assert set(found["ties"]["repeated"]) == {"e1", "e2", "e3"}
    assert "by more than 0.900" in (tmp_path / "out" / "report.html").read_text()
