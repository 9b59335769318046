"""Approximate indexes of pgvector, which are graphs (HNSW): what they hold of vectors, and how they are built."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from limpet.engines.postgres.database import PostgresDatabase, quoted
from limpet.engines.store import Graph

WIDEST = 16_000
"""Numbers of the longest vector that pgvector keeps."""
WIDEST_INDEXED = {"vector": 2000, "halfvec": 4000}
"""Numbers of a vector that an approximate index over a column takes, by type."""


@dataclass(frozen=True)
class VectorForm:
    """What a graph holds of every vector.

    Args:
        held: "{vector}" as a graph keeps it, in SQL, where "{schema}" is that of pgvector, with a dot, or empty.
        asked: The same of a query that is a placeholder.
        distance: Its distance: what is nearest comes first.
        candidates: How many rows it is asked for each hit; these are compared by their whole vectors where there are
            several.
    """

    held: str
    asked: str
    operators: str
    distance: str
    candidates: int


def form_of(width: int, *, directions: bool) -> VectorForm | None:
    """Return what a graph holds of vectors; None where none leads to what is near, so that all are compared.

    =================  ==============================================  ===============================
    numbers            rows of one length, around the origin           other rows, as Lorentz or inner
                       (the hypersphere)                               products have them
    =================  ==============================================  ===============================
    1 to 2,000         whole vectors                                   whole vectors
    2,001 to 4,000     numbers of 16 bits, then the best compared      none: long rows do not fit into
                                                                       16 bits
    4,001 to 16,000    the sign of every number, then the best         none: signs tell directions,
                       compared                                        not lengths
    =================  ==============================================  ===============================

    >>> [form and form.candidates for form in (form_of(width, directions=True) for width in (2000, 4000, 16000, 16001))]
    [1, 2, 20, None]
    """
    if width <= WIDEST_INDEXED["vector"]:
        return VectorForm("{vector}", "{query}", "vector_ip_ops", "<#>", 1)
    if not directions or width > WIDEST:
        return None
    if width <= WIDEST_INDEXED["halfvec"]:
        half = f"::{{schema}}halfvec({width})"
        return VectorForm(f"({{vector}}{half})", f"{{query}}{half}", "halfvec_ip_ops", "<#>", 2)
    signs = "{schema}binary_quantize({%s})"
    held = f"({signs % 'vector'}::bit({width}))"
    return VectorForm(held, f"{signs % 'query'}", "bit_hamming_ops", "<~>", 20)


def table_of(generation: str) -> str:
    """Return the quoted name of the table with a generation's rows."""
    return quoted(f"rows_{generation}")


def index_of(generation: str) -> str:
    """Return the quoted name of the approximate index over a generation's rows."""
    return quoted(f"rows_{generation}_hnsw")


def definition(generation: str, form: VectorForm, graph: Graph, schema: str = "") -> str:
    """Return what the index over a generation's rows is on; ``schema`` is that of pgvector, with a dot, or empty."""
    held = form.held.format(vector="vector", schema=schema)
    return (
        f"{table_of(generation)} USING hnsw ({held} {schema}{form.operators}) "
        f"WITH (m = {graph.m}, ef_construction = {graph.ef_construction})"
    )


def built(database: PostgresDatabase, generation: str) -> Graph | None:
    """Return how the approximate index of a generation was built; None where there is none that is complete."""
    rows = database.execute(
        "SELECT reloptions FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indisvalid AND indexrelid = to_regclass(?)",
        [index_of(generation)],
    )
    if not rows:
        return None
    said = dict(option.split("=") for option in rows[0][0] or ())
    return Graph(**{name: int(value) for name, value in said.items() if name in ("m", "ef_construction")})


def chosen(database: PostgresDatabase) -> Graph:
    """Return how graphs are built and searched in this gallery."""
    rows = database.execute("SELECT value FROM meta WHERE name = 'graph'")
    return Graph(**json.loads(rows[0][0])) if rows else Graph()


def choose(database: PostgresDatabase, graph: Graph) -> None:
    """Keep how graphs are built and searched from now on; backups have it, too."""
    database.execute(
        "INSERT INTO meta VALUES ('graph', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [json.dumps(asdict(graph))],
    )
