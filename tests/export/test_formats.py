"""Every adapter, head and encoder in every format: the same vectors within 1e-6, or refused in words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import pytest
import torch
from sentence_transformers import SentenceTransformer

from limpet.adapters import ADAPTERS, Adapter, Direction, build_adapter
from limpet.adapters.procrustes import Procrustes
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.export import formats
from limpet.export.exportable import Exportable, of_adapter, of_release
from limpet.export.formats import Exported, export
from limpet.export.reader import Map
from limpet.export.sentence_transformers_folder import PROBE_TEXTS
from limpet.geometry import Hypersphere, Lorentz, Space
from limpet.models.building import build_network
from limpet.models.release import Release, make_release
from limpet.models.seeding import seeded
from limpet.models.specs import EmbeddingSpec, EncoderSpec, FeatureSpec
from limpet.models.text_encoders import TextEncoder, open_text_encoder

Sets = tuple[EmbeddingSet, EmbeddingSet]
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "local": [{"shrinkage": 5.0}, {"shrinkage": 5.0, "assignment": "soft"}, {"clusters": 1}]
}
"""Of adapters whose steps depend on how they were built; of all others what they have when nothing is given."""
ADAPTED = [
    pytest.param(name, options, id=f"{name}-{options}")
    for name in sorted(ADAPTERS)
    for options in OPTIONS.get(name, [{}])
]
SENTENCES = "sentence-transformers"


def written(model: Exportable, to: str, out: Path, encoder: TextEncoder | None = None, **settings: Any) -> Exported:
    known = formats(encoder, **settings)
    return export(model, known[to], out / to, list(known.values()))


def fitted(name: str, options: dict[str, Any], sets: Sets, direction: Direction = "new_to_old") -> Adapter:
    return build_adapter(name, {**ADAPTERS[name].quick, **options, "direction": direction}).fit(*sets)


def run_onnx(folder: Path, inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: inputs})
    return np.asarray(found)


# ---- adapters


@pytest.mark.parametrize(("name", "options"), ADAPTED)
@pytest.mark.parametrize("direction", ["new_to_old", "old_to_new"])
def test_an_adapter_maps_vectors_alike(
    name: str, options: dict[str, Any], direction: Direction, text_sets: Sets, tmp_path: Path
) -> None:
    adapter = fitted(name, options, text_sets, direction)
    source, target = reversed(text_sets) if direction == "new_to_old" else text_sets
    done = written(of_adapter(adapter), "onnx", tmp_path), written(of_adapter(adapter), "npz", tmp_path)
    found = run_onnx(done[0].folder, source.vectors), Map(done[1].folder)(source.vectors)
    for one, vectors in zip(done, found, strict=True):
        assert vectors.dtype == np.float32 and one.record.largest_difference <= 1e-6
        np.testing.assert_allclose(vectors, adapter.map(source.vectors), atol=1e-6, rtol=0)
        assert one.record.source == source.fingerprint and one.record.searches == target.fingerprint
        assert one.record.fingerprint == adapter.mapped_fingerprint and one.record.compared >= 256
    assert found[1].shape == (80, 6) and Map(done[1].folder)(source.vectors[0]).shape == (6,)


@pytest.mark.parametrize(("name", "options"), ADAPTED)
def test_an_adapter_as_modules_of_its_text_model_or_the_reason_why_not(
    name: str, options: dict[str, Any], text_sets: Sets, text_encoder: TextEncoder, tmp_path: Path
) -> None:
    adapter = fitted(name, options, text_sets)
    if name == "local" and options != {"clusters": 1}:
        with pytest.raises(ConfigError, match="chooses among several maps by the nearest centre") as refused:
            written(of_adapter(adapter), SENTENCES, tmp_path, text_encoder)
        assert "Expected: --to onnx or --to npz, which can hold it" in str(refused.value)
        assert not list(tmp_path.iterdir())
        return
    done = written(of_adapter(adapter), SENTENCES, tmp_path, text_encoder)
    model = SentenceTransformer(str(done.folder), device="cpu")
    texts = list(PROBE_TEXTS)[::-1]
    found = model.encode_query(texts), model.encode_document(texts)
    for role, vectors in zip(("query", "document"), found, strict=True):
        expected = adapter.map(text_encoder.encode(texts, role=role))
        np.testing.assert_allclose(vectors, expected, atol=1e-6, rtol=0)
    assert np.abs(found[0] - found[1]).max() > 0.01  # the prompt of queries counts
    assert done.record.largest_difference <= 1e-6 and model.similarity_fn_name == "cosine"


def test_maps_that_are_one_affine_step_in_the_end_are_written_as_one(text_sets: Sets) -> None:
    kinds = [[step.name for step in of_adapter(fitted("local", options, text_sets)).steps or ()] for options in
             ({"clusters": 1}, {"shrinkage": np.inf}, {"shrinkage": 5.0})]  # fmt: skip
    assert kinds[0] == kinds[1] == ["normalise", "affine", "normalise"] and kinds[2][1] == "mixture"


def test_a_cut_text_model_with_settings_of_its_own(text_folder: Path, text_sets: Sets, tmp_path: Path) -> None:
    """Truncated to 4 of 6 dimensions, with another prompt: both are inside of what is written."""
    encoder = open_text_encoder(text_folder, truncate_dim=4, query_prefix="rain ")
    new = text_sets[1].replace(
        vectors=text_sets[1].vectors[:, :4].copy(), space=Hypersphere(4), fingerprint=encoder.fingerprint
    )
    adapter = build_adapter("ridge", {}).fit(text_sets[0], new)
    folder = written(of_adapter(adapter), SENTENCES, tmp_path, encoder).folder
    expected = adapter.map(encoder.encode(["a refund"], role="query"))
    np.testing.assert_allclose(SentenceTransformer(str(folder)).encode_query(["a refund"]), expected, atol=1e-6)


def test_weights_that_are_kept_are_links(
    text_folder: Path, text_sets: Sets, text_encoder: TextEncoder, tmp_path: Path
) -> None:
    adapter = fitted("ridge", {}, text_sets)
    folder = written(of_adapter(adapter), SENTENCES, tmp_path, text_encoder, base="keep").folder
    (link,) = (file for file in folder.rglob("*") if file.is_symlink())
    own = link.relative_to(folder)
    assert link.resolve() == (text_folder / own).resolve() and own.suffix == ".safetensors"
    expected = adapter.map(text_encoder.encode(["a refund"], role="document"))
    np.testing.assert_allclose(SentenceTransformer(str(folder)).encode(["a refund"]), expected, atol=1e-6)


def test_another_text_model_than_the_source_is_refused(
    text_sets: Sets, text_encoder: TextEncoder, tmp_path: Path
) -> None:
    adapter = fitted("ridge", {}, text_sets, "old_to_new")
    with pytest.raises(ConfigError, match="it reads vectors of declared:old, and the text model") as refused:
        written(of_adapter(adapter), SENTENCES, tmp_path, text_encoder)
    assert "--to onnx or --to npz" in str(refused.value)


class Silent(Procrustes):
    """Does not say what it computes."""

    def as_steps(self) -> Any:
        return None


class Lying(Procrustes):
    """Says another thing than it computes."""

    def as_steps(self) -> Any:
        (step,) = super().as_steps()
        return (replace(step, offset=step.offset + 1e-5),)


def test_an_adapter_that_does_not_say_what_it_computes_is_refused_in_every_format(
    text_sets: Sets, text_encoder: TextEncoder, tmp_path: Path
) -> None:
    for to in formats():
        with pytest.raises(ConfigError, match="has no `as_steps`") as refused:
            written(of_adapter(Silent().fit(*text_sets)), to, tmp_path, text_encoder)
        assert "serve it with limpet" in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", ["npz", "onnx", SENTENCES])
def test_vectors_that_differ_are_not_let_through(
    to: str, text_sets: Sets, text_encoder: TextEncoder, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"differ by \d\.\de-0\d, and no more than 1e-06 is let through"):
        written(of_adapter(Lying().fit(*text_sets)), to, tmp_path, text_encoder)
    assert not list(tmp_path.iterdir())


# ---- heads and encoders


def trained(spec: EmbeddingSpec, space: Space) -> Release:
    """A release with weights, and statistics of batch normalisation, that are not those of a fresh network."""
    with seeded(3):
        encoder = build_network(spec)
        for name, values in encoder.state_dict().items():
            if "running" in name:
                values.copy_(torch.rand(values.shape) + 0.5)
    return make_release(encoder, space, method="p2s", compatible_with="declared:old")


SPACES = {"hypersphere": (Hypersphere, None), "lorentz": (Lorentz, 1.2)}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("projection", ["linear", "linear-bn", "mlp", "residual", "none"])
def test_a_head_in_every_format(
    projection: Literal["linear", "linear-bn", "mlp", "residual", "none"],
    space: str,
    text_encoder: TextEncoder,
    tmp_path: Path,
) -> None:
    build, zeta = SPACES[space]
    dim = 6 if projection in ("none", "residual") else 5
    directions = space == "lorentz" and projection == "none"  # as the old model is laid onto the space
    spec = FeatureSpec(
        frozen=text_encoder.fingerprint, width=6, dim=dim, projection=projection, zeta=zeta,
        lifts_directions=directions,
    )  # fmt: skip
    release = trained(spec, build(dim))
    model = of_release(release)
    rows = 3 * np.random.default_rng(5).normal(size=(40, 6)).astype(np.float32)
    expected = model.reference(rows)
    folders = [written(model, to, tmp_path).folder for to in ("npz", "onnx")]
    np.testing.assert_allclose(Map(folders[0])(rows), expected, atol=1e-6)
    np.testing.assert_allclose(run_onnx(folders[1], rows), expected, atol=1e-6)
    if projection == "residual":
        with pytest.raises(ConfigError, match="adds up several maps"):
            written(model, SENTENCES, tmp_path, text_encoder)
        return
    if space == "lorentz":
        with pytest.raises(ConfigError, match=r"for which that library has no module(.|\n)*--to onnx or --to npz"):
            written(model, SENTENCES, tmp_path, text_encoder)
        return
    opened = SentenceTransformer(str(written(model, SENTENCES, tmp_path, text_encoder).folder))
    texts = ["a red dress", "snow"]
    expected = model.reference(text_encoder.encode(texts, role="query"))
    np.testing.assert_allclose(opened.encode_query(texts), expected, atol=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_an_encoder_of_images(space: str, tmp_path: Path) -> None:
    build, zeta = SPACES[space]
    spec = EncoderSpec(
        dim=4, image_size=(8, 12), backbone_options={"filters": 2}, projection="linear-bn",
        mean=(0.5, 0.4, 0.3), std=(0.2,), zeta=zeta,
    )  # fmt: skip
    release = trained(spec, build(4))
    model = of_release(release)
    done = written(model, "onnx", tmp_path)
    images = np.random.default_rng(1).integers(0, 256, (5, 3, 8, 12), dtype=np.uint8)
    with torch.no_grad():
        expected = release.space.project(release.encoder(torch.from_numpy(images))).numpy()
    np.testing.assert_allclose(run_onnx(done.folder, images), expected, atol=1e-6)
    session = onnxruntime.InferenceSession(done.folder / "model.onnx", providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert session.get_inputs()[0].type == "tensor(uint8)" and session.get_inputs()[0].shape == ["batch", 3, 8, 12]
    assert about["limpet.fingerprint"] == release.fingerprint and about["limpet.searches"] == "declared:old"
    assert about["limpet.source"] == "" and json.loads(about["limpet.space"]) == release.space.record()
    assert "RGB" in about["limpet.input"] and "[0.5, 0.4, 0.3]" in about["limpet.input"]
    assert ("s·s' − t·t'" in about["limpet.metric"]) == (space == "lorentz")
    for to, why in (("npz", "is a network"), (SENTENCES, "reads images")):
        with pytest.raises(ConfigError, match=why) as refused:
            written(model, to, tmp_path)
        assert "Expected: --to onnx, which can hold it" in str(refused.value)


class Waves(torch.nn.Module):
    """A network of one's own that ONNX has no operator for."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(pixels.flatten(1))


@pytest.mark.slow
def test_a_network_that_onnx_cannot_say_is_refused_in_words(tmp_path: Path) -> None:
    model = of_release(Release.from_module(Waves(), image_size=8))
    with pytest.raises(ConfigError, match=r"torch cannot write the encoder of images .* as ONNX") as refused:
        written(model, "onnx", tmp_path)
    assert "serve it with limpet" in str(refused.value) and not list(tmp_path.iterdir())


# ---- what is said of it


def test_the_card_and_the_record(text_sets: Sets, tmp_path: Path) -> None:
    adapter = fitted("ridge", {}, text_sets)
    done = written(of_adapter(adapter), "npz", tmp_path)
    said = (done.folder / "README.md").read_text(encoding="utf-8")
    for word in (
        adapter.fitted.source,
        adapter.fitted.target,
        adapter.mapped_fingerprint,
        "| dimension | 6 |",
        "cosine",
    ):
        assert word in said
    assert re.search(r"largest difference from limpet \| \d\.\de[-+]\d\d, over 256 vectors", said)
    record = json.loads((done.folder / "export.json").read_text(encoding="utf-8"))
    assert record == done.record.model_dump(mode="json") == Map(done.folder).about
    assert set(record["digests"]) == {"map.npz", "reader.py"}
    assert {file.name for file in done.folder.iterdir()} == {"map.npz", "reader.py", "export.json", "README.md"}


def test_points_of_the_lorentz_space_rank_as_the_card_says(tmp_path: Path) -> None:
    space = Lorentz(4, 0.7)
    spec = FeatureSpec(frozen="declared:new", width=6, dim=4, zeta=1.2)
    folder = written(of_release(trained(spec, space)), "npz", tmp_path).folder
    mapped = Map(folder)
    points = mapped(np.random.default_rng(2).normal(size=(30, 6))).astype(np.float64)
    times = np.sqrt(1 / mapped.about["space"]["curvature"] + (points**2).sum(axis=1))
    said = points[0] @ points[1:].T - times[0] * times[1:]
    similarity = space.similarity(torch.from_numpy(points[:1]), torch.from_numpy(points[1:]))[0].numpy()
    assert np.argsort(-said).tolist() == np.argsort(-similarity).tolist()
    assert "Lorentz distance" in (folder / "README.md").read_text(encoding="utf-8")
