"""The next commands of a gallery: those that its state permits, the most useful first."""

from __future__ import annotations

import shlex

from limpet.galleries.calibration import FEWEST
from limpet.galleries.status import Status
from limpet.models.names import OF_TEXTS, ModelName
from limpet.upgrade.status import NextStep

DECLARED = "declared:"
OF_TEXT = ("text:", "api:")
"""Prefixes of fingerprints of frozen text models."""
WORTH_A_WORD = 1_000_000
"""Minimum bytes that gc must free to be suggested."""


def next_steps(found: Status) -> tuple[NextStep, ...]:
    """Return the next commands, each with its purpose."""
    fill = NextStep("backfill", ("backfill", *source_words(found)))
    back = NextStep("reactivate the old model", ("rollback",))
    steps: list[NextStep]
    if found.phase == "started":
        steps = [
            *_before_swap(found, fill),
            *one_scale(found),
            NextStep("end the upgrade with the old model", ("cancel",)),
        ]
    elif found.phase == "swapped":
        done = NextStep("end the upgrade with the new model", ("finish",))
        steps = [fill, *one_scale(found), back] if found.lacking else [done, back]
    elif not found.items:
        steps = [NextStep("fill it", ("import", "--embeddings", "FILE_OR_FOLDER"), "gallery")]
    elif found.lacking:
        steps = [fill]
    else:
        steps = [NextStep("upgrade the model", ("start", "--model", "MODEL", "--evidence", "results.json"))]
    if found.waiting >= WORTH_A_WORD:
        steps.append(NextStep("free the space of earlier commits", ("gc",), "gallery"))
    return tuple(steps)


def one_scale(found: Status) -> tuple[NextStep, ...]:
    """Return the step that makes scores of old and new vectors comparable, if an adapter maps between them."""
    rows = next(one.rows for one in found.generations if one.name == found.target)
    open_ = any(link.query == found.target and link.how in ("adapter", "mapped") and link.score_map is None
                for link in found.links)  # fmt: skip
    step = NextStep("compare hits of old and new vectors on one scale", ("calibrate",), "gallery")
    return (step,) if open_ and found.lacking and rows >= FEWEST else ()


def source_words(found: Status) -> tuple[str, ...]:
    """Return the options that name the source of the vectors of the generation to fill."""
    target = next(one for one in found.generations if one.name == found.target)
    known = tuple(shlex.split(target.options or ""))
    stored = bool(known) and ModelName.of(known[1]).scheme == "vectors"
    if stored and found.phase != "steady":
        return known
    if target.fingerprint.startswith(DECLARED):
        return ("--model", "FILE", "--name", target.fingerprint.removeprefix(DECLARED))
    if stored or not known:  # a source of precomputed vectors of an upgrade that ended lacks later items
        known = ("--model", target.note if target.note.partition(":")[0] in OF_TEXTS else "MODEL")
    texts = any(one.fingerprint.startswith(OF_TEXT) for one in found.generations)  # then a release is a head on texts
    return (*known, *(("--texts", "TEXTS") if texts else ("--data", "DATA")))


def _before_swap(found: Status, fill: NextStep) -> list[NextStep]:
    """Return the steps to a swap: at once if its queries find all items, else after a report or a backfill."""
    new = next(one for one in found.generations if one.name == found.target)
    if new.covered >= found.items:
        return [NextStep("activate the new model", ("swap",)), *([fill] if found.lacking else [])]
    words = ("link", "--evidence", "results.json", "--query", new.name, "--of", found.active)
    return [
        NextStep("let new queries search old vectors, if a report of `limpet evaluate` allows it", words, "gallery"),
        fill,
    ]
