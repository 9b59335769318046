"""``limpet evaluate picture``: what stored embeddings look like, without measuring anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from limpet.cli.config import Options
from limpet.cli.console import console, print_json
from limpet.cli.evidence import names_of, refuse_no_labels
from limpet.cli.options import Reading, Similarity
from limpet.cli.places import Place
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError, EmptyOverlapError, refuse, unknown_name
from limpet.evaluation.pictures.embedding_map import (
    ITEMS,
    NEW,
    OLD,
    PROTOTYPES,
    choose_classes,
    embedding_map,
    prototypes_of,
    rows_of_classes,
)
from limpet.evaluation.pictures.histograms import MEASURES, Quantity, histograms
from limpet.evaluation.pictures.layouts import LAYOUTS, LayoutName, library

if TYPE_CHECKING:
    from limpet.reports.charts.canvas import Chart
    from limpet.reports.picture_file import Drawn
    from limpet.results import Part

Kind = Literal["embedding", "angles", "radii", "uncertainty"]

QUANTITIES: dict[Kind, Quantity] = {"angles": "angle", "radii": "radius", "uncertainty": "uncertainty"}
"""What is counted, by kind."""

DRAWN_CLASSES = 6
"""Classes that are drawn where nothing is said."""


@dataclass(frozen=True)
class Chosen(Options):
    """Whose items are shown; of --kind embedding six drawn classes when left out, of the others all.

    Args:
        classes: Names of classes.
        drawn_classes: In their place so many, drawn by the seed.
        similar: In their place so many that the first model tells apart least: the two whose class means are most
            alike, the next two, and so on.
        nearest: In their place one class and so many whose class means lie nearest to its own.
        around: That class, with --nearest; drawn by the seed when left out.
        per_class: So many items of every class at most, drawn by the seed.
        seed: Of what is drawn, and of the layout.
    """

    classes: list[str] = field(default_factory=list)
    drawn_classes: int | None = None
    similar: int | None = None
    nearest: int | None = None
    around: str | None = None
    per_class: int = ITEMS
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("drawn_classes", 1), ("similar", 2), ("nearest", 1), ("per_class", 1), ("seed", 0)):
            value = getattr(self, name)
            refuse(
                value is not None and value < least,
                f"--{name.replace('_', '-')} {value}.",
                f"a whole number of at least {least}",
            )
        refuse(
            len(self.ways) > 1, f"{' and '.join(self.ways)} were given.", "one of them: each says which classes to show"
        )
        refuse(
            self.around is not None and self.nearest is None,
            f"--around {self.around} was given without --nearest.",
            "--nearest N with it, for so many classes that lie nearest to that one",
        )

    @property
    def ways(self) -> list[str]:
        """The options that say which classes, as they are typed."""
        given = {
            "--classes": self.classes, "--drawn-classes": self.drawn_classes, "--similar": self.similar,
            "--nearest": self.nearest,
        }  # fmt: skip
        return [name for name, value in given.items() if value]

    def of(self, embeddings: EmbeddingSet) -> list[str]:
        """Return the classes to show, by the first model.

        Raises:
            ConfigError: A class is unknown.
            DataError: There are no labels.
        """
        prototypes = prototypes_of(embeddings)
        for name in self.classes:
            if name not in prototypes.ids:
                raise unknown_name("class", name, list(prototypes.ids))
        if self.classes:
            return list(dict.fromkeys(self.classes))
        ways = {"similar": self.similar, "nearest": self.nearest, "around": self.around, "seed": self.seed}
        drawn = self.drawn_classes or (None if self.ways else DRAWN_CLASSES)
        return choose_classes(prototypes, drawn=drawn, **ways)[0]  # type: ignore[arg-type]


class Models(NamedTuple):
    """The same items by every model: the old one, if it was given, and new ones by name."""

    old: EmbeddingSet | None
    new: dict[str, EmbeddingSet]

    @property
    def first(self) -> EmbeddingSet:
        """The old model, or the first new one where there is none."""
        return self.old or next(iter(self.new.values()))

    def select(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Models:
        """Return some of the items."""
        old = None if self.old is None else self.old.select(rows)
        return Models(old, {name: one.select(rows) for name, one in self.new.items()})


def picture(
    out: Path,
    reading: Reading,
    chosen: Chosen,
    old: Place | None = None,
    new: list[Place] = [],  # noqa: B006 - read only
    kind: Kind = "embedding",
    method: LayoutName = "tsne",
    apart: bool = False,
    prototypes: bool = False,
    old_release: Path | None = None,
    similarity: Similarity | None = None,
    title: str | None = None,
    json: bool = False,
) -> int:
    """Draw stored embeddings: some classes in a plane, or how angles, radii or uncertainty are distributed.

    Of what `limpet embed` wrote, the gallery is drawn. All models must have embedded the same items, of which those
    that all have are drawn. Nothing is measured; a plane keeps who is near whom, and says little of how far groups lie
    apart.

    Args:
        out: The file: .svg, .png, .pdf, or .html for a page with two widths, dark colours and all numbers.
        old: Embeddings by the old model: what `limpet embed` wrote (folder or file), or .npz, .npy or .parquet.
        new: The same items by one or several new models.
        kind: "embedding": in a plane; "angles" between old and new, in degrees; "radii": distances from the origin, of
            spaces in which lengths count; "uncertainty", of embeddings that carry it.
        method: How embeddings are laid out: t-SNE (`pip install '.[tsne]'`), UMAP, or UMAP on a hyperboloid of
            two dimensions (the extra `umap`).
        apart: Old embeddings stand in a panel of their own, not in that of every new model.
        prototypes: Show class means of the old model.
        old_release: The release that made the old embeddings: values of classes that it has seen stand apart.
        similarity: How vectors of .npz, .npy and .parquet files are compared; by the cosine when left out.
        title: Headline of the picture.
        json: Print one JSON document with every number of the picture.

    Examples:
        limpet evaluate picture --old runs/embedded/old --new runs/embedded/p2s --similar 4 --out similar.svg
        limpet evaluate picture --old runs/embedded/old --new runs/embedded/p2s --kind angles --out angles.html
    """
    from limpet.reports.picture_file import check_file, write_picture

    check_file(out)
    _check_asked(kind, old, new, apart, prototypes, old_release)
    if kind == "embedding":
        library(LAYOUTS[method].module)
    names = [f"{name} (new)" if name == OLD else name for name in names_of(new)]
    with console.status("reading embeddings"):
        models = _opened(reading, old, dict(zip(names, new, strict=True)), similarity)
    with console.status("drawing"):
        if kind == "embedding":
            shown = [*[OLD] * (old is not None), *[NEW] * bool(new), *[PROTOTYPES] * prototypes]
            drawn, found = _plane(models, chosen, method, shown, apart, title)
        else:
            drawn, found = _distribution(models, chosen, QUANTITIES[kind], _seen(old_release, models), title)
        written = write_picture(drawn, out)
    if json:
        print_json({"kind": kind, "title": drawn.title, **found.to_dict()})
    console.print(f"\n{drawn.title}", style="bold")
    console.print(drawn.told)
    console.print(f"\npicture  {written}")
    return 0


def _check_asked(
    kind: Kind, old: Place | None, new: Sequence[Place], apart: bool, prototypes: bool, release: Path | None
) -> None:
    """Refuse what the picture has no use for, before anything is read."""
    if old is None and not new:
        raise ConfigError("No embeddings were given.", expected="--old PATH, --new PATH ..., or both")
    refuse(
        kind == "angles" and (old is None or not new),
        f"--kind angles was given {'--new' if new else '--old'} alone.",
        "--old PATH and --new PATH: the angle is between them",
    )
    for option, given in (("--apart", apart), ("--prototypes", prototypes)):
        refuse(given and kind != "embedding", f"{option} was given with --kind {kind}.", "--kind embedding with it")
        refuse(given and old is None, f"{option} was given without --old.", "--old PATH, whose embeddings it is about")
    refuse(apart and not new, "--apart was given without --new.", "--new PATH, from which old embeddings stand apart")
    refuse(
        release is not None and kind == "embedding",
        "--old-release was given with --kind embedding.",
        "it with --kind angles, radii or uncertainty, whose values it tells apart",
    )
    refuse(release is not None and old is None, "--old-release was given without --old.", "--old PATH, which it made")


def _opened(reading: Reading, old: Place | None, new: dict[str, Place], similarity: Similarity | None) -> Models:
    """Open all embeddings, and keep the items that all models have, in the order of the first."""
    from limpet.sources.moment import one_moment

    with one_moment():
        first = None if old is None else reading.sides(old, similarity=similarity).gallery
        opened = {name: reading.sides(place, similarity=similarity).gallery for name, place in new.items()}
    models = Models(first, opened)
    everything = [*([] if first is None else [first]), *opened.values()]
    refuse_no_labels(reading.label_column, everything)
    rows = [one.ids.find(models.first.ids) for one in everything]
    shared = np.flatnonzero(np.all([found >= 0 for found in rows], axis=0))
    if not len(shared):
        raise EmptyOverlapError(
            f"{' and '.join(map(str, [*([] if old is None else [old]), *new.values()]))} have no item in common.",
            expected="the same items by every model: equal ids",
            to_do="embed one data set with all models: limpet embed images DATA --release FIRST SECOND ...",
        )
    most = max(map(len, everything))
    if len(shared) < most:
        console.print(f"{len(shared):,} of {most:,} items are in all files; the others are left out.")
    aligned = [one.select(found[shared]) for one, found in zip(everything, rows, strict=True)]
    labels = {"labels": aligned[0].labels, "class_names": aligned[0].class_names}
    names = iter(one if one.labels is not None else one.replace(**labels) for one in aligned)
    return Models(None if first is None else next(names), dict(zip(opened, names, strict=True)))


def _seen(release: Path | None, models: Models) -> tuple[str, ...] | None:
    """Return the classes that the old model has seen, from the release that made its embeddings."""
    if release is None:
        return None
    from limpet.models.named_models import known_of

    found = known_of(release)
    refuse(
        found.fingerprint != models.first.fingerprint,
        f"'{release}' has the fingerprint {found.fingerprint}, the old embeddings {models.first.fingerprint}.",
        "the release that made the old embeddings; or no --old-release",
    )
    return found.classes


def _plane(
    models: Models, chosen: Chosen, method: LayoutName, shown: Sequence[str], apart: bool, title: str | None
) -> tuple[Drawn, Part]:
    from limpet.bench.figure_values import Plane, Planes
    from limpet.reports.charts.maps import embedding_panels
    from limpet.reports.picture_file import Drawn
    from limpet.reports.suite_figures import table_of

    classes = chosen.of(models.first)
    means = prototypes_of(models.first)
    part = models.select(rows_of_classes(models.first, classes, chosen.per_class, chosen.seed))
    how = {"layout": method, "show": shown, "apart": apart, "seed": chosen.seed}
    found = embedding_map(part.first, part.new, means, classes, **how)  # type: ignore[arg-type]
    words = title or f"Embeddings of {len(classes)} classes"
    table = table_of(Planes(title=words, panels=[Plane(place="", found=found)]))

    def draw(width: float) -> list[Chart]:
        return [embedding_panels(words, found, width=width, head=title or "")]

    return Drawn(words, draw, _told(draw), table), found


def _distribution(
    models: Models, chosen: Chosen, quantity: Quantity, seen: tuple[str, ...] | None, title: str | None
) -> tuple[Drawn, Part]:
    from limpet.bench.figure_values import Quantities, QuantityPanel
    from limpet.reports.charts.histograms import histogram_panels
    from limpet.reports.picture_file import Drawn
    from limpet.reports.suite_figures import table_of

    if chosen.ways:
        rows = rows_of_classes(models.first, chosen.of(models.first), len(models.first), chosen.seed)
        models = models.select(np.sort(rows))
    found = histograms(quantity, models.first, {**models.new} if models.old is not None else _others(models), seen)
    if models.old is None:
        name = next(iter(models.new))
        found = found.model_copy(
            update={"panels": {name if key == OLD else key: one for key, one in found.panels.items()}}
        )
    words = title or f"{MEASURES[quantity].words[:1].upper()}{MEASURES[quantity].words[1:]}"
    table = table_of(Quantities(title=words, panels=[QuantityPanel(place="", found=found)]))

    def draw(width: float) -> list[Chart]:
        return histogram_panels(words, found, place=title or "", width=width)

    return Drawn(words, draw, _told(draw), table), found


def _others(models: Models) -> dict[str, EmbeddingSet]:
    """Return all new models but the first, which stands in for the old one."""
    return dict(list(models.new.items())[1:])


def _told(draw: Callable[[float], Sequence[Chart]]) -> str:
    return " ".join(chart.told for chart in draw(640))
