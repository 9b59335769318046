"""Wrong files, options and ground truths for ``limpet evaluate``: what was given, what was expected, what to type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from limpet.cli import main
from limpet.embeddings import EmbeddingSet, storage
from limpet.evaluation.results import EvaluationResults
from limpet.geometry import Hypersphere

ITEMS, DIM = 40, 8
LABELS = np.arange(ITEMS) % 5
IDS = np.array([f"i{row}" for row in range(ITEMS)])
QUICK = ("--resamples", "50", "--curve", "no", "--report", "none")

Fails = Callable[..., str]


def vectors(model: int, dim: int = DIM) -> NDArray[np.float32]:
    centres = np.random.default_rng(0).normal(size=(5, dim))
    noise = np.random.default_rng(model).normal(size=(ITEMS, dim))
    return (centres[LABELS] + 0.5 * noise).astype(np.float32)


def parquet(path: Path, rows: slice, model: int) -> None:
    vector = pa.array(list(vectors(model)[rows]), pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": IDS[rows].tolist(), "vector": vector, "label": LABELS[rows]}), path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder with good and bad files; never changed by a test."""
    folder = tmp_path_factory.mktemp("files")

    def npz(name: str, array: NDArray[Any], **other: Any) -> None:
        arrays = {"ids": IDS, "labels": LABELS, **other}
        np.savez(folder / name, vectors=array, **{key: value for key, value in arrays.items() if value is not None})

    new = vectors(2)
    broken, zero, tiny = new.copy(), new.copy(), new.copy()
    broken[3, 1], zero[3], tiny[3] = np.nan, 0, new[3] * np.float32(1e-20)
    npz("old", vectors(1))
    npz("new", new)
    npz("wide", vectors(2, 12))
    npz("broken", broken)
    npz("zero", zero)
    npz("tiny", tiny)
    npz("huge", new * np.float32(1e30))
    npz("twice", new, ids=np.array(["i0", *IDS[:-1]]))
    npz("fewer", new[:9], ids=IDS[:9], labels=LABELS[:9])
    npz("others", new, ids=np.arange(ITEMS))
    npz("relabelled", new, labels=(LABELS + 1) % 5)
    np.savez(folder / "named.npz", embedding=vectors(1), key=IDS, labels=LABELS)
    np.savez(folder / "unnamed.npz", item=IDS, kind=LABELS)
    table = {"sku": IDS.tolist(), "emb": list(new), "id": np.arange(ITEMS), "kind": LABELS.astype(str).tolist()}
    pq.write_table(pa.table({**table, "emb": pa.array(table["emb"], pa.list_(pa.float32()))}), folder / "named.parquet")
    npz("numbers", vectors(1), labels=LABELS + 7)  # 7 to 11, which texts sort as "10", "11", "7", ...
    npz("texts", new, labels=(LABELS + 7).astype(str))
    npz("text_relabelled", new, labels=np.array(["a", *LABELS[1:].astype(str)]))
    npz("short", new, labels=LABELS[:5])
    npz("none", new[:0], ids=IDS[:0], labels=LABELS[:0])
    npz("whole", new.astype(np.int8))
    npz("unlabelled", new, labels=None)
    npz("unlabelled_old", vectors(1), labels=None)
    (folder / "text.npz").write_text("hello")
    (folder / "nothing.npz").write_bytes(b"")
    for name, model in (("old", 1), ("new", 2)):
        fingerprint = f"release:{'ab'[model - 1] * 64}"
        made = EmbeddingSet(vectors(model), IDS.tolist(), fingerprint, Hypersphere(DIM), labels=LABELS)
        storage.save(made, folder / f"{name}.safetensors")
        (folder / f"{name}_parts").mkdir()
        for part in range(2):
            parquet(folder / f"{name}_parts" / f"{part}.parquet", slice(part * 20, part * 20 + 20), model)
    (folder / "empty").mkdir()
    for name, text in {
        "pairs": "query,item\n" + "".join(f"i{row},i{row + 5}\n" for row in range(30)),
        "absent": "query,item\ni0,i5\ni1,zzz\n",
        "columns": "q,doc\ni0,i5\n",
        "repeated": "query,item,item\ni0,i5,i6\n",
        "header": "query,item\n",
        "blank": "",
        "double": "query,item\ni0,i5\ni0,i5\n",
        "flags": "query,item,ignore\ni0,i5,maybe\n",
        "ignored": "query,item,ignore\ni0,i5,true\n",
    }.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.fixture
def refused(files: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fails:
    """Run ``limpet evaluate`` in the folder of files; it must end with exit code 2 and write no results."""
    monkeypatch.chdir(files)

    def run(*words: str) -> str:
        said = fails("evaluate", *QUICK, *words, "--out", tmp_path / "out")
        assert not (tmp_path / "out" / "results.json").exists()
        return said

    return run


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("wide.npz", "hypersphere of dimension 12, the gallery on the hypersphere of dimension 8"),
        ("broken.npz", "1 of 40 vectors hold NaN or infinite values, first: 'i3'"),
        ("zero.npz", "Expected: no zero vectors"),
        ("tiny.npz", "1 of 40 vectors are no points"),
        ("huge.npz", "lengths from 1e-18 to 1e19"),
        ("twice.npz", "occur more than once: 'i0'"),
        ("fewer.npz", "31 items of the old queries are not in the new queries: 'i9', 'i10', 'i11' and 28 more"),
        ("others.npz", "'i0', 'i1', 'i2' and 37 more; there are '0', '1', '2' and 37 more"),
        (
            "relabelled.npz",
            "40 items have different labels in two sets: 'i0', 'i1', 'i2' and 37 more; the first is 0 in",
        ),
        (
            "text_relabelled.npz",
            "1 items have different labels in two sets: 'i0'; the first is 0 in one of them and 'a'",
        ),
        ("short.npz", "40 vectors, 40 ids, 5 labels"),
        ("none.npz", "empty. Expected: at least one item"),
        ("whole.npz", "are int8"),
        ("text.npz", "'text.npz' is a text file. Expected: embeddings: what `limpet embed` wrote, or a .npz"),
        ("nothing.npz", "'nothing.npz' is empty. Expected: embeddings"),
        ("missing.npz", "There is no 'missing.npz'"),
        ("items.parquet?id=sku", "Next: write it as a URL, 'parquet:items.parquet?id=sku'"),
        ("empty", "The folder 'empty' holds nothing. Expected: embeddings.safetensors"),
        ("old.npz", "the same model"),
    ],
)
def test_embeddings_that_cannot_be_used(refused: Fails, file: str, said: str) -> None:
    assert said in refused("--old", "old.npz", "--new", file)


def test_vectors_ids_and_labels_may_have_other_names(files: Path, tmp_path: Path) -> None:
    def scores(old: Path, new: Path | str) -> list[Any]:
        assert main(["evaluate", "--old", str(old), "--new", str(new), *QUICK, "--out", str(tmp_path)]) in (
            0,
            1,
        )
        (record,) = json.loads((tmp_path / "results.json").read_text())["evaluations"].values()
        return [record[system] for system in ("self_old", "cross", "self_new")]

    usual = scores(files / "old.npz", files / "new.npz")
    url = f"parquet:{files / 'named.parquet'}?vector=emb&id=sku&label=kind"
    assert scores(files / "named.npz", url) == scores(files / "old.npz", url) == usual


@pytest.mark.parametrize("sides", [("numbers", "texts"), ("texts", "numbers")])
def test_labels_are_the_same_as_numbers_and_as_texts(files: Path, tmp_path: Path, sides: tuple[str, str]) -> None:
    def scores(old: str, new: str) -> list[Any]:
        words = ["evaluate", "--old", files / f"{old}.npz", "--new", files / f"{new}.npz", *QUICK, "--out", tmp_path]
        assert main([*map(str, words)]) in (0, 1)
        (record,) = json.loads((tmp_path / "results.json").read_text())["evaluations"].values()
        return [record[system] for system in ("self_old", "cross", "self_new")]

    plain = {"numbers": "old", "texts": "new"}
    assert scores(*sides) == scores(*(plain[side] for side in sides))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--old old.npz", "No embeddings of the new model were given. Expected: --new PATH, or --new QUERIES"),
        ("--new new.npz", "No embeddings of the old model were given"),
        ("--old old.npz old.npz old.npz --new new.npz", "--old was given 3 places"),
        ("--old old.npz --new new.npz fewer.npz", "follow different protocols"),
        ("--old old.npz --new new.npz --old-name m --new-name m", "declared:m: these are the same model"),
        ("--old old.safetensors --new new.safetensors --similarity cosine", "Next: leave --similarity out"),
        ("--old unnamed.npz --new new.npz", "has arrays item, kind. Expected: an array 'vectors'"),
        ("--old parquet:named.parquet?vector=enb --new new.npz", "Did you mean 'emb'?"),
        ("--old old.safetensors --new new.safetensors --new-name x", "Next: leave the name out"),
        ("--old old.npz --new new.npz --link empty", "'empty' is no adapter"),
        ("--old old.npz --new new.npz --similarity cosin", 'Did you mean "cosine"?'),
        ("--old old.npz --new new.npz --curve never", 'for --curve. Choose from: "auto", "yes", "no"'),
        ("--old old.npz --new new.npz --device nonsense", "The device 'nonsense' cannot be used"),
        ("--old old.npz --new new.npz --device meta", "The device 'meta' cannot be used"),
        ("--old old.npz --new new.npz --device vulkan", "from the 'Vulkan' backend Expected: cpu, or an accelerator"),
        ("--old old.npz --new new.npz --resamples 0", "--resamples 0. Expected: at least 40"),
    ],
)
def test_options_that_do_not_fit(refused: Fails, words: str, said: str) -> None:
    assert said in refused(*words.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--protocol label", "Did you mean 'labels'?"),
        ("--protocol-options.leave-one-outt true", "Did you mean 'leave_one_out'?"),
        ("--protocol-options.leave-one-out 7", "'leave_one_out' of the protocol 'labels' is 7"),
        ("--metrics recal@1", "Did you mean 'recall@1'?"),
        ("--metrics tar@1e-4", "Unknown metric 'tar@1e-4'"),
        ("--gate-metric recall@0", "with a whole number from 1 for k"),
        ("--ground-truth pairs.csv", "Expected: no ground truth"),
        ("--protocol revisited", "Next: pass --ground-truth PATH"),
        ("--protocol ijbc-verification --ground-truth empty", "No lists of IJB-C in empty"),
        ("--protocol gldv2 --ground-truth columns.csv", "Expected: lines of id,images,Usage"),
        ("--protocol market1501", "needs the column 'camera'"),
        ("--relevant pairs.csv --protocol labels", "--relevant PAIRS alone"),
        ("--relevant absent.csv", "1 items ('zzz')"),
        ("--relevant absent.csv", "--protocol-options.unknown leave-out"),
        ("--relevant columns.csv", "has the columns q, doc. Expected: the columns query and item"),
        ("--relevant repeated.csv", "has the columns query, item, item. Expected: the columns query and item, once"),
        ("--relevant header.csv", "'header.csv' has no row"),
        ("--relevant blank.csv", "Cannot read 'blank.csv'"),
        ("--relevant double.csv", "1 pairs are there before: 'i0 - i5'"),
        ("--relevant flags.csv", "says 'maybe'. Expected: true or false"),
        ("--relevant ignored.csv", "or a ground truth that names items to be found"),
        ("--relevant missing.csv", "There is no file 'missing.csv'"),
        ("--relevant old.npz", "is no .csv or .parquet file"),
    ],
)
def test_protocols_and_ground_truths_that_do_not_fit(refused: Fails, words: str, said: str) -> None:
    assert said in refused("--old", "old.npz", "--new", "new.npz", *words.split())


def test_labels_on_one_side_only(refused: Fails) -> None:
    said = refused(
        "--old", "old.npz", "unlabelled_old.npz", "--new", "new.npz",
        "unlabelled.npz", "--protocol", "gldv2",
    )  # fmt: skip
    assert "Neither labels of the gallery nor a solution say which images answer" in said


def measured(files: Path, out: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    given = [str(files / word) if (files / word).exists() else word for word in words]
    assert main(["evaluate", *given, *QUICK, "--out", str(out), "--json"]) in (0, 1, 3)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_folder_of_parquet_files_is_one_set(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = measured(files, tmp_path, capsys, "--old", "old_parts", "--new", "new_parts")
    whole = measured(files, tmp_path, capsys, "--old", "old.npz", "--new", "new.npz")
    assert parts["cross"] == whole["cross"]


@pytest.mark.parametrize("protocol", [["--protocol", "gldv2"], ["--relevant", "pairs.csv"]])
def test_no_query_of_one_set_finds_itself(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: list[str]
) -> None:
    """Every item is a query among all others, whoever answers it."""
    both = ["--old", "old.npz", "--new", "new.npz", *protocol, "--metrics", "recall@1"]
    found = measured(files, tmp_path, capsys, *both)
    rows = vectors(1) / np.linalg.norm(vectors(1), axis=1, keepdims=True)
    scores = rows @ rows.T
    np.fill_diagonal(scores, -np.inf)
    first = scores.argmax(axis=1)
    right = LABELS[first] == LABELS if "gldv2" in protocol else (first == np.arange(ITEMS) + 5)[:30]
    assert found["self_old"]["recall@1"] == pytest.approx(right.mean())
    assert found["protocol"]["leave_one_out"] is True


def test_mixed_galleries_are_measured_where_somebody_asks(files: Path, tmp_path: Path) -> None:
    words = ["evaluate", "--old", files / "old.npz", "--new", files / "new.npz", *QUICK, "--out", tmp_path]
    main([*map(str, words), "--mixing", "0.02"])
    found = EvaluationResults.load(tmp_path).only().mixing
    assert found is not None
    assert {(one.queries, one.tolerated) for one in found.meetings} == {("new", 0.0), ("old", 0.02)}
    main([*map(str, words)])
    assert EvaluationResults.load(tmp_path).only().mixing is None
    assert main([*map(str, words), "--mixing"]) == 2


def test_worker_processes_write_the_results_of_one_process(tmp_path: Path) -> None:
    """Rounded vectors, so that scores tie; the old model's are mapped from a file, the new one's are in memory."""
    names, labels = IDS.tolist(), LABELS
    old, new = (
        EmbeddingSet(np.rint(3 * vectors(model)) + 0.5, names, f"declared:{model}", Hypersphere(DIM), labels=labels)
        for model in (1, 2)
    )
    storage.save(old, tmp_path / "old.safetensors")
    np.savez(tmp_path / "new.npz", vectors=new.vectors, ids=IDS, labels=labels)
    given = ["--old", str(tmp_path / "old.safetensors"), "--new", str(tmp_path / "new.npz"), "--report", "none"]
    asked = {
        "evaluate": ["--mixing", "0.01", "--resamples", "50"],
        "adapt": ["--adapter", "ridge", "procrustes", "--resamples", "50"],
    }
    for command, options in asked.items():
        written = []
        for workers in ("1", "3"):
            main([command, *given, *options, "--workers", workers, "--out", str(tmp_path / command / workers)])
            text = (tmp_path / command / workers / "results.json").read_text()
            written.append(re.sub(r'"(command|seconds)": [^\n]*', "", text))  # the number of workers, and fitting times
        assert written[0] == written[1]
    assert main(["evaluate", *given, "--workers", "0", "--out", str(tmp_path / "none")]) == 2
