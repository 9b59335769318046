"""What people type for a model, and what it is taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet.errors import ConfigError
from limpet.models.names import CODE, SCHEMES, ModelName


@pytest.mark.parametrize(
    ("given", "scheme", "place"),
    [
        *((f"{scheme}:a/b", scheme, "a/b") for scheme in SCHEMES),
        ("openai:bge-m3@http://127.0.0.1:8000/v1", "openai", "bge-m3@http://127.0.0.1:8000/v1"),
        ("models/encoder.py:larger", CODE, "models/encoder.py:larger"),
        ("old.npz", "vectors", "old.npz"),
        ("postgresql://me@host/shop?table=items", "vectors", "postgresql://me@host/shop?table=items"),
        ("lance:folder#items", "vectors", "lance:folder#items"),
        ("C:", "vectors", "C:"),
    ],
)
def test_a_name_says_its_kind_and_place(given: str, scheme: str, place: str) -> None:
    named = ModelName(given, sources={"lance"})
    assert (named.scheme, named.place) == (scheme, place)
    assert ModelName(str(named), sources={"lance"}) == named


@pytest.mark.parametrize(
    ("given", "nearest"), [("relase:runs/new", "release"), ("package_:x", "package"), ("xx:y", "")]
)
def test_an_unknown_scheme_is_refused_with_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match="no known scheme") as refused:
        ModelName(given)
    assert f"Did you mean '{nearest}'?" in refused.value.given or not nearest


def test_a_path_that_exists_may_hold_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "at:noon.npz").touch()
    (tmp_path / "st:noon").mkdir()
    assert {ModelName(name).scheme for name in ("at:noon.npz", "st:noon")} == {"vectors"}


def test_a_password_is_not_repeated() -> None:
    named = ModelName("postgresql://me:s3cret@host/shop?table=items")
    assert "s3cret" in named.place and "s3cret" not in str(named) + repr(named)


def test_a_model_of_another_kind_is_refused() -> None:
    ModelName("st:minilm").refuse_unless("st", "release", what="texts")
    with pytest.raises(ConfigError, match="names no model of texts"):
        ModelName("hf:dinov2").refuse_unless("st", "release", what="texts")
    with pytest.raises(ConfigError) as refused:
        ModelName("runs/new").refuse_unless("release", "hf", what="images")
    assert "release:runs/new" in refused.value.to_do
