"""``limpet gallery doctor`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from limpet.cli.console import console, print_json, progress_bar
from limpet.cli.gallery.options import GalleryUrl
from limpet.cli.gallery.sources import NewVectors
from limpet.cli.options import DataSets
from limpet.errors import StoreError, printable, without_secrets
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.galleries.doctor import Diagnosis

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def doctor(
    gallery: GalleryUrl,
    *,
    source: NewVectors = NewVectors(),
    sets: DataSets = DataSets(),
    repair: bool = False,
) -> int:
    """Read everything again and report what is wrong and what to do. Without --repair nothing is changed.

    This checks counts, journal, vectors, links and searches. With a model and items, or with stored vectors, a sample
    is compared with new embeddings. The exit code is 1 if something is wrong.

    Args:
        repair: If files are damaged, first go back to the last commit that is readable as a whole, and report what is
            lost.

    Examples:
        limpet gallery doctor live
        limpet gallery doctor live --model st:models/v2 --texts requests.csv
    """
    from limpet.galleries.doctor import doctor as examined
    from limpet.galleries.doctor import repair as repaired_first

    try:
        with gallery.opened() as it:
            repaired = repaired_first(it) if repair else None
            vectors = source.opened(it, sets)
            with progress_bar("reading") as bar:
                found = examined(it, vectors, progress=bar)
            if repaired is not None:
                console.print(str(repaired), style="bold")
    except StoreError as error:  # not even that can be read
        repaired = None
        found = _unreadable(gallery, error)
    _tell(found)
    told = {"repaired": repaired.to_dict()} if repaired is not None else {}
    print_json({**found.to_dict(), **told, "url": without_secrets(found.url)})
    return 0 if found.healthy else 1


def _unreadable(url: str, error: StoreError) -> Diagnosis:
    from limpet.galleries.doctor import Diagnosis, Finding

    to_do = "check the disk or the server; if a file is damaged, restore the gallery from a copy, or import an export."
    says = without_secrets(" ".join(error.given.split()))
    return Diagnosis(url, 0, 0, {}, 0, (Finding("unreadable", "error", says, to_do),), 0.0)


def _tell(found: Diagnosis) -> None:
    rows = ", ".join(f"{count:,} of {name}" for name, count in found.rows.items()) or "none"
    console.print(f"{without_secrets(found.url)}: {found.items:,} items; vectors read: {rows}; "
                  f"{duration(found.seconds)}.")  # fmt: skip
    for finding in found.findings:
        following = f"\n  Next: {finding.to_do}" if finding.to_do else ""
        severity = (f"{finding.severity}: ", _COLOURS[finding.severity])
        console.print(Text.assemble(severity, printable(finding.says), following))
    if found.healthy:
        console.print("The gallery is healthy.", style="bold")


def export(gallery: GalleryUrl, *, out: Path, generation: str | None = None) -> int:
    """Write the vectors and metadata of one generation to a file that other programs read.

    Args:
        out: File to write: .parquet (all metadata, written piece by piece), .safetensors (embeddings for `limpet`) or
            .npz.
        generation: Its name or fingerprint; the active one when left out.

    Examples:
        limpet gallery export live --out vectors.parquet
    """
    from limpet.galleries.transfer import export as exported

    with gallery.opened() as it, progress_bar("exporting") as bar:
        done = exported(it, generation, out, progress=bar)
    console.print(f"{done.rows:,} items of {done.generation} written to {done.path}.")
    for name, why in done.left_out.items():
        console.print(f"The column '{name}' was left out: {why}. A .parquet file holds it.")
    print_json({"file": str(done.path), "generation": done.generation, "items": done.rows,
                   "left_out": dict(done.left_out)})  # fmt: skip
    return 0
