"""What holds for results of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.reports.adapt_results import ADAPT
from holdfast.reports.chain_results import CHAIN
from holdfast.reports.combined_results import COMBINATION
from holdfast.reports.document_kind import DocumentKind
from holdfast.reports.leaderboard_results import LEADERBOARD
from holdfast.reports.sessions_results import SESSIONS

KINDS = {found.kind: found for found in (ADAPT, CHAIN, COMBINATION, LEADERBOARD, SESSIONS)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_only_its_own_results_are_read(kind: DocumentKind, tmp_path: Path) -> None:
    for other in ("evaluation", *KINDS):
        named = {} if other == "evaluation" else {"kind": other}
        (tmp_path / "results.json").write_text(json.dumps({"schema_version": kind.version, **named}))
        told = "Field required" if other == kind.kind else f"of the kind '{other}'"
        with pytest.raises(ConfigError, match=told) as refused:
            kind.read(tmp_path)
        assert str(tmp_path) in str(refused.value)
        assert ("Expected: results of “holdfast " in str(refused.value)) == (other != kind.kind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_nothing_is_written_of_results_that_are_not_complete(kind: DocumentKind, tmp_path: Path) -> None:
    for broken in ({"schema_version": kind.version, "kind": kind.kind}, {"kind": kind.kind}, {}):
        with pytest.raises(ConfigError, match=kind.where):
            kind.write(broken, tmp_path)
    assert list(tmp_path.iterdir()) == []
