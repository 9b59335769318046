"""``holdfast gallery doctor`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from holdfast.cli.console import console, print_json, rate_progress
from holdfast.cli.gallery_common import duration, opened
from holdfast.errors import StoreError, printable, without_secrets

if TYPE_CHECKING:
    from holdfast.galleries.doctor import Diagnosis, Finding

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def doctor(
    gallery: str,
    release: Path | None = None,
    data: str | None = None,
    texts: str | None = None,
    vectors: list[Path] = [],  # noqa: B006 - read only, shown as the default
    text_model: str | None = None,
    adapter: Path | None = None,
    model: str | None = None,
    sample: int = 200,
    batch_size: int | None = None,
    document_prefix: str | None = None,
    max_length: int | None = None,
    truncate_dim: int | None = None,
    device: str = "cpu",
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    cast: bool = False,
    seed: int = 0,
    repair: bool = False,
    json: bool = False,
) -> int:
    """Read everything again and say what is wrong, and what to do about it; without --repair nothing is changed.

    Counts, journal, vectors, links and searches are looked at. With a model and items, or vectors that are there, a
    sample is embedded again and compared. The exit code is 1 if something is wrong.

    Args:
        gallery: Where it is.
        release: Release of one of the gallery's models, with --data; or a head, with --texts or --vectors.
        data: The images by name or folder, whose ids are those of the gallery.
        texts: The texts by name, or a .csv, .parquet, .jsonl or .txt file.
        vectors: Embeddings by one of the models: files, or folders of `holdfast embed`.
        text_model: Frozen model that embeds the texts; a head names its own.
        adapter: Folder of an adapter that maps these vectors into the space of the gallery's model.
        model: What you call the model of .npz, .npy and .parquet files; or a generation, such as g2.
        sample: Items of every generation that are embedded again, and searched for.
        batch_size: Items that the model takes at a time; 512 images or 64 texts when left out.
        document_prefix: Text before every text; what the model asks for when left out.
        max_length: Tokens that count of every text.
        truncate_dim: Keep so many of the first values of every vector.
        device: Where to compute: cpu, cuda, cuda:1, mps.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        seed: Of the sample.
        repair: Where files are damaged, go back to the last commit that can be read whole first, and say what is lost.
        json: Print one JSON document with all findings.
    """
    from holdfast.cli.gallery_sources import source_of
    from holdfast.galleries.doctor import doctor as examined
    from holdfast.galleries.doctor import repair as repaired_first

    arguments = {**locals(), "workers": 0}
    try:
        with opened(gallery) as it:
            repaired = repaired_first(it) if repair else None
            source = source_of(arguments, it)
            with rate_progress("reading", None) as show:
                found = examined(it, source, sample=sample, seed=seed, on_step=_shown(show))
            if repaired is not None:
                console.print(str(repaired), style="bold")
    except StoreError as error:  # not even that can be read
        repaired = None
        found = _unreadable(gallery, error)
    _tell(found)
    if json:
        told = {"repaired": repaired.to_dict()} if repaired is not None else {}
        print_json({**found.to_dict(), **told, "url": without_secrets(found.url)})
    return 0 if found.healthy else 1


def _shown(show: Any) -> Any:
    return lambda event: show({"done": 0, "total": None, **event, "state": event["step"]})


def _unreadable(url: str, error: StoreError) -> Diagnosis:
    """Return the diagnosis of a gallery that cannot be opened."""
    from holdfast.galleries.doctor import Diagnosis, Finding

    to_do = "check the disk or the server; if a file is damaged, restore the gallery from a copy, or import an export."
    says = without_secrets(" ".join(error.given.split()))
    return Diagnosis(url, 0, 0, {}, 0, (Finding("unreadable", "error", says, to_do),), 0.0)


def _tell(found: Diagnosis) -> None:
    rows = ", ".join(f"{count:,} of {name}" for name, count in found.rows.items()) or "none"
    console.print(f"{without_secrets(found.url)}: {found.items:,} items; vectors read: {rows}; "
                  f"{duration(found.seconds)}.")  # fmt: skip
    for finding in found.findings:
        console.print(_written(finding))
    if found.healthy:
        console.print("The gallery is healthy.", style="bold")


def _written(finding: Finding) -> Text:
    next_step = f"\n  Next: {finding.to_do}" if finding.to_do else ""
    return Text.assemble((f"{finding.severity}: ", _COLOURS[finding.severity]), printable(finding.says), next_step)


def export(gallery: str, out: Path, generation: str | None = None, json: bool = False) -> int:
    """Write the vectors and metadata of one generation to a file that other programs read.

    Args:
        gallery: Where it is.
        out: File to write: .parquet (all metadata, written piece by piece), .safetensors (embeddings for `holdfast`) or
            .npz.
        generation: Its name or fingerprint; the active one when left out.
        json: Print one JSON document.
    """
    from holdfast.galleries.transfer import export as exported

    with opened(gallery) as it, rate_progress("exporting", None) as on_step:
        done = exported(it, generation, out, on_step=on_step)
    console.print(f"{done.rows:,} items of {done.generation} written to {done.path}.")
    for name, why in done.left_out.items():
        console.print(f"The column '{name}' was left out: {why}. A .parquet file holds it.")
    if json:
        print_json({"file": str(done.path), "generation": done.generation, "items": done.rows,
                    "left_out": dict(done.left_out)})  # fmt: skip
    return 0
