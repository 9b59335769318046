"""Where ``holdfast adapt`` gets the embeddings of both models: from files, or from texts and frozen models."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import data_root
from holdfast.cli.console import console, counting_progress
from holdfast.cli.evidence import columns_of, open_file, refuse_no_labels
from holdfast.devices import device_named
from holdfast.embeddings import EmbeddingSet
from holdfast.embeddings.file_columns import USUAL, FileColumns
from holdfast.embeddings.folders import model_folder
from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
    from holdfast.adapters import Direction
    from holdfast.data.text_set import TextSet
    from holdfast.embeddings import Role

PARTS = ("train", "embeddings", "gallery")
"""The files of a folder to fit on: what is not searched with or among, if that is there."""
OF_NEW_MODEL = ("query_prefix", "document_prefix", "max_length", "truncate_dim")


@dataclass(frozen=True)
class Pair:
    """Embeddings by both models, and what people call them.

    Args:
        old: By the old model.
        new: By the new one.
        old_name: What people call the old model.
        new_name: The same of the new one.
        data_name: The same of the items.
        frozen_model: How the new model is opened again; None where its vectors came from a file.
        columns: What files of vectors call them, their ids and labels.
    """

    old: EmbeddingSet
    new: EmbeddingSet
    old_name: str
    new_name: str
    data_name: str
    frozen_model: Mapping[str, Any] | None = None
    columns: FileColumns = USUAL

    def next_command(self, saved: Path, direction: Direction | None) -> str:
        """Return what brings new queries, or the old gallery, to the other side with what was saved.

        Args:
            saved: The folder of the adapter or head.
            direction: What an adapter maps; None for a head.
        """
        link = ["--release" if direction is None else "--adapter", str(saved), "--out", "DIR"]
        if direction == "old_to_new":
            return shlex.join(["holdfast", "embed", *_stored("OLD_GALLERY", self.old, self.columns), *link])
        if self.frozen_model is None:
            return shlex.join(["holdfast", "embed", *_stored("NEW_QUERIES", self.new, self.columns), *link])
        model = [] if direction is None else _text_model(self.frozen_model)
        return shlex.join(["holdfast", "embed", "--texts", "QUERIES", "--role", "query", *model, *link])


def open_pair(arguments: Mapping[str, Any]) -> Pair:
    """Open or make the embeddings of both models.

    Raises:
        ConfigError: A side is given twice or not at all, or options do not go together.
        DataError: A file is damaged, or texts cannot be used.
    """
    _check(arguments)
    texts, role, data_name = _texts(arguments)
    options = {key: arguments[key] for key in OF_NEW_MODEL}
    old = _side("old", "old_text_model", arguments, texts, role, {})
    new = _side("new", "text_model", arguments, texts, role, options)
    refuse_no_labels(arguments["label_column"], [old, new])
    model = arguments["text_model"]
    frozen = None if model is None else {"model": model, **options}
    names = _names(arguments, old, new)
    return Pair(old, new, *names, data_name=data_name, frozen_model=frozen, columns=columns_of(arguments))


def _side(
    side: str, model: str, arguments: Mapping[str, Any], texts: TextSet | None, role: Role, options: Mapping[str, Any]
) -> EmbeddingSet:
    if texts is None or arguments[side] is not None:
        name, columns = arguments[f"{side}_model"], columns_of(arguments)
        return open_part(arguments[side], cast=arguments["cast"], name=name, columns=columns)
    return _embedded(arguments[model], texts, role, arguments, options)


def _check(arguments: Mapping[str, Any]) -> None:
    """Refuse sides that are given twice or not at all, and options that are of no use."""
    for side, model in (("old", "old_text_model"), ("new", "text_model")):
        option = f"--{model.replace('_', '-')}"
        given = [name for name in (side, model) if arguments[name] is not None]
        said = f"Both --{side} and {option} were given." if given else f"Nothing was given for the {side} model."
        refuse(len(given) != 1, said, f"--{side} EMBEDDINGS; or {option} MODEL, with --texts")
    embeds = [key for key in ("old_text_model", "text_model") if arguments[key] is not None]
    if bool(embeds) != (arguments["texts"] is not None):
        raise ConfigError(
            f"--{embeds[0].replace('_', '-')} without --texts." if embeds else "--texts, but no model to embed them.",
            expected="texts together with a model: --texts DATA --text-model MODEL",
            to_do="give both, or --old and --new alone.",
        )
    for key in OF_NEW_MODEL:
        refuse(
            arguments[key] is not None and arguments["text_model"] is None,
            f"--{key.replace('_', '-')} without --text-model.",
            "it only where the new model embeds texts",
        )
    for side in ("old", "new"):
        refuse(
            arguments[f"{side}_model"] is not None and arguments[side] is None,
            f"--{side}-model without --{side}.",
            "it only with a file of vectors; a text model has an identity of its own",
        )


def _texts(arguments: Mapping[str, Any]) -> tuple[TextSet | None, Role, str]:
    """Return the texts to embed, what they are to the models, and what people call them."""
    if arguments["texts"] is None:
        return None, "both", _name(arguments["old"])
    from holdfast.data.text_set import TextData
    from holdfast.data.texts import load_texts

    with console.status(f"reading {arguments['texts']}"):
        data = load_texts(arguments["texts"], data_root(arguments["data_root"]), **arguments["data_options"])
    if not isinstance(data, TextData):
        return data, arguments["role"], _name(arguments["texts"])
    refuse(
        arguments["role"] != "both",
        f"--role {arguments['role']} was given with the data set '{data.name}'.",
        "no --role: what adapters and heads are fitted on are documents",
    )
    return data.train, "document", data.name


def _embedded(
    model: str, texts: TextSet, role: Role, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> EmbeddingSet:
    from holdfast.models.text_encoders import open_text_encoder
    from holdfast.training.encode import embed_texts

    with console.status(f"opening {model}"):
        encoder = open_text_encoder(model, device=device_named(arguments["device"]), **options)
    with counting_progress(encoder.name, len(texts)) as on_batch:
        return embed_texts(encoder, texts, role=role, cache=arguments["out"] / "cache", on_batch=on_batch)


def open_part(path: Path, *, cast: bool = False, name: str | None = None, columns: FileColumns = USUAL) -> EmbeddingSet:
    """Open the embeddings to fit on: a file, or of a folder the part that is neither query nor searched, if there.

    Raises:
        ConfigError: There is nothing of the kind.
    """
    path = model_folder(path)
    if not path.is_dir():
        return open_file(path, cast=cast, name=name, columns=columns)
    for part in PARTS:
        if (path / f"{part}.safetensors").exists():
            return open_file(path / f"{part}.safetensors", name=name)
    found = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
    raise ConfigError(
        f"The folder '{path}' holds {found}.",
        expected=" or ".join(f"{part}.safetensors" for part in PARTS),
        to_do="`holdfast embed` writes them.",
    )


def _names(arguments: Mapping[str, Any], old: EmbeddingSet, new: EmbeddingSet) -> tuple[str, str]:
    """Return what people call the two models: the shortest names that differ."""
    keys = (("old_model", "old", "old_text_model"), ("new_model", "new", "text_model"))
    given = [next(arguments[key] for key in side if arguments[key] is not None) for side in keys]
    short = [_name(one) for one in given]
    sized = [f"{name} ({side.dim} dimensions)" for name, side in zip(short, (old, new), strict=True)]
    for first, second in (short, map(str, given), sized):
        if first != second:
            return first, second
    return f"{short[0]} (old)", f"{short[1]} (new)"


def _name(given: Path | str) -> str:
    path = Path(given).resolve()
    return path.stem if path.is_file() else path.name


def _stored(what: str, embeddings: EmbeddingSet, columns: FileColumns) -> list[str]:
    """Write what is stored of a model, with its name and those of columns where files of vectors do not say them."""
    if not embeddings.declared:
        return ["--stored", what]
    named = [("vector", columns.vector), ("id", columns.id), ("label", columns.label)]
    options = [word for key, names in named if names for word in (f"--{key}-column", *names)]
    return ["--stored", what, "--stored-model", embeddings.fingerprint.partition(":")[2], *options]


def _text_model(frozen_model: Mapping[str, Any]) -> list[str]:
    """Write a text model with the options that it was opened with."""
    options = [(key, frozen_model[key]) for key in OF_NEW_MODEL if frozen_model[key] is not None]
    words = [word for key, value in options for word in (f"--{key.replace('_', '-')}", str(value))]
    return ["--text-model", str(frozen_model["model"]), *words]
