"""The results document: every number of a comparison as plain values, written to and read from results.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

import holdfast
from holdfast import documents
from holdfast.embeddings.storage import write_atomically
from holdfast.errors import ConfigError, DataError
from holdfast.evaluation.evidence import Evaluation
from holdfast.reports.results_schema import Results

SCHEMA_VERSION = 1
FILE_NAME = "results.json"

Document = dict[str, Any]

_PACKAGES = ("numpy", "torch", "safetensors")


def results_document(
    evaluations: Mapping[str, Evaluation],
    *,
    title: str,
    data: Mapping[str, Any],
    models: Mapping[str, Mapping[str, Any]],
) -> Document:
    """Gather evaluations of one or more new models against the same old one.

    Args:
        evaluations: One per new model, by the name that people shall read, such as its method.
        title: Headline of the report.
        data: What was searched: "name", "description" and "numbers" (a mapping of counts).
        models: What is known of each model by name ("old", and the names above): backbone, dim, method, options, seed.

    Returns:
        Plain values for JSON.

    Raises:
        ConfigError: No evaluation, or a part of ``data`` is missing.
        DataError: The evaluations are of different old models, data or protocols, and cannot be shown side by side.
    """
    _check_comparable(evaluations)
    document = {
        "schema_version": SCHEMA_VERSION,
        **versions(),
        "title": title,
        "data": dict(data),
        "models": {name: dict(record) for name, record in models.items()},
        "evaluations": {name: evaluation.to_dict() for name, evaluation in evaluations.items()},
    }
    return checked(document, "These results")


def versions() -> Document:
    """Return what wrote a document: "holdfast", and "versions" of what it stands on."""
    packages = {name: version(name) for name in _PACKAGES}
    return {"holdfast": holdfast.__version__, "versions": {"python": platform.python_version(), **packages}}


def _check_comparable(evaluations: Mapping[str, Evaluation]) -> None:
    for (first_name, first), (name, other) in pairwise(evaluations.items()):
        for what, a, b in (
            ("old model", first.fingerprints["old"], other.fingerprints["old"]),
            ("gate", (first.gate, first.gate_metric), (other.gate, other.gate_metric)),
            ("protocol", first.protocol, other.protocol),
        ):
            if a != b:
                raise DataError(
                    f"The evaluations of '{first_name}' and '{name}' have another {what}: {a} and {b}.",
                    expected="one old model, one gate and one protocol in a report",
                    to_do="evaluate both alike, or write one report for each.",
                )


def write_results(document: Mapping[str, Any], folder: str | Path) -> Path:
    """Write results.json into a folder, wholly or not at all, and return its path.

    Raises:
        DataError: It could not be written, or a value is no JSON.
    """
    try:
        text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise DataError(
            f"These results cannot be written as JSON: {error}.",
            expected="text, finite numbers, True, False, None, lists and mappings",
            to_do="convert the values of `data` and `models`.",
        ) from error
    return write_atomically(Path(folder) / FILE_NAME, lambda part: part.write_text(text, encoding="utf-8"))


def read_results(path: str | Path) -> Document:
    """Read a results.json, or that of a folder, and check that everything a report needs is there.

    Raises:
        ConfigError: The file is missing, no JSON, of another schema version, or lacks a key.
    """
    return checked(*read_json(path))


def read_json(path: str | Path) -> tuple[Any, str]:
    """Return what a results.json holds, or that of a folder, and what to call it in a message.

    Raises:
        ConfigError: The file is missing, or no JSON.
    """
    path = Path(path)
    file = path / FILE_NAME if path.is_dir() else path
    try:
        document = documents.read_json(file)
    except OSError as error:
        raise ConfigError(f"Cannot read '{file}': {error.strerror}.", expected="a results.json") from error
    except ValueError as error:
        raise ConfigError(f"'{file}' is no valid JSON: {error}.", expected="a results.json") from error
    return document, f"'{file}'"


def checked(document: Any, where: str) -> Document:
    """Return a document that is complete and of this schema version.

    Args:
        document: What was read or built.
        where: What to call it in a message.

    Raises:
        ConfigError: It is not.
    """
    found = check_version(document, SCHEMA_VERSION, where)
    check_kind(found, None, where)
    check_keys(found, Results, where, "the keys that results_document writes")
    if not found["evaluations"]:
        raise ConfigError(f"{where}: no evaluation.", expected="at least one new model")
    return found


def check_version(document: Any, version: int, where: str, *, again: str = "evaluate") -> Document:
    """Return a document of this schema version.

    Args:
        document: What was read or built.
        version: The schema version.
        where: What to call it in a message.
        again: What to do again where it is another.

    Raises:
        ConfigError: It is of another version, or no document.
    """
    if isinstance(document, dict) and document.get("schema_version") == version:
        return document
    found = document.get("schema_version") if isinstance(document, dict) else type(document).__name__
    raise ConfigError(
        f"{where}: schema version {found}.",
        expected=f"schema version {version}",
        to_do=f"{again} again with this version of holdfast, or read the file with the version that wrote it.",
    )


_WRITERS = {  # kind -> what writes such a document; evaluations have no kind
    None: "an evaluation of an upgrade, “holdfast evaluate”",
    "sessions": "“holdfast sessions”",
    "adapt": "“holdfast adapt”",
    "chain": "“holdfast evaluate --chain”",
    "combination": "“holdfast evaluate --combine”",
    "leaderboard": "“holdfast bench”",
}


def check_kind(document: Document, kind: str | None, where: str) -> None:
    """Refuse results of another kind.

    Args:
        document: What was read or built.
        kind: The kind it has to be; None for evaluations, which have none.
        where: What to call it in a message.

    Raises:
        ConfigError: It is of another.
    """
    if document.get("kind") != kind:
        raise ConfigError(
            f"{where}: results of the kind '{document.get('kind', 'evaluation')}'.",
            expected=f"results of {_WRITERS[kind]}",
            to_do="check which file or folder was given.",
        )


def check_keys(
    document: Document, schema: type[BaseModel], where: str, expected: str, *, again: str = "evaluate"
) -> None:
    """Refuse a document that lacks something, or holds something else.

    Args:
        document: What was read or built.
        schema: What it has to hold.
        where: What to call it in a message.
        expected: What would have been right, in words.
        again: What to do again where it is not.

    Raises:
        ConfigError: With the place of the first of them.
    """
    try:
        schema.model_validate_json(json.dumps(document), strict=True)  # of JSON, lists are tuples, and texts no numbers
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"])
        raise ConfigError(
            f"{where}: {first['msg']} at '{place}' ({error.error_count()} in all).",
            expected=expected,
            to_do=f"{again} again; a report is never made of a part of the numbers.",
        ) from None
