"""The command `sessions`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from limpet.cli.toolkit import (
    DataSets,
    Named,
    Network,
    Report,
    Settings,
    StartingModel,
    Training,
    Typed,
    as_json,
    check_report,
    console,
    options_by_method,
    page_line,
    page_written,
    print_json,
    print_table,
    tell_kept,
    training_progress,
)
from limpet.errors import unknown_name
from limpet.support import bound

if TYPE_CHECKING:
    from limpet_bench.sessions.plans import Plan
    from limpet_bench.sessions.results import SessionsResults


def sessions(
    plan: str = "general-incremental",
    *,
    data: str,
    out: Path,
    network: Network = Network(),
    start: StartingModel = StartingModel(),
    training: Training = Training(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    typed: Typed = Typed(""),
    plan_options: Named = {},
    method: list[str] = ["cvs"],
    budget: int | None = None,
    test_images: int | None = None,
    classes: int | None = None,
    head: str = "normalised",
    again: bool = False,
    report: Report | None = None,
) -> int:
    """Train incrementally over sessions of data; the gallery of each session is embedded once.

    Every method trains on the same sessions, and each session is scored against everything embedded so far. To resume
    an interrupted run, repeat the command.

    Args:
        data: Data set: a name (`limpet data list`), or a folder with one subfolder of images per class.
        out: Output folder for releases, galleries, results.json and report.html.
        plan: Order in which data arrives: disjoint (every session has classes of its own), blurry (all classes from the
            start, each mostly in one session) or general-incremental (new classes, and fresh images of old ones).
        plan_options: Options of the plan: sessions, validation (share of each session's images that become
            validation queries, or a whole number per class), minor_share (blurry), first_classes, new_classes and
            old_share (general-incremental).
        method: One or more methods (`limpet methods`): cvs, bct, lwf, mmd, ewc, rwalk, rainbow; finetune and joint
            are the lower and the upper bound.
        budget: Maximum number of images of earlier sessions that a method with a memory keeps, in total.
        test_images: Number of images per class that become test queries, from the first. Default: the data's own
            queries, if they are of the classes trained on.
        classes: Number of classes to use, from the first. Default: all.
        head: Training classifier: normalised (cosines over 0.05), softmax or arcface.
        again: Rerun methods whose code, or that of limpet, has changed, and all methods if it trained the first
            session; previous results are kept as FOLDER.before-1.
        report: html writes the page report.html, none does not. Default: html if its packages are installed (`pip
            install '.[report]'`).

    Examples:
        limpet-bench sessions general-incremental --data photos --plan-options.first-classes 4
            --plan-options.new-classes 2 --plan-options.sessions 3 --plan-options.validation 1
            --method cvs finetune joint --budget 20 --out runs/sessions
    """
    from limpet.methods import build_method
    from limpet_bench.sessions.closed_set import closed_set
    from limpet_bench.sessions.plans import PLANS, Setting
    from limpet_bench.sessions.results import SessionsResults
    from limpet_bench.sessions.runner import run_sessions, standing_of_learner

    check_report(report)
    if plan not in PLANS:
        raise unknown_name("plan", plan, PLANS)
    for name, options in options_by_method(method, training.method_options).items():
        build_method(name, options)
    first, spec = start.opened(network)
    start.refuse_unused(None)
    images = closed_set(sets.images(data, spec), test_images=test_images, classes=classes)
    build = PLANS[plan]
    drawn = build(images.train.labels, **bound(build, {"seed": training.seed, **plan_options}, f"plan '{plan}'"))
    setting = Setting.of(images.name, images.train, images.test, drawn, budget=budget)
    projection = network.projection or "linear"
    learners = training.experiments(method, network, images.train, head=head, projection=projection, start=spec)
    records = run_sessions(setting, learners, out, encoder=first, on_run=training_progress, again=again)
    codes = {name: standing_of_learner(learner, out, name) for name, learner in learners.items()}
    settled = {
        "backbone": learners[method[0]].model.name,
        "projection": projection,
        "recipe": training.settled,
    }
    settings.resolved(**settled, plan_options=dict(drawn.asked)).write(out)
    results = SessionsResults.gather(
        setting, learners, records, title=f"Sessions of {images.name}, {drawn.name}", description=images.description
    )
    _show(results.model_copy(update={"command": typed}), drawn, out, report)
    tell_kept({out / name: code for name, code in codes.items()})
    if as_json():
        print_json({**results.to_dict(), "code": codes})
    return 0


def _show(results: SessionsResults, plan: Plan, out: Path, report: Report | None) -> None:
    from limpet_bench.reports.sessions import (
        sessions_findings,
        sessions_headline,
        sessions_table,
        standing,
        write_sessions_report,
    )

    written = results.save(out)
    page = page_written(report, lambda: write_sessions_report(results, plan, out))
    print_table(results.title, *sessions_table(results))
    found = standing(results)
    console.print(f"\n{sessions_headline(found)}", style="bold")
    for finding in sessions_findings(found):
        console.print(finding.sentences[0])
    console.print(f"\nresults  {written}{page_line(report, page)}")
