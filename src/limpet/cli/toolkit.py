"""What commands of other packages are made of; the names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.support.lazy import on_first_use

if TYPE_CHECKING:
    from limpet.cli.choices import options_by_method
    from limpet.cli.console import (
        EVERY,
        as_json,
        at_work,
        console,
        in_words,
        print_json,
        print_table,
        repeated,
        tell_kept,
        training_progress,
    )
    from limpet.cli.models import Api
    from limpet.cli.options import DataSets, Network, StartingModel
    from limpet.cli.pages import Report, check_report, page_line, page_written
    from limpet.cli.parameters import Named, Options
    from limpet.cli.program import Program
    from limpet.cli.settings import Settings, Typed, data_root
    from limpet.cli.training import Training

__all__ = [
    "EVERY", "Api", "DataSets", "Named", "Network", "Options", "Program", "Report", "Settings", "StartingModel",
    "Training", "Typed", "as_json", "at_work", "check_report", "console", "data_root", "in_words",
    "options_by_method", "page_line", "page_written", "print_json", "print_table", "repeated",
    "tell_kept", "training_progress",
]  # fmt: skip

__getattr__, __dir__ = on_first_use(__name__)
