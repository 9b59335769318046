"""``holdfast evaluate --combine``: earlier evaluations of one upgrade on several test sets, in one table."""

from __future__ import annotations

import warnings
from typing import Any

from holdfast.cli.choices import write_settings
from holdfast.cli.console import console, print_json, print_table
from holdfast.cli.evaluate_alone import names_of, refuse_others
from holdfast.cli.pages import page_line, page_written


def evaluate_combine_command(arguments: dict[str, Any], settings: str) -> int:
    """Combine results, write the report, and return 0 where every test set is compatible and 1 otherwise."""
    from holdfast.evaluation.combined import combine
    from holdfast.reports.combined_results import combined_document, only_evaluation
    from holdfast.reports.results import read_results

    refuse_others("combine", arguments, ["metric"])
    paths = arguments["combine"]
    found = dict(zip(names_of(paths), map(read_results, paths), strict=True))
    records = {name: only_evaluation(document, f"'{name}'") for name, document in found.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what is not defined is said in words below
        combination = combine(records, arguments["metric"])
    document = combined_document(combination, found, title=_title(found))
    write_settings(arguments["out"], "evaluate.yaml", settings)
    _show(document, arguments)
    if arguments["json"]:
        print_json(document)
    return 0 if combination.compatible else 1


def _title(found: dict[str, dict[str, Any]]) -> str:
    names = dict.fromkeys(name for document in found.values() for name in document["evaluations"])
    return f"Can {' or '.join(names)} search the old gallery on {len(found)} test sets?"


def _show(document: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Write results and report, and print the table and what it means."""
    from holdfast.reports.combined_page import write_combined_report
    from holdfast.reports.combined_results import combined_table, write_combination
    from holdfast.reports.combined_words import combined_headline, combined_notes, set_findings

    results = write_combination(document, arguments["out"])
    page = page_written(arguments["report"], lambda: write_combined_report(document, arguments["out"]))
    print_table(document["title"], *combined_table(document))
    console.print(f"\n{combined_headline(document)}", style="bold")
    for finding in set_findings(document):
        for words in (f"{finding.name}: {finding.spoken}. {finding.sentence}", *finding.notes):
            console.print(words)
    for note in combined_notes(document):
        console.print(note)
    console.print(f"\nresults  {results}{page_line(arguments['report'], page)}")
