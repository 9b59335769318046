"""What the results.json of a bench holds: the runs as they came, and the board with the range of every number."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[int, Field(ge=0)]
_Some = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Rank = Annotated[float, Field(ge=1)]
_Seconds = Annotated[float, Field(ge=0)]
_Speed = Annotated[float, Field(ge=0)]
_Deviation = Annotated[float, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Suite(_Part):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)  # further words of the suite do no harm

    name: str
    title: str
    description: str
    metric: str
    kind: str
    published: list[dict[str, Any]] = []


class _Row(_Part):
    """One run; a failed one has no scores."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)  # a runner may say more of a run

    data: str
    trained_on: Annotated[str, Field(min_length=1)] | None = None
    scenario: str
    method: str
    label: Annotated[str, Field(min_length=1)]
    options: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    seed: int
    metric: str
    scores: dict[str, float | None] | None
    p_up: float | None = None
    p_comp: float | None = None
    p_score: float | None = None
    verdict: str | None = None
    seconds: _Seconds | None = None
    images_per_second: _Speed | None = None
    waiting: _Share | None = None
    failure: str | None = None


class _OverSets(_Part):
    """What one model comes to over several test sets."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    data: str
    trained_on: Annotated[str, Field(min_length=1)] | None = None
    scenario: str
    method: str
    label: str
    seed: int
    p_up: float | None = None
    p_comp: float | None = None
    p_score: float | None = None
    tests: Annotated[list[str], Field(min_length=1)]


class _SeedMean(_Part):
    mean: float
    deviation: _Deviation | None
    seeds: _Some


class _CellMean(_Part):
    """A mean over cells."""

    mean: float
    deviation: _Deviation | None
    cells: _Some


class _InCell(_Part):
    rank: _Rank | None
    complete: bool
    failed: _Count
    missing: _Count
    means: dict[str, _SeedMean | None]


class _Cell(_Part):
    data: str
    scenario: str
    seeds: Annotated[list[int], Field(min_length=1)]
    ranked: bool
    references: dict[str, _SeedMean]
    labels: dict[str, _InCell]


class _Label(_Part):
    label: str
    method: str
    options: dict[str, Any]
    reference: str | None
    rank: _Rank | None
    means: dict[str, _CellMean | None]
    front: bool
    runs: _Count
    failed: _Count
    missing: _Count
    compatible: _Count
    mixed: _Count = 0  # absent, as not asked for, in documents of earlier versions
    judged: _Count
    seconds: _Seconds
    best: _Count


class _Front(_Part):
    labels: list[str]
    cells: _Some
    incomplete: list[str]


class _Friedman(_Part):
    chi_square: Annotated[float, Field(ge=0)]
    f: float | None
    f_p_value: _Share
    p_value: _Share
    cells: Annotated[int, Field(ge=2)]
    labels: Annotated[int, Field(ge=2)]
    differ: bool


class _Nemenyi(_Part):
    level: Annotated[float, Field(gt=0, lt=1)]
    critical_difference: Annotated[float, Field(gt=0)]
    groups: list[list[str]]


class _Board(_Part):
    ranked_by: str
    lower_is_better: list[str]
    measures: list[str]
    labels: Annotated[list[_Label], Field(min_length=1)]
    cells: Annotated[list[_Cell], Field(min_length=1)]
    references: dict[str, float | None]
    front: _Front | None
    friedman: _Friedman | None
    nemenyi: _Nemenyi | None
    untested: Literal["cells", "labels"] | None


class LeaderboardSchema(_Part):
    """The whole document; parts that contradict each other are found by `leaderboard_results`."""

    kind: Literal["leaderboard"]
    schema_version: int
    holdfast: str | None = None  # absent until `leaderboard_document` adds it, with the versions
    versions: dict[str, str] | None = None
    suite: _Suite
    machine: str
    command: str
    wall_seconds: _Seconds
    tuning: list[dict[str, Any]]
    rows: Annotated[list[_Row], Field(min_length=1)]
    combined: list[_OverSets] = []
    board: _Board
