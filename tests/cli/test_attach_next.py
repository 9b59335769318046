"""Every command that ``limpet upgrade`` prints, in its words and in its errors, runs where and as it is printed."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from crash.evidence import items
from crash.server import Server
from crash.shop import GOODS, Shop
from limpet.cli import main
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.results import EvaluationResults
from limpet.geometry import Hypersphere
from limpet.models.text_encoders import open_text_encoder
from limpet.results import Data

ROWS = 6
TEXTS = [f"item {row} in a shop" for row in range(ROWS)]
OLD, WIDER = (f"--model package:wordllama --model-options.truncate-dim {dim}" for dim in (64, 128))
SAME_SIZE = f"{OLD} --model-options.max-length 3"
LAYOUTS = {"one size": (SAME_SIZE, ""), "another size": (WIDER, ""), "aside": (WIDER, "--aside"),
           "one column": (SAME_SIZE, "--same-column --evidence {report}")}  # fmt: skip
QUICK = {"another size", "one column"}
"""What is tried in every phase; the others in one of them, and in all by the slow tests."""
STEPS = ["index", "swap", "rollback", "finish", "cancel", "writes --of new", "writes --of old", "backfill"]


@cache
def stored() -> list[str]:
    """What the old model makes of the texts."""
    return [str(row.tolist()) for row in open_text_encoder("package:wordllama", truncate_dim=64).encode(TEXTS)]


class Upgrade:
    """A table whose upgrade is carried out by typed commands, and put back to where it was after each that is tried."""

    def __init__(self, server: Server, capsys: pytest.CaptureFixture[str], layout: str, report: Path) -> None:
        self.shop, self.capsys, self.server = Shop(server, f"next_{uuid.uuid4().hex}"), capsys, server
        self.new, further = LAYOUTS[layout]
        self.further, self.layout = further.format(report=report), layout
        self.shop.execute("DROP SCHEMA shop CASCADE")
        self.shop.execute(GOODS.replace("vector(8)", "vector(64)"))
        self.shop.execute("INSERT INTO shop.items SELECT * FROM unnest(%s::int[], %s::text[], %s::int[], %s::vector[])",
                          [list(range(ROWS)), TEXTS, [1] * ROWS, stored()])  # fmt: skip
        self.tried = 0

    def type(self, command: str) -> tuple[int, str]:
        """Return the exit code of a command, and what it said."""
        self.capsys.readouterr()
        code = main(shlex.split(command)[1:])
        return code, self.capsys.readouterr().err

    def step(self, words: str, url: str = "") -> str:
        subcommand, *options = words.split()
        code, said = self.type(shlex.join(["limpet", "upgrade", subcommand, url or self.shop.url, *options]))
        assert code == 0, said
        return said

    def try_all(self, said: str) -> None:
        """Run every command that was printed, and every one that errors of steps name which are not possible now."""
        name = self.shop.name
        self.server.execute(f"CREATE DATABASE {name}_kept TEMPLATE {name} STRATEGY FILE_COPY")

        def back() -> None:
            self.server.execute(f"DROP DATABASE {name} WITH (FORCE)")
            self.server.execute(f"CREATE DATABASE {name} TEMPLATE {name}_kept STRATEGY FILE_COPY")

        commands = re.findall(r"^Next, to .*?: (limpet upgrade .*)$", said, re.MULTILINE)
        assert commands, said
        for step in STEPS:
            subcommand, *options = step.split()
            code, told = self.type(shlex.join(["limpet", "upgrade", subcommand, self.shop.url, *options]))
            if code == 0:
                back()
            else:
                commands += re.findall(r"`(limpet upgrade [^`]*)`", " ".join(told.split()))
        for command in dict.fromkeys(commands):
            put_in = {"OLD_MODEL": OLD, "MODEL": self.new}
            words = [put_in[word].removeprefix("--model ") if word in put_in else shlex.quote(word)
                     for word in shlex.split(command)]  # fmt: skip
            command = " ".join(words)
            code, told = self.type(command)
            assert code == 0 or (code == 1 and " verify " in command), f"{command}\n{told}\nprinted by:\n{said}"
            self.tried += 1
            back()
        self.server.execute(f"DROP DATABASE {name}_kept")

    def close(self) -> None:
        self.server.execute(f"DROP DATABASE {self.shop.name} WITH (FORCE)")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What allows vectors of the two models of one size in one column."""
    space = Hypersphere(64)
    new = open_text_encoder("package:wordllama", truncate_dim=64, max_length=3).fingerprint
    old, made = (replace(items(name, noise, space), fingerprint=fingerprint)
                 for name, noise, fingerprint in (("old", 0.5, "declared:ours"), ("new", 0.25, new)))  # fmt: skip
    found = evaluate(old, made, curve=False, resamples=200, mixing=0.01)
    data = Data(name="items", description="", numbers={})
    return EvaluationResults.of(title="?", data=data, models={}, evaluations={"new": found}).save(
        tmp_path_factory.mktemp("report")
    )


@pytest.fixture
def upgrade(
    request: pytest.FixtureRequest, postgres_server: Server, capsys: pytest.CaptureFixture[str], report: Path
) -> Iterator[Upgrade]:
    made = Upgrade(postgres_server, capsys, request.param, report)
    yield made
    made.close()


def edited(it: Upgrade, row: int = 1) -> None:
    """The application changes a text, and leaves the vector."""
    it.shop.execute("UPDATE shop.items SET title = title || ' now' WHERE id = %s", [row])


def blank(it: Upgrade) -> None:
    it.shop.execute("UPDATE shop.items SET title = '' WHERE id = 2")


PHASES: dict[str, list[str | Callable[[Upgrade], None]]] = {
    "attached": [],
    "filling": ["backfill NEW --budget 3"],
    "filled": ["backfill NEW"],
    "filled, edited": ["backfill NEW", edited],
    "indexed": ["backfill NEW", "index"],
    "indexed, edited": ["backfill NEW", "index", edited],
    "indexed, without text": [blank, "backfill NEW", "index"],
    "swapped": ["backfill NEW", "index", "swap WRITES"],
    "swapped, edited": ["backfill NEW", "index", "swap WRITES", edited],
    "swapped, declared": ["backfill NEW", "index", "swap --writes new"],
    "rolled back": ["backfill NEW", "index", "swap WRITES", "rollback --writes old"],
    "rolled back, edited": ["backfill NEW", "index", "swap WRITES", "rollback --writes old", edited],
}


def reached(layout: str, phase: str) -> bool:
    shared = layout == "one column"
    return not (layout == "aside" and ("swap" in str(PHASES[phase]))) and not (shared and "indexed" in phase)


@pytest.mark.parametrize(
    ("upgrade", "phase"),
    [
        pytest.param(layout, phase, marks=[] if layout in QUICK or phase == "filled, edited" else pytest.mark.slow)
        for layout in LAYOUTS
        for phase in PHASES
        if reached(layout, phase)
    ],
    indirect=["upgrade"],
)
def test_every_command_that_is_printed_runs_where_it_is_printed(upgrade: Upgrade, phase: str) -> None:
    start = f"start --old-name ours {upgrade.new} {upgrade.further}"
    said = upgrade.step(start)
    writes = "--writes new" if upgrade.layout == "another size" else ""
    for step in PHASES[phase]:
        if callable(step):
            step(upgrade)
        elif not (step == "index" and upgrade.layout == "one column"):
            said = upgrade.step(step.replace("NEW", upgrade.new).replace("WRITES", writes))
    if PHASES[phase] and callable(PHASES[phase][-1]):
        said = upgrade.step("status")
    upgrade.try_all(said)
    assert upgrade.tried


@pytest.mark.parametrize("upgrade", ["one size", "another size"], indirect=True)
def test_a_swap_prints_the_whole_rollback(upgrade: Upgrade) -> None:
    upgrade.step(f"start --old-name ours {upgrade.new}")
    upgrade.step(f"backfill {upgrade.new}")
    upgrade.step("index")
    said = upgrade.step("swap --writes new")
    dim = 64 if upgrade.layout == "one size" else 128
    upgrade.shop.execute("INSERT INTO shop.items (id, title, emb) VALUES (50, 'a new thing', %s)",
                         [str(np.ones(dim).tolist())])  # fmt: skip
    [command] = re.findall(
        r"^Next, to reactivate the old model after rows were written.*?OLD_MODEL stands for.*?: (limpet .*)$",
        said,
        re.M,
    )
    code, told = upgrade.type(command.replace("OLD_MODEL", OLD.removeprefix("--model ")))
    assert code == 0, told
    assert upgrade.shop.execute("SELECT count(*) FROM shop.items WHERE vector_dims(emb) = 64") == [(ROWS + 1,)]


def test_no_password_is_in_commands_of_errors() -> None:
    from limpet.cli.upgrade.live import LiveUrl

    on = LiveUrl("postgresql://me:s3cret@db/shop?table=items")
    said = on.completed("`limpet upgrade index` builds them; nothing was changed.")
    assert said == "`limpet upgrade index 'postgresql://me@db/shop?table=items'` builds them; nothing was changed."
