"""``holdfast evaluate --combine``: earlier evaluations of one upgrade on several test sets, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import write_settings
from holdfast.cli.console import console, print_json, print_table
from holdfast.cli.evaluate_alone import names_of, refuse_others
from holdfast.cli.pages import page_line, page_written

if TYPE_CHECKING:
    from holdfast.evaluation.results import EvaluationResults
    from holdfast.evaluation.test_sets import CombinationResults


def evaluate_combine_command(arguments: dict[str, Any], settings: str) -> int:
    """Combine results, write the report, and return 0 where every test set is compatible and 1 otherwise."""
    from holdfast.evaluation.results import EvaluationResults
    from holdfast.evaluation.test_sets import CombinationResults, combine

    refuse_others("combine", arguments, ["metric"])
    paths = arguments["combine"]
    found = dict(zip(names_of(paths), map(EvaluationResults.load, paths), strict=True))
    combination = combine({name: results.only(f"'{name}'") for name, results in found.items()}, arguments["metric"])
    combined = CombinationResults.gather(combination, found, title=_title(found))
    write_settings(arguments["out"], "evaluate.yaml", settings)
    _show(combined, arguments)
    if arguments["json"]:
        print_json(combined.to_dict())
    return 0 if combination.compatible else 1


def _title(found: dict[str, EvaluationResults]) -> str:
    names = dict.fromkeys(name for results in found.values() for name in results.evaluations)
    return f"Can {' or '.join(names)} search the old gallery on {len(found)} test sets?"


def _show(combined: CombinationResults, arguments: dict[str, Any]) -> None:
    """Write results and report, and print the table and what it means."""
    from holdfast.reports.combined import (
        combined_headline,
        combined_notes,
        combined_table,
        set_findings,
        write_combined_report,
    )

    results = combined.save(arguments["out"])
    page = page_written(arguments["report"], lambda: write_combined_report(combined, arguments["out"]))
    print_table(combined.title, *combined_table(combined))
    console.print(f"\n{combined_headline(combined)}", style="bold")
    for finding in set_findings(combined):
        first, *rest = finding.lines
        for line in (f"{finding.name}: {finding.headline}. {first}", *rest):
            console.print(line)
    for note in combined_notes(combined):
        console.print(note)
    console.print(f"\nresults  {results}{page_line(arguments['report'], page)}")
