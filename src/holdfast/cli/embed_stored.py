"""The part of ``holdfast embed`` that carries stored embeddings over to another space: no item is embedded again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.evidence import columns_of, open_sides
from holdfast.embeddings.folders import model_folder
from holdfast.errors import ConfigError, ReleaseError, refuse

if TYPE_CHECKING:
    from holdfast.adapters import Adapter
    from holdfast.embeddings import EmbeddingSet
    from holdfast.models.release import Release

Carry = Callable[["EmbeddingSet"], "EmbeddingSet"]


def carry_all(arguments: Mapping[str, Any], folders: Mapping[Path, Path]) -> list[dict[str, Any]]:
    """Carry the stored embeddings over with every release or adapter, and return what was written.

    Everything is computed before the first file is written.

    Args:
        arguments: Of the command.
        folders: Where the outcome of every release or adapter goes.
    """
    from holdfast.embeddings import storage

    stored = model_folder(arguments["stored"])
    for folder in folders.values():
        refuse(
            folder.resolve() in (stored.resolve(), stored.resolve().parent),
            f"The outcome would take the place of those in '{stored}'.",
            "another folder as --out; nothing was written",
        )
    sides = open_sides(stored, name=arguments["stored_model"], columns=columns_of(arguments))
    sets = {"embeddings": sides.query} if sides.leave_one_out else {"query": sides.query, "gallery": sides.gallery}
    made_by = "release" if arguments["adapter"] is None else "adapter"
    carried = {
        (path, folder / f"{name}.safetensors"): carry(found)
        for path, folder in folders.items()
        for carry in [_carry(arguments, path, {found.fingerprint for found in sets.values()})]
        for name, found in sets.items()
    }
    return [entry_of(path, storage.save(found, file), found, made_by) for (path, file), found in carried.items()]


def _carry(arguments: Mapping[str, Any], path: Path, fingerprints: set[str]) -> Carry:
    """Return what carries the embeddings of a model over; refuse those of another one."""
    from holdfast.models.lifting import lift_embeddings
    from holdfast.models.release import load_release
    from holdfast.training.encode import embed_features

    if arguments["adapter"] is not None:
        return adapter_for(path, fingerprints, arguments["stored"]).apply
    release = load_release(path)
    if release.record.lifted_from is not None:
        return lambda embeddings: lift_embeddings(embeddings, release)
    _refuse_other(path, release, fingerprints, arguments["stored"])
    return lambda embeddings: embed_features(release, embeddings)


def _refuse_other(path: Path, release: Release, fingerprints: set[str], given: Path) -> None:
    from holdfast.models.feature_encoder import FeatureSpec

    spec = release.record.encoder
    if not isinstance(spec, FeatureSpec):
        raise ReleaseError(
            f"The release '{path}' takes {spec.input_words}, no embeddings.",
            expected="a head over a frozen model, a release that training wrote as old-lifted, or an adapter",
            to_do="embed the items with it: --data.",
        )
    others = sorted(fingerprints - {spec.frozen})
    if others:
        raise ConfigError(
            f"'{given}' has the fingerprint {others[0]}; '{path}' is a head over {spec.frozen}.",
            expected="embeddings of that very model",
            to_do=renamed(spec.frozen, others[0]) or "give these, or train another head: `holdfast adapt`.",
        )


def adapter_for(folder: Path, fingerprints: set[str], given: object) -> Adapter:
    """Open an adapter, and refuse one that does not map what was given.

    Raises:
        ConfigError: It maps another model.
    """
    from holdfast.adapters.storage import load_adapter

    adapter = load_adapter(folder)
    source = adapter.fitted.source
    others = sorted(fingerprints - {source})
    if others:
        raise ConfigError(
            f"'{given}' has the fingerprint {others[0]}; the adapter '{folder}' maps {source}.",
            expected="the very model whose embeddings the adapter maps",
            to_do=renamed(source, others[0])
            or "give that one, or fit another adapter: `holdfast adapt --old A --new B`; nothing was written.",
        )
    return adapter


def renamed(wanted: str, found: str) -> str | None:
    """Say how vectors without a model get the name they were given elsewhere; None if one of the two has a model.

    >>> renamed("declared:b", "declared:queries.npz")
    "if these are vectors of 'b', say so: --stored-model b; nothing was written."
    """
    prefix = "declared:"
    if not (wanted.startswith(prefix) and found.startswith(prefix)):
        return None
    name = wanted.removeprefix(prefix)
    return f"if these are vectors of '{name}', say so: --stored-model {shlex.quote(name)}; nothing was written."


def entry_of(path: Path, file: Path, embeddings: EmbeddingSet, made_by: str = "release") -> dict[str, Any]:
    """Return what results say of one file of embeddings, made by the release or adapter in ``path``."""
    from holdfast.evaluation.uncertainty import uncertainty_of

    uncertainty = uncertainty_of(embeddings)
    return {
        made_by: str(path),
        "file": str(file),
        "items": len(embeddings),
        "dim": embeddings.dim,
        "fingerprint": embeddings.fingerprint,
        "mean_uncertainty": None if uncertainty is None else float(uncertainty.mean()),
    }


def table_of(written: list[dict[str, Any]], made_by: str = "release") -> tuple[list[str], list[list[str]]]:
    """Return the files for people, with the mean uncertainty where a model knows it."""
    from holdfast.reports.formats import score

    columns = [made_by, "file", "items", "dimension"]
    rows = [[entry[made_by], entry["file"], f"{entry['items']:,}", str(entry["dim"])] for entry in written]
    if all(entry["mean_uncertainty"] is None for entry in written):
        return columns, rows
    means = [score(entry["mean_uncertainty"]) for entry in written]
    return [*columns, "mean uncertainty"], [[*row, mean] for row, mean in zip(rows, means, strict=True)]
