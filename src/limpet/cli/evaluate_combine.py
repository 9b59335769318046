"""``limpet evaluate combine``: earlier evaluations of one upgrade on several test sets, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.console import as_json, console, exit_code, print_json, print_table
from limpet.cli.evidence import names_of
from limpet.cli.options import Output
from limpet.cli.pages import check_report, page_line, page_written
from limpet.cli.places import Place
from limpet.cli.settings import Settings, Typed

if TYPE_CHECKING:
    from limpet.evaluation.test_sets import CombinationResults


def combine(
    results: list[Path],
    *,
    output: Output = Output(),
    settings: Settings = Settings(),
    typed: Typed = Typed(""),
    metric: str | None = None,
) -> int:
    """Compare earlier evaluations of one upgrade on several test sets; nothing is measured again.

    P metrics are shown per set and on average. The exit code is 0 only if every set is compatible, 3 if one is
    unlabelled and the others are compatible, and 1 otherwise.

    Args:
        results: Folders or results.json files of the evaluations, two or more.
        metric: Metric to show for all sets. Default: the gate metric of each set.

    Examples:
        limpet evaluate combine runs/report-photos runs/report-drawings --out runs/both
    """
    from limpet.evaluation.results import EvaluationResults
    from limpet.evaluation.test_sets import CombinationResults
    from limpet.evaluation.test_sets import combine as combined_of

    check_report(output.report)
    places = [Place(str(path)) for path in results]
    output.refuse_over(places)
    found = dict(zip(names_of(places), map(EvaluationResults.load, results), strict=True))
    combination = combined_of({name: one.only(f"'{name}'") for name, one in found.items()}, metric)
    names = dict.fromkeys(name for results in found.values() for name in results.evaluations)
    title = f"Can {' or '.join(names)} search the old gallery on {len(found)} test sets?"
    combined = CombinationResults.gather(combination, found, title=title)
    settings.write(output.out)
    _show(combined.model_copy(update={"command": typed}), output)
    if as_json():
        print_json(combined.to_dict())
    others = {one.verdict for one in combination.sets.values()} - {"compatible"}
    return exit_code(combination.compatible, told=others != {"unlabelled"})


def _show(combined: CombinationResults, output: Output) -> None:
    from limpet.reports.combined import (
        combined_headline,
        combined_notes,
        combined_table,
        set_findings,
        write_combined_report,
    )

    results = combined.save(output.out)
    page = page_written(output.report, lambda: write_combined_report(combined, output.out))
    print_table(combined.title, *combined_table(combined))
    console.print(f"\n{combined_headline(combined)}", style="bold")
    for finding in set_findings(combined):
        first, *rest = finding.lines
        for line in (f"{finding.name}: {finding.headline}. {first}", *rest):
            console.print(line)
    for note in combined_notes(combined):
        console.print(note)
    console.print(f"\nresults  {results}{page_line(output.report, page)}")
