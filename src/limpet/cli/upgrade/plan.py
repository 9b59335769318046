"""``limpet upgrade plan``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import console, print_json
from limpet.cli.gallery.common import size
from limpet.cli.gallery.options import Spending
from limpet.cli.gallery.sources import NewVectors
from limpet.cli.options import DataSets
from limpet.cli.parameters import RARE
from limpet.cli.upgrade.live import LiveUrl
from limpet.cli.upgrade.vectors import source_of
from limpet.errors import refuse, shown
from limpet.support.wording import duration
from limpet.upgrade.status import NextStep, next_lines

if TYPE_CHECKING:
    from limpet.attached.base import Attachment
    from limpet.attached.plan import Unstarted
    from limpet.galleries.upgrade import GalleryUpgrade
    from limpet.upgrade.plan import BackfillPlan


def plan(
    url: LiveUrl,
    *,
    source: NewVectors = NewVectors(),
    sets: DataSets = DataSets(),
    spending: Spending = Spending(),
    items: Annotated[float | None, RARE] = None,
    machines: Annotated[int, RARE] = 1,
    seconds: Annotated[float | None, RARE] = None,
    evidence: list[Path] = [],
) -> int:
    """Estimate the items, hours, cost and storage of an upgrade. Nothing is changed.

    A sample of the items is embedded and timed. The upgrade need not be started.

    Args:
        items: Plan for this many items, similar to the existing ones, such as 1e9.
        machines: Number of machines that embed, each as fast as this one.
        seconds: Report how far a backfill gets in this many seconds.
        evidence: Gallery only: results.json of `limpet evaluate`, for an upgrade that is not started yet.

    Examples:
        limpet upgrade plan live --model st:models/v2 --texts requests.csv --price-per-thousand 0.02
        limpet upgrade plan "postgresql://shop@db/shop?table=items&text=title" --model st:MODEL
    """
    from limpet.attached.opening import previewed

    whole = items is None or items.is_integer()
    refuse(not whole, f"--items {items}.", "a whole number, such as 1e9")
    refuse(machines != 1 and items is None, f"--machines {machines} alone.", "--items, too")
    with url.told(), previewed(url) as it:
        vectors = source_of(it, source, sets, "new")
        with console.status("embedding a sample"):
            found: BackfillPlan = url.call(
                it.plan, vectors, reports=evidence, price_per_thousand=spending.price_per_thousand,
                budget_cost=spending.max_cost, budget_seconds=seconds, meter=source.meter,
                items=None if items is None else int(items), machines=machines,
            )  # fmt: skip
        steps = _following(found, it, source, evidence)
    for line in (*plan_lines(found), *next_lines(steps, url)):
        console.print(line)
    print_json(found.to_dict())
    return 0


def _following(
    found: BackfillPlan, it: GalleryUpgrade | Attachment | Unstarted, source: NewVectors, reports: Sequence[Path]
) -> Sequence[NextStep]:
    """Return the next commands: the step that was planned, or a plan that says more."""
    from limpet.attached.plan import Unstarted

    given = source.typed()
    if isinstance(it, Unstarted):
        return [
            NextStep(
                "start the upgrade (OLD stands for a name of the old model)",
                ("start", "--old-name", "OLD", *source.identity()),
            )
        ]
    status = it.status()
    if status.gallery is not None and found.generation not in status.gallery.generations.values():
        evidence = [str(word) for path in reports for word in ("--evidence", path)]
        return [NextStep("start the upgrade", ("start", *source.identity(), *evidence))]
    if found.rows and given:
        return [NextStep("backfill", ("backfill", *given))]
    fill = next((step.words for step in status.next if step.words[0] == "backfill"), None)
    if found.rows and fill is not None:
        return [NextStep("measure the speed on a sample", ("plan", *fill[1:])), NextStep("backfill", fill)]
    another = [
        NextStep(
            "plan an upgrade (NEW stands for a name of the new model)", ("plan", "--model", "FILE", "--name", "NEW")
        )
    ]
    return [*another * (status.phase == "steady"), *status.next]


def plan_lines(found: BackfillPlan) -> list[str]:
    """Return the lines that a plan prints."""
    if found.items and not found.rows:
        return [f"Every item has a vector of {found.generation}."]
    lines = [
        f"{found.generation}: {found.rows:,} of {found.items:,} items need a new vector, {size(found.bytes_written)} "
        f"in all; old vectors of {size(found.bytes_until_finish)} stay until `finish`."
    ]
    if found.like is not None:
        lines.insert(0, f"For items like the {found.like:,} that are there; times and sizes grow with their number:")
    if found.sampled:
        lines.append(_measured(found))
    if found.like is not None:
        lines += _at_size(found)
    if found.tokens is not None and found.tokens_per_item is not None:
        lines.append(f"Tokens: {found.tokens:,.0f}, {found.tokens_per_item:,.1f} an item, as the server counts them.")
    if found.cost is not None:
        lines.append(f"Cost: {found.cost:,.{2 if found.cost >= 1 else 4}f}.")
    if found.rows_within_budget is not None:
        lines.append(f"Within the budget: {found.rows_within_budget:,} of {found.found_rows:,} items.")
    if found.rows and found.seconds_per_query is not None:
        lines.append(_in_two_stages(found, found.seconds_per_query))
    return [*lines, *found.meanwhile]


def _at_size(found: BackfillPlan) -> list[str]:
    if found.commit_seconds is None or found.bytes_stored is None:
        return ["Writing comes on top and was not measured: backfill a part, and see `limpet upgrade status`."]
    lines = [
        f"Writing: {duration(found.commit_seconds)} at {found.committed_per_second:,.0f} vectors/s, and "
        f"{size(found.bytes_stored)} on disk, measured in a temporary gallery without an approximate index."
    ]
    if found.machines > 1:
        lines.append(f"Through a shared folder (`limpet fragments plan`): {size(found.bytes_written)}, once to write "
                     "and once to read.")  # fmt: skip
    if found.total_seconds is not None:
        embed = f"{found.machines} machines" if found.machines > 1 else "one machine"
        lines.append(f"In all: {duration(found.total_seconds)} with {embed}, searches and writes of others aside.")
    return lines


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
    cost = "" if found.cost_per_query is None else f" and {found.cost_per_query:,.4f}"
    return (
        f"Or in two stages (search --rescore {found.candidates}): a query embeds up to {found.candidates:,} items, "
        f"{duration(seconds)}{cost}, and none once its candidates are kept; `limpet upgrade rehearse` measures "
        "what it finds."
    )
