"""A whole upgrade on a copy: what it measures is what the gallery would do, and the gallery is left alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.engines.memory.store import MemoryStore
from limpet.errors import ConfigError, DataError, EmptyOverlapError, UpgradeStateError
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.evaluation.two_stage import rescored, rescored_metrics
from limpet.galleries import Gallery
from limpet.galleries.orders import ORDERS, Backlog
from limpet.galleries.rehearsal import Rehearsal, rehearse
from limpet.galleries.rehearsal.results import OrderCurve, Searches, verdict_of
from limpet.geometry import Hypersphere, Lorentz, Space

SPHERE = Hypersphere(8)
IDS = [f"i{number:03}" for number in range(60)]
LABELS = np.arange(60) % 5


def made_by(model: str, noise: float, space: Space = SPHERE, turned: bool = False) -> EmbeddingSet:
    """Five classes, seen through more or less noise; ``turned`` leaves no old vector near a new one."""
    rng = np.random.default_rng(len(model))
    centres = 0.8 * np.eye(5, space.dim)[LABELS]
    vectors = (centres + noise * rng.normal(size=centres.shape)).astype(np.float32)
    return EmbeddingSet(
        ids=IDS,  # type: ignore[arg-type]
        vectors=np.roll(vectors, 3, axis=1) if turned else vectors,
        fingerprint=f"declared:{model}",
        space=space,
        labels=LABELS,
    )


OLD, NEW = made_by("old", 0.45), made_by("newer", 0.2)


class Source:
    """Hands out vectors, and remembers what it was asked for."""

    def __init__(self, embeddings: EmbeddingSet, pause: float = 0.0) -> None:
        self.all, self.fingerprint, self.space, self.pause = embeddings, embeddings.fingerprint, embeddings.space, pause
        self.asked: list[str] = []

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        time.sleep(self.pause * len(ids))
        self.asked += ids
        rows = self.all.ids.find(list(ids))
        return self.all[rows[rows >= 0]]


def filled(old: EmbeddingSet = OLD, labelled: bool = True) -> Gallery:
    columns = {"label": "text"} if labelled else {}
    gallery = Gallery.create("memory://", fingerprint=old.fingerprint, space=old.space, columns=columns, note="first")
    gallery.add(old, metadata={"label": [f"class {label}" for label in LABELS]} if labelled else None)
    return gallery


def linked(gallery: Gallery, new: EmbeddingSet = NEW) -> Gallery:
    gallery.start(new.fingerprint, new.space, note="second")
    gallery.link(new.fingerprint, OLD.fingerprint, force="a test")
    return gallery


@pytest.fixture
def gallery() -> Iterator[Gallery]:
    with linked(filled()) as opened:
        yield opened


def plain(found: Rehearsal) -> dict[str, Any]:
    return json.loads(json.dumps(found.to_dict()))


def mixed(order: Sequence[str], share: float) -> EmbeddingSet:
    """The gallery with the first vectors of an order new and all others old, as one set."""
    fresh = set(order[: round(share * 60)])
    new_there = np.array([one in fresh for one in IDS])
    vectors = np.where(new_there[:, None], NEW.vectors, OLD.vectors)
    return NEW.replace(vectors=vectors)


def test_the_curves_are_those_of_the_metrics_on_a_mixed_gallery(gallery: Gallery) -> None:
    before = gallery.store.pointer()
    found = rehearse(gallery, Source(NEW), orders=["random", "id"], seed=3)
    unknown = lambda: np.zeros(60)  # noqa: E731
    backlog = Backlog(IDS, traffic=dict, uncertainty=unknown)
    assert list(found.curves) == ["random", "id"]
    for name, curve in found.curves.items():
        order = ORDERS[name](backlog, 3)
        assert curve.shares == (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
        for place, share in enumerate(curve.shares):
            expected = rank_metrics(NEW, mixed(order, share), ("map", "recall@1"), exclude_same_id=True)
            for metric, values in expected.items():
                assert curve.values[metric][place] == pytest.approx(values.mean(), abs=1e-6), (name, share, metric)
    old = rank_metrics(OLD, OLD, ("map", "recall@1"), exclude_same_id=True)
    assert found.before["map"] == pytest.approx(old["map"].mean(), abs=1e-6)
    new_queries = rank_metrics(NEW, mixed([], 0), ("map",), exclude_same_id=True)["map"]
    differences = found.curves["random"].differences
    assert differences is not None and list(differences) == ["map", "recall@1"]
    mean, low, high = differences["map"][0]
    assert mean == pytest.approx((new_queries - old["map"]).mean(), abs=1e-6) and low < mean < high
    assert gallery.store.pointer() == before and gallery.store.queue("g2") is None
    assert (found.queries, found.asked, found.judged, found.linked) == ("items", 60, 60, "forced")


def test_rehearse_averages_over_the_orders_of_tied_items() -> None:
    old, new = (one.replace(vectors=np.where(one.vectors > 0.4, 1, 0.25).astype(np.float32)) for one in (OLD, NEW))
    assert len(np.unique(old.vectors, axis=0)) < len(IDS)
    before, after = (rank_metrics(one, one, ("map", "recall@1"), exclude_same_id=True) for one in (old, new))
    with linked(filled(old), new) as gallery:
        found = rehearse(gallery, Source(new), orders=["random"])
    for metric in ("map", "recall@1"):
        assert found.before[metric] == pytest.approx(before[metric].mean(), abs=1e-6)
        assert found.curve.values[metric][-1] == pytest.approx(after[metric].mean(), abs=1e-6)
    gain, hits = after["recall@1"] - before["recall@1"], found.net_first_hits
    assert hits is not None and hits.net == pytest.approx(gain.mean()) == hits.healed - hits.broken
    assert hits.healed == pytest.approx(np.maximum(gain, 0).mean()) and 0 < len(np.unique(before["recall@1"])) > 2


def test_two_stage_search_is_that_of_the_evaluation(gallery: Gallery) -> None:
    """Sampled items ask; each finds ten others, which the new model orders, and the rest follows as the old had it."""
    source = Source(NEW, pause=0.001)
    found = rehearse(gallery, source, orders=["random"])
    two, sides = found.two_stage, ((OLD, OLD), (NEW, NEW))
    assert two is not None and two.candidates == 10
    expected = rescored_metrics(*sides, 10, ("map", "recall@1"), exclude_same_id=True)
    old = rank_metrics(OLD, OLD, ("map", "recall@1"), exclude_same_id=True)
    for metric, values in expected.items():
        assert two.values[metric] == pytest.approx(values.mean(), abs=1e-6)
        assert two.differences is not None
        mean, low, high = two.differences[metric]
        assert mean == pytest.approx((values - old[metric]).mean(), abs=1e-6)
        assert low < mean < high
    nearest = rescored(*sides, 10, exclude_same_id=True)
    encoded = set(nearest.found.ravel().tolist()) | set(range(60))  # every query is an item, and finds itself
    assert two.encoded == len(encoded) / 60
    assert two.encoded_per_query == pytest.approx(len(encoded) / 60)
    assert two.first_milliseconds > two.again_milliseconds > 0
    assert two.first_milliseconds > 2  # of sleeping for what is embedded
    assert found.verdict != "failed"


def test_what_is_alike_is_measured_by_the_first_ten(gallery: Gallery) -> None:
    found = rehearse(gallery, Source(NEW), orders=["random"])
    now = top_k(NEW, mixed([], 0), 10, exclude_same_id=True)
    for metric, (query, items) in {"overlap@10 with old": (OLD, OLD), "overlap@10 with new": (NEW, NEW)}.items():
        other = top_k(query, items, 10, exclude_same_id=True)
        expected = np.mean([len({*a} & {*b}) / 10 for a, b in zip(now.rows, other.rows, strict=True)])
        assert found.curves["random"].values[metric][0] == pytest.approx(expected)
    assert found.curves["random"].values["overlap@10 with new"][-1] == 1.0
    assert found.before["overlap@10 with old"] == 1.0
    assert found.searches.made == 10 * 60 + 20 * 8  # all queries at ten moments, four of each model at every batch


def test_first_hits_before_and_after(gallery: Gallery) -> None:
    found = rehearse(gallery, Source(NEW), orders=["random"])
    old, end = (top_k(side, side, 1, exclude_same_id=True).rows[:, 0] for side in (OLD, NEW))
    right_before, right_after = LABELS[old] == LABELS, LABELS[end] == LABELS
    last = found.first_hits[-1]
    assert [one.share for one in found.first_hits] == [0.0, 0.5, 1.0]
    assert last.changed == pytest.approx((old != end).mean())
    assert last.fixed == pytest.approx((right_after & ~right_before).mean()) and last.fixed > 0
    assert last.broken == pytest.approx((right_before & ~right_after).mean())
    assert len(found.examples) == 12
    for example in found.examples:
        row = IDS.index(example.query)
        assert (example.old.id, example.new[1.0].id) == (IDS[old[row]], IDS[end[row]])
        assert example.old.right == right_before[row] and example.new[1.0].right == right_after[row]
        assert example.metadata == {"label": f"class {LABELS[row]}"}
        assert any(hit.id != example.old.id for hit in example.new.values())
    lost = sum(example.old.right and not example.new[1.0].right for example in found.examples)
    assert lost == min(6, (right_before & ~right_after).sum())


def test_the_whole_way_there_and_back(gallery: Gallery) -> None:
    told: list[dict[str, Any]] = []
    source = Source(NEW)
    found = rehearse(gallery, source, progress=told.append)
    assert found.steps == ("start", "swap", "backfill", "rollback", "finish")
    assert found.rollback_equal and found.after_rollback == found.before and found.passed
    assert (found.searches.failed, found.searches.incomplete, found.searches.wrong) == ((), 0, 0)
    assert sorted(source.asked) == IDS  # once, whatever the number of orders
    assert found.verdict == "ready" and set(found.left_out) == {"traffic", "uncertainty"}
    assert set(found.curves) == {"random"}
    assert {"step": "embedding", "done": 60, "total": 60} in told
    record = plain(found)
    assert (record["kind"], record["passed"], record["old"]["note"]) == ("rehearsal", True, "first")
    assert record["curves"]["random"]["area"]["map"] == pytest.approx(found.curves["random"].area["map"])
    assert set(record["examples"][0]["new"]) == {"0", "0.5", "1"}


def test_a_rehearsal_before_anything_is_started(reported: Callable[..., Path]) -> None:
    with filled() as gallery:
        found = rehearse(gallery, Source(NEW), orders=["random"])
        assert found.steps == ("start", "backfill", "swap", "rollback", "finish") and found.linked == "none"
        old, new = found.before["map"], found.curves["random"].values["map"][-1]
        assert found.curves["random"].values["map"] == (old,) * 6 + (new,)
        assert found.first_hits[1].changed == 0.0 and found.first_hits[2].changed > 0
        assert found.passed and gallery.state.phase == "steady"
        with pytest.raises(Exception, match="is about other models"):
            rehearse(gallery, Source(NEW), reports=[reported()])


def test_reports_are_given_or_those_of_the_gallery(reported: Callable[..., Path]) -> None:
    old, new = OLD.replace(fingerprint="declared:old"), NEW.replace(fingerprint="declared:new")
    with filled(old) as gallery:
        given = rehearse(gallery, Source(new), reports=[reported(space=SPHERE)], orders=["random"])
        gallery.start(new.fingerprint, new.space, reports=[reported(space=SPHERE)])
        own = rehearse(gallery, Source(new), orders=["random"])
        assert given.linked == own.linked == "report"
        assert given.curves == own.curves and own.steps[1] == "swap"
        with pytest.raises(ConfigError, match="started with links"):
            rehearse(gallery, Source(new), reports=[reported(space=SPHERE)])
        gallery.swap()
        assert rehearse(gallery, Source(new), orders=["random"]).curves == own.curves  # of what is under way


@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
def test_adapters_link_the_models(direction: Any, tmp_path: Path) -> None:
    from limpet.adapters.procrustes import Procrustes
    from limpet.adapters.storage import save_adapter

    new = made_by("turned", 0.2, turned=True)
    save_adapter(Procrustes(direction=direction).fit(OLD, new), tmp_path / "adapter")
    with filled() as gallery:
        found = rehearse(gallery, Source(new), adapter=tmp_path / "adapter", orders=["random"])
        assert found.passed and found.steps[1] == "swap"
        assert found.linked == ("adapter" if direction == "new_to_old" else "mapped")
        values = found.curves["random"].values["map"]
        assert values[0] > 0.9 * found.before["map"] and values[-1] > found.before["map"]
        end = rank_metrics(new, new, ("map",), exclude_same_id=True)["map"].mean()
        assert values[-1] == pytest.approx(end, abs=1e-6)
        gallery.start(new.fingerprint, new.space, adapter=tmp_path / "adapter")
        again = rehearse(gallery, Source(new), orders=["random"])
        assert again.linked == found.linked and again.curves == found.curves


def queries_of(embeddings: EmbeddingSet, noise: float, **changes: Any) -> EmbeddingSet:
    """Twelve queries near items, under names of their own."""
    rng = np.random.default_rng(9)
    vectors = embeddings.vectors[:12] + noise * rng.normal(size=(12, 8)).astype(np.float32)
    values: dict[str, Any] = {"labels": LABELS[:12], "class_names": [f"class {name}" for name in range(5)], **changes}
    return EmbeddingSet(
        ids=[f"q{row:02}" for row in range(12)],  # type: ignore[arg-type]
        vectors=vectors,
        fingerprint=embeddings.fingerprint,
        space=embeddings.space,
        role="query",
        **values,
    )


def test_given_queries_are_judged_by_class_or_by_a_list(gallery: Gallery) -> None:
    old, new = queries_of(OLD, 0.1), queries_of(NEW, 0.1)
    by_class = rehearse(gallery, Source(NEW), queries=(old, new), orders=["random"])
    items = NEW.replace(class_names=[f"class {name}" for name in range(5)])
    assert (by_class.queries, by_class.asked, by_class.judged) == ("given", 12, 12)
    assert by_class.curves["random"].values["map"][-1] == pytest.approx(
        rank_metrics(new, items, ("map",))["map"].mean(), abs=1e-6
    )
    wanted = {f"q{row:02}": [IDS[row], "gone"] for row in range(6)}
    listed = rehearse(gallery, Source(NEW), queries=(old, new), relevant=wanted, orders=["random"], most_queries=9)
    assert (listed.asked, listed.judged, listed.metric) == (9, 6, "map")
    rows = [[row] if row < 6 else [] for row in range(12)]
    expected = rank_metrics(new, NEW, ("map",), relevant=rows)["map"][:6].mean()
    assert listed.curves["random"].values["map"][-1] == pytest.approx(expected, abs=1e-6)


def test_answers_of_queries_are_in_the_sample_first(gallery: Gallery) -> None:
    wanted = {f"q{row:02}": [IDS[59 - row]] for row in range(12)}
    source = Source(NEW)
    both = queries_of(OLD, 0.1), queries_of(NEW, 0.1)
    found = rehearse(gallery, source, sample=20, queries=both, relevant=wanted, orders=["random"])
    assert found.sampled == 20 and found.judged == 12 and set(IDS[48:]) <= set(source.asked)
    other = Source(NEW)
    rehearse(gallery, other, sample=20, orders=["random"], seed=1)
    assert sorted(other.asked) != sorted(source.asked) and len(set(other.asked)) == 20


def test_without_labels_nothing_is_called_right() -> None:
    with linked(filled(labelled=False)) as gallery:
        found = rehearse(gallery, Source(NEW))
    assert (found.verdict, found.metric, found.judged) == ("unlabelled", "overlap@10 with new", 0)
    assert set(found.curves) == {"random"}
    assert set(found.curves["random"].values) == {"overlap@10 with old", "overlap@10 with new"}
    assert found.curves["random"].differences is None
    assert found.first_hits[0].fixed is None and found.examples[0].old.right is None


def test_items_that_the_source_lacks_stay_with_their_old_vectors(gallery: Gallery) -> None:
    found = rehearse(gallery, Source(NEW[:50]), orders=["random"])
    assert found.missing == 10 and found.passed
    with filled() as unlinked:
        assert rehearse(unlinked, Source(NEW[:50]), orders=["random"]).passed
        with pytest.raises(DataError, match="none of the 60 sampled items"):
            rehearse(unlinked, Source(NEW.replace(ids=[f"x{row}" for row in range(60)])))


def test_orders_by_traffic_use_what_the_gallery_counted(gallery: Gallery) -> None:
    gallery.store.add_traffic({IDS[7]: 3, "gone": 9})
    found = rehearse(gallery, Source(NEW), orders=["traffic"])
    assert list(found.curves) == ["traffic"]
    with linked(filled()) as uncounted, pytest.raises(ConfigError, match="has not counted"):
        rehearse(uncounted, Source(NEW), orders=["random", "traffic"])


def test_times_grow_with_the_gallery(gallery: Gallery) -> None:
    found = rehearse(gallery, Source(NEW, pause=0.002), sample=30, orders=["random"])
    times = {timing.step: timing for timing in found.timings}
    assert list(times) == ["embed", *found.steps]
    embed = times["embed"]
    assert embed.items == 30 and embed.full_seconds is not None
    assert 60 * 0.002 < embed.full_seconds <= 2 * embed.seconds + 1e-9
    assert times["finish"].full_seconds == pytest.approx(2 * times["finish"].seconds)
    assert times["swap"].full_seconds == times["swap"].seconds and times["swap"].items == 0
    assert set(found.searches.milliseconds) >= {"before", "50 % re-embedded", "after the rollback"}


def test_a_curved_gallery() -> None:
    space = Lorentz(8, 0.7)
    old, new = made_by("old", 0.45, space), made_by("newer", 0.2, space)
    with linked(filled(old), new) as gallery:
        found = rehearse(gallery, Source(new), orders=["random", "uncertainty"])
    expected = rank_metrics(new, new, ("map",), exclude_same_id=True)["map"].mean()
    assert found.passed and found.curves["random"].values["map"][-1] == pytest.approx(expected, abs=1e-6)


def test_a_search_that_forgets_an_item_fails_the_rehearsal(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    search = MemoryStore.search

    def forgetful(self: MemoryStore, *arguments: Any, without: frozenset[str] = frozenset(), **more: Any) -> Any:
        return search(self, *arguments, **more)  # as if no item had a new vector

    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "search", forgetful)
        found = rehearse(gallery, Source(NEW), orders=["random"])
    assert found.verdict == "failed" and not found.passed
    assert found.searches.incomplete > 0 and found.searches.wrong > 0


def test_a_rollback_that_leads_elsewhere_fails_the_rehearsal(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    rollback = Gallery.rollback

    def lossy(self: Gallery) -> int:
        self.delete([IDS[5]])
        return rollback(self)

    monkeypatch.setattr(Gallery, "rollback", lossy)
    found = rehearse(gallery, Source(NEW), orders=["random"])
    assert found.verdict == "failed" and not found.rollback_equal
    assert found.after_rollback["map"] != found.before["map"]


WELL = Searches(made=10, failed=(), incomplete=0, wrong=0, milliseconds={})


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([(0.0, -0.1, 0.1), (0.2, 0.1, 0.3)], "ready"),
        ([(-0.2, -0.3, -0.1), (0.2, 0.1, 0.3)], "dips"),
        ([(0.0, -0.1, 0.1), (0.1, -0.1, 0.3)], "no gain"),
        ([(0.0, -0.1, 0.1), (-0.2, -0.3, -0.1)], "worse"),
        (None, "unlabelled"),
    ],
)
def test_what_intervals_mean(differences: Any, verdict: str) -> None:
    curve = OrderCurve.of((0.0, 1.0), {"map": (0.5, 0.7)}, differences and {"map": tuple(differences)})
    assert verdict_of(curve, WELL, True) == verdict
    for wrong in ({"failed": ("no",)}, {"incomplete": 1}, {"wrong": 1}):
        assert verdict_of(curve, WELL.model_copy(update=wrong), True) == "failed"
    assert verdict_of(curve, WELL, False) == "failed"
    assert curve.area["map"] == pytest.approx(0.6)


SURE = ((0.1, 0.05, 0.15), (0.2, 0.1, 0.3))


@pytest.mark.parametrize(
    ("first_hit", "verdict"),
    [
        ([(0.0, -0.1, 0.1), (0.0, -0.1, 0.1)], "ready"),
        ([(-0.2, -0.3, -0.1), (0.0, -0.1, 0.1)], "dips"),
        ([(0.0, -0.1, 0.1), (-0.2, -0.3, -0.1)], "mixed"),
    ],
)
def test_the_first_hit_counts_beside_the_main_metric(first_hit: Any, verdict: str) -> None:
    curve = OrderCurve.of((0.0, 1.0), {"map": (0.5, 0.7)}, {"map": SURE, "recall@1": tuple(first_hit)})
    assert verdict_of(curve, WELL, True) == verdict
    lost = OrderCurve.of((0.0, 1.0), {"map": (0.5, 0.7)}, {"map": tuple(first_hit), "recall@1": SURE})
    assert verdict_of(lost, WELL, True) == {"mixed": "worse", "ready": "no gain"}.get(verdict, verdict)


def test_what_cannot_be_rehearsed(gallery: Gallery) -> None:
    with pytest.raises(DataError, match=r"(?s)declared:other.*declared:newer"):
        rehearse(gallery, Source(NEW.replace(fingerprint="declared:other")))
    with filled() as plain_gallery, pytest.raises(UpgradeStateError, match="the active model, declared:old"):
        rehearse(plain_gallery, Source(OLD))
    for wrong in ({"sample": 19}, {"most_queries": 0}, {"orders": ["backwards"]}):
        with pytest.raises(ConfigError):
            rehearse(gallery, Source(NEW), **wrong)
    strangers = queries_of(NEW, 0.1).replace(ids=[f"z{row}" for row in range(12)])
    with pytest.raises(EmptyOverlapError, match="No query is in both sets"):
        rehearse(gallery, Source(NEW), queries=(queries_of(OLD, 0.1), strangers))
    gallery.delete(IDS[1:])
    with pytest.raises(EmptyOverlapError, match="1 items"):
        rehearse(gallery, Source(NEW))
