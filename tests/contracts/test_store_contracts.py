"""What every kind of store promises, run over all of `STORES`; and what holds of those that keep a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from crash.shards import sharded
from limpet.engines.ledger import GalleryLedger
from limpet.engines.memory.store import MemoryStore
from limpet.engines.postgres import sharing as postgres_sharing
from limpet.engines.store import Changes, Fill, Rows, Upsert
from limpet.engines.stores import STORES
from limpet.errors import GalleryError
from limpet.testing import failures, store_contract
from limpet.testing.stores import StorePlace, commit, written

PROMISES = [str(check) for check in store_contract(lambda folder: "")]
KINDS = [*STORES, *(f"{kind} in RAM" for kind, store in STORES.items() if store.in_memory), "sharded lance"]


@pytest.fixture
def postgresql_url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(postgres_sharing, "KEPT_SECONDS", 600.0)  # an older pointer is answered on a busy machine too
    return postgres_url


@pytest.fixture
def new_url(kind: str, request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """Urls of galleries that are not there yet; a store in no folder brings a fixture of its own, ``KIND_url``."""
    kind, _, more = kind.partition(" ")
    if kind == "sharded":
        return lambda folder: sharded(folder / "gallery", [more] * 2 if more else ["memory"] * 3)
    if more:
        return lambda folder: str(STORES[kind].in_memory)
    if STORES[kind].in_folder:
        return lambda folder: f"{kind}:{folder / 'gallery'}"
    url: str = request.getfixturevalue(f"{kind}_url")
    return lambda folder: url


@pytest.fixture
def place(new_url: Callable[[Path], str], tmp_path: Path) -> Iterator[StorePlace]:
    found = StorePlace(new_url(tmp_path))
    yield found
    found.close()


@pytest.mark.parametrize("position", range(len(PROMISES)), ids=PROMISES)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in ("s3", "sharded lance") else kind for kind in KINDS]
)
def test_every_store_keeps_its_promises(new_url: Callable[[Path], str], position: int) -> None:
    store_contract(new_url)[position]()


class Forgetful(MemoryStore):
    """Loses what it is told to delete."""

    kind = "forgetful"

    def commit(self, changes, manifest, event):  # type: ignore[no-untyped-def]
        return super().commit(Changes(changes.create, changes.remainders, upsert=changes.upsert), manifest, event)


def test_a_broken_store_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "forgetful", Forgetful)
    checks = store_contract(lambda folder: f"forgetful:{folder / 'gallery'}")
    asked = {"a random history leaves what an obvious store has", "what does not fit the generations is refused"}
    broken = {failure.check.promise for failure in failures(one for one in checks if one.promise in asked)}
    assert broken == asked


@pytest.mark.parametrize("kind", KINDS)
def test_items_that_nothing_changed_since_they_were_read_are_not_read_again(
    place: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.filled()
    commit(store, Changes(upsert=Upsert(["a"], [{"colour": "red"}], [Rows("g1", ["a"], np.ones((1, 4), np.float32))])))
    for read in (store.fetch(["a"]), store.scan(limit=9)):
        assert read.as_of == store.pointer().commit
    asked: list[str] = []
    really = GalleryLedger.fetch
    monkeypatch.setattr(GalleryLedger, "fetch", lambda self, ids: asked.extend(ids) or really(self, ids))
    done = commit(store, Changes(fill=Fill(Rows("g2", ["a"], np.full((1, 6), 2, np.float32)), read.versions, read)))
    assert done.filled.tolist() == [True] and asked == []
    assert store.vectors("g2", ["a"])[1].tolist() == [[2.0] * 6]


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_whose_lock_file_was_removed_commits_nothing(place: StorePlace) -> None:
    store = place.filled()
    if store.folder is None:
        return
    other = place.open()
    with store.writing("the first"):
        (store.folder / "writer.lock").unlink()
        with other.writing("the second"):
            with pytest.raises(GalleryError, match="was removed or replaced"):
                store.commit(written("of the first"), {}, {"kind": "test"})
            other.commit(written("of the second"), {}, {"kind": "test"})
        with pytest.raises(GalleryError, match="was removed or replaced"):
            store.commit(written("of the first"), {}, {"kind": "test"})
    commit(store, written("again"))
    assert store.scan(limit=9).ids == ["again", "of the second"]
    assert place.open().vectors("g1", ["again", "of the first", "of the second"])[0] == ["again", "of the second"]
