"""Triggers that mark rows the application writes, so that no vector is taken for one of another model or text.

If both vectors are in columns of one row, a third column holds the row's mark. It records when the application last
changed the row, which tells a backfill whether a vector that it made still belongs to the row. It also records which
vectors belong to the current text. No second table is written, and the application's roles need no privileges for it.

If vectors of both models share a column, a vector that the application writes belongs to the model that it writes with.
The vector kept beside it belongs to the same text, or is removed.

Functions run with the privileges of the writing role and change the current row only. Two functions write elsewhere,
with the privileges of their owners. One moves a vector within a row that was just inserted; the table owner owns it.
The other marks rows of a separate table; the role that started the upgrade owns it. No other role may create triggers
with them, and they refuse other tables.

Conditions on columns are in the triggers, not in the function. PostgreSQL stores the columns there by number, so that
renaming a text column changes nothing, and a column in use cannot be dropped. A drop with CASCADE also drops the
triggers that name the column, so that the application's writes do not fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from limpet.attached.postgres.layout import (
    AT_START,
    BEFORE,
    MOVED,
    NOW,
    WITHDRAWN,
    AnyLayout,
    Aside,
    ColumnLayout,
    OneColumn,
    digest,
    keys,
    same_key,
    text_of,
)
from limpet.attached.postgres.ledger import SCHEMA, TableEntry, closed
from limpet.attached.state import AttachmentState
from limpet.engines.postgres.database import WRITTEN_OUT, literal, quoted
from limpet.engines.sides import OTHER, SIDES

_FILLS = (  # any role may set it, and then call a function with its owner's privileges: it counts only if the writing
    # role may write the ledger, and the session's role may act as that role
    "coalesce(current_setting('limpet.filling', true) = 'on', false) "
    f"AND has_table_privilege('{SCHEMA}.attachments', 'UPDATE')"
    " AND pg_has_role(session_user, current_user, 'MEMBER')"
)
# Writes of the application's triggers to other rows meanwhile are the application's: the trigger depth is 0 in the
# condition of the first trigger, 1 in its function.
_IS_FILL = f"{_FILLS} AND pg_trigger_depth() = 0"


def trigger_name(entry: TableEntry, what: str) -> str:
    """Return the name of a trigger; PostgreSQL fires those that begin with z last for a row."""
    return f"zz_limpet_{entry.id}_{what}"


def drop_statement(entry: TableEntry) -> str:
    """Return the statement that drops the triggers with their functions; it does not require owning the table."""
    functions = ", ".join(f"{_named(entry, function)}()" for function in ("on_write", "on_move"))
    return f"DROP FUNCTION IF EXISTS {functions} CASCADE"


def create_statements(entry: TableEntry, layout: AnyLayout, state: AttachmentState) -> list[str]:
    """Return the statements that create the trigger functions and create or replace the triggers."""
    triggers = _aside_triggers(entry, layout) if isinstance(layout, Aside) else _triggers(entry, layout)
    return [*function_statements(entry, layout, state), *triggers]


def function_statements(entry: TableEntry, layout: AnyLayout, state: AttachmentState) -> list[str]:
    """Return the statements that create the trigger functions; they lock no table. See `create_statements`."""
    if isinstance(layout, Aside):
        made = {"on_write": _aside_function(entry, layout)}
    elif isinstance(layout, OneColumn):
        made = {"on_write": _one_column_function(entry, layout, state)}
    else:
        made = {"on_write": _function(entry, layout, state), "on_move": _moving_function(entry, layout, state)}
    return [*made.values(), closed(*(f"FUNCTION {_named(entry, one)}()" for one in made)), _given(entry, layout, made)]


def _given(entry: TableEntry, layout: AnyLayout, functions: Iterable[str]) -> str:
    """Return the statements that grant functions to the table's owner, which uses them or creates partitions.

    The owner of a table creates its partitions, for which PostgreSQL requires the right to execute their triggers. If
    a superuser attaches, our update of a row fires the triggers of the table's owner with that role's privileges only.
    """
    execute = "".join(
        f"EXECUTE format('GRANT EXECUTE ON FUNCTION {_named(entry, one)}() TO %I', one.owner); " for one in functions
    )
    body = f"""
DECLARE
    one record;
BEGIN
    SELECT pg_get_userbyid(relowner) AS owner, has_schema_privilege(relowner, '{SCHEMA}', 'CREATE') AS creates,
        EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('{_named(entry, "on_move")}()')
            AND proowner <> relowner) AS moves
        INTO one FROM pg_catalog.pg_class WHERE oid = {literal(layout.relation)}::regclass;
    IF one.owner <> current_user THEN
        {execute if entry.record.table.partitioned else ""}
    END IF;
    IF one.moves THEN
        IF NOT one.creates THEN
            EXECUTE format('GRANT CREATE ON SCHEMA {SCHEMA} TO %I', one.owner);
        END IF;
        EXECUTE format('ALTER FUNCTION {_named(entry, "on_move")}() OWNER TO %I', one.owner);
        IF NOT one.creates THEN
            EXECUTE format('REVOKE CREATE ON SCHEMA {SCHEMA} FROM %I', one.owner);
        END IF;
    END IF;
END
"""
    return f"DO {literal(body)}"


def _named(entry: TableEntry, function: str) -> str:
    return f"{SCHEMA}.{function}_{entry.id}"


def _rows_differ(one: Sequence[str], another: Sequence[str]) -> str:
    """Return whether values differ in a bit, without an operator: a dump loses operators of other schemas."""
    return f"record_image_ne(ROW({', '.join(one)}), ROW({', '.join(another)}))" if one else "false"


def _changed(columns: Iterable[str]) -> str:
    names = [quoted(name) for name in columns]
    return _rows_differ([f"OLD.{name}" for name in names], [f"NEW.{name}" for name in names])


def _trigger(entry: TableEntry, relation: str, what: str, when: str, condition: str = "") -> list[str]:
    name, function = quoted(trigger_name(entry, what)), _named(entry, "on_move" if what == "moved" else "on_write")
    return [
        *([] if entry.record.aside else [f"DROP TRIGGER IF EXISTS {name} ON {relation}"]),
        f"CREATE TRIGGER {name} {when} ON {relation} FOR EACH {'STATEMENT' if what == 'truncate' else 'ROW'} "
        f"{f'WHEN ({condition}) ' if condition else ''}EXECUTE FUNCTION {function}({literal(what)}, "
        f"{literal(entry.record.token)})",
        *([] if entry.record.aside else [f"ALTER TABLE {relation} ENABLE ALWAYS TRIGGER {name}"]),
    ]


def _triggers(entry: TableEntry, layout: ColumnLayout | OneColumn) -> list[str]:
    table, source = entry.record.table, _changed(column.name for column in entry.record.table.texts)
    vectors = [layout.home, *(name for name, _ in layout.added.values())]
    watched = [*vectors, *(column.name for column in table.key)]  # another key: not the row that was handed out
    there = " AND ".join(f"(NEW.{quoted(name)} IS NULL) IS NOT NULL" for name in vectors)  # dropped with the columns
    own, mark = quoted(layout.home if isinstance(layout, OneColumn) else layout.served), quoted(layout.mark_name)
    kinds = {
        "insert": ("BEFORE INSERT", there),
        "moved": ("AFTER INSERT", f"(NEW.{mark})[1] = {MOVED}"),
        "source": ("BEFORE UPDATE", f"({source}) AND {there}"),
        "row": ("BEFORE UPDATE", f"NOT ({source}) AND {_changed(watched)}"),
        # NULL written over NULL: the application withdraws a vector that was to be filled. Its name makes this trigger
        # fire before the others, which may themselves set a vector to NULL
        "nulled": (f"BEFORE UPDATE OF {own}", f"OLD.{own} IS NULL AND NEW.{own} IS NULL AND (OLD.{mark})[1] <> 0"),
    }
    if not entry.record.fires:
        for what in ("row", "nulled"):  # detects a text that the application's own triggers change during a fill
            when, condition = kinds[what]
            kinds[what] = when, f"NOT ({_IS_FILL}) AND ({condition})"
    return [statement for what in layout.triggers for statement in _trigger(entry, layout.relation, what, *kinds[what])]


def _function(entry: TableEntry, layout: ColumnLayout, state: AttachmentState) -> str:
    """Return the function of the triggers.

    A vector inserted with the model that does not serve is moved after the insertion, not before: a statement with
    ON CONFLICT DO UPDATE uses the values that it finds before.
    """
    record, serves, hides = entry.record, layout.serving, OTHER[layout.serving]
    served, hidden, mark = map(quoted, (layout.served, layout.hidden_name, layout.mark_name))
    serving, passive = state.fingerprint(serves), state.fingerprint(hides)
    one_dim, texts = record.old.dim == record.new.dim, bool(record.table.texts)
    keeps = serves == "new" and texts  # an old vector belongs to the same texts as before
    of_served, of_hidden = digest("texts", f"NEW.{served}"), digest("texts", f"NEW.{hidden}")
    place = {side: f"[{SIDES.index(side) + 2}]" for side in SIDES}

    def marked(first: str, digest_served: str, digest_hidden: str) -> str:
        by_side = {serves: digest_served, hides: digest_hidden}
        return f"ARRAY[{first}, {by_side['old']}, {by_side['new']}]::bigint[]"

    old = quoted(layout.name("old"))
    untouched = f"CASE WHEN (OLD.{mark})[1] = {AT_START} THEN {digest('texts', f'OLD.{old}')} END"
    was = {side: f"(OLD.{mark}){place[side]}" for side in SIDES}
    was["old"] = f"coalesce({was['old']}, {untouched})"
    same_served, same_hidden = (
        f"CASE WHEN (NEW.{mark}){place[side]} = {made} THEN (NEW.{mark}){place[side]} END"
        for side, made in ((serves, of_served), (hides, of_hidden))
    )
    # An update that moves a row to another partition has already fired these triggers, so its mark fits the row.
    first, known = f"(NEW.{mark})[1]", {side: f"(NEW.{mark}){place[side]}" for side in SIDES}
    copied = f"""{first} < 0 OR {first} = 0 AND (NEW.{served} IS NOT NULL OR NEW.{hidden} IS NOT NULL)
                OR {first} = {AT_START} AND {known["old"]} IS NULL
                OR {known[serves]} IS NOT NULL AND {known[serves]} IS DISTINCT FROM {of_served}
                OR {known[hides]} IS DISTINCT FROM (CASE WHEN NEW.{hidden} IS NOT NULL THEN {of_hidden} END)"""
    # a trigger of the application may have changed text or vectors in our own statement
    seen = f"""IF (NEW.{mark}){place[serves]} <> {of_served} OR (NEW.{mark}){place[hides]} <> {of_hidden} THEN
            NEW.{mark} := {marked(NOW, same_served, same_hidden)};
        END IF;"""
    body = f"""
DECLARE
    model text := current_setting('limpet.writes_with', true);
    serves boolean := {"true" if state.writes == serves or not one_dim else "false"};
    source boolean := TG_ARGV[0] = 'source';
    changed boolean;
    wanted boolean;
    of_served bigint;
    of_hidden bigint;
    texts text;
BEGIN
    {_texts(entry)}
    IF {_FILLS} AND pg_trigger_depth() = 1 THEN
        {seen}
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND (OLD.{mark})[1] = {MOVED} THEN
        IF (NEW.{mark})[1] > 0 THEN  -- it is being moved
            {seen}
        ELSIF {_changed([column.name for column in record.table.key])} THEN  -- it would not be found to be moved
            NEW.{hidden} := OLD.{served};
            NEW.{served} := NULL;
            NEW.{mark} := ARRAY[{NOW}, (OLD.{mark})[2], (OLD.{mark})[3]];
            {seen}
        ELSE  -- by a trigger of the application, before it is moved
            NEW.{hidden} := OLD.{hidden};
            NEW.{mark} := OLD.{mark};
        END IF;
        RETURN NEW;
    END IF;
    IF model <> '' THEN
        serves := model = {literal(serving)};
        IF NOT serves AND {f"model <> {literal(passive)}" if one_dim else "true"} THEN
            RAISE EXCEPTION 'limpet.writes_with is %, and the column % holds vectors of %',
                model, {literal(layout.served)}, {literal(serving)} USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF TG_ARGV[0] = 'insert' THEN
        IF NEW.{mark} IS NOT NULL THEN  -- a row that an update moves to another partition, or that a statement copies
            IF {copied} THEN
                NEW.{mark} := CASE WHEN NEW.{served} IS NULL THEN
                    ARRAY[CASE WHEN NEW.{hidden} IS NULL THEN 0 ELSE {NOW} END]::bigint[] END;
                NEW.{hidden} := NULL;
            END IF;
            RETURN NEW;
        END IF;
        {_not_null(layout, f"NEW.{served} IS NULL AND NEW.{hidden} IS NULL")}
        IF NEW.{served} IS NULL THEN  -- by a statement that names no columns, which may be one with ON CONFLICT
            NEW.{served} := NEW.{hidden};
        END IF;
        NEW.{hidden} := {f"CASE WHEN NOT serves THEN NEW.{served} END" if one_dim else "NULL"};
        of_hidden := {of_hidden};
        NEW.{hidden} := NULL;
        NEW.{mark} := CASE WHEN NEW.{served} IS NULL THEN ARRAY[0]::bigint[]
            WHEN serves THEN {marked(NOW, of_served, "NULL")} ELSE {marked(str(MOVED), "NULL", "of_hidden")} END;
        RETURN NEW;
    END IF;
    IF TG_ARGV[0] = 'nulled' THEN
        {_not_null(layout, "true")}
        NEW.{mark} := ARRAY[{WITHDRAWN}];  -- with which the next one is fired
        RETURN NEW;
    END IF;
    NEW.{hidden} := OLD.{hidden};
    changed := {_changed([layout.served])};
    {_not_null(layout, f"changed AND NEW.{served} IS NULL")}
    wanted := CASE WHEN changed THEN NEW.{served} IS NOT NULL
        WHEN (NEW.{mark})[1] = {WITHDRAWN} THEN NEW.{served} IS NOT NULL
        WHEN (OLD.{mark})[1] IS NULL THEN OLD.{served} IS NOT NULL OR OLD.{hidden} IS NOT NULL
        WHEN (OLD.{mark})[1] = {AT_START} THEN OLD.{old} IS NOT NULL
        ELSE (OLD.{mark})[1] <> 0 END;
    IF NOT wanted THEN
        NEW.{hidden} := NULL;
        NEW.{mark} := ARRAY[0];
        RETURN NEW;
    END IF;
    IF NOT source THEN
        of_served := {was[serves]};
        of_hidden := {was[hides]};
    END IF;
    IF changed AND serves THEN
        of_served := {of_served};
        of_hidden := {"of_hidden" if keeps else "NULL"};
    ELSIF changed THEN
        NEW.{hidden} := NEW.{served};
        of_hidden := {of_hidden if one_dim else "NULL"};
        NEW.{served} := CASE WHEN NOT source AND {"true" if texts else "false"} THEN OLD.{served} END;
        of_served := CASE WHEN NEW.{served} IS NOT NULL THEN of_served END;
    END IF;
    IF of_hidden IS NULL THEN
        NEW.{hidden} := NULL;
    END IF;
    NEW.{mark} := {
        marked(
            f"CASE WHEN (OLD.{mark})[1] IS NOT NULL OR NEW.{served} IS NULL OR of_served IS NOT NULL THEN {NOW} END",
            "of_served",
            "of_hidden",
        )
    };
    RETURN NEW;
END
"""
    return _created(entry, body, settings=_settings(entry))


def _texts(entry: TableEntry) -> str:
    """Return the expression that reads the row's text; it is unknown if one of its columns was renamed."""
    names = ", ".join(literal(column.name) for column in entry.record.table.texts)
    if not names:
        return "texts := '';"
    return (
        f"IF (SELECT count(*) FROM pg_attribute WHERE attrelid = TG_RELID AND attname IN ({names}) "
        f"AND NOT attisdropped) = {len(entry.record.table.texts)} THEN texts := {text_of(entry.record, 'NEW')}; END IF;"
    )


def _moving_function(entry: TableEntry, layout: ColumnLayout, state: AttachmentState) -> str:
    """Return the function that moves the vector of a new row to the other column; an inserting role may not update."""
    served, hidden, mark = map(quoted, (layout.served, layout.hidden_name, layout.mark_name))
    moved = f"UPDATE %I.%I AS t SET {hidden} = t.{served}, {served} = NULL, " \
            f"{mark} = ARRAY[{NOW}, (t.{mark})[2], (t.{mark})[3]] " \
            f"WHERE {same_key(entry.record, 't', '($1)')} AND (t.{mark})[1] = {MOVED}"  # fmt: skip
    left = f"SELECT count(*) FROM %I.%I AS t WHERE {same_key(entry.record, 't', '($1)')} AND (t.{mark})[1] = {MOVED}"
    body = f"""
DECLARE
    rows bigint;
BEGIN
    {_only_here(entry)}
    -- triggers of the table's owner are fired with the rights of this function
    IF NOT (SELECT pg_has_role(relowner, current_user, 'MEMBER') FROM pg_class WHERE oid = TG_RELID) THEN
        RAISE EXCEPTION 'the owner of % is not the role %, which owned it when it was attached',
            TG_RELID::regclass, current_user USING ERRCODE = 'insufficient_privilege',
            HINT = 'Run limpet upgrade writes --of {state.writes}, which gives the trigger to the new owner.';
    END IF;
    EXECUTE format({literal(moved)}, TG_TABLE_SCHEMA, TG_TABLE_NAME) USING NEW;
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows = 0 THEN
        EXECUTE format({literal(left)}, TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO rows USING NEW;
        IF rows > 0 OR row_security_active(TG_RELID) THEN  -- it would be found with vectors of the other model
            RAISE EXCEPTION 'a vector of the model that does not serve cannot be moved out of % of a new row of %',
                {literal(layout.served)}, TG_RELID::regclass USING ERRCODE = 'object_not_in_prerequisite_state',
                HINT = 'A trigger or row-level security keeps the owner of the table from updating the row. '
                    'Insert it with a vector of the model that serves, or without one.';
        END IF;
    END IF;
    RETURN NULL;
END
"""
    return _created(entry, body, "on_move", definer=True)


def _settings(entry: TableEntry) -> str:
    """Return settings that make values of other types than text render the same for every writer, and for us."""
    texts = all(re.match("text|character|citext", column.type) for column in entry.record.table.texts)
    return "" if texts else "".join(f" SET {name} = {literal(value)}" for name, value in WRITTEN_OUT.items())


def _created(
    entry: TableEntry, body: str, function: str = "on_write", *, definer: bool = False, settings: str = ""
) -> str:
    """Return the statement that creates a trigger function; its search path has no schema that others may create in."""
    return (
        f"CREATE OR REPLACE FUNCTION {_named(entry, function)}() RETURNS trigger LANGUAGE plpgsql "
        f"SECURITY {'DEFINER' if definer else 'INVOKER'} SET search_path = pg_catalog, pg_temp{settings} "
        f"AS {literal(body)}"
    )


def _only_here(entry: TableEntry) -> str:
    """Return the check that refuses a table that is neither the attached one nor a partition of it.

    After a dump and restore the table has another number, which the ledger knows at once.
    """
    table = entry.record.table
    root = "coalesce(pg_partition_root(TG_RELID), TG_RELID)"
    return f"""IF TG_RELID <> {table.oid} THEN
        IF NOT EXISTS (SELECT FROM pg_partition_ancestors(TG_RELID) WHERE relid = {table.oid}) THEN
            IF {SCHEMA}.model_of({root}, {literal(table.vector.name)}) IS NULL THEN
                RAISE EXCEPTION '% is a trigger of another table than %', TG_NAME, TG_RELID::regclass
                    USING ERRCODE = 'insufficient_privilege';
            END IF;
        END IF;
    END IF;"""


def _one_column_function(entry: TableEntry, layout: OneColumn, state: AttachmentState) -> str:
    """Return the function of the triggers where vectors of both models share a column.

    A kept vector is recognised when it is written: by an application that read the row before the two vectors were
    exchanged, and writes the whole row.
    """
    own, kept, mark, model = map(quoted, (layout.home, layout.kept_name, layout.mark_name, layout.model_name))
    made = digest("texts", f"NEW.{own}", f"NEW.{kept}")
    # a trigger of the application may have changed text or vector in our own statement
    seen = f"""IF (NEW.{mark})[2] <> {made} THEN
            NEW.{model} := split_part(NEW.{model}, ' ', 1) || {literal(BEFORE)};
            NEW.{kept} := NULL;
            NEW.{mark} := ARRAY[{NOW}, {made}];
        END IF;"""
    body = f"""
DECLARE
    says text := current_setting('limpet.writes_with', true);
    writes text := {literal(state.writes)};
    was text;
    changed boolean;
    texts text;
BEGIN
    {_texts(entry)}
    IF {_FILLS} AND pg_trigger_depth() = 1 THEN
        {seen}
        RETURN NEW;
    END IF;
    IF says <> '' THEN
        writes := CASE says WHEN {literal(state.old)} THEN 'old' WHEN {literal(state.new)} THEN 'new' END;
        IF writes IS NULL THEN
            RAISE EXCEPTION 'limpet.writes_with is %, and the column % holds vectors of % and %',
                says, {literal(layout.home)}, {literal(state.old)}, {literal(state.new)}
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF TG_ARGV[0] = 'insert' THEN
        IF NEW.{mark} IS NULL THEN
            NEW.{kept} := NULL;
            NEW.{model} := writes;
            NEW.{mark} := ARRAY[{NOW}, {made}];
        ELSIF (NEW.{mark})[2] IS DISTINCT FROM {made} THEN  -- a statement copies it, and changes it
            NEW.{kept} := NULL;
            NEW.{model} := NULL;
            NEW.{mark} := NULL;
        END IF;
        RETURN NEW;
    END IF;
    was := OLD.{model};
    changed := {_changed([layout.home])};
    NEW.{kept} := OLD.{kept};
    NEW.{model} := was;
    IF changed AND TG_ARGV[0] = 'row' AND NEW.{own} IS NOT NULL AND was IN ('old', 'new')
        AND NOT {_rows_differ([f"NEW.{own}"], [f"OLD.{kept}"])} THEN
        NEW.{kept} := OLD.{own};
        NEW.{model} := CASE was WHEN 'old' THEN 'new' ELSE 'old' END;
    ELSIF changed THEN
        NEW.{kept} := CASE WHEN {"writes = 'new'" if entry.record.table.texts else "false"} AND TG_ARGV[0] = 'row'
            AND NEW.{own} IS NOT NULL THEN CASE was WHEN 'old' THEN OLD.{own} WHEN 'new' THEN OLD.{kept} END END;
        NEW.{model} := writes;
    ELSIF TG_ARGV[0] = 'source' THEN
        NEW.{kept} := NULL;
        IF was IN ('old', 'new') THEN
            NEW.{model} := was || {literal(BEFORE)};
        END IF;
    END IF;
    NEW.{mark} := ARRAY[{NOW}, {made}];
    RETURN NEW;
END
"""
    return _created(entry, body, settings=_settings(entry))


def _not_null(layout: ColumnLayout, condition: str) -> str:
    """Return the check that refuses rows that the application's own constraint would have refused."""
    table = layout.record.table
    if not table.not_null:
        return ""
    return (
        f"IF {condition} THEN RAISE EXCEPTION 'null value in column % of relation % violates not-null constraint', "
        f"{literal(table.vector.name)}, TG_TABLE_NAME USING ERRCODE = 'not_null_violation', "
        f"COLUMN = {literal(table.vector.name)}, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA; END IF;"
    )


def _aside_function(entry: TableEntry, layout: Aside) -> str:
    """Return the trigger function that marks rows in the table of new vectors, with the privileges of its creator."""
    record = entry.record
    columns = ", ".join(quoted(column.name) for column in record.table.key)

    def alike(row: str) -> str:
        return " AND ".join(
            f"pg_typeof({row}.{quoted(column.name)}) = pg_typeof((NULL::{layout.table}).{quoted(column.name)})"
            for column in record.table.key
        )

    body = f"""
DECLARE
    same boolean;
BEGIN
    {_only_here(entry)}
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM {layout.table};
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN
        same := {alike("OLD")};
    ELSE
        same := {alike("NEW")};
    END IF;
    IF NOT same THEN  -- a cast of somebody else would be run with the rights of this function
        RAISE EXCEPTION 'the key of % has another type than when it was attached', TG_RELID::regclass
            USING ERRCODE = 'datatype_mismatch';
    END IF;
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND NOT ({same_key(record, "OLD", "NEW")})) THEN
        DELETE FROM {layout.table} AS s WHERE {same_key(record, "s", "OLD")};
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {layout.table} AS s ({columns}, edited) VALUES ({keys(record, "NEW")}, {NOW})
            ON CONFLICT ({columns}) DO UPDATE SET vector = NULL, digest = NULL, edited = excluded.edited;
    END IF;
    RETURN NULL;
END
"""
    return _created(entry, body, definer=True)


def _aside_triggers(entry: TableEntry, layout: Aside) -> list[str]:
    table, relation = entry.record.table, layout.relation
    changed = _changed(column.name for column in (*table.texts, *table.key, table.vector))
    return [
        *_trigger(entry, relation, "insert", "AFTER INSERT"),
        *_trigger(entry, relation, "row", "AFTER UPDATE", changed),
        *_trigger(entry, relation, "delete", "AFTER DELETE"),
        *_trigger(entry, relation, "truncate", "AFTER TRUNCATE"),
    ]
