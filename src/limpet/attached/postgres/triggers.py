"""What marks rows that an application writes: no vector of one model is to stand for another's, or for an earlier text.

Where both vectors are in columns of one row, the row itself is the mark: a missing vector is to be filled in, and a
third column says when the application last changed the row, by which a filling knows whether a vector that it made is
still of that row. No second table is written to, and the application's roles need no rights.

Where vectors of both models share a column, a vector that the application writes is of the model that it writes with,
and what was kept beside it is of the same text or gone.

Conditions on columns are in the triggers, not in the function: there PostgreSQL knows them by number, so that another
name of a text column changes nothing, and it refuses to drop one while it counts. Dropped with CASCADE, a column takes
the triggers along that name it, so that the application's writes do not fail.
"""

from __future__ import annotations

from limpet.attached.postgres.layout import BEFORE, AnyLayout, Aside, Columns, OneColumn, keys, same_key
from limpet.attached.postgres.ledger import SCHEMA, Entry
from limpet.attached.postgres.session import literal, quoted
from limpet.attached.postgres.table import Column
from limpet.attached.state import AttachmentState

_COMPARED_AS_THEY_ARE = ("text", "character varying", "integer", "bigint", "uuid", "boolean")


_NOW = "(date_part('epoch', clock_timestamp()) * '1000000'::double precision)::bigint"  # as pg_catalog has it exactly
_MOVED = -1  # a new row whose vector is about to be moved


def trigger_name(entry: Entry, what: str) -> str:
    """Return the name of a trigger; those that begin with z are the last of those that PostgreSQL fires for a row."""
    return f"zz_limpet_{entry.id}_{what}"


def drop_statement(entry: Entry) -> str:
    """Return what removes the triggers with their function; nobody has to own the table for that."""
    return f"DROP FUNCTION IF EXISTS {SCHEMA}.on_write_{entry.id}() CASCADE"


def create_statements(entry: Entry, layout: AnyLayout, state: AttachmentState, extension: str) -> list[str]:
    """Return what makes the function of the triggers and, in place of earlier ones, the triggers.

    Args:
        entry: The attachment.
        layout: Its layout in that state.
        state: Which is to hold from now on.
        extension: Schema of pgvector.
    """
    if isinstance(layout, Aside):
        return _aside(entry, layout)
    if isinstance(layout, OneColumn):
        return [one_column_function(entry, layout, state, extension), *_triggers(entry, layout)]
    return [_function(entry, layout, state, extension), *_triggers(entry, layout)]


def _changed(columns: tuple[Column, ...]) -> str:
    parts = []
    for column in columns:
        cast = "" if column.type.partition("(")[0] in _COMPARED_AS_THEY_ARE else "::text"
        parts.append(f"OLD.{quoted(column.name)}{cast} IS DISTINCT FROM NEW.{quoted(column.name)}{cast}")
    return " OR ".join(parts) or "false"


def _trigger(entry: Entry, relation: str, what: str, when: str, condition: str = "") -> list[str]:
    name = quoted(trigger_name(entry, what))
    return [
        *([] if entry.record.aside else [f"DROP TRIGGER IF EXISTS {name} ON {relation}"]),
        f"CREATE TRIGGER {name} {when} ON {relation} FOR EACH {'STATEMENT' if what == 'truncate' else 'ROW'} "
        f"{f'WHEN ({condition}) ' if condition else ''}EXECUTE FUNCTION {SCHEMA}.on_write_{entry.id}({literal(what)})",
        *([] if entry.record.aside else [f"ALTER TABLE {relation} ENABLE ALWAYS TRIGGER {name}"]),
    ]


def _triggers(entry: Entry, layout: Columns | OneColumn) -> list[str]:
    table, source = entry.record.table, _changed(entry.record.table.texts)
    vectors = [layout.home, *(name for name, _ in layout.added.values())]
    watched = [*vectors, *(column.name for column in table.key)]  # another key: it is no row that was handed out
    row = " OR ".join(f"OLD.{quoted(name)} IS DISTINCT FROM NEW.{quoted(name)}" for name in watched)
    there = " AND ".join(f"(NEW.{quoted(name)} IS NULL) IS NOT NULL" for name in vectors)  # goes with the columns
    kinds = {
        "insert": ("BEFORE INSERT", there),
        "moved": ("AFTER INSERT", f"NEW.{quoted(layout.edited_name)} = {_MOVED}"),
        "source": ("BEFORE UPDATE", f"({source}) AND {there}"),
        "row": ("BEFORE UPDATE", f"NOT ({source}) AND ({row})"),
    }
    return [statement for what in layout.triggers for statement in _trigger(entry, layout.relation, what, *kinds[what])]


def _function(entry: Entry, layout: Columns, state: AttachmentState, extension: str) -> str:
    """Return the function of the triggers.

    A vector that is inserted with the model that does not serve is moved after the insertion, not before: a statement
    with ON CONFLICT DO UPDATE takes over what is there before.
    """
    record, served, hidden, edited = entry.record, *map(
        quoted, (layout.served, layout.hidden_name, layout.edited_name)
    )  # fmt: skip
    serving, passive = state.fingerprint(layout.serving), state.fingerprint("old" if layout.serving == "new" else "new")
    table, old = record.table, quoted(layout.name("old"))
    one_dim = record.old.dim == record.new.dim
    moved = f"UPDATE %I.%I AS t SET {hidden} = ($1).{served}, {served} = NULL, {edited} = {_NOW} " \
            f"WHERE {same_key(record, 't', '($1)')}"  # fmt: skip
    keeps = layout.serving == "new" and bool(table.texts)  # an old vector is of the same texts as before
    body = f"""
DECLARE
    model text := current_setting('limpet.writes_with', true);
    serves boolean := {"true" if state.writes == layout.serving or not one_dim else "false"};
    changed boolean;
    wanted boolean;
BEGIN
    IF current_setting('limpet.filling', true) = 'on' THEN
        RETURN NEW;
    END IF;
    IF model <> '' AND TG_ARGV[0] <> 'moved' THEN
        serves := model = {literal(serving)};
        IF NOT serves AND {f"model <> {literal(passive)}" if one_dim else "true"} THEN
            RAISE EXCEPTION 'limpet.writes_with is %, and the column % holds vectors of %',
                model, {literal(layout.served)}, {literal(serving)} USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF TG_ARGV[0] = 'insert' THEN
        IF NEW.{edited} IS NOT NULL THEN  -- a row that comes from another partition
            RETURN NEW;
        END IF;
        {_not_null(layout, f"NEW.{served} IS NULL AND NEW.{hidden} IS NULL")}
        IF NEW.{served} IS NULL THEN  -- by a statement that names no columns, which may be one with ON CONFLICT
            NEW.{served} := NEW.{hidden};
        END IF;
        NEW.{hidden} := NULL;
        NEW.{edited} := CASE WHEN NEW.{served} IS NULL THEN 0 WHEN serves THEN {_NOW} ELSE {_MOVED} END;
        RETURN NEW;
    END IF;
    IF TG_ARGV[0] = 'moved' THEN
        PERFORM set_config('limpet.filling', 'on', true);
        EXECUTE format({literal(moved)}, TG_TABLE_SCHEMA, TG_TABLE_NAME) USING NEW;
        PERFORM set_config('limpet.filling', '', true);
        RETURN NULL;
    END IF;
    NEW.{hidden} := OLD.{hidden};
    NEW.{edited} := OLD.{edited};
    changed := (NEW.{served} IS NULL) <> (OLD.{served} IS NULL)
        OR coalesce(NEW.{served} <> OLD.{served}, false);
    {_not_null(layout, f"changed AND NEW.{served} IS NULL")}
    wanted := CASE WHEN OLD.{edited} IS NULL THEN OLD.{old} IS NOT NULL ELSE OLD.{edited} > 0 END;
    IF changed THEN
        wanted := NEW.{served} IS NOT NULL;
    END IF;
    IF changed OR TG_ARGV[0] = 'source' THEN
        IF serves THEN
            IF TG_ARGV[0] = 'source' OR {"false" if keeps else "true"} OR NOT wanted THEN
                NEW.{hidden} := NULL;
            END IF;
        ELSE
            NEW.{hidden} := CASE WHEN changed THEN NEW.{served} END;
            NEW.{served} := CASE WHEN changed AND wanted AND TG_ARGV[0] = 'row' AND {"true" if table.texts else "false"}
                THEN OLD.{served} END;
        END IF;
    END IF;
    NEW.{edited} := CASE WHEN wanted THEN {_NOW} ELSE 0 END;
    RETURN NEW;
END
"""
    return _created(entry, body, f", {extension}")


def _created(entry: Entry, body: str, further_schemas: str = "") -> str:
    return (
        f"CREATE OR REPLACE FUNCTION {SCHEMA}.on_write_{entry.id}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        f"SET search_path = pg_catalog{further_schemas}, pg_temp AS {literal(body)}"
    )


def one_column_function(entry: Entry, layout: OneColumn, state: AttachmentState, extension: str) -> str:
    """Return the function of the triggers where vectors of both models share a column; no table is locked for it.

    A vector that was kept is recognised when it is written: by an application that read the row before the two changed
    places, and writes all of it.
    """
    own, kept, edited, model = map(quoted, (layout.home, layout.kept_name, layout.edited_name, layout.model_name))
    before = literal(BEFORE)
    body = f"""
DECLARE
    says text := current_setting('limpet.writes_with', true);
    writes text := {literal(state.writes)};
    was text;
    changed boolean;
BEGIN
    IF current_setting('limpet.filling', true) = 'on' THEN
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
        IF NEW.{edited} IS NULL THEN  -- else it comes from another partition
            NEW.{kept} := NULL;
            NEW.{model} := writes;
            NEW.{edited} := {_NOW};
        END IF;
        RETURN NEW;
    END IF;
    was := coalesce(OLD.{model}, 'old');
    changed := (NEW.{own} IS NULL) <> (OLD.{own} IS NULL) OR coalesce(NEW.{own} <> OLD.{own}, false);
    NEW.{kept} := OLD.{kept};
    NEW.{model} := was;
    IF changed AND TG_ARGV[0] = 'row' AND coalesce(NEW.{own} = OLD.{kept}, false) THEN
        NEW.{kept} := OLD.{own};
        NEW.{model} := CASE was WHEN 'old' THEN 'new' ELSE 'old' END;
    ELSIF changed THEN
        NEW.{kept} := CASE WHEN {"writes = 'new'" if entry.record.table.texts else "false"} AND TG_ARGV[0] = 'row'
            AND NEW.{own} IS NOT NULL THEN CASE was WHEN 'old' THEN OLD.{own} WHEN 'new' THEN OLD.{kept} END END;
        NEW.{model} := writes;
    ELSIF TG_ARGV[0] = 'source' THEN
        NEW.{kept} := NULL;
        IF was IN ('old', 'new') AND was <> writes THEN  -- the application replaces what it writes itself
            NEW.{model} := was || {before};
        END IF;
    END IF;
    NEW.{edited} := {_NOW};
    RETURN NEW;
END
"""
    return _created(entry, body, f", {extension}")


def _not_null(layout: Columns, condition: str) -> str:
    """Return what refuses rows that the application's own constraint would have refused."""
    table = layout.record.table
    if not table.not_null:
        return ""
    return (
        f"IF {condition} THEN RAISE EXCEPTION 'null value in column % of relation % violates not-null constraint', "
        f"{literal(table.vector.name)}, TG_TABLE_NAME USING ERRCODE = 'not_null_violation', "
        f"COLUMN = {literal(table.vector.name)}, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA; END IF;"
    )


def _aside(entry: Entry, layout: Aside) -> list[str]:
    """Return triggers that mark rows in the table of new vectors, with the rights of whoever attached."""
    record = entry.record
    table = record.table
    columns = ", ".join(quoted(column.name) for column in table.key)
    body = f"""
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        DELETE FROM {layout.table};
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND NOT ({same_key(record, "OLD", "NEW")})) THEN
        DELETE FROM {layout.table} AS s WHERE {same_key(record, "s", "OLD")};
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {layout.table} AS s ({columns}, edited) VALUES ({keys(record, "NEW")}, {_NOW})
            ON CONFLICT ({columns}) DO UPDATE SET vector = NULL, edited = excluded.edited;
    END IF;
    RETURN NULL;
END
"""
    relation = layout.relation
    any_change = _changed((*table.texts, *table.key))
    vector = quoted(table.vector.name)
    return [
        _created(entry, body),
        *_trigger(entry, relation, "insert", "AFTER INSERT"),
        *_trigger(
            entry, relation, "row", "AFTER UPDATE", f"{any_change} OR OLD.{vector} IS DISTINCT FROM NEW.{vector}"
        ),
        *_trigger(entry, relation, "delete", "AFTER DELETE"),
        *_trigger(entry, relation, "truncate", "AFTER TRUNCATE"),
    ]
