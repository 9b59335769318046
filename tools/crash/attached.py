"""Upgrades of an application's table that are killed at random, while the application writes and logs its writes.

A round is one upgrade. An operator process takes steps in random order, among those that are possible. Two application
processes read and write rows, each with its own ids, and log what they are about to write and what was acknowledged.
SIGKILL ends the operator, an application, or every process of the server; what died is restarted and continues. A
watcher continuously reads the whole table in one statement: no result mixes models, and every vector belongs to the
text beside it. After every few kills the applications stop, and the table is compared with their logs: no acknowledged
write is lost, and no deleted row is back. A round ends with `cancel`; the schema must then be exactly the original one.

If vectors of both models share a column, results may mix them, but every vector is of the model that its row names.

Applications also change only a text, write with a model that they name, write a vector of that model in a second
statement, and withdraw vectors. The title of a row records the last write, so that a reader knows which vectors are
allowed beside it:

- ``thing …``: text and vector were written in one statement.
- ``late … | thing …``: only the text was written; the vector of the active model belongs to either text. If the price
  is negative, a vector of a named model was written in a second statement, and the price encodes the upgrade. After the
  last backfill of that upgrade, vectors belong to this text. An upgrade that ends before its backfill leaves the
  earlier vector.
- ``withdrawn …``: the vector was set to NULL, and the row never gets one again.

In a partitioned table, applications attach and drop partitions with their own rows. The whole database is also dumped
and restored under another name, where the upgrade continues.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import subprocess
import tempfile
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import psycopg

from crash.evidence import evaluation
from crash.server import PATIENCE, PROGRAMS, Server
from crash.shop import NEW, OLD, Shop, made_by, source, vector, written
from limpet.attached.postgres import attachment as attaching
from limpet.attached.postgres import layout, triggers
from limpet.engines.postgres import database
from limpet.engines.sides import SIDES, ModelSide
from limpet.errors import LimpetError, StoreError

ROWS = 40
APPLICATIONS = 2
KILLS = 25
"""Number of kills per round."""
PAUSE = 0.003
"""Seconds between two actions of an application: long enough for small tables, short enough to race with backfills."""
MOST = 150
"""Maximum number of rows of an application, because every swap or rollback in a shared column rewrites all rows."""
CHECKED = 5
"""Number of kills between two comparisons."""
VICTIMS = ("operator",) * 6 + ("application", "backend", "server") * 2 + ("restore",)
PARTITIONED = """
CREATE SCHEMA shop;
CREATE TABLE shop.items (id bigint PRIMARY KEY, title text, price numeric, emb vector(8)) PARTITION BY RANGE (id);
CREATE TABLE shop.items_low PARTITION OF shop.items FOR VALUES FROM (0) TO (20);
CREATE TABLE shop.items_rest PARTITION OF shop.items DEFAULT;
CREATE INDEX items_emb ON shop.items USING hnsw (emb vector_cosine_ops) WITH (m = 8, ef_construction = 32);
"""
SECOND = -1_000_000
"""Price of a row whose text and vector were written in two statements: once this without an upgrade, twice during the
first upgrade, and so on."""
EXTRA = 500_000
"""Ids of an application from this offset on belong to partitions that it attaches."""
READ = "SELECT id, title, emb::text, to_jsonb(one) ->> 'emb_limpet_model', price FROM shop.items AS one"
"""Reads all rows, with the model mark if the table has one."""


# The application


def application(url: str, log: Path, first: int, seed: int, pause: float) -> None:
    """Write and read rows until killed, and log every write; lost connections are reopened.

    Args:
        url: URL of the database.
        log: Log of the writes, which is continued.
        first: First id of the rows of this application.
        seed: Seed of all random choices.
        pause: Seconds between two actions.
    """
    draw, own = random.Random(seed), remembered(log)
    with log.open("a", buffering=1) as told:
        connection: psycopg.Connection[Any] | None = None
        while True:
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(url, autocommit=True, connect_timeout=PATIENCE)
                act(connection, draw, own, told, first)
                time.sleep(pause)
            except BaseException as error:
                if not lost(error, connection):
                    lines = {"error": repr(error), "at": traceback.format_exc()[-1000:], "beside": sessions(url)}
                    told.write(json.dumps(lines) + "\n")
                    raise
                connection = None
                time.sleep(0.02)


def lost(error: BaseException, connection: Any) -> bool:
    """Return whether the server died, or ended the session, or aborted the transaction because of a deadlock.

    A session that ends within COMMIT may send two responses, which psycopg reports as an internal error.
    """
    if isinstance(error, psycopg.InternalError):
        return bool(connection.closed)
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.LockNotAvailable)


def sessions(url: str) -> list[str]:
    """Return the current or last statement of every session of the database."""
    shown = (
        "SELECT concat_ws(' ', pid, state, xact_start, query) FROM pg_stat_activity WHERE datname = current_database()"
    )
    try:
        with psycopg.connect(url) as connection:
            return [line for (line,) in connection.execute(shown).fetchall()]
    except psycopg.Error as error:
        return [repr(error)]


def act(connection: Any, draw: random.Random, own: Memory, told: Any, first: int) -> None:
    """Take one random action, in ordinary SQL that does not know about upgrades."""
    kinds = ["insert", "upsert", "rename", "rename", "price", "delete", "search", "trade", "text", "text", "named",
             "second", "withdraw", "partition"]  # fmt: skip
    kind, alive = draw.choice(kinds), own.alive()
    kind = "rename" if kind == "partition" and draw.random() < 0.7 else kind
    row = draw.choice(alive) if alive else None
    kind = "insert" if row is None and kind == "named" else kind
    kind = "rename" if kind == "insert" and len(alive) >= MOST else kind
    title = f"thing {first} {draw.getrandbits(40)}"
    if kind == "search":
        connection.execute("SELECT id FROM shop.items ORDER BY emb <=> %s LIMIT 5", [written("old", title)]).fetchall()
        return
    if kind == "price" and row is not None:
        connection.execute("UPDATE shop.items SET price = price + 1 WHERE id = %s", [row])
        return
    if kind == "partition":
        partition(connection, draw, own, told, first)
        return
    if kind == "trade" and len(alive) > 1:
        one, other = draw.sample(alive, 2)
        if max(one - first, other - first) < EXTRA:
            trade(connection, one, other, own, told)
        return
    before = None if row is None else own.titles[row]
    if kind in ("text", "second") and (row is None or before is None or before.startswith("late")):
        kind = "rename"
    model: ModelSide = draw.choice(SIDES)
    after: str | None = title
    values: list[Any] = [row, title, 1, written("old", title)]
    insert = "INSERT INTO shop.items (id, title, price, emb) VALUES (%s, %s, %s, %s)"
    update = "UPDATE shop.items SET title = %s, emb = %s WHERE id = %s"
    if kind in ("insert", "price", "trade") or row is None:
        row, statement = own.unused(first), insert
        values[0] = row
    elif kind == "upsert":
        statement = f"{insert} ON CONFLICT (id) DO UPDATE SET title = excluded.title, emb = excluded.emb"
    elif kind == "rename":
        statement, values = update, [title, values[3], row]
    elif kind == "named":
        statement, values = update, [title, written(model, title), row]
    elif kind in ("text", "second"):
        if str(before).startswith("withdrawn"):
            after = title.replace("thing", "withdrawn", 1)
        else:
            after = f"late {title} | {before}"
        statement, values = "UPDATE shop.items SET title = %s, price = 1 WHERE id = %s", [after, row]
    elif kind == "withdraw":
        after = title.replace("thing", "withdrawn", 1)
        statement, values = "UPDATE shop.items SET title = %s, emb = NULL WHERE id = %s", [after, row]
    else:
        statement, values, after = "DELETE FROM shop.items WHERE id = %s", [row], None
    told.write(json.dumps({"row": row, "after": after}) + "\n")
    own.about(row, after)
    if kind == "named" or (kind == "second" and str(after).startswith("late")):
        upgrade = None
        if kind == "second":  # one transaction per statement; after the first, only the text has changed
            with connection.transaction():
                upgrade = attached(connection)
                connection.execute(statement, values)
        with connection.transaction():
            now = attached(connection)
            made = written(model if now else "old", str(after))  # without an upgrade, rows do not record the model
            if now:
                connection.execute("SELECT set_config('limpet.writes_with', %s, true)", [f"declared:{model}"])
            if kind == "named":
                connection.execute(update, [title, made, row])
            else:
                # an upgrade does not notice a text that changed before it started
                price = SECOND * (1 + (now or 0)) if now == upgrade else 1
                connection.execute("UPDATE shop.items SET emb = %s, price = %s WHERE id = %s", [made, price, row])
    else:
        connection.execute(statement, values)
    told.write(json.dumps({"done": row}) + "\n")
    own.done(row)


def attached(connection: Any) -> int | None:
    """Return the number of the upgrade of the table; None without one. A lock keeps it until the transaction ends."""
    connection.execute("LOCK TABLE shop.items IN ROW EXCLUSIVE MODE")
    if not connection.execute("SELECT to_regclass('limpet_attached.attachments')").fetchone()[0]:
        return None
    [(number,)] = connection.execute("SELECT max(id) FROM limpet_attached.attachments").fetchall()
    return None if number is None else int(number)


def partition(connection: Any, draw: random.Random, own: Memory, told: Any, first: int) -> None:
    """Attach a partition with three rows of the active model, or drop one; nothing if the table has no partitions."""
    [(partitioned,)] = connection.execute(
        "SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('shop.items')"
    ).fetchall()
    if not partitioned:
        return
    extra = f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'extra_{first}_%%' ORDER BY 1"
    names = [name for (name,) in connection.execute(extra).fetchall()]
    if names and (len(names) > 2 or draw.random() < 0.4):
        name = draw.choice(names)
        start = int(name.rpartition("_")[2])
        rows = [row for row in range(start, start + 3) if row in own.titles or row in own.doubt]
        changes: dict[int, str | None] = dict.fromkeys(rows)
    else:
        used = [row for row in own.titles.keys() | own.doubt.keys() if row - first >= EXTRA]
        start = max([*used, first + EXTRA]) // 10 * 10 + 10
        changes = {row: f"thing {first} {draw.getrandbits(40)}" for row in range(start, start + 3)}
        name = f"extra_{first}_{start}"
    for row, after in changes.items():
        told.write(json.dumps({"row": row, "after": after}) + "\n")
        own.about(row, after)
    while not changed_partition(connection, name, changes):
        told.write(json.dumps({"repeated": name}) + "\n")
    for row in changes:
        told.write(json.dumps({"done": row}) + "\n")
        own.done(row)


def changed_partition(connection: Any, name: str, titles: dict[int, str | None]) -> bool:
    """Attach a partition with rows of these titles, or drop it if all are None; return False if it must be repeated.

    CREATE INDEX CONCURRENTLY releases its table before it commits that the index is valid. PostgreSQL then refuses to
    drop the table, and the application must repeat its transaction.
    """
    try:
        with connection.transaction():
            connection.execute("LOCK TABLE shop.items IN SHARE UPDATE EXCLUSIVE MODE")  # prevents a swap meanwhile
            if not any(titles.values()):
                connection.execute(f"ALTER TABLE shop.items DETACH PARTITION shop.{name}")
                connection.execute(f"DROP TABLE shop.{name}")
                return True
            asked = "SELECT limpet_attached.model_of('shop.items', 'emb')"
            serving = connection.execute(asked).fetchone()[0] if attached(connection) else None
            side: ModelSide = "new" if serving == "declared:new" else "old"
            connection.execute(f"CREATE TABLE shop.{name} (LIKE shop.items)")
            for row, title in titles.items():
                values = [row, title, written(side, str(title))]
                connection.execute(f"INSERT INTO shop.{name} (id, title, emb) VALUES (%s, %s, %s)", values)
            connection.execute(f"ALTER TABLE shop.items ATTACH PARTITION shop.{name} "
                               f"FOR VALUES FROM ({min(titles)}) TO ({min(titles) + 10})")  # fmt: skip
            return True
    except psycopg.InternalError as error:
        if any(titles.values()) or not str(error).startswith("tuple concurrently updated"):
            raise
        return False


def trade(connection: Any, one: int, other: int, own: Memory, told: Any) -> None:
    """Exchange the keys of two rows in one transaction."""
    titles = {one: own.titles[other], other: own.titles[one]}
    for row, title in titles.items():
        told.write(json.dumps({"row": row, "after": title}) + "\n")
        own.about(row, title)
    with connection.transaction():
        for before, after in ((one, -one), (other, one), (-one, other)):
            connection.execute("UPDATE shop.items SET id = %s WHERE id = %s", [after, before])
    for row in titles:
        told.write(json.dumps({"done": row}) + "\n")
        own.done(row)


@dataclass
class Memory:
    """The writes of an application: the title of every row by id (None if deleted), and unacknowledged writes."""

    titles: dict[int, str | None] = field(default_factory=dict)
    doubt: dict[int, list[str | None]] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    """Rows that existed at the last comparison."""

    def about(self, row: int, after: str | None) -> None:
        """Record that a row is about to be changed."""
        self.doubt.setdefault(row, []).append(after)

    def done(self, row: int) -> None:
        """Record that the last change of a row was acknowledged."""
        self.titles[row] = self.doubt.pop(row)[-1]

    def possible(self, row: int) -> set[str | None]:
        """Return the titles that a row may have; None means deleted or never written."""
        return {self.titles.get(row), *self.doubt.get(row, [])}

    def alive(self) -> list[int]:
        """Return the rows that certainly exist."""
        return [row for row, title in self.titles.items() if title is not None and row not in self.doubt]

    def unused(self, first: int) -> int:
        """Return an id that was never used."""
        return first + sum(row - first < EXTRA for row in self.titles.keys() | self.doubt.keys())


def remembered(log: Path) -> Memory:
    """Return the writes of an application from its log, whose last line may be incomplete."""
    memory = Memory()
    for line in log.read_text().splitlines() if log.exists() else []:
        with suppress(ValueError):
            entry = json.loads(line)
            if "row" in entry:
                memory.about(entry["row"], entry["after"])
            elif "done" in entry:
                memory.done(entry["done"])
            elif "compared" in entry:
                memory.settled = set(memory.alive())
    return memory


# The operator


def operator(url: str, log: Path, seed: int, last: bool, bug: str | None, shared: bool) -> None:
    """Take random possible steps, in one upgrade after the other; with ``last``, end the upgrade and return.

    Returns after `PATIENCE` seconds at the next refused step.
    """
    if bug is not None:
        {**BUGS, **SHARED_BUGS}[bug]()
    draw = random.Random(seed)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            it = attaching.start(url, old=OLD, new=NEW, mixing=evaluation() if shared else None)
        except StoreError:
            time.sleep(0.02)  # the server died
            continue
        try:
            with it:
                while not step(it, draw, log, last):
                    pass
            if last:
                return
        except LimpetError:
            time.sleep(0.01)  # the step is not possible yet, or the server died


def step(it: attaching.PostgresAttachment, draw: random.Random, log: Path, last: bool) -> bool:
    """Backfill both sides, take one step and log it; return whether it was the last step."""
    sources: dict[ModelSide, Any] = {"new": source(it), "old": source(it, "old")}
    for side, made in sources.items():
        few = draw.choice([None, 5, 20]) if it.state.shared and not last else None  # a budget leaves rows mixed
        it.backfill(made, of=side, batch=draw.choice([3, 8, 64]), budget=few)
    state, steps = it.state, {"swap": lambda: it.swap(sources["new"]), "index": it.index, "cancel": it.cancel,
                              "rollback": lambda: it.rollback(sources["old"])}  # fmt: skip
    if state.phase == "swapped":
        kind = draw.choice(["swap", "rollback"]) if state.shared and not last else "rollback"
    elif state.shared or state.indexed:
        other = "rollback" if state.shared else "index"
        kind = "cancel" if last else draw.choices(["swap", other, "cancel"], [12, 6, 3])[0]
    else:
        kind = "index"
    steps[kind]()
    with log.open("a") as told:
        told.write(kind + "\n")
    return kind == "cancel"


# Planted bugs


def unaudited() -> None:
    """Digests of texts and vectors are not compared; the comparison would find what other bugs break."""
    attaching.forget_unseen = lambda *arguments: 0


def missed_trigger() -> None:
    """No trigger notices that a text was changed."""
    unaudited()
    whole = triggers._triggers

    def without(entry: Any, layout: Any) -> list[str]:
        made = whole(entry, layout)
        assert any("BEFORE UPDATE ON" in one for one in made)
        return [re.sub(r"(BEFORE UPDATE ON .* WHEN) \(", r"\1 (false AND ", one) for one in made]

    triggers._triggers = without


def rename_without_transaction() -> None:
    """Every column is renamed in its own transaction."""
    whole = database.PostgresDatabase.rows

    def apart(self: database.PostgresDatabase, statement: str, values: Any = (), **options: Any) -> Any:
        if " RENAME COLUMN " not in statement:
            return whole(self, statement, values, **options)
        for one in statement.split("; ", 2):  # two renamings, and the rest
            whole(self, one)
            whole(self, "COMMIT")
            time.sleep(0.02)
            whole(self, "BEGIN")
        return []

    database.PostgresDatabase.rows = apart  # type: ignore[method-assign]


def stale_row_taken_for_fresh() -> None:
    """A vector is written although the row has changed since its text was read."""
    whole = layout.ColumnLayout.write

    def blind(self: layout.ColumnLayout, side: ModelSide) -> str:
        statement = whole(self, side)
        changed = statement.replace(f"{self.stamp} = d.stamp", "true")
        assert changed != statement
        return changed

    layout.ColumnLayout.write = blind  # type: ignore[method-assign]


def rollback_after_edits() -> None:
    """A vector of the inactive model is kept when the text changes."""
    unaudited()
    whole = triggers._function

    def kept(*arguments: Any) -> str:
        statement = whole(*arguments)
        changed = statement.replace("IF NOT source THEN", "IF true THEN").replace("of_hidden := NULL;", "")
        assert changed != statement
        return changed

    triggers._function = kept


def withdrawn_again() -> None:
    """No trigger notices that an application sets a vector to NULL that is already NULL."""
    whole = triggers._triggers

    def without(entry: Any, layout: Any) -> list[str]:
        made = whole(entry, layout)
        kept = [one for one in made if "_nulled" not in one]
        assert len(kept) < len(made)
        return kept

    triggers._triggers = without


def kept_after_edits() -> None:
    """The stored vector of the other model is kept when the application changes the row."""
    whole = triggers._one_column_function

    def kept(*arguments: Any) -> str:
        statement = whole(*arguments)
        changed = re.sub(r'NEW\."emb_limpet_kept" := CASE WHEN .*? END END;', "", statement, flags=re.DOTALL)
        assert changed != statement
        return changed

    triggers._one_column_function = kept


def put_back_without_mark() -> None:
    """A stored vector is put back without the mark of its model."""
    whole = layout.OneColumn.put_back

    def unmarked(self: layout.OneColumn, limit: int | None, after: bool) -> str:
        statement = whole(self, limit, after)
        changed = re.sub(r', "emb_limpet_model" = .{5}', "", statement)
        assert changed != statement
        return changed

    layout.OneColumn.put_back = unmarked  # type: ignore[method-assign]


BUGS = {one.__name__: one for one in (
    missed_trigger, rename_without_transaction, stale_row_taken_for_fresh, rollback_after_edits, withdrawn_again
)}  # fmt: skip
SHARED_BUGS = {one.__name__: one for one in (kept_after_edits, put_back_without_mark)}
"""Bugs that are planted if vectors of both models share a column."""
PLACES = {
    "columns": BUGS,
    "one_column": SHARED_BUGS,
    "partitioned": {name: BUGS[name] for name in ("missed_trigger", "withdrawn_again")},
}
"""Bugs to plant, by the place of the vectors of both models."""


# Rounds


def forking(module: str) -> Any:
    """Return a context whose processes start fast: they are forked from one that has imported a module of trials."""
    context, found = multiprocessing.get_context("forkserver"), os.environ.get("PYTHONPATH", "")
    context.set_forkserver_preload([module])
    os.environ["PYTHONPATH"] = f"{Path(__file__).parents[1]}{os.pathsep}{found}"  # the fork server has its own sys.path
    try:
        ensure_running()
    finally:
        os.environ["PYTHONPATH"] = found
    return context


@dataclass
class Tally:
    """Results of trials: kills by victim, counts, and violations."""

    kills: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    checks: int = 0
    reads: int = 0
    writes: int = 0
    repeated: int = 0
    """Number of transactions that had to be repeated; see `changed_partition`."""
    steps: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def killed(self) -> int:
        """Number of kills."""
        return sum(self.kills.values())


class Watcher(threading.Thread):
    """Thread that continuously reads the whole table in one statement."""

    def __init__(self, url: str, tally: Tally, *, shared: bool) -> None:
        super().__init__(daemon=True)
        self.url, self.tally, self.shared, self.ended = url, tally, shared, threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                with psycopg.connect(self.url, autocommit=True, connect_timeout=PATIENCE) as connection:
                    while not self.ended.is_set():
                        rows = connection.execute(READ).fetchall()
                        self.tally.violations += wrong_vectors(rows, shared=self.shared)
                        self.tally.reads += 1
                        time.sleep(0.005)
            except psycopg.OperationalError:
                time.sleep(0.02)  # the server died
            except psycopg.Error as error:
                self.tally.violations.append(f"a read failed: {error}")
                time.sleep(0.02)


def wrong_vectors(rows: list[tuple[Any, ...]], *, shared: bool = False, ended: int | None = None) -> list[str]:
    """Return violations: vectors of another text than the one beside them, or of the wrong model.

    Args:
        rows: Rows that `READ` returned.
        shared: Whether vectors of both models share the column; then each row names its model. Otherwise all vectors
            must be of one model.
        ended: Number of the upgrade that has ended, after which rows that waited for a vector have one; None while an
            upgrade is in progress.
    """
    vectors = {
        row: (title, [float(part) for part in emb.strip("[]").split(",")]) for row, title, emb, *_ in rows if emb
    }
    second = {row for row, *_, price in rows if ended is not None and second_in(price) in (0, ended)}
    sides = {row: made_by(values) for row, (_, values) in vectors.items()}
    if shared:
        said = {row: (model or "old").removesuffix(" before") for row, _, _, model, _ in rows}
        found = [f"row {row} has a vector of the {side} model, and says {said[row]}" for row, side in sides.items()
                 if side != said[row]]  # fmt: skip
    else:
        found = ["one answer holds vectors of both models"] if len(set(sides.values())) > 1 else []
    for row, (title, values) in vectors.items():
        kind = str(title).split(" ", 1)[0]
        texts = [title, *title.split(" | ")[1:]] if kind == "late" and row not in second else [title]
        if kind == "withdrawn":
            found.append(f"row {row} has a vector again, which was withdrawn")
        elif all(abs(vector(made_by(values), text) - values).max() > 1e-5 for text in texts):
            when = "meanwhile" if ended is None else "in the end"
            found.append(f"row {row} has {when} a vector of another text than '{title}', by the {sides[row]} model")
    return found


def second_in(price: Any) -> int | None:
    """Return the upgrade during which text and vector of a row came in two statements: 0 without one, None if never."""
    return None if price is None or price >= 0 else ceil(price / SECOND) - 1  # later updates raise the price a little


class Round:
    """One upgrade of one table.

    Args:
        server: Server of the database.
        name: Name of the database, which is created.
        folder: Folder for the logs of applications.
        tally: Results, which are updated.
        seed: Seed of all random choices.
        bug: Bug that is planted into the operator; None for none.
        place: Place of the vectors of both models, a key of `PLACES`.
        pause: Seconds between two actions of an application.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        folder: Path,
        tally: Tally,
        seed: int,
        bug: str | None,
        place: str,
        pause: float,
    ) -> None:
        self.shop, self.server, self.folder, self.tally, self.bug = Shop(server, name), server, folder, tally, bug
        self.name, self.restores, self.shared, self.pause = name, 0, place == "one_column", pause
        self.draw, self.steps_log = random.Random(seed), folder / f"{name}.steps"
        if place == "partitioned":
            self.shop.renew(PARTITIONED)
        self.shop.fill(ROWS)
        self.schema = self.shop.dump()
        self.context = forking("crash.attached")
        self.processes: dict[str, Any] = {}

    def logs(self) -> list[Path]:
        """Return the logs of the applications."""
        return [self.folder / f"{self.name}-{number}.log" for number in range(APPLICATIONS)]

    def start(self, name: str, *, last: bool = False) -> None:
        """Start the operator, or the application with this number."""
        seed = self.draw.getrandbits(32)
        if name == "operator":
            arguments: tuple[Any, ...] = (self.shop.url, self.steps_log, seed, last, self.bug, self.shared)
            process = self.context.Process(target=operator, args=arguments, daemon=True)
        else:
            number = int(name)
            arguments = (self.shop.database, self.logs()[number], 1_000_000 * (number + 1), seed, self.pause)
            process = self.context.Process(target=application, args=arguments, daemon=True)
        process.start()
        self.processes[name] = process

    def end(self, name: str) -> None:
        """Kill the operator or an application."""
        self.processes[name].kill()
        self.processes.pop(name).join()

    def run(self, kills: int) -> None:
        """Kill this many times, then finish the upgrade and compare."""
        self.watcher = watcher = Watcher(self.shop.database, self.tally, shared=self.shared)
        watcher.start()
        try:
            for name in ("operator", *map(str, range(APPLICATIONS))):
                self.start(name)
            for number in range(kills):
                self.went_on(self.draw.choice([0, 0, 1, 2]), self.draw.choice([0, 3, 10]))
                time.sleep(self.draw.choice([0, 0.005, 0.05]) * self.draw.random())
                self.kill(self.draw.choice(VICTIMS))
                if number % CHECKED == CHECKED - 1:
                    self.look()
                if self.tally.violations:
                    return
            self.finish()
        finally:
            watcher.ended.set()
            for name in list(self.processes):
                self.end(name)
            watcher.join()
            self.tally.steps.update(self.steps_log.read_text().split() if self.steps_log.exists() else [])
            self.tally.writes += sum(self.counted(log, '"done"') for log in self.logs())
            self.tally.repeated += sum(self.counted(log, '"repeated"') for log in self.logs())

    def went_on(self, steps: int, writes: int) -> None:
        """Wait until this many more steps and writes are logged, or for a limited time if nothing is possible."""
        counts = (
            steps + self.counted(self.steps_log, "\n"),
            writes + sum(self.counted(log, '"done"') for log in self.logs()),
        )
        until = time.monotonic() + PATIENCE / 4
        while time.monotonic() < until and not self.tally.violations:
            if (self.counted(self.steps_log, "\n") >= counts[0]
                    and sum(self.counted(log, '"done"') for log in self.logs()) >= counts[1]):  # fmt: skip
                return
            time.sleep(0.005)

    @staticmethod
    def counted(log: Path, what: str) -> int:
        """Return how often a text occurs in a log."""
        return log.read_text().count(what) if log.exists() else 0

    def kill(self, victim: str) -> None:
        """Kill a victim, and restart it."""
        self.tally.kills[victim] = self.tally.kills.get(victim, 0) + 1
        if victim == "server":
            self.server.kill()
            self.server.start()
        elif victim == "restore":
            self.restore()
        elif victim == "backend":
            with suppress(psycopg.OperationalError):
                self.shop.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                                  "current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        else:
            name = victim if victim == "operator" else str(self.draw.randrange(APPLICATIONS))
            self.end(name)
            self.start(name)
        for name, process in list(self.processes.items()):
            if not process.is_alive():
                told = [] if name == "operator" else self.logs()[int(name)].read_text().splitlines()
                why = "".join(f": {line}" for line in told[-1:] if '"error"' in line)
                self.tally.violations.append(f"{name} ended by itself, with {process.exitcode}{why}")
                self.start(name)

    def restore(self) -> None:
        """Kill all processes, dump the database, restore it under another name, and continue there."""
        names = list(self.processes)
        for name in names:
            self.end(name)
        self.settle()
        self.restores += 1
        before, dump = self.shop.name, self.folder / "dump"
        after = f"{self.name}_{self.restores}"
        self.server.execute(f"CREATE DATABASE {after} TEMPLATE template0")
        restoring = ["pg_restore", "--exit-on-error", "--single-transaction", "-d", self.server.url(after), str(dump)]
        for words in (["pg_dump", "-Fc", "-f", str(dump), self.shop.database], restoring):
            done = subprocess.run([str(PROGRAMS / words[0]), *words[1:]], capture_output=True, text=True)
            if done.returncode:
                self.tally.violations.append(f"{words[0]} failed: {done.stderr}")
                return
        self.shop.name = after
        self.watcher.url = self.shop.database
        self.server.execute(f"DROP DATABASE {before} WITH (FORCE)")
        for name in names:
            self.start(name)

    def look(self) -> None:
        """Stop the applications and compare the table with their logs."""
        names = [str(number) for number in range(APPLICATIONS)]
        for name in names:
            self.end(name)
        self.compare()
        for name in names:
            self.start(name)

    def compare(self) -> None:
        """Report rows that were lost, are back, or were never written; the applications must be stopped."""
        self.settle()
        found = dict(self.shop.execute("SELECT id, title FROM shop.items"))
        for row in range(ROWS):
            if found.pop(row, None) != f"item {row}":
                self.tally.violations.append(f"row {row}, which nobody wrote, changed")
        for log in self.logs():
            memory = remembered(log)
            for line in log.read_text().splitlines() if log.exists() else []:
                if '"error"' in line:
                    self.tally.violations.append(f"an application failed: {line}")
            for row in memory.titles.keys() | memory.doubt.keys():
                if (title := found.pop(row, None)) not in memory.possible(row):
                    self.tally.violations.append(f"row {row} is {title!r}, not one of {memory.possible(row)}")
                if row in memory.doubt:  # the comparison has settled the write
                    with log.open("a") as told:
                        told.write(json.dumps({"row": row, "after": title}) + "\n" + json.dumps({"done": row}) + "\n")
        self.tally.violations += [f"row {row} was written by nobody" for row in found]
        self.tally.checks += 1

    def settle(self) -> None:
        """Wait until the sessions of killed applications have ended; the server still executes their requests."""
        until = time.monotonic() + PATIENCE
        sessions = ("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
                    "pg_backend_pid() AND backend_type = 'client backend' AND application_name = '' "
                    "AND query NOT LIKE '%%emb::text%%'")  # fmt: skip
        while time.monotonic() < until and self.shop.execute(sessions)[0][0]:
            time.sleep(0.01)

    def finish(self) -> None:
        """Finish the upgrade without further kills, and compare everything."""
        for number in range(APPLICATIONS):
            self.end(str(number))
        self.end("operator")
        self.compare()
        self.start("operator", last=True)
        process = self.processes.pop("operator")
        process.join(PATIENCE)
        if process.exitcode != 0:
            self.tally.violations.append(f"the operator did not come to an end: {process.exitcode}")
            process.kill()
            return
        self.compare()
        for (extra,) in self.shop.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'extra_%'"
        ):
            self.shop.execute(f"ALTER TABLE shop.items DETACH PARTITION shop.{extra}; DROP TABLE shop.{extra}")
        rows = self.shop.execute(READ)
        [(last,)] = self.shop.execute("SELECT max(attachment) FROM limpet_attached.journal")
        self.tally.violations += wrong_vectors(rows, ended=last)
        sides = {made_by(emb) for _, _, emb, *_ in rows if emb is not None}
        if sides != {"old"}:
            self.tally.violations.append(f"after the end rows have vectors of {sides}, not of the old model")
        if self.shop.dump() != self.schema:
            self.tally.violations.append("the schema is not that of before")
        self.tally.rounds += 1


def trials(
    server: Server,
    kills: int,
    seed: int = 0,
    bug: str | None = None,
    told: Any = lambda tally: None,
    so_far: Tally | None = None,
    *,
    place: str = "columns",
    pause: float = PAUSE,
) -> Tally:
    """Run rounds until this many kills were made; stop at the first violation.

    Args:
        server: Server for the databases.
        kills: Total number of kills, including those of ``so_far``.
        seed: Seed of all random choices.
        bug: Bug to plant; None for none.
        told: Called with the results after every round.
        so_far: Results of earlier rounds, which are continued.
        place: Place of the vectors of both models, a key of `PLACES`.
        pause: Seconds between two actions of an application.
    """
    tally = so_far or Tally()
    number = tally.rounds
    with tempfile.TemporaryDirectory(prefix="limpet-trials-") as folder:
        while tally.killed < kills and not tally.violations:
            name = f"trial_{seed}_{number}_{bug or place}"
            one = Round(server, name, Path(folder), tally, 1_000 * seed + number, bug, place, pause)
            one.run(min(KILLS, kills - tally.killed))
            server.start()
            server.execute(f"DROP DATABASE {one.shop.name} WITH (FORCE)")
            told(tally)
            number += 1
    return tally
