from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from limpet.adapters import ADAPTERS, SuspectPairs, build_adapter
from limpet.adapters.ridge import Ridge
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, EmptyOverlapError, ReleaseError, SpaceMismatchError
from limpet.evaluation.protocols.relevance_lists import Relevance, RelevancePairs
from limpet.geometry import Hypersphere, Lorentz
from limpet.linking import adapt as adapting
from limpet.linking.adapt import (
    DIRECTIONS,
    Choice,
    adapt,
    candidates_of,
    open_link,
    save_link,
    suitable_adapters,
    usual_heads,
)
from limpet.linking.compare import AGREEMENT, measure
from limpet.linking.held_out import Judged, hold_out
from limpet.models.release import load_release
from limpet.training.experiment import HEAD_RECIPE, Experiment, head_recipe

FAST = dataclasses.replace(HEAD_RECIPE, epochs=2, batch_size=64)
HEADS = {"p2s": Experiment(method="p2s", recipe=FAST)}
QUICK = {"resamples": 100}
GALLERY = f"ridge{DIRECTIONS['old_to_new']}"  # the candidate that maps the old gallery


@pytest.fixture(scope="module")
def sets(two_models):
    return two_models()


@pytest.fixture(scope="module")
def found(sets):
    return adapt(*sets, Choice(("procrustes", "ridge"), heads=HEADS), **QUICK)


def test_every_candidate_is_measured_on_items_that_it_was_not_fitted_on(sets, found) -> None:
    names = ["procrustes", "ridge", GALLERY.replace("ridge", "procrustes"), GALLERY, "head p2s"]
    assert [one.name for one in found.comparison.candidates] == names
    directions = [one.direction for one in found.comparison.candidates]
    assert directions == ["new_to_old"] * 2 + ["old_to_new"] * 2 + [None]
    held_out = hold_out(*sets)
    assert found.held_out.old.digest() == held_out.old.digest()
    assert not set(held_out.fit_old.ids) & set(held_out.old.ids)
    candidates = candidates_of(Choice(("ridge",), heads={}, direction="new_to_old"), True, None)
    alone = measure(candidates, held_out, **QUICK).candidates[0]
    assert found.comparison.candidates[1].cross == alone.cross


def test_what_was_found_shows_itself_in_a_notebook(found) -> None:
    assert repr(found).startswith(f"<Adapted> {found.summary().splitlines()[0]}\n")
    rows = found.to_arrow().to_pylist()
    scores = {one.name: one.cross.mean for one in found.comparison.candidates}
    assert {row["candidate"]: row["cross"] for row in rows} == scores and rows[0]["cross"] == max(scores.values())
    assert "<td>ridge</td>" in found._repr_html_() and found.plot().to_dict() is not None


def test_what_is_followed_is_what_is_recommended(found) -> None:
    name = found.recommendation.candidate
    assert found.recommendation.action == "adapt" and name == found.comparison.best.name == found.followed
    assert found.curve.candidate == name
    assert found.curve.points[-1].cross.mean == pytest.approx(found.comparison.best.cross.mean)
    assert found.sentences[0] == "600 items are paired by id."


def test_the_map_of_scores_is_that_of_the_candidate_that_is_followed(found) -> None:
    held_out, name = found.held_out, found.followed
    kind, direction = Choice(("procrustes", "ridge")).directed()[name]
    adapter = build_adapter(kind, {"direction": direction}).fit(held_out.fit_old, held_out.fit_new)
    query, gallery = held_out.new, held_out.old
    mapped = (adapter.apply(query), gallery) if direction == "new_to_old" else (query, adapter.apply(gallery))
    cosines = mapped[0].vectors @ mapped[1].vectors.T
    away = np.abs(found.score_map.new_scores[:40, None] - cosines[0]).min(axis=1)
    assert away.max() < 1e-6, "all are scores of the first query"


def test_where_nothing_is_recommended_the_best_is_followed(two_models) -> None:
    found = adapt(*two_models(wrong=1.0), Choice(("ridge",), heads={}), **QUICK)
    assert found.recommendation.action == "check the pairs" and found.recommendation.candidate is None
    assert found.followed == found.comparison.best.name == found.curve.candidate


def test_where_few_items_leave_open_what_helps_the_pairs_are_split_again(sets, found, monkeypatch) -> None:
    choice = Choice(("ridge",), heads={}, direction="new_to_old")
    few = [one[:120] for one in sets]
    monkeypatch.setattr(adapting, "FEW_HELD_OUT", 0)
    once = adapt(*few, choice, **QUICK)
    best = once.comparison.best
    assert once.recommendation.candidate is None and best.cross_minus_self_old.mean > 0, "the case that is meant"
    monkeypatch.undo()
    again = adapt(*few, choice, **QUICK)
    assert (once.comparison.splits, again.comparison.splits, found.comparison.splits) == (1, adapting.SPLITS, 1)
    [candidate] = candidates_of(choice, True, None)
    splits = [hold_out(*few, seed=seed) for seed in range(adapting.SPLITS)]
    assert again.comparison.best.cross == measure([candidate], splits[0], further=splits[1:], **QUICK).best.cross
    assert again.held_out.old.ids == splits[0].old.ids == once.held_out.old.ids
    told = f"{len(splits[0].old)} held-out items left open what helps, so the pairs were split 5 times"
    assert again.sentences[-1].startswith(told) and again.sentences[:-1] == once.sentences
    assert adapt(*few, choice, resample="queries", **QUICK).comparison.splits == 1, "splits share items"
    unlabelled = [one.replace(labels=None, class_names=None) for one in few]
    assert adapt(*unlabelled, choice, **QUICK).comparison.splits == 1, "agreement says nothing of what is right"


def test_a_seed_reproduces_everything(sets, found) -> None:
    choice = Choice(("procrustes", "ridge"), heads=HEADS)
    again, other = adapt(*sets, choice, **QUICK), adapt(*sets, choice, seed=1, **QUICK)
    for one, same, another in zip(*(a.comparison.candidates for a in (found, again, other)), strict=True):
        assert one.cross == same.cross != another.cross
    assert found.held_out.old.ids == again.held_out.old.ids != other.held_out.old.ids
    assert found.suspects == again.suspects and isinstance(found.suspects, SuspectPairs)


def test_without_labels_heads_are_left_out(two_models) -> None:
    found = adapt(*two_models(labelled=False), Choice(("ridge",), heads=HEADS, direction="new_to_old"), **QUICK)
    assert [one.name for one in found.comparison.candidates] == ["ridge"] and found.comparison.metric == AGREEMENT
    with pytest.raises(ConfigError, match=r"Heads \(p2s\) for items without labels"):
        adapt(*two_models(labelled=False), Choice((), heads=HEADS), **QUICK)


def test_by_default_every_adapter_that_suits_is_compared(sets, points, monkeypatch) -> None:
    monkeypatch.setattr(adapting, "FEW_HELD_OUT", 0)
    old, new = sets
    other = points(new.vectors @ np.eye(14) + 0.1, "other")
    usual = tuple(ADAPTERS)
    assert suitable_adapters(other, new) == usual and "mean_drift" not in suitable_adapters(old, new)
    assert len(suitable_adapters(old, new)) == len(usual) - 1
    few = [one[:120] for one in sets]
    names = [one.name for one in adapt(*few, **QUICK).comparison.candidates]
    heads = ["head p2s", "head p2s, two layers", "head two-step", "head both sides"]
    assert names[: len(usual) - 1] == list(suitable_adapters(old, new)) and names[-4:] == heads
    assert len(names) == 2 * (len(usual) - 1) + 4
    with_pairs = [one.name for one in adapt(*few, unseen_pairs=True, **QUICK).comparison.candidates]
    assert with_pairs == [*names, "head two-step, free"]
    for heads, more in (
        (usual_heads(), []),
        (usual_heads(as_it_is=True), ["head one side", "head one side, two layers"]),
    ):
        as_it_is = Choice(("ridge",), heads=heads, direction="new_to_old")
        stays = [one.name for one in candidates_of(as_it_is, True, None)]
        assert stays == ["ridge", "head p2s", "head p2s, two layers", *more], "the gallery is not mapped"


def test_candidates_tell_when_they_are_done(sets) -> None:
    done, steps = [], []
    choice = Choice(("procrustes",), heads=HEADS, direction="old_to_new")
    adapt(*sets, choice, on_fit=done.append, progress=steps.append, **QUICK)
    assert [event["name"] for event in done] == [GALLERY.replace("ridge", "procrustes"), "head p2s"] and len(steps) >= 2


def test_what_cannot_be_linked_is_refused_before_any_fit(sets) -> None:
    old, new = sets

    def never(event):
        raise AssertionError("fitted")

    curved = EmbeddingSet(new.vectors, new.ids, "declared:c", Lorentz(14, 1.0))
    with pytest.raises(SpaceMismatchError, match="new embeddings are on the Lorentz"):
        adapt(old, curved, on_fit=never)
    with pytest.raises(SpaceMismatchError, match="old embeddings are on the Lorentz"):
        adapt(curved, new, on_fit=never)
    with pytest.raises(DataError, match="these are the same model"):
        adapt(old, new.replace(fingerprint=old.fingerprint), on_fit=never)
    with pytest.raises(DataError, match="19 pairs"):
        adapt(old[:19], new, on_fit=never)
    with pytest.raises(EmptyOverlapError):
        adapt(old[:300], new[300:600], on_fit=never)
    with pytest.raises(DataError, match="different labels in two sets"):
        adapt(old, new.replace(labels=(old.labels + 1) % 12), on_fit=never)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adapters": ("rigde",)}, "Did you mean 'ridge'"),
        ({"adapters": ("ridge", "ridge")}, "each once"),
        ({"adapters": (), "heads": {}}, "Nothing to compare"),
        ({"adapters": ("ridge",), "adapter_options": {"ridge": {"penalti": 1}}}, "Did you mean 'penalty'"),
        ({"adapters": ("ridge",), "adapter_options": {"local": {}}}, "Unknown adapter in the options 'local'"),
        ({"adapters": ("ridge",), "adapter_options": {"ridge": {"direction": "old_to_new"}}}, "one direction for all"),
    ],
)
def test_a_choice_that_cannot_be_made(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Choice(**values)


def test_options_reach_their_adapter() -> None:
    choice = Choice(("ridge", "low_rank"), {"low_rank": {"rank": 3}}, direction="old_to_new")
    assert list(choice.directed()) == [GALLERY, GALLERY.replace("ridge", "low_rank")]
    built = choice.build(GALLERY.replace("ridge", "low_rank"))
    assert (built.kind, built.options["rank"], built.direction) == ("low_rank", 3, "old_to_new")


@pytest.mark.parametrize("name", ["ridge", GALLERY])
def test_a_saved_adapter_is_fitted_on_all_pairs(sets, tmp_path, name) -> None:
    old, new = sets
    folder = save_link(name, old, new, Choice(("ridge",)), tmp_path)
    assert folder == tmp_path / "adapter"
    adapter = build_adapter("ridge", {"direction": "old_to_new" if name == GALLERY else "new_to_old"}).fit(old, new)
    link = open_link(folder)
    side, map_, kept = (old, link.gallery, link.query) if name == GALLERY else (new, link.query, link.gallery)
    np.testing.assert_array_equal(map_(side).vectors, adapter.apply(side).vectors)
    assert kept(side) is side
    with pytest.raises(ReleaseError, match="already holds"):
        save_link(name, old[:300], new, Choice(("ridge",)), tmp_path)


def test_a_saved_head_is_trained_on_all_pairs_and_says_how_its_model_is_opened(sets, tmp_path) -> None:
    steps = []
    model = {"model": "b", "truncate_dim": 14}
    folder = save_link(
        "head p2s", *sets, Choice((), heads=HEADS), tmp_path, frozen_model=model, data_name="things", seed=3,
        progress=steps.append,
    )  # fmt: skip
    assert folder == tmp_path / "head" and len(steps) == 2 * (600 // 64)
    release = load_release(folder)
    assert release.record.frozen_model == model and release.record.seed == 3
    assert release.record.compatible_with == sets[0].fingerprint
    link = open_link(folder)
    assert link.gallery(sets[0]) is sets[0]
    np.testing.assert_array_equal(link.query(sets[1]).vectors, link.own(sets[1]).vectors)
    assert link.query(sets[1]).dim == 8


def test_few_items_have_smaller_batches_unless_a_recipe_was_chosen(sets, tmp_path) -> None:
    few = [one[:300] for one in sets]

    def batches(recipe, folder):
        steps = []
        heads = {"p2s": Experiment(method="p2s", recipe=recipe)}
        save_link("head p2s", *few, Choice((), heads=heads), folder, progress=steps.append)
        return steps[0]["steps"]

    assert head_recipe(300).batch_size == 32 and batches(HEAD_RECIPE, tmp_path / "usual") == 300 // 32
    assert batches(dataclasses.replace(HEAD_RECIPE, epochs=1), tmp_path / "chosen") == 300 // 256
    machine = dataclasses.replace(HEAD_RECIPE, accelerator="cpu")
    assert batches(machine, tmp_path / "machine") == 300 // 32, "where it is trained does not choose how"
    assert load_release(tmp_path / "machine" / "head").record.recipe["accelerator"] == "cpu"


def test_two_step_learns_from_wide_vectors_more_slowly_unless_a_recipe_was_chosen(sets, points, tmp_path) -> None:
    """Where heads are compared as where one is saved: what was measured is what is to be used."""
    old, new = (one[np.arange(36)] for one in sets)
    wide = new.replace(vectors=np.tile(new.vectors, 55) / np.float32(55**0.5), space=Hypersphere(55 * new.dim))
    recipes = {"usual": HEAD_RECIPE, "chosen": dataclasses.replace(HEAD_RECIPE, epochs=1)}
    heads = {name: Experiment(method="keep", recipe=recipe) for name, recipe in recipes.items()}
    choice = Choice((), heads={**heads, "another": Experiment(method="p2s", recipe=HEAD_RECIPE)})
    rates = [head_recipe(len(old), wide.dim).learning_rate, 0.004, 0.004]
    assert rates[0] < 0.002
    for candidate, rate in zip(candidates_of(choice, True, tmp_path), rates, strict=True):
        before = set(tmp_path.iterdir())
        candidate.fit(old, wide, None)
        (compared,) = set(tmp_path.iterdir()) - before
        saved = save_link(candidate.name, old, wide, choice, tmp_path / candidate.name)
        assert [load_release(one).record.recipe["learning_rate"] for one in (compared, saved)] == [rate, rate]


def test_an_unknown_candidate_is_not_saved(sets, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown candidate 'head p2z'. Did you mean 'head p2s'"):
        save_link("head p2z", *sets, Choice(("ridge",)), tmp_path)
    with pytest.raises(ReleaseError):
        open_link(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_saved_is_fitted_on_pairs_with_the_labels_that_were_measured(sets, points, tmp_path) -> None:
    """Numbers on one side and names on the other count as in the comparison; items without a partner do not count."""
    old, new = sets
    others = points(np.eye(14)[np.arange(900) % 14] + 0.1, "new", ids=[f"other {row}" for row in range(900)])
    names = [f"class {row}" for row in range(12)]
    more = new.replace(
        ids=[*new.ids, *others.ids], vectors=np.concatenate([new.vectors, others.vectors]),
        labels=np.concatenate([old.labels, np.zeros(900, np.int64)]), class_names=names,
    )  # fmt: skip
    choice = Choice((), heads={"p2s": Experiment(method="p2s", recipe=HEAD_RECIPE)})
    release = load_release(save_link("head p2s", old, more, choice, tmp_path))
    assert release.record.recipe["batch_size"] == head_recipe(600).batch_size != head_recipe(1500).batch_size
    assert release.record.data["vectors"] == str(len(old))


def test_a_head_by_an_unknown_method_is_no_choice() -> None:
    with pytest.raises(ConfigError, match="Unknown method 'p2t'"):
        Choice(("ridge",), heads={"mine": Experiment(method="p2t")})


def judged_by(old, new, items: int = 40) -> Judged:
    """Return queries that are copies of some items, answered by the other items of their class."""
    rows = np.arange(items)
    asks = [one[rows].replace(ids=[f"q{row}" for row in rows], labels=None) for one in (old, new)]
    pairs = [(f"q{row}", one) for row in rows for one, label in zip(old.ids, old.labels, strict=True)
             if label == old.labels[row]]  # fmt: skip
    query, item = zip(*pairs, strict=True)
    return Judged.of(*asks, Relevance(pairs=RelevancePairs(query, item, np.zeros(len(pairs), np.bool_)), judged=True))


def test_judged_queries_choose_and_measure(sets) -> None:
    old, new = sets
    judged = judged_by(old, new)
    bare = old.replace(labels=None)
    found = adapt(bare, new, Choice(("ridge", "procrustes"), heads={}), judged=judged, **QUICK)
    comparison = found.comparison
    assert (comparison.metric, comparison.judged, comparison.held_out, comparison.fitted_on) == (
        "ndcg@10",
        40,
        600,
        600,
    )
    assert not comparison.provisional and comparison.guards == ("recall@1", "unseen classes")
    measured = judged.relevance.measure(judged.old, bare, ("ndcg@10",))["ndcg@10"].mean()
    assert comparison.self_old.mean == pytest.approx(measured)
    mapped = build_adapter("ridge", {}).fit(bare, new).apply(judged.new)
    ridge = next(one for one in comparison.candidates if one.name == "ridge")
    assert ridge.cross.mean == pytest.approx(judged.relevance.measure(mapped, bare, ("ndcg@10",))["ndcg@10"].mean())
    assert "with 40 judged queries on 600 items" in " ".join(found.recommendation.sentences)
    assert found.curve.points[-1].cross.mean == pytest.approx(comparison.best.cross.mean)
    assert len(np.unique(found.score_map.queries)) == 40
    first = found.score_map.old_scores.reshape(40, -1).max(axis=1)
    assert first == pytest.approx(np.ones(40), abs=1e-6), "every query finds the item that it is a copy of"
    with pytest.raises(ConfigError, match="with judged queries"):
        adapt(bare, new, Choice(("ridge",), heads={}), judged=judged, unseen_share=0.2)


def test_judgements_of_what_was_not_embedded_are_told(sets) -> None:
    old, new = sets
    judged = judged_by(old, new)
    relevance = dataclasses.replace(judged.relevance, unknown="leave-out")
    few = [one[np.arange(500)].replace(labels=None) for one in sets]
    found = adapt(*few, Choice(("ridge",), heads={}), judged=dataclasses.replace(judged, relevance=relevance), **QUICK)
    assert any("judgements are left out" in sentence for sentence in found.sentences)


def test_without_labels_and_judgements_all_is_provisional(two_models) -> None:
    found = adapt(*two_models(labelled=False), Choice(("ridge",), heads={}), **QUICK)
    assert found.comparison.provisional and found.comparison.metric == AGREEMENT
    assert "All of this is provisional" in found.recommendation.sentences[-1]


def of_half(sets, by_class: bool):
    """Return both sets with names, half of the classes or of the items without a label."""
    old, new = sets
    missing = old.labels % 2 == 0 if by_class else np.random.default_rng(0).random(len(old)) < 0.5
    names = [*(f"class {row}" for row in range(12)), "unknown"]
    return old.replace(labels=np.where(missing, 12, old.labels), class_names=names), new


@pytest.mark.parametrize(("by_class", "least", "most"), [(True, 2, 4), (False, 0, 1)])
def test_as_many_classes_are_unseen_as_items_without_a_label_look_like(points, by_class, least, most) -> None:
    rng = np.random.default_rng(3)
    labels, centres = np.arange(900) % 12, rng.normal(size=(12, 10))
    causes = centres[labels] + 0.3 * rng.normal(size=(900, 10))
    sets = points(causes @ rng.normal(size=(10, 8)), "old", labels), points(causes @ rng.normal(size=(10, 14)), "new")
    found = adapt(*of_half(sets, by_class), Choice(("ridge",), heads={}), unlabelled=["unknown"], curve=False, **QUICK)
    assert least <= found.held_out.unseen_classes <= most
    assert any("items without a label seem to be of classes that no label covers" in one for one in found.sentences)
    if by_class:  # the items of unseen classes stay as pairs
        rest = found.held_out.unlabelled[0]
        assert len(rest) > 450, len(rest)
    asked = adapt(*of_half(sets, by_class), Choice(("ridge",), heads={}), unlabelled=["unknown"], unseen_share=0.5,
                  curve=False, **QUICK)  # fmt: skip
    assert asked.held_out.unseen_classes == round(0.5 * asked.held_out.classes)


def test_adapters_are_not_fitted_on_pairs_that_are_likely_wrong(two_models) -> None:
    found = adapt(*two_models(wrong=0.5), Choice(("ridge",), heads={}), **QUICK)
    held_out = found.held_out
    raw = measure(candidates_of(Choice(("ridge",), heads={}), True, None), held_out, **QUICK)
    cross, without = ({one.name: one.cross.mean for one in many.candidates} for many in (found.comparison, raw))
    assert all(cross[name] > without[name] for name in cross), (cross, without)
    assert any("the others are likely wrong" in sentence for sentence in found.sentences)


def test_all_pairs_are_fitted_on_once(sets, monkeypatch) -> None:
    asked = []
    fit = Ridge.fit

    def counted(self, old, new):
        asked.append(len(old))
        return fit(self, old, new)

    monkeypatch.setattr(Ridge, "fit", counted)
    found = adapt(*sets, Choice(("ridge",), heads={}, direction="new_to_old"), **QUICK)
    assert asked.count(found.held_out.fitted_on) == 1 and len(asked) > 1, "the curve asks for smaller numbers"
    asked.clear()
    assert adapt(*sets, Choice(("ridge",), heads={}), curve=False, **QUICK).curve is None and len(asked) == 2


def test_the_curve_says_what_the_last_pairs_brought(found) -> None:
    last, before = found.curve.points[-1], found.curve.points[-2]
    assert found.curve.last_step.mean == pytest.approx(last.cross.mean - before.cross.mean)
    assert found.curve.last_step.interval[0] <= found.curve.last_step.mean <= found.curve.last_step.interval[1]
