"""One document of every kind of results, as other tests read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    "rehearsal": Rehearsal,
    "rehearsal-unlabelled": Rehearsal,
}


@pytest.mark.parametrize("name", KINDS)
def test_document_is_saved_as_it_was_read(name: str, tmp_path: Path) -> None:
    path = DOCUMENTS / f"{name}.json"
    results = KINDS[name].load(path)
    assert json.loads(results.save(tmp_path).read_text()) == json.loads(path.read_text())
    assert KINDS[name].load(tmp_path) == results
