"""Folders and files that somebody else made: none of them decides which server receives texts or a key."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import yaml

from api_server import ApiServer, serving
from crash.applications import QdrantApplication
from limpet.cli import main
from limpet.cli.program import COMMANDS
from limpet.errors import ReleaseError
from limpet.geometry import Hypersphere
from limpet.models.api.probe import PROBES, fingerprint_of, sketch, written
from limpet.models.api.settings import Endpoint
from limpet.models.building import build_network
from limpet.models.release import make_release, save_release
from limpet.models.specs import FeatureSpec
from limpet.training.fine_tuning import load_fine_tuned
from limpet_bench.cli import main as bench
from option_names import commands, option_names

from ..bench.writing import write_suite

TEXTS = "id,text\n" + "".join(f"p{row},a text number {row}\n" for row in range(30))
OF_IMAGES = {"embed images", "gallery create", "upgrade start", "embed stored"}
"""Commands that open a release and no text model."""


def api_fingerprint(address: Endpoint) -> str:
    """Return a fingerprint that a stranger can make up, since all that goes into it is known."""
    vectors = np.random.default_rng(0).normal(size=(len(PROBES), 24))
    return fingerprint_of(address, 24, None, written(sketch(vectors)))


def head_naming(folder: Path, model: str, frozen: str) -> Path:
    """Save a sound head that says that the text model of its vectors is ``model``."""
    network = build_network(FeatureSpec(frozen=frozen, width=24, dim=24))
    release = make_release(network, Hypersphere(24), compatible_with="declared:old", frozen_model={"model": model})
    return save_release(release, folder)


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The addresses that any socket of this process was connected to, except those of this machine's own files."""
    made: list[Any] = []

    def guarded(name: str) -> None:
        real = getattr(socket.socket, name)

        def connect(self: socket.socket, address: Any) -> Any:
            if self.family != socket.AF_UNIX:
                made.append(address)
            return real(self, address)

        monkeypatch.setattr(socket.socket, name, connect)

    guarded("connect")
    guarded("connect_ex")
    real_lookup = socket.getaddrinfo

    def lookup(host: Any, *more: Any, **named: Any) -> Any:
        made.append(host)
        return real_lookup(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return made


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A server that waits for texts and keys, with texts.csv, vectors and a gallery in the current folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of_the_user"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for name in ("OPENAI_API_KEY", "QDRANT_API_KEY", "MILVUS_TOKEN", "CHROMA_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, "sk-very-secret")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("texts.csv").write_text(TEXTS)
    vectors = np.random.default_rng(0).normal(size=(30, 24)).astype(np.float32)
    np.savez("old.npz", ids=np.array([f"p{row}" for row in range(30)]), vectors=vectors)
    with serving() as api:
        yield api


def commands_with_release(head: Path, collection: str) -> dict[str, list[str]]:
    """Return for every command that opens a release words by which it would embed texts with the head ``head``."""
    release = ["--model", f"release:{head}"]
    gallery = ["memory:live", *release]
    embedding = [*gallery, "--texts", "texts.csv"]
    attached = [collection, *release]
    return {
        "embed texts": ["texts.csv", *release, "--out", "made"],
        "export": [f"release:{head}", "--to", "sentence-transformers", "--out", "exported"],
        "gallery create": ["memory:another", *release, "--texts", "texts.csv"],
        "gallery import": ["memory:another", "--texts", "texts.csv", "--table", "texts.csv", *release],
        "gallery add": embedding,
        "gallery upsert": embedding,
        "gallery search": [*gallery, "--text", "a text"],
        "doctor": embedding,
        "doctor ": attached,
        "serve": [*gallery, "--port", "0"],
        "upgrade plan": embedding,
        "upgrade rehearse": [*embedding, "--report", "none"],
        "upgrade start": gallery,
        "upgrade backfill": embedding,
        "fragments make": ["work", *embedding[1:]],
        "upgrade start ": attached,
        "upgrade backfill ": attached,
        "upgrade swap": attached,
        "upgrade rollback": attached,
        "upgrade verify": attached,
        "upgrade writes": [*attached, "--of", "new"],
        "embed images": ["texts.csv", *release, "--out", "made"],
        "embed stored": ["old.npz", "--name", "old", *release, "--out", "made"],
    }


def test_every_command_that_opens_a_release_sends_nothing_to_a_model_that_its_folder_names(
    server: ApiServer, tmp_path: Path, connects: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = api_fingerprint(Endpoint.read(server.name.partition(":")[2]))
    head = head_naming(tmp_path / "stranger" / "head", server.name, frozen)
    application = QdrantApplication(f"qdrant:{tmp_path / 'data'}", str(tmp_path / "ledger.db"))
    try:
        for item in range(3):
            application.write(item, f"item {item}", "old")
        collection = f"{application.url}&text=text"
        asked = commands_with_release(head, collection)
        having = {name for name in commands() if "model" in option_names(name)} - {"train", "fine-tune"}
        assert having == {name.strip() for name in asked}, "a command that opens a release is missing here"
        assert main(["gallery", "create", "memory:live", "--embeddings", "old.npz", "--name", "old"]) == 0
        assert main(["upgrade", "start", "memory:live", "--model", f"release:{head}"]) == 0
        assert main(["fragments", "plan", "memory:live", "work"]) == 0
        for name, words in asked.items():
            capsys.readouterr()
            assert main([*name.split(), *words]) in (0, 2)
            said = capsys.readouterr().err
            assert not server.requests and not connects, (name, connects)
            assert "Traceback" not in said and "sk-very-secret" not in said
            if name in ("embed texts", "gallery search", "upgrade backfill"):
                assert f"--over {server.name}" in said and "Nothing was sent" in said, (name, said)
    finally:
        application.close()


@pytest.mark.parametrize("model", ["someone/model", "st:someone/model"])
def test_a_head_downloads_nothing_that_its_folder_names(
    model: str, server: ApiServer, tmp_path: Path, connects: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    head = head_naming(tmp_path / "head", model, "text:" + 64 * "0")
    assert main(["embed", "texts", "texts.csv", "--model", f"release:{head}", "--out", "made"]) == 2
    assert "nor in the cache of the hub" in " ".join(capsys.readouterr().err.split()) and not connects


def test_a_fine_tuned_model_is_opened_from_its_own_folder_alone(
    server: ApiServer, tmp_path: Path, connects: list[Any]
) -> None:
    frozen = api_fingerprint(Endpoint.read(server.name.partition(":")[2]))
    for number, place in enumerate((server.name, "someone/model", "within:../../secret")):
        folder = head_naming(tmp_path / str(number), place, frozen)
        with pytest.raises(ReleaseError):
            load_fine_tuned(folder)
    assert not connects and not server.requests


def test_a_model_that_cannot_be_the_one_of_a_head_is_not_asked(
    server: ApiServer, tmp_path: Path, connects: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    address = Endpoint.read(server.name.partition(":")[2])
    others = ["text:" + 64 * "0", api_fingerprint(Endpoint("another", address.url)), "api:of-no-form"]
    for number, frozen in enumerate(others):
        head = head_naming(tmp_path / str(number), "minilm", frozen)
        words = ["--model", f"release:{head}", "--over", server.name, "--out", "made"]
        assert main(["embed", "texts", "texts.csv", *words]) == 2
        assert "Nothing was sent" in capsys.readouterr().err
    assert not server.requests and not connects


def in_file(command: str, values: dict[str, Any]) -> str:
    """Write settings of a command to a file, and return its name."""
    if command not in COMMANDS:  # which Cyclopts does not read yet
        Path("settings.yaml").write_text(yaml.safe_dump(values))
        return "settings.yaml"
    first, second = command.split()
    Path("settings.toml").write_text(tomli_w.dumps({first: {second: values}}))
    return "settings.toml"


def test_a_file_of_settings_names_no_server_that_is_not_listed(
    server: ApiServer, connects: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.url.partition("127.0.0.1")[2].partition("/")[0]
    named: list[tuple[str, dict[str, Any]]] = [
        ("embed texts", {"texts": "texts.csv", "model": [server.name], "out": "made"}),
        ("embed texts", {"texts": f"qdrant://127.0.0.1{port}/items?text=text", "model": ["st:x"], "out": "made"}),
        ("embed texts", {"texts": f"milvus://127.0.0.1{port}/items?text=text", "model": ["st:x"], "out": "made"}),
        ("gallery status", {"gallery": f"postgresql://me@127.0.0.1{port}/db"}),
        ("upgrade status", {"url": f"http://127.0.0.1{port}"}),
    ]
    monkeypatch.setenv("LIMPET_KEY", "s3cret")
    for name, values in named:
        file = in_file(name, values)
        assert main([*name.split(), "--config", file]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"export LIMPET_API_HOSTS=127.0.0.1{port}" in said
    assert not server.requests and not connects
    monkeypatch.setenv("LIMPET_API_HOSTS", f"api.openai.com, 127.0.0.1{port}")
    assert main(["embed", "texts", "--config", in_file(*named[0])]) == 0
    assert f"Texts go to {server.url}, with the key in OPENAI_API_KEY." in capsys.readouterr().err


def test_a_suite_names_no_server_that_is_not_listed(
    server: ApiServer, connects: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    suite = {
        "title": "of a stranger", "track": "features", "seeds": [0], "recipe": {"epochs": 1, "batch_size": 16},
        "methods": {"independent": {}}, "gate_metric": "map", "data": {"clinc150": {}},
        "frozen": {"old": server.name, "new": server.name},
    }  # fmt: skip
    write_suite(Path("suite.py"), suite)
    assert bench(["run", "suite.py", "--cache", "cache"]) == 2
    assert "LIMPET_API_HOSTS" in capsys.readouterr().err
    bench(["plan", "suite.py", "--cache", "cache"])  # which lists the runs where the data is missing
    assert not server.requests and not connects
