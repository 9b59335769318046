"""Helpers for limpet and for packages that extend it: options, files, extras, wording; the names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.support.devices import DataOnDevice
    from limpet.support.disk import read_text, whole_folder
    from limpet.support.documents import parsed_json, read_json
    from limpet.support.extras import needing
    from limpet.support.hub import on_the_hub
    from limpet.support.options import bound, option_types
    from limpet.support.progress import Progress, Told
    from limpet.support.ranges import Count, Fraction, NonNegative, PositiveInt, Seed, Share, checked
    from limpet.support.reporting import Report, register_loader, register_report
    from limpet.support.source_code import Standing, combined, digest_of, put_beside, standing, version_of
    from limpet.support.wording import aligned, counted, duration, listed, metric_name

__all__ = [
    "Count", "DataOnDevice", "Fraction", "NonNegative", "PositiveInt", "Progress", "Report", "Seed", "Share",
    "Standing", "Told", "aligned", "bound", "checked", "combined", "counted", "digest_of", "duration", "listed",
    "metric_name", "needing", "on_the_hub", "option_types", "parsed_json", "put_beside", "read_json", "read_text",
    "register_loader", "register_report", "standing", "version_of", "whole_folder",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)
