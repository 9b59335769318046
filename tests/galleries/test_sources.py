from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.data import ArrayImages, ImageSet, RetrievalData, TextSet
from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.errors import ConfigError, DataError, LimpetError, ReleaseError, SpaceMismatchError
from limpet.geometry import Hypersphere, Lorentz
from limpet.models.building import build_network
from limpet.models.encoder import Encoder
from limpet.models.release import Release, make_release
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec, FeatureSpec
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder
from limpet.support import workers as opened_by_workers
from limpet.support.workers import Threads
from limpet.training.encode import embed_features, embed_images
from limpet.training.text_models import VectorMap
from limpet.upgrade.vector_sources import (
    CallableItems,
    CallableVectors,
    FileVectors,
    ImageItems,
    Parallel,
    ReleaseVectors,
    TextItems,
    TextVectors,
    VectorSource,
    through,
    without_text,
)

Embed = Callable[..., EmbeddingSet]
NEW = "declared:new"


# Files


def written(embeddings: EmbeddingSet, path: Path) -> Path:
    write = {".npz": storage.to_npz, ".parquet": storage.to_parquet}.get(path.suffix, storage.save)
    return write(embeddings, path)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".parquet"])
def test_files_give_what_they_have_in_the_order_asked_for(suffix: str, embed: Embed, tmp_path: Path) -> None:
    every = embed("new", ["e", "a", "d", "c", "b"])
    files = [written(every[rows], tmp_path / f"{rows[0]}{suffix}") for rows in ([0, 1, 2], [3], [4])]
    source = FileVectors(files, None if suffix == ".safetensors" else NEW)
    assert (source.fingerprint, source.space, len(source)) == (NEW, Hypersphere(4), 5)
    found = source.embed(["c", "nothing", "e", "b", "a"])
    assert list(found.ids) == ["c", "e", "b", "a"] and found.fingerprint == NEW
    np.testing.assert_array_equal(found.vectors, embed("new", ["c", "e", "b", "a"]).vectors)
    assert len(source.embed(["x"])) == 0 and len(source.embed([])) == 0


def test_a_folder_is_that_of_an_embedding_run(embed: Embed, tmp_path: Path) -> None:
    storage.save(embed("new", ["q"], role="query"), tmp_path / "both" / "query.safetensors")
    storage.save(embed("new", ["a"], role="document"), tmp_path / "both" / "gallery.safetensors")
    storage.save(embed("new", ["b"]), tmp_path / "one" / "embeddings.safetensors")
    found = FileVectors([tmp_path / "both", tmp_path / "one"]).embed(["q", "a", "b"])
    assert list(found.ids) == ["a", "b"]


def test_vectors_of_files_stay_in_files(embed: Embed, tmp_path: Path) -> None:
    source = FileVectors([storage.save(embed("new", ["a", "b"]), tmp_path / "v.safetensors")])
    base = source._sets[0].vectors
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert type(base).__name__ in ("mmap", "memoryview")


def refused_files(embed: Embed, folder: Path) -> dict[str, tuple[Callable[[], Any], type[LimpetError], str]]:
    new = embed("new", ["a", "b"])
    one = storage.save(new, folder / "one.safetensors")
    again = storage.save(embed("new", ["b", "c"]), folder / "again.safetensors")
    npz = storage.to_npz(new, folder / "made.npz")
    np.savez(folder / "whole.npz", vectors=new.vectors.astype(np.int8), ids=["a", "b"])
    old = storage.save(embed("old", ["d"]), folder / "old.safetensors")
    query = storage.save(embed("new", ["d"], role="query"), folder / "query.safetensors")
    features = storage.save(embed("new", ["d"], form="features"), folder / "features.safetensors")
    lorentz = storage.save(embed("new", ["d"], space=Lorentz(4)), folder / "lorentz.safetensors")
    return {
        "no file": (lambda: FileVectors([]), ConfigError, "No file"),
        "missing": (lambda: FileVectors([folder / "x.npz"]), ConfigError, "no '.*x.npz'"),
        "empty folder": (lambda: FileVectors([folder / "sub"]), ConfigError, "gallery.safetensors or"),
        "twice": (lambda: FileVectors([one, again]), DataError, r"'b', the first in .*one.* and .*again"),
        "nameless": (lambda: FileVectors([npz]), ConfigError, "which model"),
        "whole": (lambda: FileVectors([folder / "whole.npz"], NEW), DataError, "int8"),
        "other model": (lambda: FileVectors([one, old]), DataError, "old.safetensors' was made by declared:old"),
        "other name": (lambda: FileVectors([one], "declared:x"), ConfigError, "not declared:x"),
        "query": (lambda: FileVectors([query]), DataError, "role 'query'"),
        "features": (lambda: FileVectors([features]), DataError, "holds features"),
        "space": (lambda: FileVectors([one, lorentz]), SpaceMismatchError, "Lorentz"),
    }


@pytest.mark.parametrize("case", ["no file", "missing", "empty folder", "twice", "nameless", "whole", "other model",
                                  "other name", "query", "features", "space"])  # fmt: skip
def test_files_that_cannot_be_used_are_refused(case: str, embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    opening, error, message = refused_files(embed, tmp_path)[case]
    with pytest.raises(error, match=message):
        opening()


def test_file_vectors_round_other_precisions(embed: Embed, tmp_path: Path) -> None:
    new = embed("new", ["a", "b"])
    np.savez(tmp_path / "wide.npz", vectors=new.vectors.astype(np.float64), ids=["a", "b"])
    found = FileVectors([tmp_path / "wide.npz"], NEW).embed(["b"])
    np.testing.assert_array_equal(found.vectors, new.vectors[1:])


def test_a_vector_that_is_no_number_is_refused_by_its_id(embed: Embed, tmp_path: Path) -> None:
    new = embed("new", ["a", "b", "c"])
    vectors = new.vectors.copy()
    vectors[1, 2] = np.nan
    values = {**new._values(), "vectors": vectors}
    source = FileVectors([storage.save(EmbeddingSet.trusted(**values), tmp_path / "v.safetensors")])
    assert len(source.embed(["a", "c"])) == 2
    with pytest.raises(DataError, match=r"NaN(.|\n)*'b'"):
        source.embed(["a", "b", "c"])


# Images


@pytest.fixture(scope="module")
def release() -> Release:
    with seeded(0):
        encoder = Encoder(EncoderSpec(dim=6, image_size=16))
    return make_release(encoder, Hypersphere(6))


@pytest.fixture(scope="module")
def images() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 3, 16, 16), np.uint8)
    return ImageSet(ArrayImages(pixels), np.arange(7) % 2, ("x", "y"), StringArray.of("abcdefg"))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_a_release_embeds_the_images_that_are_there(batch_size: int, release: Release, images: ImageSet) -> None:
    items = ImageItems(images[[6, 0, 2, 4]], images[[1, 3]])  # in two sets, without f
    source = ReleaseVectors(release, items, batch_size=batch_size)
    found = source.embed(["f", "d", "a", "?", "g", "b"])
    assert list(found.ids) == ["d", "a", "g", "b"]
    assert (found.fingerprint, found.space, found.role) == (release.fingerprint, release.space, "document")
    expected = embed_images(release, images[[3, 0, 6, 1]])
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
    assert len(source.embed(["?"])) == 0


def test_images_may_come_from_a_function(release: Release, images: ImageSet) -> None:
    known = dict(zip(images.ids, images.read(np.arange(7)), strict=True))
    source = ReleaseVectors(release, CallableItems(lambda ids: [known.get(name) for name in ids]))
    found = source.embed(["b", "?", "a"])
    assert list(found.ids) == ["b", "a"]
    np.testing.assert_allclose(found.vectors, embed_images(release, images[[1, 0]]).vectors, atol=1e-6)
    known["a"] = known["a"][:, :8]
    with pytest.raises(DataError, match=r"1 images.*'a'(.|\n)*\(3, 16, 16\)"):
        source.embed(["b", "a"])


def test_a_release_of_upright_images_takes_them_as_they_were_read() -> None:
    spec = EncoderSpec(dim=6, image_size=(16, 12), centre_crop=(12, 8))
    upright = make_release(Encoder(spec), Hypersphere(6))
    known = {"a": np.zeros((3, 16, 12), np.uint8), "b": np.zeros((3, 12, 8), np.uint8)}
    source = ReleaseVectors(upright, CallableItems(lambda ids: [known[name] for name in ids]))
    assert len(source.embed(["a"])) == 1
    with pytest.raises(DataError, match=r"1 images.*'b'(.|\n)*\(3, 16, 12\)"):
        source.embed(["a", "b"])


def test_a_release_without_images_is_refused(release: Release, images: ImageSet) -> None:
    head = make_release(build_network(FeatureSpec(frozen=NEW, width=4, dim=4)), Hypersphere(4))
    with pytest.raises(ReleaseError, match="takes embeddings"):
        ReleaseVectors(head, ImageItems(images))
    with pytest.raises(ConfigError, match="one shape"):
        ImageItems(images, ImageSet(ArrayImages(np.zeros((1, 1, 8, 8), np.uint8)), np.zeros(1, int), ("x",), ["z"]))  # type: ignore[arg-type]


def test_all_images_of_a_data_set_are_found(images: ImageSet) -> None:
    train, searched = images[[0, 1, 2, 3]], images[[4, 5, 6]]
    data = RetrievalData("drawn", train, searched, searched, True, None, "")
    known, pixels = ImageItems.of(data).read(["f", "?", "a", "g"])
    assert known == ["f", "a", "g"]
    np.testing.assert_array_equal(pixels, images.read(np.array([5, 0, 6])))


# Texts


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return open_text_encoder("package:wordllama", truncate_dim=16, query_prefix="find: ")


@pytest.fixture(scope="module")
def texts() -> TextSet:
    words = ["what is my balance", "play a song", "how much money have I", "no"]
    return TextSet(StringArray.of(words), None, (), StringArray.of("wxyz"))


def test_a_text_model_embeds_the_texts_as_documents(encoder: TextEncoder, texts: TextSet) -> None:
    source = TextVectors(encoder, TextItems.of(texts))
    found, expected = source.embed(["z", "?", "w"]), embed_texts(encoder, texts[[3, 0]], role="document")
    assert list(found.ids) == ["z", "w"] and (found.role, found.prefix) == ("document", "")
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
    assert len(source.embed(["?"])) == 0
    with pytest.raises(ConfigError, match="these texts are both"):
        TextVectors(encoder, TextItems(texts), role="both")


class Knowing:
    """A network that knows the words of a few texts; of others it makes a vector of zeros."""

    dim, fingerprint = 2, "text:" + 64 * "0"

    def __call__(self, texts: list[str], prefix: str) -> np.ndarray:
        return np.array([[1, len(text)] if "known" in text else [0, 0] for text in texts], np.float32)


@pytest.mark.parametrize("around", [lambda source: source, lambda source: Parallel(lambda: source, Threads(2))])
def test_texts_that_are_blank_or_say_nothing_get_no_vector(around: Callable[[VectorSource], VectorSource]) -> None:
    texts = {"a": "known", "b": "", "c": " \u3000", "d": "others", "e": "also known"}
    network: Any = Knowing()
    prefixes = dict.fromkeys(("query", "document", "both"), "")
    items = CallableItems(lambda ids: [texts.get(one) for one in ids])
    source = around(TextVectors(TextEncoder("?", network.fingerprint, 2, prefixes, network), items))
    assert list(source.embed(["e", "d", "c", "?", "b", "a"]).ids) == ["e", "a"]
    assert without_text(source, ["a", "b", "c", "d", "e", "?"]) == {"b", "c", "d"}
    texts["b"] = "known, too"
    assert list(source.embed(["b", "d"]).ids) == ["b"] and without_text(source, texts) == {"c", "d"}
    assert len(source.embed(["d"])) == len(source.embed(["c"])) == 0


def test_a_head_over_a_text_model_embeds_texts_and_files(encoder: TextEncoder, texts: TextSet, tmp_path: Path) -> None:
    with seeded(1):
        head = make_release(build_network(FeatureSpec(frozen=encoder.fingerprint, width=16, dim=5)), Lorentz(5))
    plain = embed_texts(encoder, texts, role="document")
    expected = embed_features(head, plain)
    stored = FileVectors([storage.save(plain, tmp_path / "plain.safetensors")])
    for source in (TextVectors(encoder, TextItems(texts)), stored):
        carried = through(source, VectorMap.of_release(head))
        assert (carried.fingerprint, carried.space) == (head.fingerprint, Lorentz(5))
        found = carried.embed(["y", "?", "x"])
        assert list(found.ids) == ["y", "x"] and found.fingerprint == head.fingerprint
        np.testing.assert_allclose(found.vectors, expected.vectors[[2, 1]], atol=1e-6)
        assert carried.embed(["?"]).space == Lorentz(5)


def test_a_head_or_adapter_over_another_model_is_refused(embed: Embed, tmp_path: Path) -> None:
    source = FileVectors([storage.save(embed("new", ["a"]), tmp_path / "new.safetensors")])
    head = make_release(build_network(FeatureSpec(frozen="declared:x", width=4, dim=4)), Hypersphere(4))
    with pytest.raises(ConfigError, match="reads those of declared:x"):
        through(source, VectorMap.of_release(head))
    ids = [f"i{row}" for row in range(30)]
    adapter = build_adapter("ridge", {"direction": "old_to_new"}).fit(embed("x", ids), embed("y", ids))
    with pytest.raises(ConfigError, match="reads those of declared:x"):
        through(source, VectorMap.of_adapter(adapter))


def test_an_adapter_maps_what_a_source_has(embed: Embed, tmp_path: Path) -> None:
    ids = [f"i{row}" for row in range(30)]
    old = embed("old", ids)
    adapter = build_adapter("ridge", {"direction": "old_to_new"}).fit(old, embed("new", ids))
    source = through(FileVectors([storage.save(old, tmp_path / "old.safetensors")]), VectorMap.of_adapter(adapter))
    assert (source.fingerprint, source.space) == (adapter.mapped_fingerprint, Hypersphere(4))
    found = source.embed(["i7", "?", "i3"])
    np.testing.assert_allclose(found.vectors, adapter.apply(old).vectors[[7, 3]], atol=1e-6)
    assert found.fingerprint == source.fingerprint


# Functions


def test_a_function_embeds_ids_or_items() -> None:
    def of_ids(ids: list[str]) -> np.ndarray:
        return np.array([[len(name), 1.0] for name in ids], np.float32)

    found = CallableVectors(of_ids, NEW, Hypersphere(2)).embed(["aaa", "b"])
    assert list(found.ids) == ["aaa", "b"] and found.vectors.tolist() == [[3, 1], [1, 1]]
    items = CallableItems(lambda ids: [None if name == "?" else name.upper() * 2 for name in ids])
    asked: list[Any] = []

    def of_items(items: list[str]) -> np.ndarray:
        asked.append(items)
        return of_ids(items)

    source = CallableVectors(of_items, NEW, Hypersphere(2), items)
    assert source.embed(["?", "ab", "c"]).vectors.tolist() == [[4, 1], [2, 1]] and asked == [["ABAB", "CC"]]
    assert len(source.embed(["?"])) == 0 and len(asked) == 1
    with pytest.raises(DataError, match="1 items came for 2 ids"):
        CallableVectors(of_items, NEW, Hypersphere(2), CallableItems(lambda ids: ids[:1])).embed(["a", "b"])


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        (np.ones((1, 2), np.float32), DataError, "1 vectors, 2 ids"),
        (np.ones((2, 2)), DataError, "float64"),
        (np.ones((2, 3), np.float32), SpaceMismatchError, "dimension 3"),
        (np.array([[1, 1], [1, np.nan]], np.float32), DataError, "'b'"),
        (np.array([[0, 0], [1, 1]], np.float32), DataError, "'a'"),
        ([[1.0, 1.0], [1.0, 1.0]], DataError, "float64"),
    ],
)
def test_what_a_function_returns_is_checked(vectors: Any, error: type[LimpetError], message: str) -> None:
    with pytest.raises(error, match=message):
        CallableVectors(lambda ids: vectors, NEW, Hypersphere(2)).embed(["a", "b"])


# Threads


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_several_threads_give_what_one_gives(workers: int, embed: Embed, tmp_path: Path) -> None:
    ids = [f"i{row}" for row in range(7)]
    plain = FileVectors([storage.save(embed("new", ids[:5]), tmp_path / "v.safetensors")])
    source = Parallel(lambda: plain, Threads(workers))
    assert (source.fingerprint, source.space) == (plain.fingerprint, plain.space)
    for asked in (ids[::-1], ids[:1], ["?"], []):
        found, expected = source.embed(asked), plain.embed(asked)
        assert list(found.ids) == list(expected.ids)
        np.testing.assert_array_equal(found.vectors, expected.vectors)


def test_a_source_of_threads_ends_with_what_divides_it() -> None:
    plain = CallableVectors(lambda ids: np.ones((len(ids), 2), np.float32), NEW, Hypersphere(2))
    source, opened = Parallel(lambda: plain, Threads(2)), len(opened_by_workers._OPENED)
    del source
    assert len(opened_by_workers._OPENED) == opened - 1


def test_threads_work_at_the_same_time_and_tell_of_errors() -> None:
    together = threading.Barrier(3, timeout=120)

    def function(ids: Sequence[str]) -> np.ndarray:
        together.wait()  # until all three are here
        return np.ones((len(ids), 2), np.float32)

    assert len(Parallel(lambda: CallableVectors(function, NEW, Hypersphere(2)), Threads(3)).embed(["a", "b", "c"])) == 3
    wrong = CallableVectors(lambda ids: np.ones((len(ids), 2)), NEW, Hypersphere(2))
    with pytest.raises(DataError, match="float64"):
        Parallel(lambda: wrong, Threads(2)).embed(["a", "b"])
    with pytest.raises(ConfigError, match="count=0"):
        Threads(0)
