"""What leaderboards say of data like a user's: a look-up of measured rows, and no rule that chooses for people.

A rule that took the best method of the nearest data sets did worse on data that it had not seen than always taking the
same method (benchmarks/results/recommend.md), so nothing is chosen here: rows are shown with what they rest on. Over
frozen models it would by now be right, or nearly, on three data sets (left_out.md, beside it); what leads there is what
`limpet adapt` compares on the user's own.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from pydantic import ValidationError

from limpet.bench.leaderboard import BenchRuns, Facts, Run
from limpet.errors import ConfigError, DataError, refuse, unknown_name
from limpet.methods import METHODS
from limpet.results import Part
from limpet.support.documents import read_json
from limpet.support.wording import counted, listed, whole_percent

SHIPPED = Path(__file__).parent / "evidence"
REFERENCES = frozenset({"independent"})
"""Methods that know no old model: what others are measured against, and never an upgrade."""
NEAREST = 3
"""Rows of so many data sets are shown, where there are as many."""
LEAST_P_UP = -0.05
"""A mean P_up below this costs the new model more than 5 % of its own quality."""
LEVEL = 0.95
ENOUGH = 3
"""Fewer data sets, or seeds, than this are called few."""
FAR = 10.0
"""A data set with so many times more or fewer classes, or images per class, is called far."""
FAR_SHARE = 2.0
"""The same of the share of the classes that the old model learnt."""
COMPARED = 4
"""So many methods are worth comparing on the user's own data."""

SCENARIO_KINDS: Mapping[str, str] = {
    "extended-data": "extended",
    "extended-class": "extended",
    "enlarged-backbone-data": "extended",
    "enlarged-backbone-class": "extended",
    "both": "extended",
    "open-data": "open",
    "open-class": "open",
    "new-architecture": "same",
}
"""What the new model sees: all that the old one saw and more, other data only, or the same."""


@dataclass(frozen=True)
class Situation:
    """What is known of a user's upgrade; None where something is not.

    Args:
        classes: Classes that the new model is to learn.
        images: Images, or other items, of these classes.
        old_classes: How many classes the old model learnt.
        old_quality: The old model's queries on its own gallery, from 0 to 1.
        scenario: Who sees what, a key of `SCENARIO_KINDS`.
        frozen: Whether both models stay as they are, and only a map or a head between them is learnt.
        labelled: Whether the items have classes.

    Raises:
        ConfigError: A number is out of range, or the scenario is unknown.
    """

    classes: int | None = None
    images: int | None = None
    old_classes: int | None = None
    old_quality: float | None = None
    scenario: str | None = None
    frozen: bool = False
    labelled: bool = True

    def __post_init__(self) -> None:
        for name in ("classes", "images", "old_classes"):
            value = getattr(self, name)
            refuse(value is not None and value < 1, f"{value} {name.replace('_', ' ')}.", "at least 1")
        if self.classes is not None and self.images is not None:
            given = f"{self.images} images of {self.classes} classes."
            refuse(self.images < self.classes, given, "one or more of each")
        quality = self.old_quality
        refuse(quality is not None and not 0 <= quality <= 1, f"An old quality of {quality}.", "from 0 to 1")
        if self.scenario is not None and self.scenario not in SCENARIO_KINDS:
            raise unknown_name("scenario", self.scenario, SCENARIO_KINDS)

    @property
    def kind(self) -> str:
        """The kind of benches that are like it: "features" for heads over frozen models, else "images"."""
        return "features" if self.frozen else "images"


class Interval(Part):
    """A mean over seeds with its 95 % interval, Student's; the ends are None for one seed, which tells none."""

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return mean and interval of one value or more.

        >>> Interval.of([0.0, 1.0, 2.0]).mean, round(Interval.of([0.0, 1.0, 2.0]).high, 3), Interval.of([1.0]).low
        (1.0, 3.484, None)
        """
        mean, several = float(np.mean(values)), len(values) > 1
        if not several:
            return cls(mean=mean, low=None, high=None)
        from scipy.special import stdtrit

        margin = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / math.sqrt(len(values)))
        return cls(mean=mean, low=mean - margin, high=mean + margin)


class MeasuredRow(Part):
    """What a label of a leaderboard came to in one place.

    Args:
        label: The label.
        method: The method that it stands for.
        options: Options of the method, as they were there.
        settings: Its own settings beside these, by dotted name, those that were chosen for it too.
        p_comp: Raw: what new queries gain on the old gallery; 0 is the old system, 1 all that is to be gained. None
            where it has no number for some seed.
        p_up: Raw: what compatibility costs the new model; below 0 is a loss. Likewise.
        seconds: Mean of its runs; None where none was timed.
        failure: Why it has no numbers; None where it has.
        gallery: What became of the old gallery, see `limpet.bench.leaderboard.Run`; None where that was not said.
    """

    label: str
    method: str
    options: dict[str, Any]
    settings: dict[str, Any]
    p_comp: Interval | None
    p_up: Interval | None
    seconds: float | None
    failure: str | None
    gallery: str | None

    @property
    def own_options(self) -> dict[str, object]:
        """The options that are not the method's own."""
        from limpet.methods.descriptions import describe

        defaults = describe(self.method).options if self.method in METHODS else {}
        return {name: value for name, value in self.options.items() if name not in defaults or defaults[name] != value}

    @property
    def keeps_quality(self) -> bool:
        """Whether its mean P_up is at least -0.05."""
        return self.p_up is not None and self.p_up.mean >= LEAST_P_UP - 1e-9


class Place(Part):
    """One data set in one scenario of one suite, with the rows of its leaderboard.

    Args:
        suite: Name of the suite.
        kind: "images", where models were trained, "features", where heads were, over frozen models, or "sessions".
        data: What was searched.
        trained_on: The data set that models were trained on.
        scenario: Who saw what.
        metric: What was measured.
        machine: Where, in words.
        facts: How large it is; None where the document does not say.
        seeds: Those that count: P_comp is defined.
        undefined: Seeds without any P_comp, since the independent model was not better than the old one.
        old_quality: The old model on its own gallery, mean over seeds; None where it is not said.
        rows: The highest P_comp first, those without numbers last; references are left out.
    """

    suite: str
    kind: str
    data: str
    trained_on: str
    scenario: str
    metric: str
    machine: str
    facts: Facts | None
    seeds: list[int]
    undefined: list[int]
    old_quality: float | None
    rows: list[MeasuredRow]

    @property
    def words(self) -> str:
        """What people call it."""
        return f"{self.data}, {self.scenario} ({self.suite})"

    @property
    def complete(self) -> list[MeasuredRow]:
        """The rows with numbers."""
        return [row for row in self.rows if row.failure is None]


class Answer(Part):
    """What is looked up.

    Args:
        situation: What was asked.
        places: The places most like it, the nearest first.
        cannot_tell: What their rows cannot tell, one sentence each.
        next: One command to type.
        not_in_next: The best labels that need a command of their own, for settings beside the options of their method.
    """

    situation: Situation
    places: list[Place]
    cannot_tell: list[str]
    next: str
    not_in_next: list[str]


def read_places(own: Sequence[Path] = (), *, folder: Path | None = SHIPPED) -> list[Place]:
    """Return the places of the leaderboards that come with the package, and of the user's own.

    Args:
        own: Further documents that `limpet bench` wrote.
        folder: Where the shipped documents are; None for none.

    Raises:
        ConfigError: A file cannot be read, or is no JSON.
        DataError: Something in a document is missing or of another type, or two runs are of the same label, data set,
            scenario and seed.
    """
    shipped = [] if folder is None else sorted(folder.glob("*.json"))
    return [place for path in (*shipped, *own) for place in places_of(_read(path), str(path))]


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise ConfigError(f"Cannot read '{path}': {error.strerror}.", expected="a JSON file of a bench") from error
    except ValueError as error:
        raise ConfigError(f"'{path}' is no valid JSON: {error}", expected="a JSON file of a bench") from error


def places_of(content: Any, where: str) -> list[Place]:
    """Return the places of a document of a bench.

    Raises:
        DataError: See `read_places`.
    """
    try:
        bench = BenchRuns.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        part = ".".join(map(str, first["loc"])) or "the document"
        raise DataError(
            f"In '{where}', {part}: {first['msg'][:1].lower()}{first['msg'][1:]}.",
            expected="a document that `limpet bench` wrote",
        ) from error
    runs_by_place: dict[tuple[str, str, str], list[Run]] = {}
    for run in bench.rows:
        runs_by_place.setdefault((run.data, run.trained_on or run.data, run.scenario), []).append(run)
    return [_place(bench, runs, where) for runs in runs_by_place.values()]


def _place(bench: BenchRuns, runs: Sequence[Run], where: str) -> Place:
    first, asked = runs[0], sorted({run.seed for run in runs})
    defined = {run.seed for run in runs if not math.isnan(run.number("p_comp"))}
    seeds = [seed for seed in asked if seed in defined]
    by_label: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs:
        of_label = by_label.setdefault((run.label, run.method), {})
        if run.seed in of_label:
            raise DataError(
                f"In '{where}', two runs of {run.label}, {run.data}, {run.scenario} with seed {run.seed}.",
                expected="one",
            )
        of_label[run.seed] = run
    rows = [_row(of_label, seeds) for (_, method), of_label in by_label.items() if method not in REFERENCES]
    return Place(
        suite=bench.suite.name,
        kind=bench.suite.kind,
        data=first.data,
        trained_on=first.trained_on or first.data,
        scenario=first.scenario,
        metric=first.metric,
        machine=bench.machine,
        facts=(bench.facts or bench.suite.facts).get(first.data, {}).get(first.scenario),
        seeds=seeds,
        undefined=[seed for seed in asked if seed not in defined],
        old_quality=_mean((run.scores or {}).get("self_old") for run in runs),
        rows=sorted(rows, key=lambda row: math.inf if row.p_comp is None else -row.p_comp.mean),
    )


def _row(runs: Mapping[int, Run], seeds: Sequence[int]) -> MeasuredRow:
    first, failure = next(iter(runs.values())), _failure(runs, seeds)
    chosen = {name: value for name, value in first.changes.items() if not name.startswith("options.")}
    p_comp, p_up = (
        None if failure is not None else Interval.of([runs[seed].number(name) for seed in seeds])
        for name in ("p_comp", "p_up")
    )
    return MeasuredRow(
        label=first.label,
        method=first.method,
        options=first.options,
        settings={**first.settings, **chosen},
        p_comp=p_comp,
        p_up=p_up,
        seconds=_mean(run.seconds for run in runs.values() if not run.failure),
        failure=failure,
        gallery=first.gallery,
    )


def _failure(runs: Mapping[int, Run], seeds: Sequence[int]) -> str | None:
    """Return why a label has no number for some seed that counts."""
    if not seeds:
        return next((run.failure for run in runs.values() if run.failure), "P_comp is not defined")
    for seed in seeds:
        if seed not in runs:
            return f"it was not run with seed {seed}"
        if reason := runs[seed].failure:
            return f"with seed {seed}: {reason}"
        for name, words in (("p_comp", "P_comp"), ("p_up", "P_up")):
            if math.isnan(runs[seed].number(name)):
                return f"it has no {words} with seed {seed}"
    return None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def look_up(
    situation: Situation, places: Iterable[Place], *, data: str | None = None, embeddings: str | None = None
) -> Answer:
    """Return the rows of the places that are most like a user's data.

    Those of the same kind; of these those of the nearest scenario (the same, one of the same kind, any); of these the
    `NEAREST` data sets in size: doublings from one number of classes to the other, and of images per class.

    Args:
        situation: What is known of the data.
        places: What was measured.
        data: The user's data set, for the command.
        embeddings: Vectors of a frozen model, likewise.
    """
    alike = [place for place in places if situation.labelled and place.kind == situation.kind and place.complete]
    steps = [_scenario_step(situation, place) for place in alike]
    near = [place for place, step in zip(alike, steps, strict=True) if step == min(steps)]
    near.sort(key=lambda place: _doublings(situation, place))
    nearest = list(dict.fromkeys(place.trained_on for place in near))[:NEAREST]
    shown = [place for place in near if place.trained_on in nearest]
    leading, compared = ([], []) if situation.frozen else (list(leading_rows(shown)), compared_rows(shown))
    last = leading.index(compared[-1]) if compared else len(leading)
    return Answer(
        situation=situation,
        places=shown,
        cannot_tell=list(_cannot_tell(situation, shown)),
        next=_command(situation, shown, data, embeddings),
        not_in_next=list(dict.fromkeys(row.label for row in leading[:last] if row.settings)),
    )


def _scenario_step(situation: Situation, place: Place) -> int:
    """Return 0 for the same scenario, 1 for one of its kind, 2 for another; frozen models have seen what they have."""
    wanted = None if situation.frozen else situation.scenario
    if wanted in (None, place.scenario):
        return 0
    return 1 if SCENARIO_KINDS.get(str(wanted)) == SCENARIO_KINDS.get(place.scenario) else 2


def _factors(situation: Situation, facts: Facts | None) -> list[float]:
    """Return classes and images per class of a place, divided by those of the situation, where both are known."""
    if facts is None or situation.classes is None:
        return []
    factors = [facts.classes / situation.classes]
    if situation.images is not None:
        factors.append(facts.per_class / (situation.images / situation.classes))
    return factors


def _doublings(situation: Situation, place: Place) -> float:
    if situation.classes is not None and place.facts is None:
        return math.inf
    return sum(abs(math.log2(factor)) for factor in _factors(situation, place.facts))


def _cannot_tell(situation: Situation, places: Sequence[Place]) -> Iterator[str]:
    if not situation.labelled:
        yield "Every method of the leaderboards learns from classes, and your items have none."
    if not places:
        yield "No leaderboard is of data like yours: compare on your own."
        return
    data = list(dict.fromkeys(place.trained_on for place in places))
    if situation.frozen:
        yield "The order of methods on your data; what led on two of three data sets led on the third, or nearly."
    else:
        yield "The order of methods on your data: what leads on one of the measured data sets does not on the next."
    if len(data) < ENOUGH:
        yield f"They rest on {counted(len(data), 'data set')} ({listed(data)})."
    seeds = min(len(place.seeds) for place in places)
    if seeds < ENOUGH:
        yield f"Some of it was run with {counted(seeds, 'seed')} only."
    for place in places:
        if place.undefined:
            yield (
                f"{place.words}: {counted(len(place.undefined), 'seed')} did not count, since the new recipe alone was "
                "no better than the old model, and P_comp is not defined."
            )
    metrics = sorted({place.metric for place in places})
    if len(metrics) > 1:
        yield f"They were measured by different metrics: {listed(metrics)}."
    if _scenario_step(situation, places[0]):
        kind = "one of the same kind" if _scenario_step(situation, places[0]) == 1 else "one of another kind"
        measured = listed(sorted({place.scenario for place in places}))
        yield f"None of them is of the scenario '{situation.scenario}'; they are of {measured}, {kind}."
    if situation.classes is None:
        yield "How large your data is was not said, so data sets of all sizes count alike."
    elif places[0].facts is None:
        yield f"It is not known how large {places[0].trained_on} is."
    elif any(max(factor, 1 / factor) > FAR for factor in _factors(situation, places[0].facts)):
        own = f"{situation.classes:,} classes"
        if situation.images is not None:
            own = size_words(Facts(images=situation.images, classes=situation.classes))
        found = size_words(places[0].facts)
        yield f"The nearest data set, {places[0].trained_on}, is far in size: {found}, yours {own}."
    yield from _old_models(situation, places)


def _old_models(situation: Situation, places: Sequence[Place]) -> Iterator[str]:
    known = [place.old_quality for place in places if place.old_quality is not None]
    quality, facts = situation.old_quality, places[0].facts
    if quality is not None and known and not min(known) <= quality <= max(known):
        ends = " to ".join(sorted({f"{value:.3f}" for value in (min(known), max(known))}))
        yield (
            f"Your old model reaches {quality:.3f}, those that were measured {ends} ({places[0].metric}): a better old "
            "model leaves less to gain, a worse one holds the new one back more."
        )
    if situation.old_classes and situation.classes and facts is not None and facts.old_classes:
        own, theirs = situation.old_classes / situation.classes, facts.old_classes / facts.classes
        if max(own / theirs, theirs / own) > FAR_SHARE:
            yield (
                f"Your old model learnt {whole_percent(own)} as many classes as the new one is to, that of "
                f"{places[0].trained_on} {whole_percent(theirs)}."
            )


def _command(situation: Situation, places: Sequence[Place], data: str | None, embeddings: str | None) -> str:
    """Return what compares on the user's own data what the rows speak for."""
    if situation.frozen or not situation.labelled:
        if data is not None:
            sides = ["--texts", data, "--old-text-model", "OLD", "--text-model", "NEW"]
        else:
            sides = ["--old", "OLD", "--new", embeddings or "NEW"]
        return shlex.join(["limpet", "adapt", *sides, "--out", "adapted", "--auto"])
    scenario = situation.scenario or "extended-class"
    words = ["limpet", "train", "--data", data or "DATA", "--scenario", scenario, "--method"]
    rows = compared_rows(places)
    methods = [row.method for row in rows] or ["bct", "p2s"]
    options = [
        word
        for row in rows
        for name, value in row.own_options.items()
        for option in [f"{row.method}.{name}" if len(rows) > 1 else name]
        for word in (f"--method-options.{option.replace('_', '-')}", option_word(value))
    ]
    return shlex.join([*words, *methods, *options, "--out", "comparison"])


def leading_rows(places: Iterable[Place]) -> Iterator[MeasuredRow]:
    """Yield the rows that keep P_up: the highest P_comp of every place, then the second one, and so on."""
    by_place = [[row for row in place.complete if row.keeps_quality] for place in places]
    for rank in range(max(map(len, by_place), default=0)):
        yield from (rows[rank] for rows in by_place if rank < len(rows))


def compared_rows(places: Iterable[Place]) -> list[MeasuredRow]:
    """Return a few leading rows that one command trains: of different methods of one space, without own settings."""
    rows: list[MeasuredRow] = []
    for row in leading_rows(places):
        if row.settings or row.method not in METHODS or row.method in {other.method for other in rows}:
            continue
        if frozenset.intersection(*(METHODS[other.method].spaces for other in (*rows, row))):
            rows.append(row)
    return rows[:COMPARED]


def option_word(value: Any) -> str:
    """Write a value so that the command line reads it back as what it is.

    >>> [option_word(value) for value in ("mlp", 0.3, 1e-05, True, None, [1, 2], "0.5")]
    ['mlp', '0.3', '1.0e-05', 'true', 'null', '[1, 2]', "'0.5'"]
    """
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def size_words(facts: Facts) -> str:
    """Write how large data is.

    >>> size_words(Facts(images=19280, classes=964))
    '964 classes of 20 images'
    """
    return f"{facts.classes:,} classes of {facts.per_class:,.3g} images"
