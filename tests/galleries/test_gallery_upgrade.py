"""The steps of an upgrade: a swap needs a reason, a rollback loses nothing, and two processes may meet in them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from limpet.engines.stores import open_store
from limpet.errors import ConfigError, DataError, GalleryError, SpaceMismatchError, StoreError, UpgradeStateError
from limpet.galleries import Gallery
from limpet.galleries.state import GalleryState, replay
from limpet.geometry import Hypersphere

IDS = [f"i{row:02}" for row in range(12)]
SPHERE = Hypersphere(4)


def test_old_and_new_queries_are_answered_side_by_side(
    started, embed, asked, same_as_a_loop, hits_of, points_of
) -> None:
    started.upsert(embed("old", IDS[:4]), embed("new", IDS[:4]))
    held = points_of(embed("old", IDS), embed("new", IDS[:4]))
    before = hits_of(started, asked("old")), hits_of(started, asked("new"))
    for step in (started.swap, started.rollback, started.swap):
        step()
        same_as_a_loop(started, asked("old"), held, ["old"])
        same_as_a_loop(started, asked("new"), held, ["new", "old"])
        assert (hits_of(started, asked("old")), hits_of(started, asked("new"))) == before


def test_a_rollback_keeps_what_was_written_since(started, embed, asked, same_as_a_loop, points_of) -> None:
    started.swap()
    started.upsert(embed("new", ["only new"]))
    started.upsert(embed("old", ["both"]), embed("new", ["both"]))
    started.delete(["i03"])
    assert started.rollback() == 1
    held = points_of(embed("old", [one for one in IDS if one != "i03"] + ["both"]), embed("new", ["both", "only new"]))
    same_as_a_loop(started, asked("old"), held, ["old"], k=20)
    started.swap()
    same_as_a_loop(started, asked("new"), held, ["new", "old"], k=20)


def test_old_queries_see_new_vectors_only_where_that_was_measured(
    started, embed, asked, reported, same_as_a_loop, points_of
) -> None:
    started.swap()
    started.upsert(embed("new", ["only new"]))
    held = points_of(embed("old", IDS), embed("new", ["only new"]))
    same_as_a_loop(started, asked("old"), held, ["old"], k=20)
    with pytest.raises(GalleryError, match="other models"):
        started.link("g1", "g2", report=reported())  # measured new queries on old vectors
    started.link("declared:old", "g2", report=reported("new", "old"))
    same_as_a_loop(started, asked("old"), held, ["old", "new"], k=20)


def test_the_way_back_passes_if_old_queries_find_what_they_find_at_home(gallery, reported) -> None:
    gallery.start("declared:new", SPHERE)
    link = gallery.link("g1", "g2", report=reported("new", "old", "equal"))
    assert link.evidence["verdict"] == "not compatible"
    assert link.evidence["cross"] >= link.evidence["self_new"]
    with pytest.raises(GalleryError, match="not compatible"):
        gallery.link("g2", "g1", report=reported("old", "new", "equal"))  # forwards that is not enough


def test_a_report_that_is_clearly_worse_at_the_first_hit_is_refused(gallery, embed, reported, tmp_path) -> None:
    document = json.loads(reported().read_text())
    record = document["evaluations"]["new"]
    record["interval"]["recall@1"]["cross_minus_self_old"] = [-0.2, -0.1]
    record |= {"self_old": {**record["self_old"], "recall@1": 0.75}, "cross": {**record["cross"], "recall@1": 0.6}}
    record |= {"verdict": "mixed", "worse": ["recall@1"]}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", SPHERE)
    with pytest.raises(GalleryError, match=r"(?s)compatible in map.*worse in recall@1: 0.750.*0.600.*--guard"):
        gallery.link("g2", "g1", report=path)
    record |= {"verdict": "compatible", "guards": [], "worse": []}
    path.write_text(json.dumps(document))
    assert gallery.link("g2", "g1", report=path).evidence["verdict"] == "compatible"


def test_a_swap_needs_a_reason(gallery, embed, reported) -> None:
    with pytest.raises(UpgradeStateError, match="Cannot swap"):
        gallery.swap()
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", SPHERE)
    with pytest.raises(GalleryError, match=r"would not find 12 of 12 items.*vectors of g1"):
        gallery.swap()
    with pytest.raises(GalleryError, match="not compatible"):
        gallery.link("g2", "g1", report=reported(outcome="worse"))
    with pytest.raises(GalleryError, match="other models"):
        gallery.link("g2", "g1", report=reported("old", "newer"))
    assert gallery.state.active == "g1"
    gallery.link("g2", "g1", report=reported())
    assert gallery.swap().active == "g2"


@pytest.mark.parametrize(
    ("arguments", "message"), [({"outcome": "worse"}, "not compatible"), ({"old": "older"}, "other models")]
)
def test_start_refuses_reports_that_do_not_vouch(gallery, embed, reported, arguments, message) -> None:
    with pytest.raises(GalleryError, match=message):
        gallery.start("declared:new", SPHERE, reports=[reported(**arguments)])
    assert (gallery.state.phase, gallery.store.pointer().sequence) == ("steady", 1)


def test_a_file_that_is_no_report_is_refused(gallery, tmp_path) -> None:
    for name, text in (("missing", None), ("words", "no JSON"), ("list", "[]"), ("half", '{"evaluations": {"a": {}}}')):
        path = tmp_path / name
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(GalleryError, match="no compatibility report"):
            gallery.start("declared:new", SPHERE, reports=[path])


def test_a_report_on_mapped_queries_says_nothing_of_plain_ones(gallery, reported, tmp_path) -> None:
    text = reported().read_text(encoding="utf-8").replace('"mapped": null', '"mapped": {"query": "adapter:mapped"}')
    assert "adapter:mapped" in text
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(GalleryError, match="other models"):
        gallery.start("declared:new", SPHERE, reports=[tmp_path])


def test_a_forced_swap_is_in_the_journal_with_its_reason(gallery, embed, asked, same_as_a_loop, points_of) -> None:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", SPHERE)
    with pytest.raises(ConfigError, match="The reason ''"):
        gallery.swap(force="")
    gallery.swap(force="the old model is gone")
    event = gallery.store.journal()[-1].event
    assert (event["kind"], event["forced"]) == ("swap", "the old model is gone")
    same_as_a_loop(gallery, asked("new"), points_of(embed("old", IDS)), ["new", "old"])


def test_force_links_no_two_spaces(gallery, embed, asked) -> None:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", Hypersphere(6))
    with pytest.raises(SpaceMismatchError, match="dimension 6"):
        gallery.link("g2", "g1", force="tests")
    gallery.swap(force="tests")
    assert gallery.search(asked("new", space=Hypersphere(6))).covered == 0


def test_a_full_generation_swaps_without_a_report(gallery, embed, only_these) -> None:
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", SPHERE)
    gallery.backfill(only_these(embed("new", IDS)))
    assert gallery.swap().active == "g2"


def test_a_third_model_must_find_what_the_second_one_found(
    started, embed, only_these, asked, reported, same_as_a_loop, points_of
) -> None:
    started.swap()
    started.backfill(only_these(embed("new", IDS[:5])))
    started.start("declared:newest", SPHERE, reports=[reported("new", "newest")])
    with pytest.raises(GalleryError, match=r"would not find 7 of 12 items.*vectors of g1"):
        started.swap()
    started.link("g3", "g1", report=reported("old", "newest"))
    started.swap()
    started.backfill(only_these(embed("newest", IDS[3:8])))
    held = points_of(embed("old", IDS), embed("new", IDS[:5]), embed("newest", IDS[3:8]))
    same_as_a_loop(started, asked("newest"), held, ["newest", "new", "old"], k=20)
    same_as_a_loop(started, asked("new"), held, ["new", "old"], k=20)
    same_as_a_loop(started, asked("old"), held, ["old"], k=20)


def test_a_second_start_is_refused(started) -> None:
    with pytest.raises(UpgradeStateError, match="Cannot start: the upgrade is started"):
        started.start("declared:newest", SPHERE)
    with pytest.raises(ConfigError, match="already: g2"):
        started.start("declared:new", SPHERE)


# How upgrades end


def test_finish_refuses_what_lacks_and_records_what_may_lack(started, embed, only_these) -> None:
    with pytest.raises(UpgradeStateError, match="Cannot finish"):
        started.finish()
    started.swap()
    started.backfill(only_these(embed("new", IDS[:9])))
    with pytest.raises(GalleryError, match="3 of 12 items have no vector of g2: 'i09', 'i10', 'i11'"):
        started.finish(allow_missing=2)
    assert started.state.phase == "swapped" and started.store.pointer().covered(["g1"]) == 12
    found = started.finish(allow_missing=3)
    assert (found.right, found.lacking, list(started.state.by_name)) == (9, 3, ["g2"])
    event = started.store.journal()[-1].event
    assert (event["kind"], event["missing"], event["dropped"]) == ("finish", 3, ["g1"])
    assert (len(started), started.status().phase, started.status().lacking) == (12, "steady", 3)
    with pytest.raises(GalleryError, match="no generation 'g1'"):
        started.store.upkeep("g1")


def test_finish_counts_what_is_written_while_it_reads(started, embed, only_these) -> None:
    started.swap()
    started.backfill(only_these(embed("new", IDS)))
    late = iter([lambda: started.upsert(embed("old", ["late"]))])
    with pytest.raises(GalleryError, match="1 of 13 items have no vector of g2"):
        started.finish(progress=lambda told: next(late, lambda: None)())
    assert "g1" in started.state.by_name


@pytest.mark.parametrize("step", ["finish", "cancel"])
def test_a_reader_of_the_commit_before_finds_what_is_removed(place, embed, asked, step) -> None:
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", SPHERE)
        gallery.upsert(embed("old", IDS), embed("new", IDS))
        model = "new" if step == "cancel" else "old"
        if step == "finish":
            gallery.swap()
        generation, form = (
            gallery.state.made_by(f"declared:{model}").name,
            SPHERE.index_form(asked(model).vectors, "query"),
        )
        before = gallery.store.pointer()
        found = gallery.store.search(form, 5, generation=generation, at=before).ids
        getattr(gallery, step)()
        if gallery.store.kind == "postgresql":  # which keeps no history
            with pytest.raises(GalleryError, match=f"no generation '{generation}'"):
                gallery.store.search(form, 5, generation=generation, at=before)
        else:
            assert gallery.store.search(form, 5, generation=generation, at=before).ids == found


@pytest.mark.parametrize("step", ["finish", "cancel"])
def test_what_cannot_be_tidied_waits_for_gc(place, embed, only_these, step, monkeypatch) -> None:
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", SPHERE)
        gallery.backfill(only_these(embed("new", IDS)))
        if step == "finish":
            gallery.swap()
        with monkeypatch.context() as patched:
            patched.setattr(gallery.store, "tidy", failing)
            getattr(gallery, step)()
        assert gallery.state.phase == "steady"
        waiting = gallery.store.waiting()
        assert waiting > 0 and gallery.gc(older_than=0).waiting < waiting


def failing(**_: Any) -> Any:
    raise StoreError("The disk is full.")


def test_a_check_of_all_vectors_finds_what_is_wrong(tmp_path, embed, only_these) -> None:
    with Gallery.create(f"memory:{tmp_path / 'g'}", fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
        gallery.start("declared:new", SPHERE)
        gallery.backfill(only_these(embed("new", IDS)))
        gallery.swap()
        change = gallery.store.database.execute  # type: ignore[attr-defined]
        change("UPDATE rows SET vector = ? WHERE id = 'i01'", [np.zeros(4, "<f4").tobytes()])
        change("UPDATE rows SET version = 1 WHERE id = 'i02'")
        change("UPDATE items SET mask = 1 WHERE id = 'i03'")
        change("UPDATE items SET mask = 3 WHERE id = 'i03' AND mask = 0")
        change("DELETE FROM rows WHERE id = 'i04'")
        change("DELETE FROM items WHERE id = 'i05'")
    with Gallery.open(str(tmp_path / "g")) as gallery:
        found = gallery.check_vectors("declared:new")
        assert found.wrong == {"no point": 1, "outdated": 1, "unmarked": 1, "lost": 1}
        assert {kind: found.named[kind] for kind in found.wrong} == {
            "no point": ["i01"], "outdated": ["i02"], "unmarked": ["i03"], "lost": ["i04"],
        }  # fmt: skip
        with pytest.raises(GalleryError, match="1 no point: 'i01'"):
            gallery.finish()
        assert gallery.state.phase == "swapped"


def test_cancel_refuses_to_lose_only_vectors(started, embed, asked, same_as_a_loop, points_of) -> None:
    started.upsert(embed("new", ["only new"]))
    with pytest.raises(GalleryError, match="1 items have no other vector"):
        started.cancel()
    started.delete(["only new"])
    started.cancel()
    with pytest.raises(GalleryError, match="no generation 'g2'"):
        started.store.upkeep("g2")
    with pytest.raises(DataError, match="declared:new"):
        started.search(asked("new"))
    assert started.start("declared:new", SPHERE).name == "g3"
    same_as_a_loop(started, asked("old"), points_of(embed("old", IDS)), ["old"])


def test_an_upsert_meets_the_state_that_another_process_made(tmp_path, embed, asked, same_as_a_loop, points_of) -> None:
    place = f"memory:{tmp_path / 'g'}"
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE) as mine, Gallery.open(place) as other:
        mine.add(embed("old", IDS[:4]))
        other.start("declared:new", SPHERE)
        other.swap(force="tests")
        mine.upsert(embed("new", IDS[4:]))
        assert mine.state.active == other.state.active == "g2"
        same_as_a_loop(mine, asked("new"), points_of(embed("old", IDS[:4]), embed("new", IDS[4:])), ["new", "old"])
        assert replay([entry.event for entry in mine.store.journal()]) == other.state
        other.rollback()
        other.delete(IDS[4:])
        other.cancel()
        with pytest.raises(DataError, match="declared:new"):
            mine.upsert(embed("new", ["z"]))


def test_a_swap_between_two_commits_of_one_upsert_stays(tmp_path, embed, monkeypatch) -> None:
    monkeypatch.setattr("limpet.galleries.gallery.ROWS_AT_ONCE", 5)
    place = f"memory:{tmp_path / 'g'}"
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE) as mine, Gallery.open(place) as other:
        other.start("declared:new", SPHERE)
        swaps = iter([lambda: other.swap(force="tests")])
        mine.add(embed("old", IDS), progress=lambda told: next(swaps, lambda: None)())
        assert (mine.state.active, other.state.active, len(other)) == ("g2", "g2", 12)


def test_a_creation_that_was_interrupted_can_be_repeated(place, embed) -> None:
    open_store(place, create=True).close()  # what is there before the first commit
    with pytest.raises(GalleryError, match=r"(?s)not finished.*limpet gallery create"):
        Gallery.open(place)
    with Gallery.create(place, fingerprint="declared:old", space=SPHERE) as gallery:
        gallery.add(embed("old", IDS))
    with pytest.raises(GalleryError, match=r"(?i)there is a gallery|holds a gallery"):
        Gallery.create(place, fingerprint="declared:old", space=SPHERE)
    with Gallery.open(place) as gallery:
        assert len(gallery) == 12


def test_the_status_counts_rows_and_coverage(started, embed, only_these) -> None:
    started.backfill(only_these(embed("new", IDS[:5])))
    started.upsert(embed("new", ["z"]))
    status = started.status()
    assert (status.phase, status.items, status.target, status.lacking) == ("started", 13, "g2", 7)
    rows = [(one.name, one.standing, one.rows, one.covered, one.searches) for one in status.generations]
    assert rows == [("g1", "active", 12, 12, ("g1",)), ("g2", "started", 6, 13, ("g2", "g1"))]
    assert [(link.query, link.gallery, link.how) for link in status.links] == [("g2", "g1", "report")]
    assert status.links[0].evidence["verdict"] == "compatible"
    assert (status.columns, status.to_dict()["kind"]) == ({}, "memory")


def test_the_journal_tells_the_state(started, embed, only_these, reported) -> None:
    def told() -> GalleryState:
        return replay([entry.event for entry in started.store.journal()])

    steps: list[Any] = [
        started.swap, started.rollback, started.swap, lambda: started.backfill(only_these(embed("new", IDS))),
        lambda: started.start("declared:newest", SPHERE), started.cancel, started.finish, started.gc,
    ]  # fmt: skip
    for step in steps:
        step()
        assert told() == started.state
        assert told() == GalleryState.from_record(started.store.pointer().manifest)


@pytest.fixture
def unlinked(gallery: Gallery, embed) -> Gallery:
    """Twelve old items, and "new" started without anything that lets its queries search old vectors."""
    gallery.add(embed("old", IDS))
    gallery.start("declared:new", SPHERE)
    return gallery


def test_swap_with_force_adds_no_link_where_nothing_is_lost(unlinked, embed, only_these) -> None:
    unlinked.backfill(only_these(embed("new", IDS)))
    unlinked.swap(force="to be sure")
    assert unlinked.state.links == ()


def test_swap_lets_so_many_items_be_lost_and_no_more(unlinked, embed, only_these) -> None:
    unlinked.backfill(only_these(embed("new", IDS[:9])))
    with pytest.raises(GalleryError, match="would not find 3 of 12 items"):
        unlinked.swap(allow_missing=2)
    unlinked.swap(allow_missing=3)
    assert (unlinked.state.phase, unlinked.state.links) == ("swapped", ())
