"""Leaderboards and results of sessions as files: read as they were written, told apart, and written as Markdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limpet.errors import ConfigError
from limpet.evaluation.results import EvaluationResults
from limpet.reports.formats import plain_text
from limpet.reports.markdown import in_markdown
from limpet.results import Results
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports import leaderboard, sessions
from limpet_bench.sessions.results import SessionsResults

from ...reports.pages import tables_of
from ...reports.test_example_documents import DOCUMENTS as OTHERS

DOCUMENTS = Path(__file__).parent / "documents"
KINDS: dict[str, type[Results]] = {
    "leaderboard": Leaderboard,
    "sessions": SessionsResults,
    "sessions-blurry": SessionsResults,
}


@pytest.mark.parametrize("name", KINDS)
def test_document_is_saved_as_it_was_read(name: str, tmp_path: Path) -> None:
    path = DOCUMENTS / f"{name}.json"
    results = KINDS[name].load(path)
    assert json.loads(results.save(tmp_path).read_text()) == json.loads(path.read_text())
    assert KINDS[name].load(tmp_path) == results


@pytest.mark.parametrize("kind", [Leaderboard, SessionsResults])
def test_only_its_own_results_are_read(kind: type[Results]) -> None:
    with pytest.raises(ConfigError, match=r"(?s)of the kind 'evaluation'.*“limpet-bench"):
        kind.load(OTHERS / "evaluation.json")
    with pytest.raises(ConfigError, match=f"of the kind '{kind.KIND}'"):
        EvaluationResults.load(DOCUMENTS / f"{kind.KIND}.json")
    with pytest.raises(ConfigError, match="Field required"):
        kind.of()


@pytest.mark.parametrize("name", KINDS)
def test_markdown_says_the_headline_and_has_tables_that_can_be_read(name: str) -> None:
    results = KINDS[name].load(DOCUMENTS / f"{name}.json")
    text = results.to_markdown()
    if isinstance(results, SessionsResults):
        headline = sessions.sessions_headline(sessions.standing(results))
    else:
        assert isinstance(results, Leaderboard)
        headline = leaderboard.headline(results)
    assert text.startswith("# ") and text.endswith("\n") and "\n\n\n" not in text
    assert in_markdown(plain_text(headline)) in text
    assert "None" not in text and "\N{NO-BREAK SPACE}" not in text
    assert tables_of(text)
    assert results.summary().startswith(plain_text(headline)) and repr(results).count("\n") > 1
    runs = (
        len(results.rows)
        if isinstance(results, Leaderboard)
        else sum(len(one.sessions) for one in results.learners.values())
    )
    assert results.to_arrow().num_rows == runs


def test_tables_of_learners_hold_their_numbers() -> None:
    results = SessionsResults.load(DOCUMENTS / "sessions.json")
    tables = tables_of(results.to_markdown())
    for name, learner in results.learners.items():
        assert tables["Learners"][name][0] == f"{learner.average_recall['1']:.3f}"
        by_session = tables[f"{name}, session by session"].values()
        assert [row[0] for row in by_session] == [f"{session.recall['1']:.3f}" for session in learner.sessions]
