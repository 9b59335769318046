"""Tables of other libraries: round trips give the same set, and what cannot be used is refused in words."""

from __future__ import annotations

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, LimpetError, SpaceMismatchError
from limpet.geometry import Euclidean, Hypersphere, Lorentz

SPACES = {"hypersphere": Hypersphere(3), "lorentz": Lorentz(3, 0.5), "euclidean": Euclidean(3)}


@st.composite
def sets(draw: st.DrawFn) -> EmbeddingSet:
    rng, size = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(0, 7))
    named = draw(st.sampled_from(["no", "numbers", "names", "names only"]))
    names = StringArray.of(["unused", "cat", "dög", ""]) if named.startswith("names") else None
    return EmbeddingSet(
        ids=StringArray.of(f"é{row}" for row in rng.permutation(size)),
        vectors=(rng.normal(size=(size, 3)) / 2).astype(np.float32),
        fingerprint=draw(st.sampled_from(["declared:a", "release:" + 64 * "0"])),
        space=SPACES[draw(st.sampled_from(sorted(SPACES)))],
        role=draw(st.sampled_from(["query", "both"])),
        form=draw(st.sampled_from(["points", "features"])),
        labels=rng.integers(0, 4, size) if named in ("numbers", "names") else None,
        class_names=names,
        columns={"camera": rng.integers(0, 9, size), "seen": rng.random(size) < 0.5} if draw(st.booleans()) else {},
        prefix=draw(st.sampled_from(["", "query: "])),
    )


def same(first: EmbeddingSet, second: EmbeddingSet) -> bool:
    return first.digest() == second.digest() and first.fingerprint == second.fingerprint


@settings(max_examples=40)
@given(sets())
def test_round_trips_give_the_same_set(embeddings: EmbeddingSet) -> None:
    assert same(EmbeddingSet.from_arrow(embeddings.to_arrow()), embeddings)
    assert same(EmbeddingSet.from_pandas(embeddings.to_pandas()), embeddings) or not len(embeddings)
    table = embeddings.to_arrow()
    halves = pa.concat_tables([table.slice(0, len(table) // 2), table.slice(len(table) // 2)])
    assert same(EmbeddingSet.from_arrow(halves), embeddings)


def test_a_data_set_of_hugging_face() -> None:
    rows = {
        "id": ["a", "b", "c"],
        "vector": [[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]],
        "label": [2, 0, 2],
        "text": list("xyz"),
    }
    features = datasets.Features(
        {"id": datasets.Value("string"), "vector": datasets.List(datasets.Value("float32")),
         "label": datasets.ClassLabel(names=["cat", "dog", "owl"]), "text": datasets.Value("string")}
    )  # fmt: skip
    dataset = datasets.Dataset.from_dict(rows, features=features)
    found = EmbeddingSet.from_dataset(dataset.select([2, 0]), fingerprint="declared:m", similarity="cosine")
    assert list(found.ids) == ["c", "a"] and found.form == "features" and not found.columns
    assert found.labels is not None and found.class_names is not None
    assert [found.class_names[label] for label in found.labels] == ["owl", "owl"] and len(found.class_names) == 3
    np.testing.assert_array_equal(found.vectors, np.float32([[3, 4], [1, 0]]))
    with pytest.raises(DataError, match="of train"):
        EmbeddingSet.from_dataset(datasets.DatasetDict(train=dataset), fingerprint="declared:m")


@pytest.mark.parametrize("space", SPACES)
def test_a_dataset_comes_back_as_the_set_that_it_was_made_of(space: str) -> None:
    made = EmbeddingSet(
        np.full((2, 3), 0.1, np.float32), ["a", "b"], model="m", space=SPACES[space], labels=["dog", "cat"]
    )
    dataset = made.to_dataset()
    assert dataset.column_names == ["id", "vector", "label"] and dataset[1]["id"] == "b"
    assert EmbeddingSet.from_dataset(dataset, fingerprint="declared:m", space=made.space).digest() == made.digest()


def test_a_table_of_others_is_told_its_model_and_its_columns() -> None:
    frame = pd.DataFrame({"key": [7, 9], "emb": [[1.0, 0.0], [0.0, 2.0]], "kind": ["b", "a"], "price": [1.5, 2.5]})
    columns = {"id_column": "key", "vector_column": "emb", "label_column": "kind"}
    found = EmbeddingSet.from_pandas(frame, fingerprint="declared:m", space=Euclidean(2), **columns)
    assert (
        list(found.ids) == ["7", "9"] and found.space == Euclidean(2) and found.columns["price"].tolist() == [1.5, 2.5]
    )
    assert found.class_names is not None and list(found.class_names) == ["a", "b"]
    assert list(EmbeddingSet.from_pandas(frame[["emb"]], fingerprint="declared:m", vector_column="emb").ids) == [
        "0",
        "1",
    ]


FINE = pa.table({"id": ["a", "b"], "vector": pa.array([[1.0, 0.0], [0.0, 1.0]], pa.list_(pa.float32()))})


@pytest.mark.parametrize(
    ("table", "told", "words"),
    [
        (FINE, {}, "does not say which model"),
        (FINE, {"fingerprint": "me"}, "The fingerprint 'me'"),
        (FINE, {"fingerprint": "declared:m", "vector_column": "v"}, "vector_column"),
        (FINE, {"fingerprint": "declared:m", "spce": 1}, "Did you mean 'space'"),
        (FINE, {"fingerprint": "declared:m", "space": Euclidean(3)}, "dimension 2"),
        (FINE, {"fingerprint": "declared:m", "space": Euclidean(2), "similarity": "cosine"}, "one of the two"),
        (FINE.append_column("label", pa.array([1.5, 2.0])), {"fingerprint": "declared:m"}, "texts or whole numbers"),
        (FINE.append_column("label", pa.array(["a", None])), {"fingerprint": "declared:m"}, "1 of 2 values"),
        (FINE.set_column(0, "id", pa.array(["a", "a"])), {"fingerprint": "declared:m"}, "more than once"),
        (FINE.set_column(1, "vector", pa.array([[1.0], [1.0, 2.0]])), {"fingerprint": "declared:m"}, "another length"),
        (FINE.set_column(1, "vector", pa.array([[1], [2]])), {"fingerprint": "declared:m"}, "list<item: int64>"),
        (FINE.set_column(1, "vector", pa.array([[1.0], None])), {"fingerprint": "declared:m"}, "missing"),
        (
            FINE.set_column(1, "vector", pa.array([[1.0], [None]])),
            {"fingerprint": "declared:m"},
            "missing",
        ),
        (FINE.set_column(1, "vector", pa.array(["x", "y"])), {"fingerprint": "declared:m"}, "holds string"),
        (FINE.replace_schema_metadata({"limpet": "{}"}), {}, "not what is written there"),
        ([1], {"fingerprint": "declared:m"}, "from_pandas takes data frames"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(table: object, told: dict[str, object], words: str) -> None:
    with pytest.raises(LimpetError, match=words):
        EmbeddingSet.from_arrow(table, **told)


def test_what_a_table_says_is_not_overruled() -> None:
    made = EmbeddingSet(np.ones((1, 3), np.float32), StringArray.of(["a"]), "declared:a", Lorentz(3))
    with pytest.raises(DataError, match="leave fingerprint out"):
        EmbeddingSet.from_arrow(made.to_arrow(), fingerprint="declared:b")
    with pytest.raises(SpaceMismatchError, match="leave space"):
        EmbeddingSet.from_arrow(made.to_arrow(), space=Euclidean(3))
    with pytest.raises((DataError, ConfigError), match="one of a table's own"):
        made.replace(columns={"vector": np.zeros(1)}).to_arrow()
