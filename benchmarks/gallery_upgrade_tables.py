"""The page of gallery_upgrade.py."""

from __future__ import annotations

from typing import Any

import numpy as np

SHOWN = (0, 1, 3, 5, 7, 9, 10)  # tenths


def page(document: dict[str, Any]) -> str:
    """Return the tables of all upgrades, in Markdown."""
    records = document["records"]
    seeds = ", ".join(map(str, document["seeds"]))
    lines = [
        "# Whole upgrades of a live gallery",
        "",
        f"`{document['command']}` on {document['machine']}. Seeds {seeds}; {document['queries']} queries each; "
        "map@300 of new queries while the backfill goes on (mean ± standard deviation over seeds). The area is the "
        "mean height of the curve. Random order is what the others are to beat.",
    ]
    for name in dict.fromkeys(record["upgrade"] for record in records):
        chosen = [record for record in records if record["upgrade"] == name]
        lines += ["", f"## {name}", "", *_numbers(chosen), "", *_curves(chosen)]
    return "\n".join([*lines, ""])


def _numbers(records: list[dict[str, Any]]) -> list[str]:
    served, failed, mixed = (sum(record[name] for record in records) for name in ("served", "failed", "mixed"))
    exact = sum(record["same_hits_after_rollback"] for record in records)
    before = _spread([record["before"]["map@300"] for record in records])
    after = _spread([record["after"]["map@300"] for record in records])
    recall = [_spread([record["curve"][tenth]["recall@1"] for record in records]) for tenth in (0, -1)]
    return [
        f"{records[0]['items']} items. Old queries before the upgrade: {before}; after the rollback: {after}; the "
        f"same hits with the same scores in {exact} of {len(records)} runs. Recall@1 of new queries: {recall[0]} at "
        f"the swap, {recall[1]} at the end. Queries served while the gallery changed: {served}, failed: {failed}, "
        f"answered with a wrong vector: {mixed}.",
    ]


def _curves(records: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| order | area | " + " | ".join(f"{10 * tenth} %" for tenth in SHOWN) + " |",
        "|---|" + "---|" * (len(SHOWN) + 1),
    ]
    for order in dict.fromkeys(record["order"] for record in records):
        chosen = [record for record in records if record["order"] == order]
        area = _spread([record["area"] for record in chosen])
        values = [f"{np.mean([record['curve'][tenth]['map@300'] for record in chosen]):.3f}" for tenth in SHOWN]
        lines.append(f"| {order} | {area} | {' | '.join(values)} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.3f}"
