from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError, SpaceMismatchError
from limpet.evaluation.chain import ChainResults, evaluate_chain
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.intervals import mean_interval, paired_interval
from limpet.evaluation.protocols import ByLabel
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.retrieval import rank_metrics, top_k
from limpet.evaluation.upgrade import upgrade_curves
from limpet.geometry import Hypersphere
from limpet.reports.chain import chain_finding, chain_headline
from limpet.reports.evaluation import finding, headline
from limpet.results import Data

SIZE, CLASSES = 90, 9


def items(noise: float, name: str, seed: int, *, classes: int = CLASSES, shift: float = 0.0) -> EmbeddingSet:
    labels = np.arange(SIZE) % classes
    vectors = np.eye(10)[labels] + noise * np.random.default_rng(seed).normal(size=(SIZE, 10)) + shift
    return EmbeddingSet(
        ids=StringArray.of(f"i{row}" for row in range(SIZE)),
        vectors=vectors.astype(np.float32),
        fingerprint=f"declared:{name}",
        space=Hypersphere(10),
        labels=labels,
        class_names=StringArray.of(f"c{label}" for label in range(classes)),
    )


OLD, NEW, INDEPENDENT = items(0.6, "old", 0), items(0.3, "new", 1), items(0.28, "independent", 2)
QUICK: dict[str, Any] = {"resamples": 200}


PAIRS: dict[str, Any] = {
    "old": (OLD, OLD), "new": (NEW, NEW), "independent": (INDEPENDENT, INDEPENDENT), "exclude_same_id": True,
}  # fmt: skip
"""The same items as queries and as a gallery of their own."""


def run(**changes: Any) -> Evaluation:
    return evaluate(**{"old": OLD, "new": NEW, "independent": INDEPENDENT, **QUICK, **changes})


def test_every_number_is_the_one_of_its_own_function() -> None:
    found = run()
    values = {
        "self_old": rank_metrics(OLD, OLD, exclude_same_id=True),
        "self_new": rank_metrics(NEW, NEW, exclude_same_id=True),
        "self_independent": rank_metrics(INDEPENDENT, INDEPENDENT, exclude_same_id=True),
        "cross": rank_metrics(NEW, OLD, exclude_same_id=True),
        "cross_independent": rank_metrics(INDEPENDENT, OLD, exclude_same_id=True),
    }
    for system, expected in values.items():
        for name, array in expected.items():
            np.testing.assert_array_equal(found.per_query[system][name], array)
            assert getattr(found, system)[name] == array.mean()
            expected_interval = mean_interval(array, resamples=200, clusters=OLD.labels)
            np.testing.assert_allclose(found.mean_interval[system][name], expected_interval)
            assert found.compatible[name] == (values["cross"][name].mean() > values["self_old"][name].mean())
    old, new, independent, cross = (
        values[system]["map"] for system in ("self_old", "self_new", "self_independent", "cross")
    )
    draws = {"resamples": 200, "clusters": OLD.labels}
    expected = paired_interval(cross, old, **draws), paired_interval(new, independent, **draws)
    np.testing.assert_allclose(found.interval["map"]["cross_minus_self_old"], expected[0])
    np.testing.assert_allclose(found.interval["map"]["self_new_minus_self_independent"], expected[1])
    up = (new.mean() - independent.mean()) / independent.mean()
    comp = (cross.mean() - old.mean()) / (independent.mean() - old.mean())
    assert found.p_up["raw"]["map"] == pytest.approx(up)
    assert found.p_comp["raw"]["map"] == pytest.approx(comp)
    up, comp = 1 / (1 + np.exp(-up)), 1 / (1 + np.exp(-comp))
    assert found.p_up["sigmoid"]["map"] == pytest.approx(up)
    assert found.p_comp["sigmoid"]["map"] == pytest.approx(comp)
    assert found.p_score["sigmoid"]["map"] == pytest.approx(2 * up * comp / (up + comp))
    assert found.p_score["raw"] is None
    right, now, later = (values[system]["recall@1"] for system in ("self_old", "cross", "self_new"))
    assert found.negative_flip_rate == {
        "cross": ((right == 1) & (now == 0)).mean(),
        "self_new": ((right == 1) & (later == 0)).mean(),
    }
    assert found.upgrade_curve.values["random"][0] == found.cross["map"]
    assert found.upgrade_curve.values["margin"][-1] == found.self_new["map"]


def test_the_record_is_plain_json() -> None:
    plain = run().to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert {"self_old", "self_new", "self_independent", "cross", "compatible", "verdict", "interval", "p_up"} <= set(
        plain
    )
    assert "per_query" not in plain
    assert plain["protocol"] == {
        "name": "labels",
        "units": "queries",
        "left_out": {"queries without relevant items": 0, "gallery items ignored, over all queries": SIZE},
        "queries": SIZE,
        "gallery": SIZE,
        "leave_one_out": True,
        "no_relevant": "exclude",
        "metrics": ["recall@1", "recall@5", "map", "map@r"],
        "bootstrap": {"resamples": 200, "level": 0.95, "seed": 0, "resample": "classes", "groups": CLASSES},
        "queries_counted": SIZE,
    }
    assert plain["fingerprints"]["old"] == {"fingerprint": "declared:old", "declared": True}


def test_one_set_of_each_model_is_a_pair_of_the_same_items_that_do_not_find_themselves() -> None:
    assert run(curve=False) == run(**PAIRS, curve=False) != run(exclude_same_id=False, curve=False)
    assert run(curve=False).protocol.options["leave_one_out"]
    assert not run(**{**PAIRS, "exclude_same_id": None}, curve=False).protocol.options["leave_one_out"]


@pytest.mark.parametrize("sides", [{"new": (NEW, NEW)}, {"independent": (NEW, NEW)}, {"old": (OLD,), "new": (NEW,)}])
def test_a_pair_beside_one_set_is_refused(sides: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="pair"):
        run(**sides)


def test_without_an_independent_model_its_numbers_are_null() -> None:
    plain = run(independent=None, curve=False).to_dict()
    assert plain["self_independent"] is None
    assert plain["cross_independent"] is None
    assert plain["p_comp"]["sigmoid"]["map"] is None
    assert plain["p_score"] == {"sigmoid": dict.fromkeys(plain["self_old"]), "raw": None}
    assert plain["interval"]["map"]["self_new_minus_self_independent"] is None
    assert plain["fingerprints"]["independent"] is None
    assert plain["upgrade_curve"] is None


def test_an_independent_model_that_is_no_better_gives_null() -> None:
    worse = items(2.0, "worse", 5)
    found = run(independent=worse, curve=False)
    assert found.p("p_comp") is None and found.p("p_score", "sigmoid") is None and found.p("p_up") is not None
    old, independent = found.self_old["map"], found.self_independent["map"]
    assert found.undefined is not None and found.undefined["map"] == {
        "p_comp": f"the independent model is not better than the old one ({independent:.4g} against {old:.4g})"
    }
    assert run(curve=False).undefined == {}


def test_verdicts_follow_the_gate() -> None:
    better = run(curve=False)
    low, high = better.interval["map"]["cross_minus_self_old"]
    assert 0 < low < high
    assert better.verdict == "compatible"
    turned = NEW.replace(vectors=-NEW.vectors)
    assert run(new=turned, curve=False).verdict == "not compatible"
    noise = np.random.default_rng(7).normal(size=OLD.vectors.shape).astype(np.float32)
    alike = OLD.replace(vectors=OLD.vectors + np.float32(0.05) * noise, fingerprint="declared:alike")
    unsure = run(new=alike, curve=False)
    low, high = unsure.interval["map"]["cross_minus_self_old"]
    assert low < 0 < high
    assert unsure.verdict == "inconclusive"
    point = run(new=alike, curve=False, gate="point")
    assert point.verdict == ("compatible" if point.compatible["map"] else "not compatible")


def twins() -> dict[str, EmbeddingSet]:
    """An old model that finds the twin of every item first and little else; a new one that finds its class, not it."""
    labels = np.arange(180) // 2 % 15
    rng = np.random.default_rng(8)
    centres = np.eye(16)[labels]
    spread = np.repeat(rng.normal(size=(90, 16)), 2, axis=0)
    common = {"ids": StringArray.of(f"i{row}" for row in range(180)), "space": Hypersphere(16), "labels": labels}
    vectors = {"old": centres + 0.5 * spread, "new": centres + 0.1 * rng.normal(size=(180, 16))}
    old, new = (
        EmbeddingSet(vectors=found.astype(np.float32), fingerprint=f"declared:{name}", **common)
        for name, found in vectors.items()
    )
    return {"old": old, "new": new}


def test_better_by_the_gate_and_clearly_worse_at_the_first_hit_is_mixed() -> None:
    found = run(**twins(), independent=None, curve=False)
    assert found.cross is not None and found.self_old is not None and found.interval is not None
    assert found.cross["map"] > found.self_old["map"] and found.cross["recall@1"] < found.self_old["recall@1"]
    assert found.interval["recall@1"]["cross_minus_self_old"][1] < 0 < found.interval["map"]["cross_minus_self_old"][0]
    assert found.verdict == "mixed" and found.worse[0] == "recall@1"
    assert set(found.guards) == {"recall@1", "recall@5", "map@r"}


def test_a_chain_guards_the_first_hit() -> None:
    chain = {name: (made, made) for name, made in twins().items()}
    alone = ByLabel(leave_one_out=True)

    def of(**options: Any) -> ChainResults:
        evaluated = evaluate_chain(chain, protocol=alone, resamples=200, **options)
        return evaluated.results(title="Twins", data=Data(name="twins", description="simulated", numbers={}))

    guarded, free = of(), of(guards=())
    (pair,) = guarded.pairs
    assert (pair.worse, pair.verdict, pair.violates, guarded.compatible) == (("recall@1",), "mixed", False, False)
    assert chain_headline(guarded) == (
        "In mAP every newer model can search every older gallery, and 1 of 1 pairs is clearly worse elsewhere."
    )
    told = chain_finding(guarded)
    assert told.verdict == "mixed" and told.next_steps[0].startswith("Decide what counts")
    worse = "Queries of new on the gallery of old are clearly worse at the first hit (recall@1)."
    assert worse in told.sentences
    assert free.compatible and free.pairs[0].verdict == "compatible" and free.pairs[0].worse == ()
    with pytest.raises(ConfigError, match="compatible is True"):
        ChainResults.parse(guarded.to_dict() | {"compatible": True})


def test_the_first_hit_is_guarded_where_it_was_not_asked_for() -> None:
    found = run(**twins(), independent=None, curve=False, metrics=("map",))
    assert (found.verdict, found.guards, found.worse) == ("mixed", ("recall@1",), ("recall@1",))
    assert found.protocol.metrics == ["map", "recall@1"]


def test_what_is_clearly_worse_and_not_guarded_is_told() -> None:
    free = run(**twins(), independent=None, curve=False, guards=())
    assert free.verdict == "compatible" and free.worse == ()
    _, first, *_ = finding("new", free).sentences
    assert first.startswith("Clearly worse, and not guarded: recall@1 ")
    assert (
        finding("new", run(**twins(), independent=None, curve=False))
        .sentences[1]
        .startswith("Clearly worse: recall@1 ")
    )


def test_a_tie_is_told_as_one() -> None:
    """The same vectors by another name: nothing is lost by the swap, and nothing won."""
    renamed = OLD.replace(fingerprint="declared:renamed")
    found = run(new=renamed, curve=False, independent=None)
    assert found.gain() == 0 and found.verdict == "not compatible"
    results = EvaluationResults.of(
        title="t", data=Data(name="d", description="", numbers={}), models={}, evaluations={"new": found}
    )
    said = "In mAP, new scores on your old gallery just what the old model does: a swap gains nothing."
    assert headline(results).startswith(f"{said} First hits net 0.0\N{NO-BREAK SPACE}% (0.0")
    assert finding("new", found).next_steps[0].startswith("Keep the old model")


def test_more_queries_are_not_advised_where_the_first_hit_is_clearly_worse() -> None:
    unsure = run(**twins(), independent=None, curve=False).model_copy(update={"verdict": "inconclusive"})
    assert finding("new", unsure).next_steps[0].startswith("Look at queries that lost a right first hit")


def test_guards_are_chosen_or_none() -> None:
    alone = run(**twins(), independent=None, curve=False, guards=())
    assert (alone.verdict, alone.guards, alone.worse) == ("compatible", (), ())
    other = run(**twins(), independent=None, curve=False, guards=("recall@10",))
    assert (other.verdict, other.guards) == ("compatible", ("recall@10",)) and "recall@10" in other.protocol.metrics
    with pytest.raises(ConfigError, match="Unknown metric 'recal@1'"):
        run(guards=("recal@1",))


@pytest.mark.parametrize("options", [{"guards": ("recall@1",)}, {"resample": "classes"}])
def test_without_labels_nothing_is_guarded_or_drawn_by_class(options: dict[str, Any]) -> None:
    bare = {name: side.replace(labels=None, class_names=None) for name, side in twins().items()}
    assert run(**bare, independent=None).verdict == "unlabelled"
    with pytest.raises(ConfigError, match="nothing here says what is right"):
        run(**bare, independent=None, **options)


def test_a_guard_does_not_make_what_is_undecided_compatible() -> None:
    found = run(old=twins()["new"], new=twins()["old"], independent=None, curve=False)
    assert found.verdict == "not compatible"


def test_the_same_vectors_under_another_name_are_a_tie_and_not_compatible() -> None:
    same = OLD.replace(fingerprint="declared:renamed")
    found = run(new=same, curve=False)
    assert found.interval["map"]["cross_minus_self_old"] == (0.0, 0.0)
    assert found.verdict == "not compatible"
    assert found.negative_flip_rate == {"cross": 0.0, "self_new": 0.0}


def test_items_are_matched_by_id_in_any_order() -> None:
    order = np.random.default_rng(0).permutation(SIZE)
    shuffled = run(**PAIRS | {"new": (NEW[order], NEW), "independent": (INDEPENDENT, INDEPENDENT[order])})
    assert json.dumps(run().to_dict()) == json.dumps(shuffled.to_dict())
    with pytest.raises(EmptyOverlapError, match="2 items of the old queries are not in the new queries: 'i88', 'i89'"):
        run(**PAIRS | {"new": (NEW[:88], NEW)})
    with pytest.raises(EmptyOverlapError, match="items of the independent gallery are not in the old gallery"):
        run(**PAIRS | {"old": (OLD, OLD[:88]), "new": (NEW, NEW[:88])})


def test_labels_may_come_with_any_set_but_must_agree() -> None:
    bare = OLD.replace(labels=None, class_names=None)
    assert run(old=bare, curve=False).self_old == run(curve=False).self_old
    renumbered = NEW.replace(labels=CLASSES - 1 - NEW.labels, class_names=StringArray.of(list(NEW.class_names)[::-1]))
    assert run(new=renumbered, curve=False).cross == run(curve=False).cross
    wrong = NEW.replace(labels=np.append(NEW.labels[1:], NEW.labels[:1]))
    with pytest.raises(DataError, match="90 items have different labels in two sets: 'i0', 'i1', 'i2'"):
        run(**PAIRS | {"new": (wrong, NEW)}, curve=False)


def test_without_labels_only_agreement_is_measured() -> None:
    old, new = (side.replace(labels=None, class_names=None) for side in (OLD, NEW))
    found = evaluate(old, new, **QUICK)
    assert found.verdict == "unlabelled"
    assert found.cross is None
    before, after = (top_k(side, old, 10, exclude_same_id=True).rows for side in (old, new))
    overlap = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(before.tolist(), after.tolist(), strict=True)])
    assert found.agreement.cross.overlap.mean == pytest.approx(overlap)
    low, high = found.agreement.cross.overlap.interval
    assert low < overlap < high
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["self_old"] is None


def test_fingerprints_must_fit() -> None:
    with pytest.raises(DataError, match="same model"):
        run(new=NEW.replace(fingerprint="declared:old"))
    other = NEW.replace(fingerprint="declared:another")
    for name, pair in (("old", (other, OLD)), ("new", (NEW, other)), ("independent", (other, INDEPENDENT))):
        with pytest.raises(DataError, match=f"{name} queries have the fingerprint"):
            run(**PAIRS | {name: pair})


def test_other_dimensions_are_refused_with_what_to_do() -> None:
    flat = NEW.replace(vectors=NEW.vectors[:, :4].copy(), space=Hypersphere(4))
    with pytest.raises(
        SpaceMismatchError, match=r"(?s)dimension 4.*dimension 10.*limpet adapt --old OLD.*--old RELEASE --dim 10"
    ):
        run(new=flat)
    third = INDEPENDENT.replace(vectors=INDEPENDENT.vectors[:, :9].copy(), space=Hypersphere(9))
    found = run(independent=third, curve=False)
    assert found.cross_independent is None
    assert found.self_independent is not None


def test_options_reach_what_they_name() -> None:
    found = run(metrics=("recall@1",), gate_metric="map@2", curve=False, level=0.5, seed=3, resample="classes")
    assert list(found.cross) == ["recall@1", "map@2"]
    expected = paired_interval(
        found.per_query["cross"]["map@2"], found.per_query["self_old"]["map@2"],
        level=0.5, seed=3, resamples=200, clusters=OLD.labels,
    )  # fmt: skip
    np.testing.assert_allclose(found.interval["map@2"]["cross_minus_self_old"], expected)
    curves = upgrade_curves(NEW, OLD, NEW, exclude_same_id=True, seeds=(3, 4, 5))
    assert run(seed=3).upgrade_curve.values["random"] == curves["random"].values.tolist()
    lonely = {
        name: side.replace(labels=np.append(0, side.labels[1:] % 8 + 1)) for name, side in (("o", OLD), ("n", NEW))
    }
    excluded = evaluate(lonely["o"], lonely["n"], resamples=50)
    zero = evaluate(lonely["o"], lonely["n"], resamples=50, no_relevant="zero")
    assert excluded.protocol.queries_counted == SIZE - 1
    assert zero.cross["map"] == pytest.approx(excluded.cross["map"] * (SIZE - 1) / SIZE)
    assert zero.upgrade_curve.values["random"][0] == zero.cross["map"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "points"}, "gate='points'.*'point'"),
        ({"resample": "class"}, "resample='class'.*'classes'"),
        ({"level": 95}, "level=95"),
        ({"metrics": ("mapp",)}, "Unknown metric 'mapp'.*'map'"),
        ({"gate_metric": "rank"}, "Unknown metric 'rank'"),
        ({"metrics": "map"}, "sequence of names"),
        ({"no_relevant": "skip"}, "no_relevant='skip'"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(**options)


def test_the_package_imports_without_torch() -> None:
    code = "import sys, limpet.evaluation; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
