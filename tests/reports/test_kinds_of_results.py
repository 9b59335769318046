"""All kinds of results: every one reads its own files, and says of another what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limpet.errors import ConfigError
from limpet.evaluation.chain import ChainResults
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.test_sets import CombinationResults
from limpet.linking.results import AdaptResults
from limpet.results import Results

KINDS: dict[str, type[Results]] = {
    kind.KIND or "evaluation": kind for kind in (AdaptResults, ChainResults, CombinationResults, EvaluationResults)
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_its_own_results_are_read(kind: str, tmp_path: Path) -> None:
    for other in KINDS:
        named = {} if other == "evaluation" else {"kind": other}
        (tmp_path / "results.json").write_text(json.dumps({"schema_version": KINDS[kind].VERSION, **named}))
        told = "Field required" if other == kind else f"of the kind '{other}'"
        with pytest.raises(ConfigError, match=told) as refused:
            KINDS[kind].load(tmp_path)
        assert str(tmp_path) in str(refused.value)
        assert ("check which file or folder was given" in str(refused.value)) == (other != kind)
        if other != kind:
            expected = "an evaluation of an upgrade, " if kind == "evaluation" else ""
            assert f"Expected: results of {expected}“limpet" in str(refused.value)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_there_are_no_results_that_are_not_complete(kind: type[Results]) -> None:
    with pytest.raises(ConfigError, match=r"These results: Field required at .*(?s:.)*complete results of .*limpet"):
        kind.of()
