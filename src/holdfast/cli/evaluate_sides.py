"""What ``holdfast evaluate`` opens: the embeddings of each model, and who answers what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.cli.evidence import Sides, columns_of, open_file, open_sides
from holdfast.errors import ConfigError, refuse
from holdfast.evaluation.protocols import PROTOCOLS, Protocol
from holdfast.options import bound, option_types

_FILES = ".npz, .npy and .parquet files"


def sides_of(arguments: Mapping[str, Any], model: str) -> Sides | None:
    """Open queries and gallery of the old, the new or the independent model; None where it was not given.

    Raises:
        ConfigError: It was given twice, or half; or a file is missing.
        DataError: A file is damaged or breaks a promise of `EmbeddingSet`.
    """
    whole, query, gallery = (arguments[name] for name in (model, f"{model}_query", f"{model}_gallery"))
    apart = [f"--{model}-{side}" for side, path in (("query", query), ("gallery", gallery)) if path is not None]
    refuse(
        whole is not None and bool(apart),
        f"--{model} and {' and '.join(apart)} were given.",
        f"--{model} PATH for what `holdfast embed` wrote, or --{model}-query FILE --{model}-gallery FILE",
    )
    options: dict[str, Any] = {
        **{key: arguments[key] for key in ("cast", "similarity")},
        "columns": columns_of(arguments),
    }
    name = arguments.get(f"{model}_model")
    if whole is not None:
        return open_sides(whole, name=name, **options)
    if not apart:
        return None
    if query is None or gallery is None:
        raise ConfigError(
            f"{apart[0]} was given without its other side.",
            expected=f"--{model}-query FILE and --{model}-gallery FILE",
            to_do="give both; the same file twice means that every item is a query among all others.",
        )
    if name is None and not _says_its_model(query, gallery):
        name = str(gallery)  # one model made both
    found = open_file(gallery, name=name if _is_plain(gallery) else None, **options)
    if query == gallery:
        return Sides(found, found)
    return Sides(open_file(query, name=name if _is_plain(query) else None, **options), found)


def _is_plain(path: Path) -> bool:
    """Return whether a file says nothing of the model that made it."""
    return path.suffix != ".safetensors"


def _says_its_model(*paths: Path) -> bool:
    return not any(_is_plain(path) for path in paths)


def needed_sides(arguments: Mapping[str, Any], model: str) -> Sides:
    """Open a model that cannot be left out."""
    found = sides_of(arguments, model)
    if found is None:
        raise ConfigError(
            f"No embeddings of the {model} model were given.",
            expected=f"--{model} PATH, or --{model}-query FILE and --{model}-gallery FILE",
        )
    return found


def protocol_of(arguments: Mapping[str, Any], leave_one_out: bool) -> Protocol:
    """Return the protocol that was asked for, with its options and its ground truth.

    Args:
        arguments: Of the command.
        leave_one_out: Whether queries and gallery are one set; a protocol that can leaves every query itself out.

    Raises:
        ConfigError: An unknown protocol or option, or a ground truth too many or too few.
        DataError: The ground truth cannot be used.
    """
    name, truth = arguments["protocol"], arguments["ground_truth"]
    if arguments["relevant"] is not None:
        refuse(
            name not in (None, "relevance") or truth is not None,
            "--relevant was given with another protocol or --ground-truth.",
            "--relevant PAIRS alone, which is --protocol relevance --ground-truth PAIRS",
        )
        name, truth = "relevance", arguments["relevant"]
    protocol = PROTOCOLS[name or "labels"]
    options = dict(arguments["protocol_options"])
    if arguments["no_relevant"] is not None:
        options.setdefault("no_relevant", arguments["no_relevant"])
    if leave_one_out and "leave_one_out" in option_types(protocol):
        options.setdefault("leave_one_out", True)
    return protocol.opened(truth, bound(protocol, options, f"protocol '{protocol.name}'"))
