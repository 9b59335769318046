"""``holdfast evaluate --chain``: models oldest first, every one on every earlier gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import guards_of, write_settings
from holdfast.cli.console import console, print_json, print_table
from holdfast.cli.evaluate_alone import names_of, refuse_others
from holdfast.cli.evaluate_sides import protocol_of
from holdfast.cli.evidence import Sides, columns_of, open_sides
from holdfast.cli.pages import page_line, page_written
from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
    from holdfast.evaluation.chain import ChainEvaluation, ChainResults

_OPTIONS = (
    "chain_independent", "old_baseline", "similarity", "protocol", "ground_truth", "relevant", "protocol_options",
    "gate_metric", "guard", "no_guard", "no_relevant", "resamples", "resample", "device", "cast", "vector_column",
    "id_column", "label_column", "seed",
)  # fmt: skip


def evaluate_chain_command(arguments: dict[str, Any], settings: str) -> int:
    """Evaluate a chain, write its report, and return 0 where no pair violates compatibility and 1 otherwise."""
    refuse_others("chain", arguments, _OPTIONS)
    names, models = _opened(arguments, arguments["chain"])
    third = _opened(arguments, arguments["chain_independent"])[1] if arguments["chain_independent"] else None
    baseline = arguments["old_baseline"]
    refuse(
        baseline == "independent" and third is None,
        "--old-baseline independent was given without independent models.",
        "--chain-independent PATH ..., one for every model but the first, in the order of the chain",
    )
    _check_one_kind(names, models, third or [])
    evaluation = _measured(arguments, names, models, third)
    write_settings(arguments["out"], "evaluate.yaml", settings)
    results = _shown(arguments, evaluation, models[0], baseline or "own")
    if arguments["json"]:
        print_json(results.to_dict())
    return 0 if evaluation.compatible else 1


def _opened(arguments: Mapping[str, Any], paths: Sequence[Path]) -> tuple[list[str], list[Sides]]:
    options: dict[str, Any] = {
        **{key: arguments[key] for key in ("cast", "similarity")},
        "columns": columns_of(arguments),
    }
    with console.status("reading embeddings"):
        return names_of(paths), [open_sides(path, **options) for path in paths]


def _check_one_kind(names: Sequence[str], models: Sequence[Sides], third: Sequence[Sides]) -> None:
    """Refuse models of which some have queries and a gallery, and some one set that is both."""
    for number, sides in enumerate([*models, *third]):
        if sides.leave_one_out != models[0].leave_one_out:
            name = f"'{names[number]}'" if number < len(models) else f"Independent model {number - len(models) + 1}"
            raise ConfigError(
                f"'{names[0]}' and {name} follow different protocols: one has queries and a gallery, the other one "
                "set that is both.",
                expected="one protocol for all models of a chain",
                to_do="embed the same images with all releases: holdfast embed --release FIRST SECOND ...",
            )


def _measured(
    arguments: Mapping[str, Any], names: Sequence[str], models: Sequence[Sides], third: Sequence[Sides] | None
) -> ChainEvaluation:
    from holdfast.evaluation.chain import evaluate_chain

    with console.status("evaluating"):
        return evaluate_chain(
            dict(zip(names, models, strict=True)),
            independent=third,
            protocol=protocol_of(arguments, models[0].leave_one_out),
            metric=arguments["gate_metric"],
            guards=guards_of(dict(arguments)),
            device=None if arguments["device"] == "cpu" else arguments["device"],
            **{name: arguments[name] for name in ("resamples", "resample", "seed")},
        )


def _shown(arguments: Mapping[str, Any], evaluation: ChainEvaluation, sides: Sides, baseline: Any) -> ChainResults:
    """Write results and report, and print tables and what they mean."""
    from holdfast.cli.evaluate import described
    from holdfast.reports import chain as tables
    from holdfast.reports.chain import chain_finding, write_chain_report

    title = f"Can {evaluation.names[-1]} and its predecessors search older galleries?"
    data = described(sides, None, evaluation.protocol.units)
    results = evaluation.results(title=title, data=data, old_baseline=baseline)
    written = results.save(arguments["out"])
    page = page_written(arguments["report"], lambda: write_chain_report(results, arguments["out"]))
    print_table(title, *tables.matrix_table(results))
    console.print()
    print_table("Pairs", *tables.pair_table(results))
    for name in sorted(results.p_comp["raw"] if results.p_comp else (), key=lambda name: name != baseline):
        console.print()
        print_table(f"P_comp, raw: {tables.BASELINES[name]}", *tables.p_comp_table(results, name))
    finding = chain_finding(results)
    console.print(f"\n{finding.headline}", style="bold")
    for line in finding.lines:
        console.print(line)
    console.print(f"\nresults  {written}{page_line(arguments['report'], page)}")
    return results
