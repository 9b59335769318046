"""``limpet recommend``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from limpet.cli.console import console, print_json, print_table
from limpet.cli.options import DataSets, Reading
from limpet.cli.parameters import Options
from limpet.cli.places import Place as Embeddings
from limpet.errors import refuse
from limpet.reports.formats import MISSING

if TYPE_CHECKING:
    from limpet.bench.recommend import Answer, Interval, Place, Situation
    from limpet.data.text_set import TextSet
    from limpet.embeddings import EmbeddingSet

ScenarioName = Literal[
    "extended-data", "extended-class", "open-data", "open-class",
    "enlarged-backbone-data", "enlarged-backbone-class", "new-architecture", "both",
]  # fmt: skip


@dataclass(frozen=True)
class Known(Options):
    """What is known of your data and your old model.

    Args:
        data: The training data, to be counted: a data set by name, a folder with one sub-folder of images per class,
            or a file of texts.
        embeddings: Instead, items by a frozen model: what `limpet embed` wrote; a .safetensors, .npz, .npy or
            .parquet file; or the URL of a table or collection.
        classes: Instead, how many classes the new model is to learn.
        images: How many images there are of them.
        old_classes: How many classes the old model learnt, if known.
        old_quality: The old model's queries on its own gallery, from 0 to 1, if known.
        scenario: What the new model sees: extended-class (the old model's classes and more), extended-data (more images
            of them), open-class (other classes only), open-data (other images only), or with another backbone:
            enlarged-backbone-data, enlarged-backbone-class, new-architecture (of the same data), both.
        frozen: Both models stay as they are.
        unlabelled: The items have no classes.
    """

    data: str | None = None
    embeddings: Embeddings | None = None
    classes: int | None = None
    images: int | None = None
    old_classes: int | None = None
    old_quality: float | None = None
    scenario: ScenarioName = "extended-class"
    frozen: bool = False
    unlabelled: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("data", "embeddings", "classes", "images") if getattr(self, name) is not None]
        refuse(
            len(set(given) - {"images"}) > 1 or ("images" in given and given != ["classes", "images"]),
            f"{' and '.join(f'--{name}' for name in given)}.",
            "--data, or --embeddings, or --classes with or without --images: one of three",
        )
        refuse(
            not given and not self.unlabelled and not self.frozen,
            "Nothing was said of your data.",
            "--data DATA, --embeddings FILE, or --classes N --images N; or --frozen, or --unlabelled",
        )

    def situation(self, sets: DataSets) -> Situation:
        """Return what leaderboards are asked for, counted from the data where it is given."""
        from limpet.bench.recommend import Situation
        from limpet.data.text_set import TextData

        asked = Situation(
            self.classes,
            self.images,
            self.old_classes,
            self.old_quality,
            self.scenario,
            self.frozen,
            labelled=not self.unlabelled,
        )
        if self.embeddings is not None:
            return _over_frozen_models(asked, Reading(cast=True).part(self.embeddings))
        if self.data is None:
            return asked
        if is_texts(self.data):
            texts = sets.texts(self.data)
            return _over_frozen_models(asked, texts.train if isinstance(texts, TextData) else texts)
        images = sets.images(self.data).to_train_on()
        return replace(asked, classes=len(set(images.labels.tolist())), images=len(images))


def _over_frozen_models(asked: Situation, items: EmbeddingSet | TextSet) -> Situation:
    """Count items whose models are frozen."""
    classes = None if items.labels is None else len(set(items.labels.tolist()))
    labelled = asked.labelled and classes is not None
    return replace(asked, frozen=True, classes=classes, images=len(items), labelled=labelled)


def is_texts(data: str) -> bool:
    """Return whether data, by name or path, is texts: what is learnt of them is learnt over frozen models."""
    from limpet.data.text_files import FILE_READERS
    from limpet.data.texts import TEXT_DATASETS

    return data in TEXT_DATASETS or (Path(data).suffix in FILE_READERS and not Path(data).is_dir())


def recommend(
    known: Known,
    sets: DataSets,
    evidence: list[Path] = [],
    json: bool = False,
) -> int:
    """Look up what leaderboards say of data like yours, and what to type to compare on your own.

    Shown are the rows of the leaderboards that come with limpet, and of your own, for the data sets most like yours:
    of the same kind and scenario, nearest in number of classes and in images per class, with the seeds, intervals and
    machine that they rest on, and what they cannot tell. Nothing is chosen for you: what leads on one data set does not
    on the next.

    Args:
        evidence: Documents of your own benches, to count beside those that come with limpet.
        json: Print one JSON document.

    Examples:
        limpet recommend photos
        limpet recommend --classes 1000 --images 50000 --old-classes 300
    """
    from limpet.bench.recommend import look_up, read_places

    situation = known.situation(sets)
    embeddings = None if known.embeddings is None else str(known.embeddings)
    answer = look_up(situation, read_places(evidence), data=known.data, embeddings=embeddings)
    not_counted = dict(_not_counted(evidence, situation))
    if json:
        print_json({**answer.to_dict(), "not_counted": not_counted})
        return 0
    for path, why in not_counted.items():
        console.print(f"'{path}' does not count: {why.rstrip('.')}.")
    for place in answer.places:
        _print_place(place)
    _print_answer(answer)
    return 0


def _not_counted(paths: Iterable[Path], situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield the user's documents that can say nothing of a situation, with the reason."""
    from limpet.bench.recommend import read_places

    for path in paths:
        places = read_places([path], folder=None)
        complete = [place for place in places if place.complete]
        if not situation.labelled:
            yield str(path), "all methods of benches learn from classes, and your items have none"
        elif not complete:
            yield str(path), _without_numbers(places)
        elif situation.frozen and all(place.kind != "features" for place in complete):
            yield str(path), "its models were trained as a whole, which says nothing of heads over frozen ones"
        elif not situation.frozen and all(place.kind == "features" for place in complete):
            yield (
                str(path),
                "its heads were trained over frozen models, which says nothing of models trained as a whole",
            )


def _without_numbers(places: Sequence[Place]) -> str:
    """Say why no label has P_comp and P_up for every seed."""
    if any(place.kind == "sessions" for place in places):
        return (
            "it is of sessions, which have no old model and so no P_comp; methods are compared by what they gain on an "
            "old model's gallery"
        )
    for place in places:
        for row in place.rows:
            return (
                f"none of its labels has P_comp and P_up for every seed; '{row.label}' on {place.words}: {row.failure}"
            )
    return "it has no runs of methods that align with an old model"


def _print_place(place: Place) -> None:
    """Print the rows of a leaderboard, and what they rest on."""
    from limpet.bench.recommend import size_words

    rows, of_gallery = [], ["old gallery"] if any(row.gallery for row in place.rows) else []
    for row in place.rows:
        own = {**row.own_options, **row.settings}
        seconds = MISSING if row.seconds is None else f"{row.seconds:,.0f}"
        remark = row.failure or ("" if row.keeps_quality else "P_up below −0.05")
        cells = [row.label, row.method, _interval(row.p_comp), _interval(row.p_up), seconds, remark]
        cells += [row.gallery or MISSING for _ in of_gallery]
        rows.append([*cells, ", ".join(f"{name} {value}" for name, value in own.items())])
    columns = ["label", "method", "P_comp", "P_up", "seconds", "", *of_gallery, "set"]
    print_table(f"{place.words}: raw P, mean and 95 % interval over seeds", columns, rows)
    size = "size not known" if place.facts is None else size_words(place.facts)
    seeds = f"seeds {', '.join(map(str, place.seeds))}"
    console.print(f"{size}; {place.metric}; {seeds}; {place.machine or 'machine not said'}\n")


def _print_answer(answer: Answer) -> None:
    console.print("What this cannot tell:", style="bold")
    for line in answer.cannot_tell:
        console.print(f"- {line}")
    console.print("\nCompare on your own data; that tells more than other people's.", style="bold")
    console.print(f"next     {answer.next}")
    if answer.not_in_next:
        console.print(f"With settings of their own, each in a run of its own: {', '.join(answer.not_in_next)}.")


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return MISSING
    ends = "" if interval.low is None else f" ({interval.low:+.3f} to {interval.high:+.3f})"
    return f"{interval.mean:+.3f}{ends}".replace("-", "−")
