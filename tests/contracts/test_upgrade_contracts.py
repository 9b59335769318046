"""What the upgrade of every live index promises, run over galleries of every store, tables and collections."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crash import chroma_server
from crash.applications import (
    Application,
    ChromaApplication,
    MilvusApplication,
    PostgresApplication,
    QdrantApplication,
)
from crash.server import Server
from crash.shards import sharded
from crash.shop import DIM, Shop, lasting_shop, vector
from limpet import Gallery, Hypersphere, open_upgrade
from limpet.attached.opening import upgrade_journal
from limpet.cli import main
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.engines.postgres import sharing as postgres_sharing
from limpet.engines.sides import ModelSide
from limpet.galleries.backup import restore
from limpet.galleries.upgrade import GalleryUpgrade
from limpet.testing import upgrade_contract
from limpet.testing.upgrades import Writer, serves
from limpet.upgrade.base import Upgrade, UpgradeVerification
from limpet.upgrade.vector_sources import CallableItems, CallableVectors, VectorSource, WithText

PROMISES = [str(check) for check in upgrade_contract(lambda folder: None)]  # type: ignore[arg-type,return-value]
GALLERIES = ("memory", "lance", "postgresql", "sharded", "s3")
KINDS = (*GALLERIES, "table", "qdrant vector", "qdrant collection", "milvus", "chroma")


def named(item: str, version: int) -> str:
    return f"item {item} version {version}"


def directions(side: ModelSide, texts: list[str]) -> NDArray[np.float32]:
    made = np.stack([vector(side, text) for text in texts])
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


class Beside:
    """A source beside an application that does something, once, when the first vectors were made.

    Args:
        source: Of vectors.
        meanwhile: What the application does.
    """

    def __init__(self, source: VectorSource, meanwhile: Callable[[], None]) -> None:
        self.source, self.fingerprint, self.space = source, source.fingerprint, source.space
        self.left = [meanwhile]

    def embed(self, ids: Sequence[str]) -> EmbeddingSet:
        made = self.source.embed(ids)
        if self.left:
            self.left.pop()()
        return made


class GalleryIndex:
    """A gallery, and a program that writes it with the active model."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.twin, self.writes = url, folder, dict[str, str](), "old"
        self.gallery = Gallery.create(url, fingerprint="declared:old", space=Hypersphere(DIM))

    def _set(self, side: ModelSide, texts: dict[str, str]) -> EmbeddingSet:
        vectors = directions(side, list(texts.values()))
        return EmbeddingSet(vectors, StringArray.of(texts), f"declared:{side}", Hypersphere(DIM), "document")

    def start(self) -> Upgrade:
        self.gallery.start("declared:new", Hypersphere(DIM))
        return self.open()

    def open(self) -> Upgrade:
        return open_upgrade(self.url)

    def write(self, item: str, version: int, writer: Writer = "declared") -> None:
        text = "" if writer == "blank" else named(item, version)
        if writer == "unseen":
            self.gallery.upsert(self._set("old", {item: text}).replace(fingerprint="declared:unknown"))
        self.twin[item] = text
        if writer == "late":
            self.gallery.upsert(self._set("old", {item: text}))
            return
        both = self.writes == "new" and self.gallery.state.phase == "swapped"  # so that a rollback finds it
        sides: tuple[ModelSide, ...] = ("old", "new") if both else (self.writes,)  # type: ignore[assignment]
        self.gallery.upsert(*(self._set(side, {item: self.twin[item]}) for side in sides))

    def delete(self, item: str) -> None:
        del self.twin[item]
        self.gallery.delete([item])

    def fill(self, upgrade: Upgrade, side: ModelSide, meanwhile: Callable[[], None] = lambda: None) -> None:
        if side == "new":
            upgrade.backfill(Beside(self._source(side), meanwhile))
        else:
            meanwhile()

    def verify(self, upgrade: Upgrade) -> UpgradeVerification:
        return upgrade.verify()

    def occupy(self) -> bool:
        return False  # the place is the gallery's alone

    def copied(self) -> GalleryIndex:
        other = copy.copy(self)
        other.url, other.twin = f"{self.url}_copy", dict(self.twin)
        if self.url.startswith("sharded:"):
            other.url = sharded(self.folder / "copy", [shard.kind for shard in self.gallery.store.shards])  # type: ignore[attr-defined]
        elif self.url.startswith("s3:"):
            other.url = other.url.replace("?ledger", "-copy?ledger")
        self.gallery.backup(self.folder / "backup")
        restore(self.folder / "backup", other.url)
        other.gallery = Gallery.open(other.url)
        return other

    def _source(self, side: ModelSide) -> VectorSource:
        items = WithText(CallableItems(lambda ids: [self.twin.get(one) for one in ids]))
        return CallableVectors(lambda texts: directions(side, texts), f"declared:{side}", Hypersphere(DIM), items)

    def declare(self, upgrade: Upgrade, side: ModelSide) -> None:
        self.writes = side

    def log(self) -> Sequence[Mapping[str, object]]:
        return upgrade_journal(self.url)

    def served(self) -> dict[str, NDArray[np.float32]]:
        active = self.gallery.state.active
        fingerprint = self.gallery.state.by_name[active].fingerprint.removeprefix("declared:")
        side: ModelSide = "new" if fingerprint == "new" else "old"
        queries = self._set(side, {"query": "any"}).replace(role="query")
        found = {hit.id for hit in self.gallery.search(queries, 1000).hits[0]}
        ids, vectors = self.gallery.store.vectors(active, sorted(found))
        return dict(zip(ids, vectors, strict=True))

    def expected(self, side: ModelSide) -> dict[str, NDArray[np.float32]]:
        return dict(zip(self.twin, directions(side, list(self.twin.values())), strict=True))

    def close(self) -> None:
        self.gallery.close()


class AttachedIndex:
    """A table or a collection, and the application that owns it."""

    def __init__(self, application: Application) -> None:
        self.application, self.writes = application, "old"

    def start(self) -> Upgrade:
        started: Upgrade = self.application.start()
        return started

    def open(self) -> Upgrade:
        opened: Upgrade = self.application.open()
        return opened

    def write(self, item: str, version: int, writer: Writer = "declared") -> None:
        text = "" if writer == "blank" else named(item, version)
        if writer in ("late", "unseen"):
            getattr(self.application, writer)(int(item), text)
        else:
            self.application.write(int(item), text, self.writes)  # type: ignore[arg-type]

    def delete(self, item: str) -> None:
        self.application.delete(int(item))

    def fill(self, upgrade: Upgrade, side: ModelSide, meanwhile: Callable[[], None] = lambda: None) -> None:
        source = Beside(self.application.source(side, upgrade), meanwhile)
        upgrade.backfill(source, of=side)  # type: ignore[call-arg]

    def verify(self, upgrade: Upgrade) -> UpgradeVerification:
        if not isinstance(self.application, PostgresApplication):
            return upgrade.verify()
        serving = upgrade.status().serving
        return upgrade.verify(source=self.application.source(serving, upgrade))  # type: ignore[call-arg]

    def occupy(self) -> bool:
        self.application.occupy()
        return True

    def copied(self) -> AttachedIndex:
        other = copy.copy(self)
        other.application = self.application.copied()
        return other

    def declare(self, upgrade: Upgrade, side: ModelSide) -> None:
        upgrade.declare_writes(side)  # type: ignore[attr-defined]
        self.writes = side

    @property
    def url(self) -> str:
        owner: Any = self.application
        return str(getattr(owner, "shop", owner).url)

    def log(self) -> Sequence[Mapping[str, object]]:
        return upgrade_journal(self.url)

    def served(self) -> dict[str, NDArray[np.float32]]:
        return {str(item): self._direction(numbers) for item, (_, numbers) in self.application.served().items()}

    def expected(self, side: ModelSide) -> dict[str, NDArray[np.float32]]:
        return {str(item): self._direction(vector(side, text)) for item, text in self.application.twin.items()}

    def _direction(self, numbers: object) -> NDArray[np.float32]:
        row = np.asarray(numbers, np.float32)
        return row / np.float32(np.linalg.norm(row))

    def close(self) -> None:
        self.application.close()


@pytest.fixture(scope="module")
def goods(postgres_server: Server) -> Iterator[Shop]:
    with lasting_shop(postgres_server) as shop:
        yield shop


@pytest.fixture
def new_index(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], object]:
    if kind == "table":
        shop = request.getfixturevalue("goods").renew()
        return lambda folder: AttachedIndex(PostgresApplication(shop))
    if kind == "postgresql":
        monkeypatch.setattr(postgres_sharing, "KEPT_SECONDS", 0.1)  # a new index waits until readers let go
        url: str = request.getfixturevalue("postgres_url")
        return lambda folder: GalleryIndex(url, folder)
    if kind == "s3":
        place: str = request.getfixturevalue("s3_url")
        return lambda folder: GalleryIndex(place, folder)
    if kind == "chroma":
        return lambda folder: AttachedIndex(ChromaApplication(chroma_server.shared().url, str(folder / "ledger.db")))
    if kind == "milvus":
        return lambda folder: AttachedIndex(MilvusApplication(f"milvus:{folder / 'm.db'}", str(folder / "ledger.db")))
    if kind.startswith("qdrant"):
        beside = kind.partition(" ")[2]
        return lambda folder: AttachedIndex(
            QdrantApplication(f"qdrant:{folder / 'q'}", str(folder / "ledger.db"), f"&beside={beside}")
        )
    if kind == "sharded":
        return lambda folder: GalleryIndex(sharded(folder / "gallery", ["memory"] * 3), folder)
    return lambda folder: GalleryIndex(f"{kind}:{folder / 'gallery'}", folder)


@pytest.mark.parametrize("position", range(len(PROMISES)), ids=PROMISES)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "s3" else kind for kind in KINDS]
)
def test_every_upgrade_keeps_its_promises(new_index: Callable[[Path], object], position: int) -> None:
    upgrade_contract(new_index)[position]()  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS[len(GALLERIES) :])
def test_an_index_is_rehearsed_before_its_start_and_after_its_swap(
    new_index: Callable[[Path], AttachedIndex], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old vectors are those of the application, and rows of one text are right for each other; nothing is written."""
    index = new_index(tmp_path)
    application: Any = index.application
    for item in range(30):
        application.write(item, f"text {item % 5}", "old")
    url, column = index.url, "title" if isinstance(application, PostgresApplication) else "text"
    np.savez(made := tmp_path / "new.npz", ids=[*map(str, application.twin)],
             vectors=directions("new", [*application.twin.values()]))  # fmt: skip

    def rehearsed(*words: object) -> dict[str, Any]:
        before = index.served()
        told = ["upgrade", "rehearse", url, "--model", made, "--name", "new", "--class-column", column, "--sample", 24]
        assert main([*map(str, [*told, "--out", tmp_path / "out", *words]), "--json"]) == 0
        after = index.served()
        assert after.keys() == before.keys() and all(np.array_equal(after[item], before[item]) for item in after)
        return dict(json.loads(capsys.readouterr().out))

    found = rehearsed("--old-name", "old")
    assert (found["items"], found["sampled"], found["missing"], found["attached"]) == (30, 24, 0, True)
    assert (found["judged"], found["before"]["map"], found["rollback_equal"]) == (24, 1.0, True)
    assert found["commands"][0].startswith("limpet upgrade start") and (tmp_path / "out/rehearsal.html").exists()
    with index.start() as upgrade:
        index.fill(upgrade, "new")
        upgrade.index()
        upgrade.swap()
    again = rehearsed()
    assert again["old"]["fingerprint"] == found["old"]["fingerprint"] == "declared:old"
    assert again["before"] == found["before"]
    assert [command.split()[2] for command in again["commands"]] == ["backfill"]
    assert main(["upgrade", "rehearse", url, "--model", str(made), "--name", "new", "--order", "id"]) == 2
    assert "--order with an index that an application owns" in " ".join(capsys.readouterr().err.split())
    index.close()


def test_an_upgrade_that_serves_the_wrong_model_is_found_out(tmp_path: Path) -> None:
    index = GalleryIndex(f"memory:{tmp_path / 'g'}", tmp_path)
    index.write("1", 0)
    with index.start() as upgrade:
        assert isinstance(upgrade, GalleryUpgrade)
        with pytest.raises(AssertionError, match="another model"):
            serves(index, "new")
    index.close()
