"""Texts that a model does not read whole: counted, refused, or embedded by windows; never cut unsaid."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from limpet.cli import main
from limpet.data import TextSet
from limpet.embeddings import StringArray
from limpet.errors import ConfigError, DataError
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder
from tiny_text_model import write_tiny_model

WORDS = [f"word{number}" for number in range(40)]
SHORT, LONG = "word1 word2", " ".join(WORDS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model", known=WORDS)


def opened(tiny: Path, **options: object) -> TextEncoder:
    return open_text_encoder(tiny, max_length=12, **options)  # type: ignore[arg-type]


def texts(*given: str) -> TextSet:
    return TextSet(StringArray.of(given), None, (), StringArray.of([f"t{row}" for row in range(len(given))]))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_a_text_that_is_cut_is_counted_with_its_tokens(tiny: Path) -> None:
    encoder = opened(tiny)
    embed_texts(encoder, texts(SHORT, LONG, f"{LONG} {LONG}"))
    told = encoder.long_texts
    assert (told.read, told.long, told.limit, told.known) == (3, 2, 12, True)
    assert told.longest == len(encoder.limit.tokenizer.encode(f"{LONG} {LONG}").ids) > 80
    assert f"2 of 3 texts have more than the 12 tokens that 'st:{tiny}' reads" in (told.sentence("warn") or "")
    assert opened(tiny).long_texts.sentence("warn") is None


def test_what_is_in_a_cache_is_counted_too(tiny: Path, tmp_path: Path) -> None:
    for _ in range(2):
        encoder = opened(tiny)
        embed_texts(encoder, texts(SHORT, LONG), cache=tmp_path)
        assert encoder.long_texts.long == 1


def test_long_texts_can_be_refused_before_anything_is_embedded(tiny: Path) -> None:
    done: list[int] = []
    with pytest.raises(DataError, match="1 of 2 texts have more than the 12 tokens"):
        embed_texts(opened(tiny, on_long="fail"), texts(SHORT, LONG), progress=done.append)
    assert not done and len(embed_texts(opened(tiny, on_long="fail"), texts(SHORT))) == 1


def test_the_mean_of_windows_reads_all_of_a_text(tiny: Path) -> None:
    cut, whole = opened(tiny), opened(tiny, on_long="chunk-mean")
    assert cut.fingerprint != whole.fingerprint
    parts = whole.limit.windows(LONG, "")
    assert len(parts) > 3 and " ".join(part.strip() for part in parts) == LONG
    assert (whole.limit.counts(parts, "") <= 12).all()
    expected = unit(unit(cut.encode(parts)).mean(axis=0))
    np.testing.assert_allclose(whole.encode([SHORT, LONG])[1], expected, atol=1e-6)
    np.testing.assert_allclose(whole.encode([SHORT]), cut.encode([SHORT]), atol=1e-6)
    other_end = f"{LONG} {WORDS[0]} {WORDS[0]}"
    assert np.allclose(*cut.encode([LONG, other_end])) and not np.allclose(*whole.encode([LONG, other_end]), atol=1e-4)


def test_static_words_without_a_limit_read_all(tmp_path: Path) -> None:
    encoder = open_text_encoder("package:wordllama", truncate_dim=32)
    embed_texts(encoder, texts(SHORT, LONG * 20))
    assert encoder.long_texts.known and encoder.long_texts.long == 0
    assert (
        open_text_encoder("package:wordllama", truncate_dim=32, on_long="chunk-mean").fingerprint == encoder.fingerprint
    )


def test_an_unknown_tokenizer_is_said_to_be_unknown(tiny: Path) -> None:
    known = opened(tiny)
    served = TextEncoder("served", known.fingerprint, known.dim, known.prefixes, known.network)
    embed_texts(served, texts(SHORT, LONG * 4))
    assert (served.long_texts.known, served.long_texts.long) == (False, 1)
    assert "is not known here" in (served.long_texts.sentence("warn") or "")


def test_an_unknown_way_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="on_long"):
        opened(tiny, on_long="cut")


def test_commands_say_how_many_texts_were_cut(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.csv").write_text(f"text\n{SHORT}\n{LONG}\n")
    words = ["embed", "texts", str(tmp_path / "texts.csv"), "--model", f"st:{tiny}", "--model-options.max-length", "12"]
    assert main([*words, "--out", str(tmp_path / "cut")]) == 0
    assert "1 of 2 texts have more than the 12 tokens" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--out", str(tmp_path / "none"), "--model-options.on-long", "fail"]) == 2
    assert "--model-options.on-long chunk-mean" in capsys.readouterr().err and not (tmp_path / "none").exists()
    assert main([*words, "--out", str(tmp_path / "means"), "--model-options.on-long", "chunk-mean"]) == 0
    assert "mean of its windows" in " ".join(capsys.readouterr().err.split())
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "told"), "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["long_texts"]
    assert (told["read"], told["long"], told["limit"], told["on_long"]) == (2, 1, 12, "warn")
    live = ["gallery", "create", str(tmp_path / "live"), "--texts", str(tmp_path / "texts.csv")]
    assert main([*live, "--model", f"st:{tiny}", "--model-options.max-length", "12"]) == 0
    assert "1 of 2 texts have more than the 12 tokens" in " ".join(capsys.readouterr().err.split())
