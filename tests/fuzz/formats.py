"""Every format of files that limpet reads: a small sample, how it is altered, and what is done with it once read."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import mutations
from fuzz.mutations import Mutation
from limpet.adapters import ADAPTERS, build_adapter
from limpet.adapters.score_map import load_score_map
from limpet.adapters.storage import AdapterRecord, load_adapter, save_adapter
from limpet.cli.settings import read as read_settings
from limpet.data.arrays import arrays
from limpet.data.text_files import texts
from limpet.embeddings import EmbeddingSet, StringArray, storage
from limpet.engines.sources import open_source
from limpet.evaluation.evaluate import evaluate
from limpet.evaluation.ranking.cohort import Cohort, pack_cohort, unpack_cohort
from limpet.evaluation.results import EvaluationResults
from limpet.evaluation.retrieval import top_k
from limpet.evaluation.test_sets import CombinationResults, combine
from limpet.galleries import Gallery
from limpet.galleries.transfer import columns_of, import_table
from limpet.geometry import Hypersphere
from limpet.models.building import build_network
from limpet.models.heads import build_head
from limpet.models.release import load_release, make_release, save_release
from limpet.models.release_record import ReleaseRecord
from limpet.models.seeding import seeded
from limpet.models.specs import EncoderSpec
from limpet.reports.combined import combined_table
from limpet.reports.evaluation import headline, summary_rows
from limpet.results import Data
from limpet_bench.datasets.ijbc import FaceTruth
from limpet_bench.datasets.intents import official_json
from limpet_bench.datasets.record_io import RecordFile
from limpet_bench.datasets.revisited import RevisitedTruth

SPACE = Hypersphere(4)
CHANGES: Mapping[str, Sequence[Mutation]] = {
    ".safetensors": (mutations.any_bytes, mutations.safetensors_header, mutations.safetensors_header),
    ".json": (mutations.any_bytes, mutations.json_values, mutations.json_values, mutations.json_values),
    ".yaml": (mutations.any_bytes, mutations.yaml_words, mutations.yaml_words, mutations.yaml_words),
    ".npy": (mutations.any_bytes, mutations.npy_header, mutations.npy_header),
    ".npz": (mutations.any_bytes, mutations.npz_members, mutations.npz_members),
}
"""How files are altered, by the end of their name; all others by their bytes."""


@dataclass(frozen=True)
class Format:
    """One format of files.

    Args:
        make: Writes a sample into a folder, or several into folders there.
        read: Reads the sample in a folder and uses what was read as commands do.
        sign: Computes digests within the files anew, as somebody would who altered them on purpose.
        left_alone: Files that are not altered.
        changes: How other files than those of `CHANGES` are altered.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    sign: Callable[[Path], object] | None = None
    left_alone: frozenset[str] = frozenset({"README.md"})
    changes: Sequence[Mutation] = (mutations.any_bytes,)

    def mutations_of(self, path: Path) -> Sequence[Mutation]:
        """Return how a file is altered."""
        return CHANGES.get(path.suffix, self.changes)


def drawn(model: str, rows: int = 12, **values: Any) -> EmbeddingSet:
    """Draw embeddings of a model."""
    rng = np.random.default_rng(len(model))
    return EmbeddingSet(
        ids=StringArray.of([f"Zoë {row:02d}" for row in range(rows)]),
        vectors=rng.normal(size=(rows, 4)).astype(np.float32),
        fingerprint=f"declared:{model}",
        space=SPACE,
        labels=np.arange(rows) % 3,
        class_names=StringArray.of(["x", "ÿ", "z"]),
        **values,
    )


def _folders(folder: Path, *names: str) -> list[Path]:
    """Make folders for several samples of one format."""
    made = [folder / name for name in names]
    for one in made:
        one.mkdir()
    return made


def _used(found: EmbeddingSet) -> None:
    """Touch all that a command may ask of a set."""
    list(found.ids), found.ids.duplicates, found.ids.find(["Zoë 01"]), repr(found)
    found[[0, -1] if len(found) else []]
    if found.class_names is not None and found.labels is not None:
        found.class_names[found.labels].classes()


# Embeddings


def _make_embeddings(folder: Path) -> None:
    columns = {"camera": np.arange(12), "score": np.linspace(0, 1, 12)}
    storage.save(drawn("old", columns=columns, role="document"), folder / "a.safetensors")


def _read_embeddings(folder: Path) -> None:
    _used(storage.load(folder / "a.safetensors"))
    found = storage.load(folder / "a.safetensors", verify=True)
    storage.to_parquet(found, folder / "out.parquet")
    top_k(found, found, 3)


def _sign_embeddings(folder: Path) -> None:
    """Record the digest of what is there, whatever it is."""
    content = (folder / "a.safetensors").read_bytes()
    with suppress(Exception):
        (length,) = struct.unpack_from("<Q", content)
        header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
        record = json.loads(header["__metadata__"]["limpet"])
        space = {name: record["space"].get(name) for name in ("name", "dim", "curvature")}
        prefix = record.get("prefix")
        digest = hashlib.sha256(repr((space, record["role"], record["form"], *([prefix] if prefix else []))).encode())
        for name in sorted(set(header) - {"__metadata__"}):
            begin, end = header[name]["data_offsets"]
            kind = np.dtype(storage._DTYPES[header[name]["dtype"]]).str
            digest.update(f"{name}:{kind}:{tuple(header[name]['shape'])};".encode() + body[begin:end])
        record["digest"] = digest.hexdigest()
        header["__metadata__"]["limpet"] = json.dumps(record)
        text = json.dumps(header).encode()
        (folder / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)


# Releases and adapters


def _make_release(folder: Path) -> None:
    with seeded(0):
        encoder = build_network(EncoderSpec(dim=4, image_size=8, backbone_options={"filters": 2}))
        head = build_head("softmax", 3, 4, {"bias": True})
    release = make_release(encoder, SPACE, classifier=head, classes=("a", "b", "c"), head="softmax",
                           head_options={"bias": True}, method_options={"weight": 1.0}, data={"name": "x"})  # fmt: skip
    save_release(release, folder)


def _sign_release(folder: Path) -> None:
    with suppress(Exception):
        record = json.loads((folder / "config.json").read_text())
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        known = ReleaseRecord.model_validate_json(json.dumps(record))
        content = json.dumps([known.model_dump(mode="json", exclude={"digest"}), classes], sort_keys=True)
        record["digest"] = hashlib.sha256(content.encode()).hexdigest()
        (folder / "config.json").write_text(json.dumps(record))


def _make_adapters(folder: Path) -> None:
    for kind in ADAPTERS:
        adapter = build_adapter(kind, {"direction": "new_to_old"})
        save_adapter(adapter.fit(drawn("old", 64), drawn("newer", 64)), folder / kind)


def _sign_adapter(folder: Path) -> None:
    with suppress(Exception):
        record = AdapterRecord.model_validate_json((folder / "config.json").read_text())
        record = record.model_copy(update={"digest": record.computed_digest()})
        (folder / "config.json").write_text(record.model_dump_json())


def _make_score_map(folder: Path) -> None:
    content = {"format_version": 1, "candidate": "c", "old": "o", "new": "n", "direction": "old_to_new",
               "scored_pairs": 9, "knots": [0.1, 0.2, 0.5], "values": [0.3, 0.4, 0.9]}  # fmt: skip
    (folder / "score_map.json").write_text(json.dumps(content))


def _read_score_map(folder: Path) -> None:
    load_score_map(folder / "score_map.json").apply([0.15, 2.0])


def _make_cohort(folder: Path) -> None:
    sides = drawn("old").vectors, drawn("newer").vectors
    (folder / "cohort").write_bytes(pack_cohort(Cohort(*sides, 0.5, 3)))


def _read_cohort(folder: Path) -> None:
    cohort = unpack_cohort((folder / "cohort").read_bytes(), "cohort")
    cohort.lines(cohort.own[:2], cohort.other[:2])


# Imports


def _make_parquet(folder: Path) -> None:
    table = pa.table({
        "id": [f"Zoë {row}" for row in range(12)],
        "vector": pa.array(drawn("old").vectors.tolist(), pa.list_(pa.float32())),
        "label": pa.array(["a", "b", "c"] * 4).dictionary_encode(),
        "stock": list(range(12)), "price": np.linspace(0, 1, 12), "new": [True, False] * 6,
    })  # fmt: skip
    said = {b"limpet": json.dumps({"fingerprint": "declared:v1", "space": SPACE.record()}).encode()}
    plain, packed = _folders(folder, "plain", "packed")
    pq.write_table(table.replace_schema_metadata(said), plain / "a.parquet", compression="none")
    pq.write_table(table, packed / "a.parquet", compression="zstd", use_dictionary=False, row_group_size=5)


def _read_parquet(folder: Path) -> None:
    _used(storage.from_parquet(folder / "a.parquet", fingerprint="declared:v1"))


def _import_parquet(folder: Path) -> None:
    columns = columns_of(open_source(f"parquet:{folder / 'a.parquet'}"))
    with Gallery.create("memory://", fingerprint="declared:v1", space=SPACE, columns=columns) as gallery:
        import_table(gallery, open_source(f"parquet:{folder / 'a.parquet'}"))
        gallery.search(drawn("v1").vectors[:1], 3)


def _make_numpy(folder: Path) -> None:
    rows, columns = _folders(folder, "rows", "columns")
    np.save(rows / "a.npy", drawn("old").vectors)
    np.save(columns / "a.npy", np.asfortranarray(drawn("old").vectors))


def _read_numpy(folder: Path) -> None:
    _used(storage.from_npz(folder / "a.npy", fingerprint="declared:v1"))


def _read_archive(folder: Path) -> None:
    _used(storage.from_npz(folder / "a.npz", fingerprint="declared:v1"))


# Settings and results

SETTINGS = {
    "train": '[train]\ndata = "photos"\nmethod = ["bct", "p2s"]\nseed = 3\nmean = [0.5, 0.4]\n'
    'scenario = "extended-class"\n'
    "[train.method-options.bct]\nweight = 1.0\n[train.recipe]\nepochs = 3\naugmentation = {flip = true}\n",
    "embed": 'data-root = "data"\n[embed.images]\nrelease = ["a", "b"]\nout = "there"\n',
}


def _make_settings(folder: Path) -> None:
    for place, text in zip(_folders(folder, *SETTINGS), SETTINGS.values(), strict=True):
        (place / "a.toml").write_text(text)


def _read_settings(folder: Path) -> None:
    read_settings(folder / "a.toml", named=True)


def _make_results(folder: Path) -> None:
    old, new = drawn("old"), drawn("newer")
    found = evaluate(old, new, resamples=20)
    data = Data(name="d", description="x", numbers={"items": 12})
    models = {name: {"backbone": "convnet", "dim": 4} for name in ("old", "bct")}
    EvaluationResults.of(title="t", data=data, models=models, evaluations={"bct": found}).save(folder)


def _read_results(folder: Path) -> None:
    found = {"a": EvaluationResults.load(folder), "b": EvaluationResults.load(folder)}
    combination = combine({name: one.only(name) for name, one in found.items()})
    combined_table(CombinationResults.gather(combination, found, title="both"))
    headline(found["a"]), summary_rows(found["a"])


# Official files

TRUTH = {
    "imlist": ["a", "b", "c", "d"],
    "qimlist": ["p", "q"],
    "gnd": [{"easy": [0], "hard": [1], "junk": [], "bbx": [0.0, 0, 5, 5]}] * 2,
}


def _make_truths(folder: Path) -> None:
    (folder / "gnd_list.json").write_text(json.dumps(TRUTH))


def _read_truths(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        RevisitedTruth.read(path)


def _make_texts(folder: Path) -> None:
    (folder / "a.csv").write_text('text,label,id\n"a, b",x,1\nc,y,2\n"d\ne",x,3\n')
    (folder / "a.jsonl").write_text('{"text": "a", "label": "x", "id": 1}\n{"text": "b", "label": "y", "id": 2}\n')
    (folder / "a.txt").write_text("one\ntwo\n")
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1, 2]}), folder / "a.parquet", compression="none")


def _read_texts(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        texts(path)


def _make_official(folder: Path) -> None:
    record = struct.pack("<IfQQ", 0, 1.0, 0, 0) + b"pixels"
    frame = struct.pack("<II", 0xCED7230A, len(record)) + record + b"\0" * (-len(record) % 4)
    (folder / "train.rec").write_bytes(frame * 3)
    (folder / "train.idx").write_text("".join(f"{key}\t{key * len(frame)}\n" for key in range(3)))
    (folder / "ijbc_template_pair_label.txt").write_text("1 2 1\n3 4 0\n")
    for part in ("gallery_G1", "gallery_G2", "probe_mixed"):
        rows = "TEMPLATE_ID,SUBJECT_ID,FILENAME\n1,10,a.jpg\n2,20,b.jpg\n"
        (folder / f"ijbc_1N_{part}.csv").write_text(rows)
    (folder / "intents.json").write_text(json.dumps({"train": [["hello", "greet"]], "oos": []}))


def _make_images(folder: Path) -> None:
    images = np.arange(12 * 8 * 8, dtype=np.uint32).astype(np.uint8).reshape(12, 8, 8)
    names, ids = np.array(["a", "b", "ÿ"]), np.array([f"i{row}" for row in range(12)])
    np.savez(folder / "a.npz", images=images, labels=np.arange(12) % 3, class_names=names, ids=ids)


def _read_official(folder: Path) -> None:
    file = RecordFile(folder / "train.rec", folder / "train.idx")
    for row in range(len(file.keys)):
        file.content(row)
    FaceTruth.read(folder)
    official_json(folder / "intents.json")


FORMATS: Mapping[str, Format] = {
    "embeddings": Format(_make_embeddings, _read_embeddings, _sign_embeddings),
    "adapter": Format(_make_adapters, lambda folder: load_adapter(folder).map(drawn("newer").vectors), _sign_adapter),
    "score map": Format(_make_score_map, _read_score_map),
    "cohort": Format(_make_cohort, _read_cohort),
    "parquet": Format(_make_parquet, _read_parquet),
    "npy": Format(_make_numpy, _read_numpy),
    "npz": Format(lambda folder: storage.to_npz(drawn("old"), folder / "a.npz"), _read_archive),
    "results": Format(_make_results, _read_results),
    "ground truth": Format(_make_truths, _read_truths),
    "texts": Format(_make_texts, _read_texts),
    "images": Format(_make_images, lambda folder: arrays(folder / "a.npz", held_out=0.3)),
    "official files": Format(_make_official, _read_official),
    "release": Format(_make_release, load_release, _sign_release),
    "parquet into a gallery": Format(_make_parquet, _import_parquet),
    "settings": Format(_make_settings, _read_settings),
}
