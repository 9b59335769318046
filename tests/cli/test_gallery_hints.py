"""What a gallery tells people to type next can be typed, and is right where they stand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.groups import group_of, grouped
from limpet.cli import main
from limpet.cli.gallery.create import again
from limpet.cli.gallery.imports import Items
from limpet.cli.places import Place
from limpet.embeddings import storage
from limpet.errors import GalleryError
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``limpet gallery`` beside old.npz and new.npz, and return what it says, on one line."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ids, labels = np.arange(40).astype(str), np.arange(40) % 4
    for name in ("old", "new"):
        np.savez(f"{name}.npz", ids=ids, vectors=rng.normal(size=(40, 8)).astype(np.float32), labels=labels)

    def call(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        assert main(grouped(words)) == code
        return capsys.readouterr().err

    call("create", "memory:g", "--embeddings", "old.npz", "--name", "v1")
    return call


def hints(said: str) -> list[list[str]]:
    """Return the commands to type next, without their first two words."""
    lines = [line for line in said.splitlines() if line.startswith("Next")]
    return [shlex.split(line.partition(": ")[2])[2:] for line in lines]


def test_a_plan_without_an_upgrade_says_how_to_plan_one(run: Run) -> None:
    for words in ([], ["--model", "old.npz", "--name", "v1"]):
        said = run("plan", "g", *words)
        assert "Every item has a vector of g1." in said and "backfill" not in said
        assert hints(said)[0] == ["plan", "g", "--model", "FILE", "--name", "NEW"]


def test_hints_lead_from_a_plan_to_the_end(run: Run) -> None:
    first = ["plan", "g", "--model", "new.npz", "--name", "v2"]
    [start] = hints(run(*first))
    assert start == ["start", "g", "--model", "new.npz", "--name", "v2"]
    link, backfill, _ = hints(run(*start))
    assert link[0] == "link" and "limpet evaluate" in run("upgrade", "status", "g")
    timed, filling = hints(run("plan", "g"))
    assert timed[0] == "plan" and filling == backfill == ["backfill", "g", "--model", "new.npz", "--name", "v2"]
    assert hints(run(*timed)) == [backfill]
    swap, *_ = hints(run(*backfill))
    finish, back = hints(run(*swap))
    assert (finish[0], back[0]) == ("finish", "rollback")
    assert "g1" in run(*finish)


def test_a_gap_that_finish_left_is_filled(run: Run, tmp_path: Path) -> None:
    with np.load(tmp_path / "new.npz") as new:
        np.savez(tmp_path / "part.npz", ids=new["ids"][:30], vectors=new["vectors"][:30], labels=new["labels"][:30])
    run("start", "g", "--model", "part.npz", "--name", "v2")
    run("backfill", "g", "--model", "part.npz", "--name", "v2", code=1)  # some are not there
    run("swap", "g", "--force", "the rest comes later")
    run("finish", "g", "--allow-missing", 10)
    assert ["backfill", "g", "--model", "FILE", "--name", "v2"] in hints(run("plan", "g"))
    assert "limpet upgrade backfill g --model FILE" in run("backfill", "g", code=2)


def test_a_password_is_not_in_what_to_type_next() -> None:
    source = Items(embeddings=Place("postgresql://me:s3cret@host/shop?table=items"), take=["a", "b=c"])
    assert again("live", source) == (
        "limpet gallery import live --embeddings 'postgresql://me@host/shop?table=items' "
        "--take a b=c --name g1 --skip-existing"
    )


def test_vectors_of_files_are_not_embedded(run: Run) -> None:
    run("start", "g", "--model", "new.npz", "--name", "v2")
    said = run("backfill", "g", "--model", "new.npz", "--name", "v2", "--budget", 10)
    assert "g2: 10 items filled, 10 written" in said and "embedded" not in said
    assert "Every item has a vector of g2." in run("backfill", "g", "--model", "new.npz", "--name", "v2")
    again = run("backfill", "g", "--model", "new.npz", "--name", "v2")
    assert "Every item has a vector of g2." in again and "0 items filled" not in again


def test_what_a_backfill_without_a_source_should_have_been(run: Run) -> None:
    assert "Next: to upgrade the model: limpet upgrade start g" in run("backfill", "g", code=2)
    run("start", "g", "--model", "new.npz", "--name", "v2")
    said = run("backfill", "g", code=2)
    assert "Next: to backfill: limpet upgrade backfill g --model new.npz --name v2" in said
    assert "`limpet doctor --model FILE --name g1` compares a sample" in run("doctor", "g")


def test_refusals_say_what_to_type(run: Run, tmp_path: Path) -> None:
    assert "`limpet upgrade start`" in run("link", "g", "--force", "yes", code=2)
    assert "or name one file, such as 'new.npz'" in run("import", "g", "--embeddings", ".", "--name", "v1", code=2)
    said = run("create", "memory:h", "--embeddings", "old.npz", code=2)
    assert "Next: add --name with what you call it" in said
    assert "--model SCHEME:PLACE" in run("create", "memory:h", code=2)
    said = run("delete", "g", "--ids-from", "nowhere.txt", code=2)
    assert "'nowhere.txt'" in said and "Next: check the path" in said and "intact" in said
    said = run("import", "g", "--embeddings", "postgresql://me@127.0.0.1:1/x?table=t", "--name", "v1", code=2)
    assert "Next: start the server, or check address" in said and said.endswith("What was committed is intact.\n")


def test_a_place_for_a_backup_that_cannot_be_written(run: Run) -> None:
    said = run("backup", "g", "/dev/null/copy", code=2)
    assert said.count("was changed") == 1 and said.endswith("No gallery was changed.\n")


def test_one_assurance_is_enough(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GalleryError("A commit by one that is not the writer.")

    monkeypatch.setattr(Gallery, "delete", refuse)
    said = run("delete", "g", "--ids", "1", code=2)
    assert "`limpet gallery status g` says where the gallery stands.\nWhat was committed is intact." in said


def test_texts_stand_beside_the_ids(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{row},request number {row}" for row in range(30)]  # ten items have none
    (tmp_path / "requests.csv").write_text("\n".join(["id,text", *lines]))
    words = ["search", "g", "--like", "3", "--k", "40", "--texts", "requests.csv"]
    said = run(*words).splitlines()
    assert said[1].split() == ["rank", "item", "score", "generation", "label", "text"]
    row = next(line for line in said if line.split()[1:2] == ["17"])
    assert row.endswith("request number 17") and row.split()[4] == "1"
    assert main([group_of(words), *words, "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["queries"][0]["hits"]
    found = {hit["id"]: hit["text"] for hit in hits}
    assert found["17"] == "request number 17" and found["35"] is None
    (tmp_path / "others.csv").write_text("id,text\nx,something else")
    assert "'others.csv' has no text of these items" in run("search", "g", "--like", "3", "--texts", "others.csv")
    assert "There is no" in run("search", "g", "--like", "3", "--texts", "nothing.csv", code=2)


def test_text_for_a_release_of_images(made: Path, run: Run) -> None:
    release = made / "runs" / "old"
    fingerprint = json.loads((release / "config.json").read_text())["fingerprint"]
    with Gallery.create("memory:photos", fingerprint=fingerprint, space=Hypersphere(16)):
        pass
    said = run("search", "photos", "--text", "a red kind", "--model", f"release:{release}", code=2)
    assert "pixels, no texts" in said and "--image FILE" in said and "--stored" not in said
    assert "--model SCHEME:PLACE, which embeds it" in run("search", "photos", "--text", "x", code=2)


def test_no_memory_for_torch_is_said_plainly(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import torch

    from limpet.cli import methods

    def greedy() -> int:
        return len(torch.empty(2**50, dtype=torch.uint8))

    monkeypatch.setattr(methods, "methods", greedy)
    assert main(["methods"]) == 2
    said = capsys.readouterr().err
    assert "not enough memory for this: 1,125,899,906,842,624 bytes were asked for" in said and "--batch-size" in said

    def broken() -> int:
        raise RuntimeError("something else")

    monkeypatch.setattr(methods, "methods", broken)
    with pytest.raises(RuntimeError, match="something else"):
        main(["methods"])


def test_a_gallery_of_texts_is_filled_from_texts(run: Run) -> None:
    items = storage.from_npz("old.npz", fingerprint="declared:v1").replace(fingerprint=f"text:{12:064}")
    sources = {
        "large": (f"text:{34:064}", ["--model", "MODEL"]),
        "head": (f"sha256:{5:064}", ["--model", "MODEL"]),
    }
    for note, (name, source) in sources.items():
        with Gallery.create(
            f"memory:{note}", fingerprint=items.fingerprint, space=items.space, note="small"
        ) as gallery:
            gallery.add(items)
            gallery.start(name, Hypersphere(8), note=note)
        assert ["backfill", note, *source, "--texts", "TEXTS"] in hints(run("upgrade", "status", note))


def test_what_was_started_is_in_what_to_type_next(made: Path, run: Run) -> None:
    old, new = made / "runs" / "old", made / "runs" / "bct"
    fill = hints(run("create", "memory:photos", "--model", f"release:{old}", "--columns", "label=text"))[0]
    assert fill[0] == "import" and "has no metadata columns" in run(
        "create", "memory:others", "--model", f"release:{old}"
    )
    run("import", "photos", "--embeddings", made / "embedded" / "old")
    said = run("start", "photos", "--model", f"release:{new}")
    typed = next(one for one in hints(said) if one[0] == "backfill")
    assert typed[2:] == ["--model", f"release:{new}", "--data", "DATA"] and "DATA: the images of the items" in said
    run("backfill", "photos", *typed[2:4], "--data", made / "photos")
    run("cancel", "photos")
    said = run("start", "photos", "--model", made / "embedded" / "bct")
    typed = next(one for one in hints(said) if one[0] == "backfill")
    assert "Every item has a vector of g3" in run(*typed)


def test_labels_that_a_gallery_cannot_keep_are_named(run: Run) -> None:
    with np.load("old.npz") as old:
        np.savez("more.npz", **{**old, "ids": np.char.add("x", old["ids"]), "price": np.arange(40.0)})
    for words in (["import", "--name", "v1"], ["upsert", "--name", "v1"]):
        said = " ".join(run(words[0], "g", "--embeddings", "more.npz", *words[1:]).split())
        assert "no columns of these names: 'price'." in said and "--columns price=text" in said
    run("create", "memory:bare", "--name", "v1", "--dim", 8)
    said = " ".join(run("import", "bare", "--embeddings", "more.npz", "--name", "v1").split())
    assert "no columns of these names: 'label', 'price'." in said
    assert "Not taken as metadata: 'label'." in run(
        "create", "memory:chosen", "--embeddings", "more.npz", "--name", "v1", "--columns", "price=number"
    )


def test_what_makes_a_gallery_that_is_not_there_can_be_typed(run: Run) -> None:
    said = " ".join(run("status", "nothere", code=2).split())
    assert "limpet gallery create nothere --embeddings FILE_OR_FOLDER`" in said
