"""What tests of the service share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from limpet.models.text_encoders import TextSettings
from limpet.training.text_models import TextModel, open_text_model
from service.services import Served, create, served


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A gallery of forty items."""
    return create(f"memory:{tmp_path / 'live'}")


@pytest.fixture
def client(url: str) -> Iterator[Served]:
    """A service of it."""
    with served(url) as opened:
        yield opened.until_it_writes()


@pytest.fixture(scope="session")
def words() -> tuple[tuple[str, Callable[..., TextModel]], ...]:
    """Two real text models: the same static words, in 64 and in 256 numbers."""
    made = {
        f"words-{dim}": open_text_model("package:wordllama", settings=TextSettings(truncate_dim=dim))
        for dim in (64, 256)
    }
    return tuple((name, partial(_opened, model)) for name, model in made.items())


def _opened(model: TextModel, known: Any) -> TextModel:
    return model
