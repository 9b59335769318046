"""``limpet upgrade plan``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.console import console, print_json
from limpet.cli.gallery.common import command, size
from limpet.cli.gallery.options import GalleryUrl, Spending
from limpet.cli.gallery.sources import NewVectors
from limpet.cli.options import DataSets
from limpet.errors import shown
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.galleries.plan import BackfillPlan
    from limpet.galleries.state import Link
    from limpet.galleries.status import Status


def plan(
    gallery: GalleryUrl,
    *,
    source: NewVectors,
    sets: DataSets,
    spending: Spending,
    seconds: float | None,
    evidence: list[Path],
) -> int:
    """Say what a backfill would take; see `limpet upgrade plan`."""
    from limpet.cli.gallery.words import tell_next
    from limpet.galleries.plan import plan as planned

    with gallery.opened() as it:
        vectors = source.opened(it, sets)
        with console.status("embedding a sample"):
            found = planned(
                it, vectors, reports=evidence,
                price_per_thousand=spending.price_per_thousand, budget_cost=spending.max_cost,
                budget_seconds=seconds, meter=source.meter,
            )  # fmt: skip
        status = it.status()
    for line in (
        plan_lines(found) if found.rows or not found.items else [f"Every item has a vector of {found.generation}."]
    ):
        console.print(line)
    tell_next(following(found, status, gallery, source, evidence))
    print_json(found.to_dict())
    return 0


def following(
    found: BackfillPlan, status: Status, url: str, source: NewVectors, reports: Sequence[Path]
) -> Sequence[tuple[str, str]]:
    """Return what to type next, each with what it is for: what was planned, or else what would be a plan.

    Args:
        source: Where vectors came from, which is that of the next command.
    """
    from limpet.cli.gallery.words import fill_command, next_commands

    given = source.typed()
    if found.generation not in {one.name for one in status.generations}:
        evidence = ["--evidence", *reports] if reports else []
        return [("make room for it", command("upgrade start", url, *source.identity(), *evidence))]
    if found.rows and given:
        return [("do it", command("upgrade backfill", url, *given))]
    if found.rows:
        typed = fill_command(status, url)
        return [("have a sample timed", typed.replace(" backfill ", " plan ", 1)), ("do it", typed)]
    other = command("upgrade plan", url, "--model", "FILE", "--name", "NEW")
    return [("plan an upgrade, name the new model", other), *next_commands(status, url)]


def plan_lines(found: BackfillPlan) -> list[str]:
    """Say in words what a backfill takes."""
    lines = [
        f"{found.generation}: {found.rows:,} of {found.items:,} items need a new vector; {size(found.bytes_written)} "
        f"of vectors come, {size(found.bytes_until_finish)} of others stay until the upgrade is finished."
    ]
    if found.sampled:
        lines.append(_measured(found))
    if found.tokens is not None and found.tokens_per_item is not None:
        lines.append(f"Tokens: {found.tokens:,.0f}, {found.tokens_per_item:,.1f} an item, as the server counts them.")
    if found.cost is not None:
        lines.append(f"Cost: {found.cost:,.{2 if found.cost >= 1 else 4}f}.")
    if found.rows_within_budget is not None:
        lines.append(f"Within the budget: {found.rows_within_budget:,} of {found.found_rows:,} items.")
    if found.rows and found.seconds_per_query is not None:
        lines.append(_in_two_stages(found, found.seconds_per_query))
    return [*lines, *map(_linked, found.links)]


def _measured(found: BackfillPlan) -> str:
    lacks = f" The source lacks {found.missing} of {found.sampled} sampled items: "
    missing = f"{lacks}{shown(found.missing_ids, found.missing)}." if found.missing else ""
    if found.items_per_second is None or found.seconds is None:
        return f"The speed could not be measured.{missing}"
    return (
        f"Time: {duration(found.seconds)} of embedding at {found.items_per_second:,.0f} items/s, measured on "
        f"{found.sampled} items.{missing}"
    )


def _in_two_stages(found: BackfillPlan, seconds: float) -> str:
    """Say what a query would take that searches in two stages."""
    cost = "" if found.cost_per_query is None else f" and {found.cost_per_query:,.4f}"
    return (
        f"Or in two stages (search --rescore {found.candidates}): a query embeds up to {found.candidates:,} items, "
        f"{duration(seconds)}{cost}, and none once its candidates are kept; `limpet upgrade rehearse` measures "
        "what it finds."
    )


def _linked(link: Link) -> str:
    """Say what searches of another generation are like meanwhile."""
    said = f"Meanwhile new queries search vectors of {link.gallery}, too ({link.how}: {link.reason})"
    scores = {"now": "cross", "old queries": "self_old", "at the end": "self_new"}
    known = {name: link.evidence.get(key) for name, key in scores.items()}
    if known["now"] is None or "metric" not in link.evidence:
        return f"{said}."
    listed = ", ".join(f"{name} {value:.3f}" for name, value in known.items() if value is not None)
    return f"{said}: {link.evidence['metric']} {listed}."
