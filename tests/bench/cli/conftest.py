"""Fixtures of the tests of commands."""

from collections.abc import Callable

import pytest

from ...cli.conftest import copied, made, planted
from ...cli.conftest import fails as fails_of_any

__all__ = ["copied", "made", "planted"]


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command of `limpet-bench` that must end with exit code 2 and return what it said, on one line."""
    run = fails_of_any.__wrapped__(capsys)
    return lambda *words: run("limpet-bench", *words)
