"""Diagnosis of a gallery: everything is read again and compared, nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

from limpet.errors import LimpetError, refuse
from limpet.galleries.doctor.findings import Diagnosis, Finding, Severity
from limpet.galleries.doctor.records import (
    ItemCount,
    count_findings,
    coverage_findings,
    damage_findings,
    declared_findings,
    journal_findings,
    link_findings,
    upkeep_findings,
)
from limpet.galleries.doctor.repair import Repaired, repair
from limpet.galleries.doctor.vectors import (
    copied_vectors,
    embedded_again,
    mapped_again,
    remainder_findings,
    repeated_vectors,
    wrong_vectors,
)
from limpet.galleries.state import Generation
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import PositiveInt, Seed, checked
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.galleries.gallery import Gallery

__all__ = ["Diagnosis", "Finding", "Repaired", "Severity", "doctor", "repair"]


@showing("doctor")
@checked
def doctor(
    gallery: Gallery,
    source: VectorSource | Sequence[VectorSource] | None = None,
    *,
    sample: PositiveInt = 200,
    seed: Seed = 0,
    progress: Progress[Told] = None,
) -> Diagnosis:
    """Read all of a gallery, and report problems and what to do about them; nothing is changed.

    Vectors are read in batches. Memory holds eight bytes per row. Searches and writes continue meanwhile: only a part
    that seems wrong while another process was writing is checked again under the writer's lock.

    Args:
        gallery: Gallery to check.
        source: Models of its generations, or files of their vectors, to embed a sample again and compare.
        sample: Number of items per generation that are embedded again, and searched for.
        seed: Random seed of the sample.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "step", and with "done" and
            "total" rows while vectors are read; see `Told`.

    Raises:
        ConfigError: ``sample`` is out of range, or a source is of a model that the gallery does not know.
    """
    sources = [] if source is None else list(source) if isinstance(source, Sequence) else [source]
    started = time.monotonic()
    state = gallery.state
    for one in sources:
        refuse(state.of(one.fingerprint) is None, f"A source of {one.fingerprint}", "a model of this gallery")
    examination = _Examination(gallery, sources, sample, seed, progress)
    examination.of_records()
    for generation in state.generations:
        examination.of_vectors(generation)
    examination.of_searches()
    pointer = gallery.store.pointer()
    severities = get_args(Severity)
    return Diagnosis(
        url=gallery.store.url,
        sequence=pointer.sequence,
        items=pointer.items,
        rows=examination.rows,
        sampled=sample,
        findings=tuple(sorted(examination.findings, key=lambda one: severities.index(one.severity))),
        seconds=time.monotonic() - started,
    )


class _Examination:
    """The findings so far."""

    def __init__(
        self, gallery: Gallery, sources: Sequence[VectorSource], size: int, seed: int, progress: Progress[Told]
    ) -> None:
        self.gallery, self.store, self.sources, self.progress = gallery, gallery.store, sources, progress
        self.size, self.seed = size, seed
        self.findings: list[Finding] = []
        self.rows: dict[str, int] = {}
        self.samples: dict[str, list[str]] = {}

    def of_records(self) -> None:
        store, gallery = self.store, self.gallery
        self._part("counting the items", self._items)
        self._part("following the journal", lambda: journal_findings(store, store.pointer()))
        self._part("checking links", lambda: link_findings(store, gallery.state))
        self._part("reading every file", lambda: damage_findings(store))
        self._part("checking indexes", lambda: upkeep_findings(store, *gallery.now()))
        self.findings += declared_findings(gallery.state)

    def _items(self) -> list[Finding]:
        pointer, state = self.gallery.now()
        count = ItemCount(self.store, state, self.size, self.seed)
        self.samples = count.samples
        return count_findings(pointer, count) + coverage_findings(pointer, state, count)

    def of_vectors(self, generation: Generation) -> None:
        name, store, gallery = generation.name, self.store, self.gallery
        sample = self.samples.get(name, [])

        def counting(told: Told) -> None:
            listener(self.progress)({**told, "step": f"counting {name}"})

        def counted() -> list[Finding]:
            self.rows[name] = store.upkeep(name).rows
            return wrong_vectors(store, generation, counting)

        self._part(f"counting {name}", counted)
        self._part(f"comparing vectors of {name}", lambda: repeated_vectors(store, generation))
        self._part(f"comparing {name} with others", lambda: copied_vectors(store, gallery.state, generation, sample))
        if generation.mapped_from is not None:
            self._part(f"mapping {name} again", lambda: mapped_again(store, gallery.state, generation, sample))
        for source in self.sources:
            if source.fingerprint == generation.fingerprint:
                self._part(
                    f"embedding {name} again",
                    lambda source=source: embedded_again(store, generation, source, sample),  # type: ignore[misc]
                )

    def of_searches(self) -> None:
        self._part("searching", lambda: remainder_findings(self.store, self.gallery.state, self.samples))

    def _part(self, step: str, look: Callable[[], list[Finding]]) -> None:
        """Check one part; check it again under the writer's lock if it seems wrong and was written meanwhile."""
        listener(self.progress)({"step": step})
        before = self.store.pointer().sequence
        findings = self._safely(step, look)
        if findings and self.store.pointer().sequence != before:
            with self.store.writing("doctor", timeout=self.gallery.timeout):
                findings = self._safely(step, look)
        self.findings += findings

    def _safely(self, step: str, look: Callable[[], list[Finding]]) -> list[Finding]:
        try:
            return look()
        except LimpetError as error:
            says = f"{step.capitalize()} failed: {' '.join(error.given.split()).rstrip('.')}."
            return [Finding("unreadable", "error", says, to_do=error.to_do)]
