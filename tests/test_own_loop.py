"""The page on training loops of one's own runs as printed, every block after the first."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "own_loop.md"
TEXT = PAGE.read_text(encoding="utf-8")
FIRST, *BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.S | re.M)
HEADINGS = [re.findall(r"^## (.*)$", TEXT[: TEXT.index(block)], flags=re.M)[-1] for block in BLOCKS]
THAT_WARN = ("Lightning", "sentence-transformers")
"""Blocks on packages that warn of themselves."""


@pytest.fixture(scope="module")
def scene() -> dict[str, Any]:
    """What the first block makes."""
    names: dict[str, Any] = {"__name__": "own_loop"}
    exec(compile(FIRST, str(PAGE), "exec"), names)
    return names


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small transformers that know nothing, where the page has models."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", *["my", "parcel", "is", "late", "where", "pay", "by", "card", "invoice"]]
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    for seed, name in enumerate(("old", "new")):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=16,
        )  # fmt: skip
        BertModel(config).save_pretrained(tmp_path / "models" / name)
        fast.save_pretrained(tmp_path / "models" / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("heading", "block"), [*zip(HEADINGS, BLOCKS, strict=True)], ids=HEADINGS)
def test_the_block_runs(
    heading: str, block: str, scene: dict[str, Any], capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if "models/old" in block:
        request.getfixturevalue("folders")
    names = dict(scene)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if heading in THAT_WARN else "error")
        exec(compile(block, str(PAGE), "exec"), names)
    CHECKS.get(heading, lambda names, said: None)(names, capsys.readouterr().out)


def pulled(names: dict[str, Any], said: str) -> None:
    """New texts lie where the old model has them, which they did not before."""
    found = names["new_model"].encode(names["texts"], convert_to_tensor=True).cpu()
    old = names["old_model"].encode(names["texts"], convert_to_tensor=True).cpu()
    fresh = names["SentenceTransformer"]("models/new", device="cpu").encode(names["texts"], convert_to_tensor=True)
    distances = [torch.nn.functional.cosine_similarity(one, old).mean() for one in (found, fresh)]
    assert distances[0] > distances[1] + 0.2


def moved(names: dict[str, Any], said: str) -> None:
    assert said.count("degrees moved") == 2


def compatible(names: dict[str, Any], said: str) -> None:
    assert said.startswith("compatible ")


def trained(names: dict[str, Any], said: str) -> None:
    assert names["trainer"].global_step == 24


CHECKS = {
    "Plain PyTorch": compatible, "What a method needs": moved, "Lightning": trained, "sentence-transformers": pulled
}  # fmt: skip
