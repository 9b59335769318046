"""What a model is known by, and how far two answers of one model may lie apart."""

from __future__ import annotations

import numpy as np
import pytest

from limpet.models.api.probe import (
    AGREEMENT,
    agreement,
    fingerprint_of,
    of_address,
    read,
    sketch,
    sketch_in,
    written,
)
from limpet.models.api.settings import Endpoint

PLACE = Endpoint("m", "https://example.org/v1")


def rows(dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(3, dim))


def test_a_sketch_adds_every_coordinate_with_its_sign_to_one_number() -> None:
    by_hand = np.zeros((3, 8))
    vectors = rows(40)
    for coordinate in range(40):
        (place,) = np.flatnonzero(sketch(np.eye(40)[coordinate : coordinate + 1])[0])
        sign = sketch(np.eye(40)[coordinate : coordinate + 1])[0, place]
        assert abs(sign) == 1
        by_hand[:, place] += sign * vectors[:, coordinate] / np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(sketch(vectors), by_hand, atol=1e-12)
    np.testing.assert_allclose(sketch(7 * vectors), by_hand, atol=1e-12, err_msg="only directions count")


@pytest.mark.parametrize("dim", [64, 384, 1536, 3072])
def test_sketches_keep_distances_on_average(dim: int) -> None:
    ratios = []
    for seed in range(40):
        first = rows(dim, seed)
        second = first + 0.05 * rows(dim, 1000 + seed)
        cosines = (first * second).sum(axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        ratios.append((1 - agreement(sketch(first), sketch(second))) / (1 - cosines.mean()))
    assert np.mean(ratios) == pytest.approx(1, abs=0.15) and np.std(ratios) < 0.45


def test_what_is_written_is_read_again_within_half_a_step() -> None:
    numbers = sketch(rows(200))
    assert len(written(numbers)) == 48
    np.testing.assert_allclose(read(written(numbers)), numbers, atol=0.00501)
    assert agreement(read(written(numbers)), numbers) > 1 - (1 - AGREEMENT) / 8, "rounding costs little of the margin"


def test_a_fingerprint_speaks_of_one_model_at_one_place() -> None:
    digits = written(sketch(rows(20)))
    own = fingerprint_of(PLACE, 20, None, digits)
    assert own.startswith("api:") and np.array_equal(sketch_in(own), read(digits))  # type: ignore[arg-type]
    others = [
        fingerprint_of(Endpoint("other", PLACE.url), 20, None, digits),
        fingerprint_of(Endpoint("m", "https://example.com/v1"), 20, None, digits),
        fingerprint_of(PLACE, 20, 20, digits),
        "text:" + "0" * 64,
        "declared:m",
        own[:-1] + ("0" if own[-1] != "0" else "1"),
    ]
    assert own not in others
    assert list(of_address([*others, own], PLACE, 20, None)) == [own]
    assert of_address([own], PLACE, 21, None) == {}
