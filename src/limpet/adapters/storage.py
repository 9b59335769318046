"""Fitted adapters in files.

An adapter is a folder of plain files: ``adapter.safetensors`` with the arrays of the map, ``trained-on.safetensors``
with digests of the items it was fitted on, and ``config.json``.
Galleries keep all of it as one value (`pack_adapter`). Loading verifies that they were not altered, runs none of their
code and unpickles nothing.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, load_file, save, save_file

from limpet.adapters.base import Adapter, Fitted, State
from limpet.adapters.pairs import Direction
from limpet.adapters.registered import ADAPTERS, build_adapter
from limpet.embeddings.storage import write_atomically
from limpet.embeddings.trained_on import TRAINED_ON_FILE, TrainedOn
from limpet.errors import DataError, LimpetError, ReleaseError, SpaceMismatchError, reason
from limpet.geometry import Hypersphere, space_from_record
from limpet.support.disk import only_files, read_bytes
from limpet.support.hub import front_matter
from limpet.support.ranges import PositiveInt
from limpet.support.source_code import Standing, combined, digest_of, standing
from limpet.version import __version__

_FORMAT_VERSION = 1
ADAPTER_FILE = "adapter.safetensors"
GALLERY_ADAPTER = "gallery-adapter"
"""Folder below a head that stays with its frozen model, for the adapter that takes an older gallery there."""
_CONFIG = "config.json"
_ROOT = Path(__file__).parents[1]
_END = b"\0"  # of the record in a packed adapter; no JSON holds it
_ITEMS = "trained on: "  # before the names of those arrays in a packed adapter
_UNREADABLE = (OSError, SafetensorError, LimpetError, KeyError, TypeError, ValueError, AttributeError)


class AdapterRecord(BaseModel):
    """The contents of ``config.json``.

    Args:
        format_version: Version of the folder's layout.
        kind: Name of the adapter in `ADAPTERS`.
        options: Options of the adapter.
        direction: "new_to_old" or "old_to_new".
        source: Fingerprint of the model whose embeddings it maps.
        target: Fingerprint of the model whose space it maps into.
        source_space: Space of the source embeddings, with its dimension.
        pairs: Number of items it was fitted on.
        fingerprint: Identity of the map, over all of the above except `pairs`, and over all arrays.
        trained_on: sha256 of the record of these items, in ``trained-on.safetensors``; None if unknown.
        versions: Versions of limpet, NumPy, SciPy and Python; as "code" the digest of the code that fitted it.
        digest: sha256 of all values above.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")  # an option may be infinite

    format_version: PositiveInt = _FORMAT_VERSION
    kind: str
    options: dict[str, Any]
    direction: Direction
    source: str
    target: str
    source_space: dict[str, Any]
    target_space: dict[str, Any]
    pairs: PositiveInt
    fingerprint: str
    trained_on: str | None = None
    versions: dict[str, str] = {}
    digest: str = ""

    def computed_digest(self) -> str:
        """Return the digest of these values."""
        content = json.dumps(self.model_dump(mode="json", exclude={"digest"}), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def save_adapter(adapter: Adapter, folder: str | Path) -> Path:
    """Save a fitted adapter to a folder, and return its path.

    Each file is durable before it takes its place; ``config.json`` is written last, and vouches for both other files.

    Args:
        adapter: Adapter to save.
        folder: Output folder; other files in it are not touched.

    Raises:
        ConfigError: The adapter was not fitted.
        ReleaseError: The folder holds something else, or cannot be written; its contents are unchanged.
    """
    versions = {"limpet": __version__, "numpy": np.__version__, "scipy": scipy.__version__,
                "python": platform.python_version(), "code": adapter_code(adapter.kind)}  # fmt: skip
    folder, record = Path(folder), _record_of(adapter, versions)
    _refuse_another(folder, record)
    arrays = {name: np.ascontiguousarray(values) for name, values in adapter.fitted.state.items()}
    items = adapter.fitted.trained_on
    config = record.model_dump_json(indent=2) + "\n"
    try:
        if items is not None:
            write_atomically(folder / TRAINED_ON_FILE, lambda part: save_file(items.arrays(), part))
        write_atomically(folder / ADAPTER_FILE, lambda part: save_file(arrays, part))
        write_atomically(folder / _CONFIG, lambda part: part.write_text(config, encoding="utf-8"))
    except DataError as error:
        raise ReleaseError(
            f"Could not save the adapter to '{folder}': {error.given}",
            to_do="free space or choose another folder.",
            intact="An adapter that was there before is intact.",
        ) from error
    return folder


def adapter_card(adapter: Adapter) -> str:
    """Return a short description in Markdown, with front matter that the hub reads.

    Raises:
        ConfigError: The adapter was not fitted.
    """
    fitted = adapter.fitted
    searches = adapter.direction == "new_to_old"
    maps = "queries of the new model, to search what the old one embedded" if searches else (
        "a gallery of the old model, to be searched with the new one")  # fmt: skip
    tags = ["embeddings", "retrieval", "backward-compatible", "adapter", adapter.kind]
    lines = [
        front_matter({"library_name": "limpet", "pipeline_tag": "feature-extraction", "tags": tags}),
        f"# Adapter `{adapter.fingerprint[:20]}`",
        "",
        f"- {adapter.kind} {adapter.options or ''}".rstrip(),
        f"- maps {maps}",
        f"- from `{fitted.source}`, {fitted.source_space.dim} dimensions",
        f"- to `{fitted.target}`, {fitted.target_space.dim} dimensions",
        f"- fitted on {fitted.pairs:,} items that both models embedded",
        "",
        "```python",
        "import limpet",
        "",
        'adapter = limpet.Adapter.from_pretrained("FOLDER_OR_NAME")',
        "mapped = adapter.transform(vectors)",
        "```",
        "",
        "Vectors and adapters are as sensitive as what was embedded: both may be inverted.",
        "",
    ]
    return "\n".join(lines)


def adapter_code(kind: str) -> str:
    """Return the digest of the code that fits an adapter: its own, and what all of them rest on.

    Raises:
        ConfigError: There is no such adapter.
    """
    return combined(_code_of_limpet(ADAPTERS[kind].__module__), [ADAPTERS[kind]])


@cache
def _code_of_limpet(module: str) -> str:
    packages = [path for package in ("geometry", "embeddings") for path in sorted((_ROOT / package).rglob("*.py"))]
    names = ("base", "moments", "pairs", *([module.rpartition(".")[2]] if module.startswith("limpet.") else []))
    return digest_of([*packages, *(_ROOT / "adapters" / f"{name}.py" for name in names)])


def standing_of_adapter(folder: str | Path) -> Standing:
    """Return whether the code of today would fit the adapter in a folder.

    Raises:
        ReleaseError: The folder holds no adapter that can be read.
    """
    record = _read_record(Path(folder))
    return standing(record.versions.get("code"), adapter_code(record.kind))


def _record_of(adapter: Adapter, versions: dict[str, str]) -> AdapterRecord:
    fitted = adapter.fitted
    record = AdapterRecord(
        kind=adapter.kind,
        options=adapter.options,
        direction=adapter.direction,
        source=fitted.source,
        target=fitted.target,
        source_space=fitted.source_space.record(),
        target_space=fitted.target_space.record(),
        pairs=fitted.pairs,
        fingerprint=adapter.fingerprint,
        trained_on=None if fitted.trained_on is None else fitted.trained_on.digest(),
        versions=versions,
    )
    return record.model_copy(update={"digest": record.computed_digest()})


def _refuse_another(folder: Path, record: AdapterRecord) -> None:
    """Adapters are never replaced by others: a gallery may hold what they mapped."""
    if not (folder / _CONFIG).exists():
        return
    try:
        found = _read_record(folder).fingerprint
    except ReleaseError:
        found = ""
    if found != record.fingerprint:
        raise ReleaseError(
            f"'{folder}' already holds {'the ' + found if found else 'a config.json of something else'}.",
            to_do="choose another folder.",
            intact="What is there is intact.",
        )


def load_adapter(folder: str | Path) -> Adapter:
    """Load an adapter and verify it against its fingerprint.

    Raises:
        ReleaseError: The folder is not an adapter, is incomplete, or a file was altered since it was saved.
    """
    folder, record = Path(folder), _read_record(Path(folder))
    adapter = _restored(record, lambda: load_file(folder / ADAPTER_FILE), str(folder))
    return _with_items(adapter, record, lambda: TrainedOn.load(folder / TRAINED_ON_FILE), str(folder))


def pack_adapter(adapter: Adapter) -> bytes:
    """Return a fitted adapter as one value, the same for the same adapter: its record, and all arrays as safetensors.

    Raises:
        ConfigError: The adapter was not fitted.
    """
    record, items = _record_of(adapter, {}), adapter.fitted.trained_on
    arrays = {name: np.ascontiguousarray(values) for name, values in adapter.fitted.state.items()}
    arrays |= {} if items is None else {_ITEMS + name: values for name, values in items.arrays().items()}
    return record.model_dump_json().encode() + _END + save(arrays)


def unpack_adapter(content: bytes, where: str) -> Adapter:
    """Return the adapter that `pack_adapter` packed, and prove that it is what its fingerprint says.

    Raises:
        ReleaseError: It is no packed adapter, or was altered.
    """
    head, _, body = content.partition(_END)
    record = _record_from(head, where)

    def arrays(*, of_items: bool) -> State:
        return {
            name.removeprefix(_ITEMS): values
            for name, values in load(body).items()
            if name.startswith(_ITEMS) == of_items
        }

    adapter = _restored(record, lambda: arrays(of_items=False), where)
    return _with_items(adapter, record, lambda: TrainedOn.from_arrays(arrays(of_items=True)), where)


def _with_items(adapter: Adapter, record: AdapterRecord, read: Callable[[], TrainedOn], where: str) -> Adapter:
    if record.trained_on is None:
        return adapter
    try:
        items = read()
    except DataError as error:
        raise _altered(where, f"the record of what it was fitted on cannot be read ({error.given})") from error
    if items.digest() != record.trained_on:
        raise _altered(where, "the record of what it was fitted on is not the one that was saved")
    adapter.restore(replace(adapter.fitted, trained_on=items))
    return adapter


def _restored(record: AdapterRecord, arrays: Callable[[], State], where: str) -> Adapter:
    if record.computed_digest() != record.digest:
        raise _altered(where, "config.json is not what was saved")
    if record.kind not in ADAPTERS:
        raise ReleaseError(
            f"'{where}' is an adapter of the unknown kind '{record.kind}'.",
            expected=f"one of {', '.join(ADAPTERS.names())}",
            to_do="install the limpet that wrote it.",
            intact="The adapter is intact.",
        )
    try:
        adapter = build_adapter(record.kind, {**record.options, "direction": record.direction})
        adapter.restore(_fitted(record, arrays()))
    except _UNREADABLE as error:
        raise _altered(where, f"it cannot be read ({reason(error)})") from error
    if adapter.fingerprint != record.fingerprint:
        raise _altered(where, f"it has the fingerprint {adapter.fingerprint}, config.json says {record.fingerprint}")
    _check_maps(adapter, where)
    return adapter


def _fitted(record: AdapterRecord, state: State) -> Fitted:
    spaces = space_from_record(record.source_space), space_from_record(record.target_space)
    for space in spaces:
        if not isinstance(space, Hypersphere):
            raise SpaceMismatchError(f"An adapter on the {space}.", expected="the hypersphere on both sides")
    return Fitted(record.source, record.target, *spaces, record.pairs, state)


def _read_record(folder: Path) -> AdapterRecord:
    try:
        content = read_bytes(only_files(folder) / _CONFIG)
    except OSError as error:
        raise ReleaseError(
            f"'{folder}' is no adapter: {error.strerror or error}.",
            expected=f"a folder with {_CONFIG} and {ADAPTER_FILE}, as save_adapter writes it",
            to_do="check the path.",
        ) from error
    return _record_from(content, str(folder))


def _record_from(content: bytes, where: str) -> AdapterRecord:
    try:
        record = AdapterRecord.model_validate_json(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _altered(where, "config.json is no text") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3])
        raise _altered(where, f"config.json does not describe an adapter ({wrong})") from error
    if record.format_version > _FORMAT_VERSION:
        raise ReleaseError(
            f"'{where}' has format version {record.format_version}.",
            expected=f"at most {_FORMAT_VERSION}",
            to_do="install a newer limpet.",
            intact="The adapter is intact.",
        )
    return record


def _check_maps(adapter: Adapter, where: str) -> None:
    """Refuse arrays that do not form such a map, even if their digest is right."""
    probe, expected = np.eye(1, adapter.fitted.source_space.dim), (1, adapter.fitted.target_space.dim)
    try:
        image = adapter.images(probe)
        finite = all(np.isfinite(values).all() for values in adapter.fitted.state.values())
        if image.shape == expected and finite:
            return
        problem = f"it maps a vector to shape {image.shape}" if finite else "its arrays are not finite"
    except (KeyError, ValueError, IndexError, TypeError) as error:
        problem = f"its arrays are no '{adapter.kind}' ({error})"
    raise _altered(where, problem)


def _altered(where: str, why: str) -> ReleaseError:
    return ReleaseError(
        f"The adapter '{where}' was altered since it was saved: {why}.",
        to_do="restore it from a copy, or fit the adapter again on the same pairs.",
    )
