"""Verify that a table is as its attachment left it, and find the application's queries that an upgrade affects."""

from __future__ import annotations

import re
import time
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from limpet.attached.postgres.filling import KeyBatch, read_batch
from limpet.attached.postgres.layout import AnyLayout, added_name, key_texts, layout_of
from limpet.attached.postgres.ledger import TableEntry
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.rows import decoded
from limpet.engines.sides import ModelSide
from limpet.errors import GalleryError, StoreError, shown
from limpet.upgrade.base import NamedQuery

_SAMPLE = 256
"""Maximum number of rows to embed again."""
_FEWEST_REPLACED, _MOST_REPLACED = 1000, 0.2  # rows, and share of the live rows: as autovacuum counts
_OURS = ("limpet_attached.", "zz_limpet_", "limpet.filling")
_STATEMENTS = (
    "SELECT queryid::text || '-' || userid || '-' || toplevel, query, calls FROM {}.pg_stat_statements "
    "WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND strpos(lower(query), %s) > 0"
)


def table_problems(database: PostgresDatabase, entry: TableEntry) -> list[str]:
    """Return the problems of a table, each with what to do; within a transaction."""
    try:
        layout = layout_of(database, entry)
    except StoreError:
        raise
    except GalleryError as error:
        return [f"{error.given} {error.to_do[:1].upper()}{error.to_do[1:].removesuffix('.')}"]
    invalid = database.rows(
        "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = %s AND NOT indisvalid", [entry.record.table.oid],
    )  # fmt: skip
    found = trigger_problems(database, entry, layout)
    found += [f"The index {name} is half built: `limpet upgrade index` builds it anew" for (name,) in invalid]
    [(unknown,)] = database.rows(f"SELECT count(*) FROM {layout.rows} WHERE {layout.unknown}")
    if unknown:
        ids = read_batch(database, entry, layout, "new", 20, condition=layout.unknown).ids
        found.append(f"{unknown:,} rows were written without our triggers; the model and text of their vectors are "
                     f"unknown: {shown(ids, int(unknown))}. `limpet upgrade backfill --of new` and `--of old` make "
                     "these vectors anew")  # fmt: skip
    return [*found, *(_replaced_rows(database, entry) if entry.record.shared else [])]


def trigger_problems(database: PostgresDatabase, entry: TableEntry, layout: AnyLayout) -> list[str]:
    """Return our triggers that are missing or disabled; within a transaction."""
    found = []
    triggers = database.rows(
        "SELECT tgname, min(CASE tgenabled WHEN 'A' THEN 'Z' ELSE tgenabled::text END) FROM pg_trigger "
        "WHERE (tgrelid = %s OR tgrelid IN (SELECT relid FROM pg_partition_tree(%s::oid::regclass))) "
        "AND starts_with(tgname::text, %s) GROUP BY tgname ORDER BY tgname",
        [entry.record.table.oid, entry.record.table.oid, f"zz_limpet_{entry.id}_"],
    )  # of a trigger on partitions, report the most disabled one
    expected = len(layout.triggers)
    if len(triggers) != expected:
        found.append(f"{expected - len(triggers)} of our triggers are gone: `limpet upgrade writes --of "
                     f"{entry.state.writes}` makes them again, "
                     "and rows that were written meanwhile are not marked")  # fmt: skip
    off = [str(name) for name, enabled in triggers if enabled == "D" or (enabled != "Z" and not entry.record.aside)]
    if off:
        found.append(f"The triggers {', '.join(off)} are switched off, if only where session_replication_role is "
                     "replica: `limpet upgrade writes --of "
                     f"{entry.state.writes}` switches them on, and rows that were written meanwhile are not "
                     "marked")  # fmt: skip
    return found


def _replaced_rows(database: PostgresDatabase, entry: TableEntry) -> list[str]:
    """Report many replaced rows: an index scan visits them and finds fewer others."""
    oid = entry.record.table.oid
    [(dead, live)] = database.rows(
        "SELECT coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_all_tables "
        "WHERE relid IN (SELECT %s::oid UNION SELECT relid FROM pg_partition_tree(%s::oid::regclass))", [oid, oid],
    )  # fmt: skip
    if not entry.record.table.indexes or dead <= max(_FEWEST_REPLACED, _MOST_REPLACED * live):
        return []
    return [
        f"{dead:,} replaced rows take the places of others in what an approximate index finds, above all for "
        f"queries of the model that was replaced: VACUUM {entry.record.table.identifier}"
    ]


def written_since(
    database: PostgresDatabase, entry: TableEntry, layout: AnyLayout, side: ModelSide, since: datetime
) -> tuple[KeyBatch, dict[str, NDArray[np.float32]]]:
    """Return rows that the application wrote since a time, a random sample if many, and their vectors of a model.

    Only vectors of the row's current text are returned, as far as known; within a transaction.
    """
    record, vector = entry.record, layout.current(side)
    rows = database.rows(
        f"SELECT {key_texts(record)}, {layout.stamp}, vector_send({vector}::vector) FROM {layout.rows} "
        f"WHERE {layout.edited} > %s AND {vector} IS NOT NULL ORDER BY random() LIMIT {_SAMPLE}",
        [int(1_000_000 * since.timestamp())],
    )
    batch = KeyBatch([[str(part) for part in row[:-2]] for row in rows], [str(row[-2]) for row in rows])
    dim = (record.new if side == "new" else record.old).dim
    return batch, dict(zip(batch.ids, decoded([row[-1] for row in rows], dim), strict=True))


def queries_of(database: PostgresDatabase, entry: TableEntry, watch: float) -> tuple[list[NamedQuery], str]:
    """Return queries that the upgrade affects, and why none could be watched; empty if they could."""
    found = database.execute(
        "SELECT quote_ident(nspname), pg_has_role('pg_read_all_stats', 'USAGE') FROM pg_extension "
        "JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'pg_stat_statements'"
    )
    if not found:
        return [], (
            "The database does not have the extension pg_stat_statements. To watch queries, set "
            "shared_preload_libraries = 'pg_stat_statements' in postgresql.conf, restart the server, and run "
            "CREATE EXTENSION pg_stat_statements."
        )
    [(schema, all_of_it)] = found
    if not all_of_it:
        [(role,)] = database.execute("SELECT quote_ident(current_user)")
        return [], f"This role sees no queries of others: GRANT pg_read_all_stats TO {role};"
    statement, name = _STATEMENTS.format(schema), entry.record.table.name.lower()
    try:
        before = {key: calls for key, _, calls in database.execute(statement, [name])} if watch else {}
        time.sleep(watch)
        rows = database.execute(statement, [name])
    except StoreError as error:
        return [], f"pg_stat_statements does not answer ({error.given})"
    named = []
    for key, query, calls in rows:
        sent, why = int(calls) - int(before.get(key, 0)), concern(str(query), entry)
        if why and sent > 0:
            named.append(NamedQuery(" ".join(str(query).split()), sent, why))
    return sorted(named, key=lambda one: -one.calls), ""


def concern(query: str, entry: TableEntry) -> str:
    """Return what should change about a query; empty for nothing."""
    table = entry.record.table
    said = query.lower()
    ours = (*_OURS, f"{table.identifier} AS t".lower())
    if any(words in said for words in ours) or re.match(r"\s*(alter|create|drop|lock|comment|grant|copy.*to)\b", said):
        return ""
    relation = rf'(?<![\w."])(?:"?{re.escape(table.schema)}"?\.)?"?{re.escape(table.name)}"?(?![\w"])'
    if not re.search(relation, query, re.IGNORECASE):
        return ""
    for what in ("kept", "model") if entry.record.shared else ("old", "new"):
        if added_name(table.vector.name, what) in query:
            return f"it names the column {added_name(table.vector.name, what)}, which will be gone"
    if not entry.record.shared and re.search(
        rf"insert\s+into\s+{relation}\s*(?:values|select|default)", query, re.IGNORECASE
    ):
        return "it names no columns: after finish the vector is the last one"
    if re.search(rf"\*\s+from\s+{relation}|returning\s+\*", query, re.IGNORECASE):
        more = "three" if entry.record.shared else "two"
        return f"it selects *: {more} columns more than before, and a prepared one fails once when they come and go"
    column = rf'(?<![\w"])"?{re.escape(table.vector.name)}"?(?![\w"])'
    if entry.record.aside and re.search(column, query):
        return "it names the column of old vectors: join the table of new ones"
    if entry.record.old.dim != entry.record.new.dim and re.search(
        rf"(?:vector|halfvec)\(\s*{entry.record.old.dim}\s*\)", query
    ):
        return f"it names the dimension {entry.record.old.dim}, and new vectors have {entry.record.new.dim}"
    return ""
