"""``limpet upgrade``: an upgrade of somebody's own table by commands alone, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.evidence import evaluation
from crash.server import Server
from crash.shop import Shop, lasting_shop, vector, written
from limpet.cli import main
from limpet.embeddings import storage
from limpet.evaluation.results import EvaluationResults
from limpet.results import Data


class Terminal:
    """``limpet upgrade`` with one table."""

    def __init__(self, shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
        self.shop, self.capsys, self.said = shop, capsys, ""

    def run(self, subcommand: str, *words: object, code: int = 0, url: str = "") -> dict[str, Any]:
        self.capsys.readouterr()
        assert main(["upgrade", *subcommand.split(), url or self.shop.url, *map(str, words), "--json"]) == code
        captured = self.capsys.readouterr()
        self.said = " ".join(captured.err.split())
        return dict(json.loads(captured.out))


@pytest.fixture(scope="module")
def lasting(postgres_server: Server) -> Iterator[Shop]:
    with lasting_shop(postgres_server) as shop:
        yield shop


@pytest.fixture
def terminal(lasting: Shop, capsys: pytest.CaptureFixture[str]) -> Terminal:
    shop = lasting.renew()
    shop.fill(12)
    return Terminal(shop, capsys)


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Path]:
    def make(side: Any, rows: int) -> Path:
        path = tmp_path / f"{side}.npz"
        vectors = np.stack([vector(side, f"item {row}") for row in range(rows)])
        np.savez(path, ids=np.arange(rows).astype(str), vectors=vectors)
        return path

    return make


MODELS = ["--old-name", "old", "--name", "new", "--dim", 8]


def test_an_upgrade_by_commands(terminal: Terminal, files: Callable[..., Path]) -> None:
    schema, rows = terminal.shop.dump(), terminal.shop.contents()
    planned = terminal.run("start", *MODELS, "--dry-run")
    assert all(right["held"] for right in planned["rights"]) and terminal.shop.dump() == schema
    assert list(planned["steps"]) == ["start", "index", "swap", "rollback", "cancel"]
    assert "GRANT CREATE ON DATABASE" in terminal.said and "CREATE INDEX CONCURRENTLY" in terminal.said
    assert terminal.run("start", *MODELS)["phase"] == "started"
    assert terminal.run("start", *MODELS)["phase"] == "started"  # and goes on where it was
    assert "limpet upgrade backfill" in terminal.said
    terminal.shop.execute("UPDATE shop.items SET title = 'item 3 in blue', emb = %s WHERE id = 3",
                          [written("old", "item 3 in blue")])  # fmt: skip
    done = terminal.run("backfill", "--model", files("new", 12))
    assert (done["done"]["written"], done["lacking"]) == (11, {"old": 0, "new": 1})  # no vector of an earlier text
    terminal.run("index")
    terminal.run("swap", code=2)
    assert "1 rows have no up-to-date vector of the new model" in terminal.said and "'3'" in terminal.said
    terminal.run("swap", "--model", files("new", 12), code=2)
    assert "vectors that were made before" in terminal.said
    made = ["--model", files("new", 12), "--made", "2999-01-01T00:00+00:00"]  # as if it was of the later text
    assert terminal.run("backfill", *made)["done"]["written"] == 1
    swapped = terminal.run("swap")
    assert (swapped["serving"], swapped["phase"]) == ("new", "swapped")
    assert set(terminal.shop.sides().values()) == {"new"}
    assert "limpet_attached.model_of('shop.items', 'emb')" in terminal.said
    terminal.run("cancel", code=2)
    assert "roll back first" in terminal.said
    terminal.run("rollback")
    assert [event["kind"] for event in terminal.run("log")["log"]] == [
        "start", "backfill", "backfill", "index", "index", "backfill", "backfill", "swap", "rollback",
    ]  # fmt: skip
    assert terminal.run("cancel")["stays"] == "declared:old"
    assert terminal.shop.dump() == schema and len(terminal.shop.contents()) == len(rows)


def test_a_plan_before_and_after_the_start(terminal: Terminal, files: Callable[..., Path]) -> None:
    schema, asked = terminal.shop.dump(), ["--model", files("new", 9), "--name", "new", "--price-per-thousand", 500]
    planned = terminal.run("plan", *asked)
    assert (planned["items"], planned["rows"], planned["missing"], planned["cost"]) == (12, 12, 3, 4.5)
    assert terminal.shop.dump() == schema and "upgrade start" in terminal.said and "--old-name OLD" in terminal.said
    terminal.run("start", *MODELS)
    terminal.run("backfill", "--model", files("new", 9), "--budget", 4)
    planned = terminal.run("plan", *asked)
    assert (planned["items"], planned["rows"], planned["seconds_per_query"]) == (12, 8, None)
    assert "upgrade backfill" in terminal.said
    terminal.run("plan", "--evidence", "results.json", code=2)
    assert "--evidence with an index that an application owns" in terminal.said


def test_an_upgrade_that_stays(terminal: Terminal, files: Callable[..., Path]) -> None:
    schema = terminal.shop.dump()
    terminal.run("start", *MODELS)
    terminal.run("backfill", "--model", files("new", 12))
    terminal.run("index")
    terminal.run("swap")
    terminal.run("finish", code=2)
    assert "upgrade writes 'postgresql://" in terminal.said and "--of new`" in terminal.said
    terminal.run("writes", "--of", "new")
    assert terminal.run("finish")["stays"] == "declared:new"
    assert set(terminal.shop.sides().values()) == {"new"} and terminal.shop.dump() == schema
    terminal.run("status", code=2)
    assert "There are no upgrades of" in terminal.said


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Path]:
    def make(**options: Any) -> Path:
        data = Data(name="items", description="", numbers={})
        evaluations = {"new": evaluation(**options)}
        return EvaluationResults.of(title="?", data=data, models={}, evaluations=evaluations).save(tmp_path)

    return make


def test_the_same_column_by_commands(
    terminal: Terminal, files: Callable[..., Path], report: Callable[..., Path]
) -> None:
    schema, rows = terminal.shop.dump(), terminal.shop.contents()
    same = [*MODELS, "--same-column", "--evidence"]
    planned = terminal.run("start", *same, report(), "--dry-run")
    assert list(planned["steps"]) == ["start", "rollback", "cancel"] and terminal.shop.dump() == schema
    assert terminal.run("start", *same, report())["application"]["holding"] == {"old": 12, "new": 0}
    assert "Vectors of both models share the column" in terminal.said and "upgrade swap" in terminal.said
    assert terminal.run("swap")["serving"] == "new"
    assert "Queries are to be of declared:new" in terminal.said and "finds all rows, too" in terminal.said
    done = terminal.run("backfill", "--model", files("new", 12), "--budget", 5)
    assert done["application"]["holding"] == {"old": 7, "new": 5} and "upgrade backfill" in terminal.said
    terminal.run("index", code=2)
    assert "the index that is there serves the vectors of both models" in terminal.said
    terminal.run("cancel", code=2)
    rolled = terminal.run("rollback")
    assert (rolled["serving"], rolled["application"]["holding"]) == ("old", {"old": 12, "new": 0})
    assert terminal.run("cancel")["stays"] == "declared:old"
    assert terminal.shop.dump() == schema and terminal.shop.contents() == rows


def test_the_same_column_takes_a_report(terminal: Terminal, report: Callable[..., Path], tmp_path: Path) -> None:
    same = [*MODELS, "--same-column"]
    terminal.run("start", *same, code=2)
    assert "--same-column with no --evidence" in terminal.said and "limpet evaluate" in terminal.said
    terminal.run("start", *MODELS, "--evidence", report(), code=2)
    assert "--evidence with an index that an application owns" in terminal.said
    terminal.run("start", *same, "--evidence", tmp_path / "nothing", code=2)
    assert "Cannot read" in terminal.said
    terminal.run("start", *same, "--evidence", report(compatible=False), code=2)
    assert "may not be mixed: new queries on the old gallery" in terminal.said
    terminal.run("start", *same, "--aside", "--evidence", report(), code=2)
    assert "one of the two" in terminal.said


@pytest.mark.parametrize(
    ("words", "url", "said"),
    [
        (MODELS, "table=shop.items&vector=title", "column 'title' of shop.items is of the type text"),
        (MODELS, "table=shop.items&vector=embb", "Did you mean 'emb'?"),
        (MODELS, "table=shop.items&text=name", "Unknown column of shop.items 'name'"),
        (MODELS, "table=shop.things", "There is no table 'shop.things'"),
        (MODELS, "table=items", "Did you mean 'shop.items'?"),
        (MODELS, "table=shop.items&txt=title", "Did you mean 'text'?"),
        (["--old-name", "a", "--name", "b", "--dim", 0], "table=shop.items", "--dim 0. Expected: the dimension"),
        (["--old-name", "", "--name", "b", "--dim", 8], "table=shop.items", "A model without a name"),
        (MODELS, "", "table=NAME"),
        (MODELS, "table=shop.items&id=price", "price of shop.items may be the same in several rows"),
        (["--old-name", "old"], "table=shop.items", "No model was named"),
        (["--name", "b", "--dim", 4], "table=shop.items", "Nothing says which model made the existing vectors"),
        (["--old-name", "a", "--name", "a", "--dim", 8], "table=shop.items", "Both models are declared:a"),
        (["--old-name", "a", "--name", "b", "--dim", 5000], "table=shop.items", "Vectors of 5000 numbers"),
    ],
)  # fmt: skip
def test_wrong_words(terminal: Terminal, words: list[Any], url: str, said: str) -> None:
    schema = terminal.shop.dump()
    place = terminal.shop.database + (f"&{url}" if url else "")
    terminal.run("start", *words, code=2, url=place)
    assert said in terminal.said and "Traceback" not in terminal.said
    assert terminal.shop.dump() == schema


def test_options_of_galleries_are_refused_for_a_table(terminal: Terminal) -> None:
    terminal.run("start", *MODELS)
    for words, option in ((["--seed", 0], "--seed"), (["--order", "id"], "--order"), (["--texts", "t.csv"], "--texts")):
        terminal.run("backfill", "--model", "package:wordllama", *words, code=2)
        assert f"{option} with an index that an application owns" in terminal.said


def test_what_is_typed_next_names_the_models_as_people_do(terminal: Terminal, tmp_path: Path) -> None:
    """The old model was only named; what it is called later makes its vectors again, and is believed for that."""
    shop, model = terminal.shop, ["--model", "package:wordllama", "--model-options.truncate-dim", 64]
    shop.execute("ALTER TABLE shop.items DROP COLUMN emb; ALTER TABLE shop.items ADD COLUMN emb vector(64)")
    texts = tmp_path / "texts.csv"
    texts.write_text("id,text\n" + "".join(f"{row},item {row}\n" for row in range(12)))
    assert main(["embed", "texts", str(texts), *map(str, model), "--out", str(tmp_path / "e")]) == 0
    [file] = (tmp_path / "e").rglob("*.safetensors")
    made = storage.load(file)
    for row, values in zip(made.ids, made.vectors, strict=True):
        shop.execute("UPDATE shop.items SET emb = %s::real[]::vector WHERE id = %s", [values.tolist(), int(row)])
    shop.execute("UPDATE shop.items SET emb = NULL WHERE id = 7")
    new = ["--model", "package:wordllama", "--model-options.truncate-dim", 128]
    started = terminal.run("start", "--old-name", "ours", *new)
    assert started["next"][0]["command"].endswith("--model package:wordllama --model-options.truncate-dim 128")
    assert "0 of 11 items have a vector of package:wordllama (text:" in terminal.said
    terminal.run("backfill", *new)
    terminal.run("index")
    assert "writes_with" not in terminal.said  # one dimension fits
    said = terminal.run("swap", "--writes", "new")
    assert not [step for step in said["next"] if "upgrade writes" in step["command"]]
    shop.execute(f"INSERT INTO shop.items (id, title, emb) VALUES (50, 'a', '{[1.0] * 128}')")
    terminal.run("rollback", "--writes", "old", *new, code=2)
    assert "they have 128 and 64 numbers" in terminal.said
    assert terminal.run("rollback", "--writes", "old", *model)["lacking"] == {"old": 0, "new": 0}
    terminal.run("status", url=terminal.shop.at("shop.itemz"), code=2)
    assert "the database has: shop.items.emb" in terminal.said
    terminal.run("cancel")
    terminal.run("start", "--old-name", "ours", *new, url=terminal.shop.at("shop.itemz"), code=2)
    assert "Did you mean 'shop.items'?" in terminal.said


def test_fewer_rows_than_none_are_not_allowed_to_be_missing(terminal: Terminal) -> None:
    terminal.run("start", *MODELS)
    for step in ("swap", "rollback", "finish", "cancel"):
        terminal.run(step, "--allow-missing", -1, code=2)
        assert "allow_missing=-1" in terminal.said


def test_a_mistyped_step_is_told(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "stats", terminal.shop.url]) == 2
    assert 'Did you mean "status"?' in capsys.readouterr().err


def test_no_password_is_shown(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    url = terminal.shop.url.replace("postgres@", "postgres:s3cret@")
    terminal.run("start", *MODELS, url=url)
    assert "s3cret" not in terminal.said
    assert "s3cret" not in json.dumps(terminal.run("log", url=url)) + terminal.said
    [(kept,)] = terminal.shop.execute("SELECT string_agg(record::text, '') FROM limpet_attached.attachments")
    assert "s3cret" not in kept
    terminal.run("status", url="postgresql://me:s3cret@127.0.0.1:1/x?table=shop.items", code=2)
    assert "s3cret" not in terminal.said
    terminal.run("status", url="mysql://me:s3cret@127.0.0.1:1/x?table=shop.items", code=2)
    assert "s3cret" not in terminal.said
