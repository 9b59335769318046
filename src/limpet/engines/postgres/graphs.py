"""Approximate indexes of pgvector, which are graphs (HNSW): the form of their vectors, and their parameters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from limpet.engines.postgres.database import PostgresDatabase, quoted
from limpet.engines.store import Graph

WIDEST = 16_000
"""Maximum dimension of a vector in pgvector."""
WIDEST_INDEXED = {"vector": 2000, "halfvec": 4000}
"""Maximum dimension of an indexed vector, by type."""


@dataclass(frozen=True)
class VectorForm:
    """Form of vectors in a graph.

    Args:
        held: SQL that converts "{vector}" to this form, where "{schema}" is that of pgvector, with a dot, or empty.
        asked: The same for a query that is a placeholder.
        distance: Distance of the index, smallest first.
        candidates: Rows to fetch per hit; if more than one, these are compared by their whole vectors.
    """

    held: str
    asked: str
    operators: str
    distance: str
    candidates: int


def form_of(width: int, *, directions: bool) -> VectorForm | None:
    """Return the form of vectors in a graph; None if no form preserves neighbours, so that all vectors are compared.

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
    """Return the definition of the index over a generation; ``schema`` is that of pgvector, with a dot, or empty."""
    held = form.held.format(vector="vector", schema=schema)
    return (
        f"{table_of(generation)} USING hnsw ({held} {schema}{form.operators}) "
        f"WITH (m = {graph.m}, ef_construction = {graph.ef_construction})"
    )


def built(database: PostgresDatabase, generation: str) -> Graph | None:
    """Return the parameters of a generation's approximate index; None if there is no complete one."""
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
    """Return the parameters of graphs in this gallery."""
    rows = database.execute("SELECT value FROM meta WHERE name = 'graph'")
    return Graph(**json.loads(rows[0][0])) if rows else Graph()


def choose(database: PostgresDatabase, graph: Graph) -> None:
    """Store the parameters of graphs; backups include them."""
    database.execute(
        "INSERT INTO meta VALUES ('graph', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [json.dumps(asdict(graph))],
    )
