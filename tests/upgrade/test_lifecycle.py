"""Which steps of an upgrade are possible from which phase."""

from __future__ import annotations

from typing import get_args

import pytest

from limpet.errors import UpgradeStateError
from limpet.upgrade.lifecycle import POSSIBLE, Phase, UpgradeStep, check_step

PHASES: tuple[Phase, ...] = get_args(Phase)


@pytest.mark.parametrize("step", get_args(UpgradeStep))
def test_a_step_is_refused_from_every_phase_that_does_not_allow_it(step: UpgradeStep) -> None:
    for phase in PHASES:
        if phase in POSSIBLE[step]:
            check_step(step, phase)
        else:
            with pytest.raises(UpgradeStateError, match=f"Cannot {step}:") as refused:
                check_step(step, phase)
            assert "`limpet upgrade" in refused.value.to_do


def test_every_phase_but_steady_has_a_way_back() -> None:
    for phase in PHASES[1:]:
        assert {"rollback", "cancel"} & {step for step, phases in POSSIBLE.items() if phase in phases}


def test_whoever_knows_more_may_allow_more() -> None:
    check_step("start", "swapped", possible=("steady", "swapped"))
    with pytest.raises(UpgradeStateError, match="Expected: another step"):
        check_step("index", "started", possible=())
