"""``holdfast sessions``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import encoder_for, open_data, options_by_method, write_settings
from holdfast.cli.console import console, print_json, print_table, training_progress
from holdfast.cli.pages import Report, check_report, page_line, page_written
from holdfast.cli.parsing import parse, resolved
from holdfast.errors import refuse, unknown_name
from holdfast.experiment import Experiment, Recipe

if TYPE_CHECKING:
    from holdfast.continual.plans import Plan
    from holdfast.continual.results import SessionsResults
    from holdfast.data.closed_set import ClosedSet


def sessions(
    data: str,
    out: Path,
    plan: str = "general-incremental",
    plan_options: dict[str, Any] = {},  # noqa: B006 - read only
    method: list[str] = ["cvs"],  # noqa: B006 - and shown as the default
    method_options: dict[str, Any] = {},  # noqa: B006
    budget: int | None = None,
    test_images: int | None = None,
    classes: int | None = None,
    backbone: str = "convnet",
    dim: int = 128,
    projection: str = "linear",
    backbone_options: dict[str, Any] = {},  # noqa: B006
    mean: list[float] = [0.5],  # noqa: B006
    std: list[float] = [0.5],  # noqa: B006
    weights: Path | None = None,
    freeze_backbone: bool = False,
    head: str = "normalised",
    head_options: dict[str, Any] = {},  # noqa: B006
    recipe: Recipe = Recipe(),  # noqa: B008 - immutable
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    seed: int = 0,
    report: Report | None = None,
    json: bool = False,
) -> None:
    """Train through sessions of data; every session's gallery is embedded once and for ever.

    ``holdfast sessions general-incremental --data D --out DIR --method cvs finetune joint`` trains every method through
    the same sessions, scores each session against everything embedded so far, and writes results.json and report.html.
    Stopped anywhere, the same command continues.

    Args:
        data: A data set by name (`holdfast data list`), or a folder with one sub-folder of images per class.
        out: Folder for releases, galleries, results.json and report.html.
        plan: What arrives when: disjoint (every session has classes of its own), blurry (all classes from the start,
            each mostly in one session) or general-incremental (new classes, and fresh images of old ones).
        plan_options: Options of the plan: sessions, validation (share of each session's images that become
            validation queries, or a whole number per class), minor_share (blurry), first_classes, new_classes and
            old_share (general-incremental).
        method: One or more methods (`holdfast methods`): cvs, bct, lwf, mmd, ewc, rwalk, rainbow; finetune and joint
            are the lower and the upper bound.
        method_options: Options of the method; with several methods, a mapping of each one's name to its options.
        budget: How many images of earlier sessions a method with a memory may keep, in all.
        test_images: Images of every class that become test queries, the first ones; when left out, the data's own
            queries are asked, if they are of the classes trained on.
        classes: Use only the first so many classes.
        backbone: Network: convnet, resnet18, resnet50, iresnet18, iresnet50, vit_s or vit_b.
        dim: Dimension of the embeddings.
        projection: From backbone to embedding: linear, linear-bn, mlp or none.
        backbone_options: Options of the backbone, such as filters of convnet.
        mean: Subtracted from each channel, after scaling pixels to [0, 1].
        std: Divides each channel.
        weights: Local folder of published backbone weights, with which the first session begins.
        freeze_backbone: Train projection and classifier only.
        head: Classifier of the training: normalised (cosines over 0.05), softmax or arcface.
        head_options: Options of the head.
        recipe: How to train each session.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set, such as image_size.
        seed: Of plan, initial weights, order, augmentation and exemplars.
        report: Whether to write the page report.html: html or none. When left out it is written where its packages are
            installed (`pip install 'holdfast[report]'`).
        json: Print one JSON document with all numbers.
    """


def main(words: list[str]) -> int:
    """Train session by session, and show what was found."""
    from holdfast.continual.plans import PLANS, Setting
    from holdfast.continual.results import SessionsResults
    from holdfast.continual.runner import run_sessions
    from holdfast.data.closed_set import closed_set
    from holdfast.methods import build_method

    if words and not words[0].startswith("-"):
        refuse(
            any(word.startswith("--plan") and word.split("=")[0] == "--plan" for word in words),
            f"Both '{words[0]}' and --plan were given.",
            "the plan once: `holdfast sessions PLAN …`",
        )
        words = ["--plan", *words]
    arguments, text = parse(sessions, words, "sessions")
    check_report(arguments["report"])
    if arguments["plan"] not in PLANS:
        raise unknown_name("plan", arguments["plan"], PLANS)
    options = options_by_method(arguments["method"], arguments["method_options"])
    for name, chosen in options.items():
        build_method(name, chosen)
    data = closed_set(
        open_data(arguments["data"], arguments["data_root"], arguments["data_options"]),
        test_images=arguments["test_images"],
        classes=arguments["classes"],
    )
    plan = _plan(arguments, data)
    setting = Setting.of(data.name, data.train, data.test, plan, budget=arguments["budget"])
    base = _experiment(arguments, data)
    learners = {name: replace(base, method=name, method_options=chosen) for name, chosen in options.items()}
    records = run_sessions(setting, learners, arguments["out"], on_run=training_progress)
    write_settings(arguments["out"], "sessions.yaml", resolved(text, {"plan_options": dict(plan.asked)}))
    results = SessionsResults.gather(
        setting, learners, records, title=f"Sessions of {data.name}, {plan.name}", description=data.description
    )
    _show(results, plan, arguments)
    if arguments["json"]:
        print_json(results.to_dict())
    return 0


def _plan(arguments: dict[str, Any], data: ClosedSet) -> Plan:
    from holdfast.continual.plans import PLANS
    from holdfast.options import bound

    build = PLANS[arguments["plan"]]
    asked = bound(build, {"seed": arguments["seed"], **arguments["plan_options"]}, f"plan '{arguments['plan']}'")
    return build(data.train.labels, **asked)


def _experiment(arguments: dict[str, Any], data: ClosedSet) -> Experiment:
    return Experiment(
        model=encoder_for(arguments, data.train),
        **{key: arguments[key] for key in ("head", "head_options", "recipe", "weights", "freeze_backbone", "seed")},
    )


def _show(results: SessionsResults, plan: Plan, arguments: dict[str, Any]) -> None:
    """Write results and report, and print the table and what it means."""
    from holdfast.reports.sessions import (
        sessions_findings,
        sessions_headline,
        sessions_table,
        standing,
        write_sessions_report,
    )

    written = results.save(arguments["out"])
    page = page_written(arguments["report"], lambda: write_sessions_report(results, plan, arguments["out"]))
    print_table(results.title, *sessions_table(results))
    found = standing(results)
    console.print(f"\n{sessions_headline(found)}", style="bold")
    for finding in sessions_findings(found):
        console.print(finding.sentences[0])
    console.print(f"\nresults  {written}{page_line(arguments['report'], page)}")
