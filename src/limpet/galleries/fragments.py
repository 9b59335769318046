"""Distributed backfill: shards of items to embed, fragments of vectors, and one committer.

All workers share one folder:

- ``plan.json``: the generation, its model and space, the last commit, and the shards (`FragmentPlan`);
- ``shards/SHARD.parquet``: the items of a shard, columns ``id`` (text) and ``version`` (64-bit integer);
- ``fragments/FILE``: the vectors of a shard, points of the space: a file of `limpet embed`, or an ``.npz`` or
  ``.parquet`` file with ``id`` and ``vector``;
- ``manifests/SHARD.json``: the name of this file, its SHA-256, and the fingerprint of the model (`Manifest`). A worker
  writes it last, so that a worker that dies leaves nothing that is committed;
- ``accepted/SHARD``: the SHA-256 of a fragment that was committed.

Any program may write fragments and manifests; a file that a manifest names must not change. A shard may be made twice,
and a fragment delivered twice or late: an item gets a vector only if it is unchanged since the plan, and has none.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from limpet.embeddings import EmbeddingSet, storage
from limpet.embeddings.embedding_set import joined
from limpet.embeddings.parquet_files import unreadable
from limpet.embeddings.storage import write_atomically
from limpet.engines.backup_files import appearing
from limpet.engines.store import Commit, Fill, Rows
from limpet.errors import ConfigError, DataError, SpaceMismatchError, UpgradeStateError, shown
from limpet.galleries.backfill import WAIT, commit_fill
from limpet.galleries.gallery import ROWS_AT_ONCE
from limpet.galleries.open_gallery import OpenGallery
from limpet.galleries.rows import rows_of
from limpet.geometry import Space
from limpet.geometry.spaces import space_from_record
from limpet.support.disk import Disk, open_file, read_bytes, regular
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import NonNegative, PositiveInt, checked
from limpet.upgrade.filling import check_source
from limpet.upgrade.vector_sources import VectorSource

__all__ = ["Accepted", "FragmentPlan", "Manifest", "accept", "make", "plan"]

ITEMS = 25_000
"""Default number of items per shard."""
_EMBEDDED = 1024  # items per call of the source
_PLAN_AGAIN = "`limpet fragments plan` plans what lacks a vector now, in another folder."
_BLOCK = 1 << 20
_Name = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_][0-9A-Za-z_.-]{0,200}$")]
_Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Document = TypeVar("_Document", bound=BaseModel)


class FragmentPlan(BaseModel):
    """The work to do; ``plan.json``.

    Args:
        format: Type of the file.
        format_version: Version of the protocol.
        generation: The generation of the gallery to fill.
        fingerprint: Fingerprint of the model.
        space: Record of the space of the vectors.
        commit: Last commit of the gallery when it was planned. Versions are numbers of commits, and another gallery, or
            one that was restored, has other commits of these numbers.
        items: Number of items in the shards.
        shards: Names of the shards, in the order in which the committer reads them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["limpet fragments"] = "limpet fragments"
    format_version: Literal[1] = 1
    generation: str
    fingerprint: str
    space: dict[str, Any]
    commit: Commit
    items: int
    shards: list[_Name]

    @classmethod
    def read(cls, place: str | Path) -> FragmentPlan:
        """Return the plan of a folder.

        Raises:
            ConfigError: The folder has no plan.
            DataError: The plan cannot be read.
        """
        file = Path(place) / "plan.json"
        try:
            return _read(cls, file)
        except FileNotFoundError:
            raise ConfigError(
                f"There is no '{file}'.", expected="a folder that `limpet fragments plan` wrote", to_do="plan first."
            ) from None

    @property
    def geometry(self) -> Space:
        """The space."""
        return space_from_record(self.space)


class Manifest(BaseModel):
    """Result of a worker for a shard; ``manifests/SHARD.json``.

    Args:
        file: Name of the file in ``fragments``; None if no item of the shard has a text.
        sha256: SHA-256 of the file.
        fingerprint: Fingerprint of the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: _Name | None
    sha256: _Digest | None = None
    fingerprint: str = Field(min_length=1)


@dataclass(frozen=True)
class Accepted:
    """Result of one run of the committer.

    Args:
        generation: The generation.
        shards: Number of shards in the plan.
        accepted: Number of shards that are committed, now or before.
        waiting: Number of shards that have no manifest yet.
        refused: Why fragments were refused, by shard; nothing of them was written.
        written: Number of items that got a vector now.
        passed_over: Items of fragments accepted now that were changed or deleted since the plan, or have a vector.
        lacking: Number of items of the gallery that have no vector of the generation.
        seconds: Duration of the run.
    """

    generation: str
    shards: int
    accepted: int
    waiting: tuple[str, ...]
    refused: dict[str, str]
    written: int
    passed_over: int
    lacking: int
    seconds: float


@checked
def plan(gallery: OpenGallery, place: str | Path, *, items: PositiveInt = ITEMS) -> FragmentPlan:
    """Write the items that lack a vector of the started or active generation into a new folder, as shards.

    Args:
        gallery: The gallery.
        place: A new or empty folder.
        items: Maximum number of items per shard.

    Raises:
        GalleryError: The folder is not empty.
        StoreError: The disk fails; no files are left.
    """
    target = gallery.state.by_name[gallery.state.target]
    with appearing(Path(place), Disk(), "plan of fragments") as folder:
        for name in ("shards", "fragments", "manifests", "accepted"):
            (folder / name).mkdir()
        names, total = list[str](), 0
        for part in _lacking(gallery, target.name, items):
            names.append(f"{len(names):06d}")
            total += part.num_rows
            write_atomically(_shard(folder, names[-1]), lambda file: pq.write_table(part, file))  # noqa: B023
        made = FragmentPlan(
            generation=target.name, fingerprint=target.fingerprint, space=dict(target.space),
            commit=gallery.store.pointer().commit, items=total, shards=names,
        )  # fmt: skip
        _write(folder / "plan.json", made)
    return made


def _lacking(gallery: OpenGallery, generation: str, limit: int) -> Iterator[pa.Table]:
    """Yield ids and versions of items that lack a vector, at most ``limit`` at a time."""
    after = ""
    while len(found := gallery.store.scan(after=after, limit=limit, lacking=generation)):
        yield pa.table({"id": pa.array(found.ids, pa.string()), "version": pa.array(found.versions)})
        after = found.ids[-1]


@checked
def make(place: str | Path, shard: str, source: VectorSource) -> Manifest:
    """Make the fragment of a shard, and then its manifest, unless it is complete or was accepted.

    Args:
        place: The folder of the plan.
        shard: Name of the shard.
        source: Source of the vectors.

    Raises:
        ConfigError: The plan has no such shard.
        DataError: The source is of another model, or the shard is damaged.
    """
    folder, known = Path(place), FragmentPlan.read(place)
    check_source(source, known.fingerprint, known.geometry, of=known.generation)
    ids, _ = _items(folder, known, shard)
    with suppress(DataError, SpaceMismatchError, FileNotFoundError):  # damaged or missing: it is made
        manifest = _read(Manifest, _manifest(folder, shard))
        if not _is_accepted(folder, shard, manifest):  # otherwise it may be deleted
            _fragment(folder, known, manifest, ids)
        return manifest
    parts = [source.embed(ids[start : start + _EMBEDDED]) for start in range(0, len(ids), _EMBEDDED)]
    some = [part for part in parts if len(part)]
    if not some:
        return _write(_manifest(folder, shard), Manifest(file=None, fingerprint=known.fingerprint))
    part = storage.save(joined(some), folder / "fragments" / f"{shard}.making.{time.time_ns()}.safetensors")
    digest = _digest(part)
    part.replace(folder / "fragments" / (name := f"{digest}.safetensors"))
    return _write(_manifest(folder, shard), Manifest(file=name, sha256=digest, fingerprint=known.fingerprint))


@showing("accept", unit="shards")
@checked
def accept(
    gallery: OpenGallery, place: str | Path, *, wait: NonNegative = WAIT, progress: Progress[Told] = None
) -> Accepted:
    """Commit all fragments that were not committed before; an invalid fragment is skipped.

    The run may be killed and repeated, and may run in parallel with workers, the application, and another committer.

    Args:
        gallery: The gallery.
        place: The folder of the plan.
        wait: Seconds that every commit waits for another writer.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" shards.

    Raises:
        UpgradeStateError: The gallery is another one, or has lost commits since the plan; or it has no such generation,
            or one of another model.
        StoreError: The gallery is unreachable, full or failing.
    """
    began, folder, known = time.monotonic(), Path(place), FragmentPlan.read(place)
    _check_gallery(gallery, known)
    waiting, refused, written, passed_over = [], {}, 0, 0
    for done, shard in enumerate(known.shards, 1):
        try:
            manifest = _read(Manifest, _manifest(folder, shard))
            if not _is_accepted(folder, shard, manifest):
                filled, left = _commit(gallery, folder, known, shard, manifest, wait)
                written, passed_over = written + filled, passed_over + left
                write_atomically(folder / "accepted" / shard, lambda file: file.write_text(str(manifest.sha256)))  # noqa: B023
        except FileNotFoundError:
            waiting.append(shard)
        except (DataError, SpaceMismatchError) as error:
            refused[shard] = error.given
        listener(progress)({"done": done, "total": len(known.shards)})
    pointer = gallery.store.pointer()
    return Accepted(
        known.generation, len(known.shards), len(known.shards) - len(waiting) - len(refused), tuple(waiting), refused,
        written, passed_over, pointer.items - pointer.covered([known.generation]), time.monotonic() - began,
    )  # fmt: skip


def _check_gallery(gallery: OpenGallery, known: FragmentPlan) -> None:
    target = gallery.state.by_name.get(known.generation)
    if target is None or (target.fingerprint, target.geometry) != (known.fingerprint, known.geometry):
        there = f"is of {target.fingerprint}" if target else "does not exist"
        raise UpgradeStateError(
            f"The plan fills {known.generation} of {known.fingerprint}; in this gallery {known.generation} {there}.",
            expected="the gallery, and the upgrade, that were planned",
            to_do=_PLAN_AGAIN,
            intact="Nothing was written.",
        )
    since = gallery.store.journal(after=known.commit.sequence - 1)
    if not since or (since[0].sequence, since[0].time) != known.commit:
        raise UpgradeStateError(
            f"The gallery does not have commit {known.commit.sequence} of the plan: another one was planned, or this "
            "one has lost commits since, as by a restore.",
            expected="the gallery that was planned",
            to_do=_PLAN_AGAIN,
            intact="Nothing was written.",
        )


def _commit(
    gallery: OpenGallery, folder: Path, known: FragmentPlan, shard: str, manifest: Manifest, wait: float
) -> tuple[int, int]:
    """Commit a fragment; return the number of items that got a vector, and of those that did not."""
    ids, versions = _items(folder, known, shard)
    made = _fragment(folder, known, manifest, ids)
    if made is None:
        return 0, 0
    planned = dict(zip(ids, versions.tolist(), strict=True))
    rows = rows_of(gallery.state.by_name[known.generation], made)
    filled = 0
    for start in range(0, len(rows.ids), ROWS_AT_ONCE):  # each commit of a folder leaves files until they are merged
        some = slice(start, start + ROWS_AT_ONCE)
        part = Rows(rows.generation, rows.ids[some], rows.vectors[some])
        filled += commit_fill(gallery, Fill(part, np.array([planned[one] for one in part.ids], np.int64)), wait)
    return filled, len(rows.ids) - filled


def _fragment(folder: Path, known: FragmentPlan, manifest: Manifest, ids: Sequence[str]) -> EmbeddingSet | None:
    """Return the vectors that a manifest names; None if it names none.

    Raises:
        DataError: They are damaged, of another model, or of other items.
        SpaceMismatchError: They are of another space.
    """
    if manifest.fingerprint != known.fingerprint:
        raise DataError(f"The fragment was made by {manifest.fingerprint}.", expected=f"vectors of {known.fingerprint}")
    if manifest.file is None:
        return None
    file = folder / "fragments" / manifest.file
    try:
        found = _digest(file)
    except FileNotFoundError:
        raise DataError(f"The manifest names '{file}', which is not there.") from None
    if found != manifest.sha256:
        raise DataError(f"The fragment '{file}' was cut off or changed: it is not what its manifest says.")
    if file.suffix == ".safetensors":
        made = storage.load(file)
    else:
        read = storage.from_npz if file.suffix == ".npz" else storage.from_parquet
        made = read(file, fingerprint=known.fingerprint, space=known.geometry)
    if made.fingerprint != known.fingerprint or made.form != "points":
        raise DataError(f"The fragment '{file}' holds {made}.", expected=f"points of {known.fingerprint}")
    if made.role == "query":
        raise DataError(f"The fragment '{file}' holds vectors of queries.", expected="items embedded as documents")
    if made.space != known.geometry:
        raise SpaceMismatchError(f"The fragment '{file}' is on the {made.space}.", expected=f"the {known.geometry}")
    if len(wrong := made.space.check(made.vectors)):
        names = shown([made.ids[row] for row in wrong.tolist()])
        raise DataError(f"The fragment '{file}' holds vectors that are no points of the {made.space}: {names}.")
    if strangers := set(made.ids).difference(ids):
        raise DataError(f"The fragment '{file}' has items of no such shard: {shown(sorted(strangers))}.")
    return made


def _items(folder: Path, known: FragmentPlan, shard: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return ids and versions of a shard."""
    if shard not in known.shards:
        raise ConfigError(
            f"The plan has no shard '{shard}'.", expected=f"one of {shown(known.shards)}", to_do="name one of these."
        )
    file = _shard(folder, shard)
    with unreadable(file):
        table = pq.read_table(regular(file), schema=pa.schema([("id", pa.string()), ("version", pa.int64())]))
        return table.column("id").to_pylist(), table.column("version").to_numpy()


def _is_accepted(folder: Path, shard: str, manifest: Manifest) -> bool:
    try:
        return read_bytes(folder / "accepted" / shard).decode("ascii", "replace") == str(manifest.sha256)
    except FileNotFoundError:
        return False


def _shard(folder: Path, name: str) -> Path:
    return folder / "shards" / f"{name}.parquet"


def _manifest(folder: Path, shard: str) -> Path:
    return folder / "manifests" / f"{shard}.json"


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with open_file(file) as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _write(file: Path, document: _Document) -> _Document:
    write_atomically(file, lambda part: part.write_text(document.model_dump_json(indent=1)))
    return document


def _read(kind: type[_Document], file: Path) -> _Document:
    try:
        return kind.model_validate_json(read_bytes(file))
    except ValidationError as error:
        raise DataError(f"'{file}' cannot be read: {' '.join(str(error).split())}.") from error
