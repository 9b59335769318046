"""What an export says of itself: export.json for programs, README.md for people."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from limpet.export.exportable import ModelInput

_FORMAT_VERSION = 1
RECORD_FILE, CARD_FILE = "export.json", "README.md"


class StepRecord(BaseModel):
    """One of `limpet.support.steps`, in plain values.

    Args:
        step: Its name.
        arrays: Names of its arrays in the file of arrays, by parameter.
        numbers: Its other parameters.
        branches: Steps whose results are summed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: str
    arrays: dict[str, str]
    numbers: dict[str, float | None]
    branches: list[list[StepRecord]]


class ExportRecord(BaseModel):
    """The contents of ``export.json``, the same for every format.

    Serving code compares ``searches`` with the fingerprint of the gallery that it searches, and ``source`` with that
    of the model whose vectors it maps.

    Args:
        format_version: Version of this file.
        format: One of `limpet.export.formats`.
        name: What was exported, in words.
        source: Fingerprint of the model whose vectors go in; None where images do.
        fingerprint: Of the vectors that come out; rows of a gallery that holds them carry it.
        searches: Fingerprint of the model whose gallery these search; None for that of ``fingerprint`` alone.
        space: What they are points of.
        dim: Their dimension.
        searched_dim: So many first values of a vector search that gallery, which has so few; None for all of them.
        metric: What ranks them.
        input: What goes in.
        largest_difference: Largest difference from limpet's own vectors, of any number, relative to the length of a
            vector where that is above 1.
        compared: How many vectors were compared.
        steps: What is computed, for the format npz; empty for the others.
        digests: sha256 of the files, by their names.
        versions: Versions of limpet and of what the format was written with.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: int = Field(default=_FORMAT_VERSION, ge=1)
    format: str
    name: str
    source: str | None
    fingerprint: str
    searches: str | None
    searched_dim: int | None = None
    space: dict[str, Any]
    dim: int
    metric: str
    input: ModelInput
    largest_difference: float | None = None
    compared: int = 0
    steps: list[StepRecord] = []
    digests: dict[str, str] = {}
    versions: dict[str, str] = {}


def card(record: ExportRecord, usage: str, title: str, front: str = "") -> str:
    """Return the text of ``README.md``."""
    searches = record.searches or f"what it embedded itself, {record.fingerprint}"
    cut = "" if record.searched_dim is None else f", with the first {record.searched_dim} values of a vector alone"
    lines = [
        *([front, ""] if front else []),
        f"# {record.name[:1].upper()}{record.name[1:]}, as {title}",
        "",
        f"Written by limpet {record.versions['limpet']}; limpet is not needed to use it.",
        "",
        "| | |",
        "|---|---|",
        f"| reads | {record.input.words} |",
        f"| vectors of | `{record.source}` |" if record.source else "| reads images | no other model |",
        f"| makes vectors of | `{record.fingerprint}` |",
        f"| searches the gallery of | `{searches}`{cut} |",
        f"| dimension | {record.dim} |",
        f"| space | {_space_words(record)} |",
        f"| metric | {record.metric} |",
        f"| largest difference from limpet | {record.largest_difference:.1e}, over {record.compared} vectors |",
        "",
        "Vectors of another model than the one it reads, and galleries of another one than it searches, give results "
        "that look right and are not: compare the fingerprints above, which `export.json` holds for programs.",
        "",
        "```python",
        usage.strip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _space_words(record: ExportRecord) -> str:
    curvature = record.space.get("curvature")
    return str(record.space["name"]) + ("" if curvature is None else f", curvature K = {curvature:g}")
