"""Items are written whole or not at all, with metadata of their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limpet.embeddings import EmbeddingSet
from limpet.engines.filters import Condition
from limpet.errors import ConfigError, DataError, SpaceMismatchError
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere, Lorentz

IDS = [f"i{row:02}" for row in range(12)]
SPHERE = Hypersphere(4)
COLUMNS = {"label": "text", "price": "number", "count": "integer", "sold": "truth"}


@pytest.fixture
def shop(embed) -> Any:
    """A gallery with metadata columns, without items."""
    with Gallery.create("memory://", fingerprint="declared:old", space=SPHERE, columns=COLUMNS) as opened:
        yield opened


def metadata_of(gallery: Gallery, ids: list[str]) -> list[dict[str, Any]]:
    return [dict(values) for values in gallery.store.fetch(ids).metadata]


def test_labels_and_columns_of_a_set_become_metadata(shop, embed) -> None:
    labelled = embed(
        "old", IDS[:3], labels=np.array([1, 0, 1]), class_names=["cat", "dog"],
        columns={"price": np.array([1.5, 2.0, 3.0]), "camera": np.array([7, 8, 9])},
    )  # fmt: skip
    shop.add(labelled)
    assert metadata_of(shop, IDS[:2]) == [{"label": "dog", "price": 1.5}, {"label": "cat", "price": 2.0}]
    shop.upsert(embed("old", IDS[:1], labels=np.array([4])))
    assert metadata_of(shop, IDS[:1]) == [{"label": "4"}]


def test_given_metadata_is_typed_and_none_is_no_value(shop, embed) -> None:
    values: dict[str, list[Any]] = {
        "price": [1, np.float32(0.5), None], "count": [np.int64(3), None, 2], "sold": [True, False, np.bool_(True)],
    }  # fmt: skip
    shop.add(embed("old", IDS[:3]), metadata=values)
    assert metadata_of(shop, IDS[:3]) == [
        {"price": 1.0, "count": 3, "sold": True}, {"price": 0.5, "sold": False}, {"count": 2, "sold": True},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("price", "dear", DataError), ("price", float("nan"), DataError), ("price", True, DataError),
        ("count", 1.5, DataError), ("count", True, DataError), ("sold", 1, DataError), ("label", 3.5, DataError),
        ("colour", "red", ConfigError),
    ],
)  # fmt: skip
def test_values_of_another_type_and_unknown_columns_are_refused(shop, embed, column, value, error) -> None:
    with pytest.raises(error, match=f"column '{column}'"):
        shop.add(embed("old", IDS[:1]), metadata={column: [value]})
    assert len(shop) == 0


def test_as_many_values_as_items_are_wanted(shop, embed) -> None:
    with pytest.raises(DataError, match="2 values of 'price' for 3 items"):
        shop.add(embed("old", IDS[:3]), metadata={"price": [1.0, 2.0]})


@pytest.mark.parametrize("columns", [{"price": "money"}, {"vector": "text"}, {"a b": "text"}])
def test_unknown_types_and_taken_names_of_columns_are_refused(columns) -> None:
    with pytest.raises(ConfigError, match=next(iter(columns.values())) if "price" in columns else next(iter(columns))):
        Gallery.create("memory://", fingerprint="declared:old", space=SPHERE, columns=columns)


def test_filters_choose_among_all_generations(shop, embed, asked) -> None:
    shop.add(embed("old", IDS), metadata={"price": [float(row) for row in range(12)]})
    shop.start("declared:new", SPHERE)
    shop.upsert(embed("new", IDS[:6]), metadata={"price": [float(row) for row in range(6)]})
    shop.link("g2", "g1", force="tests")
    hits = shop.search(asked("new"), k=12, where=[Condition("price", ">=", 4), Condition("price", "<", 8)]).hits
    assert shop.search(asked("new"), k=12, where="price>=4 AND price<8").hits == hits
    assert [sorted((hit.id, hit.generation) for hit in one) for one in hits] == [
        [("i04", "g2"), ("i05", "g2"), ("i06", "g1"), ("i07", "g1")]
    ] * 3
    assert {hit.metadata["price"] for hit in hits[0]} == {4.0, 5.0, 6.0, 7.0}


def test_add_refuses_ids_that_are_there_and_upsert_replaces_them(
    gallery, embed, asked, same_as_a_loop, points_of
) -> None:
    gallery.add(embed("old", IDS[:4]))
    with pytest.raises(DataError, match=r"2 ids are in the gallery already: 'i02', 'i03'"):
        gallery.add(embed("old", IDS[2:6]))
    assert len(gallery) == 4
    gallery.upsert(embed("old", IDS[2:6], draw=1))
    held = points_of(embed("old", IDS[:2]), embed("old", IDS[2:6], draw=1))
    same_as_a_loop(gallery, asked("old"), held, ["old"])


def test_delete_returns_how_many_there_were(gallery, embed, asked, same_as_a_loop, points_of) -> None:
    gallery.add(embed("old", IDS))
    assert gallery.delete(["i01", "i05", "i01", "nobody"]) == 2
    assert gallery.delete(["i01"]) == 0
    held = points_of(embed("old", [one for one in IDS if one not in ("i01", "i05")]))
    same_as_a_loop(gallery, asked("old"), held, ["old"], k=20)


def test_both_models_vectors_go_in_one_upsert(started, embed, asked, same_as_a_loop, points_of) -> None:
    before = len(started.store.journal())
    started.upsert(embed("old", ["a", "b"]), embed("new", ["b", "c"]))
    assert len(started.store.journal()) == before + 1
    held = points_of(embed("old", [*IDS, "a", "b"]), embed("new", ["b", "c"]))
    same_as_a_loop(started, asked("old"), held, ["old"], k=20)
    same_as_a_loop(started, asked("new"), held, ["new", "old"], k=20)


def test_an_upsert_removes_the_vectors_that_it_does_not_bring(started, embed, asked, same_as_a_loop, points_of) -> None:
    started.upsert(embed("old", IDS), embed("new", IDS))
    started.upsert(embed("old", IDS[:6], draw=1))
    held = points_of(embed("old", IDS), embed("new", IDS[6:]))
    held.update(points_of(embed("old", IDS[:6], draw=1)))
    same_as_a_loop(started, asked("new"), held, ["new", "old"], k=20)


def test_large_sets_are_several_commits(gallery, embed, monkeypatch) -> None:
    monkeypatch.setattr("limpet.galleries.gallery.ROWS_AT_ONCE", 5)
    told: list[dict[str, Any]] = []
    gallery.add(embed("old", IDS), progress=told.append)
    assert told == [{"done": done, "total": 12} for done in (5, 10, 12)]
    assert [entry.event["items"] for entry in gallery.store.journal(after=1)] == [5, 5, 2]


def test_wrong_vectors_are_refused_whole(gallery, embed) -> None:
    for sets, error, message in (
        ([embed("nobody", IDS)], DataError, r"declared:nobody.*g1: declared:old"),
        ([embed("old", IDS, role="query")], DataError, "those of queries"),
        ([embed("old", IDS, space=Hypersphere(5))], SpaceMismatchError, "dimension 5"),
        ([embed("old", IDS, space=Lorentz(4))], SpaceMismatchError, "Lorentz"),
        ([embed("old", IDS, form="features")], SpaceMismatchError, "features"),
        ([embed("old", IDS), embed("old", ["z"])], ConfigError, "Several sets of one model"),
        ([], ConfigError, "No embeddings"),
    ):
        with pytest.raises(error, match=f"(?s){message}"):
            gallery.upsert(*sets)
    assert (len(gallery), gallery.store.pointer().sequence) == (0, 1)


def test_ids_that_repeat_and_wrong_numbers_never_reach_a_gallery(embed) -> None:
    with pytest.raises(DataError, match="'a'"):
        embed("old", ["a", "b", "a"])
    vectors = embed("old", ["a", "b"]).vectors.copy()
    for wrong in (np.nan, np.inf, 0.0):
        vectors[1] = wrong
        with pytest.raises(DataError, match="'b'"):
            EmbeddingSet(vectors, ["a", "b"], "declared:old", SPHERE)
