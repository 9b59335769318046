"""The runs of a bench by cell and label: which are complete, and their means over seeds and over cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from holdfast.bench.leaderboard import CellMean, Run, SeedMean
from holdfast.bench.statistics import mean_over_seeds, seed_means

P_MEASURES = ("p_up", "p_comp", "p_score")

Place = tuple[str, str]  # data, scenario


def measures(rows: Sequence[Run]) -> list[str]:
    """Return the scores that runs have, in the order of their appearance, and those of P that any has."""
    scores = dict.fromkeys(name for row in rows for name in row.scores or {})
    return [*scores, *(name for name in P_MEASURES if any(row.p_metrics[name] is not None for row in rows))]


@dataclass(frozen=True)
class Runs:
    """Runs, by where and of what they are."""

    rows: Sequence[Run]

    @cached_property
    def cells(self) -> dict[Place, list[int]]:
        """The seeds that were asked of every cell, of any label."""
        found: dict[Place, set[int]] = {}
        for row in self.rows:
            found.setdefault((row.data, row.scenario), set()).add(row.seed)
        return {place: sorted(seeds) for place, seeds in found.items()}

    @cached_property
    def labels(self) -> list[str]:
        """The labels, in the order of their appearance."""
        return list(dict.fromkeys(row.label for row in self.rows))

    @cached_property
    def means(self) -> dict[str, dict[tuple[str, str, str], SeedMean | None]]:
        """Mean and deviation over seeds by measure, cell and label."""
        return {name: seed_means(self.rows, name) for name in measures(self.rows)}

    def of(self, label: str, place: Place | None = None) -> list[Run]:
        """Return the runs of a label, everywhere or in a cell."""
        places = self.cells if place is None else (place,)
        return [row for row in self.rows if row.label == label and (row.data, row.scenario) in places]

    def models_of(self, place: Place) -> Place:
        """Return what the models of a cell are of: the data that they were trained on, and the scenario."""
        row = next(row for row in self.rows if (row.data, row.scenario) == place)
        return row.trained_on or row.data, place[1]

    def mean(self, measure: str, place: Place, label: str) -> SeedMean | None:
        """Return mean and deviation over the seeds of a label that have the number; None where none has."""
        return self.means.get(measure, {}).get((*place, label))

    def complete(self, measure: str, place: Place, label: str) -> bool:
        """Return whether a label has the number for every seed that was asked of a cell."""
        found = self.mean(measure, place, label)
        return found is not None and found.seeds == len(self.cells[place])

    def defined(self, measure: str) -> list[Place]:
        """Return the cells where at least one label is complete: P_comp, for one, is not defined in every cell."""
        return [place for place in self.cells if any(self.complete(measure, place, label) for label in self.labels)]

    def values(self, measure: str, places: Sequence[Place], labels: Sequence[str]) -> NDArray[np.float64]:
        """Return the means over seeds (cells, labels), NaN where a label is not complete."""
        found = np.full((len(places), len(labels)), np.nan)
        for i, place in enumerate(places):
            for j, label in enumerate(labels):
                mean = self.mean(measure, place, label)
                if mean is not None and self.complete(measure, place, label):
                    found[i, j] = mean.mean
        return found

    def overall(self, measure: str, label: str) -> CellMean | None:
        """Return the mean over the cells where a measure is defined; None where the label is not complete in all.

        The deviation is that of the means over cells of each seed; None for one seed, or where cells have others.
        """
        places = self.defined(measure)
        if not places or not all(self.complete(measure, place, label) for place in places):
            return None
        by_cell = [self._by_seed(measure, place, label) for place in places]
        mean, deviation = float(np.mean([np.mean(list(found.values())) for found in by_cell])), None
        if len({tuple(found) for found in by_cell}) == 1:
            by_seed = mean_over_seeds(np.mean([list(found.values()) for found in by_cell], axis=0))
            deviation = by_seed.deviation if by_seed else None
        return CellMean(mean=mean, deviation=deviation, cells=len(places))

    def _by_seed(self, measure: str, place: Place, label: str) -> dict[int, float]:
        return {run.seed: run.number(measure) for run in sorted(self.of(label, place), key=lambda run: run.seed)}
