"""Report of one upgrade on one test set: findings on every new model, tables and page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from limpet.errors import unknown_name
from limpet.evaluation.agreement import Agreement
from limpet.evaluation.compatibility import TRAINED_SHARE, Variant, clearly_worse
from limpet.evaluation.examples import Example, Found
from limpet.evaluation.intervals import FEW
from limpet.evaluation.protocols import PROTOCOLS
from limpet.evaluation.results import Evaluation, EvaluationResults, System
from limpet.evaluation.uncertainty import PoincareDisk
from limpet.reports.formats import MISSING, interval, level, percent, probability, score, signed
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import Drawing, drawn_both, page_template, protocol_rows, write_page
from limpet.reports.pictures import Picture, data_uris
from limpet.reports.plots.swatches import class_swatch, curve_swatch, group_swatch, system_swatch
from limpet.reports.readings import (
    GROUPS,
    NAMED,
    ORDERS,
    agreement_rows,
    agreements,
    class_changes,
    class_range,
    class_rows,
    class_words,
    curve_range,
    curve_rows,
    histogram_rows,
    trade_off_points,
    uncertainties,
    uncertainty_range,
)
from limpet.reports.words import (
    CLICKS,
    Finding,
    first_hit_cell,
    first_hits,
    measured,
    net_first_hits,
    places,
    short_verdict,
    spoken_verdict,
    tie_notes,
    worse_places,
)
from limpet.results import Data
from limpet.support.wording import INDEPENDENT, listed, metric_name, model_name

if TYPE_CHECKING:
    from limpet.data.item_facts import FactsOf


def finding(name: str, record: Evaluation) -> Finding:
    """Put one evaluation into words."""
    verdict = record.verdict
    if verdict == "unlabelled" and record.scored:
        sentence = f"{CLICKS} {_scores(record)}"
        found = record.agreement
        around = level(record.protocol.bootstrap.level)
        notes = [agreement_finding(found, around, begin="Agreement is not quality either")] if found else []
        return Finding(verdict, (sentence, *[*notes, *_mapped_notes(record)[:1]]), (_UNJUDGED_NEXT,), verdict, name)
    if verdict == "unlabelled":
        sentence = agreement_finding(record.agreement, level(record.protocol.bootstrap.level))
        return Finding(verdict, (sentence, *_mapped_notes(record)[:1]), (_UNLABELLED_NEXT,), verdict, name)
    sentences = (_scores(record), *_notes(record))
    said = ", ".join(part for part in (spoken_verdict(record), first_hits(record.first_hits)) if part)
    return Finding(said, sentences, (_next_step(record),), verdict, name)


def headline(results: EvaluationResults) -> str:
    """Say in one sentence how many of the new models may search the old gallery."""
    verdicts = {name: record.verdict for name, record in results.evaluations.items()}
    if set(verdicts.values()) == {"unlabelled"}:
        if any(record.scored for record in results.evaluations.values()):
            return "Scores were measured by clicks, and no verdict is spoken."
        return "Nothing could be judged: the data has no labels."
    good = [name for name, verdict in verdicts.items() if verdict == "compatible"]
    if len(verdicts) == 1:
        (name, record), *_ = results.evaluations.items()
        return _headline_of(name, record)
    worse = [
        f" {name} is {spoken_verdict(record)}."
        for name, record in results.evaluations.items()
        if record.verdict == "mixed"
    ]
    if not good:
        return f"None of {len(verdicts)} new models is shown to be compatible with your old gallery.{''.join(worse)}"
    count = f"{len(good)} of {len(verdicts)} new models can search your old gallery today"
    hits = {name: results.evaluations[name].first_hits for name in good}
    named = [name if found is None else f"{name} ({net_first_hits(found)})" for name, found in hits.items()]
    return f"{count}: {listed(named)}.{''.join(worse)}"


def _headline_of(name: str, record: Evaluation) -> str:
    worse = listed(worse_places(record))
    metric = metric_name(record.gate_metric)
    once = " once it is mapped." if "gallery" in (record.mapped or {}) else " today."
    said = {
        "not held out": f"{name} was tested on queries that it was trained on: nothing shows what it does with others.",
        "compatible": f"{name} can search your old gallery{once}",
        "mixed": f"{name} finds more in your old gallery in {metric}, and clearly less {worse}.",
        "inconclusive": f"Whether {name} can search your old gallery is not decided yet.",
    }.get(record.verdict, f"{name} cannot search your old gallery.")
    if _equal(record) and not worse:
        said = f"In {metric}, {name} scores on your old gallery just what the old model does: a swap gains nothing."
    elif record.within_rounding and not worse:
        said = f"In {metric}, {name} gains no more on your old gallery than rounding of numbers may give."
    if worse and record.verdict == "inconclusive":
        said = f"{said} It is clearly worse {worse}."
    beside = first_hits(record.first_hits)
    return f"{said} {beside[:1].upper()}{beside[1:]}." if beside else said


def _equal(record: Evaluation) -> bool:
    return record.gain() == 0 and record.gain_interval() == (0, 0)


def _scores(record: Evaluation) -> str:
    metric = record.gate_metric
    name = metric_name(metric)
    cross, old, new = (score(record.score(system)) for system in ("cross", "self_old", "self_new"))
    return (
        f"New queries on the old gallery score {name} {cross}, old queries {old}; the difference "
        f"{signed(record.gain(metric))} {_judged(record, metric)}. Re-embedding everything would give {new}."
    )


def _judged(record: Evaluation, metric: str) -> str:
    found = interval(record.gain_interval(metric), sign=True)
    if record.gate == "point":
        least = f"against {score(record.min_effect)}" if record.min_effect else "by its sign alone"
        return f"{found} is judged {least}, as asked"
    if record.min_effect:
        bar, below = f"the smallest effect, {score(record.min_effect)}", "is not above"
        above, around_it = f"is above {bar}", f"holds {bar}"
    else:
        bar, below, above, around_it = "zero", "has no part above", "excludes zero", "includes zero"
    verdict = {
        "unlabelled": "is not judged",
        "compatible": above,
        "mixed": above,
        "inconclusive": f"{around_it}: {record.protocol.queries_counted or 0:,} {record.protocol.units} cannot tell",
        "not held out": f"{above}, and says nothing of queries that the model was not trained on",
    }
    chance = record.chance(metric)
    bootstrap = record.protocol.bootstrap
    what = record.protocol.units if bootstrap.resample == "queries" else bootstrap.resample
    around = f"{level(bootstrap.level)} interval over {bootstrap.groups:,} {what}"
    measured = around if chance is None else f"{around}; {p_words(chance)}"
    return f"{found} ({measured}) {verdict.get(record.verdict, f'{below} {bar}')}"


def _next_step(record: Evaluation) -> str:
    if record.verdict == "mixed" or (record.verdict == "inconclusive" and record.worse):
        return (
            "Look at queries that lost a right first hit, of which the report shows some, and decide what counts for "
            "your users. Name it (`--guard recall@1,recall@5`, or `--guard none` for the gate metric alone) and "
            "evaluate again, or embed the gallery anew before you swap."
        )
    if record.verdict == "not held out":
        return (
            "Evaluate with queries that the new model was not trained on. Put them into a file of their own before you "
            "train, embed them with both models, and run `limpet evaluate` again."
        )
    if record.within_rounding:
        return (
            "Keep the old model, or measure what the new one is to be better at (--gate-metric): by these numbers a "
            "swap gains nothing that rounding could not give. `--min-effect` sets the smallest gain that counts."
        )
    if record.verdict == "inconclusive":
        units = record.protocol.units
        return f"Measure more {units} and evaluate again before you swap; no gallery has to change for that."
    if _equal(record):
        return (
            "Keep the old model, or evaluate by a metric in which the two differ (--gate-metric): this one may be as "
            "good as it gets."
        )
    if record.verdict == "not compatible" and _no_better(record):
        return (
            "Keep the old model: by these numbers not even re-embedding the gallery with the new one would bring "
            "more. Train a better model first (more data or epochs; `limpet train --help` has the options), and look "
            "whether --old and --new were given the right way round."
        )
    if record.verdict == "not compatible":
        return (
            "Do not search the old gallery with this model: re-embed the gallery first, or train with a "
            "compatibility method (limpet methods lists them)."
        )
    if record.first_hits is not None and (record.first_hits.net or 0) < 0:
        return (
            f"Decide what counts for your users before you swap: {metric_name(record.gate_metric)} rises, and more "
            "first hits break than heal. The report shows such queries; `--gate-metric "
            f"{record.first_hits.metric}` judges by the first hit."
        )
    if "gallery" in (record.mapped or {}):
        return "Map the old gallery (`limpet embed stored GALLERY --model adapter:ADAPTER`), then swap the query model."
    if (record.score("self_new") or 0) <= (record.score("cross") or 0):
        return "Swap the query model now; by these numbers re-embedding the gallery would bring nothing more."
    return "Swap the query model now, and re-embed the gallery afterwards at your own pace (backfill)."


def _no_better(record: Evaluation) -> bool:
    new, old = record.score("self_new"), record.score("self_old")
    return new is not None and old is not None and new <= old


def _notes(record: Evaluation) -> list[str]:
    notes = [*_guard_notes(record), *_rounding_notes(record)]
    notes += tie_notes(record.ties, record.protocol, record.self_old or {})
    notes += [*_mapped_notes(record), *trained_notes(record), *_class_notes(record), *_mixing_notes(record)]
    told = flips(record.negative_flip_rate, record.positive_flip_rate, record.protocol.units)
    if told:
        notes.append(told)
    if record.self_independent is None:
        notes.append(
            f"No independent model was given, so P_comp and P_up are missing: evaluate again with one, {INDEPENDENT}."
        )
    elif record.p("p_comp") is None:
        notes.append(
            "P_comp is not defined: the independent model does not score more than the old one, so there is no "
            "improvement that could arrive early. A new recipe that is better is worth more than compatibility here."
        )
    return notes


def trained_notes(record: Evaluation) -> list[str]:
    """Say how many queries and gallery items the models were trained on, or that it is not known."""
    items, queries, gallery = record.trained_on.get("new"), record.protocol.queries, record.protocol.gallery
    if items is None:
        return [
            "It is not known whether the new model was trained on these queries: no record of its training came with "
            "its vectors. The verdict holds only if the queries were held out."
        ]
    notes = [
        f"The new model was trained on {items.queries:,} of {queries:,} queries and {items.gallery:,} of {gallery:,} "
        "gallery items."
    ]
    if (record.trained_share or 0) > TRAINED_SHARE:
        notes[0] += f" A verdict needs held-out queries: at most {percent(TRAINED_SHARE)} may be trained on."
    for name, effect in (("old", "its own score is too high"), ("independent", "P_up and P_comp are too low")):
        other = record.trained_on.get(name)
        if other is not None and other.queries > TRAINED_SHARE * queries:
            notes.append(f"The {name} model was trained on {other.queries:,} of {queries:,} queries: {effect}.")
    return notes


def _guard_notes(record: Evaluation) -> list[str]:
    found = {metric: record.gain_interval(metric) for metric in record.interval or {}}
    beside = [metric for metric in clearly_worse(found) if metric not in (*record.worse, record.gate_metric)]
    told = [(metric, "Clearly worse") for metric in record.worse]
    told += [(metric, "Clearly worse, and not guarded") for metric in beside]
    return [
        f"{said}: {metric_name(metric)} {score(record.score('cross', metric))}, "
        f"{score(record.score('self_old', metric))} with old queries, {signed(record.gain(metric))} "
        f"{interval(record.gain_interval(metric), sign=True)}."
        for metric, said in told
    ]


def _rounding_notes(record: Evaluation) -> list[str]:
    if not record.within_rounding:
        return []
    return [
        f"A gain of {signed(record.gain())} is no evidence of a better model: rounding the old vectors to 16 bits "
        f"changes the {metric_name(record.gate_metric)} of a query by {score(record.rounding)} on average, up or down."
    ]


def _mixing_notes(record: Evaluation) -> list[str]:
    if record.mixing is None:
        return []
    hits = [(one.first_hits, one.words) for one in record.mixing.meetings if one.first_hits is not None]
    found, words = min(hits, key=lambda one: one[0].net or 0.0, default=(None, ""))
    beside = "" if found is None else f" At worst, {words}: {first_hits(found)}."
    if record.mixing.passed:
        return [f"Vectors of both models may stand in one gallery, whichever of the two queries it.{beside}"]
    failed = listed([one.words for one in record.mixing.meetings if not one.passed])
    return [f"Vectors of both models may not stand in one gallery: that does not hold of {failed}.{beside}"]


def mixing_rows(record: Evaluation) -> Table:
    """Return columns and rows for galleries with vectors of both models; empty if none was measured."""
    mixing = record.mixing
    if mixing is None:
        return [], []
    columns = [
        f"queries and gallery ({metric_name(mixing.metric)})",
        "score",
        "− today",
        "may lose",
        "first hits (net)",
        "verdict",
    ]
    rows = [
        [
            one.words,
            score(one.score),
            f"{signed(one.difference)} {interval(one.interval, sign=True)}".strip(),
            score(one.tolerated),
            first_hit_cell(one.first_hits),
            f"{one.verdict}: clearly worse {listed(places(one.worse))}" if one.worse else one.verdict,
        ]
        for one in mixing.meetings
    ]
    return columns, rows


def _class_notes(record: Evaluation) -> list[str]:
    bootstrap = record.protocol.bootstrap
    if bootstrap.resample == "queries" or bootstrap.groups >= FEW:
        return []
    return [f"The queries are of {bootstrap.groups} classes only, which makes intervals wide: measure with more."]


def _mapped_notes(record: Evaluation) -> list[str]:
    mapped = record.mapped or {}
    if not mapped:
        return []
    sides = {"query": "the new queries", "gallery": "the old gallery"}
    notes = [
        "The cross-test uses a map between two frozen models. It was applied to "
        f"{listed([words for side, words in sides.items() if side in mapped])}: your application must do the same."
    ]
    if "query" in mapped:
        notes.append(
            "The upgrade curve was not measured: during the backfill, mapped queries search old vectors, and unmapped "
            "queries search new ones. Scores of the two are not comparable, and their results need a rank merge. A map "
            "of the old gallery (direction old_to_new) keeps all vectors in one space."
        )
    return notes


_UNLABELLED_NEXT = (
    "Look in the report at queries whose first hit changed, and judge which answer is better. For a verdict add labels "
    "to queries and gallery (a column “label” or an array “labels”; a few hundred labelled queries are a beginning) "
    "and run `limpet evaluate` again."
)


_UNJUDGED_NEXT = (
    "Look in the report at queries whose first hit changed, and judge which answer is better. If people judged these "
    "pairs, whatever either system showed them, say so for a verdict: `limpet evaluate --protocol-options.judged "
    "true`."
)


def p_words(p_value: float | None) -> str:
    """Write a p-value.

    >>> p_words(0.00009999), p_words(0.0317), p_words(None)
    ('p = 0.0001', 'p = 0.032', '–')
    """
    return MISSING if p_value is None else f"p = {probability(p_value)}"


def flips(
    negative: Mapping[str, float | None] | None, positive: Mapping[str, float | None] | None, units: str = "queries"
) -> str:
    """Say how many answers were lost and won; empty if unknown.

    >>> flips({"cross": 0.02}, None).replace("\N{NO-BREAK SPACE}", " ")
    'Negative flips: 2.0 % of queries were right before and are wrong now.'
    """
    lost, won = negative or {}, positive or {}
    if lost.get("cross") is None:
        return ""
    later = lost.get("self_new")
    after = "" if later is None else f", {percent(later)} after re-embedding"
    sentence = f"Negative flips: {percent(lost['cross'])} of {units} were right before and are wrong now{after}."
    if won.get("cross") is None:
        return sentence
    later = won.get("self_new")
    after = "" if later is None else f", {percent(later)} after re-embedding"
    return f"{sentence} Positive flips, wrong before and right now: {percent(won['cross'])}{after}."


_BLIND = "Without labels nobody can say which results are right"


def agreement_finding(agreement: Agreement | None, level: str, begin: str = _BLIND) -> str:
    """Say how much of today's results would be found again, without judging it."""
    if agreement is None:
        return f"{begin}, and no agreement was measured."
    cross, later = agreement.cross, agreement.self_new
    low, high = (percent(end) for end in cross.overlap.interval)
    blind = ", and agreement is not quality" if begin == _BLIND else ""
    return (
        f"{begin}{blind}. After the swap {percent(cross.first_changed.mean)} of queries get another first hit, "
        f"and {percent(cross.overlap.mean)} [{low}, {high}] of today’s first {agreement.k} items stay "
        f"({level} interval); with everything re-embedded {percent(later.first_changed.mean)} and "
        f"{percent(later.overlap.mean)}."
    )


SYSTEMS: tuple[System, ...] = ("self_old", "cross", "self_new", "self_independent")
_HEADS = {
    "self_old": "self (old)",
    "cross": "cross",
    "self_new": "self (new)",
    "self_independent": "self (independent)",
}
MEASURES: dict[System, str] = {
    "self_old": "old queries, old gallery: self (old)",
    "cross": "new queries, old gallery: cross",
    "self_new": "new queries, new gallery: self (new)",
    "self_independent": "independent queries and gallery: self (independent)",
    "cross_independent": "independent queries, old gallery: cross without alignment",
}
_DIFFERENCES = {
    "cross_minus_self_old": "cross − self (old), paired interval",
    "self_new_minus_self_independent": "self (new) − self (independent), paired interval",
}
_P_METRICS: dict[Literal["p_up", "p_comp", "p_score"], str] = {"p_up": "P_up", "p_comp": "P_comp", "p_score": "P_score"}
_VARIANTS: dict[Variant, Callable[[float | None], str]] = {"raw": signed, "sigmoid": score}
_YES_NO = {True: "yes", False: "no", None: MISSING}


def summary_rows(results: EvaluationResults) -> Table:
    """Return columns and rows on the gate metric, one row per new model; a dash stands for what is missing.

    Scores are fractions; "cross - self (old)" is followed by its interval, P_up and P_comp are raw, first hits those
    before and after the swap, with their net change and its interval.
    """
    metric = results.first.gate_metric
    columns = [
        f"model ({metric_name(metric)})",
        *_HEADS.values(),
        "cross − self (old)",
        "P_up",
        "P_comp",
        "first hits (net)",
        "verdict",
    ]
    rows = [
        [
            name,
            *(score(record.score(system)) for system in SYSTEMS),
            f"{signed(record.gain())} {interval(record.gain_interval(), sign=True)}".strip(),
            signed(record.p("p_up")),
            signed(record.p("p_comp")),
            first_hit_cell(record.first_hits),
            short_verdict(record),
        ]
        for name, record in results.evaluations.items()
    ]
    return columns, rows


def metric_rows(record: Evaluation) -> Table:
    """Return every number of one evaluation that belongs to a metric: a column per metric, a row per measure."""
    metrics = list(record.self_old or {})
    rows = [
        [
            head,
            *(
                f"{score(record.score(system, metric))} {interval(record.score_interval(system, metric))}".strip()
                for metric in metrics
            ),
        ]
        for system, head in MEASURES.items()
    ]
    differences = [
        [head, *((interval(record.gain_interval(metric, name), sign=True) or MISSING) for metric in metrics)]
        for name, head in _DIFFERENCES.items()
    ]
    chances = [
        [head.replace("paired interval", "p"), *(probability(record.chance(metric, name)) for metric in metrics)]
        for name, head in _DIFFERENCES.items()
        if record.p_value
    ]
    rest = [
        [f"{head}, {variant}", *(written(record.p(name, variant, metric)) for metric in metrics)]
        for name, head in _P_METRICS.items()
        for variant, written in _VARIANTS.items()
        if (getattr(record, name) or {}).get(variant)
    ]
    strictly = ["cross > self (old)", *(_YES_NO[(record.compatible or {}).get(metric)] for metric in metrics)]
    return ["", *map(metric_name, metrics)], [*rows, *differences, *chances, strictly, *rest]


Examples = Mapping[str, Sequence[Example]]
Disks = Mapping[str, PoincareDisk | None]

SEARCHES = {
    "self_old": "old queries, old gallery",
    "cross": "new queries, old gallery",
    "self_new": "new queries, new gallery",
}
KINDS = {
    "fixed": "✗ → ✓",
    "kept": "✓ → ✓",
    "flipped": "✓ → ✗",
    "still wrong": "✗ → ✗",
    "first hit changed": "≠",
}


def write_report(
    results: EvaluationResults,
    folder: str | Path,
    *,
    examples: Examples | None = None,
    picture: Picture | None = None,
    disks: Disks | None = None,
    facts: FactsOf | None = None,
) -> Path:
    """Write report.html into a folder atomically, and return its path.

    Args:
        results: Results to report.
        folder: Output folder.
        examples: Examples from `choose_examples`, by the name of the evaluation; None for none.
        picture: Function from the id of a query or gallery item to its PNG file, its pixels (uint8, (C, H, W)) or None;
            without it examples are shown by label and id.
        disks: Disks from `choose_disk`, by the name of the evaluation; None for none.
        facts: Function from the id of an item to its text and metadata by name, which examples show beside the id.

    Raises:
        ConfigError: Jinja2 is missing, or examples or disks are of an unknown evaluation.
        DataError: The file cannot be written, or a picture is invalid.
    """
    return write_page(render_report(results, examples=examples, picture=picture, disks=disks, facts=facts), folder)


def render_report(
    results: EvaluationResults,
    *,
    examples: Examples | None = None,
    picture: Picture | None = None,
    disks: Disks | None = None,
    facts: FactsOf | None = None,
) -> str:
    """Return the page as text; see `write_report`."""
    evaluations = results.evaluations
    shown = {name: list(chosen) for name, chosen in (examples or {}).items() if chosen}
    placed = {name: disk for name, disk in (disks or {}).items() if disk}
    for name in (*shown, *placed):
        if name not in evaluations:
            raise unknown_name("evaluation", name, evaluations)
    uris = data_uris(_items(shown), picture) if picture else {}
    known = {name: facts(name) for name in dict.fromkeys(_items(shown))} if facts else {}
    rows = measured(evaluations)
    judged = {name: record for name, record in rows.items() if record.verdict != "unlabelled"}
    page: str = page_template("evaluation.html").render(
        document=results,
        evaluations=evaluations,
        first=results.first,
        headline=headline(results),
        findings=[finding(name, record) for name, record in evaluations.items()],
        measured=rows,
        judged=judged,
        charts=_charts(evaluations),
        classes=_classes(judged),
        agreement=_agreement(evaluations),
        uncertainty=_uncertainty(evaluations),
        disks=_disks(placed),
        placed=placed,
        summary=summary_rows(results),
        mixed={name: mixing_rows(record) for name, record in evaluations.items() if record.mixing},
        fingerprints=_fingerprints(evaluations),
        examples=shown,
        opened=_opened(shown, evaluations),
        pictures={name: f"p{number}" for number, name in enumerate(uris)},
        uris=list(uris.values()),
        known=known,
        protocol=protocol_rows(results.first),
        systems=SEARCHES,
        kinds=KINDS,
        orders=ORDERS,
        groups=GROUPS,
        flips=flips,
        class_rows=class_rows,
        named=NAMED,
        agreement_rows=agreement_rows,
        curve_rows=curve_rows,
        metric_rows=metric_rows,
        histogram_rows=histogram_rows,
        system_swatch=system_swatch,
        curve_swatch=curve_swatch,
        group_swatch=group_swatch,
        class_swatch=class_swatch,
        class_words=class_words,
    )
    return page


def _charts(evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    from limpet.reports.plots.bars import score_bars
    from limpet.reports.plots.forest import difference_plot
    from limpet.reports.plots.lines import curve_plot
    from limpet.reports.plots.scatter import trade_off

    rows = measured(evaluations)
    if not rows:
        return {"curves": {}}
    limits, one = curve_range(rows), len(rows) == 1
    wide, high, tall = (640, 300, 320) if one else (340, 250, 400)
    curves = {
        name: drawn_both(curve_plot, name, record, limits, wide={"width": wide, "height": high})
        for name, record in rows.items()
        if limits and record.upgrade_curve
    }
    placed = trade_off_points(rows)
    mapped = [name for name in rows if name not in curves and "query" in (rows[name].mapped or {})]
    return {
        "bars": drawn_both(score_bars, rows),
        "differences": drawn_both(difference_plot, rows, wide={"width": 400}),
        "trade_off": placed and drawn_both(trade_off, rows, wide={"height": tall}, narrow={"height": 320}),
        "unplaced": [name for name in rows if name not in placed],
        "curves": curves,
        "without_curve": [
            name for name, record in rows.items() if name not in curves and name not in mapped and _could_turn(record)
        ],
        "mapped": mapped,
    }


def _disks(placed: Mapping[str, PoincareDisk]) -> dict[str, Drawing]:
    from limpet.reports.plots.scatter import disk_plot

    width = 600 if len(placed) == 1 else 340
    return {name: drawn_both(disk_plot, name, disk, wide={"width": width}) for name, disk in placed.items()}


def _could_turn(record: Evaluation) -> bool:
    """Return whether a half re-embedded gallery could be measured: queries rank it and have classes."""
    protocol = PROTOCOLS.get(record.protocol.name)
    return (protocol is None or protocol.has_curve) and record.class_change is not None


def _classes(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Draw the change per class of every model; a single class has no chart. None if no classes are known."""
    from limpet.reports.plots.bars import class_plot

    changes = class_changes(evaluations)
    if not changes:
        return None
    limits = class_range(changes)
    charts = {
        name: drawn_both(class_plot, name, change, limits, wide={"height": 330}, narrow={"height": 280})
        if change.classes > 1
        else None
        for name, change in changes.items()
    }
    return {"changes": changes, "charts": charts}


def _agreement(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Draw the agreement of every model with today's results; None if labels allow a better measure."""
    from limpet.reports.plots.bars import agreement_bars

    found = agreements(evaluations)
    if not found:
        return None
    width = 640 if len(found) == 1 else 520
    charts = {name: drawn_both(agreement_bars, name, alike, wide={"width": width}) for name, alike in found.items()}
    return {"found": found, "charts": charts}


def _uncertainty(evaluations: Mapping[str, Evaluation]) -> dict[str, Any] | None:
    """Draw the uncertainty of every model that has one; None if none has."""
    from limpet.reports.plots.histogram import uncertainty_plot

    found = uncertainties(evaluations)
    if not found:
        return None
    limits, few = uncertainty_range(found), len(found) <= 2
    size = {"width": 540, "height": 270} if few else {"width": 340, "height": 250}
    return {
        "histograms": found,
        "few": few,
        "charts": {
            name: drawn_both(uncertainty_plot, name, histogram, limits, wide=size) for name, histogram in found.items()
        },
    }


def _items(examples: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    for chosen in examples.values():
        for example in chosen:
            yield example.query
            for system in SEARCHES:
                found: Found = getattr(example, system)
                yield from found.ids


def _fingerprints(evaluations: Mapping[str, Evaluation]) -> dict[str, str]:
    found: dict[str, str] = {}
    for record in evaluations.values():
        for role in ("old", "independent"):
            if model := record.fingerprints.get(role):
                found.setdefault(f"{role} model", model.fingerprint)
    new = {name: record.fingerprints["new"] for name, record in evaluations.items()}
    return found | {name: model.fingerprint for name, model in new.items() if model}


def _opened(examples: Mapping[str, Any], evaluations: Mapping[str, Evaluation]) -> str | None:
    """Return the model whose examples are shown first: a compatible one if there is one."""
    compatible = (name for name in examples if evaluations[name].verdict == "compatible")
    return next(compatible, next(iter(examples), None))


def results_of(record: Evaluation) -> EvaluationResults:
    """Return results of one evaluation, with the new model named by its fingerprint."""
    new = record.fingerprints["new"]
    return EvaluationResults.of(
        title="An upgrade of an embedding model",
        data=Data(name="", description="", numbers={}),
        models={},
        evaluations={"new" if new is None else model_name(new.fingerprint): record},
    )


def evaluation_words(results: EvaluationResults) -> list[str]:
    """Return the findings, one per line."""
    findings = [finding(name, record) for name, record in results.evaluations.items()]
    if len(findings) == 1:
        lines = findings[0].lines
    else:
        lines = [f"{one.name}: {one.headline}. {line}" for one in findings for line in one.lines[:1]]
    return [headline(results), *lines]


def evaluation_table(results: EvaluationResults) -> Table:
    """Return the main table: scores, or the agreement of old and new rankings if nothing could be judged."""
    if any(record.scored for record in results.evaluations.values()):
        return summary_rows(results)
    agreement = next(iter(agreements(results.evaluations).values()), None)
    return ([], []) if agreement is None else agreement_rows(agreement)


def evaluation_records(results: EvaluationResults) -> list[dict[str, Any]]:
    """Return every score of every new model, a row for each metric."""
    return [
        {
            "model": name,
            "metric": metric,
            **{system: record.score(system, metric) for system in SYSTEMS},
            "gain": record.gain(metric),
            **dict(zip(("gain_low", "gain_high"), record.gain_interval(metric) or (None, None), strict=True)),
            "p_value": record.chance(metric),
            "p_up": record.p("p_up", metric=metric),
            "p_comp": record.p("p_comp", metric=metric),
            "verdict": record.verdict,
        }
        for name, record in results.evaluations.items()
        for metric in record.self_old or {}
    ]


def evaluation_markdown(results: EvaluationResults) -> str:
    """Return findings and tables in Markdown."""
    evaluations = results.evaluations
    findings = [Finding(headline(results), ()), *(finding(name, record) for name, record in evaluations.items())]
    scored = {name: record for name, record in evaluations.items() if record.self_old}
    metrics = {f"{name}, in every metric": metric_rows(record) for name, record in scored.items()}
    summary = {f"In {metric_name(results.first.gate_metric)}": summary_rows(results)} if scored else {}
    mixed = {f"{name}, mixed with the old model": mixing_rows(one) for name, one in evaluations.items() if one.mixing}
    return markdown_of(results.title, findings, summary | metrics | mixed)
