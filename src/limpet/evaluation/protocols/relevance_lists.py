"""Relevance from a file: pairs of a query and an item, such as human judgements or clicks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from limpet.data.text_files import readable
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import DataError, EmptyOverlapError, shown
from limpet.evaluation.protocols.base import Lists, RankingProtocol
from limpet.evaluation.protocols.names import lists_of_pairs, rows_named
from limpet.support.ranges import checked

Unknown = Literal["refuse", "leave-out"]

_TRUTHS = {"true": True, "1": True, "false": False, "0": False, "": False}


@dataclass(frozen=True, eq=False)
class RelevancePairs:
    """Relevant and ignored items of queries, as pairs.

    Args:
        query: The query of every pair, as an id (M,).
        item: The item of every pair, as an id (M,).
        ignore: Whether the item is ignored in the ranking of the query instead of being relevant (M,).
        grade: Grade of relevance, float64 (M,): 0 for items judged not relevant, which are ranked as such; otherwise
            the gain of "ndcg". None: all relevant items have the same grade.

    Raises:
        DataError: Lengths differ, there is no pair, or a grade is negative or not finite.

    >>> len(RelevancePairs(["q", "q"], ["a", "b"], np.array([False, True])))
    2
    """

    query: StringArray
    item: StringArray
    ignore: NDArray[np.bool_]
    grade: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "query", StringArray.of(self.query))
        object.__setattr__(self, "item", StringArray.of(self.item))
        lengths = len(self.query), len(self.item), len(self.ignore)
        if len(set(lengths)) > 1 or not lengths[0]:
            raise DataError(
                "Pairs of {} queries with {} items, {} of them with a word on ignoring.".format(*lengths),
                expected="at least one pair, with one of each",
            )
        if self.grade is not None:
            wrong = np.flatnonzero(~(np.isfinite(self.grade) & (self.grade >= 0)))
            if len(self.grade) != lengths[0] or len(wrong):
                found = f"grades such as {self.grade[wrong[0]]}" if len(wrong) else f"{len(self.grade)} grades"
                raise DataError(
                    f"{lengths[0]} pairs with {found}.",
                    expected="a grade of at least 0 for each: 0 for an item that does not answer, more for one that "
                    "answers better",
                )

    def __len__(self) -> int:
        return len(self.query)

    @classmethod
    def read(cls, path: Path) -> RelevancePairs:
        """Read the columns ``query``, ``item`` and optionally ``ignore`` and ``grade`` of a .csv or .parquet file.

        Raises:
            DataError: The file cannot be read, a column is missing, or a value is.
        """
        table = _table(path)
        if not len(table):
            raise DataError(f"'{path}' has no row.", expected="one row for every item that answers a query")
        for name, needed in (("query", True), ("item", True), ("ignore", False), ("grade", False)):
            if not needed <= table.column_names.count(name) <= 1:
                raise DataError(
                    f"'{path}' has the columns {', '.join(table.column_names) or 'none'}.",
                    expected="the columns query and item, once: a row for each item that answers a query, by their ids",
                    to_do="rename the columns; a column ignore may say true for items to leave out of a ranking, and "
                    "a column grade how well an item answers.",
                )
        ignore = _flags(path, table["ignore"]) if "ignore" in table.column_names else np.zeros(len(table), np.bool_)
        grade = _grades(path, table["grade"]) if "grade" in table.column_names else None
        return cls(_texts(path, "query", table["query"]), _texts(path, "item", table["item"]), ignore, grade)


def _table(path: Path) -> Any:
    """Return the columns of a file; those of a CSV file as texts, so that 007 stays 007."""
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(
            f"'{path}' is no .csv or .parquet file.", expected="pairs of a query and an item in one of these"
        )
    with readable(path, "a file of pairs of a query and an item"):
        if path.suffix == ".parquet":
            return pq.read_table(path)
        kinds = dict.fromkeys(("query", "item", "ignore"), pa.string())
        return pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=kinds))


def _texts(path: Path, name: str, values: Any) -> StringArray:
    """Return texts and whole numbers as texts; refuse what is missing or something else."""
    readable = (
        pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or pa.types.is_integer(values.type)
    )
    if not readable or values.null_count:
        found = f"{values.null_count} missing values" if readable else f"values of type {values.type}"
        raise DataError(f"The column '{name}' of '{path}' has {found}.", expected="the id of an item in every row")
    return StringArray.from_arrow(values.cast(pa.large_string()))


def _grades(path: Path, values: Any) -> NDArray[np.float64]:
    if values.null_count:
        raise DataError(f"The column 'grade' of '{path}' has {values.null_count} missing values.",
                        expected="a number of at least 0 in every row")  # fmt: skip
    try:
        grades: NDArray[np.float64] = values.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError(f"The column 'grade' of '{path}' cannot be read as numbers: {error}.",
                        expected="a number of at least 0 in every row") from error  # fmt: skip
    return grades


def _flags(path: Path, values: Any) -> NDArray[np.bool_]:
    written = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(values.cast(pa.string()), "")))
    known = pc.fill_null(pc.index_in(written, value_set=pa.array(list(_TRUTHS))), -1).to_numpy()
    if (known < 0).any():
        wrong = written[int(np.flatnonzero(known < 0)[0])].as_py()
        raise DataError(f"The column 'ignore' of '{path}' says '{wrong}'.", expected="true or false in every row")
    flags: NDArray[np.bool_] = np.array(list(_TRUTHS.values()))[known]
    return flags


class _Found(NamedTuple):
    """Rows of the pairs whose query and item are both embedded."""

    queries: NDArray[np.int64]
    items: NDArray[np.int64]
    ignore: NDArray[np.bool_]
    grade: NDArray[np.float64] | None


@checked
@dataclass(frozen=True, eq=False, kw_only=True)
class Relevance(RankingProtocol):
    """Items are relevant to the queries that a file pairs them with.

    Clicks cover only items that the old system showed, so a better answer of the new one is scored as wrong. Scores are
    computed, but no verdict is given unless the pairs are declared as judged.

    Use it for judgements of your own, or clicks, in place of class labels.

    Args:
        pairs: Relevant and ignored items of queries.
        judged: Whether people judged the relevant items of each query independently of both models.
        unknown: Handling of pairs with a query or item that is not embedded: "refuse" raises an error, "leave-out"
            skips and counts them.
        leave_one_out: Ignore the gallery item with the id of the query.
        no_relevant: Score of a query without any relevant item.

    >>> from limpet import EmbeddingSet, evaluate
    >>> queries, items = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32) + 0.1
    >>> v1, v2 = ((EmbeddingSet(queries, model=m), EmbeddingSet(items, model=m)) for m in ("v1", "v2"))
    >>> pairs = RelevancePairs(["0", "1", "2"], ["0", "1", "1"], np.zeros(3, bool))
    >>> evaluate(v1, v2, protocol=Relevance(pairs=pairs, judged=True)).cross["recall@5"]
    1.0
    """

    name: ClassVar[str] = "relevance"
    description: ClassVar[str] = "items answer the queries that a file pairs them with (judgements, clicks)"
    ground_truth: ClassVar[str | None] = "a .csv or .parquet file with the columns query and item (and ignore, grade)"

    pairs: RelevancePairs = field(repr=False)
    judged: bool = False
    unknown: Unknown = "refuse"

    @property
    def judges(self) -> bool:
        """Whether the pairs are judgements, not only clicks."""
        return self.judged

    @classmethod
    def read(cls, ground_truth: Path, **options: Any) -> Self:
        """Build from a file of pairs; see `RelevancePairs.read`."""
        return cls(pairs=RelevancePairs.read(ground_truth), **options)

    def answers(self, query: EmbeddingSet, gallery: EmbeddingSet) -> Lists:
        """Return the rows of the items paired with every query, relevant or ignored."""
        queries, items, ignore, grade = self._found(query, gallery)
        answers = ~ignore if grade is None else ~ignore & (grade > 0)
        return Lists(
            lists_of_pairs(queries[answers], items[answers], len(query), None if grade is None else grade[answers]),
            lists_of_pairs(queries[ignore], items[ignore], len(query)),
        )

    def left_out(self, query: EmbeddingSet, gallery: EmbeddingSet) -> dict[str, int]:
        """Count also the pairs with a query or an item that was not embedded."""
        unknown = len(self.pairs) - self.known_pairs(query, gallery)
        return {**super().left_out(query, gallery), "pairs with a query or item that is not embedded": unknown}

    def known_pairs(self, query: EmbeddingSet, gallery: EmbeddingSet) -> int:
        """Count the pairs whose query and item are both embedded."""
        return len(self._found(query, gallery).queries)

    def _found(self, query: EmbeddingSet, gallery: EmbeddingSet) -> _Found:
        queries, items = rows_named(self.pairs.query, query), rows_named(self.pairs.item, gallery)
        known = (queries >= 0) & (items >= 0)
        if not known.all():
            self._refuse_unknown(queries, items, known)
        grade = self.pairs.grade
        found = _Found(queries[known], items[known], self.pairs.ignore[known], None if grade is None else grade[known])
        keys = found.queries * len(gallery) + found.items
        _, first = np.unique(keys, return_index=True)
        if len(first) < len(keys):
            again = np.flatnonzero(known)[np.setdiff1d(np.arange(len(keys)), first)]
            named = (f"{self.pairs.query[int(row)]} - {self.pairs.item[int(row)]}" for row in again[:3])
            raise DataError(
                f"{len(again)} pairs are there before: {shown(named, len(again))}.",
                to_do="remove the repeated rows; count clicks first, if they are to weigh more.",
            )
        return found

    def _refuse_unknown(self, queries: NDArray[np.int64], items: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
        if self.unknown == "leave-out" and known.any():
            return
        parts = (("queries", self.pairs.query, queries), ("items", self.pairs.item, items))
        absent = [_distinct(what, names, rows) for what, names, rows in parts if (rows < 0).any()]
        kind = DataError if known.any() else EmptyOverlapError
        raise kind(
            f"{np.count_nonzero(~known)} of {len(known)} pairs name what is not embedded: {'; '.join(absent)}.",
            expected="ids of the embedded queries and gallery items",
            to_do="embed what is missing, or leave these pairs out: --protocol-options.unknown leave-out."
            if known.any()
            else "check which file belongs to these embeddings.",
        )


def _distinct(what: str, names: StringArray, rows: NDArray[np.int64]) -> str:
    absent = StringArray.from_arrow(pc.unique(names[rows < 0].arrow()))
    return f"{len(absent)} {what} ({shown(absent[:3], len(absent))})"
