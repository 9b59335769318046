"""What digests of texts and vectors cost: in every write of an application, and where all rows are compared with them.

    python benchmarks/attached_digests.py               # 20,000 rows of 384 numbers
    python benchmarks/attached_digests.py --rows 2000 --out /tmp    # a try

Writes attached_digests.txt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from crash.server import Server
from limpet.attached.postgres.attachment import start
from limpet.geometry import Hypersphere
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import CallableVectors
from machine import describe

TURNS = 5


def seconds(call: Callable[[], object]) -> float:
    """Return the median of a few turns."""
    taken = []
    for _ in range(TURNS):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--writes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rows, dim, draw = options.rows, options.dim, np.random.default_rng(0)
    server = Server()
    try:
        url = server.url()
        with psycopg.connect(url, autocommit=True) as client:
            client.execute("CREATE EXTENSION vector")
            client.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, title text, emb vector({dim}))".encode())
            with client.cursor().copy("COPY items FROM STDIN") as copy:
                for row in range(rows):
                    copy.write_row([row, f"item {row} " + "of some words " * 10, str(draw.normal(size=dim).tolist())])

            def write() -> None:
                """Write vectors, in a transaction that is taken back, so that every turn finds the same."""
                with client.transaction(force_rollback=True):
                    client.execute("UPDATE items SET emb = emb + emb WHERE id < %s", [options.writes])

            before = seconds(write)
            old, new = UpgradeModel("declared:old", 0), UpgradeModel("declared:new", dim)
            with start(f"{url}&table=items&text=title", old=old, new=new) as it:
                source = CallableVectors(
                    lambda texts: draw.normal(size=(len(texts), dim)).astype(np.float32), new.fingerprint,
                    Hypersphere(dim), it.texts,
                )  # fmt: skip
                it.backfill(source)
                client.execute("VACUUM ANALYZE items")
                after, count, compare = seconds(write), seconds(it.status), seconds(it.verify)
    finally:
        server.stop()
    said = (
        f"{rows:,} rows with vectors of {dim} numbers of both models; medians of {TURNS} turns.\n"
        f"An UPDATE of the vector takes {1e6 * before / options.writes:.0f} µs a row before the table is attached, "
        f"{1e6 * after / options.writes:.0f} µs after.\n"
        f"status, which counts rows, takes {count:.2f} s; verify, which reads every text and vector of both models, "
        f"{compare:.2f} s ({1e6 * compare / rows:.0f} µs a row).\n"
        f"{describe('psycopg')}\n"
    )
    (options.out / "attached_digests.txt").write_text(said)
    print(said)


if __name__ == "__main__":
    main()
