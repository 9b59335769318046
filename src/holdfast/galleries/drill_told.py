"""From a rehearsal to what people want to know of it."""

from __future__ import annotations

import numpy as np

from holdfast.galleries.drill_questions import Answers
from holdfast.galleries.drill_result import (
    ALIKE,
    RIGHT,
    Drill,
    Example,
    FirstHit,
    FirstHits,
    Searches,
    Timing,
    verdict_of,
)
from holdfast.galleries.drill_run import Rehearsal
from holdfast.galleries.expected_gain import draw
from holdfast.galleries.router import Hit

SHOWN_SHARES = (0.0, 0.5, 1.0)  # at which first hits are compared
MOST_EXAMPLES = 12


def result_of(run: Rehearsal, url: str, items: int, first: str) -> Drill:
    """Return all that a rehearsal measured.

    Args:
        run: The rehearsal, done.
        url: Of the gallery.
        items: Items it has.
        first: Order of the whole drill.
    """
    searches = Searches(run.asked, tuple(run.failed[:5]), run.incomplete, run.wrong, run.milliseconds)
    equal = run.after.same(run.before)
    old, questions = run.sides.old, run.questions
    fingerprints = {"name": run.sides.new.name if run.sides.new else "", "note": run.sides.note,
                    "fingerprint": run.made.fingerprint}  # fmt: skip
    return Drill(
        gallery=url,
        items=items,
        sampled=len(run.items.old),
        missing=run.missing,
        old={"name": old.name, "note": old.note, "fingerprint": old.fingerprint},
        new=fingerprints,
        linked=run.linked,
        steps=tuple(run.steps),
        metric=RIGHT[0] if questions.relevant is not None else ALIKE[1],
        queries="given" if questions.own is None else "items",
        asked=len(questions),
        judged=questions.judged,
        before=_means(run, run.before),
        after_rollback=_means(run, run.after),
        rollback_equal=equal,
        curves=run.curves,
        left_out=run.left_out,
        first_hits=tuple(_first_hits(run, share) for share in SHOWN_SHARES if share in run.found),
        examples=_examples(run),
        timings=_timings(run, items),
        searches=searches,
        verdict=verdict_of(run.curves[first], searches, equal),
        seed=run.seed,
    )


def _means(run: Rehearsal, answers: Answers) -> dict[str, float]:
    right = {name: float(np.nanmean(value)) for name, value in answers.right(run.questions).items()}
    return {**right, ALIKE[0]: float(answers.overlap(run.before).mean()),
            ALIKE[1]: float(answers.overlap(run.last).mean())}  # fmt: skip


def _first_hits(run: Rehearsal, share: float) -> FirstHits:
    now, before = run.found[share], run.before
    changed = np.array([a.id != b.id for a, b in zip(now.first, before.first, strict=True)])
    right, was = now.first_right(run.questions), before.first_right(run.questions)
    if right is None or was is None:
        return FirstHits(share, float(changed.mean()), None, None)
    known = np.array([len(wanted) > 0 for wanted in run.questions.relevant or []])
    fixed, broken = (right & ~was)[known].mean(), (was & ~right)[known].mean()
    return FirstHits(share, float(changed.mean()), float(fixed), float(broken))


def _examples(run: Rehearsal) -> tuple[Example, ...]:
    """Choose queries whose first hit changes: half of them such that lose a right one, if there are so many."""
    shares = [share for share in SHOWN_SHARES if share in run.found]
    ids, before = list(run.questions.old.ids), run.before
    right, was = run.last.first_right(run.questions), before.first_right(run.questions)

    def changes(row: int) -> bool:
        return any(run.found[share].first[row].id != before.first[row].id for share in shares)

    drawn = sorted((row for row in range(len(ids)) if changes(row)), key=lambda row: draw(run.seed, ids[row]))
    lost = [row for row in drawn if right is not None and was is not None and was[row] and not right[row]]
    chosen = lost[: MOST_EXAMPLES // 2]
    chosen += [row for row in drawn if row not in chosen][: MOST_EXAMPLES - len(chosen)]
    return tuple(
        Example(
            ids[row],
            run.questions.metadata[row],
            _shown(run, before.first[row], row),
            {share: _shown(run, run.found[share].first[row], row) for share in shares},
        )
        for row in chosen
    )


def _shown(run: Rehearsal, hit: Hit, row: int) -> FirstHit:
    wanted = run.questions.relevant[row] if run.questions.relevant is not None else ()
    right = bool(np.isin(run.items.old.ids.find([hit.id]), wanted).any()) if len(wanted) else None
    return FirstHit(hit.id, hit.score, dict(hit.metadata), right)


def _timings(run: Rehearsal, items: int) -> tuple[Timing, ...]:
    """Return how long every step took, and would take with as many items."""
    size, made = len(run.items.old), len(run.made.all)
    growing = {"backfill": made, "complete": size}
    if run.linked == "mapped":
        growing["prepare"] = size
    timings = [Timing("embed", run.seconds["embed"], made, run.made.typical * items)]
    for step in run.steps:
        seconds, through = run.seconds[step], growing.get(step, 0)
        timings.append(Timing(step, seconds, through, seconds * items / through if through else seconds))
    return tuple(timings)
