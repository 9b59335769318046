"""The results document of a bench: checked, written to and read from results.json, and what all of its reports ask.

What it holds is gathered by `board_document` of the bench; nothing is measured or ranked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError
from holdfast.reports.formats import metric_name
from holdfast.reports.leaderboard_schema import LeaderboardSchema
from holdfast.reports.results import check_keys, check_version, read_json, versions, write_results

SCHEMA_VERSION = 1

Document = dict[str, Any]
Board = Mapping[str, Any]  # the part "board"
Entry = Mapping[str, Any]  # one of board["labels"]
Cell = Mapping[str, Any]  # one of board["cells"]

_AGAIN = "run “holdfast bench”"
_WHERE = "These results of a bench"
_NAMES = {
    "self_old": "self (old)",
    "self_independent": "self (independent)",
    "self_new": "self (new)",
    "cross": "cross",
    "p_up": "P_up",
    "p_comp": "P_comp",
    "p_score": "P_score",
}


def leaderboard_document(found: Mapping[str, Any]) -> Document:
    """Return what a bench came to with the versions that measured it, checked.

    Args:
        found: What `board_document` returned.

    Raises:
        ConfigError: Something is missing, unknown, no finite number or out of range, or two parts do not agree.
    """
    return checked_leaderboard({**found, **versions()}, _WHERE)


def write_leaderboard(document: Mapping[str, Any], folder: str | Path) -> Path:
    """Write results.json into a folder, wholly or not at all, and return its path.

    Raises:
        ConfigError: The document is not complete; see `leaderboard_document`.
        DataError: It could not be written, or a value is no JSON.
    """
    return write_results(checked_leaderboard(dict(document), _WHERE), folder)


def read_leaderboard(path: str | Path) -> Document:
    """Read a results.json of a bench, or that of a folder, and check that everything a report needs is there.

    Raises:
        ConfigError: The file is missing, no JSON, of another kind or schema version, or not complete.
    """
    return checked_leaderboard(*read_json(path))


def checked_leaderboard(document: Any, where: str = _WHERE) -> Document:
    """Return a document that is complete, of this schema version, and whose parts agree.

    Args:
        document: What was read or built.
        where: What to call it in a message.

    Raises:
        ConfigError: It is not.
    """
    found = check_version(document, SCHEMA_VERSION, where, again=_AGAIN)
    if found.get("kind") != "leaderboard":
        raise ConfigError(
            f"{where}: no results of a bench, but of kind {found.get('kind', 'not said')}.",
            expected="the results.json of “holdfast bench”",
            to_do="check which file or folder was given.",
        )
    check_keys(found, LeaderboardSchema, where, "the keys that board_document writes, finite numbers", again=_AGAIN)
    for place, given, expected in _disagreements(found):
        raise ConfigError(f"{where}: {place} is {given}.", expected=expected, to_do=f"{_AGAIN} again.")
    return found


def _disagreements(document: Document) -> Iterator[tuple[str, Any, str]]:
    """Yield every part that contradicts another: its place, what it is, and what the other asks for."""
    board, rows = document["board"], document["rows"]
    names, run = [entry["label"] for entry in board["labels"]], {row["label"] for row in rows}
    if len(names) != len(set(names)) or set(names) != run:
        yield "board.labels", names, f"each label of the runs once: {', '.join(sorted(run))}"
    places = [(cell["data"], cell["scenario"]) for cell in board["cells"]]
    ran = {(row["data"], row["scenario"]) for row in rows}
    if len(places) != len(set(places)) or set(places) != ran:
        yield "board.cells", places, f"each cell of the runs once: {sorted(ran)}"
    for number, cell in enumerate(board["cells"]):
        if set(cell["labels"]) != run:
            yield f"board.cells.{number}.labels", list(cell["labels"]), f"the labels {', '.join(names)}"
    if (board["friedman"] is None) != (board["nemenyi"] is None) or (board["friedman"] is None) != bool(
        board["untested"]
    ):
        yield "board.untested", board["untested"], "a reason just where labels were not tested"
    joined = {name for group in (board["nemenyi"] or {"groups": []})["groups"] for name in group}
    for place, told in (
        ("nemenyi.groups", joined),
        ("front.labels", set((board["front"] or {"labels": ()})["labels"])),
    ):
        if not told <= run:
            yield f"board.{place}", sorted(told), f"labels of the runs: {', '.join(names)}"
    for number, row in enumerate(rows):
        if (row["scores"] is None) != bool(row.get("failure")):
            yield f"rows.{number}", "without scores and reason, or with both", "scores, or why there are none"


def entries(board: Board, *, ranked: bool | None = None) -> list[Entry]:
    """Return the labels, best first: all of them, those that are ranked, or those that are shown beside them."""
    return [entry for entry in board["labels"] if ranked is None or (entry["reference"] is None) == ranked]


def failures(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the runs that failed, in their order."""
    return [row for row in document["rows"] if row.get("failure")]


def columns_of(board: Board) -> list[str]:
    """Return the measures that labels are compared by: what ranks them first, the models that are given left out."""
    others = [name for name in board["measures"] if name not in ("self_old", "self_independent", board["ranked_by"])]
    return [name for name in (board["ranked_by"], *others) if name in board["measures"]]


def measure_name(measure: str) -> str:
    """Write the name of a measure.

    >>> measure_name("p_comp"), measure_name("self_new"), measure_name("ar@1"), measure_name("forgetting")
    ('P_comp', 'self (new)', 'AR@1', 'forgetting')
    """
    family, at, depth = measure.partition("@")
    return _NAMES.get(measure) or (f"AR@{depth}" if family == "ar" and at else metric_name(measure).replace("_", " "))


def scale_name(document: Mapping[str, Any]) -> str:
    """Write what labels are ranked by, with the metric: "cross, mAP" or "AR@1"."""
    name, metric = measure_name(document["board"]["ranked_by"]), measure_name(document["suite"]["metric"])
    return name if name == metric else f"{name}, {metric}"


def cell_name(cell: Cell, board: Board) -> str:
    """Write the name of a cell: its data and scenario, or the one that differs.

    >>> cells = [{"data": "glyphs", "scenario": name} for name in ("more classes", "more images")]
    >>> cell_name(cells[0], {"cells": cells}), cell_name(cells[0], {"cells": cells[:1]})
    ('more classes', 'glyphs, more classes')
    """
    data, scenarios = ({found[key] for found in board["cells"]} for key in ("data", "scenario"))
    if len(data) == 1 < len(scenarios):
        return str(cell["scenario"])
    if len(scenarios) == 1 < len(data):
        return str(cell["data"])
    return f"{cell['data']}, {cell['scenario']}"
