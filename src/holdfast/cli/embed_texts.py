"""The part of ``holdfast embed`` that embeds texts with frozen models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import data_root
from holdfast.cli.console import console, counting_progress
from holdfast.errors import ConfigError, ReleaseError, refuse

if TYPE_CHECKING:
    import torch

    from holdfast.data.text_set import TextSet
    from holdfast.embeddings import EmbeddingSet, Role
    from holdfast.models.release import Release
    from holdfast.models.text_encoders import TextEncoder

ROLES: Mapping[str, Role] = {"train": "document", "query": "query", "gallery": "document"}
"""What the parts of a data set are to a model; what is fitted on ``train`` is used on a gallery's side."""

OPTIONS = ("query_prefix", "document_prefix", "max_length", "truncate_dim")
"""Of a text model, beside its name."""

Parts = Mapping[str, tuple["TextSet", "Role"]]


@dataclass(frozen=True)
class Job:
    """One model to embed texts with.

    Args:
        encoder: The frozen model of text.
        folder: Where the files go.
        carry: From its embeddings to what is written: those of a head over it, or of an adapter that maps it.
        made_by: "release" or "adapter", with its folder; empty without.
    """

    encoder: TextEncoder
    folder: Path
    carry: Callable[[EmbeddingSet], EmbeddingSet]
    made_by: Mapping[str, str] = field(default_factory=dict)


def embed_all(arguments: Mapping[str, Any], folders: Mapping[Any, Path], device: torch.device) -> list[dict[str, Any]]:
    """Embed every part of the texts with every model, and return what was written.

    All models are opened, and their prefixes settled, before anything is embedded.

    Args:
        arguments: Of the command.
        folders: Where the embeddings of every text model go, or of every head over one.
        device: Where to compute.
    """
    parts = _parts(arguments)
    jobs = [_job(arguments, model, folder, device) for model, folder in folders.items()]
    for job in jobs:
        for _, role in parts.values():
            job.encoder.prefix(role)
    return [_embed_one(job, name, *part, arguments["batch_size"]) for job in jobs for name, part in parts.items()]


def _job(arguments: Mapping[str, Any], model: Any, folder: Path, device: torch.device) -> Job:
    """Open a text model, alone or with the adapter or head that reads it."""
    from holdfast.cli.embed_stored import adapter_for

    if arguments["release"]:
        return _job_of_head(arguments, model, folder, device)
    encoder = open_text_model(model, arguments, device)
    if arguments["adapter"] is None:
        return Job(encoder, folder, lambda embeddings: embeddings)
    adapter = adapter_for(arguments["adapter"], {encoder.fingerprint}, model)
    return Job(encoder, folder, adapter.apply, {"adapter": str(arguments["adapter"])})


def _job_of_head(arguments: Mapping[str, Any], path: Path, folder: Path, device: torch.device) -> Job:
    from holdfast.training.encode import embed_features

    release, encoder = open_head(path, arguments, device)
    return Job(encoder, folder, lambda embeddings: embed_features(release, embeddings), {"release": str(path)})


def open_head(path: Path, arguments: Mapping[str, Any], device: torch.device) -> tuple[Release, TextEncoder]:
    """Open a head and the text model it was trained over: the one on record, unless another place is given.

    Args:
        path: Folder of the head.
        arguments: "text_model" (a list) and `OPTIONS`, as far as they were given.
        device: Where to compute.

    Raises:
        ReleaseError: It is no head over a text model, that model cannot be opened, or it is another one.
    """
    from holdfast.models.feature_encoder import FeatureSpec
    from holdfast.models.release import load_release

    release = load_release(path)
    recorded, spec = dict(release.record.frozen_model or {}), release.record.encoder
    model = arguments["text_model"][0] if arguments["text_model"] else recorded.get("model")
    if not isinstance(spec, FeatureSpec):
        raise ReleaseError(
            f"The release '{path}' takes {spec.input_words}, no texts.",
            expected="a head over a text model, as `holdfast adapt --text-model MODEL` trains it",
            to_do="with this release give images: --data DATA, or --image FILE to search with.",
        )
    if model is None:
        raise ReleaseError(
            f"The release '{path}' does not say over which text model it is a head.",
            expected="one that `holdfast adapt --text-model MODEL` trained",
            to_do="pass --text-model MODEL; or embed the texts with that model, and give these embeddings instead.",
        )
    given = {key: arguments[key] for key in OPTIONS if arguments[key] is not None}
    encoder = _opened_for_head(path, model, {**dict.fromkeys(OPTIONS), **recorded, **given}, device)
    if encoder.fingerprint != spec.frozen:
        raise ReleaseError(
            f"The text model '{model}' has the fingerprint {encoder.fingerprint}; '{path}' is a head over "
            f"{spec.frozen}.",
            expected="the very model that the head was trained over, with the same --max-length and --truncate-dim",
            to_do="pass --text-model with the folder of that model; nothing was written.",
        )
    return release, encoder


def _opened_for_head(path: Path, model: str, options: Mapping[str, Any], device: torch.device) -> TextEncoder:
    try:
        return open_text_model(model, options, device)
    except ConfigError as error:
        raise ReleaseError(
            f"The text model of the head '{path}' cannot be opened: {error.given}",
            expected=error.expected,
            to_do="pass --text-model with the place where that model is now; nothing was written.",
        ) from error


def open_text_model(model: str, options: Mapping[str, Any], device: torch.device) -> TextEncoder:
    """Open a frozen text model with what was given of `OPTIONS`."""
    from holdfast.models.text_encoders import open_text_encoder

    with console.status(f"opening {model}"):
        return open_text_encoder(model, device=device, **{key: options[key] for key in OPTIONS})


def _parts(arguments: Mapping[str, Any]) -> Parts:
    """Return the sets of texts to embed with their roles, by file name."""
    from holdfast.data.text_set import TextData
    from holdfast.data.texts import load_texts

    with console.status(f"reading {arguments['texts']}"):
        data = load_texts(arguments["texts"], data_root(arguments["data_root"]), **arguments["data_options"])
    if not isinstance(data, TextData):
        return {"embeddings": (data, arguments["role"])}
    refuse(
        arguments["role"] != "both",
        f"--role {arguments['role']} was given with the data set '{data.name}'.",
        "no --role: its queries are queries, and all others are documents",
    )
    return {name: (texts, ROLES[name]) for name, texts in data.parts().items()}


def _embed_one(job: Job, name: str, texts: TextSet, role: Role, batch_size: int) -> dict[str, Any]:
    from holdfast.embeddings import storage
    from holdfast.training.encode import embed_texts

    with counting_progress(f"{job.encoder.name} {name}", len(texts)) as on_batch:
        found = job.carry(embed_texts(job.encoder, texts, role=role, batch_size=batch_size, on_batch=on_batch))
    return {
        "text_model": job.encoder.name,
        **job.made_by,
        "file": str(storage.save(found, job.folder / f"{name}.safetensors")),
        "items": len(found),
        "dim": found.dim,
        "fingerprint": found.fingerprint,
        "role": found.role,
        "prefix": found.prefix,
    }


def table_of(written: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the files for people; the prefixes only where there are any."""
    columns = ["text model", "file", "items", "dimension", "role"]
    rows = [[*(str(entry[key]) for key in ("text_model", "file")), f"{entry['items']:,}", str(entry["dim"]),
             entry["role"]] for entry in written]  # fmt: skip
    if not any(entry["prefix"] for entry in written):
        return columns, rows
    return [*columns, "prefix"], [[*row, repr(entry["prefix"])] for row, entry in zip(rows, written, strict=True)]
