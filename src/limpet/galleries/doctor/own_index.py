"""Diagnosis of an index that is no gallery: a table, a collection or a file of vectors. Nothing is changed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from limpet.engines.address import Sample
from limpet.engines.source import SearchedSource, Source, check_readable, needed, roles_of, texts_of_ids
from limpet.engines.sources import open_source
from limpet.errors import DataError, shown
from limpet.galleries.doctor.findings import NAMED, Diagnosis, Finding, Severity
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import PositiveInt, Seed, checked
from limpet.upgrade.vector_sources import VectorSource

SAME = 0.999
"""Cosine above which a stored vector counts as reproduced: half precision and other machines stay above it."""

_UNIT = 0.01  # maximum deviation of the length of a unit vector from 1
_SHARE = 0.01  # share of a sample that is no accident
_QUERIES, _DEPTH, _FOUND = 20, 10, 0.9  # searches by index, hits of each, and the minimum recall
_AT_ONCE = 1000


@dataclass(frozen=True)
class _Rows:
    """A sample of the rows: ids, vectors (None if missing) and texts (None if no text column is known)."""

    ids: list[str]
    vectors: list[NDArray[np.float32] | None]
    texts: list[str] | None

    def __len__(self) -> int:
        return len(self.ids)


@showing("doctor")
@checked
def examine(
    source: Source,
    vectors: VectorSource | None = None,
    *,
    sample: PositiveInt = 1000,
    seed: Seed = 0,
    progress: Progress[Told] = None,
) -> Diagnosis:
    """Read a sample of an index that is no gallery, and report problems and what to do; nothing is changed.

    It checks for vectors of several dimensions, zero and invalid ones, one vector for many texts, blank texts, a metric
    that does not suit the vectors, and an index or a condition that loses hits. With a model, it embeds the texts of
    the sample again and checks for vectors of another model and of an earlier text.

    Args:
        source: Source from `open_source`; a condition in its URL is the filter of an application.
        vectors: Source of the model's vectors of its items, such as from `vectors_of_texts`.
        sample: Number of rows to read and embed again. 1,000 rows miss a fault in 1 % of the rows with a probability
            of 4 in 100,000.
        seed: Random seed of the sample.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "step"; see `Told`.

    Raises:
        ConfigError: No column of ids or vectors is known.
        StoreError: The source is unreachable.
    """
    started, tell = time.monotonic(), listener(progress)
    tell({"step": "reading a sample"})
    chosen = source.address.sample or Sample(sample, seed)
    rows = _read(open_source(replace(source.address, sample=chosen)))
    total = open_source(replace(source.address, sample=None)).rows
    findings = [_kind(source, rows), *_widths(rows), *_unusable(rows), *_same_vectors(rows), *_blank(rows)]
    findings += _metric(source, rows)
    if isinstance(source, SearchedSource):
        tell({"step": "searching"})
        findings += _searches(source, rows)
    if vectors is not None:
        tell({"step": "embedding again"})
        findings += _of_model(rows, vectors)
    order: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
    return Diagnosis(
        url=source.address.name,
        sequence=None,
        items=total,
        rows={source.name: len(rows)},
        sampled=len(rows),
        findings=tuple(sorted(findings, key=lambda one: order[one.severity])),
        seconds=time.monotonic() - started,
    )


def _read(source: Source) -> _Rows:
    roles = roles_of(source)
    columns = needed(source, roles, "id", "vector")
    if roles.text is not None:
        check_readable(source, [roles.text])
        columns.append(roles.text)
    ids: list[str] = []
    vectors: list[NDArray[np.float32] | None] = []
    texts: list[str] = []
    for batch in source.batches(columns, _AT_ONCE):
        ids += texts_of_ids(batch.column(0)).to_pylist()
        vectors += [None if one is None else np.array(one, np.float32) for one in batch.column(1).to_pylist()]
        if roles.text is not None:
            texts += ["" if one is None else str(one) for one in batch.column(2).to_pylist()]
    return _Rows(ids, vectors, texts if roles.text is not None else None)


def _kind(source: Source, rows: _Rows) -> Finding:
    roles = roles_of(source)
    widths = sorted({len(one) for one in rows.vectors if one is not None})
    vectors = f"vectors of {' or '.join(map(str, widths))} numbers" if widths else "no vectors"
    parts = {"ids": roles.id, vectors: roles.vector, "texts": roles.text}
    named = ", ".join(f"{what} in '{name}'" for what, name in parts.items() if name is not None)
    says = f"This is {source.name}: {named}."
    to_do = "`limpet upgrade plan URL --model NEW` estimates an upgrade; `limpet gallery import` copies it."
    return Finding("kind", "note", says, to_do)


def _widths(rows: _Rows) -> list[Finding]:
    sizes = Counter(len(one) for one in rows.vectors if one is not None)
    missing = [identifier for identifier, one in zip(rows.ids, rows.vectors, strict=True) if one is None]
    findings = []
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: sizes[size])
        odd = [one for one, of in zip(rows.ids, rows.vectors, strict=True) if of is not None and len(of) != usual]
        what = f"sampled vectors have another length than the {usual} numbers of most"
        to_do = "embed these rows again with the model of the others: they are of another one."
        findings.append(Finding.of_ids("another model", "error", what, to_do, odd))
    if missing:
        what = f"of {len(rows):,} sampled rows have no vector"
        to_do = "embed them, where searches are to find them."
        findings.append(Finding.of_ids("missing", "note", what, to_do, missing))
    return findings


def _usable(rows: _Rows) -> tuple[list[int], NDArray[np.float32]]:
    """Return the rows with a usable vector (usual dimension, finite, not zero), and these vectors (n, width)."""
    sizes = Counter(len(one) for one in rows.vectors if one is not None)
    width = max(sizes, key=lambda size: sizes[size]) if sizes else 0
    chosen = [
        row
        for row, one in enumerate(rows.vectors)
        if one is not None and len(one) == width and np.isfinite(one).all() and one.any()
    ]
    return chosen, np.array([rows.vectors[row] for row in chosen], np.float32).reshape(len(chosen), width)


def _unusable(rows: _Rows) -> list[Finding]:
    findings = []
    present = [(one, of) for one, of in zip(rows.ids, rows.vectors, strict=True) if of is not None]
    for kind, what, ids in (
        ("zero", "sampled vectors are zero: no search finds them by a cosine",
         [one for one, of in present if not of.any()]),
        ("not finite", "sampled vectors hold NaN or infinite numbers",
         [one for one, of in present if not np.isfinite(of).all()]),
    ):  # fmt: skip
        if ids:
            to_do = "embed these rows again, or give them no vector (NULL)."
            findings.append(Finding.of_ids(kind, "error", what, to_do, ids))
    chosen, vectors = _usable(rows)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    unit = np.abs(lengths - 1) <= _UNIT
    if len(unit) and _SHARE / 2 <= unit.mean() <= 1 - _SHARE / 2:
        odd = ~unit if unit.mean() >= 0.5 else unit
        usual = "1" if unit.mean() >= 0.5 else f"{np.median(lengths):.3g}"
        what = f"of {len(chosen):,} sampled vectors have another length than the usual {usual}"
        to_do = "find out what wrote them: another program or model, or vectors that were not normalised."
        ids = [rows.ids[chosen[row]] for row in np.flatnonzero(odd)]
        findings.append(Finding.of_ids("odd lengths", "warning", what, to_do, ids))
    return findings


def _same_vectors(rows: _Rows) -> list[Finding]:
    """Check for one vector with several texts; several rows with the same text may share it."""
    chosen, vectors = _usable(rows)
    groups: dict[bytes, list[int]] = {}
    for row, vector in zip(chosen, vectors, strict=True):
        groups.setdefault(vector.tobytes(), []).append(row)
    several = [
        group
        for group in groups.values()
        if len(group) > 1 and (rows.texts is None or len({rows.texts[row].strip() for row in group}) > 1)
    ]
    if not several:
        return []
    largest = max(several, key=len)
    most, surplus = len(largest), sum(len(group) - 1 for group in several)
    ids = tuple(rows.ids[row] for row in largest)
    texts = "" if rows.texts is None else " with another text"
    says = (
        f"{surplus:,} of {len(chosen):,} sampled vectors are those of another row{texts}, byte for byte; the most "
        f"frequent one stands for {most:,} rows: {shown(ids, most)}."
    )
    to_do = "look at these rows: a model makes one vector of many texts where it sees nothing or only their beginning."
    severity: Severity = "warning" if most >= max(5, _SHARE * len(chosen)) else "note"
    return [Finding("same vector", severity, says, to_do, count=surplus, ids=ids[:NAMED])]


def _blank(rows: _Rows) -> list[Finding]:
    if rows.texts is None:
        says = "No column of texts is known, so texts were not looked at."
        return [Finding("not compared", "note", says, "text=COLUMN in the URL names it.")]
    ids = [
        identifier
        for identifier, text, vector in zip(rows.ids, rows.texts, rows.vectors, strict=True)
        if not text.strip() and vector is not None
    ]
    if not ids:
        return []
    what = f"of {len(rows):,} sampled rows have a vector and a blank text"
    to_do = "remove these vectors (NULL): they are near to anything or nothing, by chance."
    return [Finding.of_ids("blank", "warning", what, to_do, ids)]


def _metric(source: Source, rows: _Rows) -> list[Finding]:
    vector = str(roles_of(source).vector)
    try:
        similarity = source.similarity(vector)
    except DataError as error:
        return [Finding("metric", "error", error.given, "build an index that compares by cosine or inner product.")]
    if similarity not in ("inner-product", "euclidean"):
        return []
    lengths = np.linalg.norm(_usable(rows)[1].astype(np.float64), axis=1)
    if not len(lengths) or np.ptp(lengths) <= _UNIT * lengths.mean():
        return []  # all three metrics rank vectors of one length alike
    says = (
        f"The index compares by {similarity.replace('-', ' ')}, and the lengths of sampled vectors differ "
        f"({lengths.min():.3g} to {lengths.max():.3g}): searches do not rank as the cosine does."
    )
    to_do = "if your model compares by cosine, normalise the vectors or build the index for cosines; else nothing."
    return [Finding("metric", "warning", says, to_do, count=len(lengths))]


def _searches(source: SearchedSource, rows: _Rows) -> list[Finding]:
    """Search for neighbours of sampled vectors with the index, and compare with all rows."""
    _, vectors = _usable(rows)
    queries = list(vectors[:_QUERIES])
    vector = str(roles_of(source).vector)
    near = source.nearest(vector, queries, _DEPTH, exact=False) if queries else None
    if near is None:
        return []
    exact = source.nearest(vector, queries, _DEPTH, exact=True) or []
    wanted = sum(map(len, exact))
    share = sum(len(set(one) & set(all_)) for one, all_ in zip(near, exact, strict=True)) / max(1, wanted)
    short = sum(len(one) < len(all_) for one, all_ in zip(near, exact, strict=True))
    if short:
        where = " that meet the condition" if source.address.where else ""
        says = (
            f"{short} of {len(queries)} searches through the index found fewer than the {_DEPTH} rows that there are"
            f"{where}: {sum(map(len, near)) / len(near):.1f} on average. It ends too early."
        )
        to_do = (
            "SET hnsw.iterative_scan = strict_order (or ivfflat.iterative_scan = relaxed_order), from pgvector 0.8 on."
        )
        return [Finding("starved", "error", says, to_do, count=short)]
    if share >= _FOUND:
        return []
    says = f"The index finds {100 * share:.0f} % of the {_DEPTH} nearest rows, over {len(queries)} searches."
    to_do = "raise hnsw.ef_search or ivfflat.probes, or build the index with more links."
    return [Finding("index", "warning", says, to_do, count=len(queries))]


def _of_model(rows: _Rows, source: VectorSource) -> list[Finding]:
    """Compare stored vectors with what a model now makes of the same items."""
    chosen, stored = _usable(rows)
    told = [place for place, row in enumerate(chosen) if rows.texts is None or rows.texts[row].strip()]
    if not told:
        return []
    width = source.space.dim
    if stored.shape[1] != width:
        says = f"The vectors have {stored.shape[1]} numbers, and the model makes {width}: it did not make them."
        return [Finding("other model", "error", says, "give the model that made them.", count=len(chosen))]
    made = source.embed([rows.ids[chosen[place]] for place in told])
    place_of = {rows.ids[chosen[place]]: place for place in told}
    mine = _unit(stored[[place_of[str(one)] for one in made.ids]])
    again = _unit(np.asarray(made.vectors, np.float32))
    own = np.sum(mine * again, axis=1)
    same, ids = own >= SAME, np.array([str(one) for one in made.ids], object)
    says = f"{int(same.sum()):,} of {len(ids):,} sampled vectors are what the model makes of their items now"
    if same.mean() < 0.5:
        says += f"; the median cosine is {float(np.median(own)):.2f}. It did not make them, or not in this way."
        to_do = "give the model that made them, with the prefix and the lengths it was used with."
        return [Finding("other model", "error", says, to_do, count=int((~same).sum()))]
    findings = [Finding("same model", "note", f"{says}.", count=int(same.sum()))]
    apart = _apart(mine, again)
    for kind, rows_of, what, to_do in (
        (
            "another model",
            ~same & apart,
            "are near to nothing that the model makes: of another model, or of a text unlike the others",
            "embed these rows again with the model.",
        ),
        (
            "stale",
            ~same & ~apart,
            "are of the model's kind but of another text: the text changed, or another model made them",
            "embed these rows again; update vectors where the application writes texts.",
        ),
    ):
        if rows_of.any():
            low, high = _interval(int(rows_of.sum()), len(ids))
            what = f"of {len(ids):,} sampled vectors ({100 * low:.1f} to {100 * high:.1f} % of all) {what}"
            findings.append(Finding.of_ids(kind, "error", what, to_do, list(ids[rows_of])))
    return findings


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)


def _apart(stored: NDArray[np.float32], made: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which stored vectors are no nearer to any vector that the model makes than an unrelated model's are.

    The reference distance is that of the made vectors with their components permuted.
    """
    order = np.random.default_rng(0).permutation(made.shape[1])
    unrelated = (made[:, order] @ made.T).max(axis=1)
    nearest = np.concatenate([(stored[start : start + _AT_ONCE] @ made.T).max(axis=1)
                              for start in range(0, len(stored), _AT_ONCE)])  # fmt: skip
    return np.asarray(nearest <= unrelated.max())


def _interval(count: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share.

    >>> [round(one, 4) for one in _interval(10, 1000)]
    [0.0054, 0.0183]
    """
    z = 1.96
    middle, away = count + z * z / 2, z * np.sqrt(count * (of - count) / of + z * z / 4)
    return float((middle - away) / (of + z * z)), float((middle + away) / (of + z * z))
