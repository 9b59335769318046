"""Columns that tables of several papers share."""

from __future__ import annotations

from limpet_bench.figures import Column

SELF_AND_CROSS = (
    Column(measure="self_new", title="self", unit="%", digits=2),
    Column(measure="cross", title="cross", unit="%", digits=2),
)
"""Columns of AdvBCT, NDPP and ODPP."""

P_METRICS = tuple(
    Column(measure=measure, title=title, variant="sigmoid", unit="%", digits=2)
    for measure, title in (("p_up", "P_up"), ("p_comp", "P_comp"), ("p_score", "P_1-score"))
)
"""P metrics of AdvBCT, NDPP and ODPP, in the sigmoid variant (AdvBCT, equations 16 and 17)."""

P_OVER_SETS = tuple(column.model_copy(update={"over_sets": True}) for column in P_METRICS)
"""The same P metrics, averaged over test sets (AdvBCT, section 5.1; NDPP, section IV-C)."""
