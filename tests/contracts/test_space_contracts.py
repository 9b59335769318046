"""What every space promises, run over all of `SEARCH_SPACES`, whether models are trained there or not."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.geometry import SEARCH_SPACES, space_from_record
from holdfast.testing import Check, space_contract

CHECKS = [pytest.param(check, id=f"{name}-{check}") for name in sorted(SEARCH_SPACES)
          for check in space_contract(SEARCH_SPACES[name](6))]  # type: ignore[call-arg]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_every_space_keeps_its_promises(check: Check) -> None:
    check()


def test_unknown_space_and_impossible_dimension() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hypersphere'"):
        space_from_record({"name": "hyperspher", "dim": 3})
    with pytest.raises(ConfigError, match="dim=0"):
        space_from_record({"name": "hypersphere", "dim": 0})
    with pytest.raises(ConfigError, match="do not describe"):
        space_from_record({"name": "hypersphere", "dim": 3, "colour": "red"})
