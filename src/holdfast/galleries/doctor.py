"""A close look at a gallery: everything is read again and compared, nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, refuse
from holdfast.galleries.doctor_records import (
    Recount,
    count_findings,
    coverage_findings,
    damage_findings,
    declared_findings,
    journal_findings,
    link_findings,
    upkeep_findings,
)
from holdfast.galleries.doctor_rows import census_findings, copied, embedded_again, mapped_again, repeated_vectors
from holdfast.galleries.doctor_searches import remainder_findings
from holdfast.galleries.findings import Diagnosis, Finding, Severity, worst_first
from holdfast.galleries.sources import VectorSource
from holdfast.galleries.state import Generation

if TYPE_CHECKING:
    from holdfast.galleries.gallery import Gallery

__all__ = ["Diagnosis", "Finding", "Severity", "doctor"]

Progress = Callable[[dict[str, Any]], None]
Look = Callable[[], list[Finding]]


def doctor(
    gallery: Gallery,
    source: VectorSource | Sequence[VectorSource] | None = None,
    *,
    sample: int = 200,
    seed: int = 0,
    on_step: Progress | None = None,
) -> Diagnosis:
    """Read all of a gallery and say what is wrong, and what to do about it; nothing is changed.

    Vectors are read in batches; what is held of every row is its id while its generation is counted, and eight bytes
    afterwards. Searches and writes go on meanwhile: only where something seems wrong and somebody was writing, that
    part is looked at again while writers wait.

    Args:
        gallery: Which one.
        source: Models of its generations, or files of theirs, to embed a sample again and compare.
        sample: Items per generation that are embedded again, and searched for.
        seed: Of the sample.
        on_step: Told "step", and "done" and "total" rows while vectors are read.

    Raises:
        ConfigError: ``sample`` is out of range, or a source is of a model that the gallery does not know.
    """
    refuse(sample < 1, f"sample={sample}", "at least 1 item")
    sources = [] if source is None else list(source) if isinstance(source, Sequence) else [source]
    look = _Look(gallery, sources, sample, seed, on_step)
    started = time.monotonic()
    state = gallery.state
    for one in sources:
        refuse(state.of(one.fingerprint) is None, f"A source of {one.fingerprint}", "a model of this gallery")
    look.at_records()
    for generation in state.generations:
        look.at(generation)
    look.at_searches()
    pointer = gallery.store.pointer()
    return Diagnosis(
        url=gallery.store.url,
        sequence=pointer.sequence,
        items=pointer.items,
        rows=look.rows,
        sampled=sample,
        findings=worst_first(look.findings),
        seconds=time.monotonic() - started,
    )


class _Look:
    """What was found so far."""

    def __init__(
        self, gallery: Gallery, sources: Sequence[VectorSource], sample: int, seed: int, on_step: Progress | None
    ) -> None:
        self.gallery, self.store, self.sources, self.on_step = gallery, gallery.store, sources, on_step
        self.size, self.seed = sample, seed
        self.findings: list[Finding] = []
        self.rows: dict[str, int] = {}
        self.samples: dict[str, list[str]] = {}

    def at_records(self) -> None:
        """Look at counts, journal, links and indexes."""
        self._part("counting the items", self._counts)
        self._part("following the journal", lambda: journal_findings(self.store, self.store.pointer()))
        self._part("checking links", lambda: link_findings(self.store, self.gallery.state))
        self._part("reading every file", lambda: damage_findings(self.store))
        self._part("checking indexes", lambda: upkeep_findings(self.store, *self.gallery.now()))
        self.findings += declared_findings(self.gallery.state)

    def _counts(self) -> list[Finding]:
        pointer, state = self.gallery.now()
        recount = Recount(self.store, state, self.size, self.seed)
        self.samples = recount.samples
        return count_findings(pointer, recount) + coverage_findings(pointer, state, recount)

    def at(self, generation: Generation) -> None:
        """Look at the vectors of a generation."""
        name, store = generation.name, self.store
        chosen = self.samples.get(name, [])
        self._part(f"counting {name}", lambda: self._census(generation))
        self._part(f"comparing vectors of {name}", lambda: repeated_vectors(store, generation))
        self._part(f"comparing {name} with others", lambda: copied(store, self.gallery.state, generation, chosen))
        if generation.mapped_from is not None:
            self._part(f"mapping {name} again", lambda: mapped_again(store, self.gallery.state, generation, chosen))
        for source in self.sources:
            if source.fingerprint == generation.fingerprint:
                self._part(f"embedding {name} again", lambda: embedded_again(store, generation, source, chosen))  # noqa: B023

    def _census(self, generation: Generation) -> list[Finding]:
        self.rows[generation.name] = self.store.upkeep(generation.name).rows
        return census_findings(self.store, generation, self._telling(f"counting {generation.name}"))

    def at_searches(self) -> None:
        """Look whether searches of several generations find every item once."""
        self._part("searching", lambda: remainder_findings(self.store, self.gallery.state, self.samples))

    def _part(self, step: str, look: Look) -> None:
        """Look at one part; again while writers wait, if something seems wrong and somebody wrote meanwhile."""
        if self.on_step is not None:
            self.on_step({"step": step})
        before = self.store.pointer().sequence
        findings = self._safely(step, look)
        if findings and self.store.pointer().sequence != before:
            with self.store.writing("doctor", timeout=self.gallery.timeout):
                findings = self._safely(step, look)
        self.findings += findings

    def _safely(self, step: str, look: Look) -> list[Finding]:
        try:
            return look()
        except HoldfastError as error:
            says = f"{step.capitalize()} failed: {' '.join(error.given.split()).rstrip('.')}."
            return [Finding("unreadable", "error", None, 1, (), says, error.to_do)]

    def _telling(self, step: str) -> Progress | None:
        on_step = self.on_step
        return None if on_step is None else lambda told: on_step({"step": step, **told})
