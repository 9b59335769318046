"""The part of ``holdfast embed`` that embeds texts with frozen models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import data_root
from holdfast.cli.console import console, counting_progress
from holdfast.errors import refuse

if TYPE_CHECKING:
    import torch

    from holdfast.data.text_set import TextSet
    from holdfast.embeddings import Role
    from holdfast.models.text_encoders import TextEncoder

ROLES: Mapping[str, Role] = {"train": "document", "query": "query", "gallery": "document"}
"""What the parts of a data set are to a model; what is fitted on ``train`` is used on a gallery's side."""

Parts = Mapping[str, tuple["TextSet", "Role"]]


def embed_all(arguments: Mapping[str, Any], folders: Mapping[str, Path], device: torch.device) -> list[dict[str, Any]]:
    """Embed every part of the texts with every model, and return what was written.

    All models are opened, and their prefixes settled, before anything is embedded.
    """
    from holdfast.models.text_encoders import open_text_encoder

    parts = _parts(arguments)
    options = {key: arguments[key] for key in ("query_prefix", "document_prefix", "max_length", "truncate_dim")}
    encoders = {}
    for model in folders:
        with console.status(f"opening {model}"):
            encoders[model] = open_text_encoder(model, device=device, **options)
        for _, role in parts.values():
            encoders[model].prefix(role)
    return [
        _embed_one(encoder, name, *part, folders[model], arguments["batch_size"])
        for model, encoder in encoders.items()
        for name, part in parts.items()
    ]


def _parts(arguments: Mapping[str, Any]) -> Parts:
    """Return the sets of texts to embed with their roles, by file name."""
    from holdfast.data.text_data import TextData
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


def _embed_one(
    encoder: TextEncoder, name: str, texts: TextSet, role: Role, folder: Path, batch_size: int
) -> dict[str, Any]:
    from holdfast.embeddings import storage
    from holdfast.training.encode_texts import embed_texts

    with counting_progress(f"{encoder.name} {name}", len(texts)) as on_batch:
        found = embed_texts(encoder, texts, role=role, batch_size=batch_size, on_batch=on_batch)
    return {
        "text_model": encoder.name,
        "file": str(storage.save(found, folder / f"{name}.safetensors")),
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
