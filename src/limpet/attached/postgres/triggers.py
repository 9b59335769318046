"""What marks rows that an application writes: no vector of one model is to stand for another's, or for an earlier text.

Where both vectors are in columns of one row, the row itself is the mark: a missing vector is to be filled in, and a
third column says when the application last changed the row, by which a filling knows whether a vector that it made is
still of that row. No second table is written to, and the application's roles need no rights.

Where vectors of both models share a column, a vector that the application writes is of the model that it writes with,
and what was kept beside it is of the same text or gone.

Functions run with the rights of whoever writes and change the row at hand alone. Two write elsewhere, with rights of
their owners: the one that moves a vector within a row that was just inserted is the table owner's, and the one that
marks rows of a table beside is the attacher's. Nobody else may make triggers of them, and they refuse other tables.

Conditions on columns are in the triggers, not in the function: there PostgreSQL knows them by number, so that another
name of a text column changes nothing, and it refuses to drop one while it counts. Dropped with CASCADE, a column takes
the triggers along that name it, so that the application's writes do not fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from limpet.attached.postgres.layout import BEFORE, AnyLayout, Aside, Columns, OneColumn, keys, same_key
from limpet.attached.postgres.ledger import SCHEMA, Entry, closed
from limpet.attached.postgres.session import literal, quoted
from limpet.attached.state import AttachmentState

_NOW = "(date_part('epoch', clock_timestamp()) * '1000000'::double precision)::bigint"  # as pg_catalog has it exactly
_MOVED = -1  # a new row whose vector is about to be moved
_FILLS = (  # anybody may set it: it counts where whoever writes may write into the ledger, too
    "coalesce(current_setting('limpet.filling', true) = 'on', false) "
    f"AND has_table_privilege('{SCHEMA}.attachments', 'UPDATE')"
)


def trigger_name(entry: Entry, what: str) -> str:
    """Return the name of a trigger; those that begin with z are the last of those that PostgreSQL fires for a row."""
    return f"zz_limpet_{entry.id}_{what}"


def drop_statement(entry: Entry) -> str:
    """Return what removes the triggers with their functions; nobody has to own the table for that."""
    functions = ", ".join(f"{_named(entry, function)}()" for function in ("on_write", "on_move"))
    return f"DROP FUNCTION IF EXISTS {functions} CASCADE"


def create_statements(entry: Entry, layout: AnyLayout, state: AttachmentState) -> list[str]:
    """Return what makes the functions of the triggers and, in place of earlier ones, the triggers.

    Args:
        entry: The attachment.
        layout: Its layout in that state.
        state: Which is to hold from now on.
    """
    triggers = _aside_triggers(entry, layout) if isinstance(layout, Aside) else _triggers(entry, layout)
    return [*function_statements(entry, layout, state), *triggers]


def function_statements(entry: Entry, layout: AnyLayout, state: AttachmentState) -> list[str]:
    """Return what makes the functions of the triggers; no table is locked for it. See `create_statements`."""
    if isinstance(layout, Aside):
        made = {"on_write": _aside_function(entry, layout)}
    elif isinstance(layout, OneColumn):
        made = {"on_write": _one_column_function(entry, layout, state)}
    else:
        made = {"on_write": _function(entry, layout, state), "on_move": _moving_function(entry, layout)}
    return [*made.values(), closed(*(f"FUNCTION {_named(entry, one)}()" for one in made)), _given(entry, layout, made)]


def _given(entry: Entry, layout: AnyLayout, functions: Iterable[str]) -> str:
    """Return what gives functions to the table's owner: to act with its rights, or to be triggers of its partitions.

    Whoever owns a table makes its partitions, for which PostgreSQL asks the right to execute their triggers. And where
    a superuser attaches, our update of a row fires the triggers of the table's owner with that role's rights alone;
    where row-level security is forced upon the owner, it might not see the row.
    """
    execute = "".join(
        f"EXECUTE format('GRANT EXECUTE ON FUNCTION {_named(entry, one)}() TO %I', one.owner); " for one in functions
    )
    body = f"""
DECLARE
    one record;
BEGIN
    SELECT pg_get_userbyid(relowner) AS owner, relforcerowsecurity AS forced,
        has_schema_privilege(relowner, '{SCHEMA}', 'CREATE') AS creates
        INTO one FROM pg_catalog.pg_class WHERE oid = {literal(layout.relation)}::regclass;
    IF one.owner = current_user THEN
        RETURN;
    END IF;
    {execute if entry.record.table.partitioned else ""}
    IF {"true" if "on_move" in functions else "false"} AND NOT one.forced THEN
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


def _named(entry: Entry, function: str) -> str:
    return f"{SCHEMA}.{function}_{entry.id}"


def _rows_differ(one: Sequence[str], another: Sequence[str]) -> str:
    """Return whether values differ in a bit, without an operator: those of other schemas do not come through a dump."""
    return f"record_image_ne(ROW({', '.join(one)}), ROW({', '.join(another)}))" if one else "false"


def _changed(columns: Iterable[str]) -> str:
    names = [quoted(name) for name in columns]
    return _rows_differ([f"OLD.{name}" for name in names], [f"NEW.{name}" for name in names])


def _trigger(entry: Entry, relation: str, what: str, when: str, condition: str = "") -> list[str]:
    name, function = quoted(trigger_name(entry, what)), _named(entry, "on_move" if what == "moved" else "on_write")
    return [
        *([] if entry.record.aside else [f"DROP TRIGGER IF EXISTS {name} ON {relation}"]),
        f"CREATE TRIGGER {name} {when} ON {relation} FOR EACH {'STATEMENT' if what == 'truncate' else 'ROW'} "
        f"{f'WHEN ({condition}) ' if condition else ''}EXECUTE FUNCTION {function}({literal(what)}, "
        f"{literal(entry.record.token)})",
        *([] if entry.record.aside else [f"ALTER TABLE {relation} ENABLE ALWAYS TRIGGER {name}"]),
    ]


def _triggers(entry: Entry, layout: Columns | OneColumn) -> list[str]:
    table, source = entry.record.table, _changed(column.name for column in entry.record.table.texts)
    vectors = [layout.home, *(name for name, _ in layout.added.values())]
    watched = [*vectors, *(column.name for column in table.key)]  # another key: it is no row that was handed out
    there = " AND ".join(f"(NEW.{quoted(name)} IS NULL) IS NOT NULL" for name in vectors)  # goes with the columns
    kinds = {
        "insert": ("BEFORE INSERT", there),
        "moved": ("AFTER INSERT", f"NEW.{quoted(layout.edited_name)} = {_MOVED}"),
        "source": ("BEFORE UPDATE", f"({source}) AND {there}"),
        "row": ("BEFORE UPDATE", f"NOT ({source}) AND {_changed(watched)}"),
    }
    return [statement for what in layout.triggers for statement in _trigger(entry, layout.relation, what, *kinds[what])]


def _function(entry: Entry, layout: Columns, state: AttachmentState) -> str:
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
    keeps = layout.serving == "new" and bool(table.texts)  # an old vector is of the same texts as before
    body = f"""
DECLARE
    model text := current_setting('limpet.writes_with', true);
    serves boolean := {"true" if state.writes == layout.serving or not one_dim else "false"};
    changed boolean;
    wanted boolean;
BEGIN
    IF {_FILLS} THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.{edited} = {_MOVED} AND NEW.{edited} > 0 THEN  -- it is being moved
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
    NEW.{hidden} := OLD.{hidden};
    NEW.{edited} := OLD.{edited};
    changed := {_changed([layout.served])};
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
    return _created(entry, body)


def _moving_function(entry: Entry, layout: Columns) -> str:
    """Return the function that moves the vector of a new row to the other column; who inserts may not update."""
    served, hidden, edited = map(quoted, (layout.served, layout.hidden_name, layout.edited_name))
    moved = f"UPDATE %I.%I AS t SET {hidden} = ($1).{served}, {served} = NULL, {edited} = {_NOW} " \
            f"WHERE {same_key(entry.record, 't', '($1)')}"  # fmt: skip
    body = f"""
BEGIN
    {_only_here(entry)}
    EXECUTE format({literal(moved)}, TG_TABLE_SCHEMA, TG_TABLE_NAME) USING NEW;
    RETURN NULL;
END
"""
    return _created(entry, body, "on_move", definer=True)


def _created(entry: Entry, body: str, function: str = "on_write", *, definer: bool = False) -> str:
    """Return what makes a function of triggers; no schema that others may create in is looked into for a name."""
    return (
        f"CREATE OR REPLACE FUNCTION {_named(entry, function)}() RETURNS trigger LANGUAGE plpgsql "
        f"SECURITY {'DEFINER' if definer else 'INVOKER'} SET search_path = pg_catalog, pg_temp AS {literal(body)}"
    )


def _only_here(entry: Entry) -> str:
    """Return what refuses a table that is not the attached one, or a part of it.

    After a dump and restore it has another number, under which the ledger knows it at once.
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


def _one_column_function(entry: Entry, layout: OneColumn, state: AttachmentState) -> str:
    """Return the function of the triggers where vectors of both models share a column.

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
    IF {_FILLS} THEN
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
    changed := {_changed([layout.home])};
    NEW.{kept} := OLD.{kept};
    NEW.{model} := was;
    IF changed AND TG_ARGV[0] = 'row' AND NEW.{own} IS NOT NULL
        AND NOT {_rows_differ([f"NEW.{own}"], [f"OLD.{kept}"])} THEN
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
    return _created(entry, body)


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


def _aside_function(entry: Entry, layout: Aside) -> str:
    """Return the function of triggers that mark rows in the table of new vectors, with the rights of the attacher."""
    record = entry.record
    columns = ", ".join(quoted(column.name) for column in record.table.key)
    body = f"""
BEGIN
    {_only_here(entry)}
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
    return _created(entry, body, definer=True)


def _aside_triggers(entry: Entry, layout: Aside) -> list[str]:
    table, relation = entry.record.table, layout.relation
    changed = _changed(column.name for column in (*table.texts, *table.key, table.vector))
    return [
        *_trigger(entry, relation, "insert", "AFTER INSERT"),
        *_trigger(entry, relation, "row", "AFTER UPDATE", changed),
        *_trigger(entry, relation, "delete", "AFTER DELETE"),
        *_trigger(entry, relation, "truncate", "AFTER TRUNCATE"),
    ]
