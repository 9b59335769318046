"""The model card of a release, with front matter for the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from limpet.data.text_pairs import KINDS
from limpet.errors import ReleaseError
from limpet.geometry import Space
from limpet.models.release_record import ReleaseRecord
from limpet.support.hub import front_matter, on_the_hub


def write_card(record: ReleaseRecord, space: Space, folder: str | Path, table: str) -> Path:
    """Rewrite the card of a saved release, with a table of measured results in Markdown.

    Raises:
        ReleaseError: The card cannot be written; the release itself is unchanged.
    """
    path = Path(folder) / "README.md"
    try:
        path.write_text(model_card(record, space, table), encoding="utf-8")
    except OSError as error:
        raise ReleaseError(
            f"Could not write '{path}': {error}.", expected="a folder that can be written, and room in it"
        ) from error
    return path


def model_card(record: ReleaseRecord, space: Space, table: str = "") -> str:
    """Return a short description in Markdown, with a table of measured results if there is one."""
    head = [] if record.head is None else [f"- classifier: {record.head} {record.head_options or ''}".rstrip()]
    padded = "" if record.padded_from is None else f", of {record.padded_from} dimensions, as if it ended in zeros"
    batch, items = record.recipe.get("batch_size"), record.recipe.get("items_per_class")
    lines = [
        front_matter(
            {
                "library_name": "limpet",
                "pipeline_tag": "feature-extraction" if record.frozen_model else record.encoder.task,
                "base_model": on_the_hub((record.frozen_model or {}).get("model", "").removeprefix("st:")),
                "tags": ["embeddings", "retrieval", "backward-compatible", record.method],
            }
        ),
        f"# Embedding model `{record.fingerprint[:20]}`",
        "",
        f"- {record.encoder.name}, {record.encoder.dim} dimensions, on the {space}",
        f"- input: {record.encoder.input_words}",
        f"- method: {record.method} {record.method_options or ''}".rstrip(),
        *head,
        *([] if items is None else [f"- batches: {batch} images, {items} of each class"]),
        f"- searches the gallery of: {record.compatible_with or 'itself only'}{padded}",
        f"- data: {_data(record.data)}, seed {record.seed}",
        "",
        table or "Not evaluated yet: `limpet evaluate` measures it.",
        "",
    ]
    return "\n".join(lines)


def _data(data: Mapping[str, str]) -> str:
    told = [data.get("name", "not recorded"), *(f"{data[kind]} {kind}" for kind in KINDS.values() if kind in data)]
    return ", ".join([*told, *([data["loss"]] if "loss" in data else [])])
