"""The numbers that suites quote from their papers, against two transcriptions of their own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from limpet.evaluation.compatibility import PMetrics, SelfAndCross
from limpet_bench.cache import TaskCache
from limpet_bench.figure_values import NumberTable, PublishedNumber, Spread, TableColumn
from limpet_bench.figures import Table
from limpet_bench.gathering import Finished, gathered
from limpet_bench.leaderboard import LEARNER, Published, Run
from limpet_bench.ranking import SYSTEMS
from limpet_bench.suite import Suite
from limpet_bench.tasks import Row

from .shipped import EVERY

COLUMNS = ("old_self", "indep_self", "new_self", "cross")
SUITES = {"AdvBCT": "advbct-", "HBCT": "hbct-", "NDPP/ODPP": "ndpp-"}
TABLES = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text(encoding="utf-8"))
TOTALS = json.loads((Path(__file__).parent / "published_totals.json").read_text(encoding="utf-8"))


def quoted_scores(paper: str) -> set[tuple[float, ...]]:
    """All scores of old, independent and new model and across both that suites of a paper quote."""
    published = [row for name, suite in EVERY.items() if name.startswith(SUITES[paper]) for row in suite.published]
    return {tuple(row.scores.get(one) for one in SYSTEMS) for row in published if row.scores}


@pytest.mark.parametrize("paper", SUITES)
def test_published_scores_hold_every_row_of_the_golden_tables(paper: str) -> None:
    quoted, compared = quoted_scores(paper), 0
    for kind, unit in (("consistent_sigmoid", 100), ("consistent_raw", 1)):
        for row in (row for row in TABLES[kind] if row["paper"] == paper):
            for scores in zip(*(row[system] for system in COLUMNS), strict=True):
                assert tuple(round(score / unit, 6) for score in scores) in quoted, (row["method"], scores)
                compared += 1
    assert compared > 20


def numbers_of(value: Any) -> Iterator[float]:
    """All numbers within a quoted row."""
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_of(one)
    elif isinstance(value, int | float):
        yield value


def control_totals(published: list[Published]) -> dict[str, float]:
    """The sum of all numbers quoted of every row of a table."""
    totals: dict[str, float] = {}
    for row in published:
        totals[row.label] = totals.get(row.label, 0.0) + sum(numbers_of(row.model_dump()))
    return {label: round(total, 6) for label, total in totals.items()}


@pytest.mark.parametrize("suite", TOTALS)
def test_published_numbers_add_up_to_their_control_totals(suite: str) -> None:
    """Taken when every number was compared with its paper. Another total needs the paper at hand, not a new total."""
    assert control_totals(EVERY[suite].published) == TOTALS[suite]


def test_published_numbers_all_have_a_control_total() -> None:
    assert set(TOTALS) == {name for name, suite in EVERY.items() if suite.published}


# --- numbers that follow from others ---------------------------------------------------------------------------------

PRINTED_DIGITS = {"advbct": 4, "cvs": 4, "hbct": 3, "mixbct": 4, "ndpp": 4}
"""Digits of scores as fractions; trailing zeros are not written in the files."""

BACKBONE, DATA = "enlarged-backbone-class", "extended-data"
EXCEPTIONS: dict[tuple[str, str, str, str], tuple[float, float]] = {
    ("advbct-table-3", DATA, "lce", "P_1-score"): (53.34, 53.23),
    # This block: as if the independent model were slightly worse than printed.
    ("advbct-table-3", BACKBONE, "independent", "P_comp"): (11.46, 11.74),
    ("advbct-table-3", BACKBONE, "bct", "P_up"): (47.71, 47.61),
    ("advbct-table-3", BACKBONE, "bct", "P_comp"): (54.59, 54.53),
    ("advbct-table-3", BACKBONE, "bct", "P_1-score"): (50.91, 50.83),
    ("advbct-table-3", BACKBONE, "lce", "P_up"): (49.04, 48.94),
    ("advbct-table-3", BACKBONE, "lce", "P_comp"): (55.67, 55.59),
    ("advbct-table-3", BACKBONE, "lce", "P_1-score"): (52.15, 52.05),
    ("advbct-table-3", BACKBONE, "unibct", "P_up"): (47.29, 47.19),
    ("advbct-table-3", BACKBONE, "unibct", "P_comp"): (55.51, 55.43),
    ("advbct-table-3", BACKBONE, "unibct", "P_1-score"): (51.06, 50.98),
    ("advbct-table-3", BACKBONE, "hot_refresh", "P_up"): (49.01, 48.9),
    ("advbct-table-3", BACKBONE, "hot_refresh", "P_comp"): (53.63, 53.58),
    ("advbct-table-3", BACKBONE, "hot_refresh", "P_1-score"): (51.21, 51.13),
    ("advbct-table-3", BACKBONE, "advbct", "P_up"): (49.65, 49.54),
    ("advbct-table-3", BACKBONE, "advbct", "P_comp"): (56.64, 56.36),
    ("advbct-table-3", BACKBONE, "advbct", "P_1-score"): (52.83, 52.73),
    # These two rows: as if self (independent) were 0.654 or 0.655 where 0.651 is printed.
    ("hbct-table-1-hyperbolic", DATA, "hbct without entailment", "cifar-100, mAP P_up"): (-0.002, 0.003),
    ("hbct-table-1-hyperbolic", DATA, "hbct without entailment", "cifar-100, mAP P_com"): (0.547, 0.556),
    ("hbct-table-1-hyperbolic", DATA, "hbct", "cifar-100, mAP P_up"): (0.001, 0.008),
    ("hbct-table-1-hyperbolic", DATA, "hbct", "cifar-100, mAP P_com"): (0.56, 0.571),
    ("hbct-table-1", "both", "independent", "tiny-imagenet, CMC@1 P_com"): (-0.529, -0.517),
    ("hbct-table-1", "both", "independent", "tiny-imagenet, mAP P_com"): (-0.425, -0.416),
    # P metrics of Table II beside other scores on ROxford and GLDv2.
    ("ndpp-table-4", "1-to-2", "odpp", "P_up"): (50.55, 50.41),
    ("ndpp-table-4", "1-to-2", "odpp", "P_comp"): (58.75, 57.84),
    ("ndpp-table-4", "1-to-2", "odpp", "P_1-score"): (54.32, 53.84),
    # The cross score on GLDv2 repeats that of BCT.
    ("ndpp-table-4", "1-to-3", "advbct", "P_comp"): (53.36, 53.76),
    ("ndpp-table-4", "1-to-3", "advbct", "P_1-score"): (51.71, 51.9),
    ("ndpp-table-5", "data-extension", "odpp, old prototypes alone", "P_up"): (49.98, 50.03),
    ("ndpp-table-5", "data-extension", "odpp, old prototypes alone", "P_comp"): (57.59, 57.73),
    ("ndpp-table-5", "data-extension", "odpp, old prototypes alone", "P_1-score"): (53.51, 53.6),
}
"""What papers print that does not follow from their scores: as printed, and as computed."""

Scores = dict[tuple[str, str, str, str, str], float]  # by data, scenario, label, metric and system


class Cell(NamedTuple):
    """A number of a table that a paper prints, and what the table makes of the scores that it prints."""

    scenario: str
    label: str
    column: TableColumn
    own: Spread | None
    printed: PublishedNumber

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scenario, self.label, ", ".join(filter(None, (self.column.data, self.column.title)))


def printed_scores(suite: Suite, where: Sequence[str]) -> Scores:
    """The scores that a paper prints in some of its tables; Tables 2 and 3 of HBCT leave some to Table 1."""
    rows = [row for row in suite.published if not where or row.where in where]
    scores = {
        (row.data, row.scenario, row.label, metric, system): value
        for row in rows
        for name, value in row.scores.items()
        if name != "average"
        for metric, system in [(name, LEARNER) if suite.track == "sessions" else (row.metric, name)]
    }
    if suite.name in ("hbct-table-2", "hbct-table-3"):
        for row, known in itertools.product(rows, EVERY["hbct-table-1-hyperbolic"].published):
            if (row.data, row.scenario, row.metric) == (known.data, known.scenario, known.metric):
                systems = set(known.scores) if row.label == known.label else {"self_old", "self_independent"}
                for system in systems:
                    scores.setdefault((row.data, row.scenario, row.label, row.metric, system), known.scores[system])
    return scores


def tables_of(suite: Suite, cache: TaskCache, moved: Mapping[tuple[str, str], int] = {}) -> dict[str, list[Cell]]:
    """The tables of a suite, as if its runs came to the scores that the paper prints.

    Args:
        suite: The suite.
        cache: An empty one.
        moved: By data and system, how many half units of their last digit scores are moved.
    """
    found = {}
    for name, spec in suite.figures.items():
        if isinstance(spec, Table):
            measured: dict[tuple[str, str, str], dict[str, dict[str, float | None]]] = {}
            for (data, scenario, label, metric, system), value in printed_scores(suite, spec.where).items():
                digits = max(PRINTED_DIGITS[suite.name.partition("-")[0]], len(repr(value).partition(".")[2]))
                value += moved.get((data, system), 0) * 0.5 * 10**-digits
                measured.setdefault((data, scenario, label), {}).setdefault(metric, {})[system] = value
            runs = [run_of(suite, *place, scores) for place, scores in measured.items()]
            table = gathered(spec, name, Finished(suite, [cast(Row, None)] * len(runs), runs, cache))
            assert isinstance(table, NumberTable)
            (only, *more) = spec.scenarios or suite.conditions
            found[name] = [
                Cell(only if not more else row.scenario, row.label, column, own, printed)
                for row in table.rows
                for column, own, printed in zip(table.columns, row.values, row.published, strict=True)
                if printed is not None
            ]
    return found


def run_of(suite: Suite, data: str, scenario: str, label: str, measured: dict[str, dict[str, float | None]]) -> Run:
    metric = suite.gate_metric if suite.gate_metric in measured else next(iter(measured))
    return Run(
        data=data, scenario=scenario, label=label, method=label, seed=0, metric=metric, scores=measured[metric],
        measured={name: with_p(scores) for name, scores in measured.items()},
    )  # fmt: skip


def with_p(scores: dict[str, float | None]) -> dict[str, float | None]:
    """Scores with raw P metrics, where all four systems are known."""
    if not scores.keys() >= set(SYSTEMS):
        return scores
    found = PMetrics.of(SelfAndCross(*(cast(float, scores[system]) for system in SYSTEMS)))
    return {**scores, "p_up": found.p_up["raw"], "p_comp": found.p_comp["raw"], "p_score": found.p_score}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> TaskCache:
    return TaskCache(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize("name", TOTALS)
def test_printed_numbers_follow_from_printed_scores(name: str, empty: TaskCache) -> None:
    """Every cell of every table within what rounding of the scores, one by one and added up, can change."""
    suite = EVERY[name]
    exact = tables_of(suite, empty)
    slack: dict[tuple[str, int], float] = {}
    for source in itertools.product(suite.searched, SYSTEMS):
        moves = [tables_of(suite, empty, {source: sign}) for sign in (-1, 1)]
        for table, cells in exact.items():
            for at, cell in enumerate(cells):
                if cell.own is not None:
                    ends = [one.own.mean for move in moves if (one := move[table][at]).own is not None]
                    change = max(abs(end - cell.own.mean) for end in ends)
                    slack[table, at] = slack.get((table, at), 0.0) + change
    off = {}
    for table, cells in exact.items():
        for at, cell in enumerate(cells):
            if cell.own is not None and cell.column.title:
                limit = slack[table, at] + 0.5 * 10**-cell.column.digits + 1e-9
                if abs(cell.own.mean - cell.printed.value) > limit:
                    off[name, *cell.key] = (cell.printed.value, round(cell.own.mean, cell.column.digits))
    assert off == {key: values for key, values in EXCEPTIONS.items() if key[0] == name}


@pytest.mark.parametrize(
    ("name", "table", "label", "column", "printed"),
    [
        ("mixbct-table-2", "joined", "Lower-B", "ijbc, ST", 0.6358),
        ("mixbct-table-2", "joined", "Upper-B", "ijbc, ST", 0.9622),
        ("ndpp-table-3", "table-3", "old", "mAP self", 53.26),
        ("advbct-table-3", "joined", "old", "rparis, self", 75.45),
        ("hbct-table-1", "table-1", "old", "cifar-100, CMC@1 self", 0.572),
    ],
)
def test_models_that_rows_are_compared_with_are_those_of_the_paper(
    name: str, table: str, label: str, column: str, printed: float, empty: TaskCache
) -> None:
    cells = tables_of(EVERY[name], empty)[table]
    found = next(cell for cell in cells if cell.key[1:] == (label, column))
    assert found.own is not None and found.own.mean == pytest.approx(found.printed.value) == printed


@pytest.mark.parametrize("name", TOTALS)
def test_published_numbers_all_stand_in_a_table(name: str, empty: TaskCache) -> None:
    suite = EVERY[name]
    shown = [cell for cells in tables_of(suite, empty).values() for cell in cells]
    for row in suite.published:
        numbers = {**row.scores, **row.p_metrics}
        for measure in numbers.keys() - {"self_old", "self_independent"}:
            factors = {cell.printed.value / (100 if cell.column.unit == "%" else 1) for cell in shown
                       if (cell.scenario, cell.label) == (row.scenario, row.label)
                       and measure in (cell.column.measure, cell.column.metric)}  # fmt: skip
            assert any(abs(value - numbers[measure]) < 1e-9 for value in factors), (row, measure)
    for cell in shown:
        assert cell.own is not None or cell.column.measure.startswith("p_"), cell
