"""Every command that ``limpet upgrade`` prints about a collection runs where and as it is printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from qdrant_client import QdrantClient, models

from limpet.cli import main
from limpet.models.text_encoders import open_text_encoder

ROWS = 6
OLD, NEW = (
    "--model package:wordllama --model-options.truncate-dim 64",
    "--model package:wordllama --model-options.truncate-dim 128",
)
STEPS = ["index", "swap", "rollback", "finish", "cancel", "writes --of new", "writes --of old", "backfill"]


class Upgrade:
    """A folder of Qdrant whose upgrade is carried out by typed commands, and put back after each that is tried."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], beside: str) -> None:
        self.folder, self.capsys = folder / "at", capsys
        self.url = f"qdrant:{self.folder}/q#items?vector=emb&text=text&ledger={self.folder}/ledger.db&beside={beside}"
        self.encode = open_text_encoder("package:wordllama", truncate_dim=64).encode
        client = QdrantClient(path=str(self.folder / "q"))
        size = models.VectorParams(size=64, distance=models.Distance.COSINE)
        client.create_collection("items", {"emb": size})
        client.close()
        for row in range(ROWS):
            self.write(row, f"item {row} in a shop")

    def write(self, row: int, text: str) -> None:
        """Write an item with the old model."""
        client = QdrantClient(path=str(self.folder / "q"))
        vector = {"emb": self.encode([text])[0].tolist()}
        client.upsert("items", [models.PointStruct(id=row, vector=vector, payload={"text": text})])
        client.close()

    def type(self, command: str) -> tuple[int, str]:
        """Return the exit code of a command, and what it said."""
        self.capsys.readouterr()
        code = main(shlex.split(command)[1:])
        return code, self.capsys.readouterr().err

    def step(self, words: str) -> str:
        subcommand, *options = words.split()
        code, said = self.type(shlex.join(["limpet", "upgrade", subcommand, self.url, *options]))
        assert code == 0, said
        return said

    def try_all(self, said: str) -> int:
        """Run every command that was printed, and all that errors of steps name which are not possible now."""
        kept = shutil.copytree(self.folder, self.folder.with_name("kept"), dirs_exist_ok=True)

        def back() -> None:
            shutil.rmtree(self.folder)
            shutil.copytree(kept, self.folder)

        commands = re.findall(r"^Next, to .*?: (limpet upgrade .*)$", said, re.MULTILINE)
        assert commands, said
        for step in STEPS:
            subcommand, *options = step.split()
            code, told = self.type(shlex.join(["limpet", "upgrade", subcommand, self.url, *options]))
            if code == 0:
                back()
            else:
                commands += re.findall(r"`(limpet upgrade [^`]*)`", " ".join(told.split()))
        for command in dict.fromkeys(commands):
            typed = command.replace("--model OLD_MODEL", OLD).replace("--model MODEL", NEW)
            code, told = self.type(typed)
            assert code == 0 or (code == 1 and " verify " in typed), f"{typed}\n{told}\nprinted by:\n{said}"
            back()
        return len(commands)


def test_backfill_counts_the_texts_that_the_model_cuts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    it, short = Upgrade(tmp_path, capsys, "vector"), f"{NEW} --model-options.max-length 2"
    it.step(f"start --old-name ours {short}")
    code = main(["upgrade", "backfill", it.url, *short.split(), "--json"])
    captured = capsys.readouterr()
    [told] = json.loads(captured.out)["done"]["long_texts"]
    assert code == 0 and (told["limit"], told["read"], told["long"]) == (2, ROWS, ROWS) and told["longest"] > 2
    assert captured.err.count("more than the 2 tokens") == 1


def edited(it: Upgrade) -> None:
    it.write(1, "item 1 now")


PHASES: dict[str, list[str | Callable[[Upgrade], None]]] = {
    "attached": [],
    "filling": [f"backfill {NEW} --budget 3"],
    "indexed": [f"backfill {NEW}", "index"],
    "indexed, edited": [f"backfill {NEW}", "index", edited],
    "swapped": [f"backfill {NEW}", "index", "swap"],
    "swapped, edited": [f"backfill {NEW}", "index", "swap", edited],
    "swapped, declared": [f"backfill {NEW}", "index", "swap --writes new"],
    "rolled back, declared new": [f"backfill {NEW}", "index", "swap --writes new", "rollback"],
    "rolled back, edited": [f"backfill {NEW}", "index", "swap", "rollback", edited],
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("beside", ["vector", pytest.param("collection", marks=pytest.mark.slow)])
def test_printed_commands_run_as_printed(
    beside: str, phase: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    it = Upgrade(tmp_path, capsys, beside)
    it.step(f"start --old-name ours {NEW}")
    for step in PHASES[phase]:
        if isinstance(step, str):
            it.step(step)
        else:
            step(it)
    assert it.try_all(it.step("status")) > 1
