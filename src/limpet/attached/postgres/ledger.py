"""The ledger of attachments in the application's database: a schema of its own with a few small tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg.errors import DuplicateSchema, UniqueViolation
from pydantic import TypeAdapter

from limpet.attached.ledger import AttachmentEntry, AttachmentLedger, written
from limpet.attached.postgres.table import AttachedTable
from limpet.attached.state import AttachmentEvent
from limpet.engines.database import POSTGRES
from limpet.engines.postgres.database import PostgresDatabase, literal, locked
from limpet.engines.postgres.table_address import TableAddress
from limpet.errors import GalleryError, LastingStoreError, StoreError
from limpet.upgrade.model import UpgradeModel

SCHEMA = "limpet_attached"
"""Not "limpet", the default schema of a gallery."""

_ACLS = {
    "SCHEMA": ("pg_namespace", "nsp", "n", "regnamespace"),
    "TABLE": ("pg_class", "rel", "r", "regclass"),
    "SEQUENCE": ("pg_class", "rel", "s", "regclass"),
    "FUNCTION": ("pg_proc", "pro", "f", "regprocedure"),
}


def closed(*made: str) -> str:
    """Return the statement that revokes all privileges on new objects from all roles but their owners.

    PUBLIC may execute a new function, and ALTER DEFAULT PRIVILEGES may grant further privileges on anything.

    Args:
        *made: The objects in SQL, each after its kind, as in "TABLE limpet_attached.journal".
    """
    rights = []
    for one in made:
        kind, _, name = one.partition(" ")
        catalog, prefix, letter, alias = _ACLS[kind]
        rights.append(
            f"SELECT {literal(one)}, {prefix}owner, coalesce({prefix}acl, acldefault('{letter}', {prefix}owner)) "
            f"FROM pg_catalog.{catalog} WHERE oid = {literal(name)}::{alias}"
        )
    body = f"""
DECLARE
    said text;
BEGIN
    FOR said IN
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', made.said,
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
        FROM ({" UNION ALL ".join(rights)}) AS made (said, owner, acl), aclexplode(acl) WHERE grantee <> owner
    LOOP
        EXECUTE said;
    END LOOP;
END
"""
    return f"DO {literal(body)}"


def _place(relation: str) -> str:
    """Return the SQL for the location of a table: a restored dump has another, where its record's numbers are wrong."""
    server = "SELECT system_identifier FROM pg_control_system()"
    return f"concat_ws('/', ({server}), '{SCHEMA}.attachments'::regclass::oid, {relation}::oid)"


_HERE = _place("relation")
_MODEL_OF = f"""
SELECT CASE
    WHEN place <> {_HERE} OR (record ->> 'new_number')::int = 0 OR (record ->> 'model_number')::int <> 0
        THEN state ->> CASE state ->> 'phase' WHEN 'swapped' THEN 'new' ELSE 'old' END
    WHEN (pg_identify_object_as_address('pg_class'::regclass, relation, (record ->> 'new_number')::int))
        .object_names[3] = vector THEN state ->> 'new'
    ELSE state ->> 'old' END
FROM (SELECT relation, vector, place, record::json, state::json FROM {SCHEMA}.attachments) AS one
WHERE one.relation = $1 AND one.vector = $2
"""
# A STABLE function of an application reads rows as of the beginning of the calling statement, but columns by their
# current names. The answer therefore comes from the names, which the server looks up as of now, and not from a row.
# Right after a restore the numbers of columns may differ, and no swap or rollback has happened yet.

_RIGHTS = f"""
{
    closed(
        f"SCHEMA {SCHEMA}",
        *(f"TABLE {SCHEMA}.{name}" for name in ("format", "attachments", "journal")),
        *(f"SEQUENCE {SCHEMA}.{name}_seq" for name in ("attachments_id", "journal_sequence")),
        f"FUNCTION {SCHEMA}.model_of(regclass, text)",
    )
};
GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC;
GRANT EXECUTE ON FUNCTION {SCHEMA}.model_of TO PUBLIC;
"""

_FURTHER = ", relation regclass NOT NULL, vector text NOT NULL, reached text[], place text NOT NULL, " \
           "UNIQUE (relation, vector)"  # fmt: skip
_OF_EVERY_LEDGER = ";\n".join(AttachmentLedger.statements(POSTGRES, f"{SCHEMA}.", _FURTHER))
_TABLES = f"""
CREATE SCHEMA {SCHEMA};
{_OF_EVERY_LEDGER};
CREATE FUNCTION {SCHEMA}.model_of(relation regclass, vector text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $${_MODEL_OF}$$;
{_RIGHTS}"""
CREATE = _TABLES.strip().removesuffix(";")
"""The statements that create an empty ledger."""


_ENDED = f"""
SELECT attachment FROM {SCHEMA}.journal,
    json_to_record(event::json) AS last (schema text, "table" text, vector text)
WHERE vector IS NOT NULL AND ? IN ('', "table", concat_ws('.', schema, "table")) AND ? IN ('', vector)
ORDER BY sequence DESC LIMIT 1
"""


@dataclass(frozen=True)
class TableRecord:
    """Fixed properties of an attachment; only its state changes.

    Args:
        old: The model of the existing vectors.
        new: The new model.
        new_type: Type of the new vectors in SQL.
        index: Part of each new vector that indexes hold, see `attach`.
        token: Token in its triggers and columns, which identifies them after a dump and restore.
        new_number: Number of the column of new vectors, or of kept vectors if both models share a column; 0 if new
            vectors are in a table of their own.
        mark_number: Number of the column of marks, see `Layout`; 0 in the same case.
        fires: Whether a backfill may fire the application's own triggers.
        model_number: Number of the column with the model of each vector; 0 if each model has a place of its own.
    """

    table: AttachedTable
    old: UpgradeModel
    new: UpgradeModel
    new_type: str
    token: str
    new_number: int = 0
    mark_number: int = 0
    fires: bool = False
    model_number: int = 0
    index: str = "whole"

    @property
    def shared(self) -> bool:
        """Whether vectors of both models are in the application's own column."""
        return bool(self.model_number)

    @property
    def added(self) -> list[int]:
        """Numbers of the columns that were added."""
        return [number for number in (self.new_number, self.mark_number, self.model_number) if number]

    @property
    def aside(self) -> bool:
        """Whether new vectors are in a table of their own."""
        return not self.new_number


@dataclass(frozen=True)
class TableEntry(AttachmentEntry[TableRecord]):
    """An attachment as the ledger has it; the table of its record has its current name.

    Args:
        gone: Why its table is missing, in words; empty if it exists.
        relation: The number under which the ledger has its table.
        restored: Whether its numbers are those of another database, from which the ledger was restored.
    """

    gone: str = ""
    relation: int = 0
    restored: bool = False


class TableLedger(AttachmentLedger[TableRecord]):
    """The ledger of a database; every call but `is_there` must be in a transaction.

    Args:
        database: The database of the attached tables.
    """

    records, prefix = TypeAdapter(TableRecord), f"{SCHEMA}."
    database: PostgresDatabase

    def is_there(self) -> bool:
        """Say whether the database has a ledger.

        Raises:
            GalleryError: This version does not know the format of the ledger.
            LastingStoreError: Another role owns the ledger and must not get the privileges of a superuser.
        """
        kept = self.database.kept
        if kept is not None and SCHEMA in kept:
            return True
        there = self.database.rows(
            "SELECT pg_has_role(nspowner, 'USAGE'), quote_ident(pg_get_userbyid(nspowner)), quote_ident(current_user), "
            "current_setting('is_superuser') = 'on' AND NOT rolsuper "
            f"FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner WHERE nspname = '{SCHEMA}' "
            f"AND to_regclass('{SCHEMA}.attachments') IS NOT NULL"
        )
        if not there:
            return False
        [(held, owner, role, lent)] = there
        if lent:
            raise LastingStoreError(
                f"The ledger, the schema {SCHEMA}, belongs to {owner}, and {role} is a superuser, with whose rights "
                "triggers and views of that role would run.",
                expected=f"the role {owner}",
                to_do=f"repeat it after: export PGOPTIONS='-c role={owner}'.",
                intact="Nothing was changed.",
            )
        if not held:
            raise LastingStoreError(
                f"The ledger, the schema {SCHEMA}, belongs to {owner}, and this role is {role}.",
                expected=f"GRANT {owner} TO {role};",
                to_do="let an administrator run this, or start the upgrade as that role.",
                intact="Nothing was changed.",
            )
        self.check_format(f"The schema {SCHEMA}")
        if kept is not None:
            kept.add(SCHEMA)
        return True

    def lock(self) -> None:
        """Prevent others from attaching in this transaction: lock the ledger, or create it if this role may.

        Only roles that may write the ledger can hold this lock, unlike an advisory lock.

        Raises:
            LockedError: Another process is creating the ledger, or has just created it.
            GalleryError: The schema exists, without a ledger.
        """
        if self.is_there():
            super().lock()
            return
        [(there, may_create)] = self.database.rows(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s), "
            "has_database_privilege(current_database(), 'CREATE')", [SCHEMA],
        )  # fmt: skip
        if there and self.is_there():
            raise locked()
        if there:
            raise GalleryError(
                f"The database has a schema {SCHEMA} without the tables of a ledger.",
                expected="no schema of that name before the first upgrade is started",
                to_do=f"look what is in it, then run DROP SCHEMA {SCHEMA}.",
                intact="Nothing was changed.",
            )
        if not may_create:
            return
        try:
            self.database.rows(CREATE)
        except StoreError as error:
            if isinstance(error.__cause__, (UniqueViolation, DuplicateSchema)):
                raise locked() from error
            raise

    def begin(self, record: TableRecord, event: AttachmentEvent) -> TableEntry:
        """Add an attachment."""
        oid, name = record.table.oid, record.table.vector.name
        further = {"relation": ("?::oid::regclass", oid), "vector": ("?", name), "place": (_place("?"), oid)}
        return self.entry(self.add(record, event, **further))

    def renew_rights(self) -> None:
        """Grant the privileges on the ledger again, since a dump may have been restored without them."""
        self.database.rows(_RIGHTS)

    def describe(self, number: int, record: TableRecord) -> None:
        """Replace the record of an attachment in this database."""
        oid = record.table.oid
        self.database.execute(
            f"UPDATE {SCHEMA}.attachments SET record = ?, relation = ?::oid::regclass, place = {_place('?')} "
            "WHERE id = ?", [written(record), oid, oid, number],
        )  # fmt: skip

    def entry(self, number: int, *, lock: bool = False) -> TableEntry:
        """Return an attachment.

        Args:
            number: Number of the attachment.
            lock: Prevent others from changing its state within this transaction.

        Raises:
            GalleryError: The attachment no longer exists.
        """
        found = (
            self._entries(f"WHERE id = {number}{' FOR UPDATE OF attachments' if lock else ''}")
            if self.is_there()
            else []
        )
        if not found:
            raise GalleryError(
                "The upgrade is there no more: it was finished or cancelled.",
                to_do="`limpet upgrade start` starts another one.",
            )
        return found[0]

    def hold(self, number: int) -> None:
        """Prevent changes of an attachment's state within this transaction; other transactions may hold it as well."""
        self.database.send(f"SELECT FROM {SCHEMA}.attachments WHERE id = {number} FOR SHARE")

    def entries(self) -> list[TableEntry]:
        """Return all attachments of the database."""
        return self._entries("ORDER BY id") if self.is_there() else []

    def _entries(self, clause: str) -> list[TableEntry]:
        entries = []
        for relation, here, schema, name, *row in self.database.rows(
            f"SELECT relation::oid, place = {_HERE}, nspname, relname, id, record, state, started "
            f"FROM {SCHEMA}.attachments LEFT JOIN pg_class ON pg_class.oid = relation "
            f"LEFT JOIN pg_namespace ON pg_namespace.oid = relnamespace {clause}"
        ):
            found = TableEntry(**vars(self.read(row)), relation=int(relation), restored=not here)
            table = found.record.table
            called, gone = f"{table.schema}.{table.name}", ""
            if not here:
                gone = f"The ledger was restored from a dump, and not the table {called} with its triggers"
            elif name is None:
                gone = f"The table {called} is gone"
            else:  # it may have been renamed
                table = replace(table, schema=str(schema), name=str(name))
            entries.append(replace(found, record=replace(found.record, table=table), gone=gone))
        return entries

    def reached(self, number: int) -> list[str] | None:
        """Return the key up to which rows were handed out to be filled, and lock it until the next ones are taken."""
        [(key,)] = self.database.rows(f"SELECT reached FROM {SCHEMA}.attachments WHERE id = {number} FOR UPDATE")
        return None if key is None else [str(part) for part in key]

    def set_reached(self, number: int, key: Sequence[str] | None) -> None:
        """Store the key up to which rows were handed out; None for a pass that ended."""
        self.database.send(
            f"UPDATE {SCHEMA}.attachments SET reached = %s::text[] WHERE id = %s", [key if key is None else list(key),
                                                                                  number]
        )  # fmt: skip

    def end(self, entry: TableEntry, event: AttachmentEvent) -> None:
        """Write the last event to the journal, and remove an attachment.

        The journal stays, and so does `model_of`, which stored functions and queries of the application may call.
        """
        table = entry.record.table
        self.note(entry.id, {**event, "schema": table.schema, "table": table.name, "vector": table.vector.name})
        self.database.rows(f"DELETE FROM {SCHEMA}.attachments WHERE id = %s", [entry.id])

    def ended(self, address: TableAddress) -> list[dict[str, object]]:
        """Return the journal of the last upgrade of the table of a URL that ended; empty if there is none."""
        found = self.database.execute(_ENDED, [address.table, address.vector]) if self.is_there() else []
        return [event for (number,) in found for event in self.journal(number)]
