"""Helpers for report pages: charts for desktops and phones, and the templates beside this file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError
from limpet.reports import formats
from limpet.support.extras import installed, installing
from limpet.support.wording import INDEPENDENT, duration, listed, metric_name

if TYPE_CHECKING:
    from types import CodeType

    from altair import LayerChart
    from jinja2 import BytecodeCache
    from jinja2.bccache import Bucket
    from markupsafe import Markup

    from limpet.evaluation.results import Evaluation, ProtocolRecord

__all__ = ["PHONE", "Drawing", "drawn_both", "page_template", "pages_can_be_written", "plain", "write_page"]

FILE_NAME = "report.html"
PHONE = 350  # width of a chart on a phone, in pixels
EXTRA = installing("report")


def pages_can_be_written() -> bool:
    """Return whether the extra `report` is installed."""
    return installed("report")


class Drawing(NamedTuple):
    """One chart as SVG, for desktops and phones."""

    wide: str
    narrow: str


def drawn_both(
    draw: Callable[..., LayerChart | None],
    *values: Any,
    wide: Mapping[str, float] | None = None,
    narrow: Mapping[str, float] | None = None,
) -> Drawing:
    """Compile a chart of values for desktops and phones."""
    from limpet.reports.plots.rendering import svg

    charts = (draw(*values, **{"width": width, **(sizes or {})}) for width, sizes in ((640, wide), (PHONE, narrow)))
    return Drawing(*("" if chart is None else svg(chart) for chart in charts))


def write_page(page: str, folder: str | Path, name: str = FILE_NAME) -> Path:
    """Write a page, or another text, into a folder atomically, and return its path.

    Raises:
        DataError: The file cannot be written.
    """
    return write_atomically(Path(folder) / name, lambda part: part.write_text(page, encoding="utf-8", newline=""))


def page_template(name: str, *, package: str = "limpet") -> Any:
    """Open a template in the folder ``reports/templates`` of a package; it may extend and import those of limpet.

    Raises:
        ConfigError: Jinja2 is missing.
    """
    if not pages_can_be_written():
        raise ConfigError(
            "The report is written with Altair, vl-convert and Jinja2, which are not all installed.",
            expected="the extra 'report'",
            to_do=f"{EXTRA}; results.json holds all numbers without it.",
        )
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    from limpet.reports.words import MARKS, metric_note  # lazy: commands use other parts of this module

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one, "reports/templates") for one in dict.fromkeys((package, "limpet"))]),
        autoescape=True,
        undefined=StrictUndefined,
        bytecode_cache=_compiled(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (formats.score, formats.signed, formats.percent, formats.percent_of, formats.interval, formats.level,
             formats.probability, metric_name, duration, listed, plain, headings)  # fmt: skip
    environment.filters |= {one.__name__: one for one in shown}
    environment.globals |= {
        "independent": INDEPENDENT,
        "marks": MARKS,
        "metric_name": metric_name,
        "metric_note": metric_note,
    }
    return environment.get_template(name)


def headings(sections: str) -> list[tuple[str, Markup]]:
    """Return the id and text of every heading, for a table of contents."""
    from markupsafe import Markup

    found = re.findall(r'<h2 id="([\w-]+)">(.*?)</h2>', sections, re.DOTALL)
    return [(place, Markup(words)) for place, words in found]  # already escaped in the page


@cache
def _compiled() -> BytecodeCache:
    """Return a bytecode cache for templates: in memory, and beside Python's bytecode of this module."""
    from jinja2 import FileSystemBytecodeCache

    class Kept(FileSystemBytecodeCache):
        codes: ClassVar[dict[tuple[str, str], CodeType | None]] = {}

        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = self.codes.get((bucket.key, bucket.checksum))
            if bucket.code is None:
                with suppress(OSError):
                    super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: Bucket) -> None:
            if bucket.code is not None:
                self.codes[bucket.key, bucket.checksum] = bucket.code
            if not sys.dont_write_bytecode:
                with suppress(OSError):  # as Python does in a folder that others may write
                    Path(self.directory).mkdir(parents=True, exist_ok=True)
                    super().dump_bytecode(bucket)

    return Kept(str(Path(cache_from_source(__file__)).parent))


def plain(found: Any) -> str:
    """Write any value of a record on one line.

    >>> plain({"dim": 128, "images": 2_000, "mean": [0.5, -0.25], "frozen": False, "options": {}})
    'dim: 128, images: 2,000, mean: 0.5, −0.25, frozen: no, options: –'
    """
    if isinstance(found, Mapping | list | tuple) and not found:
        return formats.MISSING
    if isinstance(found, Mapping):
        return ", ".join(f"{key}: {plain(item)}" for key, item in found.items())
    if isinstance(found, list | tuple):
        return ", ".join(map(plain, found))
    if found is None or isinstance(found, bool):
        return {None: formats.MISSING, True: "yes", False: "no"}[found]
    return f"{found:,}".replace("-", "−") if isinstance(found, int | float) else str(found)


_SIZES = ("units", "queries", "gallery", "queries_counted")


def protocol_rows(record: Evaluation) -> list[tuple[str, str]]:
    """Return the protocol, fixed before measuring, and the items that its rules exclude: terms and their values."""
    gate = ("gate", f"{record.gate} on {metric_name(record.gate_metric)}")
    metrics = ("metrics", ", ".join(map(metric_name, record.protocol.metrics)))
    return rule_rows(record.protocol, [gate], [metrics])


def rule_rows(
    protocol: ProtocolRecord, first: Sequence[tuple[str, str]] = (), then: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, str]]:
    """Return the rows that describe a protocol and the computation of intervals."""
    from limpet.evaluation.protocols import PROTOCOLS  # lazy: commands use other parts of this module

    known = PROTOCOLS.get(protocol.name)
    name = ("protocol", f"{protocol.name}: {known.description}" if known else protocol.name)
    sizes = {key: getattr(protocol, key) for key in _SIZES}
    told = {**protocol.options, **{key: value for key, value in sizes.items() if value is not None}}
    drawn = protocol.bootstrap.model_dump(mode="json", exclude_none=True)
    return [
        name,
        *first,
        *((key.replace("_", " "), plain(value)) for key, value in told.items()),
        *then,
        *((words, plain(count)) for words, count in protocol.left_out.items()),
        *((f"bootstrap {key}", plain(value)) for key, value in drawn.items()),
    ]
