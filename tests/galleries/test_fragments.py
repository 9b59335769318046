"""Backfills by the file protocol: planned, made by anybody, and committed once, whatever is delivered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.embeddings import EmbeddingSet, storage
from limpet.errors import ConfigError, DataError, GalleryError, UpgradeStateError
from limpet.galleries import Gallery, fragments, restore
from limpet.galleries.fragments import FragmentPlan, accept, make, plan
from limpet.geometry import Hypersphere, Space

SPHERE, IDS = Hypersphere(4), [f"i{row:02}" for row in range(12)]


class Drawn:
    """Points of a model, but of some items."""

    def __init__(self, embed: Callable[..., EmbeddingSet], space: Space) -> None:
        self.fingerprint, self.space = "declared:new", space
        self.draw, self.without_text, self.asked = embed, frozenset[str](), list[str]()

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        self.asked += ids
        return self.draw("new", [one for one in ids if one not in self.without_text], space=self.space)


class Run:
    """An upgrade whose backfill is planned in three shards of four items."""

    def __init__(self, url: str, embed: Callable[..., EmbeddingSet], folder: Path, space: Space = SPHERE) -> None:
        self.embed, self.folder, self.source = embed, folder, Drawn(embed, space)
        self.gallery = Gallery.create(url, fingerprint="declared:old", space=space)
        self.gallery.add(embed("old", IDS, space=space))
        self.gallery.start("declared:new", space)
        self.plan = plan(self.gallery, folder, items=4)

    def make(self, *shards: str) -> None:
        for shard in shards or self.plan.shards:
            make(self.folder, shard, self.source)

    def lacking(self) -> set[str]:
        return set(self.gallery.store.scan(limit=1000, lacking="g2").ids)

    def vectors(self) -> dict[str, Any]:
        """What the gallery holds by the new model."""
        ids = [one for one in IDS if one not in self.lacking()]
        return dict(zip(*self.gallery.store.vectors("g2", ids), strict=True))

    def holds(self, ids: Sequence[str]) -> None:
        found, right = self.vectors(), self.embed("new", ids, space=self.source.space)
        form = right.space.index_form(right.vectors, "gallery")
        assert sorted(found) == sorted(ids)
        np.testing.assert_allclose([found[one] for one in right.ids], form, atol=1e-6)

    def deliver(
        self, shard: str, content: EmbeddingSet | pa.Table | bytes, suffix: str = ".parquet", **said: Any
    ) -> None:
        """Write a fragment and its manifest as a program of somebody else may."""
        file = self.folder / "fragments" / f"theirs{suffix}"
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif isinstance(content, EmbeddingSet):
            pq.write_table(pa.table({"id": list(content.ids), "vector": content.vectors.tolist()}), file)
        else:
            pq.write_table(content, file)
        manifest = {"file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                    "fingerprint": "declared:new", **said}  # fmt: skip
        (self.folder / "manifests" / f"{shard}.json").write_text(json.dumps(manifest))


@pytest.fixture
def run(tmp_path: Path, embed: Callable[..., EmbeddingSet]) -> Iterator[Run]:
    made = Run("memory://", embed, tmp_path / "fragments")
    yield made
    made.gallery.close()


def test_a_plan_names_items_and_versions(run: Run) -> None:
    assert (run.plan.generation, run.plan.fingerprint, run.plan.items) == ("g2", "declared:new", 12)
    assert FragmentPlan.read(run.folder) == run.plan
    tables = [pq.read_table(run.folder / "shards" / f"{shard}.parquet").to_pydict() for shard in run.plan.shards]
    assert [table["id"] for table in tables] == [IDS[:4], IDS[4:8], IDS[8:]]
    assert [one for table in tables for one in table["version"]] == run.gallery.store.fetch(IDS).versions.tolist()


def test_what_is_made_and_accepted_is_what_a_backfill_makes(
    place: str, tmp_path: Path, embed: Callable[..., EmbeddingSet], space: Space
) -> None:
    run = Run(place, embed, tmp_path / "fragments", space)
    run.make()
    done = accept(run.gallery, run.folder)
    assert (done.accepted, done.waiting, done.refused, done.written, done.passed_over, done.lacking) == (
        3,
        (),
        {},
        12,
        0,
        0,
    )
    run.holds(IDS)
    run.gallery.swap(force="the same items")
    run.gallery.finish()
    run.gallery.close()


def test_shards_that_nobody_made_wait_and_are_accepted_later(run: Run) -> None:
    run.make("000001")
    told: list[Any] = []
    done = accept(run.gallery, run.folder, progress=told.append)
    assert (done.accepted, done.waiting, done.written, done.lacking) == (1, ("000000", "000002"), 4, 8)
    assert [(event["done"], event["total"]) for event in told] == [(1, 3), (2, 3), (3, 3)]
    run.holds(IDS[4:8])
    run.make()
    assert run.source.asked == IDS[4:8] + IDS[:4] + IDS[8:]  # what is there stays
    assert accept(run.gallery, run.folder).written == 8
    run.holds(IDS)


def test_fragments_that_were_accepted_may_be_deleted(run: Run) -> None:
    run.make("000000")
    accept(run.gallery, run.folder)
    for file in (run.folder / "fragments").iterdir():
        file.unlink()
    run.make()
    assert run.source.asked == IDS
    assert accept(run.gallery, run.folder).written == 8
    run.holds(IDS)


def test_a_fragment_that_is_delivered_twice_counts_once(run: Run) -> None:
    run.make()
    accept(run.gallery, run.folder)
    commits = run.gallery.store.pointer().sequence
    assert accept(run.gallery, run.folder).written == 0 and run.gallery.store.pointer().sequence == commits
    run.deliver("000000", run.embed("new", IDS[:4]))  # the same vectors, by another program
    done = accept(run.gallery, run.folder)
    assert (done.accepted, done.written, done.passed_over) == (3, 0, 4)
    run.holds(IDS)


def test_items_that_were_written_or_deleted_since_the_plan_keep_what_was_written(run: Run) -> None:
    run.make()
    run.gallery.upsert(run.embed("old", ["i00"], draw=1))
    run.gallery.upsert(run.embed("old", ["i01"], draw=1), run.embed("new", ["i01"], draw=1))
    run.gallery.delete(["i02"])
    run.gallery.delete(["i03"])
    run.gallery.add(run.embed("old", ["i03"], draw=1))
    done = accept(run.gallery, run.folder)
    assert (done.written, done.passed_over, done.lacking) == (8, 4, 2)
    found = run.vectors()
    assert sorted(found) == ["i01", *IDS[4:]] and run.lacking() == {"i00", "i03"}
    np.testing.assert_allclose(found["i01"], run.embed("new", ["i01"], draw=1).vectors[0], atol=1e-6)


def test_items_without_text_get_no_vector(run: Run) -> None:
    run.source.without_text = frozenset(IDS[:5])
    run.make()
    assert json.loads((run.folder / "manifests" / "000000.json").read_text())["file"] is None
    done = accept(run.gallery, run.folder)
    assert (done.accepted, done.written, done.lacking) == (3, 7, 5)
    run.holds(IDS[5:])


def twice(embed: Callable[..., EmbeddingSet]) -> pa.Table:
    made = embed("new", ["i00"])
    return pa.table({"id": ["i00", "i00"], "vector": made.vectors.tolist() * 2})


WRONG: dict[str, tuple[Callable[[Run], None], str]] = {
    "cut off": (lambda run: run.deliver("000000", b"PAR1", sha256="0" * 64), "cut off or changed"),
    "no Parquet": (lambda run: run.deliver("000000", b"PAR1"), "Cannot read"),
    "another model": (lambda run: run.deliver("000000", run.embed("new", IDS[:4]), fingerprint="declared:old"),
                      "made by declared:old"),
    "items of another shard": (lambda run: run.deliver("000000", run.embed("new", IDS[3:5])), "no such shard: 'i04'"),
    "items of nobody": (lambda run: run.deliver("000000", run.embed("new", ["i00", "x"])), "no such shard: 'x'"),
    "an item twice": (lambda run: run.deliver("000000", twice(run.embed)), "i00"),
    "NaN": (lambda run: run.deliver("000000", pa.table({"id": ["i00"], "vector": [[np.nan, 0.0, 0.0, 1.0]]})), "i00"),
    "another dimension": (lambda run: run.deliver("000000", run.embed("new", IDS[:4], space=Hypersphere(5))),
                          "dimension 5"),
    "a file that is not there": (lambda run: run.deliver("000000", b"", file="none.parquet"), "which is not there"),
    "a file elsewhere": (lambda run: run.deliver("000000", b"", file="../plan.json"), "cannot be read"),
    "no JSON": (lambda run: (run.folder / "manifests" / "000000.json").write_text("{") and None, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_fragment_is_refused_and_can_be_made_again(kind: str, run: Run) -> None:
    deliver, why = WRONG[kind]
    run.make("000001", "000002")
    deliver(run)
    done = accept(run.gallery, run.folder)
    assert (done.accepted, done.waiting, list(done.refused), done.written) == (2, (), ["000000"], 8)
    assert why in done.refused["000000"]
    run.holds(IDS[4:])
    run.make()
    assert accept(run.gallery, run.folder).refused == {}
    run.holds(IDS)


@pytest.mark.parametrize("wrong", ["declared:old", "vectors of queries", "no points of the hypersphere"])
def test_wrong_vectors_in_a_file_of_limpet_are_refused(run: Run, wrong: str) -> None:
    made = run.embed("old" if wrong == "declared:old" else "new", IDS[:4])
    if wrong == "vectors of queries":
        made = made.replace(role="query")
    content = storage.save(made, run.folder / "made.safetensors").read_bytes()
    if wrong.startswith("no points"):
        content = content.replace(made.vectors[0].tobytes(), bytes(16))
    run.deliver("000000", content, ".safetensors")
    done = accept(run.gallery, run.folder)
    assert wrong in done.refused["000000"] and not done.written


@pytest.mark.parametrize("step", range(6))
def test_a_committer_that_ends_at_any_step_is_followed_by_another(
    step: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after every commit and every note that one was made."""
    commit, note, left = fragments.commit_fill, fragments.write_atomically, [step]

    def ending(whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            left[0] -= 1
            if left[0] == -1 and step % 2 == 0:
                raise KeyboardInterrupt
            done = whole(*values)
            if left[0] == -1:
                raise KeyboardInterrupt
            return done

        return call

    run.make()
    monkeypatch.setattr(fragments, "commit_fill", ending(commit))
    monkeypatch.setattr(fragments, "write_atomically", ending(note))
    with pytest.raises(KeyboardInterrupt):
        accept(run.gallery, run.folder)
    done = accept(run.gallery, run.folder)
    assert (done.accepted, done.lacking) == (3, 0)
    run.holds(IDS)
    filled = [entry.event["embedded"] for entry in run.gallery.store.journal() if entry.event["kind"] == "backfill"]
    assert sum(filled) in (12, 16)  # one shard may be committed again, which writes nothing


def test_a_worker_that_ends_early_leaves_nothing_that_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def ending(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fragments, "_write", ending)
    with pytest.raises(KeyboardInterrupt):
        run.make("000000")
    assert accept(run.gallery, run.folder).waiting == ("000000", "000001", "000002")
    monkeypatch.undo()
    run.make()
    assert accept(run.gallery, run.folder).written == 12


def test_what_was_planned_for_another_upgrade_is_refused(run: Run, embed: Callable[..., EmbeddingSet]) -> None:
    run.make()
    run.gallery.cancel()
    with pytest.raises(UpgradeStateError, match="g2 does not exist"):
        accept(run.gallery, run.folder)
    with Gallery.create("memory://", fingerprint="declared:old", space=SPHERE) as other:
        other.start("declared:third", SPHERE)
        with pytest.raises(UpgradeStateError, match="g2 is of declared:third"):
            accept(other, run.folder)


def test_a_gallery_that_counts_other_commits_alike_gets_none_of_the_vectors(run: Run, tmp_path: Path) -> None:
    run.make()
    with Gallery.create("memory://", fingerprint="declared:old", space=SPHERE) as other:
        other.add(run.embed("old", IDS, draw=1))
        other.start("declared:new", SPHERE)
        assert other.store.fetch(IDS).versions.tolist() == run.gallery.store.fetch(IDS).versions.tolist()
        with pytest.raises(UpgradeStateError, match="another one was planned"):
            accept(other, run.folder)
    run.gallery.backup(tmp_path / "backup")
    restore(tmp_path / "backup", f"memory:{tmp_path / 'restored'}")
    with Gallery.open(f"memory:{tmp_path / 'restored'}") as restored:
        assert accept(restored, run.folder).written == 12  # a backup has the commits before it
    run.gallery.upsert(run.embed("old", ["i00"], draw=1))
    plan(run.gallery, later := tmp_path / "later")
    make(later, "000000", run.source)
    restore(tmp_path / "backup", f"memory:{tmp_path / 'again'}")
    with Gallery.open(f"memory:{tmp_path / 'again'}") as again:
        again.upsert(run.embed("old", ["i00"], draw=2))
        assert again.store.fetch(["i00"]).versions.tolist() == run.gallery.store.fetch(["i00"]).versions.tolist()
        with pytest.raises(UpgradeStateError, match="lost commits"):
            accept(again, later)


def test_wrong_use_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="fragments"):
        plan(run.gallery, run.folder)
    with pytest.raises(ConfigError, match=r"no shard 'x'"):
        run.make("x")
    with pytest.raises(ConfigError, match=r"plan\.json"):
        accept(run.gallery, tmp_path)
    run.source.fingerprint = "declared:other"
    with pytest.raises(DataError, match="declared:other"):
        run.make("000000")
