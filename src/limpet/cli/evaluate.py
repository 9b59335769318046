"""``limpet evaluate``: two models, several test sets of them, or a chain of models."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from limpet.cli.console import as_json, console, exit_code, print_error, print_json, print_table
from limpet.cli.evidence import Pictures, classes_seen, refuse_swapped, write_evidence
from limpet.cli.options import Answers, DataSets, Judging, Output, Reading, Shown, Similarity
from limpet.cli.pages import check_report
from limpet.cli.parameters import RARE, Options
from limpet.cli.places import Place
from limpet.cli.settings import Settings, Typed
from limpet.errors import ConfigError, refuse

if TYPE_CHECKING:
    from limpet.adapters import Adapter
    from limpet.embeddings import EmbeddingSet
    from limpet.embeddings.sides import QueriesAndGallery
    from limpet.results import Data

FEWEST_RESAMPLES = 40
LARGE_CURVE = 500_000_000
"""Queries times items above which the upgrade curve is measured only where it is asked for."""

ADAPTER = "adapter"
"""What results call the map between two models."""

Role = Literal["old", "new", "independent"]


class Given(NamedTuple):
    """What was said of one model: where its embeddings are, its name, how they compare."""

    role: Role
    places: tuple[Place, ...]
    said: str | None
    similarity: Similarity | None

    @property
    def place(self) -> Place | None:
        """Where its embeddings are; those of its gallery, where that is another place than its queries."""
        return self.places[-1] if self.places else None

    @property
    def whole(self) -> Place | None:
        """Where queries and gallery are together."""
        return self.places[0] if len(self.places) == 1 else None

    @property
    def name(self) -> str:
        """What people call it: its name, that of the place of its embeddings, or just "old" and "new"."""
        found = self.said or (self.role if self.whole is None else self.whole.name)
        return "new" if self.role == "new" and found in ("old", ADAPTER) else found

    def sides(self, reading: Reading) -> QueriesAndGallery | None:
        """Open its queries and gallery; None where it was not given.

        Raises:
            ConfigError: More than two places were given, or a file is missing.
            DataError: A file is damaged or breaks a promise of `EmbeddingSet`.
        """
        refuse(
            len(self.places) > 2,
            f"--{self.role} was given {len(self.places)} places.",
            f"--{self.role} PATH for what `limpet embed` wrote, or --{self.role} QUERIES GALLERY",
        )
        return reading.sides(self.places, self.said, self.similarity) if self.places else None

    def needed(self, reading: Reading) -> QueriesAndGallery:
        """Open a model that cannot be left out."""
        found = self.sides(reading)
        if found is None:
            raise ConfigError(
                f"No embeddings of the {self.role} model were given.",
                expected=f"--{self.role} PATH, or --{self.role} QUERIES GALLERY",
            )
        return found


@dataclass(frozen=True)
class Models(Options):
    """The embeddings of each model.

    Args:
        old: Embeddings by the old model: output of `limpet embed` (folder or file); .npz, .npy or .parquet; or the URL
            of a table or collection, such as postgresql://USER@HOST/DATABASE?table=items&vector=emb. Two places are
            queries and gallery; the same place twice searches every item among all others.
        new: Embeddings of the same items by the new model, in any of these forms.
        independent: Embeddings of the same items by the new recipe trained without alignment, for P_up and P_comp.
        old_name: Name of the old model, for .npz, .npy and .parquet files and URLs, which do not store it. Default:
            their path, or table and column.
        new_name: Name of the new model, for files and URLs that do not store it. With an adapter, use the names that
            you gave `limpet adapt`.
        independent_name: Name of the independent model, for files and URLs that do not store it.
        link: Folder of an adapter that `limpet adapt` fitted on these two models. The cross-test applies it, so spaces
            and dimensions may differ. If it maps new queries (direction new_to_old), no upgrade curve is measured.
        similarity: Similarity function for vectors of .npz, .npy and .parquet files and URLs. Default: that of the
            index of a URL, or the cosine.
        pad_old: Pad old embeddings of fewer dimensions with zeros, for a new model that was trained over the old one
            with more dimensions.
    """

    old: list[Place] = field(default_factory=list)
    new: list[Place] = field(default_factory=list)
    independent: list[Place] = field(default_factory=list)
    old_name: Annotated[str | None, RARE] = None
    new_name: Annotated[str | None, RARE] = None
    independent_name: Annotated[str | None, RARE] = None
    link: Path | None = None
    similarity: Annotated[Similarity | None, RARE] = None
    pad_old: Annotated[bool, RARE] = False

    def __post_init__(self) -> None:
        refuse(
            self.pad_old and self.link is not None,
            "--pad-old and --link were given.",
            "one of them: an adapter brings embeddings to the other model's dimension itself",
        )

    def given(self) -> tuple[Given, Given, Given]:
        """Return what was said of the old, the new and the independent model."""
        alike = self.similarity
        return (
            Given("old", tuple(self.old), self.old_name, alike),
            Given("new", tuple(self.new), self.new_name, alike),
            Given("independent", tuple(self.independent), self.independent_name, alike),
        )


def evaluate(
    *,
    models: Models = Models(),
    reading: Reading = Reading(),
    answers: Answers = Answers(),
    judging: Judging = Judging(),
    shown: Shown = Shown(),
    sets: DataSets = DataSets(),
    output: Output = Output(),
    settings: Settings = Settings(),
    typed: Typed = Typed(""),
    metrics: list[str] = [],
    curve: Annotated[Literal["auto", "yes", "no"], RARE] = "auto",
    mixing: Annotated[float | None, RARE] = None,
) -> int:
    """Measure whether new queries can search the old gallery.

    The exit code is 0 only for the verdict "compatible", 3 for "unlabelled" and 1 for the others. `limpet evaluate
    combine` compares evaluations of several test sets; `limpet evaluate chain` measures several generations of models.

    Args:
        metrics: Metrics to compute, such as recall@K, map, map@r, map@K. Default: those of the protocol.
        curve: Whether to measure search quality while the gallery is re-embedded. auto: not in large evaluations, where
            this takes by far the longest.
        mixing: Also measure galleries that contain vectors of both models, with queries of both: whether new vectors
            can be stored beside old ones (`limpet upgrade start --same-column`). The value is the loss allowed for old
            queries, as a fraction such as 0.01.

    Examples:
        limpet evaluate --old runs/embedded/old --new runs/embedded/p2s --independent runs/embedded/independent
            --data photos --out runs/report
        limpet evaluate --old runs/old-questions --new runs/new-questions --out runs/link-report
    """
    from limpet.embeddings.sides import refuse_mixed
    from limpet.engines.moment import one_moment
    from limpet.evaluation.evaluate import evaluate as measure
    from limpet.evaluation.ranking.sharded import sharded

    check_report(output.report)
    few = judging.resamples < FEWEST_RESAMPLES
    refuse(few, f"--resamples {judging.resamples}.", f"at least {FEWEST_RESAMPLES}: an interval of less is chance")
    given_old, given_new, given_third = models.given()
    with console.status("reading embeddings"), one_moment():
        old, new, third = given_old.needed(reading), given_new.needed(reading), given_third.sides(reading)
    old, new = old.without(reading.left_out), new.without(reading.left_out)
    third = None if third is None else third.without(reading.left_out)
    refuse_swapped(old.gallery, new.gallery, given_old.place)
    of_old = model_of(old.gallery)
    if models.pad_old:
        old = old.padded(new.gallery.space)
        of_old["padded_to"] = old.gallery.dim
    protocol = answers.opened(old.leave_one_out)
    refuse_mixed(
        {str(given_old.place): old, str(given_new.place): new}
        | ({} if third is None else {str(given_third.place): third})
    )
    adapter = None if models.link is None else _adapter_between(models.link, given_old, given_new, old, new)
    classes = classes_seen(old.gallery, given_old.place)
    facts = shown.facts(sets, [*old, *new])
    images = shown.images(sets)
    cross = None if adapter is None else _cross_sides(adapter, old, new)
    small = len(old.query) * len(old.gallery) <= LARGE_CURVE
    with console.status("evaluating"), sharded(judging.workers):
        evaluation = measure(
            old,
            new,
            independent=third,
            cross=cross,
            protocol=protocol,
            metrics=metrics or None,
            old_classes=classes,
            curve=curve == "yes" or (curve == "auto" and small),
            mixing=mixing,
            guards=judging.guards,
            device=judging.placed,
            gate_metric=judging.gate_metric,
            min_effect=judging.min_effect,
            resamples=judging.resamples,
            resample=judging.resample,
            seed=judging.seed,
        )
    settings.write(output.out)
    link = {} if adapter is None else {ADAPTER: _record_of(adapter)}
    results = write_evidence(
        {given_new.name: evaluation},
        old,
        {given_new.name: new},
        output.out,
        title=f"Can {given_new.name} search the gallery of {given_old.name}?",
        data=described(old, shown.data and str(Place(shown.data)), protocol.units),
        models={"old": of_old, given_new.name: model_of(new.gallery), **link},
        pictures=Pictures(images),
        seed=judging.seed,
        cross={} if cross is None else {given_new.name: cross},
        old_classes=classes,
        protocol=protocol,
        report=output.report,
        facts=facts,
        command=typed,
    )
    if as_json():
        print_json({"schema_version": results.schema_version, **evaluation.to_dict(), **link})
    return exit_code(evaluation.verdict == "compatible", told=evaluation.verdict != "unlabelled")


def protocols() -> int:
    """List the protocols, which define relevance and how scores are averaged.

    Examples:
        limpet evaluate protocols
    """
    from limpet.evaluation.protocols import PROTOCOLS
    from limpet.reports.formats import MISSING
    from limpet.support.options import option_types

    for error in PROTOCOLS.import_installed():
        print_error("evaluate protocols", error, as_json=False)
    if as_json():
        facts = ("name", "description", "metrics", "gate_metric", "units", "ground_truth")
        known = [
            {**{fact: getattr(protocol, fact) for fact in facts}, "options": list(option_types(protocol))}
            for protocol in PROTOCOLS.values()
        ]
        print_json({"protocols": known})
        return 0
    rows = [
        [protocol.name, protocol.description, ", ".join(protocol.metrics), protocol.ground_truth or MISSING]
        for protocol in PROTOCOLS.values()
    ]
    print_table("Protocols", ["protocol", "what it measures", "metrics", "ground truth"], rows)
    return 0


def described(sides: QueriesAndGallery, name: str | None, units: str = "queries") -> Data:
    """Return what the report says of the data."""
    from limpet.results import Data

    labels = sides.gallery.labels
    alone = "every item is a query among all others" if units == "queries" else "the same items on both sides"
    return Data(
        name=name or "embeddings",
        description=alone if sides.leave_one_out else "queries and a gallery",
        numbers={
            "queries": len(sides.query),
            "gallery items": len(sides.gallery),
            "classes": 0 if labels is None else len(set(labels.tolist())),
        },
    )


def model_of(embeddings: EmbeddingSet) -> dict[str, object]:
    """Return what a file of embeddings says of the model that made it."""
    return {"fingerprint": embeddings.fingerprint, "dim": embeddings.dim}


def _adapter_between(
    folder: Path, given_old: Given, given_new: Given, old: QueriesAndGallery, new: QueriesAndGallery
) -> Adapter:
    from limpet.adapters.storage import load_adapter

    adapter = load_adapter(folder)
    fitted, models = adapter.fitted, (old.gallery.fingerprint, new.gallery.fingerprint)
    sides = (fitted.target, fitted.source) if adapter.direction == "new_to_old" else (fitted.source, fitted.target)
    if sides == models:
        return adapter
    turned = sides == models[::-1]
    ways = [
        "exchange --old and --new: it was fitted the other way round" if turned else _renamed(sides, models),
        f"give the embeddings of its models, or fit another one: `{_fit_again(given_old, given_new)}`.",
    ]
    raise ConfigError(
        f"The adapter '{folder}' links the old model {sides[0]} and the new one {sides[1]}; "
        f"'{given_old.place}' is of {models[0]}, '{given_new.place}' of {models[1]}.",
        expected="an adapter that was fitted on these two models, in this order",
        to_do="; or ".join(way for way in ways if way is not None),
    )


def _renamed(wanted: tuple[str, str], found: tuple[str, str]) -> str | None:
    """Say how vectors without a model get the names that an adapter knows; None if one has a model.

    >>> _renamed(("declared:a", "declared:b"), ("declared:a", "declared:queries.npz"))
    "if these are vectors of 'b', say so: --new-name b"
    """
    prefix = "declared:"
    other = [
        (option, *pair)
        for option, *pair in zip(("--old-name", "--new-name"), wanted, found, strict=True)
        if pair[0] != pair[1]
    ]
    if not all(known.startswith(prefix) and given.startswith(prefix) for _, known, given in other):
        return None
    names = {option: known.removeprefix(prefix) for option, known, _ in other}
    models = " and ".join(f"'{name}'" for name in names.values())
    options = " ".join(f"{option} {shlex.quote(name)}" for option, name in names.items())
    return f"if these are vectors of {models}, say so: {options}"


def _fit_again(old: Given, new: Given) -> str:
    given = {"--old": old.whole, "--new": new.whole, "--old-name": old.said, "--new-name": new.said}
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    return shlex.join(["limpet", "adapt", *words])


def _cross_sides(adapter: Adapter, old: QueriesAndGallery, new: QueriesAndGallery) -> tuple[EmbeddingSet, EmbeddingSet]:
    if adapter.direction == "new_to_old":
        return adapter.apply(new.query), old.gallery
    items = adapter.fitted.trained_on
    return new.query if items is None else items.marked(new.query), adapter.apply(old.gallery)


def _record_of(adapter: Adapter) -> dict[str, object]:
    return {
        "kind": adapter.kind,
        "direction": adapter.direction,
        "options": adapter.options,
        "pairs": adapter.fitted.pairs,
        "fingerprint": adapter.fingerprint,
    }
