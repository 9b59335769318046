"""From embeddings in files to results, report and table; shared by ``evaluate`` and ``demo``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.places import Place
from limpet.cli.settings import read_toml
from limpet.errors import ConfigError, LimpetError
from limpet.models.names import ModelName
from limpet.support.disk import read_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from limpet.data.item_facts import FactsOf
    from limpet.data.retrieval_data import RetrievalData
    from limpet.embeddings import EmbeddingSet
    from limpet.embeddings.sides import QueriesAndGallery
    from limpet.evaluation.protocols import Protocol
    from limpet.evaluation.results import Evaluation, EvaluationResults
    from limpet.results import Data


def names_of(places: Sequence[Place]) -> list[str]:
    """Return what people call these folders, files and sources: their names, or all of it where two have one name.

    Raises:
        ConfigError: One was given twice.

    >>> names_of([Place("runs/e1"), Place("runs/e2.npz")]), names_of([Place("a/x"), Place("b/x")])
    (['e1', 'e2'], ['a/x', 'b/x'])
    """
    for number, place in enumerate(places):
        if place.resolved in [other.resolved for other in places[:number]]:
            raise ConfigError(f"'{place}' was given twice.", expected="every folder, file or source once")
    names = [place.name for place in places]
    return names if len(set(names)) == len(names) else list(map(str, places))


def refuse_swapped(old: EmbeddingSet, new: EmbeddingSet, place: Place | None) -> None:
    """Refuse embeddings given as those of the old model whose model, on record, searches the gallery of the new one.

    Only where that is certain: by the record of the release, the head or the adapter that made them, which
    `limpet embed` wrote beside them, and which is still there.

    Args:
        old: Given as the old model's.
        new: Given as the new model's.
        place: Where those given as the old model's are.

    Raises:
        ConfigError: They look swapped.
    """
    for maker in _makers(place):
        if _searches(maker) == (old.fingerprint, new.fingerprint):
            raise ConfigError(
                f"'{place}' was given as the old model's, and the model that made it, '{maker}', searches "
                "the gallery of the model given as the new one.",
                expected="the older model as --old, and the one that is to search its gallery as --new",
                to_do="they look swapped: exchange what --old and --new were given.",
            )


def classes_seen(embeddings: EmbeddingSet, place: Place | None) -> tuple[str, ...] | None:
    """Return the classes that the model of embeddings has seen, which a report on uncertainties tells apart.

    They are those of the release that made the embeddings, where `limpet embed` recorded it beside them and it is still
    there; None otherwise.
    """
    from limpet.evaluation.uncertainty import uncertainty_of

    folders = [] if uncertainty_of(embeddings) is None else _makers(place)
    for folder in folders:
        from limpet.models.release import load_classes, load_record  # which needs torch

        with suppress(LimpetError):
            if load_record(folder).fingerprint == embeddings.fingerprint:
                return load_classes(folder)
    return None


def _makers(place: Place | None) -> list[Path]:
    from limpet.embeddings.files import model_folder

    if place is None or place.address is not None:
        return []
    found = model_folder(place.path)
    files = (found if found.is_dir() else found.parent).glob("embed-*.toml")
    try:
        said = dict(next(iter(read_toml(next(files))["embed"].values()), {}))
    except (
        ConfigError,
        StopIteration,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
    ):  # none, or of something else
        return []
    listed = said.get("model")
    names = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    folders = [Path(ModelName(one).place) for one in names if one.startswith(("release:", "adapter:"))]
    return [folder for folder in folders if (folder / "config.json").is_file()]


def _searches(maker: Path) -> tuple[str, str] | None:
    """Return the fingerprint of embeddings that a release or an adapter makes, and that of the gallery they search."""
    from limpet.adapters.storage import load_adapter

    try:
        record = json.loads(read_text(maker / "config.json"))
        if "compatible_with" in record:
            return record["fingerprint"], record["compatible_with"]
        adapter = load_adapter(maker)
    except (OSError, ValueError, LimpetError):  # gone, or of something else: nothing is certain
        return None
    return (adapter.mapped_fingerprint, adapter.fitted.target) if adapter.direction == "new_to_old" else None


class Pictures:
    """Finds the pixels of an item by its id, for the example strips of a report."""

    def __init__(self, data: RetrievalData | None) -> None:
        self._sets = [] if data is None else [data.query, data.gallery]

    def __call__(self, identifier: str) -> NDArray[np.uint8] | None:
        """Return uint8 pixels (channels, height, width), or None for an unknown id."""
        for images in self._sets:
            row = images.ids.find([identifier])
            if row[0] >= 0:
                pixels: NDArray[np.uint8] = images.read(row)[0]
                return pixels
        return None


def print_findings(results: EvaluationResults) -> None:
    """Say in words what was found: the headline, and what one model's numbers mean and ask for."""
    from limpet.cli.console import console
    from limpet.reports.evaluation import finding, headline

    console.print(f"\n{headline(results)}", style="bold")
    if len(results.evaluations) == 1:
        for line in finding(*next(iter(results.evaluations.items()))).lines:
            console.print(line)


def write_evidence(
    evaluations: Mapping[str, Evaluation],
    old: QueriesAndGallery,
    new: Mapping[str, QueriesAndGallery],
    folder: Path,
    *,
    title: str,
    data: Data,
    models: Mapping[str, Mapping[str, object]],
    pictures: Pictures,
    seed: int,
    cross: Mapping[str, tuple[EmbeddingSet, EmbeddingSet]] | None = None,
    old_classes: Sequence[str] | None = None,
    protocol: Protocol | None = None,
    report: str | None = None,
    facts: FactsOf | None = None,
    command: str = "",
) -> EvaluationResults:
    """Write results.json and report.html, print the table, and return the results.

    Args:
        evaluations: By the name of the new model.
        old: What the old model made.
        new: What every new model made.
        models: What is known of each model; see `EvaluationResults`.
        pictures: Finds pixels for the examples.
        seed: Of the choice of examples.
        cross: Queries and gallery that answered the cross-test of the models that a map links to the old one.
        old_classes: Names of the classes that the old model has seen.
        protocol: How it was measured; by label when left out.
        report: Whether to write the page: "html", "none", or None for one wherever it can be written.
        facts: Finds texts and metadata of the examples.
        command: What was typed.
    """
    from limpet.cli.console import console, print_table
    from limpet.cli.pages import page_line, page_written
    from limpet.evaluation.examples import choose_examples
    from limpet.evaluation.protocols.by_label import ByLabel
    from limpet.evaluation.results import EvaluationResults
    from limpet.evaluation.uncertainty import choose_disk
    from limpet.reports.evaluation import summary_rows, write_report

    links = cross or {}
    results = EvaluationResults.of(title=title, data=data, models=models, evaluations=evaluations, command=command)
    written = results.save(folder)

    def write() -> Path:
        examples = {
            name: choose_examples(
                evaluation,
                *old,
                *new[name],
                cross=links.get(name),
                seed=seed,
                protocol=protocol or ByLabel(leave_one_out=old.leave_one_out),
            )
            for name, evaluation in evaluations.items()
        }
        disks = {
            name: choose_disk(old.gallery, sides.gallery, old_classes=old_classes, seed=seed)
            for name, sides in new.items()
            if sides.gallery.space == old.gallery.space
        }
        return write_report(results, folder, examples=examples, picture=pictures, disks=disks, facts=facts)

    page = page_written(report, write)
    columns, rows = summary_rows(results)
    print_table(title, columns, rows)
    print_findings(results)
    console.print(f"\nresults  {written}{page_line(report, page)}")
    return results
