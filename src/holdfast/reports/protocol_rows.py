"""How an evaluation was measured, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.evaluation.protocols import PROTOCOLS
from holdfast.reports.formats import metric_name
from holdfast.reports.template import plain
from holdfast.reports.words import Record

_APART = ("name", "bootstrap", "left_out", "metrics")


def protocol_rows(record: Record) -> list[tuple[str, str]]:
    """Return what was fixed before anything was measured, and what its rules set aside: terms and their values.

    Args:
        record: One entry of "evaluations" in a results document.
    """
    protocol = record["protocol"]
    gate = ("gate", f"{record['gate']} on {metric_name(record['gate_metric'])}")
    metrics = ("metrics", ", ".join(map(metric_name, protocol["metrics"])))
    return rule_rows(protocol, [gate], [metrics])


def rule_rows(
    protocol: Mapping[str, Any], first: Sequence[tuple[str, str]] = (), then: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, str]]:
    """Return the rows of what a protocol says of itself, and how intervals were drawn.

    Args:
        protocol: Name, options, "left_out" and "bootstrap".
        first: Rows that follow the name.
        then: Rows that follow the options.
    """
    rows = [("protocol", _described(str(protocol["name"])))] if "name" in protocol else []
    rows += [*first, *((_term(key), plain(value)) for key, value in protocol.items() if key not in _APART), *then]
    rows += [(words, plain(count)) for words, count in protocol.get("left_out", {}).items()]
    return [*rows, *((f"bootstrap {key}", plain(value)) for key, value in protocol["bootstrap"].items())]


def _described(name: str) -> str:
    known = PROTOCOLS.get(name)
    return f"{name}: {known.description}" if known else name


def _term(key: str) -> str:
    return key.replace("_", " ")
