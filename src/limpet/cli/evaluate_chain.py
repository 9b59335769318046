"""``limpet evaluate chain``: models oldest first, every one on every earlier gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from limpet.cli.console import as_json, console, exit_code, print_json, print_table
from limpet.cli.evidence import names_of
from limpet.cli.options import Answers, Judging, Output, Reading, Similarity
from limpet.cli.pages import check_report, page_line, page_written
from limpet.cli.parameters import RARE
from limpet.cli.places import Place
from limpet.cli.settings import Settings, Typed

if TYPE_CHECKING:
    from limpet.embeddings.sides import QueriesAndGallery
    from limpet.evaluation.chain import ChainEvaluation, ChainResults


def chain(
    embeddings: list[Place],
    *,
    reading: Reading = Reading(),
    answers: Answers = Answers(),
    judging: Judging = Judging(),
    output: Output = Output(),
    settings: Settings = Settings(),
    typed: Typed = Typed(""),
    independent: list[Place] = [],
    similarity: Annotated[Similarity | None, RARE] = None,
    pad_old: Annotated[bool, RARE] = False,
) -> int:
    """Measure whether the queries of every model of a chain can search every earlier gallery.

    The exit code is 0 only if no pair is incompatible, 3 if it is unknown which items are relevant, and 1 otherwise.

    Args:
        embeddings: Embeddings of the same items by several models, oldest first.
        independent: Embeddings of the same items by the recipe of every model but the first, trained without alignment,
            for P_up and P_comp.
        similarity: Similarity function for vectors of .npz, .npy and .parquet files. Default: the cosine.
        pad_old: Pad embeddings of fewer dimensions than those of the last model with zeros, for models that were each
            trained over the previous one with more dimensions.

    Examples:
        limpet evaluate chain runs/embedded/v1 runs/embedded/v2 runs/embedded/v3 --out runs/chain
    """
    from limpet.embeddings.sides import refuse_mixed
    from limpet.engines.moment import one_moment
    from limpet.evaluation.chain import evaluate_chain
    from limpet.evaluation.ranking.sharded import sharded

    check_report(output.report)
    output.refuse_over([*embeddings, *independent])
    names, others = names_of(embeddings), names_of(independent)
    with console.status("reading embeddings"), one_moment():
        models = [reading.sides([place], similarity=similarity) for place in embeddings]
        third = [reading.sides([place], similarity=similarity) for place in independent] or None
    models = [one.without(reading.left_out) for one in models]
    third = None if third is None else [one.without(reading.left_out) for one in third]
    if pad_old:
        models = [sides.padded(models[-1].gallery.space) for sides in models]
    by_name = dict(zip(names, models, strict=True))
    refuse_mixed(by_name | {f"independent {name}": sides for name, sides in zip(others, third or (), strict=True)})
    with console.status("evaluating"), sharded(judging.workers):
        evaluation = evaluate_chain(
            by_name,
            independent=third,
            protocol=answers.opened(models[0].leave_one_out),
            metric=judging.gate_metric,
            min_effect=judging.min_effect,
            guards=judging.guards,
            device=judging.placed,
            resamples=judging.resamples,
            resample=judging.resample,
            seed=judging.seed,
        )
    settings.write(output.out)
    results = _shown(evaluation, models[0], output, typed)
    if as_json():
        print_json(results.to_dict())
    return exit_code(evaluation.compatible, told=evaluation.judged)


def _shown(evaluation: ChainEvaluation, sides: QueriesAndGallery, output: Output, typed: Typed) -> ChainResults:
    from limpet.cli.evaluate import described
    from limpet.reports import chain as tables
    from limpet.reports.chain import chain_finding, write_chain_report

    title = f"Can {evaluation.names[-1]} and its predecessors search older galleries?"
    data = described(sides, None, evaluation.protocol.units)
    results = evaluation.results(title=title, data=data).model_copy(update={"command": typed})
    written = results.save(output.out)
    page = page_written(output.report, lambda: write_chain_report(results, output.out))
    print_table(title, *tables.matrix_table(results))
    console.print()
    print_table("Pairs", *tables.pair_table(results))
    for name in results.p_comp["raw"] if results.p_comp else ():
        console.print()
        print_table(f"P_comp, raw: {tables.BASELINES[name]}", *tables.p_comp_table(results, name))
    finding = chain_finding(results)
    console.print(f"\n{finding.headline}", style="bold")
    for line in finding.lines:
        console.print(line)
    console.print(f"\nresults  {written}{page_line(output.report, page)}")
    return results
