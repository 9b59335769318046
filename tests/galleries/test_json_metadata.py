"""Objects as metadata: written, found by what is in them, exported, imported and restored, on every store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from limpet.cli import main
from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Condition, Exists, Not
from limpet.errors import DataError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore
from limpet.galleries.doctor import doctor
from limpet.geometry import Hypersphere

SPACE = Hypersphere(4)
FACTS: list[Any] = [
    {"colour": "red", "of": {"price": 3}},
    {"colour": "blue", "of": {"price": 3.5}, "tags": ["a", "b"]},
    '{"colour": "red", "none": null}',
    {},
    None,
]


def points() -> EmbeddingSet:
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    return EmbeddingSet(vectors, [f"i{row}" for row in range(5)], "declared:a", SPACE)  # type: ignore[arg-type]


@pytest.fixture(params=["lance", "memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return f"{request.param}:{tmp_path / 'gallery'}"


def test_objects_are_kept_found_exported_and_restored(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Gallery.create(url, fingerprint="declared:a", space=SPACE, columns={"facts": "json"}) as gallery:
        gallery.add(points(), metadata={"facts": FACTS})
        for wrong in ("no JSON", "[1]", {"n": 2**60}, {"n": float("nan")}, [1], {"": "\0"}):
            with pytest.raises(DataError, match="json"):
                gallery.upsert(points(), metadata={"facts": [wrong, *FACTS[1:]]})
        kept = [one.get("facts") for one in gallery.store.scan(limit=9).metadata]
        assert kept == [*FACTS[:2], {"colour": "red", "none": None}, {}, None]
        asked = (Condition("facts.colour", "=", "red"), Condition("facts.of.price", ">", 3), Exists("facts.none"))
        found = [
            sorted(hit.id for hit in gallery.search(points(), 5, where=where).hits[0])
            for where in (*asked, Not(Exists("facts.colour")))
        ]
        assert found == [["i0", "i2"], ["i1"], [], ["i3", "i4"]]
        assert doctor(gallery).healthy
        gallery.backup(tmp_path / "backup")
    assert main(["gallery", "export", url, "--out", str(tmp_path / "all.parquet")]) == 0
    written = pq.read_table(tmp_path / "all.parquet").column("facts").to_pylist()
    assert [one and json.loads(one) for one in written] == kept
    again = f"{url}r"
    restore(tmp_path / "backup", again)
    with Gallery.open(again) as gallery:
        assert [one.get("facts") for one in gallery.store.scan(limit=9).metadata] == kept
    capsys.readouterr()
    words = ["gallery", "search", url, "--like", "i3", "--where", "facts.colour='blue' OR facts.of.price<3.2", "--json"]
    assert main(words) == 0
    [answer] = json.loads(capsys.readouterr().out)["queries"]
    assert {hit["id"]: hit["metadata"]["facts"]["colour"] for hit in answer["hits"]} == {"i0": "red", "i1": "blue"}


def test_texts_of_a_table_become_objects_where_the_column_is_declared_so(url: str, tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(points().vectors.ravel()), 4)
    facts = pa.array([one if one is None or isinstance(one, str) else json.dumps(one) for one in FACTS])
    pq.write_table(pa.table({"id": list(points().ids), "vector": vectors, "facts": facts}), tmp_path / "items.parquet")
    made = ["gallery", "create", url, "--embeddings", str(tmp_path / "items.parquet"), "--name", "a"]
    assert main([*made, "--take", "facts", "--columns", "facts=json"]) == 0
    with Gallery.open(url) as gallery:
        assert gallery.state.columns == {"facts": "json"}
        assert [hit.id for hit in gallery.search(points(), 5, where=Exists("facts.tags")).hits[0]] == ["i1"]
