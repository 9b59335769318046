"""A swap needs a reason, and a rollback loses nothing."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import ConfigError, GalleryError, SpaceMismatchError, UpgradeStateError
from holdfast.geometry import Hypersphere

IDS = [f"i{row:02}" for row in range(12)]
SPHERE = Hypersphere(4)


def test_old_and_new_queries_are_answered_side_by_side(
    prepared, embed, asked, same_as_a_loop, hits_of, points_of
) -> None:
    prepared.upsert(embed("old", IDS[:4]), embed("new", IDS[:4]))
    held = points_of(embed("old", IDS), embed("new", IDS[:4]))
    before = hits_of(prepared, asked("old")), hits_of(prepared, asked("new"))
    for step in (prepared.swap, prepared.rollback, prepared.swap):
        step()
        same_as_a_loop(prepared, asked("old"), held, ["old"])
        same_as_a_loop(prepared, asked("new"), held, ["new", "old"])
        assert (hits_of(prepared, asked("old")), hits_of(prepared, asked("new"))) == before


def test_a_rollback_keeps_what_was_written_since(prepared, embed, asked, same_as_a_loop, points_of) -> None:
    prepared.swap()
    prepared.upsert(embed("new", ["only new"]))
    prepared.upsert(embed("old", ["both"]), embed("new", ["both"]))
    prepared.delete(["i03"])
    assert prepared.rollback() == 1
    held = points_of(embed("old", [one for one in IDS if one != "i03"] + ["both"]), embed("new", ["both", "only new"]))
    same_as_a_loop(prepared, asked("old"), held, ["old"], k=20)
    prepared.swap()
    same_as_a_loop(prepared, asked("new"), held, ["new", "old"], k=20)


def test_old_queries_see_new_vectors_only_where_that_was_measured(
    prepared, embed, asked, reported, same_as_a_loop, points_of
) -> None:
    prepared.swap()
    prepared.upsert(embed("new", ["only new"]))
    held = points_of(embed("old", IDS), embed("new", ["only new"]))
    same_as_a_loop(prepared, asked("old"), held, ["old"], k=20)
    with pytest.raises(GalleryError, match="other models"):
        prepared.link("g1", "g2", report=reported())  # measured new queries on old vectors
    prepared.link("declared:old", "g2", report=reported("new", "old"))
    same_as_a_loop(prepared, asked("old"), held, ["old", "new"], k=20)


def test_the_way_back_passes_if_old_queries_find_what_they_find_at_home(gallery, reported) -> None:
    gallery.prepare("declared:new", SPHERE)
    link = gallery.link("g1", "g2", report=reported("new", "old", "equal"))
    assert link.evidence["verdict"] == "not compatible"
    assert link.evidence["cross"] >= link.evidence["self_new"]
    with pytest.raises(GalleryError, match="not compatible"):
        gallery.link("g2", "g1", report=reported("old", "new", "equal"))  # forwards that is not enough


@pytest.mark.parametrize("version", ["now", "earlier"])
def test_a_report_that_is_clearly_worse_at_the_first_hit_is_refused(
    version, gallery, embed, reported, tmp_path
) -> None:
    """Earlier versions guarded nothing, and wrote the interval all the same."""
    document = json.loads(reported().read_text())
    record = document["evaluations"]["new"]
    record["interval"]["recall@1"]["cross_minus_self_old"] = [-0.2, -0.1]
    record |= {"self_old": {**record["self_old"], "recall@1": 0.75}, "cross": {**record["cross"], "recall@1": 0.6}}
    if version == "now":
        record |= {"verdict": "mixed", "worse": ["recall@1"]}
    else:
        del record["guards"], record["worse"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    gallery.add(embed("old", IDS))
    gallery.prepare("declared:new", SPHERE)
    with pytest.raises(GalleryError, match=r"(?s)compatible in map.*worse in recall@1: 0.750.*0.600.*--guard"):
        gallery.link("g2", "g1", report=path)
    record |= {"verdict": "compatible", "guards": [], "worse": []}
    path.write_text(json.dumps(document))
    assert gallery.link("g2", "g1", report=path).evidence["verdict"] == "compatible"


def test_a_swap_needs_a_reason(gallery, embed, reported) -> None:
    with pytest.raises(UpgradeStateError, match="Cannot swap"):
        gallery.swap()
    gallery.add(embed("old", IDS))
    gallery.prepare("declared:new", SPHERE)
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
def test_preparing_refuses_reports_that_do_not_vouch(gallery, embed, reported, arguments, message) -> None:
    with pytest.raises(GalleryError, match=message):
        gallery.prepare("declared:new", SPHERE, reports=[reported(**arguments)])
    assert (gallery.state.phase, gallery.store.pointer().sequence) == ("steady", 1)


def test_a_file_that_is_no_report_is_refused(gallery, tmp_path) -> None:
    for name, text in (("missing", None), ("words", "no JSON"), ("list", "[]"), ("half", '{"evaluations": {"a": {}}}')):
        path = tmp_path / name
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(GalleryError, match="no compatibility report"):
            gallery.prepare("declared:new", SPHERE, reports=[path])


def test_a_report_on_mapped_queries_says_nothing_of_plain_ones(gallery, reported, tmp_path) -> None:
    text = reported().read_text(encoding="utf-8").replace('"mapped": null', '"mapped": {"query": "adapter:mapped"}')
    assert "adapter:mapped" in text
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(GalleryError, match="other models"):
        gallery.prepare("declared:new", SPHERE, reports=[tmp_path])


def test_a_forced_swap_is_in_the_journal_with_its_reason(gallery, embed, asked, same_as_a_loop, points_of) -> None:
    gallery.add(embed("old", IDS))
    gallery.prepare("declared:new", SPHERE)
    with pytest.raises(ConfigError, match="The reason ''"):
        gallery.swap(force="")
    gallery.swap(force="the old model is gone")
    event = gallery.store.journal()[-1].event
    assert (event["kind"], event["forced"]) == ("swap", "the old model is gone")
    same_as_a_loop(gallery, asked("new"), points_of(embed("old", IDS)), ["new", "old"])


def test_force_links_no_two_spaces(gallery, embed, asked) -> None:
    gallery.add(embed("old", IDS))
    gallery.prepare("declared:new", Hypersphere(6))
    with pytest.raises(SpaceMismatchError, match="dimension 6"):
        gallery.link("g2", "g1", force="tests")
    gallery.swap(force="tests")
    assert gallery.search(asked("new", space=Hypersphere(6))).covered == 0


def test_a_full_generation_swaps_without_a_report(gallery, embed, only_these) -> None:
    gallery.add(embed("old", IDS))
    gallery.prepare("declared:new", SPHERE)
    gallery.backfill(only_these(embed("new", IDS)))
    assert gallery.swap().active == "g2"


def test_a_third_model_must_find_what_the_second_one_found(
    prepared, embed, only_these, asked, reported, same_as_a_loop, points_of
) -> None:
    prepared.swap()
    prepared.backfill(only_these(embed("new", IDS[:5])))
    prepared.prepare("declared:newest", SPHERE, reports=[reported("new", "newest")])
    with pytest.raises(GalleryError, match=r"would not find 7 of 12 items.*vectors of g1"):
        prepared.swap()
    prepared.link("g3", "g1", report=reported("old", "newest"))
    prepared.swap()
    prepared.backfill(only_these(embed("newest", IDS[3:8])))
    held = points_of(embed("old", IDS), embed("new", IDS[:5]), embed("newest", IDS[3:8]))
    same_as_a_loop(prepared, asked("newest"), held, ["newest", "new", "old"], k=20)
    same_as_a_loop(prepared, asked("new"), held, ["new", "old"], k=20)
    same_as_a_loop(prepared, asked("old"), held, ["old"], k=20)


def test_a_second_preparation_is_refused(prepared) -> None:
    with pytest.raises(UpgradeStateError, match="prepared g2"):
        prepared.prepare("declared:newest", SPHERE)
    with pytest.raises(ConfigError, match="already: g2"):
        prepared.prepare("declared:new", SPHERE)
