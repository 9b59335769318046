"""From the records of all_methods.py to its tables: what was chosen, the P's of every seed, and one page of Markdown.

A record is what one training left behind: the mAP of its model and nothing that follows from other models. All that
compares models is computed here, so that --tables-only can do it again.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from limpet.evaluation.compatibility import Variant, compatible, p_comp, p_score, p_up
from limpet.methods import METHODS
from tuning_grids import GRIDS

OLD, INDEPENDENT = "old", "independent"
EXTENDED, OPEN = "extended-class", "open-class"
COMPARED = (EXTENDED, OPEN)
VARIANTS: tuple[Variant, Variant] = ("raw", "sigmoid")
RESAMPLED = ("queries", "classes")

Record = dict[str, Any]
Document = dict[str, Any]


class Task(NamedTuple):
    """One model to train and to score.

    The old model is the same in both scenarios, so its scenario is "". ``value`` is that of the method's one
    tuned option; it is None where there is nothing to tune.
    """

    phase: str
    scenario: str
    seed: int
    method: str
    value: float | None = None

    @property
    def name(self) -> str:
        """A file name of its own."""
        tuned = "" if self.value is None else f"x{self.value:.4g}"
        return "_".join(filter(None, (self.phase, str(self.seed), self.scenario, self.method, tuned)))

    @classmethod
    def of(cls, record: Record) -> Task:
        """Return the task that left a record."""
        return cls(*(record[name] for name in cls._fields))


Records = Mapping[Task, Record]


def scores(records: Records, task: Task) -> dict[str, float]:
    """Return one model's mAP's and P's, all of one seed; the reference is the new recipe on all classes.

    NaN throughout where one of these models could not be trained.
    """
    unknown = dict.fromkeys(RESAMPLED, (math.nan, math.nan))
    nothing: Record = {"self": math.nan, "cross": math.nan, "cross_minus_self_old": unknown}
    own, old, reference = (
        nothing | records[one]
        for one in (
            task,
            Task(task.phase, "", task.seed, OLD),
            Task(task.phase, EXTENDED, task.seed, INDEPENDENT),
        )
    )
    up = {variant: p_up(own["self"], reference["self"], variant) for variant in VARIANTS}
    comp = {variant: p_comp(own["cross"], old["self"], reference["self"], variant) for variant in VARIANTS}
    values = {
        "self_old": old["self"], "cross": own["cross"], "self_new": own["self"],
        "p_up_raw": up["raw"], "p_comp_raw": comp["raw"],
        "p_up": 100 * up["sigmoid"], "p_comp": 100 * comp["sigmoid"],
        "p_score": 100 * p_score(comp["sigmoid"], up["sigmoid"]),
        "compatible": compatible(own["cross"], old["self"]),
    }  # fmt: skip
    values |= verdicts(own["cross_minus_self_old"])
    return {name: float(value) for name, value in values.items()}


def verdicts(intervals: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return whether the difference is clearly above 0, clearly below, and how wide its interval is, by resampling.

    NaN where there is no interval.

    >>> list(verdicts({"queries": [-3.0, -1.0]}).values())
    [0.0, 1.0, 2.0, nan, nan, nan]
    """
    found: dict[str, float] = {}
    for drawn in RESAMPLED:
        low, high = intervals.get(drawn, (math.nan, math.nan))
        above, below = (math.nan, math.nan) if math.isnan(low) else (float(low > 0), float(high < 0))
        found |= {f"above by {drawn}": above, f"below by {drawn}": below, f"width by {drawn}": high - low}
    return found


def with_scores(records: Records) -> list[Record]:
    """Return the records by name; those of new models carry their P's, None where one is not defined."""
    found = []
    for task in sorted(records, key=lambda task: task.name):
        values = {} if task.method == OLD else scores(records, task)
        defined = {name: None if math.isnan(value) else value for name, value in values.items()}
        found.append(records[task] | {"scores": defined})
    return found


def tuning_scores(records: Records, tune_seed: int, method: str) -> dict[float, float]:
    """Return the P_score on validation classes for every value that was tried."""
    tasks = {value: Task("tune", EXTENDED, tune_seed, method, value) for value in GRIDS[method]}
    return {value: scores(records, task)["p_score"] for value, task in tasks.items()}


def chosen_value(records: Records, tune_seed: int, method: str) -> float:
    """Return the value of the largest P_score; a tie, or P_scores that are not defined, go to the method's default."""
    return best_value(tuning_scores(records, tune_seed, method), method)


def best_value(found: Mapping[float, float], method: str) -> float:
    """Return the value with the largest score; a tie, or scores that are not defined, go to the method's default."""
    default = default_balance(method)
    return max(found, key=lambda value: (-math.inf if math.isnan(found[value]) else found[value], value == default))


def default_balance(method: str) -> float:
    """Return the default of the one option that is tuned."""
    parameters = inspect.signature(METHODS[method]).parameters
    return float(parameters[METHODS[method].balance or ""].default)


class Column(NamedTuple):
    """One column of scores: the larger the better where ``ranked``."""

    title: str
    name: str
    form: str
    ranked: bool = True


COLUMNS = (
    Column("self (old)", "self_old", ".3f", ranked=False),
    Column("cross", "cross", ".3f"),
    Column("self (new)", "self_new", ".3f"),
    Column("P_up raw", "p_up_raw", "+.3f"),
    Column("P_comp raw", "p_comp_raw", "+.3f"),
    Column("P_up σ", "p_up", ".1f"),
    Column("P_comp σ", "p_comp", ".1f"),
    Column("P_score", "p_score", ".1f"),
)
VERDICTS = ("compatible", "drawing queries", "drawing classes")


def spread(values: Sequence[float], form: str) -> str:
    """Return mean ± sample standard deviation, a dash where a value is missing.

    >>> spread([1.0, 3.0], ".1f"), spread([1.0], ".1f")
    ('2.0 ± 1.4', '1.0')
    """
    if np.isnan(values).any():
        return "–"
    mean = format(float(np.mean(values)), form)
    return mean if len(values) == 1 else f"{mean} ± {float(np.std(values, ddof=1)):{form.lstrip('+')}}"


def result_table(document: Document, records: Records, scenario: str) -> list[str]:
    """Return the table of one scenario: the independent model, then the methods by falling P_score."""
    finals: dict[str, list[Task]] = {}
    for task in sorted(task for task in records if task.phase == "final" and task.scenario == scenario):
        finals.setdefault(task.method, []).append(task)
    found = {method: [scores(records, task) for task in tasks] for method, tasks in finals.items()}

    def mean(method: str, name: str) -> float:
        value = float(np.mean([seed[name] for seed in found[method]]))
        return -math.inf if math.isnan(value) else value

    order = sorted(found, key=lambda method: (method != INDEPENDENT, -mean(method, "p_score")))
    rivals = [method for method in found if method != INDEPENDENT]
    best = {column.name: max((mean(method, column.name) for method in rivals), default=math.nan) for column in COLUMNS}
    rows = []
    for method in order:
        cells = [method, tuned_option(records[finals[method][0]], document["methods"][method]["option"])]
        for column in COLUMNS:
            cell = spread([seed[column.name] for seed in found[method]], column.form)
            leads = column.ranked and method in rivals and mean(method, column.name) == best[column.name]
            cells.append(f"**{cell}**" if leads else cell)
        rows.append([*cells, *verdict_cells(found[method])])
    return markdown(["method", "tuned", *(column.title for column in COLUMNS), *VERDICTS], rows, numbers_from=2)


def verdict_cells(seeds: Sequence[Mapping[str, float]]) -> list[str]:
    """Return in how many seeds cross is above self (old), and in how many it clearly is, or is clearly below.

    >>> seed = {"compatible": 1, "above by queries": 1, "below by queries": 0, "above by classes": 0}
    >>> verdict_cells([seed | {"below by classes": 0}])
    ['1 of 1', '1 above, 0 below', '0 above, 0 below']
    """
    total = {name: sum(seed[name] for seed in seeds) for name in seeds[0]}
    clearly = [(total[f"above by {drawn}"], total[f"below by {drawn}"]) for drawn in RESAMPLED]
    told = ("–" if math.isnan(above) else f"{above:.0f} above, {below:.0f} below" for above, below in clearly)
    return [f"{total['compatible']:.0f} of {len(seeds)}", *told]


def widths(seeds: Iterable[Mapping[str, float]]) -> str:
    """Return how much wider intervals are where classes are drawn, in words; seeds without an interval are left out."""
    known = [seed for seed in seeds if seed["width by queries"] > 0 and not math.isnan(seed["width by classes"])]
    if not known:
        return "not known here"
    found = [seed["width by classes"] / seed["width by queries"] for seed in known]
    return f"{np.median(found):.1f} times as wide ({min(found):.1f} to {max(found):.1f})"


def tuned_option(record: Record, option: str | None) -> str:
    return "–" if option is None else f"{option} {record['options'][option]:g}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int) -> list[str]:
    """Return a table whose columns are aligned right from the given one on."""
    rule = ["---" if column < numbers_from else "---:" for column in range(len(titles))]
    return [f"| {' | '.join(cells)} |" for cells in (titles, rule, *rows)]


def tuning_table(document: Document, records: Records) -> list[str]:
    """Return the P_score of every value that was tried, the chosen one in bold, and how many choices are extreme."""
    seed, rows, choices = document["tune_seed"], [], []
    for method, tuned in document["methods"].items():
        if tuned["option"] is None:
            continue
        choice = chosen_value(records, seed, method)
        rows.append(
            [method, f"{tuned['option']} {tuned['default']:g}"]
            + [
                tried_cell(value, score, value == choice)
                for value, score in tuning_scores(records, seed, method).items()
            ]
        )
        choices.append((choice, tuned["tried"]))
    extreme = sum(choice in (min(tried), max(tried)) for choice, tried in choices)
    note = f"{extreme} of {len(choices)} choices lie at an end of their range, so a better value may lie beyond it."
    titles = [f"value {number + 1}" for number in range(max((len(tried) for _, tried in choices), default=0))]
    return [*markdown(["method", "default", *titles], rows, numbers_from=2), "", note]


def tried_cell(value: float, score: float, chosen: bool) -> str:
    """Return a value that was tried and its P_score, bold where it was chosen.

    >>> tried_cell(0.3, 49.04, chosen=True)
    '**0.3: 49.0**'
    """
    cell = f"{value:g}: {spread([score], '.1f')}"
    return f"**{cell}**" if chosen else cell


def page(document: Document) -> str:
    """Return the whole result as Markdown."""
    records = {Task.of(record): record for record in document["records"]}
    parts = [introduction(document, records)]
    parts += [[f"## {scenario.capitalize()}", "", *result_table(document, records, scenario)] for scenario in COMPARED]
    parts += [tuning(document, records), forced(document), run(document)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def sizes(records: Records, phase: str, scenario: str, method: str) -> Record:
    """Return any record of these; all seeds have equal sizes."""
    wanted = (phase, scenario, method)
    return next(record for task, record in records.items() if (task.phase, task.scenario, task.method) == wanted)


def introduction(document: Document, records: Records) -> list[str]:
    old, everything, rest = (
        sizes(records, "final", *which) for which in (("", OLD), (EXTENDED, INDEPENDENT), (OPEN, INDEPENDENT))
    )
    seeds = document["seeds"]
    every = [scores(records, task) for task in records if task.phase == "final" and task.scenario]
    over = f"Mean ± sample standard deviation over the seeds {', '.join(map(str, seeds))}; a" if seeds[1:] else "A"
    return [
        "# All methods on Omniglot, tuned alike",
        "",
        f"The old model learns {old['classes']} handwritten characters. The new one is the same network, trained from"
        f" scratch by the same recipe: on all {everything['classes']} characters (**extended-class**), or on the"
        f" {rest['classes']} that the old one never saw (**open-class**). Both are judged by"
        f" {old['searched_classes']} other characters: each of their {old['searched']:,} drawings searches all the"
        f" others (leave-one-out, mAP). {over} seed draws the old model's characters, the initial weights and the"
        " order of the drawings.",
        "",
        "How to read the columns (a larger number is better):",
        "",
        "- **self (old)** is what users have before the upgrade; **cross** is new queries on the gallery of old"
        " embeddings, with nothing re-embedded; **self (new)** is new queries on a gallery re-embedded in full.",
        "- **P_up raw** = (self (new) − reference) / reference, below 0 where compatibility costs quality."
        " **P_comp raw** = (cross − self (old)) / (reference − self (old)): 0 is the old system, 1 all that is to be"
        " gained. **P_up σ** and **P_comp σ** are 100 × their sigmoids (50 where the raw one is 0), **P_score** the"
        " harmonic mean of these. Seeds draw different characters, which moves all mAPs of a seed together: every P is"
        " computed within a seed, then averaged.",
        f"- The reference is, *in both scenarios*, the independent model of the same seed trained on all"
        f" {everything['classes']} characters (MixBCT's Upper-B). In open-class the row `independent`, trained on"
        f" {rest['classes']} (Upper-B′), therefore has a P_up of its own: that much the missing"
        " characters cost, and only what a method loses beyond it is the price of compatibility.",
        "- **compatible** counts the seeds with cross > self (old), the papers' criterion. **drawing queries** and"
        " **drawing classes** count those whose 95 % interval of the difference lies wholly above 0, or wholly below:"
        " the bootstrap draws single queries, as if all stood for themselves, or whole characters, whose drawings rise"
        " and fall together. The second says what to expect of other characters. Its intervals are"
        f" {widths(every)}.",
        "",
        "Rows are sorted by P_score; the best mean of a column is bold, `independent` aside.",
    ]


def tuning(document: Document, records: Records) -> list[str]:
    trained, final = (sizes(records, phase, EXTENDED, INDEPENDENT) for phase in ("tune", "final"))
    return [
        "## Tuning",
        "",
        "Each method was tuned alike and once, in extended-class, and has the chosen value in both scenarios: one"
        " option, the one that weighs compatibility against the task,"
        f" over {max(map(len, GRIDS.values()))} values, those of its paper among them, everything else at its"
        " default. The models of this table have the seed"
        f" {document['tune_seed']}, which is in no table above, {document['tuning_epochs']} epochs, and"
        f" {trained['classes']} characters to train on. Shown is their P_score on {trained['searched_classes']}"
        f" validation characters, which they never saw and which are none of the {final['searched_classes']}"
        " evaluation characters. The largest was chosen (bold), a tie going to the default.",
        "",
        *tuning_table(document, records),
    ]


def forced(document: Document) -> list[str]:
    lines = [
        f"- `{one['method']}` in {one['scenario']}: "
        + ", ".join(f"`{name} = {json.dumps(value)}`" for name, value in one["options"].items())
        + f", since {one['reason']}."
        for one in document["forced"]
    ]
    return ["## Options that a scenario forces", "", *(lines or ["None."])]


def precision(document: Document) -> str:
    """Return a sentence where models were not trained in float32 throughout."""
    final, tuning = document["recipe"]["precision"], document.get("tuning_precision")
    return "" if tuning in (None, final) else f" Precision {final} in the tables, {tuning} in tuning."


def run(document: Document) -> list[str]:
    recipe, model = document["recipe"], document["model"]
    failures = [record for record in document["records"] if "failure" in record]
    return [
        "## Run",
        "",
        f"`{document['command']}`",
        "",
        f"- Network: {model['backbone']} with {model['backbone_options']['filters']} filters,"
        f" {model['image_size']} × {model['image_size']} pixels, {model['dim']} dimensions, {document['head']} head.",
        f"- Recipe: epochs {document['epochs']}, batch {recipe['batch_size']}, SGD with momentum {recipe['momentum']},"
        f" learning rate {recipe['learning_rate']} ({recipe['schedule']}, warm-up over {recipe['warmup_epochs']}"
        f" epochs), weight decay {recipe['weight_decay']}, no augmentation.{precision(document)}",
        f"- Machine: {document['machine']}.",
        f"- Time: {document['wall_seconds'] / 60:.1f} minutes for {len(document['records'])} models,"
        f" {document['processes']} at a time with one thread each; their own times sum to"
        f" {document['task_seconds'] / 60:.1f} minutes.",
        *(f"- Failed: {Task.of(record).name}: {record['failure'].splitlines()[0]}" for record in failures),
    ]
