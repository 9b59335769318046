"""How an evaluation was measured, line by line."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.evaluation.protocols import PROTOCOLS
from holdfast.evaluation.results import Evaluation, ProtocolRecord
from holdfast.reports.template import plain
from holdfast.wording import metric_name

_SIZES = ("units", "queries", "gallery", "queries_counted")


def protocol_rows(record: Evaluation) -> list[tuple[str, str]]:
    """Return what was fixed before anything was measured, and what its rules set aside: terms and their values."""
    gate = ("gate", f"{record.gate} on {metric_name(record.gate_metric)}")
    metrics = ("metrics", ", ".join(map(metric_name, record.protocol.metrics)))
    return rule_rows(record.protocol, [gate], [metrics])


def rule_rows(
    protocol: ProtocolRecord, first: Sequence[tuple[str, str]] = (), then: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, str]]:
    """Return the rows of what a protocol says of itself, and how intervals were drawn.

    Args:
        protocol: What was fixed.
        first: Rows that follow the name.
        then: Rows that follow the options.
    """
    given = protocol.model_fields_set  # documents of earlier versions do not say everything
    known = PROTOCOLS.get(protocol.name)
    name = (
        [("protocol", f"{protocol.name}: {known.description}" if known else protocol.name)] if "name" in given else []
    )
    sizes = {key: getattr(protocol, key) for key in _SIZES if key in given}
    told = {**protocol.options, **{key: value for key, value in sizes.items() if value is not None}}
    drawn = protocol.bootstrap.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return [
        *name,
        *first,
        *((key.replace("_", " "), plain(value)) for key, value in told.items()),
        *then,
        *((words, plain(count)) for words, count in protocol.left_out.items()),
        *((f"bootstrap {key}", plain(value)) for key, value in drawn.items()),
    ]
