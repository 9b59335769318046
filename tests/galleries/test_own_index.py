"""What the doctor finds in tables that are no galleries, each with one fault planted, and in sound ones."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from crash.server import Server
from limpet import EmbeddingSet, Hypersphere
from limpet.engines.sources import open_source
from limpet.galleries.doctor.findings import Diagnosis
from limpet.galleries.doctor.own_index import examine

DIM, ROWS, TOPICS = 64, 600, 40
IDS = [f"i{row:03d}" for row in range(ROWS)]
TEXTS = {identifier: f"topic {row % TOPICS} thing {row}" for row, identifier in enumerate(IDS)}


class Words:
    """A model of texts: those of one topic are near to each other, as a real one has it."""

    space = Hypersphere(DIM)

    def __init__(self, name: str, texts: dict[str, str] = TEXTS) -> None:
        self.fingerprint, self.texts = f"declared:{name}", texts

    def _drawn(self, word: str) -> NDArray[np.float64]:
        return np.random.default_rng(zlib.crc32(f"{self.fingerprint} {word}".encode())).normal(size=DIM)

    def of(self, text: str) -> NDArray[np.float32]:
        made = self._drawn(" ".join(text.split()[:2])) + 0.6 * self._drawn(text)
        return (made / np.linalg.norm(made)).astype(np.float32)

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        rows = np.stack([self.of(self.texts[one]) for one in ids])
        return EmbeddingSet(rows, list(ids), self.fingerprint, self.space, "document")


V1, V2 = Words("v1"), Words("v2")
Table = dict[str, tuple[str, Any]]


def sound() -> Table:
    return {identifier: (TEXTS[identifier], V1.of(TEXTS[identifier])) for identifier in IDS}


def planted(rows: slice, change: Callable[[str, Any], tuple[str, Any]]) -> Table:
    table = sound()
    return table | {identifier: change(*table[identifier]) for identifier in IDS[rows]}


def written(table: Table, folder: Path) -> str:
    columns = {"id": list(table), "text": [text for text, _ in table.values()],
               "vector": [None if one is None else one.tolist() for _, one in table.values()]}  # fmt: skip
    kinds = {"id": pa.string(), "text": pa.string(), "vector": pa.list_(pa.float32())}
    pq.write_table(pa.table({name: pa.array(columns[name], kinds[name]) for name in columns}), folder / "t.parquet")
    return f"parquet:{folder / 't.parquet'}"


def wrong(found: Diagnosis) -> dict[str, int]:
    return {one.kind: one.count for one in found.findings if one.severity != "note"}


FAULTS: dict[str, tuple[Table, dict[str, int]]] = {
    "nothing": (sound(), {}),
    "half precision": (planted(slice(None), lambda text, v: (text, v.astype(np.float16).astype(np.float32))), {}),
    "another model, 1 %": (planted(slice(6), lambda text, v: (text, V2.of(text))), {"another model": 6}),
    "another model, 10 %": (planted(slice(60), lambda text, v: (text, V2.of(text))), {"another model": 60}),
    "another model, half": (planted(slice(0, None, 2), lambda text, v: (text, V2.of(text))), {"another model": 300}),
    "all of another model": (planted(slice(None), lambda text, v: (text, V2.of(text))), {"other model": 600}),
    "another length": (planted(slice(5), lambda text, v: (text, v[:32])), {"another model": 5}),
    "stale": (planted(slice(9), lambda text, v: (text, V1.of("topic 7 of old"))), {"stale": 9, "same vector": 8}),
    "blank": (planted(slice(7), lambda text, v: (" ", v)), {"blank": 7}),
    "zero": (planted(slice(3), lambda text, v: (text, 0 * v)), {"zero": 3}),
    "not a number": (planted(slice(2), lambda text, v: (text, v * np.float32("nan"))), {"not finite": 2}),
    "not normalised": (planted(slice(30), lambda text, v: (text, 7 * v)), {"odd lengths": 30}),
    "one vector for many": (planted(slice(20), lambda text, v: (text, V1.of("topic 0 cut"))),
                            {"same vector": 19, "stale": 20}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_nothing_else(fault: str, tmp_path: Path) -> None:
    table, expected = FAULTS[fault]
    source = open_source(written(table, tmp_path))
    texts = Words("v1", {identifier: text for identifier, (text, _) in table.items()})
    found = examine(source, texts)
    assert wrong(found) == expected
    assert found.healthy == (expected.keys() <= {"blank", "odd lengths"})
    assert (found.items, found.sampled, found.sequence) == (ROWS, ROWS, None)


def test_a_sample_of_rows_says_which_share_of_all_it_stands_for(tmp_path: Path) -> None:
    source = open_source(written(FAULTS["another model, 10 %"][0], tmp_path))
    found = examine(source, V1, sample=200)
    [one] = [finding for finding in found.findings if finding.kind == "another model"]
    assert found.sampled == 200 and 8 <= one.count <= 35 and " % of all)" in one.says


def test_without_a_model_or_texts_it_says_what_was_not_looked_at(tmp_path: Path) -> None:
    url = written(sound(), tmp_path)
    pq.write_table(pq.read_table(tmp_path / "t.parquet").drop_columns(["text"]), tmp_path / "t.parquet")
    found = examine(open_source(url))
    assert found.healthy and [one.kind for one in found.findings] == ["kind", "not compared"]
    assert f"vectors of {DIM} numbers in" in found.findings[0].says


def test_a_model_of_another_width_is_refused(tmp_path: Path) -> None:
    class Short(Words):
        space = Hypersphere(8)

    found = examine(open_source(written(sound(), tmp_path)), Short("v1"))
    assert wrong(found) == {"other model": 600} and "makes 8" in str(found.findings[0])


@pytest.fixture
def table(postgres_server: Server) -> Callable[..., str]:
    """Make a table of 3,000 rows, one in fifty of which is rare, with an index; its URL."""

    def made(operators: str, scale: float = 0.0, more: str = "", options: str = "") -> str:
        rng = np.random.default_rng(0)
        vectors = rng.normal(size=(3000, 8))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors *= 1 + scale * rng.random((3000, 1))
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("DROP TABLE IF EXISTS own")
            connection.execute("CREATE TABLE own (id int PRIMARY KEY, emb vector(8), title text, rare int)")
            with connection.cursor().copy("COPY own FROM STDIN") as copy:
                for row, vector in enumerate(vectors):
                    copy.write_row((row, str(vector.tolist()), f"thing {row}", row % 50))
            connection.execute(f"CREATE INDEX ON own USING {operators}".encode())
            connection.execute("ANALYZE own")
        return f"{postgres_server.url()}&table=own&text=title{more}"

    return made


@pytest.mark.parametrize(
    ("operators", "scale", "expected"),
    [
        ("hnsw (emb vector_cosine_ops)", 9.0, {}),
        ("hnsw (emb vector_ip_ops)", 0.0, {}),
        ("hnsw (emb vector_ip_ops)", 9.0, {"metric": 1000}),
        ("hnsw (emb vector_l1_ops)", 0.0, {"metric": 1}),
        ("hnsw ((emb::halfvec(8)) halfvec_cosine_ops)", 0.0, {}),
        ("ivfflat (emb vector_cosine_ops) WITH (lists = 100)", 0.0, {"index": 20}),
    ],
)
def test_an_index_that_does_not_suit(
    table: Callable[..., str], operators: str, scale: float, expected: dict[str, int]
) -> None:
    assert wrong(examine(open_source(table(operators, scale)))) == expected


def test_a_condition_that_starves_the_index(table: Callable[..., str], postgres_server: Server) -> None:
    url = table("hnsw (emb vector_cosine_ops)", more="&where=rare=7")
    name = psycopg.conninfo.conninfo_to_dict(postgres_server.url())["dbname"]
    settings = {"enable_seqscan": "off", "hnsw.iterative_scan": "off"}
    try:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute("SELECT '[1]'::vector")  # which defines its settings
            for setting, value in settings.items():
                connection.execute(f'ALTER DATABASE "{name}" SET {setting} = {value}'.encode())
        found = examine(open_source(url))
        assert wrong(found) == {"starved": 20} and not found.healthy
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute("SELECT '[1]'::vector")
            connection.execute(f'ALTER DATABASE "{name}" SET hnsw.iterative_scan = strict_order'.encode())
        assert wrong(examine(open_source(url))) == {}
    finally:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" RESET ALL'.encode())
