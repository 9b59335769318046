"""What a leaderboard calls its measures, cells and data."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.bench.leaderboard import BoardCell, CombinedRun, Leaderboard, Run
from holdfast.wording import metric_name


def measure_name(measure: str) -> str:
    """Write the name of a measure.

    >>> measure_name("p_comp"), measure_name("self_new"), measure_name("ar@1"), measure_name("forgetting")
    ('P_comp', 'self (new)', 'AR@1', 'forgetting')
    """
    name = metric_name(measure)
    return name.replace("_", " ") if name == measure else name


def metric_names(results: Leaderboard, cell: BoardCell | None = None) -> str:
    """Write what runs were measured in, or those of a cell: "mAP", "mAP@100 or mAP"."""
    return " or ".join(map(measure_name, results.metrics(cell)))


def scale_name(results: Leaderboard) -> str:
    """Write what labels are ranked by, with the metric: "cross, mAP" or "AR@1"."""
    name, metrics = measure_name(results.board.ranked_by), metric_names(results)
    return name if name == metrics else f"{name}, {metrics}"


def cell_name(cell: BoardCell, results: Leaderboard) -> str:
    """Write the name of a cell; see `cell_headline`."""
    return ", ".join(filter(None, cell_headline(cell, results)))


def cell_headline(cell: BoardCell, results: Leaderboard) -> tuple[str, str]:
    """Write what a cell is, and what models trained on elsewhere.

    It is its data and scenario, or the one that differs: of one data set and several scenarios, the scenario alone.
    """
    data, scenarios = ({one.data for one in results.board.cells}, {one.scenario for one in results.board.cells})
    if len(data) == 1 < len(scenarios):
        return cell.scenario, ""
    name = cell.data if len(scenarios) == 1 < len(data) else f"{cell.data}, {cell.scenario}"
    return name, training_words(cell.data, (run.trained_on for run in results.runs_of(cell)))


def data_name(run: Run) -> str:
    """Write the data that a run searched, and what its models were trained on where that is another."""
    return ", ".join(filter(None, (run.data, training_words(run.data, [run.trained_on]))))


def sets_name(run: CombinedRun) -> str:
    """Write the test sets that a run searched, and what its models were trained on where that is another."""
    training = training_words(run.data, [run.trained_on])
    return f"{run.data} ({training})" if training else run.data


def training_words(data: str, trained_on: Iterable[str | None]) -> str:
    """Write what models were trained on; nothing where that is the data that was searched, or not known.

    >>> training_words("roxford", ["gldv2", "gldv2"]), training_words("glyphs", ["glyphs", None])
    ('trained on gldv2', '')
    """
    others = dict.fromkeys(name for name in trained_on if name not in (None, data))
    return f"trained on {' and '.join(map(str, others))}" if others else ""
