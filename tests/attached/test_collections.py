"""The same upgrade on every engine, beside an application that goes on: nothing lost, mixed or resurrected."""

from __future__ import annotations

import inspect
import logging
import os
import random
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from pymilvus import MilvusClient
from qdrant_client import QdrantClient, models

from crash import chroma_server
from crash.applications import (
    Application,
    ChromaApplication,
    MilvusApplication,
    PostgresApplication,
    QdrantApplication,
    expected,
)
from crash.shop import DIM, Shop, vector
from documented import run_example
from limpet.attached.collections import ledger
from limpet.attached.collections.ledger import CollectionLedger
from limpet.attached.collections.opening import current, everywhere, open_attachment, read_place, start
from limpet.engines.chroma.service import Service
from limpet.engines.collection import Target
from limpet.engines.collections import ENGINES
from limpet.engines.services import collection_of
from limpet.engines.sides import ModelSide
from limpet.errors import GalleryError, LockedError, UpgradeStateError
from limpet.geometry import Hypersphere
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import CallableVectors

ITEMS = 8


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder where a sync costs nothing: the local mode of Qdrant syncs every point."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="limpet-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


LITE = ["vectors of Qdrant", "collections of Qdrant", "alias of Qdrant", "Milvus Lite", "alias of Milvus Lite",
        "Chroma"]  # fmt: skip
MAKE: dict[str, Callable[[Path, str], Application]] = {
    "vectors of Qdrant": lambda place, ledger: QdrantApplication(f"qdrant:{place / 'q'}", ledger),
    "collections of Qdrant": lambda place, ledger: QdrantApplication(
        f"qdrant:{place / 'q'}", ledger, "&beside=collection"
    ),
    "alias of Qdrant": lambda place, ledger: QdrantApplication(f"qdrant:{place / 'q'}", ledger, alias="shown"),
    "Milvus Lite": lambda place, ledger: MilvusApplication(f"milvus:{place / 'm.db'}", ledger),
    "alias of Milvus Lite": lambda place, ledger: MilvusApplication(f"milvus:{place / 'm.db'}", ledger, "shown"),
    "Chroma": lambda place, ledger: ChromaApplication(chroma_server.shared().url, ledger),
}


class Run:
    """An upgrade, step by step, by processes that may be killed, while the application goes on.

    Args:
        application: Whose.
        seed: Of what it does meanwhile.
    """

    def __init__(self, application: Application, seed: int = 0) -> None:
        self.application, self.chance = application, random.Random(seed)
        self.writes: ModelSide = "old"
        self.killed = 0
        for item in range(ITEMS):
            application.write(item, f"item {item}", "old")
        self.attachment = self.surely(None, "started", application.start)

    def surely(self, attachment: Any, phase: str, step: Callable[[], Any]) -> Any:
        """Do a step, and where the process is killed in it, once more by another one."""
        while True:
            try:
                return step()
            except Killed:
                self.killed += 1
                if attachment is not None:
                    self.attachment.close()
                self.meanwhile()
                if attachment is not None:
                    self.attachment = self.application.open()
            except UpgradeStateError:
                assert self.killed and self.attachment.state.phase == phase  # it was done, and only not heard of
                return None

    def step(self, name: str, phase: str, source: ModelSide | None = None, **options: Any) -> None:
        killed = self.killed
        self.surely(self.attachment, phase, lambda: self._step(name, source, **options))
        if self.killed > killed and source is not None:  # what was written meanwhile comes with the next pass
            self._step("backfill", source, of=source)
        assert self.attachment.state.phase == phase

    def _step(self, name: str, source: ModelSide | None = None, **options: Any) -> None:
        given = [] if source is None else [self.application.source(source, self.attachment)]
        getattr(self.attachment, name)(*given, **options)

    def go_on(self) -> None:
        """Let the application edit, add and delete some items."""
        application, chance = self.application, self.chance
        chance_items = sorted(application.twin)
        application.write(chance.choice(chance_items), f"edited {chance.random()}", self.writes)
        application.write(max(chance_items) + 1, f"added {chance.random()}", self.writes)
        application.delete(chance.choice(chance_items[1:]))

    def meanwhile(self) -> None:
        """Let the application go on after a process was killed; it asks what to write."""
        declared, self.writes = self.writes, self.application.side()  # type: ignore[attr-defined]
        self.go_on()
        self.writes = declared

    def check(self, side: ModelSide) -> None:
        application: Any = self.application
        assert application.served() == expected(application.twin, side)
        if alias := getattr(application, "alias", ""):
            assert self.attachment.engine.aliased(alias) == current(application.url).collection


class Killed(BaseException):
    """The process ended here."""


def upgrade(run: Run) -> None:
    """The whole way: there, back, there again, and the end."""
    run.go_on()
    run.step("backfill", "started", source="new")
    run.go_on()
    run.step("index", "started")
    run.check("old")
    run.step("swap", "swapped", source="new")
    run.check("new")
    run.go_on()
    run.step("backfill", "swapped", source="new")
    run.check("new")
    run.step("rollback", "started", source="old")
    run.check("old")
    run.go_on()
    run.step("swap", "swapped", source="new", writes="new")
    run.writes = "new"
    run.check("new")
    run.go_on()
    run.step("rollback", "started", source="old", writes="old")
    run.writes = "old"
    run.check("old")
    run.go_on()
    run.step("swap", "swapped", source="new", writes="new")
    run.writes = "new"
    run.go_on()
    run.check("new")
    status = run.attachment.status()
    assert (status.lacking["new"], status.application.empty, status.items) == (0, 0, len(run.application.twin))
    kinds = [event["kind"] for event in run.attachment.journal()]
    assert [kind for kind in kinds if kind in ("swap", "rollback")] == ["swap", "rollback"] * 2 + ["swap"]
    run.surely(run.attachment, "steady", lambda: run.attachment.finish())
    run.check("new")
    run.attachment.close()


@pytest.fixture
def application(request: pytest.FixtureRequest, place: Path, tmp_path: Path) -> Iterator[Application]:
    made = MAKE[request.param](place, str(tmp_path / "ledger.db"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("application", "engine"),
    [("vectors of Qdrant", "qdrant"), ("Milvus Lite", "milvus"), ("Chroma", "chroma")],
    indirect=["application"],
)
def test_the_documented_example_of_an_engine(application: Application, engine: str) -> None:
    for item in range(ITEMS):
        application.write(item, f"item {item}", "old")
    example = inspect.getdoc(ENGINES[engine])
    url = re.search(r'url = "(.*)"', example or "")
    assert url
    run_example(
        ENGINES[engine], {url[1]: application.url, ", 32, ": ", 0, ", ", 64, ": f", {DIM}, ", "120": str(ITEMS)}
    )


@pytest.mark.parametrize("application", LITE, indirect=True)
def test_an_upgrade_there_back_and_there_again(application: Application) -> None:
    upgrade(Run(application))


def test_an_upgrade_of_a_table_is_the_same(shop: Shop) -> None:
    upgrade(Run(PostgresApplication(shop)))


@pytest.mark.slow
def test_an_upgrade_on_a_real_server(milvus_url: str, tmp_path: Path, postgres_url: str) -> None:
    """The ledger is in PostgreSQL, where several machines can ask it."""
    ledger = quote(postgres_url.partition("&schema=")[0], safe="")
    application = MilvusApplication(
        milvus_url.replace("http", "milvus"), ledger.replace("/", "%2F").replace(":", "%3A")
    )
    try:
        upgrade(Run(application))
    finally:
        application.close()


@pytest.mark.live
@pytest.mark.skipif("LIMPET_QDRANT_URL" not in os.environ, reason="LIMPET_QDRANT_URL=qdrant://HOST:PORT names none")
@pytest.mark.parametrize(("further", "alias"), [("", ""), ("&beside=collection", ""), ("", "shown")])
def test_an_upgrade_on_a_live_server_of_qdrant(further: str, alias: str, tmp_path: Path) -> None:
    """Collections whose names begin with items_ are made there, and removed."""
    application = QdrantApplication(os.environ["LIMPET_QDRANT_URL"], str(tmp_path / "ledger.db"), further, alias)
    try:
        upgrade(Run(application))
    finally:
        application.close()


class Editing:
    """A source beside an application that edits an item while the first vectors are made, and looks at what is there.

    Args:
        application: Whose.
        whole: Makes vectors of texts as they are.
    """

    def __init__(self, application: Any, whole: Any) -> None:
        self.application, self.whole, self.seen = application, whole, list[dict[int, Any]]()
        self.fingerprint, self.space = whole.fingerprint, whole.space

    def embed(self, ids: list[str]) -> Any:
        if not self.seen:
            self.application.write(3, "edited", "old")
        self.seen.append(self.application.contents(self.application.new))
        return self.whole.embed(ids)


@pytest.mark.parametrize("application", LITE, indirect=True)
def test_items_without_text_are_counted_and_keep_no_other_item_from_its_vector(application: Any) -> None:
    application.url += "&text=text"
    it = Run(application).attachment
    for item, text in ((2, ""), (4, " \u3000")):
        application.write(item, text, "old")
    made = CallableVectors(lambda texts: np.stack([vector("new", text) for text in texts]), "declared:new",
                           Hypersphere(DIM), it.texts)  # fmt: skip
    done = it.backfill(made, batch=4)
    assert (done.written, done.without_text, done.missing, done.stopped) == (ITEMS - 2, 2, 0, "done")
    assert done.without_text_ids == ("2", "4")
    assert (it.status().lacking["new"], it.status().application.without_text["new"]) == (2, 2)
    it.close()


@pytest.mark.parametrize("application", ["collections of Qdrant", "Milvus Lite", "Chroma"], indirect=True)
def test_an_item_that_changes_while_its_vector_is_made_is_never_beside_another_text(application: Any) -> None:
    run = Run(application)
    application.new = run.attachment.engine.target("new")
    made = Editing(application, application.source("new", run.attachment))
    run.attachment.backfill(made)
    assert len(made.seen) == 2, "the item comes with the next pass"
    for there in (made.seen[1], application.contents(application.new)):
        wanted = expected({item: text for item, (text, _) in there.items()}, "new")
        assert there == wanted
    assert application.contents(application.new) == expected(application.twin, "new")
    run.attachment.close()


class Deleting(Editing):
    """A source beside an application that deletes all items, or some, while the vectors of the first ones are made."""

    items: range

    def embed(self, ids: list[str]) -> Any:
        made = self.whole.embed(ids)
        for item in self.items if not self.seen else ():
            self.application.delete(item)
        self.seen.append({})
        return made


@pytest.mark.parametrize("items", [range(ITEMS), range(3)], ids=["all", "some"])
@pytest.mark.parametrize(
    "application", ["vectors of Qdrant", "collections of Qdrant", "Milvus Lite", "Chroma"], indirect=True
)
def test_items_that_are_deleted_while_their_vectors_are_made_are_skipped_and_counted(
    application: Any, items: range
) -> None:
    run = Run(application)
    source = Deleting(application, application.source("new", run.attachment))
    source.items = items
    done = run.attachment.backfill(source)
    assert (done.embedded, done.written, done.lacking) == (ITEMS, ITEMS - len(items), 0)
    assert application.contents(run.attachment.engine.target("new")) == expected(application.twin, "new")
    run.attachment.close()


@pytest.mark.parametrize("application", LITE, indirect=True)
def test_what_is_written_beside_the_last_look_at_an_item_is_not_overwritten(
    application: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late write is brought over to the side that the application writes, and it writes the item there, too."""
    it, keep, left = Run(application).attachment, CollectionLedger.keep, ["meanwhile"]
    it.backfill(application.source("new", it))
    application.unseen(0, "late")

    def writing(ledger: Any, *values: Any) -> None:
        keep(ledger, *values)
        if left:
            application.write(0, left.pop(), "old")

    monkeypatch.setattr(CollectionLedger, "keep", writing)
    it.backfill(application.source("old", it), of="old")
    it.backfill(application.source("new", it))
    for side in ("old", "new"):
        assert application.contents(it.engine.target(side)) == expected(application.twin, side)
    assert not left
    it.close()


def test_a_late_write_beside_the_writing_of_an_earlier_one_is_brought_over(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both vectors of a point share its text: the one that is just written belongs to the text before."""
    application: Any = MAKE["vectors of Qdrant"](place, str(tmp_path / "ledger.db"))
    it, update, left = Run(application).attachment, QdrantClient.update_vectors, ["later"]
    it.backfill(application.source("new", it))
    application.unseen(0, "late")

    def writing(client: Any, *values: Any, **named: Any) -> Any:
        if left:
            application.unseen(0, left.pop())
        return update(client, *values, **named)

    monkeypatch.setattr(QdrantClient, "update_vectors", writing)
    for side in ("old", "new"):
        it.backfill(application.source(side, it), of=side)
    for side in ("old", "new"):
        assert application.contents(it.engine.target(side)) == expected(application.twin, side)
    assert not left and not any(it.status().lacking.values())
    it.close()
    application.close()


def test_chroma_is_asked_nothing_between_the_last_look_and_the_writing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application: Any = MAKE["Chroma"](place, str(tmp_path / "ledger.db"))
    it, send, sent = Run(application).attachment, Service._send, list[tuple[str, Any]]()
    it.backfill(application.source("new", it))
    application.unseen(0, "late")

    def told(service: Any, method: str, path: str, body: Any = None, **named: Any) -> Any:
        sent.append((path.rpartition("/")[2], (body or {}).get("include")))
        return send(service, method, path, body, **named)

    monkeypatch.setattr(Service, "_send", told)
    it.backfill(application.source("old", it), of="old")
    before = sent[[path for path, _ in sent].index("upsert") - 1]
    assert before[0] == "get" and "embeddings" in before[1]
    it.close()
    application.close()


def test_points_that_are_deleted_between_a_look_and_a_write_are_skipped(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application: Any = MAKE["vectors of Qdrant"](place, str(tmp_path / "ledger.db"))
    run, update, left = Run(application), QdrantClient.update_vectors, [1]

    def deleting(client: Any, *values: Any, **named: Any) -> Any:
        if left:
            application.delete(left.pop())
        return update(client, *values, **named)

    monkeypatch.setattr(QdrantClient, "update_vectors", deleting)
    done = run.attachment.backfill(application.source("new", run.attachment))
    assert (done.embedded, done.written, done.lacking, left) == (ITEMS, ITEMS - 1, 0, [])
    run.attachment.close()
    application.close()


@pytest.mark.parametrize("application", LITE, indirect=True)
def test_the_first_comparison_reads_ids_alone(application: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was ever on both sides then; what has no vector is counted, and what is there is filled."""
    it = Run(application).attachment
    read, scan = list[bool](), type(it.engine).scan

    def noted(*values: Any, digests: bool = True) -> Any:
        read.append(digests)
        return scan(*values, digests=digests)

    monkeypatch.setattr(type(it.engine), "scan", noted)
    status = it.status()
    assert (status.items, status.lacking, status.application.empty) == (ITEMS, {"old": 0, "new": ITEMS}, 0)
    assert read == [False, False]
    it.backfill(application.source("new", it))
    assert read == [False] * 4 + [True] * 2 and it.status().lacking == {"old": 0, "new": 0}
    it.close()


@pytest.mark.parametrize("version", ["", "&version=text"])
def test_points_without_a_vector_are_counted_by_every_comparison(version: str, place: Path, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    application = QdrantApplication(f"qdrant:{place / 'q'}", ledger, f"&beside=collection{version}")
    run = Run(application)  # type: ignore[arg-type]
    bare = models.PointStruct(id=99, vector={"other": [99.0, 1.0]}, payload={"text": "bare", "tags": ["bare", 99]})
    application.client.upsert(application.name, [bare])
    for _ in range(2):
        status = run.attachment.status()
        assert (status.items, status.application.empty) == (ITEMS, 1)
        run.attachment.backfill(application.source("new", run.attachment))
    assert run.attachment.status().lacking["new"] == 0
    run.attachment.close()
    application.close()


@pytest.mark.parametrize("further", ["", "&beside=collection"])
def test_a_folder_that_is_opened_again_has_no_other_vectors(further: str, tmp_path: Path) -> None:
    """A folder normalises vectors when it is opened, and rounds them in another way than when they were written."""
    draw, address = np.random.default_rng(0), f"qdrant:{tmp_path / 'q'}#items"
    client = QdrantClient(path=str(tmp_path / "q"))
    size = models.VectorParams(size=384, distance=models.Distance.COSINE)
    client.create_collection("items", {"emb": size, "further": size})
    vectors = [{name: draw.normal(size=384).tolist() for name in ("emb", "further")} for _ in range(40)]
    client.upsert("items", [models.PointStruct(id=row, vector=one, payload={}) for row, one in enumerate(vectors)])
    client.close()
    url = f"{address}?vector=emb&ledger={tmp_path / 'ledger.db'}{further}"
    old, new = UpgradeModel("declared:old", 0), UpgradeModel("declared:new", 384)
    made = draw.normal(size=(40, 384)).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    with start(url, old=old, new=new) as it:
        it.backfill(CallableVectors(lambda ids: made[[*map(int, ids)]], "declared:new", Hypersphere(384)))
    for _ in range(3):
        with open_attachment(url) as it:
            assert it.status().lacking == {"old": 0, "new": 0}


@pytest.mark.parametrize("application", LITE, indirect=True)
def test_everywhere_names_both_sides_and_what_is_written_last(application: Any) -> None:
    it = Run(application).attachment
    old, new = (it.engine.target(side) for side in ("old", "new"))
    alone = old.collection == new.collection
    assert everywhere(application.url) == ((old,) if alone else (new, old))
    it.declare_writes("new", application.source("new", it))
    assert everywhere(application.url) == ((new,) if alone else (old, new))
    it.declare_writes("old", application.source("old", it))
    it.cancel()
    assert everywhere(application.url) == (old,) and not it.engine.is_there()
    it.close()


def test_collections_of_one_name_in_two_databases_are_two(tmp_path: Path) -> None:
    ledger, server = str(tmp_path / "ledger.db"), chroma_server.shared().url
    one = ChromaApplication(server, ledger)
    two = ChromaApplication(server, ledger, f"other_{uuid.uuid4().hex[:8]}", one.name)
    one.write(1, "first", "old")
    two.write(1, "second", "old")
    with one.start() as it:
        it.declare_writes("new", one.source("new", it))
    with pytest.raises(GalleryError, match="no upgrade of"):
        current(two.url)
    with two.start() as it:
        assert it.number == 2 and it.state.writes == "old"
    assert (one.side(), two.side()) == ("new", "old")
    one.close()
    two.close()


@pytest.mark.parametrize("scheme", ENGINES)
def test_one_collection_has_one_place_however_its_url_is_written(scheme: str) -> None:
    plain = read_place(f"{scheme}://h/items?ledger=l.db")
    port = ENGINES[scheme].port
    for url in (f"{scheme}://h:{port}/items", f"{scheme.upper()}://H:{port}/items/", f"{scheme}://h//items"):
        place = read_place(f"{url}?ledger=l.db")
        assert (place.source, collection_of(place.address)) == (plain.source, "items"), url
    assert read_place(f"{scheme}://H?collection=items&ledger=l.db").source == plain.source
    others = [f"{scheme}://h:{port + 1}/items", f"{scheme}://g/items", f"{scheme}:h#items"]
    assert plain.source not in {read_place(f"{url}?ledger=l.db").source for url in others}
    folders = {read_place(f"{scheme}:{path}?ledger=l.db").source for path in ("f#items", "./f/#items", "g/../f#items")}
    assert len(folders) == 1


@pytest.mark.parametrize(("said", "same"), [
    ("chroma://h:8000/items?database=default_database", True), ("chroma://h:8000/items?tenant=default_tenant", True),
    ("chroma://h:8000/items?database=b", False), ("chroma://h:8000/items?tenant=b", False),
    ("milvus://h:8000/items?database=default", True), ("milvus://h:8000/items?database=b", False),
    ("qdrant://h:8000/items?https=true", True),
])  # fmt: skip
def test_the_database_and_the_tenant_say_which_collection_is_meant(said: str, same: bool) -> None:
    plain = read_place(f"{said.partition('?')[0]}?ledger=l.db").source
    assert (read_place(f"{said}&ledger=l.db").source == plain) == same


class Held:
    """Stops one call of a method before it begins, until it is let go.

    Args:
        patch: Of the test.
        owner: Whose method.
        name: Of the method.
    """

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.reached, self.go, method, first = Event(), Event(), getattr(owner, name), iter([True])

        def call(*values: Any, **named: Any) -> Any:
            if next(first, False):
                self.reached.set()
                assert self.go.wait(60)
            return method(*values, **named)

        patch.setattr(owner, name, call)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def any_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "SQLite":
        return str(tmp_path / "ledger.db")
    return str(request.getfixturevalue("postgres_url")).partition("&schema=")[0]


def test_who_cancels_late_removes_nothing_that_was_started_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[..., Any]
) -> None:
    """One operator is stopped between the end and the removal; another one cancels, and starts under the same name."""
    monkeypatch.setattr(ledger, "NOTICE", 0.0)
    application = ChromaApplication(chroma_server.shared().url, str(tmp_path / "ledger.db"))
    name = f"{application.name}_new"
    application.url += f"&new={name}"
    one, held = Run(application).attachment, Held(monkeypatch, Service, "drop")

    def other() -> None:
        with application.open() as it:
            it.cancel()
        with application.start() as it:
            it.backfill(application.source("new", it))

    with ThreadPoolExecutor() as pool, logged(logging.WARNING, "limpet") as log:
        first = pool.submit(one.cancel)
        assert held.reached.wait(60)
        second = pool.submit(other)
        while not (second.done() or "waits" in log.text):
            wait([second], timeout=0.01)
        held.go.set()
        first.result()
        second.result()
    with application.open() as it:
        assert it.status().lacking["new"] == 0 and it.journal()[0]["kind"] == "start"
        assert application.contents(Target(name)) == expected(application.twin, "new")
    one.close()
    application.close()


def test_an_upgrade_waits_for_another_process_and_says_for_whom(
    any_ledger: str, monkeypatch: pytest.MonkeyPatch, logged: Callable[..., Any]
) -> None:
    one, other = CollectionLedger(any_ledger), CollectionLedger(any_ledger)
    monkeypatch.setattr(ledger, "NOTICE", 0.01)
    monkeypatch.setattr(ledger, "LONGEST", 0.05)
    with one.alone(1), logged(logging.WARNING, "limpet") as log:
        with pytest.raises(LockedError, match=r"process \d+ (on|of) ") as refused, other.alone(1):
            pass
        assert "wait" in refused.value.to_do and "waits" in log.text
    with other.alone(1), pytest.raises(LockedError), one.alone(1):
        pass
    one.close()
    other.close()


WRITES = {
    QdrantClient: ["upsert", "update_vectors", "delete", "delete_vectors", "create_collection", "create_vector_name",
                   "update_collection_aliases"],
    MilvusClient: ["upsert", "delete", "create_collection", "load_collection", "alter_alias", "create_alias", "flush"],
    Service: ["create", "drop", "upsert", "remove"],
    CollectionLedger: ["add", "step", "keep", "forget"],
}  # fmt: skip


class Faults:
    """Kills the process before or after one of all the writes that an upgrade does.

    Args:
        patch: Of the test.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls, self.at, self.after, self.armed = 0, -1, False, False
        for kind, names in WRITES.items():
            for name in names:
                patch.setattr(kind, name, self._failing(getattr(kind, name)))

    def _failing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            if not self.armed:
                return method(*values, **named)
            self.calls += 1
            if self.calls == self.at and not self.after:
                raise Killed
            done = method(*values, **named)
            if self.calls == self.at:
                raise Killed
            return done

        return call


class Mortal(Run):
    """A run that only faults of its own steps hit, and none of the application's writes."""

    faults: Faults

    def surely(self, attachment: Any, phase: str, step: Callable[[], Any]) -> Any:
        self.faults.armed = True
        try:
            return super().surely(attachment, phase, step)
        finally:
            self.faults.armed = False

    def meanwhile(self) -> None:
        self.faults.armed = False
        super().meanwhile()
        self.faults.armed = True


def killed_at(faults: Faults, application: Application, at: int, *, after: bool) -> int:
    """Run an upgrade that is killed at one write; return how many there were."""
    faults.calls, faults.at, faults.after = 0, at, after
    Mortal.faults = faults
    run = Mortal(application)
    upgrade(run)
    assert run.killed == (0 < at <= faults.calls)
    return faults.calls


@pytest.mark.parametrize("kind", ["vectors of Qdrant", "alias of Qdrant"])
def test_killed_at_a_few_writes_it_goes_on(
    kind: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(kind, place, tmp_path, Faults(monkeypatch), every=17)


EVERY = {"Milvus Lite": 7, "alias of Milvus Lite": 11, "Chroma": 3}
"""Which writes are tried: where a trial takes seconds some, which are not the same everywhere."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "every"), [(kind, EVERY.get(kind, 1)) for kind in LITE])
def test_killed_at_any_write_it_goes_on(
    kind: str, every: int, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(kind, place, tmp_path, Faults(monkeypatch), every=every)


def sweep(kind: str, place: Path, tmp_path: Path, faults: Faults, *, every: int) -> None:
    def once(at: int, *, after: bool) -> int:
        application = MAKE[kind](place, str(tmp_path / f"{at}{after}.db"))
        try:
            return killed_at(faults, application, at, after=after)
        finally:
            application.close()

    writes = once(-1, after=False)
    assert writes > 30
    for at in range(1, writes + 1, every):
        for after in (False, True):
            once(at, after=after)


@pytest.mark.parametrize("application", LITE, indirect=True)
def test_collections_are_not_swapped_while_an_item_lacks_a_vector(application: Any) -> None:
    application.write(0, "item 0", "old")
    attachment = application.start()
    attachment.backfill(application.source("new", attachment), of="new")
    attachment.index()
    application.write(1, "item 1", "old")
    with pytest.raises(UpgradeStateError, match="1 items"):
        attachment.swap()
    assert attachment.state.phase == "started"
    attachment.swap(allow_missing=1)
    assert attachment.state.phase == "swapped"
    attachment.close()


class Overtaken(Editing):
    """A source beside an application that writes the very item that is being filled, on its own side."""

    def embed(self, ids: list[str]) -> Any:
        made = self.whole.embed(ids)
        self.application.put(self.application.first, 99, "own", vector("old", "own").tolist())
        return made


@pytest.mark.parametrize("application", ["collections of Qdrant", "Milvus Lite", "Chroma"], indirect=True)
def test_collections_keep_what_the_application_writes_while_its_own_side_is_filled(application: Any) -> None:
    attachment = Run(application).attachment
    attachment.backfill(application.source("new", attachment))
    late = attachment.engine.target("new")  # written by who did not know yet what is declared
    application.twin[99] = "late"
    application.put(late, 99, "late", vector("new", "late").tolist())
    attachment.backfill(Overtaken(application, application.source("old", attachment)), of="old")
    assert application.contents(application.first)[99][0] == "own"
    attachment.close()
