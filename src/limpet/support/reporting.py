"""Reports of results, registered from above: what measures imports no page and no chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from altair import LayerChart


@dataclass(frozen=True)
class Report:
    """How results of one kind are reported.

    Args:
        markdown: Returns what the results say and their tables in Markdown.
        plot: Returns their chief chart.
    """

    markdown: Callable[[Any], str]
    plot: Callable[[Any], LayerChart]


_reports: dict[type, Report] = {}
_loaders: list[Callable[[], object]] = []


def register_report(kind: type, report: Report) -> None:
    """Register the report of a class of results and of its subclasses."""
    _reports[kind] = report


def register_loader(load: Callable[[], object]) -> None:
    """Register what imports reports, which register themselves; it runs when a report is asked for that is not there.

    The top level of a package registers its own, so that results can be reported before anybody imports a report.
    """
    _loaders.append(load)


def report_of(kind: type) -> Report:
    """Return the report of a class of results.

    Raises:
        LookupError: None is registered for it.
    """
    report = _registered(kind)
    if report is None:
        for load in _loaders:
            load()
        report = _registered(kind)
    if report is None:
        raise LookupError(f"No report is registered for {kind.__name__}. Call `register_report({kind.__name__}, …)`.")
    return report


def _registered(kind: type) -> Report | None:
    return next((_reports[base] for base in kind.__mro__ if base in _reports), None)
