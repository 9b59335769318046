"""The whole life of a gallery through its commands."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.groups import group_of, grouped
from limpet.adapters import build_adapter
from limpet.adapters.storage import save_adapter
from limpet.cli import main
from limpet.cli.program import COMMANDS
from limpet.embeddings import storage
from limpet.galleries import Gallery

Run = Callable[..., Any]

ITEMS = 120
V1, V2 = ("--name", "v1"), ("--name", "v2")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``limpet gallery`` with --json, and return what it printed for machines; ``said`` is for people."""

    def call(*words: object, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*grouped(words), "--json"]) == code
        captured = capsys.readouterr()
        call.said = " ".join(captured.err.split())  # type: ignore[attr-defined]
        return dict(json.loads(captured.out))

    return call


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """old.npz and new.npz of the same items in one space, and report/, which says that new queries may search old."""
    root, rng = tmp_path_factory.mktemp("vectors"), np.random.default_rng(0)
    labels = np.arange(ITEMS) % 6
    centres = rng.normal(size=(6, 8))
    ids = np.array([f"{row:03d}" for row in range(ITEMS)])  # numbers with leading zeros, which stay texts
    price = rng.uniform(0, 100, ITEMS)
    for name, noise in (("old", 1.0), ("new", 0.5)):
        points = (centres[labels] + noise * rng.normal(size=(ITEMS, 8))).astype(np.float32)
        np.savez(root / f"{name}.npz", ids=ids, vectors=points, labels=labels, price=price)
    words = ["evaluate", "--old", root / "old.npz", "--new", root / "new.npz", "--old-name", "v1", "--new-name", "v2"]
    assert main([str(word) for word in (*words, "--resamples", 200, "--out", root / "report")]) == 0
    return root


def part(vectors: Path, name: str, rows: slice, to: Path) -> Path:
    """Write some of the items to a file of their own."""
    with np.load(vectors / f"{name}.npz") as found:
        np.savez(to, **{key: found[key][rows] for key in found.files})
    return to


@pytest.mark.parametrize("kind", ["memory:", "lance:"])
def test_the_whole_life(kind: str, vectors: Path, tmp_path: Path, run: Run) -> None:
    url, place = f"{kind}{tmp_path / 'g'}", tmp_path / "g"
    old, new = vectors / "old.npz", vectors / "new.npz"
    made = run("create", url, "--embeddings", old, *V1)
    assert made["items"] == ITEMS and made["columns"] == {"label": "text", "price": "number"}
    assert run("status", place)["phase"] == "steady"

    assert (
        run("start", place, *V2, "--dim", 8, "--evidence", vectors / "report")["gallery"]["generations"]["new"] == "g2"
    )
    assert run("status", place)["generations"][1]["covered"] == ITEMS  # by the report
    assert run("swap", place)["serving"] == "new"
    done = run("backfill", place, "--model", new, *V2, "--budget", 50, "--batch", 20, "--order", "random")["done"]
    assert (done["written"], done["lacking"], done["stopped"]) == (50, 70, "budget")
    assert "70 items are left. The same command continues." in run.said

    found = run("search", place, "--queries", new, *V2, "--k", 3)
    assert (found["covered"], found["items"], found["merge"]) == (ITEMS, ITEMS, "score")
    hits = [hit for query in found["queries"] for hit in query["hits"]]
    assert {hit["generation"] for hit in hits} == {"g1", "g2"} and all(hit["metadata"]["label"] for hit in hits)
    assert {len(query["hits"]) for query in found["queries"]} == {3}

    assert run("delete", place, "--ids", "007", "nope") == {"deleted": 1, "unknown": ["nope"], "items": ITEMS - 1}
    again = part(vectors, "new", slice(0, 2), tmp_path / "two.npz")
    assert run("upsert", place, "--embeddings", again, *V2) == {"written": 2, "items": ITEMS - 1}
    assert run("rollback", place)["serving"] == "old"
    assert "2 items were written since and have vectors of g2 only" in run.said
    assert "queries of g1 do not find 2 of them" in run.said
    assert run("swap", place, "--force", "yes")["serving"] == "new"

    done = run("backfill", place, "--model", new, *V2)["done"]
    assert (done["lacking"], done["missing"], done["stopped"]) == (0, 0, "done")
    finished = run("finish", place)
    assert finished["stays"] == "declared:v2" and run("status", place)["phase"] == "steady"
    assert f"{ITEMS - 1} of {ITEMS - 1} items have a right vector" in finished["notes"][0]
    run("gc", place, "--older-than", 0)
    assert run("doctor", place)["healthy"]
    assert {hit["generation"] for query in run("search", place, "--queries", new, *V2)["queries"]
            for hit in query["hits"]} == {"g2"}  # fmt: skip
    kinds = [event["kind"] for event in run("log", place, "--last", 100)["log"]]
    assert kinds[:4] == ["create", "add", "start", "swap"] and "rollback" in kinds and "finish" in kinds
    assert [event["commit"] for event in run("log", place, "--last", 2)["log"]] == [
        len(kinds) - 1,
        len(kinds),
    ]

    assert run("export", place, "--out", tmp_path / "out.parquet")["items"] == ITEMS - 1
    copy = run("create", f"memory:{tmp_path / 'copy'}", "--embeddings", tmp_path / "out.parquet")
    assert (copy["fingerprint"], copy["items"]) == ("declared:v2", ITEMS - 1)


def test_a_vector_of_another_item_is_a_query(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", vectors / "old.npz", *V1)
    hits = run("search", tmp_path / "g", "--like", "006", "--k", 4)["queries"][0]["hits"]
    with np.load(vectors / "old.npz") as found:
        ids, points = list(found["ids"]), found["vectors"] / np.linalg.norm(found["vectors"], axis=1, keepdims=True)
    order = [ids[row] for row in np.argsort(-(points @ points[6]), kind="stable") if ids[row] != "006"]
    assert [hit["id"] for hit in hits] == order[:4]
    cheap = run("search", tmp_path / "g", "--like", "006", "--where", "price<20", "label=0")["queries"][0]["hits"]
    assert cheap and all(hit["metadata"]["price"] < 20 and hit["metadata"]["label"] == "0" for hit in cheap)


def test_ctrl_c_ends_a_backfill_after_its_batch(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", vectors / "old.npz", *V1)
    run("start", tmp_path / "g", *V2, "--dim", 8)
    words = ["backfill", tmp_path / "g", "--model", vectors / "new.npz", *V2, "--batch", "10"]
    typed = [sys.executable, "-m", "limpet", group_of(words), *map(str, words), "--rate", "40", "--json"]
    process = subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    with Gallery.open(str(tmp_path / "g")) as gallery:
        begin = time.monotonic()
        while not gallery.store.pointer().covered(["g2"]):
            assert process.poll() is None and time.monotonic() - begin < 120
            time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=120)
    stopped = json.loads(printed)["done"]
    assert process.returncode == 130 and stopped["stopped"] == "interrupted" and "Traceback" not in said
    assert "The same command continues." in said and 0 < stopped["written"] < ITEMS
    assert stopped["lacking"] == ITEMS - stopped["written"] == run("status", tmp_path / "g")["lacking"]
    done = run(*words)["done"]
    assert done["written"] == stopped["lacking"] and done["lacking"] == 0


def test_items_that_the_source_lacks_are_named(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", vectors / "old.npz", *V1)
    run("start", tmp_path / "g", *V2, "--dim", 8, "--evidence", vectors / "report")
    run("swap", tmp_path / "g")
    some = part(vectors, "new", slice(0, ITEMS - 3), tmp_path / "some.npz")
    names = [f"{row:03d}" for row in range(ITEMS - 3, ITEMS)]
    words = ["backfill", tmp_path / "g", "--model", some, *V2]
    done = run(*words, code=1)["done"]
    assert done["missing_ids"] == names
    assert "3 items are not in the source: '117', '118', '119'" in run.said
    run("finish", tmp_path / "g", code=2)
    assert run("finish", tmp_path / "g", "--allow-missing", 3)["stays"] == "declared:v2"


def test_a_sum_of_money_ends_a_backfill(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", vectors / "old.npz", *V1)
    asked = ["--model", vectors / "new.npz", *V2, "--price-per-thousand", 0.5, "--max-cost", 0.02]
    planned = run("plan", tmp_path / "g", *asked, "--evidence", vectors / "report")  # before it is started
    assert (planned["generation"], planned["rows"], planned["rows_within_budget"]) == ("g2", ITEMS, 40)
    assert "vectors of g1" in planned["meanwhile"][0] and "at the end" in run.said
    assert run("status", tmp_path / "g")["sequence"] == 2  # nothing was changed
    run("start", tmp_path / "g", *V2, "--dim", 8)
    assert run("plan", tmp_path / "g", *asked)["cost"] == pytest.approx(0.06)
    done = run("backfill", tmp_path / "g", *asked)["done"]
    assert (done["written"], done["cost"], done["stopped"]) == (40, pytest.approx(0.02), "budget")


def test_a_direction_that_nobody_measured_needs_force(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", vectors / "old.npz", *V1)
    run("start", tmp_path / "g", *V2, "--dim", 8)
    assert run("swap", tmp_path / "g", code=2)["error"]["type"] == "GalleryError"
    linked = run("link", tmp_path / "g", "--evidence", vectors / "report")
    assert linked == {"query": "g2", "gallery": "g1", "how": "report"}
    assert run("status", tmp_path / "g")["generations"][1]["searches"] == ["g2", "g1"]
    assert run("swap", tmp_path / "g")["serving"] == "new"
    forced = run("link", tmp_path / "g", "--query", "g1", "--of", "g2", "--force", "we looked at it")
    assert (forced["query"], forced["gallery"], forced["how"]) == ("g1", "g2", "forced")
    assert run("cancel", tmp_path / "g", code=2)["error"]["type"] == "UpgradeStateError"


def test_an_adapter_links_two_frozen_models(
    planted: Callable[..., Path], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = planted(tmp_path)
    old, new = (storage.from_npz(root / f"{name}.npz", fingerprint=f"declared:{name}") for name in ("old", "new"))
    for direction in ("new_to_old", "old_to_new"):
        save_adapter(build_adapter("ridge", {"direction": direction}).fit(old, new), root / direction)
        url = f"memory:{root / direction}-gallery"
        run("create", url, "--embeddings", root / "old.npz", "--name", "old")
        run("start", url, "--model", root / "new.npz", "--name", "new", "--link", root / direction)
        assert run("swap", url)["serving"] == "new"
        found = run("search", url, "--queries", root / "new.npz", "--name", "new", "--k", 1)
        assert found["covered"] == 300 and {q["hits"][0]["generation"] for q in found["queries"]} == {
            "g2" if direction == "old_to_new" else "g1"
        }


def test_images_and_releases(made: Path, tmp_path: Path, run: Run) -> None:
    """Items embedded by a release, searched by a picture, and embedded again by the next release."""
    old, new, photos = made / "runs" / "old", made / "runs" / "bct", made / "photos"
    run("create", f"memory:{tmp_path / 'g'}", "--model", f"release:{old}", "--columns", "label=text")
    run("import", tmp_path / "g", "--embeddings", made / "embedded" / "old")
    image = photos / "kind0" / "0.png"
    found = run("search", tmp_path / "g", "--image", image, "--model", f"release:{old}", "--k", 1)["queries"]
    assert found[0]["id"] == str(image) and found[0]["hits"][0]["metadata"]["label"] == "kind0"
    run("start", tmp_path / "g", "--model", f"release:{new}")
    run("swap", tmp_path / "g", "--force", "a test")
    done = run(
        "backfill", tmp_path / "g", "--model", f"release:{new}", "--data", photos, "--workers", 2, "--batch-size", 4
    )["done"]
    assert (done["written"], done["lacking"]) == (12, 0)
    assert run("doctor", tmp_path / "g", "--model", f"release:{new}", "--data", photos)["healthy"]
    embedded = storage.load(made / "embedded" / "bct" / "embeddings.safetensors")
    found = run("search", tmp_path / "g", "--data", photos, "--model", f"release:{new}", "--k", 1)["queries"]
    assert {query["id"]: query["hits"][0]["id"] for query in found} == {one: one for one in embedded.ids}


def test_texts_and_frozen_models(requests: Path, tmp_path: Path, run: Run) -> None:
    texts, model = requests / "requests.csv", ["--model", "package:wordllama", "--model-options.truncate-dim", 32]
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", requests / "old.npz", *V1)
    run("start", tmp_path / "g", "--model", requests)  # its name only
    run("swap", tmp_path / "g", "--force", "a test")
    done = run("backfill", tmp_path / "g", "--texts", texts, *model, "--order", "random")["done"]
    assert (done["written"], done["lacking"]) == (288, 0)
    words = ["search", tmp_path / "g", "--text", "find a pizza recipe", *model, "--k", 1]
    assert (
        run(*words)["queries"][0]["hits"][0]["id"]
        == storage.load(requests / "wordllama" / "embeddings.safetensors").ids[195]
    )


def test_blank_texts_keep_no_other_item_from_its_vector(requests: Path, tmp_path: Path, run: Run) -> None:
    model = ["--model", "package:wordllama", "--model-options.truncate-dim", 32]
    lines = (requests / "requests.csv").read_text().splitlines()
    header = lines[0].split(",")
    blank = tmp_path / "blank.csv"
    with blank.open("w", newline="") as file:
        rows = csv.DictWriter(file, header)
        rows.writeheader()
        for number, row in enumerate(csv.DictReader(lines)):
            rows.writerow({**row, "text": " " if number in (3, 5) else row["text"]})
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", requests / "old.npz", *V1)
    run("start", tmp_path / "g", "--model", requests)
    run("swap", tmp_path / "g", "--force", "a test")
    done = run("backfill", tmp_path / "g", "--texts", blank, *model, "--batch", 4)["done"]
    assert (done["written"], done["lacking"], done["missing"], done["without_text"]) == (286, 2, 0, 2)
    assert done["without_text_ids"] == ["00000003", "00000005"] and done["missing_ids"] == []


def test_texts_fill_a_gallery_without_a_file_between(requests: Path, tmp_path: Path, run: Run) -> None:
    """A gallery made, filled and changed from texts alone holds what `embed texts` writes, with its labels."""
    model = ["--model", "package:wordllama", "--model-options.truncate-dim", 32]
    texts = ["--texts", requests / "requests.csv", *model]
    made = run("create", f"memory:{tmp_path / 'g'}", *texts)
    assert (made["items"], made["columns"]) == (288, {"label": "text"})
    assert run("status", tmp_path / "g")["generations"][0]["note"] == "package:wordllama"
    embedded = storage.load(requests / "wordllama" / "embeddings.safetensors")
    with Gallery.open(str(tmp_path / "g")) as gallery:
        ids, points = gallery.store.vectors("g1", list(embedded.ids))
        found = gallery.store.fetch(ids)
    assert ids == list(embedded.ids) and made["fingerprint"] == embedded.fingerprint
    np.testing.assert_allclose(points, embedded.vectors, atol=1e-6)
    assert embedded.labels is not None and embedded.class_names is not None
    named = np.array(list(embedded.class_names))[embedded.labels].tolist()
    assert [one["label"] for one in found.metadata] == named

    more = tmp_path / "more.csv"
    more.write_text("id,text,label\n00000000,something else,other\nnew,show me a rock song,music\n")
    kept = run("import", tmp_path / "g", "--texts", more, *model, "--skip-existing")
    assert (kept["written"], kept["skipped"]) == (1, 1)
    assert run("upsert", tmp_path / "g", "--texts", more, *model) == {"written": 2, "items": 289}
    hit = run("search", tmp_path / "g", "--text", "something else", *model, "--k", 1)["queries"][0]["hits"][0]
    assert (hit["id"], hit["metadata"]["label"]) == ("00000000", "other")
    more.write_text("id,text\nlast,a train to Rome\n")
    assert run("add", tmp_path / "g", "--texts", more, *model) == {"written": 1, "items": 290}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "g", "--texts", "x.csv", "--embeddings", "old.npz"], "--embeddings and --texts given"),
        (["add", "g"], "No items given"),
        (
            ["import", "g", "--embeddings", "old.npz", "--model", "st:m"],
            "--embeddings with --model st:m",
        ),
        (["import", "g", "--texts", "x.csv", "--model", "st:m", "--name", "v1"], "--name v1 with --texts"),
        (["import", "g", "--texts", "x.csv"], "--texts without a model"),
    ],
)
def test_what_does_not_go_with_texts(
    words: list[str], said: str, vectors: Path, tmp_path: Path, run: Run, fails: Callable[..., str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    run("create", "memory:g", "--embeddings", vectors / "old.npz", *V1)
    assert said in fails(group_of(words), *words)


def test_images_fill_a_gallery(made: Path, tmp_path: Path, run: Run) -> None:
    photos, old = ["--data", made / "photos"], ["--model", f"release:{made / 'runs' / 'old'}"]
    done = run("create", f"memory:{tmp_path / 'g'}", *photos, *old)
    embedded = storage.load(made / "embedded" / "old" / "embeddings.safetensors")
    assert (done["items"], done["fingerprint"]) == (len(embedded), embedded.fingerprint)
    assert done["columns"]["label"] == "text"
    found = run("search", tmp_path / "g", "--queries", made / "embedded" / "old", "--k", 1)["queries"]
    assert all(query["hits"][0]["id"] == query["id"] for query in found)


def test_tables_of_others(vectors: Path, tmp_path: Path, run: Run) -> None:
    """Metadata of Parquet files and LanceDB tables comes along, under other names too; what is there is skipped."""
    with np.load(vectors / "old.npz") as found:
        points = pa.FixedSizeListArray.from_arrays(pa.array(found["vectors"].ravel()), 8)
        names = {"id": pa.array(found["ids"]), "vector": points}
    more = {
        "title": pa.array([f"a thing {row}" for row in range(ITEMS)]),
        "sold": pa.array([True, None] * (ITEMS // 2)),
    }
    pq.write_table(pa.table(names | more).slice(0, 30), tmp_path / "first.parquet")
    made = run("create", f"memory:{tmp_path / 'g'}", "--embeddings", tmp_path / "first.parquet", *V1)
    assert made["columns"] == {"title": "text", "sold": "truth"} and made["items"] == 30

    renamed = {"key": names["id"], "embedding": points, "heading": more["title"]}
    lancedb.connect(tmp_path / "db").create_table("things", pa.table(renamed))
    words = ["import", tmp_path / "g", "--embeddings", f"lance:{tmp_path / 'db'}#things?id=key",
             "--take", "title=heading", "--name", "g1"]  # fmt: skip
    assert "skip-existing" in run(*words, code=2)["error"]["to_do"]
    done = run(*words, "--skip-existing", "--batch", 50)
    assert (done["written"], done["skipped"], done["items"]) == (ITEMS - 30, 30, ITEMS)
    hit = run("search", tmp_path / "g", "--like", "000", "--where", "title=a thing 77")["queries"][0]["hits"][0]
    assert hit["id"] == "077" and hit["metadata"] == {"title": "a thing 77"}

    pq.write_table(pa.table(names | more).slice(5, 2), tmp_path / "changed.parquet")
    run("upsert", tmp_path / "g", "--embeddings", tmp_path / "changed.parquet", *V1)
    for row, more_known in ((5, {}), (6, {"sold": True})):
        words = ["search", tmp_path / "g", "--like", "000", "--where", f"title=a thing {row}"]
        assert run(*words)["queries"][0]["hits"][0]["metadata"] == {"title": f"a thing {row}"} | more_known


def test_an_import_goes_on(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", *V1, "--dim", 8, "--columns", "label=text")
    part(vectors, "old", slice(0, 25), tmp_path / "some.npz")
    run("import", tmp_path / "g", "--embeddings", tmp_path / "some.npz", *V1)
    words = ["import", tmp_path / "g", "--embeddings", vectors / "old.npz", *V1]
    assert "25 ids are in the gallery already" in run(*words, code=2)["error"]["given"]
    done = run(*words, "--skip-existing", "--batch", 40)
    assert (done["written"], done["skipped"], done["items"]) == (ITEMS - 25, 25, ITEMS)
    (tmp_path / "gone.txt").write_text("001\n\n002\n")
    assert run("delete", tmp_path / "g", "--ids-from", tmp_path / "gone.txt")["items"] == ITEMS - 2


def test_doctor_says_what_is_wrong(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", "--embeddings", vectors / "old.npz", *V1)
    assert run("doctor", tmp_path / "g")["healthy"] and "The gallery is healthy." in run.said
    found = run("doctor", tmp_path / "g", "--model", vectors / "new.npz", "--name", "g1", code=1)
    assert not found["healthy"] and any(one["severity"] == "error" for one in found["findings"])
    with (tmp_path / "g" / "gallery.db").open("r+b") as file:
        file.truncate(6000)
    (tmp_path / "g" / "gallery.db-wal").unlink(missing_ok=True)
    found = run("doctor", tmp_path / "g", code=1)
    assert found["findings"][0]["kind"] == "unreadable" and "restore the gallery from a copy" in run.said


def test_a_rehearsal_on_a_copy(vectors: Path, tmp_path: Path, run: Run) -> None:
    """The better model is ready, the worse one is not; without labels nobody can tell."""
    files, galleries = {"v1": vectors / "old.npz", "v2": vectors / "new.npz"}, {}
    for name, old, more in (("better", "v1", []), ("worse", "v2", []), ("untold", "v1", ["--columns", "price=number"])):
        galleries[name] = tmp_path / name
        run("create", f"memory:{tmp_path / name}", "--embeddings", files[old], "--name", old, *more)
    words = ["--order", "random", "--out", tmp_path / "out"]
    found = run("rehearse", galleries["better"], "--model", files["v2"], *V2, "--evidence", vectors / "report", *words)
    assert (found["verdict"], found["linked"], found["passed"]) == ("ready", "report", True)
    assert json.loads((tmp_path / "out" / "rehearsal.json").read_text()) == found
    assert "Ready: mAP" in (tmp_path / "out" / "rehearsal.html").read_text() and "Ready: mAP" in run.said
    assert "recall@1" in run.said.partition("Ready: mAP")[0]  # the table shows every metric
    assert run("status", galleries["better"])["sequence"] == 2  # nothing was changed
    found = run("rehearse", galleries["worse"], "--model", files["v1"], *V1, *words, code=1)
    assert (found["verdict"], found["linked"]) == ("worse", "none")
    found = run("rehearse", galleries["untold"], "--model", files["v2"], *V2, *words, "--sample", 40, code=3)
    assert found["verdict"] == "unlabelled" and found["passed"]
    asked = ["--queries", files["v1"], files["v2"], "--old-name", "v1"]
    found = run("rehearse", galleries["better"], "--model", files["v2"], *V2, *asked, *words)
    assert (found["queries"], found["asked"]) == ("given", ITEMS)


def test_people_are_told_where_they_stand(vectors: Path, tmp_path: Path, run: Run) -> None:
    run("create", f"memory:{tmp_path / 'g'}", *V1, "--dim", 8)
    assert "Next, to fill it: limpet gallery import" in run.said
    run("import", tmp_path / "g", "--embeddings", vectors / "old.npz", *V1)
    run("upgrade", "status", tmp_path / "g")
    assert "steady, 120 items" in run.said and "Next, to upgrade the model: limpet upgrade start" in run.said
    run("start", tmp_path / "g", *V2, "--dim", 8)
    started = run("upgrade", "status", tmp_path / "g")
    assert (started["lacking"], started["gallery"]["found"]) == ({"old": 0, "new": 120}, {"old": 120, "new": 0})
    assert "0 of 120 items have a vector of declared:v2 (0 %)" in run.said
    assert (
        "Next, to let new queries search old vectors, if a report of `limpet evaluate` allows it: limpet gallery link"
        in run.said
    )
    run("backfill", tmp_path / "g", "--model", vectors / "new.npz", *V2)
    assert "Next, to activate the new model: limpet upgrade swap" in run.said
    run("swap", tmp_path / "g")
    assert "Next, to end the upgrade with the new model: limpet upgrade finish" in run.said
    found = run("upgrade", "status", tmp_path / "g")
    assert "█" * 24 in run.said
    assert [step["command"].split()[2] for step in found["next"]] == ["finish", "rollback"]
    run("finish", tmp_path / "g")
    assert "The vectors of g1 were removed." in run.said


def test_a_backup_is_restored_elsewhere(vectors: Path, tmp_path: Path, run: Run) -> None:
    place, copy, elsewhere = tmp_path / "g", tmp_path / "copy", tmp_path / "elsewhere"
    run("create", f"memory:{place}", "--embeddings", vectors / "old.npz", *V1)
    done = run("backup", place, copy)
    assert (done["backup"], done["kind"], done["sequence"], done["items"]) == (str(copy), "memory", 2, ITEMS)
    assert f"limpet gallery restore NEW_FOLDER {copy}" in run.said
    assert run("restore", elsewhere, copy)["items"] == ITEMS and "120 items as of commit 2" in run.said
    assert run("search", elsewhere, "--like", "006")["covered"] == ITEMS
    assert "There is a gallery" in run("restore", place, copy, code=2)["error"]["given"]
    assert "own folder" in run("backup", place, place / "copy", code=2)["error"]["given"]
    assert "kind 'lance'" in run("restore", f"lance:{tmp_path / 'x'}", copy, code=2)["error"]["given"]


def test_the_list_of_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery"]) == 0
    listed = capsys.readouterr().out
    subcommands = [name.removeprefix("gallery ") for name in COMMANDS if name.startswith("gallery ")]
    assert subcommands and all(f"\n  {name} " in listed for name in subcommands)
