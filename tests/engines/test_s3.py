"""Objects of a bucket, the writer's lease in one, and the top of a sharded gallery there, over a bad network."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from crash.object_server import BUCKET, Network, ObjectServer
from crash.shards import sharded
from limpet.engines.s3 import bucket as s3_bucket
from limpet.engines.s3 import lease
from limpet.engines.s3.bucket import Bucket
from limpet.engines.s3.lease import Lease
from limpet.engines.s3.top import S3Top, s3_top
from limpet.engines.store import Changes, JournalEntry, NewGeneration, Rows, Upsert, digest_of
from limpet.engines.stores import open_store
from limpet.engines.top import Beside
from limpet.errors import ConfigError, GalleryError, LockedError, StoreError
from limpet.galleries import Gallery
from limpet.galleries.backup import restore
from limpet.support.disk import Disk
from limpet.testing.stores import commit, state


@pytest.fixture
def place(object_server: ObjectServer) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


# A bucket


@pytest.mark.parametrize("url", [
    "s3://bucket", "s3://bucket/", "s3://key:secret@bucket/a", "s3://bucket/a?key=secret", "s3://b/a/../c",
    "s3://bucket//a", "s3:bucket/a", "s3://bucket/a b",
])  # fmt: skip
def test_a_url_that_names_no_prefix_is_refused_without_what_may_be_keys(object_server: ObjectServer, url: str) -> None:
    with pytest.raises(ConfigError, match="no place in a bucket") as refusal:
        Bucket(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(("name", "value", "words"), [
    ("AWS_ACCESS_KEY_ID", "", "no AWS_ACCESS_KEY_ID"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "AWS_ALLOW_HTTP"),
    ("AWS_ENDPOINT_URL", "ftp://a:secret@h", "AWS_ALLOW_HTTP"),
])  # fmt: skip
def test_an_environment_without_keys_or_encryption_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words) as refusal:
        Bucket(place)
    assert "secret" not in str(refusal.value)


def test_an_object_is_written_only_over_what_was_read(place: str) -> None:
    bucket = Bucket(place)
    assert bucket.read("a") is None and bucket.put("a", b"0", '"other"') is None
    first = bucket.put("a", b"1", None)
    assert first is not None and bucket.put("a", b"2", None) is None
    second = bucket.put("a", b"3", first)
    assert bucket.put("a", b"4", first) is None and bucket.read("a") == (b"3", second)
    bucket.copy("a", "deep/b")
    bucket.write("deep/c", [b"12", b"345"])
    assert (bucket.sizes("deep"), bucket.folders()) == ({"deep/b": 1, "deep/c": 5}, ["deep"])
    bucket.remove(["a", "deep/b", "never"])
    assert list(bucket.sizes("")) == ["deep/c"] and b"".join(bucket.blocks("deep/c")) == b"12345"


def test_a_service_that_sends_elsewhere_passes_on_a_signature_for_itself_alone(
    place: str, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, str | None]] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append((self.headers["Host"].partition(":")[0], self.headers["Authorization"]))
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{server.server_port}/there")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(StoreError, match="fails"):
        Bucket(place).read("a")
    server.shutdown(), server.server_close()
    assert {host for host, _ in heard} == {"127.0.0.1", "localhost"}
    assert all("SignedHeaders=host;" in key for _, key in heard if key)
    assert object_server.environment["AWS_SECRET_ACCESS_KEY"] not in str(heard)


def test_settings_of_other_tools_lead_no_client_elsewhere(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance and the client of the bucket look up more than is documented, and not the same."""
    for name in ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SKIP_SIGNATURE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    bucket = Bucket(place)
    lance.write_dataset(pa.table({"id": ["a"]}), f"{bucket.url}/t.lance", storage_options=bucket.options)
    assert bucket.folders() == ["t.lance"]
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert Bucket(place).options["aws_endpoint"] == "https://s3.eu-west-3.amazonaws.com"


def test_a_forked_process_is_told_that_it_cannot_use_a_bucket(place: str) -> None:
    bucket = Bucket(place)
    bucket.read("a")
    child = os.fork()
    if not child:
        try:
            bucket.read("a")
        except GalleryError as error:
            os._exit(int("was forked" not in str(error)))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# The lease


def test_one_writer_at_a_time_and_a_dead_one_is_followed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_LEASE", 0.5)
    monkeypatch.setattr(lease, "_BEAT", 0.1)
    one, other = Lease(Bucket(place)), Lease(Bucket(place))
    with one.held("the first", 1.0):
        with pytest.raises(LockedError, match="the first"), other.held("the second", 1.0):
            pass  # its signs keep it, for longer than a lease
        one.check()
    with pytest.raises(GalleryError, match="is lost"):
        one.check()
    with other.held("the second", 0.0):  # which was let go
        other.check()
    monkeypatch.setattr(Lease, "_beat", lambda *words: None)  # it stands still from now on
    with one.held("the first", 0.0), other.held("the second", 10.0):
        other.check()
        with pytest.raises(GalleryError, match="is lost"):
            one.check()


def test_a_writer_that_was_taken_for_dead_learns_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_BEAT", 0.05)
    one, bucket = Lease(Bucket(place)), Bucket(place)
    with one.held("the first", 1.0):
        found = bucket.read(lease.NAME)
        while found is None or bucket.put(lease.NAME, b'{"writer": "another", "sign": "x"}', found[1]) is None:
            found = bucket.read(lease.NAME)
        taken, pause = time.monotonic(), threading.Event()
        with pytest.raises(GalleryError, match="is lost"):
            while not pause.wait(0.01):
                one.check()
        assert time.monotonic() - taken < lease._LEASE / 2, "its next sign told it"
    assert b"another" in bucket.read(lease.NAME)[0]  # type: ignore[index]


# The top


def entry(number: int) -> JournalEntry:
    return JournalEntry(number, float(number), {"kind": "test", "number": number})


def test_a_move_keeps_document_journal_and_values_together(place: str) -> None:
    top = s3_top(place, Disk(), {"count": 0})
    with pytest.raises(GalleryError, match="There is a gallery at"):
        s3_top(place, Disk(), {"count": 7})
    one, two = b"one", np.random.default_rng(0).bytes(300_000)
    files = {digest_of(content): content for content in (one, two)}
    over = top.read()
    top.move({"count": 1}, over, "first", Beside([entry(1)], files))
    with pytest.raises(GalleryError, match="another writer was faster"):
        top.move({"count": 2}, over, "second", Beside([entry(2)], {digest_of(b"x"): b"x"}))
    again = s3_top(place, Disk())
    assert (again.read().document, again.read().tag) == ({"count": 1}, 1)
    assert {digest: again.file(digest) for digest in again.digests()} == files
    again.move({"count": 2}, again.read(), "third", Beside([entry(2)], {}, [digest_of(two)]))
    assert top.digests() == {digest_of(two)}
    with pytest.raises(GalleryError, match="has no file"):
        top.file(digest_of(one))
    top.move({}, top.read(), "fourth", Beside([entry(number) for number in range(3, 70)]))
    top.move({}, top.read(), "fifth", Beside([entry(70)]))
    assert top.journal(0) == [entry(number) for number in range(1, 71)]
    assert top.journal(69) == [entry(70)]


def test_a_top_is_sent_again_only_if_it_has_moved(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search asks for it, and it is as large as many shards and journal entries are."""
    top, sent, really = s3_top(place, Disk(), {"count": 0}), [], s3_bucket.obstore.get

    def get(*words: Any, **more: Any) -> Any:
        sent.append(found := really(*words, **more))
        return found

    monkeypatch.setattr(s3_bucket.obstore, "get", get)
    assert [top.read().document for _ in range(3)] == [{"count": 0}] * 3 and not sent
    s3_top(place, Disk()).move({"count": 1}, top.read(), "of another")
    sent.clear()
    assert [top.read().document for _ in range(3)] == [{"count": 1}] * 3 and len(sent) == 1


def test_a_top_needs_a_bucket_that_is_there_and_compares_before_it_writes(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="is in no bucket"):
        s3_top("s3://no-such-bucket/top", Disk(), {})
    really = s3_bucket.obstore.put
    monkeypatch.setattr(s3_bucket.obstore, "put", lambda *words, mode, **more: really(*words, **more))
    for _ in range(2):
        with pytest.raises(StoreError, match="conditional writes"):
            s3_top(place, Disk(), {})


def test_a_top_that_was_altered_is_refused_with_a_sentence(place: str) -> None:
    with pytest.raises(GalleryError, match="There is no top of shards"):
        s3_top(place, Disk())
    top, bucket = s3_top(place, Disk(), {}), Bucket(place)
    top.move({}, top.read(), "first", Beside([entry(number) for number in range(1, 70)], {digest_of(b"a"): b"a"}))
    [(whole, _)] = [bucket.read("top.json") or (b"", "")]
    for name in bucket.sizes("files"):
        bucket.write(name, [b"other"])
    with pytest.raises(StoreError, match="another digest"):
        top.file(digest_of(b"a"))
    bucket.remove(list(bucket.sizes("files")) + list(bucket.sizes("journal")))
    for ask in (lambda: top.file(digest_of(b"a")), lambda: top.journal(0)):
        with pytest.raises(StoreError, match="is not there"):
            ask()
    for key in json.loads(whole):
        for wrong in (None, 3.5, "x", [[1]], {"a": 1}):
            bucket.write("top.json", [json.dumps(json.loads(whole) | {key: wrong}).encode()])
            with suppress(GalleryError):
                top.read(), top.journal(69), top.digests()
    bucket.write("top.json", [whole[:40]])
    with pytest.raises(StoreError, match="is damaged"):
        top.read()


def written(ids: list[str], value: float) -> Changes:
    return Changes(upsert=Upsert(ids, [{}] * len(ids), [Rows("g1", ids, np.full((len(ids), 4), value, np.float32))]))


def test_a_sharded_gallery_with_its_top_in_a_bucket(place: str, object_server: ObjectServer, tmp_path: Path) -> None:
    ids = [f"item {number}" for number in range(12)]
    url = sharded(tmp_path / "gallery", top=place)
    store = open_store(url, create=True)
    commit(store, Changes(create=[NewGeneration("g1", 4, {})]))
    object_server.network(Network(errors=0.05, lost=0.2, failed=0.05))
    try:
        for value in range(5):
            commit(store, written(ids[value:], value))
        other = open_store(url)
        refused = pytest.raises(LockedError, match="the first")
        with store.writing("the first"), refused, other.writing("the second", timeout=0.1):
            pass
        with store.exclusive("serve", timeout=0.1) as check, other.writing("beside it"):
            check()
            with pytest.raises(LockedError), other.exclusive("serve", timeout=0.1):
                pass
        with Gallery(other) as gallery:
            gallery.backup(tmp_path / "backup")
    finally:
        object_server.network()
    found = state(store, {"g1": 4})
    expected = {one: [float(min(value, 4))] * 4 for value, one in enumerate(ids)}
    assert dict(zip(*found["g1"], strict=True)) == expected  # type: ignore[call-overload]
    assert found["pointer"][0] == 6 and len(found["journal"]) == 6
    restore(tmp_path / "backup", copied := sharded(tmp_path / "copy", top=f"{place}-copy"))
    copy = open_store(copied)
    assert state(copy, {"g1": 4}) == found
    copy.close(), store.close()


def test_a_commit_that_was_begun_is_taken_back_after_its_writer_is_gone(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_LEASE", 0.5)
    monkeypatch.setattr(lease, "_BEAT", 0.1)
    url = sharded(tmp_path, top=place)
    store = open_store(url, create=True)
    commit(store, Changes(create=[NewGeneration("g1", 4, {})]))
    commit(store, written(["a", "b", "c"], 1))
    before = state(store, {"g1": 4})

    class Stopping(Disk):
        def reached(self, point: str) -> None:
            if point == "sharded.decide":
                raise OSError(5, "an error of the test")

    dying = open_store(url, disk=Stopping())
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "_put", _only_take(Lease._put))  # it lets go of nothing, as if it were killed
        with pytest.raises(StoreError):
            commit(dying, written(["a", "d"], 2))
    assert S3Top.read(store.top).document["unfinished"] is not None  # type: ignore[attr-defined]
    assert state(store, {"g1": 4}) == before
    commit(store, written(["d"], 3))
    assert store.vectors("g1", ["a", "d"])[1].tolist() == [[1.0] * 4, [3.0] * 4]
    dying.close(), store.close()


def _only_take(put: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, who, over: put(self, who, over) if who else None
