"""What a model behind an API is known by: its answers to three fixed sentences, in a fingerprint, with a tolerance.

Weights cannot be read through an API, so the answers stand for them. Servers do not give the same numbers twice: hosted
models differ in the third or fourth decimal from call to call, and half precision depends on the size of the batch. A
digest of numbers, however coarsely they are rounded, would change when one of them lies at the edge between two steps;
so the rounded numbers themselves are part of the fingerprint, and two of them are compared by their distance.

The three unit vectors are drawn together to 8 numbers each (a count sketch: every coordinate is added, with a sign, to
one of them), which keeps squared distances on average, and rounded to steps of 0.01, one byte each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from limpet.models.api.settings import Endpoint

PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "Wie wird das Wetter morgen in Zürich, und brauche ich einen Regenschirm?",
    "SELECT name, price FROM products WHERE stock > 0 ORDER BY price LIMIT 10;",
)
"""Prose, another language, code: models that agree on one may not on another."""

AGREEMENT = 0.999
"""Cosine at least between two answers of one model; `benchmarks/api_probe.py` measures what lies on either side."""

KIND = "api:"
"""What such fingerprints begin with."""

_NUMBERS = 8  # of one sentence's sketch
_STEP = 0.01
_FINGERPRINT = re.compile(rf"{KIND}[0-9a-f]{{16}}([0-9a-f]{{{2 * _NUMBERS * len(PROBES)}}})")


def sketch(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the sketches (P, 8) of the directions of vectors (P, D); distances stay as they are on average."""
    rows = vectors.astype(np.float64)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    drawn = np.frombuffer(hashlib.shake_256(b"limpet probe").digest(rows.shape[1]), np.uint8)
    places, signs = drawn % _NUMBERS, np.where(drawn & 128, 1.0, -1.0)
    numbers = np.zeros((len(rows), _NUMBERS))
    np.add.at(numbers.T, places, (rows * signs).T)
    return numbers


def agreement(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the cosine that two answers probably have on average, from their sketches (P, 8).

    >>> one = sketch(np.eye(3, 8))
    >>> agreement(one, one)
    1.0
    """
    squared = ((first - second) ** 2).sum(axis=1)
    return float(1 - squared.mean() / 2)


def written(numbers: NDArray[np.float64]) -> str:
    """Write sketches as hexadecimal digits, two for every number."""
    steps = np.clip(np.rint(numbers / _STEP), -127, 127).astype(np.int64) + 128
    return bytes(steps.astype(np.uint8).ravel()).hex()


def read(digits: str) -> NDArray[np.float64]:
    """Read what `written` wrote, (P, 8)."""
    steps = np.frombuffer(bytes.fromhex(digits), np.uint8).astype(np.float64) - 128
    return (steps * _STEP).reshape(-1, _NUMBERS)


def fingerprint_of(address: Endpoint, dim: int, dimensions: int | None, digits: str) -> str:
    """Return the identity of a model behind an API: ``api:<16 digits of a sha256><48 digits of sketches>``.

    Args:
        address: Model and URL, which are part of it.
        dim: Dimension of its vectors.
        dimensions: How many values were asked for; None for the model's own number.
        digits: Its sketches, as `written` writes them; part of the digest, too.

    Such a digest names no weights, so that eight bytes of it will do.
    """
    identity = {"kind": "api", "model": address.model, "url": address.url, "dim": dim, "dimensions": dimensions,
                "probe": digits}  # fmt: skip
    return f"{KIND}{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]}{digits}"


def sketch_in(fingerprint: str) -> NDArray[np.float64] | None:
    """Return the sketches (P, 8) in the fingerprint of a model behind an API; None for another model.

    >>> sketch_in("text:" + 64 * "0")
    """
    found = _FINGERPRINT.fullmatch(fingerprint)
    return None if found is None else read(found[1])


def of_address(
    fingerprints: Iterable[str], address: Endpoint, dim: int, dimensions: int | None
) -> dict[str, NDArray[np.float64]]:
    """Return those of the fingerprints that are of this model at this server and dimension, with their sketches."""
    found = {}
    for fingerprint in fingerprints:
        numbers = sketch_in(fingerprint)
        digits = fingerprint[-2 * _NUMBERS * len(PROBES) :]
        if numbers is not None and fingerprint_of(address, dim, dimensions, digits) == fingerprint:
            found[fingerprint] = numbers
    return found
