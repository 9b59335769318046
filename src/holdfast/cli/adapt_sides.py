"""Where ``holdfast adapt`` gets the embeddings of both models: from files, or from texts and frozen models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import data_root, device_named
from holdfast.cli.console import console, counting_progress
from holdfast.cli.evidence import open_file
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
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
        given: Where the embeddings of either side came from, for the command to type next.
        frozen_model: How the new model is opened again; None where its vectors came from a file.
    """

    old: EmbeddingSet
    new: EmbeddingSet
    old_name: str
    new_name: str
    data_name: str
    given: Mapping[str, Any]
    frozen_model: Mapping[str, Any] | None = None

    def next_command(self, saved: Path) -> str:
        """Return what brings new queries into the old gallery's space with what was saved."""
        link = f"--adapter {saved}" if saved.name == "adapter" else f"--release {saved}"
        if self.frozen_model is None:
            return f"holdfast embed --stored NEW_QUERIES {link} --out DIR"
        model = f"--text-model {self.frozen_model['model']} " if saved.name == "adapter" else ""
        return f"holdfast embed --texts QUERIES --role query {model}{link} --out DIR"


def open_pair(arguments: Mapping[str, Any]) -> Pair:
    """Open or make the embeddings of both models.

    Raises:
        ConfigError: A side is given twice or not at all, or options do not go together.
        DataError: A file is damaged, or texts cannot be used.
    """
    _check(arguments)
    texts, role, data_name = _texts(arguments)
    sides: dict[str, EmbeddingSet] = {}
    for side, model in (("old", "old_text_model"), ("new", "text_model")):
        if arguments[side] is not None:
            sides[side] = open_part(arguments[side], cast=arguments["cast"], name=arguments[f"{side}_model"])
        else:
            options = {key: arguments[key] for key in OF_NEW_MODEL} if side == "new" else {}
            assert texts is not None
            sides[side] = _embedded(arguments[model], texts, role, arguments, options)
    frozen = None
    if arguments["text_model"] is not None:
        frozen = {"model": arguments["text_model"], **{key: arguments[key] for key in OF_NEW_MODEL}}
    return Pair(
        **sides,
        old_name=_name(arguments["old"], arguments["old_text_model"]),
        new_name=_name(arguments["new"], arguments["text_model"]),
        data_name=data_name,
        given={key: arguments[key] for key in ("old", "new")},
        frozen_model=frozen,
    )


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
        return None, "both", arguments["old"].stem if arguments["old"].is_file() else arguments["old"].name
    from holdfast.data.text_data import TextData
    from holdfast.data.texts import load_texts

    with console.status(f"reading {arguments['texts']}"):
        data = load_texts(arguments["texts"], data_root(arguments["data_root"]), **arguments["data_options"])
    if not isinstance(data, TextData):
        return data, arguments["role"], Path(arguments["texts"]).name
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
    from holdfast.training.encode_texts import embed_texts

    with console.status(f"opening {model}"):
        encoder = open_text_encoder(model, device=device_named(arguments["device"]), **options)
    with counting_progress(encoder.name, len(texts)) as on_batch:
        return embed_texts(encoder, texts, role=role, cache=arguments["out"] / "cache", on_batch=on_batch)


def open_part(path: Path, *, cast: bool = False, name: str | None = None) -> EmbeddingSet:
    """Open the embeddings to fit on: a file, or of a folder the part that is neither query nor searched, if there.

    Raises:
        ConfigError: There is nothing of the kind.
    """
    if not path.is_dir():
        return open_file(path, cast=cast, name=name)
    for part in PARTS:
        if (path / f"{part}.safetensors").exists():
            return open_file(path / f"{part}.safetensors", name=name)
    found = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
    raise ConfigError(
        f"The folder '{path}' holds {found}.",
        expected=" or ".join(f"{part}.safetensors" for part in PARTS),
        to_do="`holdfast embed` writes them.",
    )


def _name(path: Path | None, model: str | None) -> str:
    if path is None:
        return Path(str(model)).name
    return path.name if path.is_dir() else path.stem
