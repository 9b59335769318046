"""``holdfast adapt``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from holdfast.cli.choices import guards_of, write_settings
from holdfast.cli.console import console, print_json, print_table, training_progress
from holdfast.cli.pages import Report, check_report, page_line, page_written
from holdfast.cli.parsing import parse
from holdfast.errors import ConfigError, DataError, refuse
from holdfast.experiment import Recipe
from holdfast.training.compatible_head import HEAD_RECIPE

if TYPE_CHECKING:
    from holdfast.adapters import Direction
    from holdfast.adapters.adapt import Adapted, Choice
    from holdfast.adapters.results import AdaptResults
    from holdfast.cli.adapt_sides import Pair

HELPS = ("adapt", "train a head")
SCORE_MAP = "score_map.json"


def adapt(
    out: Path,
    old: Path | None = None,
    new: Path | None = None,
    old_model: str | None = None,
    new_model: str | None = None,
    texts: str | None = None,
    old_text_model: str | None = None,
    text_model: str | None = None,
    role: Literal["query", "document", "both"] = "both",
    auto: bool = False,
    adapter: list[str] = [],  # noqa: B006 - read only, shown as the default
    adapter_options: dict[str, Any] = {},  # noqa: B006
    method: list[str] = [],  # noqa: B006
    method_options: dict[str, Any] = {},  # noqa: B006
    projection: Literal["linear", "mlp"] = "linear",
    head: str | None = None,
    head_options: dict[str, Any] = {},  # noqa: B006
    recipe: Recipe = HEAD_RECIPE,
    direction: Literal["both", "new_to_old", "old_to_new"] = "both",
    threshold: list[float] = [],  # noqa: B006
    unseen_share: float = 0.1,
    guard: list[str] = [],  # noqa: B006
    no_guard: bool = False,
    resamples: int = 2000,
    resample: Literal["auto", "queries", "classes"] = "auto",
    cast: bool = False,
    vector_column: list[str] = [],  # noqa: B006
    id_column: list[str] = [],  # noqa: B006
    label_column: list[str] = [],  # noqa: B006
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    max_length: int | None = None,
    truncate_dim: int | None = None,
    device: str = "cpu",
    data_root: Path | None = None,
    data_options: dict[str, Any] = {},  # noqa: B006
    seed: int = 0,
    report: Report | None = None,
    json: bool = False,
) -> None:
    """Let a new frozen model's queries search what an old one embedded, or say that embedding anew is better.

    A part of the items is held out, label-free adapters and (with labels) a compatible head are fitted on the others,
    and what they find is measured. What is recommended is fitted on all items and saved below --out, as adapter or as
    head. The exit code is 0 if that is better than leaving everything as it is, and clearly worse at nothing that is
    guarded, and 1 otherwise; without labels that cannot be told, only agreement with embedding everything anew, and it
    is 1.

    Args:
        out: Folder for results.json, report.html, and what is recommended with its map of scores, score_map.json.
        old: Embeddings by the old model: a folder that `holdfast embed` wrote (its train part, if there is one), or
            one .safetensors, .npz, .npy or .parquet file.
        new: The same items by the new model, matched by id.
        old_model: Name of the old model, for .npz, .npy and .parquet files, which carry none; their path when left out.
        new_model: The same of the new model. Later files of its vectors must be given under this name.
        texts: The items themselves, to be embedded here: a name (clinc150, banking77), or a .csv, .parquet, .jsonl or
            .txt file.
        old_text_model: Frozen model that embeds the texts instead of --old.
        text_model: Frozen model that embeds the texts instead of --new: a folder, an installed Python package that
            carries weights, or a name on the hub.
        role: What the texts of a file are to the models.
        auto: Compare every adapter that suits the two dimensions and, with labels, heads by p2s; so it is, too, if
            nothing is named.
        adapter: Adapters to compare: procrustes, ridge, low_rank, mean_drift, lambda_orthogonal, local, residual_mlp.
        adapter_options: Options of the adapter; with several, a mapping of each one's name to its options.
        method: Methods to train a head with (`holdfast methods`); they need labels.
        method_options: Options of the method; with several, a mapping of each one's name to its options.
        projection: Of the heads of --method: linear, or mlp (two layers).
        head: Classifier that trains the head; normalised when left out, lorentz on the lorentz space.
        head_options: Options of that classifier.
        recipe: How heads are trained; left as it is, batches are smaller where there are fewer than 4,096 items.
        direction: What adapters map: new_to_old the queries of the new model, old_to_new the old gallery, or both in
            turn.
        threshold: Thresholds on the old scores, to be told with their new values.
        unseen_share: Share of the classes that your labels do not cover: as many are kept from all fitting, and count
            in what is measured.
        guard: What a recommended candidate must not be clearly worse at than the old model: metrics such as recall@1,
            and unseen-classes; recall@1 and unseen classes when left out.
        no_guard: Let mAP alone decide.
        resamples: Bootstrap resamples for the intervals.
        resample: Draw queries, or whole classes, whose queries are correlated; "auto" draws classes where there are
            labels.
        cast: Accept other floating types than float32 in .npz, .npy and .parquet files.
        vector_column: What .npz and .parquet files call the vectors, where it is not "vectors" and "vector"; of several
            names the first counts that a file has.
        id_column: The same of the ids, "ids" and "id".
        label_column: The same of the labels, "labels" and "label".
        query_prefix: Text that the new model wants before every query; its own when left out, "" for none.
        document_prefix: Text before every document, likewise.
        max_length: Tokens that count of every text for the new model; its own number when left out.
        truncate_dim: Keep so many of the first values of the new model's vectors.
        device: Where texts are embedded: cpu, cuda, cuda:1, mps.
        data_root: Folder of the named data sets; the environment variable HOLDFAST_DATA when left out.
        data_options: Options of the data set; label_column names the labels in a file of texts.
        seed: Of the held-out items, the intervals and the training of heads.
        report: Whether to write the page report.html: html or none. When left out it is written where its packages are
            installed (`pip install 'holdfast[report]'`).
        json: Print one JSON document with all numbers.
    """


def main(words: list[str]) -> int:
    """Compare, save what is recommended, and return 0 if something helps and 1 otherwise."""
    from holdfast.adapters.adapt import adapt as compare
    from holdfast.cli.adapt_choice import check_options, choice_of, suited
    from holdfast.cli.adapt_sides import open_pair

    arguments, text = parse(adapt, words, "adapt")
    check_report(arguments["report"])
    _refuse_other_run(arguments["out"])
    check_options(arguments, {name: option.default for name, option in signature(adapt).parameters.items()})
    choice = choice_of(arguments)
    pair = open_pair(arguments)
    choice = suited(choice, arguments, pair.old, pair.new)
    options = {name: arguments[name] for name in ("unseen_share", "resamples", "resample", "seed")}
    guards = guards_of(arguments)
    options["guards"] = guards and tuple(name.replace("unseen-classes", "unseen classes") for name in guards)
    with _progress() as events:
        found = compare(pair.old, pair.new, choice, **options, **events)
    thresholds = [_threshold(found, asked) for asked in arguments["threshold"]]
    results, page = _write(arguments, pair, found, choice)
    write_settings(arguments["out"], "adapt.yaml", text)
    saved = _save(arguments, pair, found, choice)
    _tell(results, arguments, page, found.followed, thresholds)
    if saved is not None:
        _say(f"saved    {saved}\nnext     {pair.next_command(saved, _direction(results))}")
    if arguments["json"]:
        print_json({**results.to_dict(), "saved": None if saved is None else str(saved), "thresholds": thresholds})
    advised = found.recommendation
    return 0 if advised.action in HELPS and not advised.worse and found.held_out.labelled else 1


def _refuse_other_run(out: Path) -> None:
    """Refuse a folder that holds the adapter or head of an earlier run, which a gallery may depend on."""
    refuse(out.exists() and not out.is_dir(), f"--out '{out}' is a file.", "a folder, or a name that is free")
    for name in ("adapter", "head"):
        if any((out / name / file).exists() for file in ("config.json", "checkpoint.safetensors")):
            raise ConfigError(
                f"'{out}' holds the {name} of an earlier run.",
                expected="a folder without",
                to_do=f"choose another --out, or remove '{out / name}' yourself; it is intact.",
            )


@contextmanager
def _progress() -> Iterator[dict[str, Any]]:
    """Show what is being fitted, and the epochs of a head."""
    with training_progress("fitting") as on_step:

        def on_fit(event: dict[str, Any]) -> None:
            ended = f"{event['seconds']:.1f} s" if event["failed"] is None else "failed"
            _say(f"{event['name']}  {ended}", style="dim")

        yield {"on_fit": on_fit, "on_step": on_step}


def _threshold(found: Adapted, asked: float) -> dict[str, Any]:
    """Return a threshold with its new value and the share of decisions that change; or why there is none."""
    told = {"old": asked, "new": None, "changed_decisions": None, "problem": None}
    if found.score_map is None:
        return {**told, "problem": "the scores of the two systems bear no relation"}
    try:
        error = found.score_map.at(asked)
    except DataError:
        low, high = found.score_map.score_map.knots[[0, -1]]
        return {**told, "problem": f"it lies outside the old scores that were seen, {low:.4g} to {high:.4g}"}
    return {**told, "new": error.mapped_threshold, "changed_decisions": error.changed_decisions}


def _save(arguments: dict[str, Any], pair: Pair, found: Adapted, choice: Choice) -> Path | None:
    """Fit what is recommended on all pairs, and save it with its map of scores; None where nothing is."""
    from holdfast.adapters.adapt import save_link
    from holdfast.adapters.score_map import save_score_map

    name, out = found.recommendation.candidate, arguments["out"]
    if name is None or found.score_map is None:
        (out / SCORE_MAP).unlink(missing_ok=True)  # of an earlier run
    else:
        models = {"old": pair.old.fingerprint, "new": pair.new.fingerprint}
        save_score_map(found.score_map.score_map, found.score_map.error, out / SCORE_MAP, candidate=name, **models)
    if name is None:
        return None
    with training_progress(f"{name} on all pairs") as on_step:
        return save_link(
            name, pair.old, pair.new, choice, out, frozen_model=pair.frozen_model, data_name=pair.data_name,
            seed=arguments["seed"], on_step=on_step,
        )  # fmt: skip


def _write(arguments: dict[str, Any], pair: Pair, found: Adapted, choice: Choice) -> tuple[AdaptResults, Path | None]:
    """Write results.json and report.html, and return the results, and the page if there is one."""
    from holdfast.adapters.results import AdaptResults, Names, ScoreMapRecord
    from holdfast.reports.adapt import write_adapt_report

    fitted = found.score_map
    results = AdaptResults.gather(
        found.held_out, found.comparison, found.recommendation,
        title=f"Can {pair.new_name} search what {pair.old_name} embedded?",
        names=Names(pair.data_name, pair.old_name, pair.new_name), direction=choice.direction,
        pair_sentences=found.sentences, suspects=found.suspects, curve=found.curve,
        score_map=None if fitted is None else ScoreMapRecord.of(fitted.score_map, fitted.error),
    )  # fmt: skip
    results.save(arguments["out"])
    return results, page_written(arguments["report"], lambda: write_adapt_report(results, arguments["out"]))


def _tell(
    results: AdaptResults,
    arguments: dict[str, Any],
    page: Path | None,
    followed: str | None,
    thresholds: list[dict[str, Any]],
) -> None:
    """Print the table, what failed or is odd, what is recommended, and where it is written."""
    from holdfast.reports.adapt import adapt_headline, adapt_table, failures

    columns, rows = adapt_table(results)
    print_table(results.title, columns, rows)
    for line in (*failures(results), *results.data.sentences):
        _say(line)
    _say(f"\n{adapt_headline(results)}", style="bold")
    for line in (*results.recommendation.sentences, *(_threshold_words(one, followed) for one in thresholds)):
        _say(line)
    _say(f"\nresults  {arguments['out'] / 'results.json'}{page_line(arguments['report'], page)}")


def _threshold_words(one: dict[str, Any], followed: str | None) -> str:
    from holdfast.reports.formats import percent

    if one["new"] is None:
        return f"There is no new threshold for {one['old']:g}: {one['problem']}."
    return (
        f"A threshold of {one['old']:g} becomes {one['new']:.4g} through '{followed}': "
        f"{percent(one['changed_decisions'])} of the scored pairs are then decided otherwise."
    )


def _direction(results: AdaptResults) -> Direction | None:
    """Return what the recommended candidate maps; None for a head."""
    candidate = results.named(results.recommendation.candidate)
    return None if candidate is None else candidate.direction


def _say(text: str, style: str = "") -> None:
    """Print a text as it is: names of files and models are not read as signs for pictures."""
    console.print(Text(text, style))
