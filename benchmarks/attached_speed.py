"""Rows a second of attach's backfill beside a bare UPDATE of the same rows, near the server and far from it.

    python benchmarks/attached_speed.py                                  # 20,000 rows of 64 numbers
    python benchmarks/attached_speed.py --beside ../before               # in turns with another checkout

Vectors are at hand, so only writing takes time. The bare UPDATE writes the same vectors, in arrays of as many rows, to
a column of a table that is not attached, in a transaction for each array. Neither table has an index over vectors. A
program between client and server delays every byte by half of a round trip.

Writes attached_speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from all_methods_tables import markdown
from attached_tables import RESULTS, configured_server
from crash.distance import Distance
from limpet.attached.postgres.attachment import start
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.geometry import Hypersphere
from limpet.upgrade.model import UpgradeModel
from machine import describe

OLD, NEW = "declared:old", "declared:new"
SIZE = 512  # rows of a batch, and of a bare UPDATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 2.0, 11.0], help="round trips in ms")
    parser.add_argument("--turns", type=int, default=3, help="of which the median counts")
    parser.add_argument("--seconds", type=float, default=20.0, help="after which a backfill is stopped")
    parser.add_argument("--beside", type=Path, help="another checkout")
    parser.add_argument("--beside-rows", type=int, default=128, help="that it fills where the server is not near")
    parser.add_argument("--most", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--fill", nargs=2, metavar=("URL", "DIM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        print(json.dumps(filled(options.fill[0], int(options.fill[1]), options.rows, options.seconds, options.most)))
        return
    with configured_server() as server:
        distance = Distance(server.sockets)
        server.execute("CREATE DATABASE speed")
        lines = measure(server.url("speed"), distance, options)
        distance.close()
    (options.out / "attached_speed.md").write_text("\n".join(lines))
    print("\n".join(lines))


def vectors(rows: int, dim: int) -> np.ndarray:
    """Return unit vectors (rows, dim)."""
    made = np.random.default_rng(2).standard_normal((rows, dim)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


class Ready:
    """A source whose vectors are at hand."""

    def __init__(self, made: np.ndarray) -> None:
        self.made, self.fingerprint, self.space = made, NEW, Hypersphere(made.shape[1])

    def embed(self, ids: Any) -> EmbeddingSet:
        return EmbeddingSet(self.made[[int(one) for one in ids]], StringArray.of(ids), self.fingerprint, self.space)


def filled(url: str, dim: int, rows: int, seconds: float, most: int | None = None) -> float:
    """Attach the table, fill it, and cancel; return rows a second, by the clock of whole batches."""
    StringArray.of([""])  # what is imported for it
    models = [UpgradeModel(one, dim) for one in (OLD, NEW)]
    with start(f"{url}&table=items&text=title&vector=emb", old=models[0], new=models[1]) as it:
        began = time.perf_counter()
        done = it.backfill(Ready(vectors(rows, dim)), seconds=seconds, batch=SIZE, budget=most)
        took = time.perf_counter() - began
        it.cancel()
    return done.written / took


def updated(connection: psycopg.Connection[Any], made: np.ndarray) -> float:
    """Give every row a vector by bare statements, and return rows a second."""
    began = time.perf_counter()
    for first in range(0, len(made), SIZE):
        part = made[first : first + SIZE]
        connection.execute(
            "UPDATE bare SET fresh = d.made FROM unnest(%b::bigint[], %b::vector[]) AS d(id, made) "
            "WHERE bare.id = d.id",
            [list(range(first, first + len(part))), list(part)],
        )
    return len(made) / (time.perf_counter() - began)


def measure(near: str, distance: Distance, options: argparse.Namespace) -> list[str]:
    """Return rows a second as a page."""
    made = vectors(options.rows, options.dim)
    checkouts = {"this one": Path(__file__).parents[1]} | ({"before": options.beside} if options.beside else {})
    page = []
    with psycopg.connect(near, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    for delay in options.delays:
        distance.set(delay / 1000)
        found: dict[str, list[float]] = {name: [] for name in ("bare", *checkouts)}
        for _ in range(options.turns):
            fresh(near, made)
            with psycopg.connect(distance.url("speed"), autocommit=True) as connection:
                register_vector(connection)
                trips = [timed(connection) for _ in range(5)]
                found["bare"].append(updated(connection, made))
            for name, folder in checkouts.items():
                fresh(near, made)
                words = [sys.executable, __file__, "--fill", distance.url("speed"), str(options.dim),
                         "--rows", str(options.rows), "--seconds", str(options.seconds)]  # fmt: skip
                if delay and name != "this one":
                    words += ["--most", str(options.beside_rows)]
                environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
                said = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
                found[name].append(json.loads(said))
        speed = {name: statistics.median(of) for name, of in found.items()}
        page.append([f"{delay:g}", f"{1000 * min(trips):.1f}", f"{speed['bare']:,.0f}",
                     *(cell for name in checkouts for cell in (f"{speed[name]:,.0f}",
                                                               f"{speed[name] / speed['bare']:.3f}"))])  # fmt: skip
        print(page[-1], file=sys.stderr)
    headers = [cell for name in checkouts for cell in (f"backfill of {name}, rows/s", "times the bare UPDATE")]
    return [
        "# Rows a second of a backfill, beside a bare UPDATE",
        "",
        f"`python benchmarks/attached_speed.py` on {describe('psycopg', 'pgvector')}. {options.rows:,} rows of "
        f"{options.dim} numbers, {SIZE} at a time; the median of {options.turns} turns. "
        f"Before, {options.beside_rows} rows were filled where the delay is not 0.",
        "",
        *markdown(["delay, ms", "SELECT 1, ms", "bare UPDATE, rows/s", *headers], page, 0),
        "",
    ]


def timed(connection: psycopg.Connection[Any]) -> float:
    began = time.perf_counter()
    connection.execute("SELECT 1")
    return time.perf_counter() - began


def fresh(url: str, made: np.ndarray) -> None:
    """Make both tables anew, each with old vectors."""
    with psycopg.connect(url, autocommit=True) as connection:
        register_vector(connection)
        connection.execute("DROP SCHEMA IF EXISTS limpet_attached CASCADE")
        for name, further in (("items", ""), ("bare", f", fresh vector({made.shape[1]})")):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, title text, emb vector({made.shape[1]})"
                               f"{further})")  # fmt: skip
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {name} (id, title, emb) FROM STDIN (FORMAT BINARY)") as copy,
            ):
                copy.set_types(["int8", "text", "vector"])
                for row, vector in enumerate(made):
                    copy.write_row((row, f"item {row}", vector))
        connection.execute("VACUUM ANALYZE")


if __name__ == "__main__":
    main()
