"""``holdfast evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.cli.choices import data_root, guards_of, open_data, write_settings
from holdfast.cli.console import console, print_json, print_table
from holdfast.cli.evaluate_adapter import ADAPTER, adapter_between, cross_sides, record_of
from holdfast.cli.evaluate_alone import handed_over
from holdfast.cli.evaluate_sides import needed_sides, protocol_of, sides_of
from holdfast.cli.evidence import Pictures, Sides, refuse_no_labels, write_evidence
from holdfast.cli.pages import Report, check_report
from holdfast.cli.parsing import parse
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, refuse, unknown_name
from holdfast.evaluation.protocols import PROTOCOLS, Protocol
from holdfast.options import option_types
from holdfast.reports.formats import MISSING

if TYPE_CHECKING:
    from holdfast.evaluation.results import Evaluation
    from holdfast.results import Data


FEWEST_RESAMPLES = 40
LARGE_CURVE = 500_000_000
"""Queries times items above which the upgrade curve is measured only where it is asked for."""


def evaluate(
    old: Path | None = None,
    new: Path | None = None,
    independent: Path | None = None,
    old_query: Path | None = None,
    old_gallery: Path | None = None,
    new_query: Path | None = None,
    new_gallery: Path | None = None,
    independent_query: Path | None = None,
    independent_gallery: Path | None = None,
    old_model: str | None = None,
    new_model: str | None = None,
    independent_model: str | None = None,
    old_release: Path | None = None,
    new_release: Path | None = None,
    adapter: Path | None = None,
    similarity: Literal["cosine", "inner-product", "euclidean"] | None = None,
    protocol: str | None = None,
    ground_truth: Path | None = None,
    relevant: Path | None = None,
    protocol_options: dict[str, Any] = {},  # noqa: B006 - read only
    combine: list[Path] = [],  # noqa: B006
    metric: str | None = None,
    chain: list[Path] = [],  # noqa: B006
    chain_independent: list[Path] = [],  # noqa: B006
    old_baseline: Literal["own", "independent"] | None = None,
    out: Path = Path("runs/evaluation"),
    metrics: list[str] = [],  # noqa: B006
    gate_metric: str | None = None,
    gate: Literal["interval", "point"] = "interval",
    guard: list[str] = [],  # noqa: B006
    no_guard: bool = False,
    no_relevant: Literal["exclude", "zero"] | None = None,
    resamples: int = 2000,
    resample: Literal["auto", "queries", "classes"] = "auto",
    curve: Literal["auto", "yes", "no"] = "auto",
    device: str = "cpu",
    cast: bool = False,
    vector_column: list[str] = [],  # noqa: B006
    id_column: list[str] = [],  # noqa: B006
    label_column: list[str] = [],  # noqa: B006
    data: str | None = None,
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    texts: str | None = None,
    seed: int = 0,
    report: Report | None = None,
    json: bool = False,
) -> None:
    """Measure whether new queries can search the old gallery.

    The exit code is 0 only for the verdict "compatible".

    Args:
        old: Embeddings by the old model: what `holdfast embed` wrote (folder or file), or .npz, .npy or .parquet.
        new: The same items by the new model.
        independent: The same items by the new recipe trained without alignment, for P_up and P_comp.
        old_query: Queries alone, in place of --old; with --old-gallery. The same file twice makes every item a query
            among all others.
        old_gallery: The gallery that goes with them.
        new_query: The same for the new model.
        new_gallery: The same.
        independent_query: The same for the independent model.
        independent_gallery: The same.
        old_model: Name of the old model, for .npz, .npy and .parquet files, which carry none; their path when left out.
        new_model: The same of the new model. An adapter knows them by the names that `holdfast adapt` was given.
        independent_model: The same of the independent model.
        old_release: The release that made the old embeddings, which must carry its fingerprint; tells the report which
            classes it has seen, where embeddings carry their uncertainty.
        new_release: The release that made the new embeddings, which must carry its fingerprint.
        adapter: Folder of an adapter that `holdfast adapt` fitted on these two models: the cross-test then goes through
            it, so that their spaces and dimensions may differ. Where it maps the new queries (direction new_to_old), no
            upgrade curve is measured.
        similarity: How vectors of .npz, .npy and .parquet files are compared; by the cosine when left out.
        protocol: Who answers what, and what is averaged; `holdfast evaluate --protocol list` shows them. By label when
            left out.
        ground_truth: The file or folder of the protocol's ground truth.
        relevant: Pairs of a query and an item that answers it, .parquet or .csv with the columns query and item, such
            as clicks. Short for --protocol relevance --ground-truth.
        protocol_options: Options of the protocol.
        combine: Folders of earlier evaluations of one upgrade on several test sets, to put side by side with P metrics
            per set and on average; nothing is measured again. The exit code is 0 only if every set is compatible.
        metric: The metric of all sets of --combine; each set's own gate metric when left out.
        chain: Embeddings of the same items by several models, oldest first: every model's queries search every
            earlier gallery. The exit code is 0 only if no pair is incompatible.
        chain_independent: The same items by the recipe of every model of --chain but the first, trained without
            alignment, for P_up and P_comp.
        old_baseline: Which reading of the old model comes first in P_comp of a chain: its "own" model, or the
            "independent" one; both are shown.
        out: Folder for results.json and report.html.
        metrics: What to measure, such as recall@K, map, map@r, map@K; the protocol's own choice when left out.
        gate_metric: The metric that decides the verdict; the protocol's own when left out.
        gate: "interval": the whole interval of cross - self_old must be above 0; "point": the difference itself.
        guard: Metrics, such as recall@1,recall@5, that must not be clearly worse than today (their whole interval of
            cross - self_old below 0), whatever the gate metric says; every metric and the first hit when left out, of a
            chain the first hit alone.
        no_guard: Let the gate metric alone decide.
        no_relevant: What a query without any relevant item is worth; the protocol's own rule when left out.
        resamples: Bootstrap resamples for the intervals.
        resample: Draw queries, or whole classes, whose queries are correlated; "auto" draws classes where several
            queries share one.
        curve: Whether to measure how search fares while the gallery is embedded anew; "auto" leaves it out of large
            evaluations, of which it would be by far the longest part.
        device: Where to rank: cpu, cuda, cuda:1, mps.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        vector_column: What .npz and .parquet files call the vectors, where it is not "vectors" and "vector"; of several
            names the first counts that a file has.
        id_column: The same of the ids, "ids" and "id".
        label_column: The same of the labels, "labels" and "label".
        data: The data set or folder that was embedded, to show example images in the report.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
        texts: What the items are, to show beside their ids in the report: a .csv, .parquet or .jsonl file with a column
            of ids and further columns (text, title, price, ...), a .txt file of texts, or texts by name (clinc150).
            Further columns of files of embeddings are shown as they are.
        seed: Of the bootstrap, the random backfill orders and the choice of examples.
        report: Whether to write the page report.html: html or none. When left out it is written where its packages are
            installed (`pip install 'holdfast[report]'`).
        json: Print one JSON document with all numbers.
    """


def main(words: list[str]) -> int:
    """Evaluate, write the report, and return 0 for "compatible" and 1 otherwise."""
    arguments, text = parse(evaluate, words, "evaluate")
    from holdfast.data.item_facts import facts_of  # help is printed without it

    if arguments["protocol"] == "list":
        return _list_protocols(arguments["json"])
    _check_protocol_name(arguments["protocol"])
    check_report(arguments["report"])
    done = handed_over(arguments, text)
    if done is not None:
        return done
    few = arguments["resamples"] < FEWEST_RESAMPLES
    refuse(few, f"--resamples {arguments['resamples']}.", f"at least {FEWEST_RESAMPLES}: an interval of less is chance")
    old, new, third = _opened(arguments)
    protocol = protocol_of(arguments, old.leave_one_out)
    _check_protocol(arguments, old, new, third)
    adapter = None if arguments["adapter"] is None else adapter_between(arguments, old, new)
    classes = None if arguments["old_release"] is None else _classes(arguments["old_release"], "old", old)
    if arguments["new_release"] is not None:
        _classes(arguments["new_release"], "new", new)
    facts = facts_of(arguments["texts"], data_root(arguments["data_root"]), [*old, *new])
    images = None
    if arguments["data"] is not None:
        images = open_data(arguments["data"], arguments["data_root"], arguments["data_options"])
    cross = None if adapter is None else cross_sides(adapter, old, new)
    evaluation = _measured(arguments, (old, new, third), protocol, cross, classes)
    write_settings(arguments["out"], "evaluate.yaml", text)
    name = _name(arguments, "new")
    link = {} if adapter is None else {ADAPTER: record_of(adapter)}
    results = write_evidence(
        {name: evaluation},
        old,
        {name: new},
        arguments["out"],
        title=f"Can {name} search the gallery of {_name(arguments, 'old')}?",
        data=described(old, arguments["data"], protocol.units),
        models={"old": model_of(old.gallery), name: model_of(new.gallery), **link},
        pictures=Pictures(images),
        seed=arguments["seed"],
        cross={} if cross is None else {name: cross},
        old_classes=classes,
        protocol=protocol,
        report=arguments["report"],
        facts=facts,
    )
    if arguments["json"]:
        print_json({"schema_version": results.schema_version, **results.evaluations[name].to_dict(), **link})
    return 0 if evaluation.verdict == "compatible" else 1


def _opened(arguments: dict[str, Any]) -> tuple[Sides, Sides, Sides | None]:
    with console.status("reading embeddings"):
        found = needed_sides(arguments, "old"), needed_sides(arguments, "new"), sides_of(arguments, "independent")
    refuse_no_labels(arguments["label_column"], [side for sides in found if sides is not None for side in sides])
    return found


def _list_protocols(as_json: bool) -> int:
    """Show every protocol with its metrics and what it needs."""
    if as_json:
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


def _check_protocol_name(name: str | None) -> None:
    if name is not None and name not in PROTOCOLS:
        raise unknown_name("protocol", name, PROTOCOLS, listing="holdfast evaluate --protocol list")


def _measured(
    arguments: dict[str, Any],
    models: tuple[Sides, Sides, Sides | None],
    protocol: Protocol,
    cross: tuple[EmbeddingSet, EmbeddingSet] | None,
    classes: tuple[str, ...] | None,
) -> Evaluation:
    from holdfast.evaluation.evaluate import evaluate as measure

    old, new, third = models
    names = ("gate_metric", "gate", "resamples", "resample", "seed")
    curve = arguments["curve"] == "yes" or (
        arguments["curve"] == "auto" and len(old.query) * len(old.gallery) <= LARGE_CURVE
    )
    with console.status("evaluating"):
        return measure(
            *old,
            *new,
            independent_query=None if third is None else third.query,
            independent_gallery=None if third is None else third.gallery,
            cross=cross,
            protocol=protocol,
            metrics=arguments["metrics"] or None,
            old_classes=classes,
            curve=curve,
            guards=guards_of(arguments),
            device=None if arguments["device"] == "cpu" else arguments["device"],
            **{name: arguments[name] for name in names},
        )


def _name(arguments: dict[str, Any], model: str) -> str:
    """Return what people call a model: its name, the folder or file of its embeddings, or just "old" and "new"."""
    path, name = arguments[model], arguments[f"{model}_model"]
    found: str = name or (model if path is None else path.name if path.is_dir() else path.stem)
    return "new" if model == "new" and found in ("old", ADAPTER) else found


def _classes(folder: Path, model: str, sides: Sides) -> tuple[str, ...]:
    """Return the classes that a model has seen, from its release; refuse a release that made other embeddings."""
    from holdfast.models.release import load_release

    release = load_release(folder)
    if release.fingerprint != sides.gallery.fingerprint:
        raise ConfigError(
            f"'{folder}' has the fingerprint {release.fingerprint}, "
            f"the {model} embeddings {sides.gallery.fingerprint}.",
            expected=f"the release that made the {model} embeddings",
            to_do=f"give that release, or leave --{model}-release out.",
        )
    return release.classes


def _check_protocol(arguments: dict[str, Any], old: Sides, *others: Sides | None) -> None:
    path = arguments["old"] or arguments["old_gallery"]
    for sides in others:
        if sides is not None and sides.leave_one_out != old.leave_one_out:
            raise ConfigError(
                f"'{path}' and the other embeddings follow different protocols: some have queries and a gallery, "
                "some one set that is both.",
                expected="one protocol for all models",
                to_do="embed the same images with all releases: holdfast embed --release OLD NEW ...",
            )


def described(sides: Sides, name: str | None, units: str = "queries") -> Data:
    """Return what the report says of the data."""
    from holdfast.results import Data

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


def model_of(embeddings: EmbeddingSet) -> dict[str, Any]:
    """Return what a file of embeddings says of the model that made it."""
    return {"fingerprint": embeddings.fingerprint, "dim": embeddings.dim}
