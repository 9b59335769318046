"""Indexes over new vectors like those over the old ones, built while the application reads and writes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import NamedTuple

from limpet.attached.postgres.layout import AnyLayout, Aside, OneColumn, added_name, keys
from limpet.attached.postgres.ledger import SCHEMA, TableEntry, TableRecord
from limpet.engines.collection import IndexStatus
from limpet.engines.postgres.database import PostgresDatabase, Row, quoted
from limpet.engines.postgres.graphs import WIDEST, WIDEST_INDEXED
from limpet.engines.sides import SIDES
from limpet.errors import GalleryError, refuse


class NewIndex(NamedTuple):
    """A required index.

    Args:
        schema: Schema of the table, and of the index.
        parent: Name of the index over the parent's table that it is a part of; empty for none.
        leaf: Whether its table has rows of its own.
    """

    schema: str
    name: str
    relation: str
    definition: str
    parent: str = ""
    leaf: bool = True

    @property
    def identifier(self) -> str:
        """Its name in SQL."""
        return quoted(self.schema, self.name)

    def statements(self) -> list[str]:
        """Return the statements that create it."""
        if not self.leaf:
            made = [f"CREATE INDEX {quoted(self.name)} ON ONLY {self.relation} USING {self.definition}"]
        else:
            made = [f"CREATE INDEX CONCURRENTLY {quoted(self.name)} ON {self.relation} USING {self.definition}"]
        return [*made, *self.attaching()]

    def attaching(self) -> list[str]:
        """Return the statements that attach it to the index over the parent's table."""
        return [f"ALTER INDEX {quoted(self.schema, self.parent)} ATTACH PARTITION {self.identifier}"] * bool(
            self.parent
        )


def new_type(kind: str, dim: int, *, indexed: bool) -> str:
    """Return the type of a column for new vectors: that of the old ones, or half precision for wide indexed vectors.

    Args:
        kind: Type of the old vectors: vector or halfvec.
        dim: Dimension of the new vectors.
        indexed: Whether whole vectors are indexed.

    >>> new_type("vector", 1024, indexed=True), new_type("vector", 3072, indexed=True)
    ('vector(1024)', 'halfvec(3072)')
    >>> new_type("vector", 5000, indexed=False)
    'vector(5000)'

    Raises:
        GalleryError: No type of pgvector can be indexed at this dimension, or hold it.
    """
    for name in dict.fromkeys((kind, "halfvec")):
        if dim <= WIDEST and (not indexed or dim <= WIDEST_INDEXED[name]):
            return f"{name}({dim})"
    if dim > WIDEST:
        raise GalleryError(f"Vectors of {dim} numbers.", expected=f"at most {WIDEST:,}, as many as pgvector stores",
                           to_do="take a model of fewer dimensions.", intact="Nothing was changed.")  # fmt: skip
    raise GalleryError(
        f"Vectors of {dim} numbers in a table whose vectors are indexed.",
        expected=f"at most {WIDEST_INDEXED['halfvec']:,} for an approximate index of pgvector over whole vectors",
        to_do="choose another index: --index bits (the sign of every number), --index first:N (the first N numbers) or "
        "--index none.",
        intact="Nothing was changed.",
    )


def check_index(index: str, kind: str, dim: int) -> None:
    """Refuse an index over new vectors that cannot be built; see `attach`.

    >>> check_index("first:1024", "vector", 5000)

    Raises:
        ConfigError: The value is invalid, or keeps more numbers than vectors have or pgvector indexes.
    """
    name, _, count = index.partition(":")
    most = min(dim - 1, WIDEST_INDEXED[kind])
    first = name == "first" and count.isdecimal() and 1 <= int(count) <= most
    refuse(index not in ("whole", "bits", "none") and not first, f"--index {index}.",
           f"whole, bits, none, or first:N with N from 1 to {most:,}")  # fmt: skip


def indexed_part(record: TableRecord, column: str, *, query: bool = False) -> str:
    """Return the part of each new vector that an index holds, in SQL; the vector itself if the index holds all of it.

    Args:
        record: Record of the attachment.
        column: The vectors, or a query.
        query: Whether it is a query, which needs a type cast.
    """
    name, _, count = record.index.partition(":")
    kind = record.new_type.partition("(")[0]
    said = f"{column}::{kind}" if query else column
    if name == "bits":
        return f"binary_quantize({said})::bit({record.new.dim})"
    return f"subvector({said}, 1, {count})::{kind}({count})" if name == "first" else column


def translated_definition(definition: str, record: TableRecord, column: str) -> str:
    r"""Return the definition of an index over the old vectors as one over the new ones."""
    old = record.table.vector.name
    plain = old if re.fullmatch("[a-z_][a-z0-9_]*", old) else quoted(old)
    whole = re.search(rf'\({re.escape(plain)}(?: (?:[\w"]+\.)?(?:vector|halfvec)_(\w+)_ops)?\)', definition)
    if whole is not None and record.index != "whole":
        kind = record.new_type.partition("(")[0]
        operators = "bit_hamming_ops" if record.index == "bits" else f"{kind}_{whole[1] or 'l2'}_ops"
        part = f"(({indexed_part(record, column)}) {operators})"
        return f"{definition[: whole.start()]}{part}{definition[whole.end() :]}"
    said = re.sub(rf'(?<![\w"$.]){re.escape(plain)}(?![\w"$])', column.replace("\\", r"\\"), definition)
    said = re.sub(rf"\b(vector|halfvec|bit)\({record.old.dim}\)", rf"\1({record.new.dim})", said)
    if record.new_type.startswith("halfvec"):
        said = re.sub(r"\bvector_(l2|ip|cosine|l1)_ops", r"halfvec_\1_ops", said)
    return said


def wanted(database: PostgresDatabase, entry: TableEntry, layout: AnyLayout) -> list[NewIndex]:
    """Return the required indexes, those of parents before those of their partitions.

    In addition to those over new vectors, two small ones cover the rows that lack a vector of either model, so that
    these rows are found, and counted during a swap, without reading the table. If vectors of both models share a
    column, its indexes exist already.
    """
    record = entry.record
    if isinstance(layout, OneColumn):
        return []
    indexes = () if record.index == "none" else record.table.indexes
    if isinstance(layout, Aside):
        return [
            NewIndex(SCHEMA, added_name(one.name, "new"), layout.table,
                     translated_definition(one.definition.partition(" WHERE ")[0], record, "vector"))
            for one in indexes
        ]  # fmt: skip
    definitions = [
        (one.name, "new", translated_definition(one.definition, record, quoted(layout.name("new"))))
        for one in indexes
    ] + [
        (record.table.vector.name, f"lacks_{side}",
         f"btree ({keys(record).replace('t.', '')}) WHERE {layout.missing(side, '')}")
        for side in SIDES
    ]  # fmt: skip
    found: list[NewIndex] = []
    for schema, name, parent, leaf in _relations(database, record):
        for base, what, definition in definitions:
            on = schema, name
            found.append(
                NewIndex(
                    str(schema),
                    index_name(base, what, str(name) if parent else ""),
                    quoted(*on),
                    definition,
                    index_name(base, what, str(parent) if parent != record.table.name else "") if parent else "",
                    bool(leaf),
                )
            )
    return found


def index_name(base: str, what: str, partition: str) -> str:
    """Return the name of an index, with the partition if it is one of several.

    >>> index_name("items_emb", "new", ""), index_name("items_emb", "new", "items_2024")
    ('items_emb_limpet_new', 'items_2024_items_emb_limpet_new')
    """
    return added_name(f"{_short(partition)}_{_short(base)}" if partition else base, what)


def _short(name: str, most: int = 20) -> str:
    """Return a name, or the start of a longer one with a suffix that distinguishes it from others with that start.

    >>> _short("items_2024"), _short("events_of_the_year_2024"), _short("events_of_the_year_2025")
    ('items_2024', 'events_of_t_adcd5788', 'events_of_t_daca671e')
    """
    return name if len(name) <= most else f"{name[: most - 9]}_{zlib.crc32(name.encode()):08x}"


def _relations(database: PostgresDatabase, record: TableRecord) -> list[Row]:
    return database.rows(
        "SELECT nspname, pg_class.relname, "
        "(SELECT up.relname FROM pg_class AS up WHERE up.oid = parentrelid AND level > 0), isleaf "
        "FROM pg_partition_tree(%s::oid::regclass) JOIN pg_class ON pg_class.oid = relid "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace ORDER BY level, pg_class.relname",
        [record.table.oid],
    ) or database.rows(
        "SELECT nspname, relname, NULL, true FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE pg_class.oid = %s", [record.table.oid],
    )  # fmt: skip


def build(database: PostgresDatabase, indexes: list[NewIndex], check: Callable[[], object]) -> None:
    """Build missing indexes; rebuild those that an interruption left invalid.

    Args:
        database: Connection to the database.
        indexes: The required indexes.
        check: Called before each and after the last one; raises if the attachment no longer exists.

    Raises:
        GalleryError: Another session is building one of them.
    """
    for one in indexes:
        check()
        _adopt(database, one)
        state = _state(database, one)
        if state == "building":
            raise GalleryError(
                f"The index {one.name} is being built by somebody else.",
                expected="one at a time",
                to_do="wait until it is there (`limpet upgrade status`).",
                intact="Nothing was changed.",
            )
        if state == "invalid" and one.leaf:
            database.alone(f"DROP INDEX CONCURRENTLY IF EXISTS {one.identifier}")
        if state == "missing" or (state == "invalid" and one.leaf):
            database.alone(one.statements()[0])
        for statement in one.attaching():
            if not database.execute("SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass(%s)", [one.identifier]):
                database.alone(statement)
    check()


def _adopt(database: PostgresDatabase, index: NewIndex) -> None:
    """Rename the index of a partition that PostgreSQL created: with a partition added after the parent's index.

    A partition has one index under that of its parent, so one of ours that is not there is dropped.
    """
    made = database.execute(
        "SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_inherits "
        "JOIN pg_index ON indexrelid = inhrelid JOIN pg_class ON pg_class.oid = inhrelid "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE inhparent = to_regclass(%s) "
        "AND indrelid = to_regclass(%s) AND inhrelid IS DISTINCT FROM to_regclass(%s)",
        [quoted(index.schema, index.parent), index.relation, index.identifier],
    ) if index.parent else []  # fmt: skip
    for (other,) in made:
        database.alone(f"DROP INDEX CONCURRENTLY IF EXISTS {index.identifier}")
        database.alone(f"ALTER INDEX {other} RENAME TO {quoted(index.name)}")


def _state(database: PostgresDatabase, index: NewIndex) -> str:
    """Return the build state of an index: missing, building, invalid or built."""
    found = database.execute(
        "SELECT indisvalid, EXISTS (SELECT FROM pg_stat_progress_create_index WHERE index_relid = indexrelid) "
        "FROM pg_index WHERE indexrelid = to_regclass(%s)", [index.identifier],
    )  # fmt: skip
    if not found:
        return "missing"
    return "built" if found[0][0] else "building" if found[0][1] else "invalid"


def statuses(database: PostgresDatabase, indexes: list[NewIndex]) -> tuple[IndexStatus, ...]:
    """Return which of the indexes over new vectors are built; within a transaction.

    A partition that was added later has an index of another name under that of its parent.
    """
    rows = database.rows(
        "SELECT name, EXISTS (SELECT FROM pg_index LEFT JOIN pg_inherits ON inhrelid = indexrelid WHERE indisvalid "
        "AND (indexrelid = to_regclass(name) OR indrelid = to_regclass(relation) AND inhparent = to_regclass(parent))) "
        "FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS one(name, relation, parent, place) "
        "ORDER BY place",
        [
            [one.identifier for one in indexes],
            [one.relation for one in indexes],
            [quoted(one.schema, one.parent) if one.parent else "" for one in indexes],
        ],
    )
    return tuple(IndexStatus(one.name, bool(built)) for one, (_, built) in zip(indexes, rows, strict=True))
