"""``limpet upgrade`` on collections by commands alone, and what is refused."""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_client import models

from crash import chroma_server
from crash.applications import ChromaApplication, MilvusApplication, QdrantApplication, expected
from crash.server import Server
from crash.shop import vector
from limpet.attached.collections.ledger import CollectionLedger
from limpet.attached.collections.opening import current, open_attachment, plan, start
from limpet.cli import main
from limpet.errors import ConfigError, GalleryError, UpgradeStateError
from limpet.upgrade.model import UpgradeModel

ITEMS = 6
MODELS = ["--old-name", "old", "--name", "new", "--dim", 8]


class Terminal:
    """``limpet upgrade`` with one collection."""

    def __init__(self, application: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.application, self.capsys, self.said = application, capsys, ""
        for item in range(ITEMS):
            application.write(item, f"item {item}", "old")

    def run(self, subcommand: str, *words: object, code: int = 0, further: str = "") -> dict[str, Any]:
        self.capsys.readouterr()
        url = f"{self.application.url}&text=text{further}"
        assert main(["upgrade", subcommand, url, *map(str, words), "--json"]) == code, self.capsys.readouterr().err
        captured = self.capsys.readouterr()
        self.said = " ".join(captured.err.split())
        return dict(json.loads(captured.out))

    def served(self) -> Any:
        return self.application.served()


@pytest.fixture(params=["Qdrant", "Milvus", "Chroma"])
def terminal(request: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    make: dict[str, Callable[[], Any]] = {
        "Qdrant": lambda: QdrantApplication(f"qdrant:{tmp_path / 'data'}", str(tmp_path / "ledger.db")),
        "Milvus": lambda: MilvusApplication(f"milvus:{tmp_path / 'data.db'}", str(tmp_path / "ledger.db"), "shown"),
        "Chroma": lambda: ChromaApplication(chroma_server.shared().url, str(tmp_path / "ledger.db")),
    }
    application = make[request.param]()
    yield Terminal(application, capsys)
    application.close()


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Path]:
    def make(side: Any, items: dict[int, str]) -> Path:
        path = tmp_path / f"{side}.npz"
        vectors = np.stack([vector(side, text) for text in items.values()])
        np.savez(path, ids=np.array([str(one) for one in items]), vectors=vectors)
        return path

    return make


def test_an_upgrade_by_commands(terminal: Terminal, files: Callable[..., Path]) -> None:
    application = terminal.application
    started = terminal.run("start", *MODELS)
    assert (started["phase"], started["items"], started["lacking"]["new"]) == ("started", ITEMS, ITEMS)
    assert "current(" in terminal.said and "limpet upgrade backfill" in terminal.said
    terminal.run("start", *MODELS)  # it goes on where it was
    made = files("new", application.twin)
    assert terminal.run("backfill", "--model", made)["done"]["written"] == ITEMS
    application.write(3, "item 3 in blue", "old")
    application.delete(4)
    left = terminal.run("backfill", "--model", made)  # no vector of an earlier text
    assert (left["done"]["written"], left["lacking"]["new"], left["items"]) == (0, 1, ITEMS - 1)
    terminal.run("index")
    terminal.run("swap", code=2)
    assert "1 items have no up-to-date vector of the new model" in terminal.said and "'3'" in terminal.said
    newer = files("new", application.twin)
    assert terminal.run("backfill", "--model", newer, "--made", "2999-01-01T00:00+00:00")["done"]["written"] == 1
    assert terminal.run("swap")["serving"] == "new"
    assert terminal.served() == expected(application.twin, "new")
    assert terminal.run("verify", code=0)["problems"] == []
    terminal.run("cancel", code=2)
    terminal.run("rollback")
    assert terminal.served() == expected(application.twin, "old")
    terminal.run("swap", "--writes", "new")
    assert current(application.url, for_="writes") == current(application.url) != application.first
    terminal.run("finish")
    terminal.run("cancel", code=2)
    assert terminal.served() == expected(application.twin, "new")
    kinds = [event["kind"] for event in terminal.run("log")["log"]]
    assert kinds[0] == "start" and kinds[-1] == "finish"


@pytest.mark.parametrize("terminal", ["Qdrant"], indirect=True)
@pytest.mark.parametrize("damage", [
    "UPDATE attachments SET record = '{}'", "UPDATE attachments SET state = 'x'", "UPDATE journal SET event = '[]'", "",
])  # fmt: skip
def test_a_damaged_ledger_is_told_by_its_own_name(damage: str, tmp_path: Path, terminal: Terminal) -> None:
    terminal.run("start", *MODELS)
    ledger = tmp_path / "ledger.db"
    if damage:
        with closing(sqlite3.connect(ledger)) as connection:
            connection.execute(damage)
            connection.commit()
    else:
        ledger.with_name("ledger.db-wal").unlink(missing_ok=True)
        ledger.write_bytes(b"no database" * 1000)
    url = f"{terminal.application.url}&text=text"
    assert main(["upgrade", "log", url]) == 2
    said = " ".join(terminal.capsys.readouterr().err.split())
    assert "restore a damaged ledger" in said and "gallery" not in said.replace(str(tmp_path), "")


def test_what_is_cancelled_leaves_no_trace(terminal: Terminal, files: Callable[..., Path]) -> None:
    application = terminal.application
    before = application.contents(application.first)
    terminal.run("start", *MODELS)
    terminal.run("backfill", "--model", files("new", application.twin))
    added = open_attachment(application.url)
    target = added.engine.target("new")
    added.close()
    assert len(application.contents(target)) == ITEMS
    terminal.run("cancel")
    assert current(application.url) == application.first and application.contents(application.first) == before
    again = start(application.url, old=UpgradeModel("declared:old", 0), new=UpgradeModel("declared:other", 8))
    assert not list(again.engine.fetch("new", ["1"])) or again.engine.fetch("new", ["1"])[0].vector is None
    again.cancel()
    again.close()


def test_the_alias_is_set_last_and_looked_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    application = QdrantApplication(f"qdrant:{tmp_path / 'data'}", str(tmp_path / "ledger.db"), alias="shown")
    terminal = Terminal(application, capsys)
    terminal.run("start", *MODELS)
    with open_attachment(application.url) as attachment:
        attachment.backfill(application.source("new", attachment))
        attachment.index()
        attachment.swap()
        assert attachment.engine.aliased("shown") == current(application.url).collection != application.name
        attachment.engine.set_alias("shown", "old")  # somebody else did
        [problem] = attachment.verify().problems
        assert "the alias shown leads to" in problem
        attachment.swap()  # sets it again
        assert attachment.verify().passed
        with pytest.raises(UpgradeStateError, match="serve already"):
            attachment.swap()
    application.close()


def test_a_version_that_the_application_counts_is_all_that_is_read(tmp_path: Path) -> None:
    application = MilvusApplication(f"milvus:{tmp_path / 'data.db'}", f"{tmp_path / 'ledger.db'}&version=text")
    for item in range(3):
        application.write(item, f"item {item}", "old")
    with application.start() as attachment:
        assert attachment.backfill(application.source("new", attachment)).written == 3
        row = {"key": 1, "emb": vector("old", "x").tolist(), "text": "item 1", "tags": ["item 1", 1]}
        application.client.upsert(application.name, [row])  # the version stays
        assert attachment.status().lacking["new"] == 0
        application.write(1, "item 1 edited", "old")
        assert attachment.status().lacking["new"] == 1
        assert attachment.backfill(application.source("new", attachment)).written == 1
        assert application.contents(attachment.engine.target("new")) == expected(application.twin, "new")
        empty = {"key": 1, "emb": None, "text": "item 1"}  # as a server says it; the Lite one keeps zeros
        engine: Any = attachment.engine
        assert engine._row(empty).digest is None and engine._row({"key": 1, "text": "item 1"}).digest is not None
    application.close()


def test_points_without_a_vector_lack_none_where_a_version_is_read(tmp_path: Path) -> None:
    application = QdrantApplication(
        f"qdrant:{tmp_path / 'data'}", f"{tmp_path / 'ledger.db'}&version=text", "&beside=collection"
    )
    application.write(0, "item 0", "old")
    point = models.PointStruct(id=1, vector={"other": [1.0, 1.0]}, payload={"text": "item 1"})
    application.client.upsert(application.name, [point])
    with application.start() as attachment:
        assert attachment.backfill(application.source("new", attachment)).written == 1
        assert attachment.status().lacking == {"old": 0, "new": 0}
        application.client.delete_vectors(application.name, ["emb"], [0])
        attachment.backfill(application.source("new", attachment))
        assert attachment.verify().passed and not application.contents(attachment.engine.target("new"))
    application.close()


def test_a_plan_before_the_start_makes_no_ledger(terminal: Terminal, tmp_path: Path) -> None:
    planned = terminal.run("plan")
    assert (planned["items"], planned["rows"]) == (ITEMS, ITEMS) and "upgrade start" in terminal.said
    assert not (tmp_path / "ledger.db").exists()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(terminal: Terminal, tmp_path: Path) -> None:
    application = terminal.application
    before = application.contents(application.first)
    told = terminal.run("start", *MODELS, "--dry-run")
    assert told["refusals"] == [] and not (tmp_path / "ledger.db").exists()
    made, noted = told["steps"]["start"]
    assert made.startswith("make the ") and "of 8 numbers" in made and "ledger.db" in noted
    terminal.run("start", *MODELS)
    with open_attachment(application.url) as attachment:
        old, new = attachment.engine.target("old"), attachment.engine.target("new")
        assert f"'{new.vector if new.collection == old.collection else new.collection}'" in made
        assert terminal.run("start", *MODELS, "--dry-run") == told, "of what is attached already it says the same"
        attachment.cancel()
    assert application.contents(application.first) == before
    taken = "other" if "qdrant" in application.url else application.name
    old, new = UpgradeModel("declared:old", 0), UpgradeModel("declared:new", 8)
    would = plan(f"{application.url}&new={taken}", old=old, new=new)
    assert "already" in would.refusals[0] and "new=NAME" in would.refusals[0]


def test_what_cannot_be_is_refused_by_name(terminal: Terminal, tmp_path: Path) -> None:
    application = terminal.application
    old, new = UpgradeModel("declared:old", 0), UpgradeModel("declared:new", 8)
    taken = "other" if "qdrant" in application.url else application.name
    for wrong, words in (
        (application.url.replace("ledger=", "ledgre="), "names no ledger"),
        (f"{application.url}&vectro=x", "Unknown option"),
        (f"{application.url}&beside=nothing", "beside=nothing"),
        (application.url.partition("ledger=")[0] + "ledger=postgresql://me:s3cret%40db/l", "ledger holds a password"),
        (f"{application.url}&vector=none", "vector"),
    ):
        with pytest.raises(ConfigError, match=words):
            start(wrong, old=old, new=new)
    with pytest.raises(ConfigError, match="dimension 8"):
        start(application.url, old=UpgradeModel("declared:old", 9), new=new)
    with pytest.raises(GalleryError, match="There is no ledger"):
        open_attachment(application.url.replace("ledger.db", "none.db"))
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(GalleryError, match="already"):
        start(f"{application.url}&new={taken}", old=old, new=new)
    with pytest.raises(GalleryError, match="knows no upgrade of"):
        current(application.url)
    start(application.url, old=old, new=new).close()
    with pytest.raises(UpgradeStateError, match="has an upgrade already"):
        start(application.url, old=old, new=UpgradeModel("declared:third", 8))


def test_an_attachment_with_other_names_is_not_taken_for_it(terminal: Terminal) -> None:
    application = terminal.application
    old, new = UpgradeModel("declared:old", 0), UpgradeModel("declared:new", 8)
    with start(f"{application.url}&text=text", old=old, new=new) as it:
        assert "table '" not in it.place and application.name in it.place
        assert len(it.some(4)) == 4 and len(it.some(100)) == ITEMS
        assert it.verify().unwatched.startswith("Collections do not tell")
    start(application.url, old=old, new=new).close()  # what is left out is as it was
    for further, words in (("&text=words", "with text=text and not words"), ("&version=v", "with version=nothing")):
        with pytest.raises(UpgradeStateError, match=words):
            start(application.url + further, old=old, new=new)


def test_a_ledger_in_postgresql_is_read_as_it_is_now_at_any_isolation_level(postgres_server: Server) -> None:
    name = f"ledger_{uuid.uuid4().hex}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    try:
        with ThreadPoolExecutor() as pool:  # at once, also making it
            one, two = pool.map(CollectionLedger, [postgres_server.url(name)] * 2)
        one.database.execute("CREATE TABLE public.counted AS SELECT 0 AS number")

        def count(ledger: CollectionLedger) -> None:
            for _ in range(20):
                with ledger.transaction():
                    [(number,)] = ledger.database.execute("SELECT number FROM public.counted")
                    ledger.database.execute("UPDATE public.counted SET number = ?", [number + 1])

        threads = [threading.Thread(target=count, args=[ledger]) for ledger in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.database.execute("SELECT number FROM public.counted") == [(40,)]
        one.close()
        two.close()
    finally:
        postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")
