"""The results document of one upgrade on several test sets: checked, written to and read from results.json, a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from holdfast.errors import ConfigError
from holdfast.evaluation.combined import Combination
from holdfast.evaluation.compatibility import Verdict
from holdfast.evaluation.evidence import Gate
from holdfast.reports.document_kind import DocumentKind
from holdfast.reports.formats import MISSING, metric_name, plain_text, score, signed
from holdfast.reports.results import versions
from holdfast.reports.tables import Table, as_markdown
from holdfast.reports.words import short_verdict

SCHEMA_VERSION = 1
KIND = "combination"

Document = dict[str, Any]

AVERAGE = "average"
P_METRICS = {"p_up": "P_up", "p_comp": "P_comp", "p_score": "P_1"}

_SAME = 1e-9
_AGAIN = "combine"
_WHERE = "These combined results"

_Variants = dict[str, float | None]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")  # later versions may add keys; those of a version stay


class _Set(_Part):
    metric: str
    gate: Gate
    verdict: Verdict
    worse: list[str] = []  # absent in documents of earlier versions
    self_old: float
    self_independent: float | None
    self_new: float
    cross: float
    interval: tuple[float, float]
    mean_interval: dict[str, tuple[float, float] | None]
    undefined: dict[str, str]
    p_up: _Variants
    p_comp: _Variants
    p_score: float | None


class _Mean(_Part):
    p_up: _Variants
    p_comp: _Variants
    p_score: float | None


class _Source(_Part):
    name: str
    description: str
    numbers: dict[str, Any]


class _Combination(_Part):
    """A whole document."""

    kind: str
    schema_version: int
    holdfast: str
    title: str
    new: str
    fingerprints: dict[str, dict[str, Any] | None]
    mapped: dict[str, str] | None
    sets: dict[str, _Set]
    sources: dict[str, _Source]
    protocols: dict[str, dict[str, Any]]
    mean: _Mean
    compatible: bool


def combined_document(combination: Combination, evaluations: Mapping[str, Document], *, title: str) -> Document:
    """Return a combination as plain values for JSON, for a table and for a page.

    Args:
        combination: What `combine` returned.
        evaluations: The results that were combined, by the name of the test set, as `read_results` returned them; each
            with one evaluation.
        title: Headline of the report.

    Raises:
        ConfigError: They are not those of the combination.
    """
    found = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        **versions(),
        "title": title,
        "new": ", ".join(dict.fromkeys(name for document in evaluations.values() for name in document["evaluations"])),
        **combination.to_dict(),
        "sources": {name: document["data"] for name, document in evaluations.items()},
        "protocols": {name: only_evaluation(document)["protocol"] for name, document in evaluations.items()},
    }
    return checked_combination(found, _WHERE)


def only_evaluation(document: Mapping[str, Any], where: str = "These results") -> Mapping[str, Any]:
    """Return the one evaluation of a results document.

    Args:
        document: What `read_results` returned.
        where: What to call it in a message.

    Raises:
        ConfigError: It holds several.
    """
    found = document["evaluations"]
    if len(found) != 1:
        raise ConfigError(
            f"{where}: evaluations of {len(found)} new models, {', '.join(found)}.",
            expected="results of one new model on one test set, as `holdfast evaluate` writes them",
            to_do="evaluate the new model alone: `holdfast evaluate --old EMBEDDINGS --new EMBEDDINGS`.",
        )
    record: Mapping[str, Any] = next(iter(found.values()))
    return record


def _disagreements(document: Document) -> Iterator[tuple[str, Any, str]]:
    """Yield every part that contradicts another: its place, what it is, and what the other asks for."""
    sets, mean = document["sets"], document["mean"]
    if len(sets) < 2:
        yield "sets", list(sets), "two test sets or more"
    for part in ("sources", "protocols"):
        if set(document[part]) != set(sets):
            yield part, list(document[part]), f"one for each of {', '.join(sets)}"
    compatible = all(record["verdict"] == "compatible" for record in sets.values())
    if document["compatible"] != compatible:
        yield "compatible", document["compatible"], f"{compatible}, as the verdicts of the sets say"
    for name in P_METRICS:
        for variant, found in _variants(mean[name]).items():
            values = [_variants(record[name]).get(variant) for record in sets.values()]
            wanted = _mean(values)
            if (found is None) != (wanted is None) or (found is not None and abs(found - (wanted or 0)) > _SAME):
                yield f"mean.{name}", found, f"{wanted}, the mean over the sets"


COMBINATION = DocumentKind(
    kind=KIND,
    version=SCHEMA_VERSION,
    schema=_Combination,
    where=_WHERE,
    keys="the keys that combined_document writes",
    again=_AGAIN,
    disagreements=_disagreements,
)
checked_combination, write_combination, read_combination = COMBINATION.checked, COMBINATION.write, COMBINATION.read


def _variants(found: Mapping[str, float | None] | float | None) -> Mapping[str, float | None]:
    return found if isinstance(found, Mapping) else {"sigmoid": found}


def _mean(values: list[float | None]) -> float | None:
    """Return the mean over test sets, None where one of them has none."""
    given = [value for value in values if value is not None]
    return math.fsum(given) / len(given) if len(given) == len(values) else None


def combined_table(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return one row per test set, and their average; a dash stands for what is missing or not defined.

    Scores are fractions. P_up, P_comp and P_1 are the sigmoid variant in per cent, P_up and P_comp followed by the raw
    one in brackets. Minus signs are hyphens unless ``typeset``.
    """
    columns = ["test set", "metric", "self (old)", "self (independent)", "self (new)", "cross", *_P_HEADS, "verdict"]
    rows = [
        [
            name,
            metric_name(found["metric"]),
            *map(score, _scores(found)),
            *_p_cells(found),
            short_verdict({**found, "gate_metric": found["metric"]}),
        ]
        for name, found in document["sets"].items()
    ]
    rows.append([AVERAGE, *[""] * 5, *_p_cells(document["mean"]), ""])
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


_P_HEADS = ("P_up, % [raw]", "P_comp, % [raw]", "P_1, %")


def _scores(found: Mapping[str, Any]) -> list[float | None]:
    return [found[system] for system in ("self_old", "self_independent", "self_new", "cross")]


def _p_cells(found: Mapping[str, Any]) -> list[str]:
    cells = [
        MISSING
        if found[name]["sigmoid"] is None
        else f"{_hundredths(found[name]['sigmoid'])} [{signed(found[name]['raw'])}]"
        for name in ("p_up", "p_comp")
    ]
    return [*cells, MISSING if found["p_score"] is None else _hundredths(found["p_score"])]


def _hundredths(share: float) -> str:
    """Write a share in per cent as papers do, with two digits.

    >>> _hundredths(0.50484)
    '50.48'
    """
    return f"{100 * share:.2f}"


def combined_markdown(document: Mapping[str, Any]) -> str:
    """Return the table of `combined_table` in Markdown, numbers to the right, ending with a line break."""
    columns, rows = combined_table(document)
    return as_markdown(columns, rows, ["---", "---", *["---:"] * (len(columns) - 3), "---"])
