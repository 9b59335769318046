"""Every kind of damage, planted below the gallery, is found and named; a sound gallery is called sound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.engines.planning import Appended, CommitPlan
from limpet.engines.store import Changes, Fill, Rows, digest_of
from limpet.errors import ConfigError, StoreError
from limpet.galleries import Gallery, vector_check
from limpet.galleries.doctor import Diagnosis, Finding, doctor, vectors
from limpet.galleries.doctor.records import journal_findings
from limpet.galleries.state import GalleryState
from limpet.galleries.status import status
from limpet.geometry import Hypersphere, Lorentz, Space

Embed = Callable[..., EmbeddingSet]

SPHERE = Hypersphere(4)
IDS = [f"i{number:02}" for number in range(30)]


class Source:
    """Makes the points that the fixture draws."""

    def __init__(self, embed: Embed, model: str, known: Sequence[str] = IDS, space: Space = SPHERE) -> None:
        self._embed, self._model, self._known = embed, model, set(known)
        self.fingerprint, self.space = f"declared:{model}", space

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        return self._embed(self._model, [one for one in ids if one in self._known], space=self.space)


@pytest.fixture
def upgraded(tmp_path: Path, embed: Embed, reported: Callable[..., Path]) -> Iterator[Gallery]:
    """A gallery in the middle of an upgrade: 30 items by the old model, 20 of them by the new one too."""
    url = f"memory:{tmp_path / 'gallery'}"
    with Gallery.create(url, fingerprint="declared:old", space=SPHERE, columns={"label": "text"}) as opened:
        opened.add(embed("old", IDS), metadata={"label": ["x"] * 30})
        opened.start("declared:new", SPHERE, reports=[reported()])
        opened.swap()
        opened.backfill(Source(embed, "new"), budget=20, batch=10)
        yield opened


def reopened(gallery: Gallery) -> Gallery:
    return Gallery.open(gallery.store.url, timeout=0.5)


def kinds(found: Diagnosis, *severities: str) -> list[tuple[str, str | None, int]]:
    wanted = severities or ("error", "warning")
    return [(one.kind, one.generation, one.count) for one in found.findings if one.severity in wanted]


def finding(found: Diagnosis, kind: str) -> Finding:
    return next(one for one in found.findings if one.kind == kind)


def sql(gallery: Gallery, statement: str, *values: Any) -> None:
    """Change the tables of a gallery behind its back."""
    gallery.store.database.execute(statement, values)  # type: ignore[attr-defined]


def blob(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def test_a_sound_gallery_is_called_sound(upgraded: Gallery, embed: Embed) -> None:
    before = upgraded.store.pointer().sequence
    told: list[dict[str, Any]] = []
    found = doctor(upgraded, [Source(embed, "old"), Source(embed, "new")], progress=told.append)
    assert found.healthy and kinds(found) == []
    assert kinds(found, "note") == [("lacking", "g2", 10), ("declared", None, 2)]
    assert (found.items, found.rows, found.sequence) == (30, {"g1": 30, "g2": 20}, before)
    assert json.loads(json.dumps(found.to_dict()))["healthy"] is True
    assert {"step": "counting g1", "done": 30, "total": 30} in told
    assert upgraded.store.pointer().sequence == before
    with pytest.raises(ConfigError, match="declared:other"):
        doctor(upgraded, Source(embed, "other"))


PLANTED: dict[str, tuple[str, list[Any], list[tuple[str, str | None, int]]]] = {
    "outdated": (
        "UPDATE rows SET version = version - 1 WHERE generation = 'g2' AND id = 'i03'", [], [("outdated", "g2", 1)]
    ),
    "NaN": ("UPDATE rows SET vector = ? WHERE generation = 'g1' AND id = 'i04'", [blob(1, np.nan, 0, 0)],
            [("no point", "g1", 1)]),
    "zero": ("UPDATE rows SET vector = ? WHERE generation = 'g2' AND id = 'i05'", [blob(0, 0, 0, 0)],
             [("no point", "g2", 1)]),
    "lost": ("DELETE FROM rows WHERE generation = 'g1' AND id IN ('i06', 'i07', 'i08')", [],
             [("rows", "g1", 3), ("lost", "g1", 3)]),
    "unmarked": ("UPDATE items SET mask = 1 WHERE id = 'i09'", [],
                 [("counts", None, 2), ("unmarked", "g2", 1), ("remainder", "g1", 1)]),
    "future": ("UPDATE items SET version = 99 WHERE id = 'i10'", [],
               [("version", None, 1), ("outdated", "g1", 1), ("outdated", "g2", 1)]),
    "counts": ("""UPDATE pointer SET held = '{"g1": 12, "g1 g2": 20}'""", [],
               [("counts", None, 2), ("rows", "g1", 2)]),
    "gap": ("DELETE FROM journal WHERE sequence = 5", [], [("journal", None, 1)]),
    "other journal": ("""UPDATE journal SET event = '{"kind": "upsert"}' WHERE sequence = 4""", [],
                      [("journal", None, 3)]),
    "no journal": ("UPDATE journal SET event = '{}' WHERE sequence = 2", [], [("unreadable", None, 1)]),
    "state": ("UPDATE pointer SET manifest = replace(manifest, '\"active\": \"g2\"', '\"active\": \"g1\"')", [],
              [("journal", None, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("damage", PLANTED)
def test_damage_is_found_and_named(damage: str, upgraded: Gallery) -> None:
    statement, values, expected = PLANTED[damage]
    sql(upgraded, statement, *values)
    with reopened(upgraded) as gallery:
        found = doctor(gallery)
        pointer = gallery.store.pointer()
    assert sorted(kinds(found, "error"), key=str) == sorted(expected, key=str)
    assert not found.healthy
    for one in found.findings:
        assert one.says.endswith(".") and (one.to_do or one.kind in "lacking")
    for identifier in [name for name in IDS if name in statement]:
        assert any(identifier in one.ids for one in found.findings), identifier
    assert pointer.sequence == upgraded.store.pointer().sequence


def test_a_file_that_cannot_be_read_is_a_finding(upgraded: Gallery) -> None:
    sql(upgraded, "ALTER TABLE journal RENAME COLUMN event TO lost")
    found = doctor(upgraded)
    assert finding(found, "unreadable").says.startswith("Following the journal failed: The database")
    assert [one for one in kinds(found, "error") if one[0] != "unreadable"] == []


def test_vectors_of_another_model_are_found_in_a_sample(upgraded: Gallery, embed: Embed) -> None:
    wrong = IDS[:6]
    forms = embed("stranger", wrong).vectors
    for identifier, vector in zip(wrong, forms, strict=True):
        sql(upgraded, "UPDATE rows SET vector = ? WHERE generation = 'g2' AND id = ?", blob(*vector), identifier)
    with reopened(upgraded) as gallery:
        assert doctor(gallery).healthy  # nothing but the model itself can tell
        found = doctor(gallery, Source(embed, "new"))
        assert kinds(found) == [("another model", "g2", 6)]
        assert set(finding(found, "another model").ids) == set(wrong)
        assert "6 of 20 sampled vectors of g2" in finding(found, "another model").says
        few = doctor(gallery, Source(embed, "new", known=IDS[3:]), sample=500)
        assert kinds(few, "error", "note") == [
            ("another model", "g2", 3), ("lacking", "g2", 10), ("declared", None, 2), ("not compared", "g2", 3),
        ]  # fmt: skip


def test_rounding_is_not_taken_for_another_model(upgraded: Gallery, embed: Embed) -> None:
    for identifier in IDS:
        half = embed("old", [identifier]).vectors[0].astype(np.float16).astype(np.float32)
        sql(upgraded, "UPDATE rows SET vector = ? WHERE generation = 'g1' AND id = ?", blob(*half), identifier)
    with reopened(upgraded) as gallery:
        assert doctor(gallery, Source(embed, "old")).healthy


def test_vectors_copied_from_another_generation_are_found_without_any_model(upgraded: Gallery, embed: Embed) -> None:
    items = upgraded.store.fetch(IDS[25:])
    ids, old = upgraded.store.vectors("g1", items.ids)
    fill = Fill(Rows("g2", ids, old), items.versions)
    with upgraded.store.writing("test"):
        upgraded.store.commit(Changes(fill=fill), upgraded.state.to_record(), {"kind": "backfill"})
    found = doctor(upgraded)
    assert kinds(found) == [("another model", "g2", 5)]
    assert "are those of g1, byte for byte" in finding(found, "another model").says


@pytest.mark.parametrize(("copies", "severity"), [(3, "note"), (12, "warning")])
def test_one_vector_under_many_ids(copies: int, severity: str, upgraded: Gallery, embed: Embed) -> None:
    names = [f"copy {number}" for number in range(copies)]
    point = embed("old", ["i00"]).vectors
    same = EmbeddingSet(
        ids=names,
        vectors=np.repeat(point, copies, axis=0),
        fingerprint="declared:old",
        space=SPHERE,  # type: ignore[arg-type]
    )
    upgraded.add(same)
    found = doctor(upgraded)
    one = finding(found, "same vector")
    assert (one.severity, one.generation, one.count) == (severity, "g1", copies)
    assert f"stands for {copies + 1} items" in one.says
    assert set(one.ids) == {*names, "i00"} and found.healthy


def test_remainders_are_compared_with_the_items(
    upgraded: Gallery, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole lists, and samples, tell a search that leaves out the wrong items."""
    assert upgraded.store.pointer().held == {frozenset({"g1", "g2"}): 20, frozenset({"g1"}): 10}
    search = upgraded.store.search
    lost, extra = "i25", "i02"

    def wrong(queries: Any, k: int, *, generation: str, without: Any = frozenset(), **more: Any) -> Any:
        """As if the store had noted that i25 has a new vector, and forgotten that i02 has."""
        hits = search(queries, 100, generation=generation, **more)
        if without:
            kept = {*IDS[20:], extra} - {lost}
            for place, ids in enumerate(hits.ids):
                rows = [row for row, one in enumerate(ids) if one in kept]
                hits.ids[place] = [ids[row] for row in rows][:k]
                hits.scores[place] = hits.scores[place][rows][:k]
        return hits

    for whole in (5_000, 0):
        monkeypatch.setattr(vectors, "WHOLE", whole)
        assert doctor(upgraded).healthy
        with monkeypatch.context() as patched:
            patched.setattr(upgraded.store, "search", wrong)
            found = [one for one in doctor(upgraded).findings if one.kind == "remainder"]
        assert [(one.ids, one.severity) for one in found] == [((lost,), "error"), ((extra,), "error")]
        assert "missing from the searches of g1 without g2" in found[0].says


def test_reports_and_adapters_that_vanish_or_change(
    upgraded: Gallery, reported: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    shutil.copy(reported(), path)
    upgraded.link("g2", "g1", report=path)
    assert doctor(upgraded).healthy and kinds(doctor(upgraded)) == []
    document = json.loads(path.read_text())
    document["evaluations"]["new"]["cross"]["map"] += 0.01
    path.write_text(json.dumps(document))
    assert kinds(doctor(upgraded)) == [("report", "g1", 1)]
    assert "other numbers" in finding(doctor(upgraded), "report").says
    document["evaluations"]["new"]["verdict"] = "not compatible"
    path.write_text(json.dumps(document))
    assert "does not vouch" in finding(doctor(upgraded), "report").says
    path.unlink()
    assert "is gone" in finding(doctor(upgraded), "report").says
    upgraded.link("g2", "g1", force="we looked at it")
    assert finding(doctor(upgraded), "forced").says.endswith("we looked at it.")
    assert kinds(doctor(upgraded)) == []


@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
def test_adapters(direction: str, tmp_path: Path, embed: Embed) -> None:
    from limpet.adapters.procrustes import Procrustes
    from limpet.adapters.storage import pack_adapter, save_adapter

    def fitted(new: str) -> Any:
        return Procrustes(direction=direction).fit(embed("old", IDS), embed(new, IDS))

    folder = tmp_path / "adapter"
    save_adapter(fitted("new"), folder)
    with Gallery.create("memory://", fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", SPHERE, adapter=folder)
        gallery.swap()
        shutil.rmtree(folder)
        assert doctor(gallery).healthy and kinds(doctor(gallery)) == []
        stranger = pack_adapter(fitted("stranger"))
        sql(gallery, "UPDATE files SET content = ?", stranger)
        found = doctor(gallery)
        assert "another digest" in finding(found, "adapter").says and not found.healthy
        sql(gallery, "UPDATE files SET content = ?, digest = ?", stranger, digest_of(stranger))
        assert "has no file sha256:" in finding(doctor(gallery), "adapter").says


WRONG = (None, True, -1, 1.5, 10**30, "g9", [], ["g9"], {}, {"g9": 1}, [{}], [[]])


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside a JSON value."""
    yield way
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from ways(inner, (*way, key))


def replaced(value: Any, way: tuple[Any, ...], by: Any) -> Any:
    if not way:
        return by
    changed = value.copy()
    changed[way[0]] = replaced(value[way[0]], way[1:], by)
    return changed


def test_no_value_inside_the_journal_or_the_state_stops_doctor(upgraded: Gallery) -> None:
    pointer = upgraded.store.pointer()
    missed = []
    for entry in upgraded.store.journal():
        for way in ways(dict(entry.event)):
            for value in WRONG:
                event = json.dumps(replaced(dict(entry.event), way, value))
                sql(upgraded, "UPDATE journal SET event = ? WHERE sequence = ?", event, entry.sequence)
                try:
                    found = journal_findings(upgraded.store, pointer)
                except StoreError:
                    continue
                if not found and entry.event["kind"] in ("create", "start") and value != _at(entry.event, way):
                    missed.append((way, value))
        sql(upgraded, "UPDATE journal SET event = ? WHERE sequence = ?", json.dumps(entry.event), entry.sequence)
    assert missed == []
    record = json.loads(json.dumps(pointer.manifest))
    for way in ways(record):
        for value in WRONG:
            try:
                state = GalleryState.from_record(replaced(record, way, value))
            except StoreError:
                continue
            wrong = replace(pointer, manifest=state.to_record())
            assert value == _at(record, way) or journal_findings(upgraded.store, wrong), (way, value)
            if state.generations:
                status(upgraded.store, wrong, state)


def _at(value: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        value = value[key]
    return value


def test_what_the_gallery_lacks_or_keeps(upgraded: Gallery, embed: Embed) -> None:
    upgraded.upsert(embed("new", ["fresh"]))
    upgraded.rollback()
    found = doctor(upgraded)
    assert found.healthy and kinds(found) == [("not found", "g1", 1)]
    upgraded.delete(["fresh"])
    upgraded.cancel()
    assert kinds(doctor(upgraded), "error", "warning", "note") == [("declared", None, 1)]


def test_writes_meanwhile_are_not_taken_for_damage(upgraded: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items deleted while they are counted seem to be missing, until they are counted again."""
    left, scan = [IDS[29]], upgraded.store.scan

    def after_a_deletion(**asked: Any) -> Any:
        if left:
            upgraded.delete([left.pop()])
        return scan(**asked)

    monkeypatch.setattr(upgraded.store, "scan", after_a_deletion)
    found = doctor(upgraded)
    assert found.items == 29 and not left
    assert kinds(found) == []


@pytest.mark.parametrize("damaged", [False, True])
def test_rows_that_others_write_meanwhile_are_not_counted_as_wrong(
    damaged: bool, upgraded: Gallery, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_check, "ITEMS_AT_ONCE", 8)
    if damaged:
        sql(upgraded, "UPDATE rows SET version = version - 1 WHERE generation = 'g2' AND id = 'i16'")
        sql(upgraded, "DELETE FROM rows WHERE generation = 'g2' AND id = 'i15'")
        sql(upgraded, "UPDATE items SET mask = 1 WHERE id = 'i13'")
    with reopened(upgraded) as gallery:
        if damaged:
            sql(gallery, "DELETE FROM items WHERE id = 'i14'")

        def write(told: dict[str, Any]) -> None:
            if told["done"] == 8:
                gallery.delete(["i19"])
                gallery.upsert(embed("old", ["i18"], draw=1))
                gallery.upsert(embed("old", ["i17"], draw=1), embed("new", ["i17"], draw=1))
                gallery.add(embed("new", ["fresh"]))
                gallery.backfill(Source(embed, "new", IDS[20:]), budget=5)

        before = gallery.store.pointer().sequence
        found = gallery.check_vectors("g2", progress=write)
        assert gallery.store.pointer().sequence > before + 4
    kinds = ("outdated", "lost", "orphan", "unmarked")
    assert found.wrong == (dict.fromkeys(kinds, 1) if damaged else {})
    assert [found.named[kind] for kind in kinds if damaged] == [["i16"], ["i15"], ["i14"], ["i13"]][: 4 * damaged]


def test_orphans_are_named_while_searches_can_find_them(upgraded: Gallery) -> None:
    sql(upgraded, "DELETE FROM items WHERE id IN ('i01', 'i29')")
    found = doctor(upgraded)
    assert {("counts", None, 2), ("orphan", "g1", 2), ("orphan", "g2", 1)} <= set(kinds(found, "error"))
    assert finding(found, "orphan").ids == ("i01", "i29")


def test_a_curved_gallery_in_every_store(place: str, embed: Embed) -> None:
    space = Lorentz(4, 0.7)
    with Gallery.create(place, fingerprint="declared:old", space=space) as gallery:
        gallery.add(embed("old", IDS, space=space))
        gallery.start("declared:new", space)
        gallery.link("declared:new", "declared:old", force="a test")
        gallery.swap()
        gallery.backfill(Source(embed, "new", space=space), budget=12)
        found = doctor(gallery, [Source(embed, "new", space=space), Source(embed, "old", space=space)])
    assert kinds(found) == [] and found.rows == {"g1": 30, "g2": 12}


def test_sources_of_the_sample_are_stable(upgraded: Gallery, embed: Embed) -> None:
    asked: list[list[str]] = []

    class Listening(Source):
        def embed(self, ids: Sequence[str]) -> EmbeddingSet:
            asked.append(list(ids))
            return super().embed(ids)

    for seed in (0, 0, 1):
        doctor(upgraded, Listening(embed, "new"), sample=5, seed=seed)
    assert asked[0] == asked[1] != asked[2] and len(asked[0]) == 5


def appended(gallery: Gallery, ids: list[str], vectors: Any, versions: Any) -> None:
    """Let a store on disk write rows that no plan of a commit would hold."""
    store: Any = gallery.store
    part = Appended(
        Rows("g1", ids, np.asarray(vectors, np.float32)),
        np.asarray(versions, np.int64),
        [{} for _ in ids],
        [frozenset({"g1"}) for _ in ids],
    )
    with store.writing("test") as pointer:
        none = store.fetch([])
        plan = CommitPlan(pointer.sequence + 1, {}, [part], np.empty(0, np.bool_), (), none, {})
        places = store._write(plan, Changes())
        store._record(plan, Changes(), gallery.state.to_record(), {"kind": "backfill"}, places)


def test_damage_of_a_gallery_on_disk(tmp_path: Path, embed: Embed) -> None:
    with Gallery.create(f"lance:{tmp_path / 'gallery'}", fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", SPHERE)
        gallery.link("g2", "g1", force="a test")
        gallery.swap()
        gallery.backfill(Source(embed, "new"), budget=20, batch=10)
        assert doctor(gallery, Source(embed, "new")).healthy
        appended(gallery, ["i02", "stray"], [[1, 0, 0, 0], [0, 0, 0, 0]], [2, 2])
        sql(gallery, "DELETE FROM items WHERE id = 'i28'")
        sql(gallery, "UPDATE items SET mask = 1 WHERE id = 'i03'")
        sql(gallery, "UPDATE items SET mask = 3 WHERE id = 'i27'")
        sql(gallery, "UPDATE items SET version = 1 WHERE id = 'i26'")
        found = doctor(gallery)
    assert sorted(kinds(found), key=str) == sorted(
        [
            ("counts", None, 1), ("rows", "g1", 2), ("repeated", "g1", 1), ("orphan", "g1", 2), ("no point", "g1", 1),
            ("outdated", "g1", 1), ("unmarked", "g2", 1), ("lost", "g2", 1), ("remainder", "g1", 1),
            ("remainder", "g1", 4),
        ],
        key=str,
    )  # fmt: skip
    assert set(finding(found, "orphan").ids) == {"stray", "i28"} and finding(found, "repeated").ids == ("i02",)
