"""Commands with a text model behind an API, asked of a real server on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_server import Answer, ApiServer, serving, vector_of
from limpet import load_embeddings
from limpet.cli import main
from limpet.embeddings import EmbeddingSet
from limpet.geometry import Hypersphere
from limpet.models.api.probe import PROBES
from limpet.training.compatible_head import train_head
from limpet.training.experiment import Experiment, Recipe

KEY = "sk-very-secret-1234"
COLOURS, THINGS = ("red", "blue", "green", "black", "white"), ("shoes", "hat", "coat", "lamp", "table")
WORDS = [*COLOURS, *THINGS, "small", "large", "light", "heavy", "cheap", "warm", "soft", "hard"]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A server with a key, and 120 texts in products.csv with vectors of an older model in products.npz."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of_the_user"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 4, replace=False)) for _ in range(120)]
    Path("products.csv").write_text("id,text\n" + "".join(f"p{row},{text}\n" for row, text in enumerate(texts)))
    new = np.stack([vector_of(text, "words-1") for text in texts])
    old = new @ rng.normal(size=(new.shape[1], 32)) + 4 * rng.normal(size=(120, 32))  # sees less of the same
    np.savez("products.npz", ids=np.array([f"p{row}" for row in range(120)]), vectors=old.astype(np.float32))
    with serving(key=KEY) as api:
        yield api


def run(words: str, *more: str) -> int:
    return main([*words.split(), *more])


def test_texts_are_embedded_once_and_paid_once(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    embed = f"embed texts products.csv --model {server.name} --api.price 1000"
    assert run(f"{embed} --out one --json") == 0
    first = capsys.readouterr()
    (made,) = json.loads(first.out)["embeddings"]
    embedded = load_embeddings(Path(made["file"]))
    assert made["file"] == "one/words-1/embeddings.safetensors" and made["fingerprint"].startswith("api:")
    assert len(embedded) == 120 and len(server.requests) == 3
    assert "tokens in 3 requests, which cost 0." in first.err
    assert run(f"{embed} --out two") == 0
    assert len(server.requests) == 4 and server.texts[3] == list(PROBES), "only the probe"
    assert "120 of 120 texts were in the cache" in " ".join(capsys.readouterr().err.split())
    again = load_embeddings(Path("two/words-1/embeddings.safetensors"))
    assert again.fingerprint == embedded.fingerprint and np.array_equal(again.vectors, embedded.vectors)


def test_a_budget_stops_and_says_what_is_kept(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    embed = f"embed texts products.csv --model {server.name} --batch-size 20 --out made --api.cache kept.sqlite"
    assert run(f"{embed} --api.price 1000 --api.max-cost 0.25") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "budget of 250 tokens" in said and "kept in 'kept.sqlite': the same command goes on" in said
    assert not Path("made").exists(), "half of the embeddings are no embeddings"
    before = len(server.requests)
    assert run(embed) == 0
    asked = {text for texts in server.texts[:before] for text in texts} & {
        text for texts in server.texts[before + 1 :] for text in texts
    }
    assert asked == {PROBES[0]}, "nothing is asked twice"


def test_from_two_models_to_a_gallery(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    model, texts = f"--model {server.name}", "--texts products.csv"
    adapt = (
        f"adapt --old products.npz --old-name ada {texts} --new {server.name} --adapter ridge --direction new_to_old"
    )
    assert run(f"{adapt} --resamples 50 --report none --out link") == 3  # without labels, agreement alone
    server.noise = 0.005  # more than hosted models have it: it is the same model all the same
    assert (
        run(
            f"embed texts products.csv --over {server.name} --model adapter:link/adapter --api.cache other --out mapped"
        )
        == 0
    )
    assert run(f"embed texts products.csv {model} --out new") == 0
    gallery = "memory:live"
    assert run(f"gallery create {gallery} --embeddings products.npz --name ada") == 0
    assert run(f"upgrade start {gallery} --model new/words-1 --link link/adapter") == 0
    capsys.readouterr()
    fresh = "--api.cache fresh"  # as on another machine
    assert run(f"upgrade plan {gallery} {texts} {model} {fresh} --api.price 1000 --max-cost 0.16 --json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["tokens_per_item"] == pytest.approx(4, rel=0.2) and plan["rows_within_budget"] in range(30, 50)
    assert plan["cost"] == pytest.approx(120 * plan["tokens_per_item"] / 1000)
    assert run(f"gallery search {gallery} {model} --api.cache third --json --text", "red shoes") == 0
    hits = json.loads(capsys.readouterr().out)
    assert "p" in json.dumps(hits)
    limited = f"upgrade backfill {gallery} {texts} {model} --api.cache paid --batch 20 --api.max-tokens 200 --json"
    assert run(limited) == 0
    done = json.loads(capsys.readouterr().out)["done"]
    assert done["stopped"] == "budget" and 0 < done["written"] == done["embedded"] < 120
    assert run(f"upgrade backfill {gallery} {texts} {model} --api.cache paid") == 0
    assert run(f"doctor {gallery} {texts} {model} --api.cache paid") == 0


def test_a_model_that_changed_is_refused_until_it_is_accepted(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    embed = f"embed texts products.csv --model {server.name}"
    assert run(f"{embed} --out before") == 0
    server.weights = "words-2"
    assert run(f"{embed} --out after") == 2
    assert "is not the model that it was" in " ".join(capsys.readouterr().err.split())
    assert run(f"{embed} --out after --api.accept-change true") == 0
    before, after = (load_embeddings(Path(f"{one}/words-1/embeddings.safetensors")) for one in ("before", "after"))
    assert before.fingerprint != after.fingerprint


def test_the_key_is_in_no_file_and_no_word(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"embed texts products.csv --model {server.name} --out made") == 0
    server.answers = [Answer(401, body={"error": {"message": f"wrong: {KEY}"}})]
    assert run(f"embed texts products.csv --model {server.name} --out again --json") == 2
    said: Any = capsys.readouterr()
    assert KEY not in said.out + said.err and "OPENAI_API_KEY was not accepted" in said.out + said.err
    files = [Path(folder) / name for folder, _, names in os.walk(Path.cwd().parent) for name in names]
    assert any(path.name == "api.sqlite" for path in files)
    assert all(KEY.encode() not in path.read_bytes() for path in files)


def test_a_head_is_given_the_model_that_it_was_trained_over(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"embed texts products.csv --model {server.name} --out new") == 0
    new = load_embeddings(Path("new/words-1/embeddings.safetensors"))
    labels: dict[str, Any] = {"labels": np.arange(120) % 4, "class_names": list("abcd")}
    with np.load("products.npz") as content:
        vectors = content["vectors"] / np.linalg.norm(content["vectors"], axis=1, keepdims=True)
    old = EmbeddingSet(vectors, new.ids, "declared:ada", Hypersphere(32), **labels)
    experiment = Experiment(method="p2s", recipe=Recipe(epochs=1))
    train_head(old, new.replace(**labels), experiment, tmp_path / "head", frozen_model={"model": server.name})
    server.noise = 0.001
    head = f"embed texts products.csv --model release:{tmp_path / 'head'} --over {server.name}"
    assert run(f"{head} --api.cache other --out mapped") == 0
    assert "tokens in" in capsys.readouterr().err
    server.weights = "words-2"
    assert run(f"{head} --api.cache third --out changed") == 2
    assert "is not the model that it was" in " ".join(capsys.readouterr().err.split())


def test_profiles_of_a_file_are_settings_of_an_api(
    server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = f"embed texts products.csv --model {server.name} --out made"
    rich = f"[api.rich]\nmodel = '{server.name}'\nprice = 1000\n"
    Path("limpet.toml").write_text(f"[api.default]\nprice = 1000\nmax-cost = 0.1\n{rich}")
    assert run(embed) == 2
    assert "LIMPET_API_HOSTS" in capsys.readouterr().err
    monkeypatch.setenv("LIMPET_API_HOSTS", server.url.partition("//")[2].partition("/")[0])
    assert run(embed) == 2
    assert "budget of 100 tokens" in " ".join(capsys.readouterr().err.split())
    assert run(embed.replace(server.name, "openai:poor")) == 2
    assert "does not say at which server" in capsys.readouterr().err
    assert run(f"{embed} --api.max-csot 1") == 2
    assert "Did you mean 'max_cost'?" in capsys.readouterr().err
    assert run(f"{embed.replace(server.name, 'openai:rich')} --api.max-tokens 10000") == 0
    assert "which cost" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["allow-http = true", "key-variable = 'GITHUB_TOKEN'"])
def test_a_file_that_was_only_found_weakens_no_protection(
    setting: str, server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("limpet.toml").write_text(f"[api.default]\n{setting}\n")
    assert run(f"embed texts products.csv --model {server.name} --out made") == 2
    assert "--config" in capsys.readouterr().err and not server.requests
