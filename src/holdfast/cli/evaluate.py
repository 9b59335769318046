"""``holdfast evaluate``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.cli.choices import open_data, write_settings
from holdfast.cli.console import console, print_json
from holdfast.cli.evidence import Pictures, Sides, open_sides, write_evidence
from holdfast.cli.parsing import parse
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.adapters import Adapter
    from holdfast.evaluation.evidence import Evaluation


ADAPTER = "adapter"
"""What results call the map between two models."""
_NAMES = ("--old-model", "--new-model")


def evaluate(
    old: Path,
    new: Path,
    independent: Path | None = None,
    old_model: str | None = None,
    new_model: str | None = None,
    old_release: Path | None = None,
    adapter: Path | None = None,
    out: Path = Path("runs/evaluation"),
    metrics: list[str] = ["recall@1", "recall@5", "map", "map@r"],  # noqa: B006 - read only, shown as the default
    gate_metric: str = "map",
    gate: Literal["interval", "point"] = "interval",
    no_relevant: Literal["exclude", "zero"] = "exclude",
    resamples: int = 2000,
    resample: Literal["queries", "classes"] = "queries",
    cast: bool = False,
    data: str | None = None,
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure whether new queries can search the old gallery.

    The exit code is 0 only for the verdict "compatible".

    Args:
        old: Embeddings by the old model: what `holdfast embed` wrote (folder or file), or .npz, .npy or .parquet.
        new: The same items by the new model.
        independent: The same items by the new recipe trained without alignment, for P_up and P_comp.
        old_model: Name of the old model, for .npz, .npy and .parquet files, which carry none; their path when left out.
        new_model: The same of the new model. An adapter knows them by the names that `holdfast adapt` was given.
        old_release: The release of the old model: tells the report which classes it has seen, where embeddings carry
            their uncertainty.
        adapter: Folder of an adapter that `holdfast adapt` fitted on these two models: the cross-test then goes through
            it, so that their spaces and dimensions may differ. Where it maps the new queries (direction new_to_old), no
            upgrade curve is measured.
        out: Folder for results.json and report.html.
        metrics: recall@K, map, map@r, map@K.
        gate_metric: The metric that decides the verdict.
        gate: "interval": the whole interval of cross - self_old must be above 0; "point": the difference itself.
        no_relevant: What a query without any relevant item is worth.
        resamples: Bootstrap resamples for the intervals.
        resample: Draw queries, or whole classes, whose queries are correlated.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        data: The data set or folder that was embedded, to show example images in the report.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
        seed: Of the bootstrap, the random backfill orders and the choice of examples.
        json: Print one JSON document with all numbers.
    """


def main(words: list[str]) -> int:
    """Evaluate, write the report, and return 0 for "compatible" and 1 otherwise."""
    arguments, text = parse(evaluate, words, "evaluate")
    old, new = (
        open_sides(arguments[side], cast=arguments["cast"], name=arguments[f"{side}_model"]) for side in ("old", "new")
    )
    third = None if arguments["independent"] is None else open_sides(arguments["independent"], cast=arguments["cast"])
    _check_protocol(arguments, old, new, third)
    adapter = None if arguments["adapter"] is None else _adapter(arguments, old, new)
    classes = None if arguments["old_release"] is None else _classes(arguments["old_release"], old)
    images = None
    if arguments["data"] is not None:
        images = open_data(arguments["data"], arguments["data_root"], arguments["data_options"])
    cross = None if adapter is None else _cross(adapter, old, new)
    evaluation = _measured(arguments, (old, new, third), cross, classes)
    write_settings(arguments["out"], "evaluate.yaml", text)
    name = _name(arguments["new"], arguments["old"])
    link = {} if adapter is None else {ADAPTER: record_of(adapter)}
    document = write_evidence(
        {name: evaluation},
        old,
        {name: new},
        arguments["out"],
        title=f"Can {name} search the gallery of {_name(arguments['old'])}?",
        data=described(old, arguments["data"]),
        models={"old": model_of(old.gallery), name: model_of(new.gallery), **link},
        pictures=Pictures(images),
        seed=arguments["seed"],
        cross={} if cross is None else {name: cross},
        old_classes=classes,
    )
    if arguments["json"]:
        print_json({"schema_version": document["schema_version"], **document["evaluations"][name], **link})
    return 0 if evaluation.verdict == "compatible" else 1


def _measured(
    arguments: dict[str, Any],
    models: tuple[Sides, Sides, Sides | None],
    cross: tuple[EmbeddingSet, EmbeddingSet] | None,
    classes: tuple[str, ...] | None,
) -> Evaluation:
    from holdfast.evaluation.evaluate import evaluate as measure

    old, new, third = models
    names = ("metrics", "gate_metric", "gate", "no_relevant", "resamples", "resample", "seed")
    with console.status("evaluating"):
        return measure(
            *old,
            *new,
            independent_query=None if third is None else third.query,
            independent_gallery=None if third is None else third.gallery,
            cross=cross,
            exclude_same_id=old.leave_one_out,
            old_classes=classes,
            **{name: arguments[name] for name in names},
        )


def _name(path: Path, other: Path | None = None) -> str:
    """Return what people call these embeddings: their folder or file; "new" where that is the name of another part."""
    name = path.name if path.is_dir() else path.stem
    return "new" if name in ("old", ADAPTER) and other is not None else name


def _classes(folder: Path, old: Sides) -> tuple[str, ...]:
    """Return the classes that the old model has seen, from its release."""
    from holdfast.models.release import load_release

    release = load_release(folder)
    if release.fingerprint != old.gallery.fingerprint:
        raise ConfigError(
            f"'{folder}' has the fingerprint {release.fingerprint}, the old embeddings {old.gallery.fingerprint}.",
            expected="the release that made the old embeddings",
            to_do="give that release, or leave --old-release out.",
        )
    return release.classes


def _adapter(arguments: dict[str, Any], old: Sides, new: Sides) -> Adapter:
    """Open the adapter, and refuse one that was fitted on other models."""
    from holdfast.adapters.storage import load_adapter

    adapter = load_adapter(arguments["adapter"])
    fitted, models = adapter.fitted, (old.gallery.fingerprint, new.gallery.fingerprint)
    sides = (fitted.target, fitted.source) if adapter.direction == "new_to_old" else (fitted.source, fitted.target)
    if sides == models:
        return adapter
    turned = sides == models[::-1]
    ways = [
        "exchange --old and --new: it was fitted the other way round" if turned else _renamed(sides, models),
        f"give the embeddings of its models, or fit another one: `{_fit_again(arguments)}`.",
    ]
    raise ConfigError(
        f"The adapter '{arguments['adapter']}' links the old model {sides[0]} and the new one {sides[1]}; "
        f"'{arguments['old']}' is of {models[0]}, '{arguments['new']}' of {models[1]}.",
        expected="an adapter that was fitted on these two models, in this order",
        to_do="; or ".join(way for way in ways if way is not None),
    )


def _renamed(wanted: tuple[str, str], found: tuple[str, str]) -> str | None:
    """Say how vectors without a model get the names that an adapter knows; None if one has a model.

    >>> _renamed(("declared:a", "declared:b"), ("declared:a", "declared:queries.npz"))
    "if these are vectors of 'b', say so: --new-model b"
    """
    prefix = "declared:"
    other = [(option, *pair) for option, *pair in zip(_NAMES, wanted, found, strict=True) if pair[0] != pair[1]]
    if not all(known.startswith(prefix) and given.startswith(prefix) for _, known, given in other):
        return None
    names = {option: known.removeprefix(prefix) for option, known, _ in other}
    models = " and ".join(f"'{name}'" for name in names.values())
    options = " ".join(f"{option} {shlex.quote(name)}" for option, name in names.items())
    return f"if these are vectors of {models}, say so: {options}"


def _fit_again(arguments: dict[str, Any]) -> str:
    given = {f"--{key.replace('_', '-')}": arguments[key] for key in ("old", "new", "old_model", "new_model")}
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    return shlex.join(["holdfast", "adapt", *words])


def _cross(adapter: Adapter, old: Sides, new: Sides) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Return the queries and the gallery that meet in the cross-test."""
    if adapter.direction == "new_to_old":
        return adapter.apply(new.query), old.gallery
    return new.query, adapter.apply(old.gallery)


def record_of(adapter: Adapter) -> dict[str, Any]:
    """Return what results say of an adapter."""
    return {
        "kind": adapter.kind,
        "direction": adapter.direction,
        "options": adapter.options,
        "pairs": adapter.fitted.pairs,
        "fingerprint": adapter.fingerprint,
    }


def _check_protocol(arguments: dict[str, Any], old: Sides, *others: Sides | None) -> None:
    for sides in others:
        if sides is not None and sides.leave_one_out != old.leave_one_out:
            raise ConfigError(
                f"'{arguments['old']}' and the other embeddings follow different protocols: some have queries and a "
                "gallery, some one set that is both.",
                expected="one protocol for all models",
                to_do="embed the same images with all releases: holdfast embed --release OLD NEW ...",
            )


def described(sides: Sides, name: str | None) -> dict[str, Any]:
    """Return what the report says of the data."""
    classes = sides.gallery.class_names
    return {
        "name": name or "embeddings",
        "description": "every item is a query among all others" if sides.leave_one_out else "queries and a gallery",
        "numbers": {
            "queries": len(sides.query),
            "gallery items": len(sides.gallery),
            "classes": 0 if classes is None else len(classes),
        },
    }


def model_of(embeddings: EmbeddingSet) -> dict[str, Any]:
    """Return what a file of embeddings says of the model that made it."""
    return {"fingerprint": embeddings.fingerprint, "dim": embeddings.dim}
