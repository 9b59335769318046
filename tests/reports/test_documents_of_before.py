"""Documents that were written before results were typed values: all that they say is read, and said again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet.bench.leaderboard import Leaderboard
from limpet.continual.results import SessionsResults
from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.galleries.rehearsal import Rehearsal
from limpet.linking.results import AdaptResults
from limpet.results import Results

DOCUMENTS = Path(__file__).parent / "documents"
KINDS: dict[str, type[Results]] = {
    "adapt": AdaptResults,
    "evaluation": EvaluationResults,
    "evaluation-clicks": EvaluationResults,
    "evaluation-hyperbolic": EvaluationResults,
    "evaluation-unlabelled": EvaluationResults,
    "chain": ChainResults,
    "combination": CombinationResults,
    "sessions": SessionsResults,
    "sessions-blurry": SessionsResults,
    "drill": Rehearsal,
    "drill-unlabelled": Rehearsal,
    "leaderboard": Leaderboard,
}


def added(before: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is there now and was not, and refuse anything that was there and is another now."""
    if isinstance(before, dict) and isinstance(now, dict):
        assert before.keys() <= now.keys(), place
        for key, value in now.items():
            if key in before:
                yield from added(before[key], value, f"{place}.{key}")
            else:
                yield f"{place}.{key}", value
    elif isinstance(before, list) and isinstance(now, list):
        assert len(before) == len(now), place
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from added(one, other, f"{place}.{number}")
    else:
        assert before == now and type(before) is type(now), place


@pytest.mark.parametrize("name", KINDS)
def test_everything_they_say_is_kept(name: str, tmp_path: Path) -> None:
    path = DOCUMENTS / f"{name}.json"
    results = KINDS[name].load(path)
    written = json.loads(results.save(tmp_path).read_text())
    new = {place: value for place, value in added(json.loads(path.read_text()), written) if value}
    meant = {".protocol.resample": "queries", ".protocol.splits": 1} if name == "adapt" else {}
    assert new == meant, "what earlier versions meant"
    assert KINDS[name].load(tmp_path) == results
