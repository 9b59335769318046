"""A leaderboard in words: who leads, whether that may be chance, what was paid for it, and what failed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bench.leaderboard import Board, Entry, Leaderboard, NemenyiTest
from holdfast.reports.formats import probability, score
from holdfast.reports.leaderboard_names import scale_name
from holdfast.reports.leaderboard_tables import average_rank, with_deviation

_NAMED = 4  # names in a sentence, at most
_SMALLEST = 0.0001  # p-values below it say nothing more

TERMS = {
    "cell": "one data set in one scenario",
    "rank": "1 for the best label of a cell, equal ones share the mean of their ranks; the average is over "
    "data sets, of each its mean rank over scenarios and test sets, or over the cells of the only one",
    "cross": "queries of the new model search what the old model embedded; compatible if better than self (old)",
    "self (old)": "the system as it is: queries and gallery of the old model",
    "self (new)": "queries and gallery of the new model, as after embedding everything again",
    "independent": "the new recipe without any alignment: how good the new model could be",
    "P_comp": "how much of the gain arrives without embedding anything again: 0 is the old system, 1 the independent "
    "model",
    "P_up": "what being compatible costs the new model itself: 0 is nothing, below 0 is a loss against the independent "
    "model",
    "P_score": "the harmonic mean of P_comp and P_up, each brought to 0 to 1; 0.5 is the old system at no cost",
    "±": "the standard deviation over seeds",
    "AR@K": "the share of queries with a right one among their first K results, averaged over sessions",
    "forgetting": "recall@1 that classes of earlier sessions lost since they were found best; less is better",
}


def terms(results: Leaderboard) -> dict[str, str]:
    """Return the terms that occur on the page."""
    measures = set(results.board.measures)
    absent = {
        "self (old)": "self_old" not in measures,
        "self (new)": "self_new" not in measures,
        "independent": "self_independent" not in measures,
        "cross": "cross" not in measures,
        "P_comp": "p_comp" not in measures,
        "P_up": "p_up" not in measures,
        "P_score": "p_score" not in measures,
        "±": max(len(cell.seeds) for cell in results.board.cells) == 1,
        "AR@K": not any(name.startswith("ar@") for name in measures),
        "forgetting": "forgetting" not in measures,
    }
    return {name: told for name, told in TERMS.items() if not absent.get(name)}


def leaders(results: Leaderboard) -> list[Entry]:
    """Return the labels of the best average rank; none where nothing could be ranked."""
    ranked = [entry for entry in results.board.ranked if entry.rank is not None]
    return [entry for entry in ranked if entry.rank == ranked[0].rank]


def headline(results: Leaderboard) -> str:
    """Say in one sentence who leads, and whether that may be chance."""
    board, first = results.board, leaders(results)
    if not first:
        return f"Nothing could be ranked: {len(results.failures)} of {len(results.rows)} runs failed."
    names = listed_labels([entry.label for entry in first])
    if len(first) > 1:
        return f"{names} share the lead."
    if board.untested == "labels":
        return f"{names} is the only label that is ranked."
    if board.friedman is None or board.nemenyi is None:
        cells = sum(cell.ranked for cell in board.cells)
        if cells > 1:
            return f"{names} ranks first in {cells} cells of one data set; what other data would say is not tested."
        return f"{names} comes first in the only cell{'' if len(board.cells) == 1 else ' that could be ranked'}."
    if not board.friedman.differ:
        return f"{names} ranks first, but the order may be chance."
    beside = _not_apart(board.nemenyi, first[0].label)
    if not beside:
        return f"{names} leads, told apart from all others."
    others = len(board.ranked) - 1
    if len(beside) == others:
        return f"{names} ranks first, but is told apart from none of the others."
    return f"{names} leads, told apart from {others - len(beside)} of {others} others."


def sentences(results: Leaderboard) -> list[str]:
    """Return what a board says, a sentence or two on each: the lead, chance, the price, and what failed."""
    found = [_lead(results), _chance(results), _front(results), _failed(results)]
    return [told for told in found if told]


def _lead(results: Leaderboard) -> str:
    board, first = results.board, leaders(results)
    if not first:
        return ""
    ranked = len(board.ranked)
    cells = sum(cell.ranked for cell in board.cells)
    entry, found = first[0], first[0].means.get(board.ranked_by)
    mean = f"; {scale_name(results)}: {with_deviation(board.ranked_by, found)}" if found else ""
    verdicts = f" It was compatible in {entry.compatible} of {entry.runs} runs." if entry.judged else ""
    if entry.mixed:
        verdicts += f" In {entry.mixed} more it gained by this metric and was clearly worse by another."
    if len(first) > 1:
        return (
            f"By {scale_name(results)}, average rank {average_rank(entry.rank)} of {ranked} over "
            f"{_evidence(board, cells)}."
        )
    best = f", best in {entry.best} of {_cells(cells)}" if cells > 1 else ""
    rank = f"average rank {average_rank(entry.rank)}" if cells > 1 else f"rank {entry.rank:g}"
    return f"{entry.label}: {rank} of {ranked} over {_evidence(board, cells)}{best}{mean}.{verdicts}"


def _chance(results: Leaderboard) -> str:
    """Say what the test found, or why there is none."""
    board = results.board
    if board.untested == "labels":
        return "There is no test of ranks: it takes two labels at least."
    tested, nemenyi = board.friedman, board.nemenyi
    if tested is None or nemenyi is None:
        return (
            "There is no test of ranks: it asks whether data sets order the labels alike, and takes two of them at "
            "least. Neither seeds nor scenarios replace them: they share their data."
        )
    found = f"Friedman’s test over {tested.cells} data sets: {p_written(tested.p_value)}"
    if not tested.differ:
        return (
            f"{found}. Ranks like these are not rare among labels that are equally good, so no two are told apart; "
            "more data sets would tell more."
        )
    apart = f"average ranks {nemenyi.critical_difference:.2f} apart or more are told apart"
    told = f"{found}: the labels differ. By Nemenyi’s test at level {nemenyi.level:g}, {apart}."
    if nemenyi.critical_difference > tested.labels - 1:
        return f"{told} So many labels over so few data sets cannot lie that far apart: more data sets would tell more."
    first = leaders(results)
    beside = _not_apart(nemenyi, first[0].label) if len(first) == 1 else []
    return f"{told} Not told apart from {first[0].label}: {listed_labels(beside)}." if beside else told


def _front(results: Leaderboard) -> str:
    """Say who is not beaten in both what arrives and what it costs; nothing where suites do not ask."""
    board = results.board
    if board.front is None:
        return (
            "Nobody has both P_comp and P_up in every cell, so there is no front of the two."
            if {"p_comp", "p_up"} & set(board.measures)
            else ""
        )
    return f"No label beats {listed_labels(board.front.labels)} in both P_comp and P_up."


def _failed(results: Leaderboard) -> str:
    failed = results.failures
    if not failed:
        return ""
    names = listed_labels(list(dict.fromkeys(run.label for run in failed)))
    told = f"{len(failed)} of {len(results.rows)} runs failed, of {names}"
    return f"{told}; a label shares the last rank where one of its runs failed."


def _not_apart(tested: NemenyiTest, label: str) -> list[str]:
    """Return the labels that are not told apart from a leader, best first."""
    return [name for group in tested.groups[:1] if label in group for name in group if name != label]


def listed_labels(names: Sequence[str]) -> str:
    """Join names for a sentence; of many, the first few. Names with commas in them get quotes.

    >>> listed_labels(["bct"]), listed_labels(["bct", "p2s, two layers"]), listed_labels([*"abcdef"])
    ('bct', 'bct and “p2s, two layers”', 'a, b, c and 3 others')
    """
    names = [f"“{name}”" if "," in name else name for name in names]
    shown = list(names) if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part) if shown else "none"


def p_written(value: float) -> str:
    """Write a p-value.

    >>> p_written(0.0312), p_written(0.0001), p_written(1e-13)
    ('p = 0.031', 'p = 0.0001', 'p < 0.0001')
    """
    return f"p = {probability(value)}" if value >= _SMALLEST else f"p < {_SMALLEST:g}"


def _evidence(board: Board, cells: int) -> str:
    """Say what average ranks are over: data sets that were pooled, or the cells of the only one."""
    tested = board.friedman
    return f"{tested.cells} data sets" if tested is not None and tested.cells < cells else _cells(cells)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def steps(results: Leaderboard) -> list[tuple[str, str, bool]]:
    """Return the scores of the old system, of the leader and of the independent model, where all have one.

    Returns:
        A number, its name, and whether it is the leader's.
    """
    board, first = results.board, leaders(results)
    if board.ranked_by != "cross" or not first:
        return []
    old, independent = (board.references.get(name) for name in ("self_old", "self_independent"))
    found = first[0].means["cross"]
    if old is None or independent is None or found is None:
        return []
    return [
        (score(old), "old system", False),
        (score(found.mean), f"{first[0].label}, nothing embedded again", True),
        (score(independent), "independent model, all embedded again", False),
    ]


def rank_rule(results: Leaderboard) -> str:
    """Say how ranks were made."""
    board = results.board
    lower = "lowest" if board.ranked_by in board.lower_is_better else "highest"
    return (
        f"In every cell labels are ranked by the mean of {scale_name(results)} over seeds, the {lower} first; equal "
        "ones share the mean of their ranks. A label that failed, or was not run, with any seed of a cell shares the "
        "last rank there with others like it: a mean over the seeds that survived would reward failing on the others."
    )


def chance_rule(results: Leaderboard) -> str:
    """Say how ranks were tested."""
    tested = results.board.friedman
    if tested is None:
        return ""
    f = "infinite" if tested.f is None else f"{tested.f:.2f}"
    return (
        "Scenarios and test sets of one data set share images and old models, and are no independent evidence: labels "
        f"are ranked by their mean rank within every data set first. Friedman’s χ² of {tested.labels} labels over "
        f"{tested.cells} data sets is {tested.chi_square:.2f}; Iman and Davenport’s F is {f} "
        f"({p_written(tested.f_p_value)}). Both distributions hold for many data sets, so the p-value above, "
        f"{probability(tested.p_value)}, is the share of 10,000 shuffles of the ranks within data sets that agree "
        "as much. The critical difference is Nemenyi’s (J. Demšar, JMLR 7, 2006)."
    )


def duration(seconds: float) -> str:
    """Write a time in the two units that matter.

    >>> duration(42.4), duration(200), duration(9_000), duration(200_000)
    ('42 s', '3 min 20 s', '2 h 30 min', '2 d 7 h')
    """
    rest = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        parts += [(count, unit)] if parts or count or size == 1 else []
    return " ".join(f"{count} {unit}" for place, (count, unit) in enumerate(parts[:2]) if count or not place)
