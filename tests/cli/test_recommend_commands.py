"""The commands that a recommendation ends with are real ones, and set what the bench had set."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench.cases import Evidence
from holdfast.bench.recommend import plain
from holdfast.bench.recommend import recommend as recommended
from holdfast.bench.situation import Situation
from holdfast.cli import main
from holdfast.cli.adapt import adapt
from holdfast.cli.parsing import parse
from holdfast.cli.recommend import recommend
from holdfast.cli.recommend_commands import next_commands, not_in_commands
from holdfast.cli.train import train

COMMANDS = {"train": train, "adapt": adapt}
HYPERBOLIC = {"geometry.lift_old": 1.0, "head": "lorentz", "model.projection": "linear-bn", "recipe.learning_rate": 0.3}
HEAD = {"metric": "map", "scores": {}}
Row = Mapping[str, Any]


def found_of(*rows: Row, track: str = "images") -> Any:
    """Return what is recommended where these are all labels that were run, none told apart by its one seed."""
    every = [
        {"data": "exotic", "scenario": "extended-class", "seed": 0, "p_comp": 9.0 - place, "p_up": 0.0, **HEAD, **row}
        for place, row in enumerate(rows)
    ]
    suite = {"name": "mine", "title": "", "description": "", "metric": "map", "kind": track}
    evidence = Evidence.of([("a test", {"suite": suite, "rows": every})])
    return recommended(Situation(classes=7, images=700, frozen=track == "features"), evidence)


def row(label: str, method: str | None = None, **more: Any) -> dict[str, Any]:
    return {"label": label, "method": method or label, **more}


def commands(found: Any, *words: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the commands that are printed, and the arguments that the real parser makes of them."""
    arguments, _ = parse(recommend, words, "recommend")
    split = [shlex.split(line) for line in next_commands(found, arguments)]
    assert all(words[0] == "holdfast" for words in split)
    return [(name, parse(COMMANDS[name], words, name)[0]) for _, name, *words in split]


def value_of(arguments: Mapping[str, Any], path: str) -> Any:
    return reduce(
        lambda at, name: at[name] if isinstance(at, Mapping) else getattr(at, name), path.split("."), arguments
    )


EVERY: list[tuple[str, Any, str, Any]] = [  # setting of a bench, its value, argument of the command, its value
    ("model.backbone", "resnet18", "backbone", "resnet18"),
    ("model.dim", 64, "dim", 64),
    ("model.projection", "mlp", "projection", "mlp"),
    ("model.zeta", 1.2, "zeta", 1.2),
    ("model.mean", [0.1, 0.2, 0.3], "mean", [0.1, 0.2, 0.3]),
    ("model.std", [0.25], "std", [0.25]),
    ("model.backbone_options", {"filters": 16}, "backbone_options.filters", 16),
    ("model.backbone_options.filters", 16, "backbone_options.filters", 16),
    ("geometry.space", "lorentz", "space", "lorentz"),
    ("geometry.curvature", 0.5, "curvature", 0.5),
    ("geometry.learn_curvature", True, "learn_curvature", True),
    ("geometry.lift_old", 1.0, "lift_old", 1.0),
    ("head", "lorentz", "head", "lorentz"),
    ("head_options", {"scale": 32.0, "margin": 0.25}, "head_options.margin", 0.25),
    ("head_options.bias", True, "head_options.bias", True),
    ("head_options.triplet", {"weight": 1.0e-5}, "head_options.triplet.weight", 1.0e-5),
    ("weights", "faces", "weights", Path("root/weights/faces")),
    ("recipe.learning_rate", 0.3, "recipe.learning_rate", 0.3),
    ("recipe.weight_decay", 1.0e-5, "recipe.weight_decay", 1.0e-5),
    ("recipe.optimizer", "adamw", "recipe.optimizer", "adamw"),
    ("recipe.nesterov", True, "recipe.nesterov", True),
    ("recipe.milestones", [3, 5], "recipe.milestones", (3, 5)),
    ("recipe.clip_norm", 5.0, "recipe.clip_norm", 5.0),
    ("recipe.items_per_class", 4, "recipe.items_per_class", 4),
    ("recipe.augmentation", {"crop_padding": 4, "flip": True}, "recipe.augmentation.flip", True),
    ("recipe.augmentation.crop_padding", 4, "recipe.augmentation.crop_padding", 4),
]


@pytest.mark.parametrize(("setting", "value", "argument", "expected"), EVERY)
def test_every_setting_of_a_row_is_an_option_of_train(setting: str, value: Any, argument: str, expected: Any) -> None:
    found = found_of(row("p2s", settings={setting: value}))
    ((name, arguments),) = commands(found, "--classes", "7", "--data_root", "root")
    assert name == "train" and arguments["old"] == Path("RELEASE") and value_of(arguments, argument) == expected
    assert plain(found)["settings"] == {setting: value} and not_in_commands(found) == {}


@pytest.mark.parametrize(
    ("option", "value"), [("weight", 1.0e-5), ("classes", "new"), ("flag", True), ("none", None), ("many", [1, 2])]
)
def test_options_of_a_method_keep_their_type(option: str, value: Any) -> None:
    ((_, arguments),) = commands(found_of(row("p2s", options={option: value})))
    assert arguments["method_options"] == {option: value}


def test_a_head_that_was_the_best_is_a_command_of_adapt() -> None:
    settings = {"model.projection": "mlp", "recipe.epochs": 10, "head": "lorentz", "head_options.scale": 9.5}
    found = found_of(row("p2s, two layers", "p2s", options={"weight": 3.0}, settings=settings), track="features")
    (_, everything), (name, arguments) = commands(found, "--frozen")
    assert everything["auto"] and name == "adapt" and everything["out"] != arguments["out"]
    assert (arguments["method"], arguments["method_options"]) == (["p2s"], {"weight": 3.0})
    assert (arguments["projection"], arguments["recipe"].epochs, arguments["head"]) == ("mlp", 10, "lorentz")
    assert arguments["head_options"] == {"scale": 9.5}
    assert any("model.projection mlp" in sentence for sentence in found.sentences)


def test_what_no_option_sets_is_named_but_not_what_is_so_anyway() -> None:
    usual = {"start": "ridge", "model.channels": 1, "model.image_size": 28, "model.fit": "squash"}
    assert not_in_commands(found_of(row("p2s", settings=usual))) == {}
    random = found_of(row("p2s", settings={**usual, "start": "random", "geometry.lift_old": 2.0}), track="features")
    assert not_in_commands(random) == {"start": "random", "geometry.lift_old": 2.0}
    assert len(commands(random, "--frozen")) == 2


def test_what_was_chosen_by_tuning_is_set_and_said_and_the_defaults_are_not() -> None:
    changes = {"recipe.learning_rate": 0.3, "options.weight": 2.0}
    settings = {"recipe.learning_rate": 0.1, "recipe.epochs": 30, "model.projection": None}  # the last two: defaults
    found = found_of(row("p2s", changes=changes, options={"weight": 2.0}, settings=settings))
    arguments, _ = parse(recommend, ["--classes", "7"], "recommend")
    (line,) = next_commands(found, arguments)
    assert line.endswith("--method_options.weight 2.0 --recipe.learning_rate 0.3 --out runs")
    assert any(
        sentence.startswith("On exotic it was trained with recipe.learning_rate 0.3, ch")
        for sentence in found.sentences
    )


def test_rivals_share_a_command_only_where_they_share_their_settings() -> None:
    rows = [
        row("p2s", options={"weight": 2.0}), row("hbct", settings=HYPERBOLIC), row("bct", options={"weight": 5.0}),
        row("p2s, two layers", "p2s", settings={"model.projection": "mlp"}),
    ]  # fmt: skip
    first, together, lifted, layers = (arguments for _, arguments in commands(found_of(*rows), "--classes", "7"))
    assert first["method"] == ["p2s"] and first["projection"] is None
    assert together["method"] == ["p2s", "bct"] and together["scenario"] == "extended-class"
    assert together["method_options"] == {"p2s": {"weight": 2.0}, "bct": {"weight": 5.0}}
    assert lifted["method"] == ["hbct"] and (lifted["lift_old"], lifted["head"]) == (1.0, "lorentz")
    assert lifted["old"] == Path("RELEASE") and lifted["scenario"] is None  # an old model to lift has to be there
    assert layers["method"] == ["p2s"] and layers["projection"] == "mlp" and layers["method_options"] == {}
    assert len({arguments["out"] for arguments in (first, together, lifted, layers)}) == 4


def test_two_labels_of_a_method_are_two_commands() -> None:
    rows = [row("light", "p2s", options={"weight": 0.1}), row("heavy", "p2s", options={"weight": 9.0})]
    _, *compared = (arguments for _, arguments in commands(found_of(*rows), "--classes", "7"))
    assert [arguments["method_options"] for arguments in compared] == [{"weight": 0.1}, {"weight": 9.0}]


def test_without_evidence_two_methods_are_compared() -> None:
    ((_, arguments),) = commands(recommended(Situation(classes=7), Evidence()), "--classes", "7")
    assert arguments["method"] == ["bct", "p2s"] and arguments["data"] == "DATA"


def test_settings_that_differ_between_cases_are_said() -> None:
    rates = {"first": {"recipe.learning_rate": 0.3}, "second": {"recipe.learning_rate": 1.0}, "third": {}}
    rows = [row("p2s", data=data, settings=settings, p_comp=0.5) for data, settings in rates.items()]
    said = " ".join(found_of(*rows).sentences)
    assert "recipe.learning_rate was 0.3 on first, 1.0 on second, not set on third: try more than one" in said


def test_the_printed_command_for_hbct_trains(made: Path, tmp_path: Path) -> None:
    quick = {"model.dim": 16, "model.backbone_options.filters": 8, "recipe.epochs": 1, "recipe.batch_size": 32}
    found = found_of(row("hbct", options={"weight": 0.3}, settings={**HYPERBOLIC, **quick}))
    arguments, _ = parse(recommend, ["--data", str(made / "photos")], "recommend")
    (line,) = next_commands(found, arguments)
    there = {"RELEASE": str(made / "runs" / "old"), "runs": str(tmp_path / "hbct")}
    assert main([there.get(word, word) for word in shlex.split(line)[1:]]) == 0
    assert (tmp_path / "hbct" / "old-lifted" / "config.json").exists()


def test_the_printed_command_for_a_head_of_two_layers_adapts(planted: Callable[..., Path], tmp_path: Path) -> None:
    folder = planted(tmp_path)
    settings = {"model.projection": "mlp", "recipe.epochs": 1}
    found = found_of(row("p2s, two layers", "p2s", settings=settings), track="features")
    arguments, _ = parse(recommend, ["--frozen"], "recommend")
    _, line = next_commands(found, arguments)
    there = {"OLD": str(folder / "old.npz"), "NEW": str(folder / "new.npz"), "adapted-head": str(tmp_path / "out")}
    words = [there.get(word, word) for word in shlex.split(line)[1:]]
    assert main([*words, "--resamples", "20", "--cast"]) in (0, 1)  # by the verdict
    assert "projection: mlp" in (tmp_path / "out" / "adapt.yaml").read_text()
