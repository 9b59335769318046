"""Galleries that hold vectors of two models, asked with queries of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crash.evidence import evaluation, items
from limpet.errors import ConfigError
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.intervals import paired_interval
from limpet.evaluation.mixing import SHARES, mixed_gallery
from limpet.evaluation.results import Evaluation, EvaluationResults
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import Hypersphere
from limpet.reports.evaluation import evaluation_markdown, mixing_rows, write_report
from limpet.results import Data

OLD, NEW = items("old", 0.5, Hypersphere(8)), items("new", 0.25, Hypersphere(8))


def run(**changes: Any) -> Evaluation:
    quick: dict[str, Any] = {"curve": False, "resamples": 200, "mixing": 0.01}
    return evaluate(OLD, NEW, **{**quick, **changes})


def test_both_directions_are_those_of_their_own_ranking() -> None:
    found = run(resample="queries").mixing
    assert found is not None and found.passed and (found.metric, found.space, found.dim) == ("map", "hypersphere", 8)
    today = rank_metrics(OLD, OLD, ("map",), exclude_same_id=True)["map"]
    for queries, gallery, share, name in ((NEW, OLD, 0.0, "new"), (OLD, NEW, 1.0, "old"), (NEW, NEW, 1.0, "new")):
        values = rank_metrics(queries, gallery, ("map",), exclude_same_id=True)["map"]
        meeting = found.meeting(name, share)
        assert meeting is not None and meeting.score == pytest.approx(values.mean())
        assert meeting.difference == pytest.approx((values - today).mean())
        assert meeting.interval == pytest.approx(paired_interval(values, today, resamples=200))
    assert found.meeting("old", 0.0) is None and len(found.meetings) == 2 * len(SHARES) - 1


def test_mixing_tells_how_first_hits_fare() -> None:
    record = run(resample="queries")
    today = rank_metrics(OLD, OLD, ("recall@1",), exclude_same_id=True)["recall@1"]
    now = rank_metrics(OLD, NEW, ("recall@1",), exclude_same_id=True)["recall@1"]
    meeting = record.mixing.meeting("old", 1.0)  # type: ignore[union-attr]
    assert meeting is not None and meeting.first_hits is not None
    assert meeting.first_hits.net == pytest.approx((now - today).mean())
    assert meeting.first_hits.interval == pytest.approx(paired_interval(now, today, resamples=200))
    columns, rows = mixing_rows(record)
    assert all(f"{meeting.first_hits.before:.3f} to" in row[columns.index("first hits (net)")] for row in rows)
    results = EvaluationResults.of(title="?", data=Data(name="items", description="", numbers={}), models={},
                                   evaluations={"new": record})  # fmt: skip
    assert "At worst, " in evaluation_markdown(results)


def test_half_of_the_items_are_of_each_model() -> None:
    half = mixed_gallery(OLD, NEW, 0.5, seed=3)
    new = (np.asarray(half.vectors) == NEW.vectors).all(axis=1)
    assert new.sum() == 48 and (half.vectors[~new] == OLD.vectors[~new]).all()
    values = [
        rank_metrics(OLD, mixed_gallery(OLD, NEW, 0.5, seed), ("map",), exclude_same_id=True)["map"].mean()
        for seed in range(3)
    ]
    meeting = run().mixing.meeting("old", 0.5)  # type: ignore[union-attr]
    assert meeting is not None and meeting.score == pytest.approx(np.mean(values))


def test_models_of_two_spaces_do_not_pass() -> None:
    found = evaluation(compatible=False).mixing
    assert found is not None and not found.passed
    assert {one.words: one.verdict for one in found.meetings if not one.passed}.keys() >= {
        "new queries on the old gallery", "old queries on the new gallery",
        "old queries on a gallery of which 50% is new",
    }  # fmt: skip


def test_old_queries_may_lose_what_is_tolerated_and_no_more() -> None:
    def verdicts(tolerance: float) -> dict[str, str]:
        found = evaluate(NEW, OLD, curve=False, resamples=200, mixing=tolerance).mixing
        assert found is not None
        return {one.words: one.verdict for one in found.meetings}

    strict, lenient = verdicts(0.0), verdicts(0.9)  # the new model is the worse one here
    assert strict["old queries on the new gallery"] == "not compatible"
    assert lenient["old queries on the new gallery"] == "compatible"
    assert lenient["new queries on the old gallery"] == "not compatible"  # which is never tolerated


def test_it_is_told_saved_and_read(tmp_path: Any) -> None:
    record = run()
    data = Data(name="items", description="", numbers={})
    results = EvaluationResults.of(title="?", data=data, models={}, evaluations={"new": record})
    assert EvaluationResults.load(results.save(tmp_path)).only().mixing == record.mixing
    _, rows = mixing_rows(record)
    assert [row[0] for row in rows] == [one.words for one in record.mixing.meetings]  # type: ignore[union-attr]
    assert "old queries on a gallery of which 50% is new" in evaluation_markdown(results)
    assert "may stand in one gallery, whichever" in evaluation_markdown(results)
    assert "Where vectors of both models stand" in write_report(results, tmp_path).read_text()
    assert run(mixing=None).mixing is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mixing": -0.1}, "tolerance=-0.1"),
        ({"cross": (items("mapped", 0.3, Hypersphere(8)), OLD)}, "a map or a head links"),
    ],
)
def test_what_cannot_be_measured(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(**changes)
