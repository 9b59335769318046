from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.errors import ConfigError, DataError
from limpet.evaluation.intervals import chosen_interval, mean_interval, paired_interval
from limpet.evaluation.retrieval import rank_metrics
from limpet.linking import compare
from limpet.linking.compare import AGREEMENT, Candidate, FittedLink, Measured, identity, measure
from limpet.linking.held_out import hold_out
from limpet.linking.recommend import recommend

QUICK = {"resamples": 200}


def ridge_on(held_out, direction="new_to_old"):
    return build_adapter("ridge", {"direction": direction}).fit(held_out.fit_old, held_out.fit_new)


def head(name="head", **maps) -> Candidate:
    """A stand-in for a trained head: the frozen new model searches its own gallery, unless maps say otherwise."""
    return Candidate(name, "head", lambda old, new, _: FittedLink(**{"query": identity, "gallery": identity, **maps}))


def agreement(query, gallery, new) -> np.ndarray:
    """The metric without labels, item by item."""
    values = []
    for item in range(len(query)):
        found = [
            set(np.delete(np.argsort(-(g.vectors @ q.vectors[item]), kind="stable"), np.flatnonzero(
                np.argsort(-(g.vectors @ q.vectors[item]), kind="stable") == item))[:10])
            for q, g in ((query, gallery), (new, new))
        ]  # fmt: skip
        values.append(len(found[0] & found[1]) / 10)
    return np.array(values)


def test_every_number_is_the_one_of_its_own_function(labelled, adapter) -> None:
    found = measure([adapter("ridge")], labelled, **QUICK)
    mapped = ridge_on(labelled).apply(labelled.new)
    old, new, cross = (
        rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"]
        for query, gallery in ((labelled.old, labelled.old), (labelled.new, labelled.new), (mapped, labelled.old))
    )
    assert (found.metric, found.fitted_on, found.held_out) == ("map", len(labelled.fit_old), len(labelled.old))
    assert found.unseen_classes == 1 == labelled.unseen_classes
    for mean, values in ((found.self_old, old), (found.self_new, new), (found.candidates[0].cross, cross)):
        assert mean.mean == values.mean()
        np.testing.assert_allclose(mean.interval, mean_interval(values, clusters=labelled.old.labels, **QUICK))
    one = found.candidates[0]
    for mean, pair in (
        (found.self_new_minus_self_old, (new, old)),
        (one.cross_minus_self_old, (cross, old)),
        (one.self_new_minus_cross, (new, cross)),
    ):
        assert mean.mean == pytest.approx(pair[0].mean() - pair[1].mean())
        np.testing.assert_allclose(
            mean.interval, paired_interval(*pair, clusters=labelled.old.labels, **QUICK), atol=1e-12
        )
    assert one.recovered == pytest.approx((cross.mean() - old.mean()) / (new.mean() - old.mean()))
    unseen = labelled.unseen
    means = one.unseen.self_old, one.unseen.cross, one.unseen.self_new, one.unseen.queries
    assert means == pytest.approx((old[unseen].mean(), cross[unseen].mean(), new[unseen].mean(), unseen.sum()))
    gain = mean_interval((cross - old)[unseen], **QUICK)  # of one class, whose items are drawn
    assert one.unseen.gain.mean == pytest.approx((cross - old)[unseen].mean()) and one.unseen.gain.interval == gain
    assert found.guards == ("recall@1", "unseen classes")
    assert one.own is None and one.helps and one.seconds > 0


def test_first_hits_stand_beside_every_candidate(labelled, unlabelled, adapter) -> None:
    found = measure([adapter("ridge")], labelled, guards=(), **QUICK).candidates[0].first_hits
    mapped = ridge_on(labelled).apply(labelled.new)
    old, cross = (
        rank_metrics(query, labelled.old, ("recall@1",), exclude_same_id=True)["recall@1"]
        for query in (labelled.old, mapped)
    )
    assert found.metric == "recall@1" and found.net == pytest.approx((cross - old).mean()) != 0
    assert found.healed == pytest.approx(np.maximum(cross - old, 0).mean())
    expected = paired_interval(cross, old, clusters=labelled.old.labels, **QUICK)
    np.testing.assert_allclose(found.interval, expected, atol=1e-12)
    assert measure([adapter("ridge")], unlabelled, **QUICK).candidates[0].first_hits is None


def test_several_splits_are_measured_as_one(two_models, adapter) -> None:
    sets = two_models()
    splits = [hold_out(*sets, seed=seed) for seed in range(3)]
    found = measure([adapter("ridge")], splits[0], further=splits[1:], **QUICK)
    values = [
        rank_metrics(ridge_on(one).apply(one.new), one.old, ("map",), exclude_same_id=True)["map"] for one in splits
    ]
    classes, ids = (np.concatenate([getattr(one.old, what) for one in splits]) for what in ("labels", "ids"))
    one, pooled = found.candidates[0], np.concatenate(values)
    assert one.cross.mean == pooled.mean() != values[0].mean()
    np.testing.assert_allclose(one.cross.interval, mean_interval(pooled, clusters=classes, **QUICK))
    assert (found.splits, found.held_out, found.fitted_on) == (3, len(splits[0].old), len(splits[0].fit_old))
    unseen = np.concatenate([one.unseen for one in splits])
    assert (one.unseen.cross, one.unseen.queries) == (pytest.approx(pooled[unseen].mean()), unseen.sum())
    by_item = measure([adapter("ridge")], splits[0], further=splits[1:], resample="queries", **QUICK).candidates[0]
    assert len(np.unique(ids)) < len(ids), "some are held out in two splits, and drawn together"
    same = mean_interval(pooled, clusters=np.unique(ids, return_inverse=True)[1], **QUICK)
    np.testing.assert_allclose(by_item.cross.interval, same)


def test_agreement_is_that_of_a_slow_loop(unlabelled, adapter) -> None:
    found = measure([adapter("ridge")], unlabelled, **QUICK)
    mapped = ridge_on(unlabelled).apply(unlabelled.new)
    assert found.metric == AGREEMENT and found.self_new.mean == 1 and found.candidates[0].unseen is None
    expected = agreement(unlabelled.old, unlabelled.old, unlabelled.new)
    assert 0.1 < found.self_old.mean < 0.9 and found.self_old.mean == pytest.approx(expected.mean(), abs=1e-12)
    expected = agreement(mapped, unlabelled.old, unlabelled.new)
    assert found.candidates[0].cross.mean == pytest.approx(expected.mean(), abs=1e-12)


def test_the_old_gallery_may_be_what_is_mapped(labelled, adapter) -> None:
    found = measure([adapter("ridge", direction="old_to_new")], labelled, **QUICK).candidates[0]
    mapped = ridge_on(labelled, "old_to_new").apply(labelled.old)
    expected = rank_metrics(labelled.new, mapped, ("map",), exclude_same_id=True)["map"]
    assert found.cross.mean == expected.mean()


@pytest.mark.parametrize("with_labels", [True, False])
def test_a_rotated_model_is_recovered_by_procrustes(two_models, points, adapter, with_labels) -> None:
    new = two_models(labelled=False)[1]
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(14, 14)))[0]
    labels = np.arange(600) % 12 if with_labels else None
    found = measure([adapter("procrustes")], hold_out(points(new.vectors @ rotation, "old", labels), new), **QUICK)
    one = found.candidates[0]
    assert one.cross.mean == pytest.approx(found.self_new.mean, abs=1e-3)
    assert found.self_old.mean == pytest.approx(found.self_new.mean, abs=1e-3)
    assert one.recovered is None or not with_labels, "nothing to recover"


def test_two_names_for_one_model(two_models, points) -> None:
    new = two_models(labelled=False)[1]
    same = points(new.vectors, "other", np.arange(600) % 12)
    found = measure([head()], hold_out(same, new), **QUICK)
    one = found.candidates[0]
    assert found.self_old == found.self_new == one.cross and one.recovered is None and not one.helps
    assert one.cross_minus_self_old.interval == (0, 0) == one.self_new_minus_cross.interval


def test_what_was_recovered_is_unknown_where_no_gain_was_shown(two_models, points) -> None:
    new = two_models(labelled=False)[1]
    noise = 0.01 * np.random.default_rng(0).normal(size=new.vectors.shape)
    found = measure([head()], hold_out(points(new.vectors + noise, "other", np.arange(600) % 12), new), **QUICK)
    low, high = found.self_new_minus_self_old.interval
    assert low < 0 < high and found.self_new_minus_self_old.mean != 0 and found.candidates[0].recovered is None


def test_the_time_is_that_of_the_fit(labelled, monkeypatch) -> None:
    passed = [0.0]
    monkeypatch.setattr(compare, "time", SimpleNamespace(perf_counter=lambda: passed[0]))

    def slow_map(old):
        passed[0] += 200
        return labelled.new

    def slow_fit(old, new, _=None):
        passed[0] += 20
        return FittedLink(identity, slow_map)

    assert measure([Candidate("slow", "adapter", slow_fit)], labelled, **QUICK).candidates[0].seconds == 20
    assert passed[0] >= 220


def test_a_candidate_sees_the_pairs_to_fit_on_only(labelled) -> None:
    seen = []
    candidate = Candidate("spy", "head", lambda old, new, _: seen.append((old, new)) or FittedLink(identity, identity))
    measure([candidate], labelled, **QUICK)
    (old, new), = seen  # fmt: skip
    assert old is labelled.fit_old and new is labelled.fit_new


def test_a_candidate_that_fails_stays_with_its_reason(labelled, adapter) -> None:
    def refusing(old, new, _=None):
        raise DataError("Too bad.", expected="better", to_do="improve it.")

    done = []
    candidates = [
        Candidate("refusing", "adapter", refusing),
        head("other space"),
        head("moved", query=lambda new: new[::-1], gallery=lambda old: labelled.new),
        adapter("ridge"),
    ]
    found = measure(candidates, labelled, **QUICK, on_fit=done.append)
    assert [isinstance(one, Measured) for one in found.candidates] == [False, False, False, True]
    reasons = [one.failed for one in found.candidates[:3]]
    assert reasons[0] == "Too bad. Expected: better Next: improve it."
    assert "Queries cannot search this gallery" in reasons[1] and "another order" in reasons[2]
    assert [(one["name"], one["kind"], one["failed"]) for one in done] == [
        ("refusing", "adapter", reasons[0]), ("other space", "head", reasons[1]), ("moved", "head", reasons[2]),
        ("ridge", "adapter", None),
    ]  # fmt: skip
    assert found.best.name == "ridge" and found.best_head is None and found.head_lead is None
    alone = measure(candidates[:1], labelled, **QUICK)
    assert alone.best is None and alone.self_old.mean == found.self_old.mean


def test_an_error_that_nobody_raised_on_purpose_is_not_hidden(labelled) -> None:
    with pytest.raises(ZeroDivisionError):
        measure([Candidate("broken", "adapter", lambda *_: 1 / 0)], labelled)


def test_the_gallery_after_a_full_backfill(labelled, adapter) -> None:
    apply = ridge_on(labelled).apply
    found = measure([head(query=apply, own=apply)], labelled, **QUICK).candidates[0]
    own = rank_metrics(apply(labelled.new), apply(labelled.new), ("map",), exclude_same_id=True)["map"]
    expected = mean_interval(own, clusters=labelled.old.labels, **QUICK)
    np.testing.assert_allclose((found.own.mean, *found.own.interval), (own.mean(), *expected))
    assert found.own.mean != found.cross.mean
    old, cross = (
        rank_metrics(query, labelled.old, ("map",), exclude_same_id=True)["map"].mean()
        for query in (labelled.old, apply(labelled.new))
    )
    assert found.cross.mean == pytest.approx(cross)
    assert found.self_new_minus_cross.mean == pytest.approx(own.mean() - cross)  # re-embedded by the head itself
    assert found.recovered is None or found.recovered == pytest.approx((cross - old) / (own.mean() - old))


def test_the_best_are_those_of_the_highest_cross_and_the_lead_is_paired(labelled, adapter) -> None:
    def perfect(old, new, _=None):
        return FittedLink(query=identity, gallery=lambda old: labelled.new)

    found = measure([adapter("procrustes"), adapter("ridge"), Candidate("head", "head", perfect)], labelled, **QUICK)
    scores = {one.name: one.cross.mean for one in found.candidates}
    best = max("procrustes", "ridge", key=scores.__getitem__)
    assert (found.best_adapter.name, found.best_head.name, found.best.name) == (best, "head", "head")
    lead = measure([adapter(best)], labelled, **QUICK).candidates[0].self_new_minus_cross
    np.testing.assert_allclose((found.head_lead.mean, *found.head_lead.interval), (lead.mean, *lead.interval))


def by_heart(old, new, _=None) -> FittedLink:
    """A head that maps items of the classes it was fitted on to their means, and others anywhere."""
    means = {label: old.vectors[old.labels == label].mean(axis=0) for label in np.unique(old.labels)}

    def mapped(query):
        astray = np.random.default_rng(0).normal(size=(len(query), old.dim))
        rows = [means.get(label, astray[row]) for row, label in enumerate(query.labels)]
        return old.replace(
            ids=query.ids, labels=query.labels, vectors=np.array(rows, np.float32), fingerprint="declared:by heart"
        )

    return FittedLink(query=mapped, gallery=identity)


def test_what_a_candidate_is_clearly_worse_at_is_told(two_models, adapter) -> None:
    """Much better on average, and nothing left of classes that nobody learnt from."""
    held_out = hold_out(*two_models(items=1200, classes=24), unseen_share=0.25)
    found = measure([adapter("ridge"), Candidate("by heart", "head", by_heart)], held_out, **QUICK)
    ridge, head = found.candidates
    mapped = by_heart(held_out.fit_old, held_out.fit_new).query(held_out.new)
    old, cross = (rank_metrics(query, held_out.old, ("map",), exclude_same_id=True)["map"][held_out.unseen]
                  for query in (held_out.old, mapped))  # fmt: skip
    (loss,) = (one for one in head.worse if one.name == "unseen classes")
    assert (loss.self_old, loss.cross) == pytest.approx((old.mean(), cross.mean())) and loss.gain.interval[1] < 0
    assert head.helps and head.cross_minus_self_old.mean > 0.05
    assert ridge.worse == () and recommend(found).candidate == "ridge", "the head gives way"
    alone = measure([Candidate("by heart", "head", by_heart)], held_out, **QUICK)
    assert recommend(alone).candidate == "by heart" and recommend(alone).worse == alone.candidates[0].worse
    unguarded = measure([Candidate("by heart", "head", by_heart)], held_out, guards=(), **QUICK)
    assert unguarded.candidates[0].worse == () and unguarded.guards == ()


def test_guards_need_somebody_who_knows_what_is_right(unlabelled, labelled, adapter) -> None:
    assert measure([adapter("ridge")], unlabelled, **QUICK).guards == ()
    with pytest.raises(DataError, match="recall@1 cannot be guarded"):
        measure([adapter("ridge")], unlabelled, guards=("recall@1",), **QUICK)
    with pytest.raises(ConfigError, match="Unknown metric 'recal@1'"):
        measure([adapter("ridge")], labelled, guards=("recal@1",), **QUICK)


def test_the_best_of_several_has_an_interval_for_the_choice(labelled, adapter) -> None:
    candidates = [adapter("ridge"), adapter("procrustes"), adapter("ridge", "gallery", direction="old_to_new")]
    found = measure([*candidates, head("head", gallery=lambda old: labelled.new)], labelled, **QUICK)
    best, others = found.best_adapter, [one for one in found.candidates if one is not found.best_adapter]
    old, *crosses = (
        rank_metrics(query, gallery, ("map",), exclude_same_id=True)["map"]
        for query, gallery in (
            (labelled.old, labelled.old),
            (ridge_on(labelled).apply(labelled.new), labelled.old),
            (build_adapter("procrustes", {}).fit(labelled.fit_old, labelled.fit_new).apply(labelled.new), labelled.old),
            (labelled.new, ridge_on(labelled, "old_to_new").apply(labelled.old)),
        )
    )
    rivals = dict(enumerate(crosses))
    np.testing.assert_allclose(best.as_best, chosen_interval(rivals, old, clusters=labelled.old.labels, **QUICK))
    assert (best.brings.mean, best.brings.interval) == (best.cross_minus_self_old.mean, best.as_best)
    assert all(one.as_best is None for one in others) and found.best_head.as_best is None, "one head is no choice"


def test_level_resamples_and_seed_of_the_intervals(labelled, adapter) -> None:
    found = [
        measure([adapter("ridge")], labelled, **{**QUICK, **changes}).candidates[0].cross
        for changes in ({}, {"seed": 1}, {"level": 0.5}, {"resamples": 100})
    ]
    assert len({one.interval for one in found}) == 4 and len({one.mean for one in found}) == 1
    assert found[0].interval[0] < found[2].interval[0] < found[2].interval[1] < found[0].interval[1]


def test_another_metric(labelled, unlabelled, adapter) -> None:
    found = measure([adapter("ridge")], labelled, metric="recall@1", **QUICK)
    expected = rank_metrics(labelled.old, labelled.old, ("recall@1",), exclude_same_id=True)["recall@1"]
    assert found.self_old.mean == expected.mean() and found.metric == "recall@1"
    found = measure([adapter("ridge")], labelled, metric=AGREEMENT, **QUICK)
    assert found.self_new.mean == 1 and found.candidates[0].unseen.queries == labelled.unseen.sum()
    with pytest.raises(DataError, match=r"'map' for items without labels(.|\n)*overlap@10"):
        measure([adapter("ridge")], unlabelled, metric="map")
    with pytest.raises(ConfigError, match="Unknown metric"):
        measure([adapter("ridge")], labelled, metric="mop")


@pytest.mark.parametrize(
    "wrong", [{"resamples": 0}, {"level": 1.0}, {"candidates": []}, {"candidates": ["a", "b", "a"]}]
)
def test_what_cannot_be_measured_is_refused_before_any_fit(labelled, wrong) -> None:
    def never(old, new, _=None):
        raise AssertionError("fitted")

    candidates = [Candidate(name, "adapter", never) for name in wrong.pop("candidates", ["a"])]
    with pytest.raises(ConfigError):
        measure(candidates, labelled, **wrong)


def test_the_direction_of_an_adapter_says_what_it_maps() -> None:
    to_old, to_new = (SimpleNamespace(direction=direction, apply=len) for direction in ("new_to_old", "old_to_new"))
    assert FittedLink.of_adapter(to_old) == FittedLink(query=len, gallery=identity)
    assert FittedLink.of_adapter(to_new) == FittedLink(query=identity, gallery=len)


def test_a_candidate_keeps_what_it_maps(labelled, adapter) -> None:
    mapped = replace(adapter("ridge", direction="old_to_new"), direction="old_to_new")
    failing = replace(adapter("ridge", "other", direction="nowhere"), direction="new_to_old")
    found = measure([mapped, failing], labelled, **QUICK).candidates
    assert [one.direction for one in found] == ["old_to_new", "new_to_old"] and found[1].failed
