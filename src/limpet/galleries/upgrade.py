"""The upgrade of a gallery, with the steps that every live index has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from limpet.embeddings import EmbeddingSet
from limpet.engines.collection import IndexStatus
from limpet.engines.sides import SIDES, ModelSide
from limpet.engines.store import Graph
from limpet.errors import UpgradeStateError, shown, without_secrets
from limpet.galleries.gallery import Gallery
from limpet.galleries.next_steps import next_steps
from limpet.galleries.plan import plan
from limpet.galleries.state import GalleryState, Link
from limpet.galleries.status import status
from limpet.geometry import Hypersphere, Space
from limpet.support.progress import Progress, Told, showing
from limpet.support.ranges import Seed
from limpet.upgrade.base import UpgradeVerification
from limpet.upgrade.filling import Backfilled, FillOptions
from limpet.upgrade.lifecycle import Phase, UpgradeStep
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.plan import BackfillPlan, PlanOptions
from limpet.upgrade.status import GalleryFacts, UpgradeStatus
from limpet.upgrade.vector_sources import VectorSource

if TYPE_CHECKING:
    from limpet.adapters import Adapter
    from limpet.evaluation.thresholds import Thresholds
    from limpet.galleries.rehearsal import Rehearsal


class GalleryUpgrade:
    """The upgrade of one gallery: an `Upgrade`. `Gallery` has the same steps and those that only galleries have.

    Args:
        gallery: The gallery; closed together with the upgrade.
    """

    def __init__(self, gallery: Gallery) -> None:
        self.gallery, self.notes = gallery, tuple[str, ...]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def phase(self) -> Phase:
        """Phase of the upgrade."""
        return self.gallery.state.phase

    @property
    def serving(self) -> ModelSide:
        """The model whose vectors queries search."""
        state = self.gallery.state
        return "new" if _sides(state)["new"] == state.active else "old"

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models; without an upgrade, the active one is both."""
        state = self.gallery.state
        return _model(state, _sides(state)[side])

    def status(self) -> UpgradeStatus:
        """Count items by model; return the status of the upgrade and the next commands."""
        pointer, state = self.gallery.now()
        found, names = status(self.gallery.store, pointer, state), _sides(state)
        known = {one.name: one for one in found.generations}
        new, serving = known[names["new"]], self.serving
        return UpgradeStatus(
            place=without_secrets(found.url),
            phase=found.phase,
            old=_model(state, names["old"]),
            new=_model(state, new.name),
            serving=serving,
            writes=serving,
            items=found.items,
            lacking={side: found.items - known[name].rows for side, name in names.items()},
            indexes=(IndexStatus(new.name, new.indexed >= new.rows),) if new.indexed else (),
            gallery=GalleryFacts(
                names,
                {side: known[name].covered for side, name in names.items()},
                tuple(link.words for link in found.links if found.lacking and link.query == found.target),
            ),
            notes=self.notes,
            next=next_steps(found),
        )

    @classmethod
    def start(
        cls,
        url: str,
        new: UpgradeModel,
        *,
        space: Space | None = None,
        reports: Sequence[Path] = (),
        adapter: Path | Adapter | None = None,
        score_map: Path | None = None,
    ) -> GalleryUpgrade:
        """Add a generation for the vectors of a new model to a gallery."""
        it = cls(Gallery.open(url))
        try:
            made = it.gallery.start(
                new.fingerprint, space or Hypersphere(new.dim), reports=reports, adapter=adapter, score_map=score_map,
                note=new.note, options=new.options or None,
            )  # fmt: skip
        except BaseException:
            it.close()
            raise
        reported = [link for link in it.gallery.state.links if link.query == made.name and link.how == "report"]
        it.notes = tuple(_vouched(link, link.evidence.get("trained on queries")) for link in reported)
        return it

    def thresholds(self, *, items: int = 2000, class_column: str = "label", seed: int = 0) -> Thresholds:
        """Return new score thresholds for the new vectors, measured on items that have both vectors.

        See `limpet.galleries.thresholds.thresholds`.

        Raises:
            UpgradeStateError: No upgrade is started.
            DataError: Too few items have vectors of both models.
        """
        from limpet.galleries.thresholds import thresholds

        names, state = _sides(self.gallery.state), self.gallery.state
        if names["old"] == names["new"]:
            raise UpgradeStateError("The gallery has one model.", expected="an upgrade that is started",
                                    to_do="start one: `limpet upgrade start`.")  # fmt: skip
        old, new = (state.by_name[names[side]] for side in SIDES)
        return thresholds(self.gallery.store, old, new, items=items, class_column=class_column, seed=seed)

    def plan(
        self, source: VectorSource | None = None, *, reports: Sequence[Path] = (), **options: Unpack[PlanOptions]
    ) -> BackfillPlan:
        """Estimate the effort of a backfill, even before the upgrade is started; see `limpet.galleries.plan.plan`."""
        return plan(self.gallery, source, reports=reports, **options)

    def remaining(self, *, at_once: bool) -> tuple[UpgradeStep, ...]:
        """Return the remaining steps, see `Upgrade.remaining`."""
        steps: tuple[UpgradeStep, ...] = ("start", "swap", "backfill") if at_once else ("start", "backfill", "swap")
        done = {"steady": (), "started": ("start",), "swapped": ("start", "swap")}[self.phase]
        return tuple(step for step in steps if step not in done)

    @showing("rehearsal")
    def rehearse(
        self, source: VectorSource, *, sample: int = 2000, queries: tuple[EmbeddingSet, EmbeddingSet] | None = None,
        orders: Sequence[str] | None = None, reports: Sequence[Path] = (), adapter: Path | None = None,
        score_map: Path | None = None, class_column: str = "label", seed: Seed = 0, progress: Progress[Told] = None,
    ) -> Rehearsal:  # fmt: skip
        """Rehearse the upgrade on a copy in memory; see `limpet.galleries.rehearsal.rehearse`."""
        from limpet.galleries.rehearsal import rehearse

        return rehearse(
            self.gallery, source, sample=sample, queries=queries, orders=orders, reports=reports, adapter=adapter,
            score_map=score_map, class_column=class_column, seed=seed, progress=progress,
        )  # fmt: skip

    def backfill(
        self, source: VectorSource, *, order: str | None = None, seed: Seed = 0, **options: Unpack[FillOptions]
    ) -> Backfilled:
        """Write new vectors for items that lack one; see `Gallery.backfill`."""
        return self.gallery.backfill(source, order=order, seed=seed, **options)

    @property
    def graph(self) -> Graph | None:
        """Parameters of approximate indexes; None for a store without a choice."""
        return self.gallery.store.graph

    def index(self, *, graph: Graph | None = None) -> None:
        """Build an approximate index over the new vectors; see `Gallery.index`."""
        self.gallery.index(graph=graph)

    def swap(self, *, allow_missing: int = 0, force: str | None = None) -> None:
        """Make the new model the active one, in one commit; see `Gallery.swap`."""
        self.gallery.swap(allow_missing=allow_missing, force=force)

    def rollback(self, *, allow_missing: int = 0) -> None:
        """Make the old model active again, in one commit; nothing is deleted.

        Args:
            allow_missing: Not used: a gallery never refuses a rollback. Items with a new vector only are kept.
        """
        only_new = self.gallery.rollback()
        if only_new:
            found = self.gallery.status()
            lost = found.items - next(one.covered for one in found.generations if one.name == found.active)
            self.notes += (
                f"{only_new:,} items were written since and have vectors of {found.target} only. They stay; queries of "
                f"{found.active} " + (f"do not find {lost:,} of them." if lost else "find them by these."),
            )

    def finish(self, *, allow_missing: int = 0) -> None:
        """Check every new vector and delete the old ones; see `Gallery.finish`."""
        before = self.gallery.state.by_name
        found = self.gallery.finish(allow_missing=allow_missing)
        removed = ", ".join(name for name in before if name != found.generation)
        self.notes += (
            f"{found.right:,} of {found.items:,} items have a right vector of {found.generation}. The vectors of "
            f"{removed} were removed.",
        )

    def cancel(self) -> None:
        """Delete the new vectors; see `Gallery.cancel`."""
        self.gallery.cancel()

    def verify(self) -> UpgradeVerification:
        """Read every vector of the new model, and name invalid rows."""
        found = self.gallery.check_vectors()
        return UpgradeVerification(
            tuple(
                f"{count:,} vectors of {found.generation} are wrong ({kind}): {shown(found.named[kind], count)}; "
                "`limpet doctor` says what to do about them"
                for kind, count in found.wrong.items()
            )
        )

    def journal(self, last: int | None = None) -> Sequence[Mapping[str, object]]:
        """Return the events of the journal in order, with "at" as a time in UTC, and "commit", its number."""
        store = self.gallery.store
        after = 0 if last is None else max(0, store.pointer().sequence - last)
        return [{**entry.to_dict(), "commit": entry.sequence} for entry in store.journal(after=after)]

    def close(self) -> None:
        """Close the gallery."""
        self.gallery.close()


def _vouched(link: Link, trained: int | None) -> str:
    if trained is None:
        return f"'{link.reason}' does not know whether {link.query} was trained on its queries."
    return f"'{link.reason}' vouches for {link.query}, which was trained on {trained:,} of its queries."


def _sides(state: GalleryState) -> dict[ModelSide, str]:
    """Return the generations of the old and the new model; without an upgrade the active one is both."""
    if state.phase == "swapped":
        return {"old": state.previous[-1], "new": state.active}
    return {"old": state.active, "new": state.target}


def _model(state: GalleryState, name: str) -> UpgradeModel:
    generation = state.by_name[name]
    dim = int(generation.geometry.dim)
    return UpgradeModel(generation.fingerprint, dim, generation.note, generation.options or "")
