"""Old and new embeddings in the wrong order are told where a record says which model searches whose gallery."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from limpet import load_embeddings
from limpet.adapters.procrustes import Procrustes
from limpet.adapters.storage import save_adapter
from limpet.cli import main

Fails = Callable[..., str]
QUICK = ("--resamples", "50", "--curve", "no", "--report", "none")


def test_a_compatible_model_given_as_the_old_one_is_told(copied: Path, fails: Fails, tmp_path: Path) -> None:
    embedded = copied / "embedded"
    swapped = ["--old", embedded / "bct", "--new", embedded / "old", "--out", tmp_path / "out"]
    for command in (["evaluate", *QUICK], ["adapt"]):
        said = fails(*command, *swapped)
        assert "look swapped" in said and str(embedded / "bct") in said
    assert not (tmp_path / "out").exists()


def test_what_no_record_says_is_measured(copied: Path, fails: Fails, tmp_path: Path) -> None:
    embedded = copied / "embedded"
    for old, new in (("old", "bct"), ("independent", "old"), ("independent", "bct")):
        words = ["evaluate", *QUICK, "--old", embedded / old, "--new", embedded / new, "--out", tmp_path / old / new]
        assert main([*map(str, words)]) in (0, 1)
    (embedded / "bct" / "embed-images.toml").unlink()
    swapped = ["evaluate", *QUICK, "--old", embedded / "bct", "--new", embedded / "old", "--out", tmp_path / "swapped"]
    assert main([*map(str, swapped)]) in (0, 1)


@pytest.mark.parametrize(
    "content", ["[embed.images]\nmodel = ['release:gone']", "[embed.images]\nmodel = 3", "embed = 3", "a = 'b'", "{"]
)
def test_settings_that_say_nothing_are_left_alone(copied: Path, content: str, tmp_path: Path) -> None:
    embedded = copied / "embedded"
    (embedded / "bct" / "embed-images.toml").write_text(content)
    words = ["evaluate", *QUICK, "--old", embedded / "bct", "--new", embedded / "old", "--out", tmp_path / "out"]
    assert main([*map(str, words)]) in (0, 1)


def test_embeddings_that_an_adapter_mapped_are_told(copied: Path, fails: Fails, tmp_path: Path) -> None:
    embedded = copied / "embedded"
    old, new = (load_embeddings(embedded / name / "embeddings.safetensors") for name in ("old", "independent"))
    save_adapter(Procrustes("new_to_old").fit(old, new), tmp_path / "link")
    mapped = [
        "embed",
        "stored",
        embedded / "independent",
        "--model",
        f"adapter:{tmp_path / 'link'}",
        "--out",
        tmp_path / "mapped",
    ]
    assert main([*map(str, mapped)]) == 0
    words = [
        "evaluate",
        *QUICK,
        "--old",
        tmp_path / "mapped" / "link",
        "--new",
        embedded / "old",
        "--out",
        tmp_path / "out",
    ]
    assert "look swapped" in fails(*words)
