from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from limpet.data.token_set import PADDING
from limpet.errors import ConfigError, DataError
from limpet.models.building import build_network
from limpet.models.seeding import seeded
from limpet.models.sentence_models import SentenceModel, of_library
from limpet.models.specs import TextSpec
from limpet.models.text_encoders import open_text_encoder
from limpet.models.text_tower import TextTower
from tiny_text_model import some_texts, write_tiny_model

TEXTS = list(some_texts(24, seed=5).texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def spec_of(folder: Path, **values: object) -> TextSpec:
    encoder = open_text_encoder(folder, max_length=values.get("max_length"), truncate_dim=values.get("truncate_dim"))
    return TextSpec(**{"frozen": encoder.fingerprint, "width": encoder.dim, "dim": 8, "place": str(folder), **values})


def tower_of(folder: Path, **values: object) -> TextTower:
    with seeded(0):
        tower = build_network(spec_of(folder, **values))
    tower.eval()
    return tower


def padded(tokens: list[np.ndarray], width: int) -> torch.Tensor:
    batch = np.full((len(tokens), width), PADDING, np.int64)
    for row, one in enumerate(tokens):
        batch[row, : len(one)] = one
    return torch.from_numpy(batch)


def test_padding_changes_no_vector(folder: Path) -> None:
    tower = tower_of(folder)
    tokens = tower.tokens_of(TEXTS, "")
    with torch.no_grad():
        alone = torch.cat([tower(padded([one], len(one))) for one in tokens])
        for width in (max(map(len, tokens)), 30):
            torch.testing.assert_close(tower(padded(tokens, width)), alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prefix", ["", "find : "])
@pytest.mark.parametrize("settings", [{}, {"max_length": 5}, {"truncate_dim": 12}])
def test_it_computes_what_the_library_computes(folder: Path, prefix: str, settings: dict[str, int]) -> None:
    tower = tower_of(folder, **settings)
    tokens = tower.tokens_of(TEXTS, prefix)
    assert max(map(len, tokens)) <= settings.get("max_length", 32)
    with torch.no_grad():
        found = tower.vectors_of(padded(tokens, max(map(len, tokens)))).numpy()
    expected = SentenceModel(folder, settings.get("max_length"), settings.get("truncate_dim"), "cpu")(TEXTS, prefix)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_its_release_is_a_head_over_the_text_model_in_the_folder(folder: Path, tmp_path: Path) -> None:
    tower = tower_of(folder, query_prefix="find : ")
    with torch.no_grad():
        for parameter in tower.backbone.parameters():
            parameter.add_(0.01)
    tokens = tower.tokens_of(TEXTS, "")
    head = tower.released(tmp_path)
    became = open_text_encoder(tmp_path / "text_model")
    assert head.spec.frozen == became.fingerprint != tower.spec.frozen
    assert became.prefixes["query"] == "find : "
    with torch.no_grad():
        expected = tower(padded(tokens, 32))
        found = head(torch.from_numpy(became.network(TEXTS, "")))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert not (tmp_path / ".text_model.part").exists()


def test_a_model_that_became_another_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="the model that training was begun with, text:0"):
        build_network(spec_of(folder).model_copy(update={"frozen": "text:0"}))


def test_a_pooling_that_leaves_out_the_prefix_is_refused(folder: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    part = SentenceTransformer(
        modules=[model[0], of_library("models").Pooling(32, "mean", include_prompt=False)], device="cpu"
    )
    part.save_pretrained(str(tmp_path), create_model_card=False)
    assert tower_of(tmp_path).spec.width == 32
    with pytest.raises(ConfigError, match="leaves out the prefix"):
        tower_of(tmp_path, query_prefix="find : ")


def test_a_model_that_reads_where_padding_stands_is_refused(folder: Path, tmp_path: Path) -> None:
    """Padded on the left, a short text has other positions beside a long one: its vector depends on its batch."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "padding_side": "left"}))
    with pytest.raises(ConfigError, match="other vectors of the tokens alone"):
        tower_of(tmp_path)


def test_other_inputs_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="tokens, int64"):
        tower_of(folder)(torch.zeros(2, 3))
    with pytest.raises(ConfigError, match=r"neither; --recipe\.trainable"):
        build_network(spec_of(folder), freeze_backbone=True)
