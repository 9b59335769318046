"""Vectors arrive where the old model's are searched, and only those of the model that a link was fitted for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_server import ApiServer
from documented import run_example
from limpet.adapters.storage import load_adapter
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, DataError, ReleaseError, SpaceMismatchError
from limpet.geometry import Hypersphere, Lorentz
from limpet.integrations.linked import LinkedModel
from limpet.models.text_encoders import open_text_encoder
from limpet.training.experiment import Experiment, Recipe

from .conftest import NEW, OLD, QUERY, TEXTS, Links, new_vectors, old_vectors, unit


def embed(texts: Any, side: str) -> list[list[float]]:
    return new_vectors(list(texts), "find " if side == "query" else "").tolist()


def test_new_vectors_are_mapped_into_the_old_space(links: Links) -> None:
    linked = LinkedModel(embed, links.named, model="new")
    assert linked.dim == OLD
    found = linked.documents(TEXTS)
    np.testing.assert_allclose(found, load_adapter(links.named).map(new_vectors(TEXTS)), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    nearest = (linked.queries(["a red hat of wool"]) @ old_vectors(TEXTS).T).argmax()
    assert TEXTS[nearest] == "a red hat of wool"
    assert linked.documents([]).shape == (0, OLD)


def test_the_two_sides_are_told_apart(links: Links) -> None:
    linked = LinkedModel(embed, links.named, model="new")
    expected = load_adapter(links.named).map(new_vectors([QUERY], "find "))
    np.testing.assert_allclose(linked.queries([QUERY]), expected, atol=1e-6)
    assert np.abs(linked.queries([QUERY]) - linked.documents([QUERY])).max() > 0.01


def test_where_the_gallery_was_mapped_new_vectors_stay(links: Links) -> None:
    linked = LinkedModel(embed, links.gallery, model="new")
    assert linked.dim == NEW
    np.testing.assert_allclose(linked.documents(TEXTS), unit(new_vectors(TEXTS)), atol=1e-6)
    mapped = load_adapter(links.gallery).map(old_vectors(TEXTS))
    assert TEXTS[int((linked.documents(["a red hat of wool"]) @ mapped.T).argmax())] == "a red hat of wool"


def test_an_encoder_of_ones_own_says_what_it_is(links: Links, api: ApiServer) -> None:
    linked = LinkedModel(open_text_encoder(api.name), links.proven)
    np.testing.assert_allclose(linked.queries(TEXTS), load_adapter(links.proven).map(new_vectors(TEXTS)), atol=1e-6)
    with pytest.raises(ConfigError, match=r"The model is api:.*was fitted for declared:new"):
        LinkedModel(open_text_encoder(api.name), links.named)


def test_a_model_behind_an_api_proves_itself_by_its_answers(links: Links) -> None:
    def noisy(texts: Any, side: str) -> np.ndarray:
        return new_vectors(list(texts)) * (1 + 1e-3 * np.random.default_rng(0).normal(size=NEW))

    np.testing.assert_allclose(LinkedModel(noisy, links.proven).queries(TEXTS), LinkedModel(
        lambda texts, side: new_vectors(list(texts)), links.proven).queries(TEXTS), atol=0.02)  # fmt: skip
    with pytest.raises(ConfigError, match=r"agree with those of api:\w+ by a cosine of"):
        LinkedModel(lambda texts, side: new_vectors(list(texts))[:, ::-1], links.proven)
    with pytest.raises(SpaceMismatchError, match="vectors of 7 dimensions"):
        LinkedModel(lambda texts, side: new_vectors(list(texts))[:, :7], links.proven)


def test_a_model_that_says_nothing_is_asked_for_its_name(links: Links) -> None:
    with pytest.raises(ConfigError, match=r"does not say what it is(?s:.*)pass model='new'"):
        LinkedModel(embed, links.named)
    with pytest.raises(ConfigError, match="The model is declared:newer"):
        LinkedModel(embed, links.named, model="newer")
    assert LinkedModel(embed, links.named, model="declared:new").dim == OLD


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda rows: rows[:, :5], SpaceMismatchError, "vectors of 5 dimensions"),
        (lambda rows: rows[:1], DataError, r"shape \(1, 24\)"),
        (lambda rows: rows[0], DataError, r"shape \(24,\)"),
        (lambda rows: rows.astype(str), DataError, "type"),
        (lambda rows: rows * [[1], [np.nan]], DataError, "without a direction, that of text 1"),
        (lambda rows: rows * [[0], [1]], DataError, "without a direction, that of text 0"),
        (lambda rows: [rows[0].tolist(), [1.0]], DataError, "different lengths"),
    ],
)
def test_what_a_model_must_not_give(
    links: Links, change: Callable[[np.ndarray], Any], error: type[Exception], said: str
) -> None:
    linked = LinkedModel(lambda texts, side: change(new_vectors(list(texts))), links.named, model="new")
    with pytest.raises(error, match=said):
        linked.queries(TEXTS[:2])


def head(folder: Path, space: Any) -> Path:
    """Train a head in no time on 36 texts of four classes."""
    from limpet.training.compatible_head import train_head

    labels = {"labels": np.arange(36) // 9, "class_names": list("abcd")}
    old = EmbeddingSet(old_vectors(TEXTS), TEXTS, "declared:old", Hypersphere(OLD), **labels)
    new = EmbeddingSet(unit(new_vectors(TEXTS)), TEXTS, "declared:new", Hypersphere(NEW), **labels)
    train_head(old, new, Experiment(method="p2s" if space is None else "hbct", recipe=Recipe(epochs=1)), folder)
    return folder


def test_a_compatible_head(tmp_path: Path) -> None:
    from limpet import open_link

    folder = head(tmp_path / "head", None)
    new = EmbeddingSet(unit(new_vectors(TEXTS)), TEXTS, "declared:new", Hypersphere(NEW))
    linked = LinkedModel(lambda texts, side: new_vectors(list(texts)), folder, model="new")
    np.testing.assert_allclose(linked.queries(TEXTS), open_link(folder).query(new).vectors, atol=1e-6)
    with pytest.raises(ConfigError, match="The model is declared:old"):
        LinkedModel(embed, folder, model="old")


def test_a_head_on_a_space_that_no_store_searches(tmp_path: Path) -> None:
    with pytest.raises(SpaceMismatchError, match="leads to the Lorentz space"):
        LinkedModel(embed, head(tmp_path / "head", Lorentz), model="new")


def test_no_link(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError):
        LinkedModel(embed, tmp_path / "nothing", model="new")


def test_the_documented_example(links: Links) -> None:
    run_example(LinkedModel, {"runs/link/adapter": str(links.named)}, embed=embed)
