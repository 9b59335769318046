"""The results document of a bench: checked, written to and read from results.json, and what all of its reports ask.

What it holds is gathered by `board_document` of the bench; nothing is measured or ranked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.reports.document_kind import DocumentKind
from holdfast.reports.formats import metric_name
from holdfast.reports.leaderboard_schema import LeaderboardSchema
from holdfast.reports.results import versions

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
    yield from _wrong_over_sets(document.get("combined") or (), run)


def _wrong_over_sets(rows: Iterable[Mapping[str, Any]], labels: set[str]) -> Iterator[tuple[str, Any, str]]:
    seen = set()
    for number, row in enumerate(rows):
        if row["label"] not in labels:
            yield f"combined.{number}.label", row["label"], f"a label of the runs: {', '.join(sorted(labels))}"
        here = tuple(row.get(key) for key in ("data", "trained_on", "scenario", "label", "seed"))
        if here in seen:
            yield f"combined.{number}", f"a second one of {row['label']}, seed {row['seed']}", "one per label and seed"
        seen.add(here)


LEADERBOARD = DocumentKind(
    kind="leaderboard",
    version=SCHEMA_VERSION,
    schema=LeaderboardSchema,
    where=_WHERE,
    keys="the keys that board_document writes, finite numbers",
    again=_AGAIN,
    disagreements=_disagreements,
)
checked_leaderboard, write_leaderboard, read_leaderboard = LEADERBOARD.checked, LEADERBOARD.write, LEADERBOARD.read


def entries(board: Board, *, ranked: bool | None = None) -> list[Entry]:
    """Return the labels, best first: all of them, those that are ranked, or those that are shown beside them."""
    return [entry for entry in board["labels"] if ranked is None or (entry["reference"] is None) == ranked]


def in_order(board: Board) -> list[Entry]:
    """Return all labels as tables show them: those that are ranked, best first, then those beside them."""
    return [*entries(board, ranked=True), *entries(board, ranked=False)]


def failures(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the runs that failed, in their order."""
    return [row for row in document["rows"] if row.get("failure")]


def runs_of(document: Mapping[str, Any], cell: Cell, label: str | None = None) -> list[Mapping[str, Any]]:
    """Return the runs in a cell, all of them or those of a label."""
    here = (cell["data"], cell["scenario"])
    rows = (row for row in document["rows"] if (row["data"], row["scenario"]) == here)
    return [row for row in rows if label is None or row["label"] == label]


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
    name, metrics = measure_name(document["board"]["ranked_by"]), metric_names(document)
    return name if name == metrics else f"{name}, {metrics}"


def metric_names(document: Mapping[str, Any], cell: Cell | None = None) -> str:
    """Write what runs were measured in, or those of a cell: data sets may have metrics of their own.

    >>> metric_names({"rows": [{"metric": "map@100"}, {"metric": "map"}, {"metric": "map"}]})
    'mAP@100 or mAP'
    """
    rows = document["rows"] if cell is None else runs_of(document, cell)
    return " or ".join(dict.fromkeys(measure_name(row["metric"]) for row in rows))


def several_metrics(document: Mapping[str, Any]) -> bool:
    """Return whether cells were measured in different metrics."""
    return len({row["metric"] for row in document["rows"]}) > 1


def cell_name(cell: Cell, document: Mapping[str, Any]) -> str:
    """Write the name of a cell; see `cell_headline`."""
    return ", ".join(filter(None, cell_headline(cell, document)))


def cell_headline(cell: Cell, document: Mapping[str, Any]) -> tuple[str, str]:
    """Write what a cell is, its data and scenario or the one that differs; and what models trained on elsewhere.

    >>> cells = [{"data": "roxford", "scenario": name} for name in ("more classes", "more images")]
    >>> rows = [{"data": "roxford", "scenario": "more classes", "trained_on": "gldv2"}]
    >>> one, two = ({"board": {"cells": found}, "rows": rows} for found in (cells[:1], cells))
    >>> cell_headline(cells[0], two), cell_headline(cells[0], one)
    (('more classes', ''), ('roxford, more classes', 'trained on gldv2'))
    """
    data, scenarios = ({found[key] for found in document["board"]["cells"]} for key in ("data", "scenario"))
    if len(data) == 1 < len(scenarios):
        return str(cell["scenario"]), ""
    name = cell["data"] if len(scenarios) == 1 < len(data) else f"{cell['data']}, {cell['scenario']}"
    return name, training_words(cell["data"], runs_of(document, cell))


def training_words(data: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write what models were trained on; nothing where that is the data that was searched.

    >>> training_words("roxford", [{"trained_on": "gldv2"}] * 2), training_words("glyphs", [{"trained_on": "glyphs"}])
    ('trained on gldv2', '')
    """
    others = trained_elsewhere(data, rows)
    return f"trained on {' and '.join(others)}" if others else ""


def data_name(row: Mapping[str, Any]) -> str:
    """Write the data that a run searched, and what its models were trained on where that is another."""
    return ", ".join(filter(None, (row["data"], training_words(row["data"], [row]))))


def trained_elsewhere(data: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of what models of runs were trained on, but for the data that was searched."""
    return list(dict.fromkeys(name for row in rows if (name := row.get("trained_on")) not in (None, data)))
