"""Fingerprints of models behind an API: sketches of their vectors of three fixed sentences, compared with a tolerance.

An API gives no access to the weights, so these vectors identify the model. The vectors vary from call to call: hosted
models differ in the third or fourth decimal, and half precision depends on the batch size. A digest of rounded numbers
would change whenever a number crosses a rounding boundary. So the fingerprint holds the rounded numbers themselves, and
two fingerprints are compared by their distance.

A count sketch reduces each of the three unit vectors to 8 numbers: every coordinate is added, with a sign, to one of
them. This preserves squared distances on average. The numbers are rounded to steps of 0.01, one byte each.
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
"""Prose, another language, and code, because models that agree on one may differ on another."""

AGREEMENT = 0.999
"""Minimum cosine of two responses of one model; `benchmarks/api_probe.py` measures equal and different models."""

KIND = "api:"
"""Prefix of these fingerprints."""

_NUMBERS = 8  # numbers of the sketch of one sentence
_STEP = 0.01
_FINGERPRINT = re.compile(rf"{KIND}[0-9a-f]{{16}}([0-9a-f]{{{2 * _NUMBERS * len(PROBES)}}})")


def sketch(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the sketches (P, 8) of the directions of vectors (P, D); squared distances are kept on average."""
    rows = vectors.astype(np.float64)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    drawn = np.frombuffer(hashlib.shake_256(b"limpet probe").digest(rows.shape[1]), np.uint8)
    places, signs = drawn % _NUMBERS, np.where(drawn & 128, 1.0, -1.0)
    numbers = np.zeros((len(rows), _NUMBERS))
    np.add.at(numbers.T, places, (rows * signs).T)
    return numbers


def agreement(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the estimated mean cosine of two responses, from their sketches (P, 8).

    >>> one = sketch(np.eye(3, 8))
    >>> agreement(one, one)
    1.0
    """
    squared = ((first - second) ** 2).sum(axis=1)
    return float(1 - squared.mean() / 2)


def written(numbers: NDArray[np.float64]) -> str:
    """Return sketches (P, 8) as hexadecimal digits, two per number."""
    steps = np.clip(np.rint(numbers / _STEP), -127, 127).astype(np.int64) + 128
    return bytes(steps.astype(np.uint8).ravel()).hex()


def read(digits: str) -> NDArray[np.float64]:
    """Return the sketches (P, 8) that `written` encoded, rounded to steps of 0.01."""
    steps = np.frombuffer(bytes.fromhex(digits), np.uint8).astype(np.float64) - 128
    return (steps * _STEP).reshape(-1, _NUMBERS)


def fingerprint_of(address: Endpoint, dim: int, dimensions: int | None, digits: str) -> str:
    """Return the identity of a model behind an API: ``api:<16 digits of a sha256><48 digits of sketches>``.

    Args:
        address: Model and URL.
        dim: Dimension of its vectors.
        dimensions: Number of dimensions that was requested; None for the model's own number.
        digits: Its sketches, as `written` returns them.

    The sha256 is over all four. Eight bytes of it are enough, because it does not identify weights.
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
    """Return the sketches (P, 8) of those fingerprints that have this model, server and dimension, by fingerprint."""
    found = {}
    for fingerprint in fingerprints:
        numbers = sketch_in(fingerprint)
        digits = fingerprint[-2 * _NUMBERS * len(PROBES) :]
        if numbers is not None and fingerprint_of(address, dim, dimensions, digits) == fingerprint:
            found[fingerprint] = numbers
    return found
