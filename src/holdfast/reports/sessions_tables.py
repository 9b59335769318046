"""Learners compared in sessions, as tables."""

from __future__ import annotations

from holdfast.continual.results import SessionsResults
from holdfast.reports.formats import plain_text, score
from holdfast.reports.markdown import Table


def sessions_table(results: SessionsResults, *, typeset: bool = False) -> Table:
    """Return columns and rows, one row per learner, the highest AR@1 first; a dash stands for what is missing.

    Scores are fractions; "forgetting" is recall@1 that classes of earlier sessions lost, "embedded again" counts
    images. Minus signs are hyphens unless ``typeset``.
    """
    averages = [f"AR@{k}" for k in results.ks]
    columns = ["learner", *averages, "last recall@1", "forgetting", "embedded again", "minutes"]
    rows = []
    for name, learner in results.best_first().items():
        numbers = [score(learner.average_recall[str(k)]) for k in results.ks]
        numbers += [score(learner.sessions[-1].recall["1"]), score(learner.forgetting)]
        rows.append([name, *numbers, f"{learner.embedded_again:,}", f"{learner.seconds / 60:.1f}"])
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]
