"""``limpet doctor``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cyclopts import Parameter
from rich.text import Text

from limpet.cli.console import console, long_texts, print_json, progress_bar
from limpet.cli.gallery.options import GalleryUrl, own_index
from limpet.cli.gallery.sources import NewVectors
from limpet.cli.options import DataSets
from limpet.cli.parameters import of_one_word
from limpet.errors import StoreError, printable, refuse, without_secrets
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.engines.address import Address
    from limpet.galleries.doctor import Diagnosis

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


@Parameter(
    converter=of_one_word,
    accepts_keys=False,
    n_tokens=1,
    help="A gallery: FOLDER, memory:FOLDER, sharded:FILE or postgresql://HOST/DATABASE. Or your own index: "
    "postgresql://HOST/DATABASE?table=NAME, qdrant://HOST/COLLECTION, milvus:// or chroma:// likewise, "
    "lance:FOLDER#TABLE, parquet:FILE or faiss:FILE.",
)
class IndexUrl(GalleryUrl):
    """Where an index is, as a person gave it; may hold a password."""


@dataclass(frozen=True)
class Maker(NewVectors):
    """The model that made the vectors.

    Args:
        model: Model that made the vectors: SCHEME:PLACE, such as release:FOLDER or st:NAME; or vectors that it made: a
            file, a folder of `limpet embed`, or a URL. Your own index contains the texts; a gallery needs --texts or
            --data.
        data: Images by name or folder, or the URL of a table or collection with a column of paths.
        texts: Texts by name; a .csv, .parquet, .jsonl or .txt file; or the URL of a table or collection.
    """


def doctor(
    url: IndexUrl,
    *,
    source: Maker = Maker(),
    sets: DataSets = DataSets(),
    sample: int = 1000,
    repair: bool = False,
) -> int:
    """Diagnose problems of an index, and suggest what to do. Without --repair nothing is changed.

    A gallery is read completely: counts, journal, vectors, links and searches. Of your own table, collection or file, a
    sample is read. It shows mixed models, stale vectors, odd lengths, blank and truncated texts, duplicates, an
    unsuitable metric, and an index that loses hits. With a model, a sample is embedded again. The exit code is 1 if
    something is wrong.

    Args:
        sample: Your own index only: number of rows to read and, with --model, to embed again.
        repair: Gallery only: if files are damaged, first go back to the last commit that is completely readable, and
            report what is lost.

    Examples:
        limpet doctor "postgresql://shop@db/shop?table=items&text=title" --model st:MODEL
        limpet doctor live --model st:models/v2 --texts requests.csv
    """
    address = own_index(url)
    if address is None:
        return _of_gallery(url, source, sets, repair)
    refuse(repair, "--repair with an index of your own.", "it only with a gallery: nothing of yours is changed")
    return _of_own_index(url, address, source, sets, sample)


def _of_own_index(url: str, address: Address, source: NewVectors, sets: DataSets, sample: int) -> int:
    from limpet.engines.sources import open_source
    from limpet.galleries.doctor import Finding
    from limpet.galleries.doctor.own_index import examine

    if source.model is not None and source.model.vectors is None and source.texts is None and source.data is None:
        source = replace(source, texts=url)  # the items are there
    with console.status("opening"):
        rows = open_source(address)
    vectors = source.source(sets, (), lambda: None)
    with progress_bar("reading") as bar:
        found = examine(rows, vectors, sample=sample, progress=bar)
    cut = [
        Finding("cut texts", "warning", one.sentence, "a model that reads more, or shorter texts.", count=one.long)
        for one in long_texts()
    ]
    found = replace(found, findings=(*found.findings, *cut))
    completed = [replace(one, to_do=one.to_do.replace("plan URL", f"plan {shlex.quote(without_secrets(url))}"))
                 for one in found.findings]  # fmt: skip
    return _tell(replace(found, findings=tuple(completed)), "index")


def _of_gallery(url: IndexUrl, source: NewVectors, sets: DataSets, repair: bool) -> int:
    from limpet.galleries.doctor import doctor as examined
    from limpet.galleries.doctor import repair as repaired_first

    try:
        with url.opened() as it:
            repaired = repaired_first(it) if repair else None
            vectors = source.opened(it, sets)
            with progress_bar("reading") as bar:
                found = examined(it, vectors, progress=bar)
            if repaired is not None:
                console.print(str(repaired), style="bold")
    except StoreError as error:  # not even that can be read
        repaired = None
        found = _unreadable(url, error)
    return _tell(found, "gallery", **({"repaired": repaired.to_dict()} if repaired is not None else {}))


def _unreadable(url: str, error: StoreError) -> Diagnosis:
    from limpet.galleries.doctor import Diagnosis, Finding

    to_do = "check the disk or the server; if a file is damaged, restore the gallery from a copy, or import an export."
    says = without_secrets(" ".join(error.given.split()))
    return Diagnosis(url, 0, 0, {}, 0, (Finding("unreadable", "error", says, to_do),), 0.0)


def _tell(found: Diagnosis, what: str, **more: object) -> int:
    """Print what was found, and return the exit code."""
    rows = ", ".join(f"{count:,} of {name}" for name, count in found.rows.items()) or "none"
    console.print(f"{without_secrets(found.url)}: {found.items:,} items; vectors read: {rows}; "
                  f"{duration(found.seconds)}.")  # fmt: skip
    for finding in found.findings:
        following = f"\n  Next: {finding.to_do}" if finding.to_do else ""
        severity = (f"{finding.severity}: ", _COLOURS[finding.severity])
        console.print(Text.assemble(severity, printable(finding.says), following))
    if found.healthy:
        console.print(f"The {what} is healthy.", style="bold")
    print_json({**found.to_dict(), **more, "url": without_secrets(found.url)})
    return 0 if found.healthy else 1
