"""Check that vectors of two models may share a column: both directions of mixing must be measured and pass."""

from __future__ import annotations

import re

from limpet.attached.postgres.table import AttachedTable
from limpet.errors import GalleryError
from limpet.evaluation.mixing import SHARES
from limpet.evaluation.results import Evaluation
from limpet.upgrade.model import UpgradeModel

_SPACES = {"cosine": "hypersphere", "ip": "inner-product", "l2": "euclidean"}
"""The space in which an index compares vectors, by the distance in the name of its operator class."""
_MEASURE = "`limpet evaluate --old … --new … --mixing 0.01 --out FOLDER` measures it"


def refuse_mixing(evaluation: Evaluation, table: AttachedTable, old: UpgradeModel, new: UpgradeModel) -> None:
    """Refuse to mix vectors of two models unless an evaluation of these very models allows it.

    Raises:
        GalleryError: The dimension, the models or the distance differ, or a combination of queries and items was not
            measured or did not pass; the message names both numbers.
    """
    if new.dim != old.dim:
        raise _refused(
            f"Vectors of {new.dim} numbers in a column of {old.dim}.",
            "a model of the same dimension, that was made compatible with the old one",
            "leave --same-column out: new vectors are in a column of their own then",
        )
    mixing = evaluation.mixing
    if mixing is None:
        raise _refused(
            "The report does not say what becomes of search where vectors of both models are mixed.",
            "one with both directions of mixing",
            _MEASURE,
        )
    for role, measured, model in (("old", mixing.old, old), ("new", mixing.new, new)):
        if measured.fingerprint != model.fingerprint:
            raise _refused(
                f"The report is of the {role} model {measured.fingerprint}, and the upgrade of {model.fingerprint}.",
                "a report of the two models of this upgrade",
                _MEASURE,
            )
    if mixing.dim != old.dim:
        raise _refused(
            f"The report is of vectors of {mixing.dim} numbers, and the column holds such of {old.dim}.",
            "a report of vectors as they are in the column",
            _MEASURE,
        )
    others = sorted({_compared(one.definition) for one in table.indexes} - {"", mixing.space})
    if others:
        raise _refused(
            f"The report compares vectors on the {mixing.space}, and an index of the column on the {others[0]}.",
            "one way to compare them",
            "evaluate with --similarity as the index compares: cosine (hypersphere), inner-product or euclidean",
        )
    for queries, share in ((side, share) for share in SHARES for side in ("new", "old") if (side, share) != ("old", 0)):
        meeting = mixing.meeting(queries, share)
        if meeting is None:
            raise _refused(
                f"The report says nothing of {queries} queries on a gallery of which {100 * share:g}% is new.",
                "one with both directions of mixing",
                _MEASURE,
            )
        if not meeting.passed:
            lowest = None if meeting.interval[0] is None else f"{meeting.interval[0]:+.4f}"
            worse = f"; clearly worse: {', '.join(meeting.worse)}" if meeting.worse else ""
            raise _refused(
                f"The models may not be mixed: {meeting.words} differ from today by "
                f"{meeting.difference or 0:+.4f} {mixing.metric}, and by {lowest} at worst: {meeting.verdict}{worse}.",
                f"more than {-meeting.tolerated:+.4f} at worst, as that report tolerates",
                "train the new model to be compatible (`limpet train --old`), or leave --same-column out: new "
                "vectors are in a column of their own then",
            )


def _compared(definition: str) -> str:
    """Return the space in which an index compares vectors; its operators if there is no such space; empty for bits.

    >>> _compared("hnsw (emb vector_cosine_ops) WITH (m='8')"), _compared("hnsw (emb vector_l1_ops)")
    ('hypersphere', 'vector_l1_ops')
    """
    found = re.search(r"\b(?:vector|halfvec)_(\w+?)_ops\b", definition)
    return "" if found is None else _SPACES.get(found[1], found[0])


def _refused(given: str, expected: str, to_do: str) -> GalleryError:
    return GalleryError(given, expected=expected, to_do=f"{to_do}.", intact="Nothing was changed.")
