"""The results document of learners compared in sessions: checked, written to and read from results.json, as a table.

What it holds is gathered by `holdfast.continual.results.document_of`; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.reports.document_kind import DocumentKind
from holdfast.reports.formats import plain_text, score
from holdfast.reports.results import versions
from holdfast.reports.tables import Table, as_markdown

SCHEMA_VERSION = 1

Document = dict[str, Any]
Learner = Mapping[str, Any]  # one entry of "learners"

_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0)]
_Values = dict[str, Any]  # plain values, shown as a list
_AGAIN = "run “holdfast sessions”"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Bounds(_Part):
    lower: str | None
    upper: str | None


class _Data(_Part):
    name: str
    description: str
    training_images: _Count = Field(alias="training images")
    test_queries: _Count = Field(alias="test queries")
    classes: _Count


class _Plan(_Part):
    """A `Plan` in numbers; lists have an entry per session."""

    name: str
    asked: _Values
    sessions: Annotated[int, Field(ge=1)]
    known_from_start: bool
    introduced: list[_Count]
    home: list[_Count]
    training: list[_Count]
    validation: list[_Count]


class _Time(_Part):
    training: _Seconds
    rest: _Seconds


class _Session(_Part):
    """What one learner's session came to."""

    recall: dict[str, _Share]
    recall_by_home: list[_Share | None]
    queries: _Count
    queries_by_home: list[_Count]
    validation_recall: _Share
    best_epoch: _Count
    epochs: _Count
    gallery_rows: _Count
    embedded_rows: _Count
    replayed: _Count
    trained_images: _Count
    encoded_images: _Count
    seconds: _Time
    fingerprint: str


class _Learner(_Part):
    method: str
    options: _Values
    gallery_policy: Literal["append", "reindex"]
    memory: str | None
    average_recall: dict[str, _Share]
    forgetting: Annotated[float, Field(ge=-1, le=1)] | None
    sessions: Annotated[list[_Session], Field(min_length=1)]


class _Sessions(_Part):
    kind: Literal["sessions"]
    schema_version: int
    holdfast: str | None = None  # absent until `sessions_document` adds it, with the versions
    versions: dict[str, str] | None = None
    title: str
    seed: int
    ks: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    budget: _Count | None
    bounds: _Bounds
    data: _Data
    plan: _Plan
    model: _Values
    recipe: _Values
    learners: Annotated[dict[str, _Learner], Field(min_length=1)]


def sessions_document(found: Mapping[str, Any]) -> Document:
    """Return what was measured with the versions that measured it, checked.

    Args:
        found: What `document_of` returned.

    Raises:
        ConfigError: Something is missing, unknown, no finite number or out of range, or two parts do not agree.
    """
    return checked_sessions({**found, **versions()}, "These results of sessions")


def _disagreements(document: Document) -> Iterator[tuple[str, Any, str]]:
    """Yield every part that contradicts another: its place, what it is, and what the other asks for."""
    ks, learners, bounds = document["ks"], document["learners"], document["bounds"]
    count = document["plan"]["sessions"]
    if ks != sorted(set(ks)) or ks[0] != 1:
        yield "ks", ks, "1 and larger numbers, ascending"
    for name in ("introduced", "home", "training", "validation"):
        if len(document["plan"][name]) != count:
            yield f"plan.{name}", document["plan"][name], f"an entry for each of {count} sessions"
    for name, bound in bounds.items():
        if bound is not None and bound not in learners:
            yield f"bounds.{name}", f"'{bound}'", f"one of {', '.join(learners)}"
    if bounds["lower"] is not None and bounds["lower"] == bounds["upper"]:
        yield "bounds", f"'{bounds['lower']}' twice", "two learners"
    done = sessions_done(document)
    for name, learner in learners.items():
        if len(learner["sessions"]) != done or done > count:
            expected = f"as many as the other learners have, and at most {count}"
            yield f"learners.{name}.sessions", f"a list of {len(learner['sessions'])}", expected
        yield from _wrong_scores(f"learners.{name}", learner, ks, count)


SESSIONS = DocumentKind(
    kind="sessions",
    version=SCHEMA_VERSION,
    schema=_Sessions,
    where="These results of sessions",
    keys="the keys that document_of writes, and finite numbers",
    again=_AGAIN,
    disagreements=_disagreements,
)
checked_sessions, write_sessions, read_sessions = SESSIONS.checked, SESSIONS.write, SESSIONS.read


def _wrong_scores(place: str, learner: Learner, ks: list[int], count: int) -> Iterator[tuple[str, Any, str]]:
    names = {str(k) for k in ks}
    if set(learner["average_recall"]) != names:
        yield f"{place}.average_recall", learner["average_recall"], f"recall at {', '.join(map(str, ks))}"
    for number, session in enumerate(learner["sessions"]):
        here, recall, asked = f"{place}.sessions.{number}", session["recall_by_home"], session["queries_by_home"]
        if set(session["recall"]) != names:
            yield f"{here}.recall", session["recall"], f"recall at {', '.join(map(str, ks))}"
        if not len(recall) == len(asked) == count:
            yield f"{here}.recall_by_home", recall, f"an entry for each of {count} sessions, and as many queries"
        if any((value is None) != (queries == 0) for value, queries in zip(recall, asked, strict=False)):
            yield f"{here}.recall_by_home", recall, f"none just where no query was asked: {asked}"


def sessions_done(document: Mapping[str, Any]) -> int:
    """Return how many sessions the learners went through: all of the plan, or fewer where it was cut short."""
    return len(next(iter(document["learners"].values()))["sessions"])


def best_first(document: Mapping[str, Any]) -> list[str]:
    """Return the learners by AR@1, the highest first; of equal ones the earlier comes first."""
    learners = document["learners"]
    return sorted(learners, key=lambda name: -learners[name]["average_recall"]["1"])


def embedded_again(learner: Learner) -> int:
    """Return how many images a learner embedded for the gallery although an earlier session had.

    >>> rows = [(10, 10), (15, 15)]
    >>> embedded_again({"sessions": [{"embedded_rows": new, "gallery_rows": held} for new, held in rows]})
    10
    """
    sessions = learner["sessions"]
    return int(sum(session["embedded_rows"] for session in sessions) - sessions[-1]["gallery_rows"])


def seconds_of(learner: Learner) -> float:
    """Return how many seconds a learner took in all sessions."""
    return float(sum(sum(session["seconds"].values()) for session in learner["sessions"]))


def sessions_table(document: Mapping[str, Any], *, typeset: bool = False) -> Table:
    """Return columns and rows, one row per learner, the highest AR@1 first; a dash stands for what is missing.

    Scores are fractions; "forgetting" is recall@1 that classes of earlier sessions lost, "embedded again" counts
    images. Minus signs are hyphens unless ``typeset``.
    """
    averages = [f"AR@{k}" for k in document["ks"]]
    columns = ["learner", *averages, "last recall@1", "forgetting", "embedded again", "minutes"]
    rows = []
    for name in best_first(document):
        learner = document["learners"][name]
        numbers = [score(learner["average_recall"][str(k)]) for k in document["ks"]]
        numbers += [score(learner["sessions"][-1]["recall"]["1"]), score(learner["forgetting"])]
        rows.append([name, *numbers, f"{embedded_again(learner):,}", f"{seconds_of(learner) / 60:.1f}"])
    return columns, rows if typeset else [[row[0], *map(plain_text, row[1:])] for row in rows]


def sessions_markdown(document: Mapping[str, Any]) -> str:
    """Return the table of `sessions_table` in Markdown, numbers to the right, ending with a line break."""
    columns, rows = sessions_table(document)
    return as_markdown(columns, rows, ["---", *["---:"] * (len(columns) - 1)])
