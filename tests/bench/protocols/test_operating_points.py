from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from limpet.errors import ConfigError
from limpet_bench.protocols.operating_points import accepted_at, parsed

Golden = Callable[[str], dict[str, NDArray[Any]]]


def published(target: float, curve: tuple[NDArray[Any], ...], rule: str) -> float:
    """The lines that papers evaluate: turn the curve round, take the first point nearest to the target."""
    false, true, _ = curve
    if rule == "strict":
        return float(true[false <= target].max())
    false, true = np.flipud(false), np.flipud(true)
    return float(true[min(zip(abs(false - target), range(len(false)), strict=True))[1]])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.sampled_from([2, 5, 30, 1000]), st.floats(0.001, 1))
def test_every_rule_is_that_of_the_curve(seed: int, pairs: int, levels: int, target: float) -> None:
    rng = np.random.default_rng(seed)
    labels = np.append([0, 1], rng.random(pairs) < rng.random())
    scores = rng.integers(0, levels, pairs + 2) / 8
    genuine, impostor = scores[labels == 1], np.sort(scores[labels == 0])[::-1]
    targets = [
        target,
        rng.integers(1, len(impostor) + 1) / len(impostor),
        (rng.integers(0, len(impostor)) + 0.5) / len(impostor),
    ]
    for rule in ("nearest", "full", "strict"):
        curve = roc_curve(labels, scores, drop_intermediate=rule == "nearest")
        for wanted in targets:
            found = accepted_at(wanted, genuine, impostor, rule).mean()
            assert found == pytest.approx(published(wanted, curve, rule), abs=1e-12), (rule, wanted)


def test_golden(golden: Golden) -> None:
    reference = golden("ijbc_protocol")
    scores, same = reference["ver_scores"], reference["ver_labels"] == 1
    impostor = np.sort(scores[~same])[::-1]
    for rule, name in (("nearest", "tar"), ("full", "tar_full_roc"), ("strict", "tar_strict")):
        found = [accepted_at(target, scores[same], impostor, rule).mean() for target in reference["far_targets"]]
        np.testing.assert_allclose(found, reference[name], rtol=1e-7, err_msg=name)


def test_the_rules_differ_where_a_straight_piece_hides_the_nearest_point() -> None:
    impostor = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    genuine = np.array([0.95, 0.45, 0.1])
    # the curve rises at no, at five and at all eight false accepts; a quarter is two of eight, nearest to none
    assert accepted_at(0.25, genuine, impostor, "nearest").sum() == 1
    with pytest.raises(ConfigError, match="rule for the threshold 'ful'"):
        accepted_at(0.25, genuine, impostor, cast(Any, "ful"))
    # a half is four: the corner at five is nearest, and lets the pair at 0.45 in; all points are nearer
    assert [accepted_at(0.5, genuine, impostor, rule).sum() for rule in ("nearest", "full", "strict")] == [2, 1, 1]
    assert accepted_at(1, genuine, impostor, "strict").all()


def test_names_of_metrics() -> None:
    assert parsed(["tar@.001", "tar@1E-5".lower(), "tar@1"], ["tar"]) == {
        "tar@.001": ("tar", 0.001), "tar@1e-5": ("tar", 1e-5), "tar@1": ("tar", 1.0)
    }  # fmt: skip
    for wrong in ("tar@0", "tar@2", "tar@-1", "tar@nan", "tar@", "tar", "tpir@1e-2", "map", "rank@1"):
        with pytest.raises(ConfigError, match=f"Unknown metric '{wrong}'"):
            parsed([wrong], ["tar"])
    for wrong in ("rank@0", "rank@1.5", "rank@1e1"):
        with pytest.raises(ConfigError, match=f"Unknown metric '{wrong}'"):
            parsed([wrong], ["tpir"], ["rank"])
    with pytest.raises(ConfigError, match="sequence of names"):
        parsed("tar@1e-4", ["tar"])
