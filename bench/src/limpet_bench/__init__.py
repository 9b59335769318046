"""Compare compatibility methods over data sets, scenarios and seeds, on the public API of limpet."""

from limpet.support import register_loader


def _load_reports() -> None:
    import limpet_bench.reports.registration  # noqa: F401


register_loader(_load_reports)
