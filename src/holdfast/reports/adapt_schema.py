"""What a results document of adapters and heads holds: the keys of results.json, with the range of every number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Share = Annotated[float, Field(ge=0, le=1)]
_Difference = Annotated[float, Field(ge=-1, le=1)]
_Count = Annotated[int, Field(ge=0)]
_Pair = Field(min_length=2, max_length=2)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Mean(_Part):
    mean: _Share
    interval: Annotated[list[_Share], _Pair]


class _Gap(_Part):
    """A difference of two means."""

    mean: _Difference
    interval: Annotated[list[_Difference], _Pair]


class _Data(_Part):
    name: str
    pairs: _Count
    labelled: bool
    classes: _Count | None
    sentences: list[str]


class _Model(_Part):
    name: str
    fingerprint: str
    dim: Annotated[int, Field(ge=1)]


class _Models(_Part):
    old: _Model
    new: _Model


class _Suspects(_Part):
    share: _Share
    low: _Share
    high: _Share
    tested: _Count
    sentence: str


class _Protocol(_Part):
    fitted_on: _Count
    held_out: _Count
    unseen_classes: _Count
    metric: Literal["map", "overlap@10"]
    direction: Literal["both", "new_to_old", "old_to_new"]
    level: Annotated[float, Field(gt=0, lt=1)]
    resamples: Annotated[int, Field(ge=1)]
    seed: int
    resample: Literal["queries", "classes"] = "queries"  # this and what follows is absent in earlier documents
    guards: list[str] = []


class _Systems(_Part):
    self_old: _Mean
    self_new: _Mean


class _Unseen(_Part):
    self_old: _Share
    cross: _Share
    self_new: _Share
    queries: _Count
    gain: _Gap | None = None


class _Loss(_Part):
    name: str
    self_old: _Share
    cross: _Share
    gain: _Gap


class _Candidate(_Part):
    name: Annotated[str, Field(min_length=1)]
    kind: Literal["adapter", "head"]
    direction: Literal["new_to_old", "old_to_new"] | None = None
    seconds: Annotated[float, Field(ge=0)] | None
    cross: _Mean | None
    cross_minus_self_old: _Gap | None
    self_new_minus_cross: _Gap | None
    recovered: float | None
    own: _Mean | None
    unseen: _Unseen | None
    failed: str | None
    worse: list[_Loss] = []
    as_best: Annotated[list[float], _Pair] | None = None


class _Point(_Part):
    pairs: Annotated[int, Field(ge=1)]
    cross: _Mean


class _Curve(_Part):
    candidate: str
    points: list[_Point]
    enough: int | None


class _Map(_Part):
    error: Annotated[float, Field(ge=0)]
    text: str
    knots: Annotated[list[Annotated[list[float], _Pair]], Field(min_length=2)]


class _Recommendation(_Part):
    action: Literal["adapt", "train a head", "re-embed", "keep the old model", "check the pairs"]
    candidate: str | None
    sentences: list[str]
    worse: list[_Loss] = []


class AdaptSchema(_Part):
    """The whole document; parts that contradict each other are found by `adapt_results`."""

    kind: Literal["adapt"]
    schema_version: int
    holdfast: str | None = None  # absent until `adapt_document` adds it, with the versions
    versions: dict[str, str] | None = None
    title: str
    data: _Data
    models: _Models
    suspects: _Suspects | None
    protocol: _Protocol
    systems: _Systems
    candidates: Annotated[list[_Candidate], Field(min_length=1)]
    best_adapter: str | None
    best_head: str | None
    best: str | None
    learning_curve: _Curve | None
    score_map: _Map | None
    recommendation: _Recommendation
