"""Comparison of learners in sessions: sentences, tables and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.errors import ConfigError
from limpet.reports.formats import percent, score
from limpet.reports.markdown import Table, markdown_of
from limpet.reports.page import drawn_both, page_template, write_page
from limpet.reports.plots.heat import heat_key
from limpet.reports.plots.rendering import svg
from limpet.reports.plots.swatches import system_swatch
from limpet.reports.words import Finding
from limpet.support import duration, listed
from limpet_bench.reports.charts.costs import (
    KINDS,
    cost_columns,
    growth_plot,
    growths,
    images_of,
    layer_swatch,
    seconds_by_session,
)
from limpet_bench.reports.charts.recall import learner_swatch, looks, recall_lines
from limpet_bench.reports.charts.recall_maps import recall_map, recall_range

if TYPE_CHECKING:
    import altair as alt

    from limpet_bench.sessions.plans import Plan
    from limpet_bench.sessions.results import LearnerResults, SessionsResults

_CLOSE = 0.01  # AR@1: a smaller lead is treated as chance, because only one seed was run


@dataclass(frozen=True)
class Standing:
    """The leading learner, the bounds and the others.

    Args:
        results: Results of all learners.
        leader: The learner with the highest AR@1 among those that embed every image once; among all if there is none.
        others: The remaining learners that are not bounds, highest AR@1 first.
        lower: The lower bound; None if it was not run.
        upper: The upper bound; None if it was not run.
    """

    results: SessionsResults
    leader: str
    others: tuple[str, ...]
    lower: str | None
    upper: str | None

    def average(self, name: str) -> float:
        """Return a learner's AR@1."""
        return self.results.learners[name].average_recall["1"]

    @property
    def roles(self) -> list[str]:
        """The lower bound, the leader and the upper bound, each once."""
        return [name for name in dict.fromkeys((self.lower, self.leader, self.upper)) if name is not None]

    @property
    def gap(self) -> float | None:
        """Difference in AR@1 between the bounds; None if one is missing."""
        if self.lower is None or self.upper is None:
            return None
        return self.average(self.upper) - self.average(self.lower)

    @property
    def once(self) -> str:
        """Remark on a leader that re-embeds nothing; empty otherwise."""
        return "" if self.results.learners[self.leader].embedded_again else ", with nothing embedded again"

    @property
    def rival(self) -> str | None:
        """The best other learner, except the upper bound; None if there is none."""
        rivals = [name for name in (*self.others, self.lower) if name not in (None, self.leader)]
        return max(rivals, key=self.average, default=None)


def standing(results: SessionsResults) -> Standing:
    """Return the leading learner, the bounds and the others."""
    lower, upper, learners = results.bounds.lower, results.bounds.upper, results.best_first()
    once = [name for name, learner in learners.items() if learner.gallery_policy == "append"]
    leader = next(iter(once or learners))
    others = tuple(name for name in learners if name not in (leader, lower, upper))
    return Standing(results, leader, others, lower, upper)


def gap_closed(found: Standing, name: str) -> float | None:
    """Return the share of the gap between the bounds that a learner closes: 0 at the lower bound, 1 at the upper.

    None if a bound is missing, or the upper bound is not better than the lower one.
    """
    if found.lower is None or found.gap is None or found.gap <= 0:
        return None
    return (found.average(name) - found.average(found.lower)) / found.gap


def sessions_headline(found: Standing) -> str:
    """Return a sentence on the leading learner and its distance from the upper bound."""
    leader, lower, upper, average = found.leader, found.lower, found.upper, score(found.average(found.leader))
    if leader == lower and found.others:
        return f"No learner does better than {lower}, the lower bound."
    if upper is None or upper == leader:
        if found.others or lower not in (None, leader):
            return f"{leader} leads: AR@1 {average}{found.once}."
        return f"{leader} reaches AR@1 {average} over {_sessions(found)}{found.once}."
    below = found.average(upper) - found.average(leader)
    if below <= 0:
        compared = "even more than" if below else "as much as"
        return f"{leader} finds {compared} {upper}: AR@1 {average}{found.once}."
    nearest = "comes nearest to" if found.others else "stays below"
    return f"{leader} {nearest} {upper}: AR@1 {average}, {score(below)} less{found.once}."


def sessions_findings(found: Standing) -> list[Finding]:
    """Return the findings of a comparison: quality, forgetting and cost."""
    values = {name: found.average(name) for name in found.roles}
    sentence = f"AR@1, recall@1 averaged over {_sessions(found)}, is {_each(found, values, score)}."
    closed = gap_closed(found, found.leader)
    if closed is not None and found.leader != found.lower:
        sentence += f" {found.leader} closes {percent(closed)} of the gap between the bounds."
    if found.others:
        runner_up = found.others[0]
        sentence += f" {runner_up} follows with {score(found.average(runner_up))}."
    steps = tuple((score(found.average(name)), name) for name in found.roles)
    findings = [
        Finding("", (sentence, *_quality_notes(found)), (_next_step(found),), name="Quality", steps=steps),
        _forgetting(found),
        _cost(found),
    ]
    return [finding for finding in findings if finding is not None]


def _next_step(found: Standing) -> str:
    leader, lower, upper = found.leader, found.lower, found.upper
    if leader == lower:
        return _LOWER_LEADS if found.others else _ONLY_BOUNDS
    if found.rival and found.average(leader) - found.average(found.rival) < _CLOSE:
        return (
            f"Repeat with other seeds (--seed) before you choose between {leader} and {found.rival}: another one may "
            "well turn a lead this small around."
        )
    if upper == leader:
        return "Run a learner that embeds every image once beside it, to see what keeping the gallery costs in quality."
    if upper is None:
        missing = "joint" if lower else "joint finetune"
        return f"Run `--method {missing}` beside it, to see how much there is to gain{'' if lower else ' and to lose'}."
    if found.average(upper) <= found.average(leader):
        return f"Train the next session with {leader}: embedding everything again would bring nothing here."
    again = count_of(found.results.learners[upper].embedded_again)
    return (
        f"Train the next session with {leader} and leave the gallery alone, unless "
        f"{score(found.average(upper) - found.average(leader))} more AR@1 is worth embedding {again} images again."
    )


_LOWER_LEADS = (
    "Do not pay for any of the others yet: choose their weights on the validation queries, or give those with a memory "
    "more exemplars, and compare again."
)
_ONLY_BOUNDS = "Compare it with learners that keep to what is embedded, such as `--method cvs`."


def _quality_notes(found: Standing) -> list[str]:
    notes = []
    if found.gap is not None and found.gap <= 0:
        notes.append(
            f"The bounds are no bounds here: {found.upper} scores no more than {found.lower}. Train longer, or with "
            "more images, before you compare learners."
        )
    below = [name for name in found.others if found.lower and found.average(name) < found.average(found.lower)]
    if below and found.leader != found.lower:
        worse = listed([f"{name} ({score(found.average(name))})" for name in below])
        notes.append(f"Below the lower bound: {worse}.")
    notes.append(f"One seed ({found.results.seed}): how far these numbers depend on it was not measured.")
    return notes


def _forgetting(found: Standing) -> Finding | None:
    learners = found.results.learners
    lost = {name: value for name in found.roles if (value := learners[name].forgetting) is not None}
    if found.leader not in lost:
        return None
    sentence = f"Classes of earlier sessions lost {_each(found, lost, score, ' of their best recall@1')}."
    if min(lost.values()) < 0:
        sentence += " A negative loss is a gain."
    oldest = [session.recall_by_home[0] for session in learners[found.leader].sessions]
    if oldest[0] is not None and oldest[-1] is not None:
        sentence += (
            f" The classes of session 1 stood at {score(oldest[0])} with {found.leader} when they were new, and stand "
            f"at {score(oldest[-1])} now."
        )
    notes = []
    harder = not found.results.plan.known_from_start  # later sessions have queries of more classes
    if harder and found.upper not in (None, found.leader) and lost.get(found.upper, 0.0) > 0:
        notes.append(
            f"What {found.upper} loses is hardly forgetting, since it sees everything again: with every class the "
            "search itself grows harder, for all learners alike."
        )
    steps = tuple((score(value), name) for name, value in lost.items())
    return Finding("", (sentence, *notes), name="Forgetting", steps=steps)


def _cost(found: Standing) -> Finding:
    learners = found.results.learners
    seconds = {name: learners[name].seconds for name in found.roles}
    sentence = f"All sessions together took {_each(found, seconds, duration)}, on the machine that ran them."
    again = {name: learner.embedded_again for name, learner in learners.items() if learner.embedded_again}
    if again:
        counted = listed([f"{name} embedded {count_of(number)} images again" for name, number in again.items()])
        sentence += f" {counted}" + ("; the others none." if len(again) < len(learners) else ".")
    else:
        sentence += " No image was embedded for the gallery twice."
    notes = []
    replayed = max(session.replayed for session in learners[found.leader].sessions)
    if replayed:
        notes.append(f"{found.leader} trained on up to {count_of(replayed)} exemplars of earlier sessions at a time.")
    steps = tuple((duration(seconds[name]), name) for name in found.roles)
    return Finding("", (sentence, *notes), name="Cost", steps=steps)


def _each(found: Standing, values: Mapping[str, float], form: Callable[[float], str], unit: str = "") -> str:
    """Format the number of the leader, with a unit, against those of the bounds."""
    roles = {found.lower: " (the lower bound)", found.upper: " (the upper bound)"}
    first, *rest = sorted(values, key=lambda name: name != found.leader)
    others = listed([f"{form(values[name])} with {name}{roles.get(name, '')}" for name in rest])
    return f"{form(values[first])}{unit} with {first}{roles.get(first, '')}" + (f", against {others}" if rest else "")


def _sessions(found: Standing) -> str:
    done, planned = found.results.done, found.results.plan.sessions
    counted = f"{done} session{'' if done == 1 else 's'}"
    return counted if done == planned else f"{done} of {planned} sessions"


def count_of(images: float) -> str:
    """Format a number of images.

    >>> count_of(48_210.0), count_of(12_345_678)
    ('48,210', '12.3 million')
    """
    return f"{images:,.0f}" if images < 10_000_000 else f"{images / 1e6:,.1f} million"


def sessions_table(results: SessionsResults) -> Table:
    """Return columns and rows, one row per learner, the highest AR@1 first; a dash marks missing values.

    Scores are fractions. "forgetting" is the recall@1 that classes of earlier sessions lost, and "embedded again" the
    number of re-embedded images.
    """
    averages = [f"AR@{k}" for k in results.ks]
    columns = ["learner", *averages, "last recall@1", "forgetting", "embedded again", "minutes"]
    rows = []
    for name, learner in results.best_first().items():
        numbers = [score(learner.average_recall[str(k)]) for k in results.ks]
        numbers += [score(learner.sessions[-1].recall["1"]), score(learner.forgetting)]
        rows.append([name, *numbers, f"{learner.embedded_again:,}", f"{learner.seconds / 60:.1f}"])
    return columns, rows


_COUNTS = ("gallery", "embedded", "replayed", "images trained on", "images only embedded")
_TIMES = ("seconds of training", "seconds of the rest")
_NARROWER = {"width": 520.0}
_MAP_MEANS = (
    "rows: after which session",
    "columns: classes, by their session",
    "outlined: the session's own classes",
)


def write_sessions_report(results: SessionsResults, plan: Plan, folder: str | Path) -> Path:
    """Write report.html into a folder atomically, and return its path.

    Raises:
        ConfigError: Jinja2 is missing, or the results are of another plan.
        DataError: The file could not be written.
    """
    return write_page(render_sessions_report(results, plan), folder)


def render_sessions_report(results: SessionsResults, plan: Plan) -> str:
    """Return the page as text; see `write_sessions_report`."""
    told, training = results.plan, [len(rows) for rows in plan.training]
    if (told.name, told.training) != (plan.name, training):
        raise ConfigError(
            f"The results are of the plan '{told.name}' with {told.training} training images, and '{plan.name}' with "
            f"{training} was given.",
            expected="the plan that the learners went through",
        )
    position, learners = standing(results), results.best_first()
    found, bounds = sessions_findings(position), (position.lower, position.upper)
    page: str = page_template("sessions.html", package="limpet_bench").render(
        document=results,
        learners=learners,
        headline=sessions_headline(position),
        findings=found,
        steps={one.name: [(number, name, name not in bounds) for number, name in one.steps] for one in found},
        replays=any(session.replayed for learner in learners.values() for session in learner.sessions),
        system_swatch=system_swatch,
        ranking=_ranking(results, position),
        swatches={name: learner_swatch(look) for name, look in looks(results).items()},
        charts=_charts(results, learners),
        growths=growths(learners),
        kinds=KINDS,
        layer_swatch=layer_swatch,
        summary=sessions_table(results),
        by_session={name: session_rows(learner) for name, learner in learners.items()},
        by_age={name: age_rows(learner) for name, learner in learners.items()},
    )
    return page


def _ranking(results: SessionsResults, position: Standing) -> Table:
    columns, rows = ["learner", *(f"AR@{k}" for k in results.ks)], []
    for name, learner in results.best_first().items():
        rows.append([name, *(score(learner.average_recall[str(k)]) for k in results.ks)])
        share = gap_closed(position, name)
        if share is not None:
            rows[-1].append(percent(share).replace("-", "−"))
    return columns + ["gap closed"] * (len(rows[0]) > len(columns)), rows


def _charts(results: SessionsResults, learners: Mapping[str, LearnerResults]) -> dict[str, Any]:
    limits = recall_range(results)
    grown = growths(learners)
    most = max(max(growth.gallery) for growth in grown)
    return {
        "recall": drawn_both(recall_lines, results),
        "maps": {name: svg(recall_map(name, learner, limits)) for name, learner in learners.items()},
        "map_key": drawn_both(partial(heat_key, limits, "recall@1", meanings=_MAP_MEANS)),
        "growth": [drawn_both(growth_plot, growth, most, wide=_NARROWER) for growth in grown],
        "images": drawn_both(_images, learners, wide=_NARROWER),
        "seconds": drawn_both(_seconds, learners, wide=_NARROWER),
    }


def _images(learners: Mapping[str, LearnerResults], width: float) -> alt.LayerChart:
    costs = {name: images_of(learner) for name, learner in learners.items()}
    kinds = ("through training steps", "only embedded")
    return cost_columns("Images by session", costs, kinds, count_of, width=width)


def _seconds(learners: Mapping[str, LearnerResults], width: float) -> alt.LayerChart:
    costs = {name: seconds_by_session(learner) for name, learner in learners.items()}
    kinds = ("of training", "of everything else")
    return cost_columns("Time by session", costs, kinds, duration, width=width)


def session_rows(learner: LearnerResults) -> Table:
    """Return columns and rows with all numbers of a learner, one row per session."""
    ks = list(learner.sessions[0].recall)
    scores = [f"recall@{k}" for k in ks]
    columns = ["session", *scores, "queries", "validation recall@1", "epoch kept", *_COUNTS, *_TIMES]
    rows = []
    for number, session in enumerate(learner.sessions, start=1):
        row = [str(number), *(score(session.recall[k]) for k in ks), f"{session.queries:,}"]
        row += [score(session.validation_recall), f"{session.best_epoch + 1} of {session.epochs}"]
        counts = [session.gallery_rows, session.embedded_rows, session.replayed]
        row += [f"{count:,}" for count in (*counts, session.trained_images, session.encoded_images)]
        row += [f"{seconds:,.1f}" for seconds in (session.seconds.training, session.seconds.rest)]
        rows.append(row)
    return columns, rows


def age_rows(learner: LearnerResults) -> Table:
    """Return recall@1 after every session (rows) of the classes of every session (columns)."""
    found = learner.recall_by_age
    columns = ["after session", *(f"classes of session {place + 1}" for place in range(len(found[0])))]
    return columns, [[str(number), *map(score, row)] for number, row in enumerate(found, start=1)]


def sessions_words(results: SessionsResults) -> list[str]:
    """Return the headline and the findings of a comparison of learners, one line each."""
    position = standing(results)
    found = sessions_findings(position)
    return [sessions_headline(position), *(f"{one.headline}: {line}" for one in found for line in one.lines)]


def sessions_records(results: SessionsResults) -> list[dict[str, Any]]:
    """Return one record per session of every learner, with its results."""
    return [
        {
            "learner": name,
            "session": number,
            **{f"recall@{k}": value for k, value in session.recall.items()},
            **session.model_dump(include={"queries", "gallery_rows", "embedded_rows", "replayed", "trained_images"}),
            "seconds": session.seconds.total,
        }
        for name, learner in results.best_first().items()
        for number, session in enumerate(learner.sessions, 1)
    ]


def sessions_markdown(results: SessionsResults) -> str:
    """Return the headline, findings and tables of a comparison of learners in Markdown."""
    position = standing(results)
    tables = {"Learners": sessions_table(results)}
    for name, learner in results.best_first().items():
        tables[f"{name}, session by session"] = session_rows(learner)
        tables[f"{name}, recall@1 by the age of classes"] = age_rows(learner)
    findings = [Finding(sessions_headline(position), ()), *sessions_findings(position)]
    return markdown_of(results.title, findings, tables)
