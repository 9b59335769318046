"""``holdfast recommend``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.cli.choices import data_root, open_data
from holdfast.cli.console import console, print_json, print_table
from holdfast.cli.parsing import parse
from holdfast.errors import refuse
from holdfast.reports.formats import MISSING

if TYPE_CHECKING:
    from holdfast.bench.cases import Case
    from holdfast.bench.recommend import Choice, Recommendation, Standing
    from holdfast.bench.regret import Worth
    from holdfast.bench.situation import Situation

ScenarioName = Literal[
    "extended-data", "extended-class", "open-data", "open-class",
    "enlarged-backbone-data", "enlarged-backbone-class", "new-architecture", "both",
]  # fmt: skip


def recommend(
    data: str | None = None,
    embeddings: Path | None = None,
    classes: int | None = None,
    images: int | None = None,
    old_classes: int | None = None,
    old_quality: float | None = None,
    scenario: ScenarioName = "extended-class",
    frozen: bool = False,
    unlabelled: bool = False,
    evidence: list[Path] = [],  # noqa: B006 - read only, shown as the default
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    json: bool = False,
) -> None:
    """Recommend a method and its options for your data, from what benches found on the data sets nearest to it.

    Of the methods that keep the new model's own quality (mean raw P_up of at least -0.05) that with the highest mean
    raw P_comp is taken, over the nearest data sets of the same scenario: those nearest in number of classes and in
    images per class. It says where that is thin evidence, which methods it cannot tell apart, and how the rule itself
    does on data sets left out of its evidence, beside chance and beside always taking the same method.

    Args:
        data: The training data, to be counted: a data set by name, a folder with one sub-folder of images per class,
            or a file of texts.
        embeddings: Instead, items by a frozen model: what `holdfast embed` wrote, or a .safetensors, .npz, .npy or
            .parquet file.
        classes: Instead, how many classes the new model is to learn.
        images: How many images there are of them.
        old_classes: How many classes the old model learnt, if known.
        old_quality: The old model's queries on its own gallery, from 0 to 1, if known.
        scenario: What the new model sees: extended-class (the old model's classes and more), extended-data (more images
            of them), open-class (other classes only), open-data (other images only), or with another backbone:
            enlarged-backbone-data, enlarged-backbone-class, new-architecture (of the same data), both.
        frozen: Both models stay as they are.
        unlabelled: The items have no classes.
        evidence: Documents of your own benches, to count beside those that come with holdfast.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set; label_column names the labels in a file of texts.
        json: Print one JSON document.
    """


def main(words: list[str]) -> int:
    """Print what is recommended, what it rests on, and what to type next."""
    from holdfast.bench.cases import shipped_evidence
    from holdfast.bench.recommend import plain
    from holdfast.bench.recommend import recommend as recommended
    from holdfast.bench.recommend_words import named_values
    from holdfast.bench.regret import regret, worth
    from holdfast.cli.recommend_commands import next_commands, not_in_commands

    arguments, _ = parse(recommend, words, "recommend")
    situation = _situation(arguments)
    evidence = shipped_evidence(arguments["evidence"])
    found = recommended(situation, evidence)
    judged = worth(regret(evidence)) if found.choice.table else None
    silent = dict(_silent(arguments["evidence"], situation))
    following = list(next_commands(found, arguments))
    if arguments["json"]:
        more = {"next": following, "not_in_next": not_in_commands(found), "not_counted": silent}
        of_rule = None if judged is None else {**vars(judged), "summaries": [one._asdict() for one in judged.summaries]}
        print_json({**plain(found), "worth": of_rule, **more})
        return 0
    for path, why in silent.items():
        console.print(f"'{path}' does not count: {why.rstrip('.')}.")
    _tell(found, judged)
    for command in following:
        console.print(f"next     {command}")
    if left := not_in_commands(found):
        console.print(f"No option of these commands sets {named_values(left)}, which was so in the bench.")
    return 0


def _silent(paths: Iterable[Path], situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield the user's documents that can say nothing of a situation, with the reason."""
    from holdfast.bench.cases import shipped_evidence

    for path in paths:
        cases = shipped_evidence([path], folder=path).cases  # no folder: this document alone
        usable = [case for case in cases if case.complete]
        if not situation.labelled:
            yield str(path), "all methods of benches learn from classes, and your items have none"
        elif not usable:
            yield str(path), _without_number(cases)
        elif situation.frozen and all(case.track != "features" for case in usable):
            yield str(path), "its models were trained as a whole, which says nothing of heads over frozen ones"


def _without_number(cases: Sequence[Case]) -> str:
    """Say why no label of any case has P_comp and P_up for every seed."""
    if any(case.track == "sessions" for case in cases):
        return (
            "it is of sessions, which have no old model and so no P_comp; methods are recommended by what they gain on "
            "an old model's gallery"
        )
    failures = [(name, outcome, case) for case in cases for name, outcome in case.outcomes.items()]
    if not failures:
        return "it has no runs of methods that align with an old model"
    (name, outcome, case), *_ = failures
    return f"none of its labels has P_comp and P_up for every seed; '{name.label}' on {case.words}: {outcome.failure}"


def _situation(arguments: Mapping[str, Any]) -> Situation:
    """Return what is known, counted from the data where it is given."""
    from holdfast.bench.situation import Situation

    given = _refuse_two(arguments)
    asked = Situation(
        **{name: arguments[name] for name in ("classes", "images", "old_classes", "old_quality", "scenario", "frozen")},
        labelled=not arguments["unlabelled"],
    )
    refuse(
        not given and asked.labelled and not asked.frozen,
        "Nothing was said of your data.",
        "--data DATA, --embeddings FILE, or --classes N --images N; or --frozen, or --unlabelled",
    )
    if arguments["data"] is not None:
        return _of_data(asked, arguments)
    return asked if arguments["embeddings"] is None else _of_embeddings(asked, arguments["embeddings"])


def _refuse_two(arguments: Mapping[str, Any]) -> list[str]:
    """Refuse sizes from more than one place; return the option that was given, if any."""
    sized = ["classes"] if arguments["classes"] is not None or arguments["images"] is not None else []
    given = [*(name for name in ("data", "embeddings") if arguments[name] is not None), *sized]
    wrong = len(given) > 1 or (arguments["images"] is not None and arguments["classes"] is None)
    written = [f"--{name}" for name in (*given, "images") if arguments[name] is not None]
    refuse(
        wrong,
        f"{' and '.join(written)}.",
        "--data, or --embeddings, or --classes with or without --images: one of three",
    )
    return given


def _of_embeddings(asked: Situation, path: Path) -> Situation:
    from holdfast.cli.adapt_sides import open_part

    found = open_part(path, cast=True, name=None)
    counted = None if found.labels is None else len(set(found.labels.tolist()))
    return replace(
        asked, frozen=True, classes=counted, images=len(found), labelled=asked.labelled and counted is not None
    )


def _of_data(asked: Situation, arguments: Mapping[str, Any]) -> Situation:
    """Count the images to train on, or the texts, whose models are frozen."""
    from holdfast.data.texts import load_texts

    name = arguments["data"]
    if not is_texts(name):
        images = open_data(name, arguments["data_root"], arguments["data_options"]).to_train_on()
        return replace(asked, classes=len(set(images.labels.tolist())), images=len(images))
    opened = load_texts(name, data_root(arguments["data_root"]), **arguments["data_options"])
    found = opened.parts()["train"] if hasattr(opened, "parts") else opened
    classes = None if found.labels is None else len(set(found.labels.tolist()))
    return replace(
        asked, frozen=True, classes=classes, images=len(found), labelled=asked.labelled and classes is not None
    )


def is_texts(data: str) -> bool:
    """Return whether data, by name or path, is texts: what is learnt of them is learnt over frozen models."""
    from holdfast.data.text_files import FILE_READERS
    from holdfast.data.texts import TEXT_DATASETS

    return data in TEXT_DATASETS or (Path(data).suffix in FILE_READERS and not Path(data).is_dir())


def _tell(found: Recommendation, judged: Worth | None) -> None:
    choice = found.choice
    if choice.table:
        _evidence_table(choice)
        _label_table(choice.table)
    console.print()
    first, *others = found.sentences
    console.print(first, style="bold")
    if judged is not None:
        console.print(judged.sentence, style="bold")
    for line in others:
        console.print(line)
    thin = [*found.thin, *([judged.detail] if judged is not None and judged.detail else [])]
    if thin:
        console.print("\nWhere the evidence is thin:", style="bold")
    for line in thin:
        console.print(f"- {line}")
    console.print()


def _evidence_table(choice: Choice) -> None:
    rows = []
    for case, far in choice.near.cases:
        size = (MISSING, MISSING) if case.facts is None else (f"{case.facts.classes:,}", f"{case.facts.per_class:,.3g}")
        factors = (MISSING if one is None else f"{one:.2g} ×" for one in (far.classes, far.per_class))
        rows.append([case.suite, case.data, case.scenario, *size, *factors, ", ".join(map(str, case.seeds))])
    columns = ["suite", "data", "scenario", "classes", "images a class", "of yours", "of yours a class", "seeds"]
    print_table("What it rests on, the nearest first", columns, rows)


def _label_table(table: Iterable[Standing]) -> None:
    from holdfast.bench.recommend_words import spread_words

    rows = [
        [
            *one.name, spread_words(one.p_comp), spread_words(one.p_up), _rank(one), str(one.best),
            MISSING if one.seconds is None else f"{one.seconds:,.0f}", _remark(one),
        ]
        for one in table
    ]  # fmt: skip
    columns = ["label", "method", "P_comp", "P_up", "rank", "best", "seconds", ""]
    print_table("Raw P: mean ± deviation over seeds (lowest to highest case)", columns, rows)


def _rank(one: Standing) -> str:
    return MISSING if one.rank is None else f"{one.rank:.2g}"


def _remark(one: Standing) -> str:
    if one.rank is None:
        return "P_up below −0.05"
    return "" if one.apart else "not told apart"
