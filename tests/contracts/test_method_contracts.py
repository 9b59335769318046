"""What every method promises, run over all of `METHODS`; and that a broken one is found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from limpet.cli import main
from limpet.methods import METHODS
from limpet.methods.base import CompatibilityMethod, Read, Step
from limpet.testing import failures, method_contract


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_keeps_its_promises(name: str, subtests: pytest.Subtests) -> None:
    for check in method_contract(name):
        with subtests.test(str(check)):
            check()


class Honest(CompatibilityMethod):
    """Pull new points to the old ones of the same items.

    Args:
        weight: Factor of the pull.
    """

    reads: frozenset[Read] = frozenset({"old"})

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def pull(self, step: Step) -> Tensor:
        similar = step.new.space.paired_similarity(step.new.points, step.predecessor.points)
        return (1 - similar).sum() / max(len(similar), 1)

    def forward(self, step: Step) -> dict[str, Tensor]:
        return {"task": step.head.loss(step.new, step.labels), "pull": self.weight * self.pull(step)}


class DrawsGlobally(Honest):
    """Weight: weight: noise from torch's own generator."""

    def pull(self, step: Step) -> Tensor:
        return super().pull(step) * torch.rand(())


class LearnsFromOld(Honest):
    """weight: Forgets that old values are given."""

    def pull(self, step: Step) -> Tensor:
        return (step.new.points - step.old.points).square().sum()  # type: ignore[union-attr]


class Loops(Honest):
    """weight: One row after another."""

    def pull(self, step: Step) -> Tensor:
        rows = zip(step.new.points, step.predecessor.points, strict=True)
        return sum(((new - old).square().sum() for new, old in rows), torch.zeros(()))


class Waits(Honest):
    """weight: Asks for a value."""

    def pull(self, step: Step) -> Tensor:
        found = super().pull(step)
        return found if found.item() > 0 else found * 0


class DividesByNothing(Honest):
    """weight: The mean over items of classes that the old model knows."""

    def pull(self, step: Step) -> Tensor:
        known = step.old_labels >= 0
        return (step.new.points - step.predecessor.points).square().sum(dim=1)[known].mean()


class CountsSteps(Honest):
    """weight: Grows from step to step, and forgets the number when it is resumed."""

    steps = 0

    def pull(self, step: Step) -> Tensor:
        self.steps += 1
        return super().pull(step) * self.steps


class NeedsNobody(Honest):
    """weight: Starts alone, and says that it cannot."""

    def pull(self, step: Step) -> Tensor:
        return step.new.points.sum() * 0


class Forgets(Honest):
    """weight: The pull is printed, and pulls nothing."""

    def pull(self, step: Step) -> Tensor:
        return super().pull(step).detach()


class WeighsNothing(Honest):
    """weight: Its weight is taken, and left out."""

    def forward(self, step: Step) -> dict[str, Tensor]:
        return {"task": step.head.loss(step.new, step.labels), "pull": self.pull(step)}


class GoesByPlace(Honest):
    """weight: The first row of a batch counts most."""

    def pull(self, step: Step) -> Tensor:
        similar = step.new.space.paired_similarity(step.new.points, step.predecessor.points)
        return ((1 - similar) / torch.arange(1, len(similar) + 1)).sum()


class RaisesForFew(Honest):
    """weight: Needs two rows."""

    def pull(self, step: Step) -> Tensor:
        if len(step.labels) < 2:
            raise ValueError("too few")
        return super().pull(step)


class SaysNothing(Honest):
    def __init__(self, weight: float = 1.0, slack: float = 0.0) -> None:
        super().__init__(weight)


class Unbalanced(Honest):
    """weight: Its balance is a name of nothing."""

    balance = "wait"


class ReadsMore(Honest):
    """weight: Reads rows of the training set, and does not say so."""

    def pull(self, step: Step) -> Tensor:
        return super().pull(step) + 0 * step.index.sum()


class ReadsScores(Honest):
    """weight: Reads scores of the classifier, and does not say so."""

    def pull(self, step: Step) -> Tensor:
        return super().pull(step) + 0 * step.head.logits(step.new).sum()


class AsksInVain(Honest):
    """weight: Asks for a classifier and for old embeddings, and reads neither."""

    reads = frozenset({"old", "head", "old_embeddings"})


class CountsOnClasses(Honest):
    """weight: Says that it needs no classes, and pulls those of a low number more."""

    without_classes = {}  # noqa: RUF012

    def pull(self, step: Step) -> Tensor:
        return super().pull(step) * step.labels[:1].sum()


BROKEN: dict[str, tuple[type[CompatibilityMethod], str]] = {
    "global randomness": (DrawsGlobally, "same generator same loss and no global randomness"),
    "gradient to the old": (LearnsFromOld, "no gradient reaches the old embeddings"),
    "a loop over rows": (Loops, "as many operations for 32 rows as for 128"),
    "waits for a value": (Waits, "as many operations for 32 rows as for 128"),
    "a mean of nothing": (DividesByNothing, "finite loss and gradient at the edges"),
    "a count that is not saved": (CountsSteps, "a resumed method goes on bit for bit"),
    "no predecessor needed": (NeedsNobody, "refuses to start without a predecessor"),
    "a term without gradient": (Forgets, "every term can teach something"),
    "a weight that is not read": (WeighsNothing, "the option that weighs compatibility changes the loss"),
    "place in the batch": (GoesByPlace, "the loss does not depend on the order of the batch"),
    "no words": (SaysNothing, "every option is documented and has a default"),
    "a read that is not declared": (ReadsMore, "what it reads of a step is what it says"),
    "scores that are not declared": (ReadsScores, "without a classifier it says that it needs one or does without"),
    "a classifier in vain": (AsksInVain, "without a classifier it says that it needs one or does without"),
    "old embeddings in vain": (AsksInVain, "old embeddings of the training set are asked for where they are read"),
    "classes where there are none": (CountsOnClasses, "without classes it reads only which items are alike"),
    "no balance": (Unbalanced, "what weighs compatibility against the task is an option with a number"),
}


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Any]], None]:
    return lambda method: monkeypatch.setitem(METHODS, "on_trial", method)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_method_is_found_out(fault: str, register: Callable[[type[Any]], None]) -> None:
    method, promise = BROKEN[fault]
    register(method)
    found = [*failures(method_contract("on_trial"))]
    assert promise in {failure.check.promise for failure in found}
    assert all(failure.found and failure.check.meaning for failure in found)


LINES = {
    Loops: "return sum(((new - old).square().sum() for new, old in rows), torch.zeros(()))",
    Waits: "return found if found.item() > 0 else found * 0",
    RaisesForFew: 'raise ValueError("too few")',
}


@pytest.mark.parametrize("method", LINES)
def test_what_is_wrong_is_told_with_its_line_once(
    method: type[CompatibilityMethod], register: Callable[[type[Any]], None], capsys: Any
) -> None:
    register(method)
    assert main(["methods", "check", "on_trial"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert f"test_method_contracts.py, line {line_number(LINES[method])}: " in shown
    assert shown.count(LINES[method]) == 1  # not once for every space, type and edge


def line_number(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


def test_an_honest_method_passes_and_the_command_says_so(register: Callable[[type[Any]], None], capsys: Any) -> None:
    register(Honest)
    assert main(["methods", "check", "on_trial"]) == 0
    assert "keeps all" in capsys.readouterr().err


def test_the_command_names_what_is_broken(register: Callable[[type[Any]], None], capsys: Any) -> None:
    register(DividesByNothing)
    assert main(["methods", "check", "on_trial"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert "finite loss and gradient at the edges" in shown and "no class the old model saw" in shown
    assert main(["methods", "check", "nobodys"]) == 2
    assert main(["methods", "check"]) == 2
