"""Prometheus metrics of a service; all processes write to files of one folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from limpet.version import __version__

if TYPE_CHECKING:
    from limpet.galleries import Gallery
    from limpet.service.jobs import Jobs

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder, which must be set when prometheus_client is imported."""
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SECONDS = Histogram("limpet_request_seconds", "Seconds of a request, by phase", ["phase"], buckets=_BUCKETS)
STORE = Histogram("limpet_store_seconds", "Seconds of the store", ["op"], buckets=_BUCKETS)
REQUESTS = Counter("limpet_requests", "Requests", ["route", "code"])
REFUSED = Counter("limpet_refused", "Requests that were refused, by problem", ["reason"])
HITS = Counter("limpet_hits", "Hits", ["generation"])
OVERLAP = Histogram(
    "limpet_shadow_overlap_at_10",
    "Share of the first ten hits that both models find",
    buckets=[tenth / 10 for tenth in range(11)],
)
_ROWS = Gauge("limpet_generation_rows", "Items with a vector", ["generation"], multiprocess_mode="mostrecent")
_ITEMS = Gauge("limpet_items", "Items", multiprocess_mode="mostrecent")
_COMMIT = Gauge("limpet_commit", "Number of the last commit", multiprocess_mode="mostrecent")
_LEFT = Gauge("limpet_backfill_rows_left", "Items without a new vector", multiprocess_mode="mostrecent")
_SECONDS_LEFT = Gauge("limpet_backfill_seconds_left", "Of the running backfill", multiprocess_mode="mostrecent")
_LOCK = Gauge("limpet_writer_lock", "Whether this service writes", multiprocess_mode="mostrecent")
_INFO = Gauge("limpet_info", "The service", ["version"], multiprocess_mode="mostrecent")


@contextmanager
def timed(histogram: Histogram, label: str) -> Iterator[None]:
    """Measure the seconds of a block."""
    start = perf_counter()
    yield
    histogram.labels(label).observe(perf_counter() - start)


def observe(gallery: Gallery, jobs: Jobs, notice: str) -> None:
    """Record the status of the gallery and its upgrade."""
    pointer, state = gallery.now()
    for name in state.by_name:
        _ROWS.labels(name).set(pointer.covered([name]))
    _ITEMS.set(pointer.items)
    _COMMIT.set(pointer.sequence)
    _LEFT.set(pointer.items - pointer.covered([state.target]))
    filling = [job.progress for job in jobs.all.values() if job.status == "running" and job.step == "backfill"]
    told = filling[0] if filling else {}
    speed = told.get("embedded", 0) / told["seconds"] if told.get("seconds") else 0
    _SECONDS_LEFT.set((told["total"] - told["done"]) / speed if speed else 0)
    _LOCK.set(notice == "here")
    _INFO.labels(__version__).set(1)


def exposition(folder: Path) -> bytes:
    """Return the metrics of all processes in the Prometheus format."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    return generate_latest(registry)
