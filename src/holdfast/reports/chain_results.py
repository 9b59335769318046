"""The results document of a chain of models: checked, written to and read from results.json, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from holdfast.errors import refuse, unknown_name
from holdfast.evaluation.chain import ChainEvaluation
from holdfast.evaluation.compatibility import Verdict
from holdfast.evaluation.p_metrics import Baseline
from holdfast.reports.document_kind import DocumentKind
from holdfast.reports.formats import MISSING, interval, metric_name, plain_text, score, signed
from holdfast.reports.results import versions
from holdfast.reports.tables import Table

SCHEMA_VERSION = 1
KIND = "chain"

Document = dict[str, Any]
Row = list[float | None]

BASELINES = {
    "own": "the old model is the chain’s own, whose gallery is searched",
    "independent": "the old model is the independent one of its generation",
}
"""What "the old model" of P_comp is, in words; see `chain_metrics`."""

_AGAIN = "evaluate the chain"
_WHERE = "These results of a chain"


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")  # later versions may add keys; those of a version stay


class _Data(_Part):
    name: str
    description: str
    numbers: dict[str, Any]


class _Pair(_Part):
    new: str
    old: str
    cross: float
    self_old: float
    interval: tuple[float, float]
    violates: bool
    verdict: Verdict


class _Chain(_Part):
    """A whole document."""

    kind: str
    schema_version: int
    holdfast: str
    title: str
    data: _Data
    old_baseline: Baseline
    models: list[str]
    metric: str
    judged: bool
    protocol: dict[str, Any]
    fingerprints: dict[str, dict[str, Any]]
    independent_fingerprints: dict[str, dict[str, Any]]
    matrix: list[Row]
    independent_self: Row | None
    pairs: list[_Pair]
    ac: float | None
    am: float | None
    violations: int
    compatible: bool
    p_up: dict[str, Row] | None
    p_comp: dict[str, dict[Baseline, list[Row]]] | None
    p_score: dict[Baseline, list[Row]] | None


def chain_document(
    evaluation: ChainEvaluation, *, title: str, data: Mapping[str, Any], old_baseline: Baseline = "own"
) -> Document:
    """Return an evaluation of a chain as plain values for JSON, for tables and for a page.

    Args:
        evaluation: What `evaluate_chain` returned.
        title: Headline of the report.
        data: What was searched: "name", "description" and "numbers" (a mapping of counts).
        old_baseline: Which reading of "the old model" comes first where P_comp is shown; both are there.

    Raises:
        ConfigError: An unknown baseline, "independent" without independent models, or an incomplete part.
    """
    if old_baseline not in get_args(Baseline):
        raise unknown_name("old baseline", old_baseline, get_args(Baseline))
    refuse(
        old_baseline == "independent" and evaluation.p is None,
        "P_comp was to compare with independent old models, and there are none.",
        "the independent model of every generation but the first",
    )
    found = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        **versions(),
        "title": title,
        "data": dict(data),
        "old_baseline": old_baseline,
        **evaluation.to_dict(),
    }
    return checked_chain(found, _WHERE)


def _disagreements(document: Document) -> Iterator[tuple[str, Any, str]]:
    """Yield every part that contradicts another: its place, what it is, and what the other asks for."""
    names, matrix = document["models"], document["matrix"]
    size = len(names)
    if size < 2 or len(set(names)) < size:
        yield "models", names, "two names or more, each once"
    if [len(row) for row in matrix] != [size] * size:
        yield "matrix", f"of {len(matrix)} rows", f"{size} rows of {size}"
        return
    if any((value is None) != (j > i) for i, row in enumerate(matrix) for j, value in enumerate(row)):
        yield "matrix", matrix, "a number on and below the diagonal, and none above"
    wanted = [(names[i], names[j], matrix[i][j], matrix[j][j]) for i in range(size) for j in range(i)]
    given = [tuple(pair[key] for key in ("new", "old", "cross", "self_old")) for pair in document["pairs"]]
    if given != wanted:
        yield "pairs", given, f"what the matrix says: {wanted}"
    if any(pair["violates"] != (pair["cross"] <= pair["self_old"]) for pair in document["pairs"]):
        yield "pairs", "marked otherwise than by their scores", "violations just where cross is not above self_old"
    count = sum(pair["violates"] for pair in document["pairs"])
    if document["violations"] != count or document["compatible"] != (document["judged"] and not count):
        yield "violations", document["violations"], f"{count}, as the pairs say"
    if (document["independent_self"] is None) != (document["p_comp"] is None):
        yield "p_comp", document["p_comp"], "there just where independent models were given"


CHAIN = DocumentKind(
    kind=KIND,
    version=SCHEMA_VERSION,
    schema=_Chain,
    where=_WHERE,
    keys="the keys that chain_document writes",
    again=_AGAIN,
    disagreements=_disagreements,
)
checked_chain, write_chain, read_chain = CHAIN.checked, CHAIN.write, CHAIN.read


def matrix_table(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return the compatibility matrix: rows are queries, columns galleries; a mark follows a violation."""
    rows = [
        [name, *(_cell(document, i, j) for j in range(len(document["models"])))]
        for i, name in enumerate(document["models"])
    ]
    columns = [f"queries ({metric_name(document['metric'])})", *(f"on {name}" for name in document["models"])]
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


def _cell(document: Mapping[str, Any], i: int, j: int) -> str:
    if j > i:
        return ""
    matrix = document["matrix"]
    return score(matrix[i][j]) + (" ✗" if j < i and matrix[i][j] <= matrix[j][j] else "")


def pair_table(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return every pair with its scores, their difference and its interval, and what the interval says."""
    columns = ["new queries, old gallery", "cross", "self (old)", "cross − self (old)", "violates", "by its interval"]
    rows = [
        [
            f"{pair['new']} on {pair['old']}",
            score(pair["cross"]),
            score(pair["self_old"]),
            f"{signed(pair['cross'] - pair['self_old'])} {interval(pair['interval'], sign=True)}",
            "yes" if pair["violates"] else "no",
            pair["verdict"],
        ]
        for pair in document["pairs"]
    ]
    if typeset:
        return columns, rows
    return [*map(plain_text, columns)], [[row[0], *map(plain_text, row[1:])] for row in rows]


def p_comp_table(document: Mapping[str, Any], baseline: str, variant: str = "raw", *, typeset: bool = False) -> Table:
    """Return P_comp of every pair under one reading of "the old model"; rows are queries, columns galleries."""
    values = document["p_comp"][variant][baseline]
    return _triangle(document, values, signed if variant == "raw" else score, typeset)


def p_score_table(document: Mapping[str, Any], baseline: str) -> Table:
    """Return P_1 of every pair, of the sigmoid variant."""
    return _triangle(document, document["p_score"][baseline], score, True)


def _triangle(document: Mapping[str, Any], values: Sequence[Row], form: Any, typeset: bool) -> Table:
    names = document["models"]
    columns = ["queries", *(f"on {name}" for name in names[:-1])]
    rows = [[names[i], *(form(values[i][j]) if j < i else "" for j in range(len(names) - 1))]
            for i in range(1, len(names))]  # fmt: skip
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


def models_table(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return every model with its self-test, that of its independent model, and P_up of both variants."""
    alone, up = document["independent_self"], document["p_up"]
    rows = []
    for number, name in enumerate(document["models"]):
        row = [name, score(document["matrix"][number][number])]
        row.append(MISSING if alone is None or not number else score(alone[number]))
        row += [MISSING, MISSING] if up is None else [signed(up["raw"][number]), score(up["sigmoid"][number])]
        rows.append(row if typeset else [row[0], *map(plain_text, row[1:])])
    return ["model", "self-test", "independent", "P_up, raw", "P_up, sigmoid"], rows
