"""Preparation of an attachment to a table: its privileges, refusals and SQL, known before anything changes."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

from limpet.attached.base import StartPlan
from limpet.attached.postgres.identity import leftovers, recognise
from limpet.attached.postgres.indexes import check_index, new_type, wanted
from limpet.attached.postgres.layout import AnyLayout, OneColumn, layout_in, relation_of
from limpet.attached.postgres.ledger import CREATE, SCHEMA, TableEntry, TableLedger, TableRecord
from limpet.attached.postgres.same_column import refuse_mixing
from limpet.attached.postgres.statements import turn_statements, turned
from limpet.attached.postgres.table import (
    bound,
    firing_triggers,
    hidden_rows,
    inspect,
    refusals,
    relation_named,
    rights,
    row_types,
)
from limpet.attached.postgres.triggers import create_statements, drop_statement
from limpet.attached.state import AttachmentEvent, AttachmentState, advance
from limpet.engines.postgres.database import PostgresDatabase
from limpet.engines.postgres.graphs import WIDEST_INDEXED
from limpet.engines.postgres.table_address import TableAddress, read_table_address
from limpet.engines.sides import SIDES
from limpet.errors import ConfigError, GalleryError, LastingStoreError, UpgradeStateError, refuse
from limpet.evaluation.results import Evaluation
from limpet.upgrade.model import UpgradeModel


class Preparation:
    """Facts about a table before it is attached, read in one transaction.

    Args:
        database: Connection to the database, within a transaction.
        old: Fingerprint and note of the model of the existing vectors; its dimension is that of the vectors.
        new: The new model.
        aside: Keep new vectors in a table of their own.
        mixing: Evaluation that allows writing them to the column of the old ones; None to add a column.
        fire_triggers: Let the backfill fire the application's own triggers.
        index: Part of each new vector that indexes hold, see `attach`.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        address: TableAddress,
        old: UpgradeModel,
        new: UpgradeModel,
        *,
        aside: bool,
        mixing: Evaluation | None,
        fire_triggers: bool,
        index: str,
    ) -> None:
        refuse(mixing is not None and index != "whole", f"--index {index} with vectors in the column of the old ones.",
               "no --index: the index that is there serves both models")  # fmt: skip
        refuse(aside and mixing is not None, "New vectors aside, and in the column of the old ones.", "one of the two")
        left = leftovers(database, relation_named(database, address.table)[0])
        if left:
            raise GalleryError(
                f"The table {left[0]}.",
                expected="a table without them",
                to_do="run that, then repeat.",
                intact="Nothing was changed.",
            )
        table = inspect(database, address)
        if old.dim and old.dim != table.dim:
            raise ConfigError(
                f"The vectors in {table.schema}.{table.name} have the dimension {table.dim}, those of "
                f"{old.fingerprint} {old.dim}.",
                expected="the model that made the vectors which are there",
                to_do="name that model, or another column.",
            )
        self.database, self.table, self.aside, self.shared = database, table, aside, mixing is not None
        if mixing is not None:
            refuse_mixing(mixing, table, replace(old, dim=table.dim), new)
            kind = table.vector.type
        else:
            check_index(index, table.kind, new.dim)
            # An index of the application over bits takes any dimension.
            whole = index == "whole" and any("bit_" not in one.definition for one in table.indexes)
            kind = new_type(table.kind, new.dim, indexed=whole)
        triggers = [] if aside else firing_triggers(database, table)
        self.record = TableRecord(
            table, replace(old, dim=table.dim), new, kind, str(uuid.uuid4()), int(not aside), int(not aside),
            fires=fire_triggers, model_number=int(self.shared), index=index,
        )  # fmt: skip
        self.rights = rights(database, table, SCHEMA, aside=aside, shared=self.shared,
                             silent=bool(triggers) and not fire_triggers)  # fmt: skip
        self.refusals = hidden_rows(database, table) + ([] if aside else refusals(database, table))
        if not aside and not self.shared:
            self.refusals += bound(database, table)
        self.silenced, self.row_types = triggers, [] if aside else row_types(database, table)
        self._refuse_taken_names()

    def _refuse_taken_names(self) -> None:
        if self.aside:
            return
        entry, own = self.entry(0), self.table.vector.name
        layouts = [layout_in(entry, "", turned(entry.state, side)) for side in SIDES]
        names = {name for one in layouts for name in (one.home, *(name for name, _ in one.added.values()))} - {own}
        taken = self.database.rows(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attname = ANY(%s) AND NOT attisdropped",
            [self.table.oid, sorted(names)],
        )
        if taken:
            self.refusals.append(
                f"it has columns of the names that are to be added: {', '.join(str(name) for (name,) in taken)}"
            )

    def refuse(self) -> None:
        """Refuse a table that cannot be attached.

        Raises:
            LastingStoreError: Privileges are missing; the message has the statement that grants each.
            GalleryError: The table cannot be attached.
        """
        lacking = [right.statement for right in self.rights if not right.held]
        if lacking:
            aside = "" if self.aside else " Without rights to alter the table, --aside keeps new vectors beside it."
            raise LastingStoreError(
                f"Rights are lacking for {self.table.schema}.{self.table.name}.",
                expected=" ".join(lacking),
                to_do=f"let an administrator run these.{aside}",
                intact="Nothing was changed.",
            )
        if self.refusals:
            raise GalleryError(
                f"{self.table.schema}.{self.table.name} cannot be upgraded in place: {'; '.join(self.refusals)}.",
                to_do=f"change that{'' if self.aside else ', or keep new vectors beside the table by --aside'}.",
                intact="Nothing was changed.",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes to read before the start."""
        notes = [] if self.aside else [
            "SELECT * returns three more columns from now on; a prepared SELECT * fails once in every session. "
            "A vector that a statement copies from another row counts as of the model that the "
            "application writes with.",
        ] if self.shared else [
            "SELECT * returns two more columns from now on; a prepared SELECT * fails once in every session. After "
            "finish, the vectors are the table's last column. Name the columns in SELECT and INSERT.",
        ]  # fmt: skip
        old, new = self.record.old, self.record.new
        if old.dim != new.dim:
            notes.append(
                f"The new model has {new.dim} dimensions, the old one {old.dim}. After a swap, queries and writes with "
                "the old model fail: your application must change its model at that moment."
            )
        if self.record.new_type.partition("(")[0] != self.table.kind:
            where = "the table of new vectors" if self.aside else f"the column {self.table.vector.name}, after a swap,"
            notes.append(
                f"What the application reads from {where} has the type {self.record.new_type} instead of "
                f"{self.table.vector.type}: pgvector indexes more than {WIDEST_INDEXED['vector']:,} numbers in no "
                "other type. Its client has to decode that type: pgvector-python returns a HalfVector, whose "
                "to_numpy() gives the array. Queries and writes with $1::vector go on to work, and use the index. "
                f"With --index bits, first:N or none the type stays {self.table.kind}."
            )
        if self.record.index != "whole" and self.table.indexes:
            name, _, count = self.record.index.partition(":")
            used = ("The application's search does not use them as it is written. It has to take more rows from the "
                    "index and compare them by whole vectors, as `limpet upgrade status` prints it. ")  # fmt: skip
            said = {
                "none": "No index over new vectors is built: every search compares all rows.",
                "bits": f"Indexes over new vectors hold the sign of every number. {used}Signs tell directions, not "
                "lengths.",
                "first": f"Indexes over new vectors hold the first {count} numbers of each. {used}That is for models "
                "that were trained for it (Matryoshka).",
            }
            notes.append(said[name])
        if self.row_types:
            notes.append(
                f"Rows of the table are taken or returned by {', '.join(self.row_types)}: one that names the columns "
                "that it returns has to return the added ones too, or a type of its own."
            )
        secured = "SELECT 1 FROM pg_class WHERE oid = %s AND relrowsecurity"
        if self.aside and self.database.rows(secured, [self.table.oid]):
            notes.append("The table has row-level security, so nobody is given the right to read the new vectors: "
                         "GRANT SELECT ON the table of vectors to whom may see all of them.")  # fmt: skip
        if self.silenced:
            how = "are fired" if self.record.fires else "are not fired (session_replication_role)"
            notes.append(f"The application's triggers {', '.join(self.silenced)} {how} by filling.")
        return tuple(notes)

    def entry(self, number: int) -> TableEntry:
        """Return the attachment as a start would create it."""
        state = advance(AttachmentState(), self.event)
        return TableEntry(number, self.record, state, datetime.now().astimezone())

    @property
    def event(self) -> AttachmentEvent:
        """The event that starts it."""
        record = self.record
        return {"kind": "start", "old": record.old.fingerprint, "new": record.new.fingerprint,
                "swappable": not self.aside} | ({"shared": True} if self.shared else {})  # fmt: skip

    def grants(self) -> list[tuple[str, str]]:
        """Return the privileges on the vector column alone: each privilege and its grantee, with any grant option.

        For vectors in a table of their own, return the roles that may read the application's table, and so its new
        vectors; return none if that table has row-level security.
        """
        if self.aside:
            return [
                ("SELECT", str(role))
                for (role,) in self.database.rows(
                    "SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END "
                    "FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner))) WHERE oid = %s "
                    "AND privilege_type = 'SELECT' AND NOT relrowsecurity ORDER BY 1", [self.table.oid],
                )
            ]  # fmt: skip
        return [
            (str(privilege), str(role))
            for privilege, role in self.database.rows(
                "SELECT privilege_type, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) "
                "END || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END "
                "FROM pg_attribute, aclexplode(attacl) WHERE attrelid = %s AND attnum = %s",
                [self.table.oid, self.table.vector.number],
            )
        ]

    def layout(self, entry: TableEntry, relation: str) -> AnyLayout:
        """Return the layout as a start would create it."""
        return layout_in(entry, relation, entry.state)

    def table_statements(self, entry: TableEntry, relation: str) -> list[str]:
        """Return the statements that change the table."""
        layout = self.layout(entry, relation)
        made = create_statements(entry, layout, entry.state)
        return [*layout.make(self.grants()), *made]


def meant(entry: TableEntry, address: TableAddress) -> bool:
    """Return whether a URL refers to an attachment."""
    table = entry.record.table
    return address.table in ("", table.name, f"{table.schema}.{table.name}") and address.vector in (
        "", table.vector.name
    )  # fmt: skip


def known(
    database: PostgresDatabase, address: TableAddress, old: UpgradeModel, new: UpgradeModel, *, shared: bool
) -> int | None:
    """Return the existing attachment of a table, if it is of these models.

    Raises:
        UpgradeStateError: The existing attachment is of other models.
    """
    recognise(database)
    entries = TableLedger(database).entries()
    oid = relation_named(database, address.table)[0] if entries else 0
    for entry in entries:
        if entry.relation == oid and meant(entry, address):
            relation_of(entry)
            state = entry.state
            for what, said, there in (("texts", address.texts, entry.record.table.texts),
                                      ("id", address.key, entry.record.table.key)):  # fmt: skip
                if said and sorted(said) != sorted(column.name for column in there):
                    raise UpgradeStateError(
                        f"{entry.record.table.schema}.{entry.record.table.name} has an upgrade already, with other "
                        f"columns as {what}: {', '.join(column.name for column in there) or 'none'}.",
                        to_do="leave them out to go on with it; or finish or cancel it first, and start anew.",
                    )
            if (state.old, state.new, state.shared) == (old.fingerprint, new.fingerprint, shared):
                return entry.id
            raise UpgradeStateError(
                f"{entry.record.table.schema}.{entry.record.table.name} has an upgrade already: from {state.old} to "
                f"{state.new}, {'in one column, ' if state.shared else ''}{state.phase}.",
                to_do="`limpet upgrade status` shows it; finish or cancel it first.",
            )
    return None


def plan(
    url: str,
    *,
    old: UpgradeModel,
    new: UpgradeModel,
    aside: bool = False,
    mixing: Evaluation | None = None,
    fire_triggers: bool = False,
    index: str = "whole",
) -> StartPlan:
    """Return the effects of a start, in SQL, and the privileges that it requires; nothing is changed."""
    address = read_table_address(url)
    database = PostgresDatabase(address.database)
    try:
        with database.transaction():
            there = known(database, address, old, new, shared=mixing is not None)
            if there is not None:
                raise UpgradeStateError(
                    "The table has an upgrade already, for these models.",
                    expected="one that is not",
                    to_do="`limpet upgrade status` shows where it stands, and what comes next.",
                )
            it = Preparation(database, address, old, new, aside=aside, mixing=mixing, fire_triggers=fire_triggers,
                             index=index)  # fmt: skip
            entry, ledger = it.entry(1), TableLedger(database)
            relation = it.table.identifier
            begin = [] if ledger.is_there() else [CREATE]
            steps = {"start": (*begin, *it.table_statements(entry, relation))}
            if not it.shared:
                steps["index"] = tuple(
                    statement
                    for one in wanted(database, entry, it.layout(entry, relation))
                    for statement in one.statements()
                )
            layout = it.layout(entry, relation)
            if isinstance(layout, OneColumn):  # a swap and a rollback change a pointer in the ledger
                steps["rollback"] = (OneColumn(entry, relation, "old").put_back(None, after=False),)
            elif not aside:
                swapped = replace(entry, state=turned(entry.state, "new"))
                steps["swap"] = tuple(turn_statements(entry, relation, "new"))
                steps["rollback"] = tuple(turn_statements(swapped, relation, "old"))
            cancelled = layout_in(entry, relation, turned(entry.state, "old"))
            steps["cancel"] = (drop_statement(entry), *cancelled.remove())
            return StartPlan(tuple(it.refusals), steps, tuple(it.rights), it.notes)
    finally:
        database.close()
