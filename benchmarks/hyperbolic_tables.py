"""From the records of hyperbolic.py to its page: the P's of every seed, and whether the paper's ordering holds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from all_methods_tables import (
    EXTENDED,
    RESAMPLED,
    VERDICTS,
    Document,
    Record,
    Records,
    Task,
    best_value,
    default_balance,
    markdown,
    run,
    spread,
    tried_cell,
    verdict_cells,
    verdicts,
    widths,
)
from hyperbolic_tasks import (
    COMPARED,
    DATA,
    HYPERSPHERE,
    LORENTZ,
    METRICS,
    REFERENCES,
    ROWS,
    independent_of,
    old_of,
    tuned_as,
)
from limpet.evaluation.compatibility import compatible, p_comp, p_score, p_up
from limpet.methods import METHODS
from limpet.support.wording import metric_name

PAPER_EUCLIDEAN = ("l2", "bct", "hot_refresh", "advbct", "hoc")
CHEAP = -0.05  # P_up from which on a method counts as not hurting the new model
SPACE_NAMES = {LORENTZ: "Lorentz space", HYPERSPHERE: "hypersphere"}
NOTHING = dict.fromkeys(METRICS, math.nan)


def scores(records: Records, task: Task, scenario: str, metric: str) -> dict[str, float]:
    """Return one model's scores and raw P's, all of one seed and one geometry; NaN where a model is missing."""
    geometry = ROWS[task.method].geometry
    own = records.get(task, {})
    old, reference = (
        records.get(one, {}).get("self", NOTHING)[metric]
        for one in (
            Task(task.phase, scenario, task.seed, old_of(geometry)),
            Task(task.phase, "", task.seed, independent_of(geometry)),
        )
    )
    new = own.get("self", NOTHING)[metric]
    cross = own.get("cross", {}).get(scenario, NOTHING)[metric]
    unknown = dict.fromkeys(RESAMPLED, (math.nan, math.nan))
    difference = own.get("cross_minus_self_old", {}).get(scenario, {}).get(metric, unknown)
    values = {
        "self_old": old, "self": new, "cross": cross,
        "p_up": p_up(new, reference), "p_comp": p_comp(cross, old, reference),
        "p_score": p_score(p_comp(cross, old, reference, "sigmoid"), p_up(new, reference, "sigmoid")),
        "compatible": compatible(cross, old),
    }  # fmt: skip
    values |= verdicts(difference)
    return {name: float(value) for name, value in values.items()}


def tuning_scores(records: Records, tune_seed: int, row: str) -> dict[float, float]:
    """Return the P_score (mAP) on validation classes for every value that was tried."""
    tried = {task.value: task for task in records if task[:4] == ("tune", EXTENDED, tune_seed, row)}
    tasks = {value: tried[value] for value in sorted(value for value in tried if value is not None)}
    return {value: 100 * scores(records, task, EXTENDED, "map")["p_score"] for value, task in tasks.items()}


def chosen_value(records: Records, tune_seed: int, row: str) -> float:
    """Return the value of the largest P_score; a tie, or P_scores that are not defined, go to the method's default."""
    return best_value(tuning_scores(records, tune_seed, row), row)


class Results:
    """The scores of every row over the seeds, in one scenario by one metric."""

    def __init__(self, document: Document, records: Records, scenario: str, metric: str) -> None:
        self.found: dict[str, list[dict[str, float]]] = {}
        self.records: dict[str, Record] = {}
        for row in document["rows"]:
            own = "" if row in map(independent_of, SPACE_NAMES) else scenario
            tasks = [task for task in records if task[:2] == ("final", own) and task.method == row]
            if tasks:
                ordered = sorted(tasks, key=lambda task: task.seed)
                self.found[row] = [scores(records, task, scenario, metric) for task in ordered]
                self.records[row] = records[ordered[0]]

    def values(self, row: str, name: str) -> list[float]:
        return [seed[name] for seed in self.found[row]]

    def mean(self, row: str, name: str) -> float:
        return float(np.mean(self.values(row, name)))


def result_table(results: Results) -> list[str]:
    """Return the table of one scenario and metric: the Lorentz space first, references ahead of the methods."""
    rivals = [row for row in results.found if row not in REFERENCES]
    best = {name: max((results.mean(row, name) for row in rivals), default=math.nan) for name in ("p_up", "p_comp")}
    rows = []
    for row in results.found:
        cells = [ROWS[row].title, SPACE_NAMES[ROWS[row].geometry], setting(results.records[row])]
        if row in map(old_of, SPACE_NAMES):
            rows.append([*cells, spread(results.values(row, "self"), ".3f"), *["–"] * (3 + len(VERDICTS))])
            continue
        for name, form in (("self", ".3f"), ("cross", ".3f"), ("p_up", "+.3f"), ("p_comp", "+.3f")):
            cell = spread(results.values(row, name), form)
            leads = row in rivals and results.mean(row, name) == best.get(name)
            cells.append(f"**{cell}**" if leads else cell)
        rows.append([*cells, *verdict_cells(results.found[row])])
    titles = ["model", "space", "tuned", "self", "cross", "P_up", "P_comp", *VERDICTS]
    return markdown(titles, rows, numbers_from=3)


def setting(record: Record) -> str:
    """Return the tuned option; the title of a row names its other options."""
    fixed = ROWS[record["method"]].options
    tuned = {name: value for name, value in record["options"].items() if name not in fixed}
    return ", ".join(f"{name} {value:g}" for name, value in tuned.items()) or "–"


class Claim(NamedTuple):
    """One inequality between two rows' P_comp.

    ``strict`` where equality would not do; ``counted`` where it belongs to the ordering that the paper's tables show.
    """

    words: str
    larger: str
    smaller: str
    strict: bool = True
    counted: bool = True


def claims(results: Results) -> list[Claim]:
    """Return what the paper says, with the best Euclidean rows of these results; only of rows that are there."""
    plain, both = "hbct_without_entailment", "hbct"
    infonce, infonce_plain = "hbct_infonce", "hbct_infonce_without_entailment"
    named = [row for row in PAPER_EUCLIDEAN if row in results.found]
    cheap = [row for row in named if results.mean(row, "p_up") >= CHEAP]
    rivals = {"the best Euclidean method": named, f"the best one with P_up ≥ {CHEAP:g}".replace("-", "−"): cheap}
    found = [Claim("HBCT > HBCT without entailment", both, plain)]
    for words, rows in rivals.items():
        if rows:
            best = max(rows, key=lambda row: results.mean(row, "p_comp"))
            found.append(Claim(f"HBCT without entailment > {words}, {best}", plain, best))
            found.append(Claim(f"HBCT > {words}, {best}", both, best, counted=False))
    found += [
        Claim("HBCT > p2s (not in the paper)", both, "p2s", counted=False),
        Claim("RINCE ≥ InfoNCE, with entailment", both, infonce, strict=False),
        Claim("RINCE ≥ InfoNCE, without entailment", plain, infonce_plain, strict=False),
    ]
    return [claim for claim in found if {claim.larger, claim.smaller} <= set(results.found)]


def judged(results: Results, claim: Claim) -> tuple[bool | None, list[str]]:
    """Return whether a claim holds in the mean over the seeds, and its cells; None where a P_comp is not defined."""
    pairs = zip(results.values(claim.larger, "p_comp"), results.values(claim.smaller, "p_comp"), strict=True)
    differences = [larger - smaller for larger, smaller in pairs]
    if np.isnan(differences).any():
        return None, [claim.words, "not defined", "–", "–"]
    signs = [difference > 0 if claim.strict else difference >= 0 for difference in differences]
    mean = float(np.mean(differences))
    holds = mean > 0 if claim.strict else mean >= 0
    counted = f"{sum(signs)} of {len(signs)}"
    return holds, [claim.words, "**yes**" if holds else "**no**", spread(differences, "+.3f"), counted]


def ordering(document: Document, records: Records) -> list[str]:
    """Return the section that compares the numbers with the paper's claims."""
    lines = [
        "## Does the paper's ordering hold here?",
        "",
        "Computed from the raw P_comp of the tables above. A claim *holds* if the mean of the differences, taken within"
        " each seed, is above 0 (≥: not below 0); the last column counts the seeds in which it holds. The paper tunes"
        " its baselines among runs that do not hurt the new model; the best Euclidean method is therefore also taken"
        f" among those with a P_up of at least {CHEAP:g}, a bound of ours, on these very results.".replace("-", "−"),
    ]
    summary: list[str] = []
    for scenario in COMPARED:
        for metric in METRICS:
            results = Results(document, records, scenario, metric)
            verdicts = [(claim, *judged(results, claim)) for claim in claims(results)]
            named = f"{scenario}, {metric_name(metric)}"
            if not verdicts:
                summary.append(f"- {named}: nothing was compared.")
                continue
            titles = ["claim", "holds", "difference of P_comp", "seeds"]
            lines += ["", f"**{named}**", "", *markdown(titles, [cells for *_, cells in verdicts], numbers_from=2)]
            counted = [(claim.words, holds) for claim, holds, _ in verdicts if claim.counted]
            failed = [words for words, holds in counted if holds is False]
            unknown = [words for words, holds in counted if holds is None]
            answer = "no; not: " + "; ".join(failed) if failed else "not defined" if unknown else "yes"
            summary.append(f"- {named}: {answer}.")
    return [
        *lines,
        "",
        "In short, does the whole ordering hold: HBCT above HBCT without"
        " entailment, that above the best Euclidean method (of all, and of those with little cost), RINCE no worse"
        " than InfoNCE?",
        "",
        *summary,
    ]


def introduction(document: Document, records: Records) -> list[str]:
    old = {scenario: size(records, scenario, old_of(LORENTZ), old_of(HYPERSPHERE)) for scenario in COMPARED}
    everything = size(records, "", *map(independent_of, SPACE_NAMES))
    seeds = document["seeds"]
    over = f"Mean ± sample standard deviation over the seeds {', '.join(map(str, seeds))}; a" if seeds[1:] else "A"
    every = [
        seed
        for scenario in COMPARED
        for row, found in Results(document, records, scenario, "map").found.items()
        if row not in REFERENCES
        for seed in found
    ]
    return [
        "# HBCT against Euclidean methods on Omniglot",
        "",
        f"The old model learns {old[EXTENDED]['classes']} of {everything['classes']} handwritten characters"
        f" (**{EXTENDED}**), or {old[DATA]['images']:,} of {everything['images']:,} drawings, a share of every"
        f" character (**{DATA}**). The new one is the same network, trained from scratch by the same recipe on all"
        f" drawings. Both are judged by {everything['searched_classes']} other characters: each of their"
        f" {everything['searched']:,} drawings searches all the others (leave-one-out). {over} seed draws what the old"
        " model sees, the initial weights and the order of the drawings.",
        "",
        "How to read the columns (a larger number is better):",
        "",
        "- **self** is a model's queries on its own gallery, **cross** new queries on the gallery of the old model.",
        "- **P_up** = (self − independent) / independent, **P_comp** = (cross − old) / (independent − old), both raw,"
        " computed within a seed and then averaged. The old and the independent model are *those of the same geometry*:"
        " models of the hypersphere are compared with the hypersphere's own, those of the Lorentz space with its own."
        " Between geometries, compare P's and not scores, and mind that a geometry whose independent model gains little"
        " over its old one divides by little.",
        "- **compatible** counts the seeds with cross > self of the old model; **drawing queries** and **drawing"
        " classes** those whose 95 % interval of the difference lies wholly above 0, or wholly below: the bootstrap"
        f" draws single queries, or whole characters. The intervals of the second are {widths(every)}.",
        "",
        "The independent model of a geometry and seed is the same in both scenarios, since it sees all drawings. On the"
        " Lorentz space features are clipped at 1.0 in the old model and at 1.2 in the new one, the independent one"
        " included; curvature −1. The best mean P_up and P_comp of each table are bold, references aside.",
    ]


def size(records: Records, scenario: str, *rows: str) -> Record:
    """Return any record of these that succeeded; all seeds and geometries have equal sizes."""
    wanted = [("final", scenario, row) for row in rows]
    fitting = (r for task, r in records.items() if (task.phase, task.scenario, task.method) in wanted and "self" in r)
    return next(fitting)


def tuning(document: Document, records: Records) -> list[str]:
    seed, rows = document["tune_seed"], []
    for row in dict.fromkeys(map(tuned_as, document["rows"])):
        if row not in ROWS:
            continue
        choice = chosen_value(records, seed, row)
        cells = [row, f"{METHODS[row].balance} {default_balance(row):g}"]
        found = tuning_scores(records, seed, row).items()
        cells += [tried_cell(value, score, value == choice and not math.isnan(score)) for value, score in found]
        rows.append(cells)
    trained = next(record for task, record in records.items() if task.phase == "tune" and "self" in record)
    titles = [f"value {number + 1}" for number in range(max(len(row) for row in rows) - 2)]
    return [
        "## Tuning",
        "",
        f"Each method was tuned alike and once, in {EXTENDED}, and has the chosen value in both scenarios: one option,"
        " the one that weighs compatibility against the task, over equally many values, those of its paper among them."
        " HBCT was tuned with RINCE and entailment, and its variants share the choice. The models of this table have"
        f" the seed {seed}, which is in no table above, and {document['tuning_epochs']} epochs. Shown is their P_score"
        " (100 × the harmonic mean of the sigmoids of both P's, mAP) on"
        f" {trained['searched_classes']} validation characters that are neither trained on nor scored above; the"
        " largest was chosen (bold), a tie going to the default. The paper also varies temperatures, of its baselines"
        " and of HBCT.",
        "",
        *markdown(["method", "default", *titles], rows, numbers_from=2),
        "",
        "Network and recipe are those of [all_methods](all_methods.md) but for batch normalisation after the projection"
        " (`linear-bn`, in both geometries) and fewer epochs. Without it, hyperbolic models score lower after the same"
        " few epochs ([measured](lorentz_projection.txt)).",
    ]


def page(document: Document) -> str:
    """Return the whole result as Markdown."""
    records = {Task.of(record): record for record in document["records"]}
    parts = [introduction(document, records)]
    for scenario in COMPARED:
        for metric in METRICS:
            table = result_table(Results(document, records, scenario, metric))
            parts.append([f"## {scenario.capitalize()}, {metric_name(metric)}", "", *table])
    head = "softmax (hypersphere) or Lorentz regression (Lorentz space)"
    parts += [ordering(document, records), tuning(document, records), run({**document, "head": head})]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
