"""What a compatibility report says of two models, as the reason for a link between two generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.documents import read_json
from holdfast.errors import GalleryError
from holdfast.galleries.state import Generation, Link

Record = Mapping[str, Any]

_NEXT = "measure it: `holdfast evaluate --old … --new …` writes results.json; the gallery is intact."


def link_from_report(path: Path, query: Generation, gallery: Generation) -> Link:
    """Return the link that a report of `holdfast evaluate` gives to queries of one model on the vectors of another.

    A new model passes on old vectors with the verdict "compatible"; better in one metric and clearly worse in another
    that is guarded is not enough. For the way back, old queries on new vectors, the report is one of the exchanged
    models, and they pass if they find at least what they find in their own gallery.

    Args:
        path: results.json, or its folder.
        query: Generation whose model embeds the queries.
        gallery: Generation whose vectors they are to search.

    Raises:
        GalleryError: It is no such report, it is about other models, or it says that they are not compatible.
    """
    from holdfast.evaluation.combined import worse_of

    record = _record_of(path, query, gallery)
    metric = record["gate_metric"]
    scores = {name: (record.get(name) or {}).get(metric) for name in ("self_old", "self_new", "cross")}
    worse = worse_of(record)
    verdict = "mixed" if record["verdict"] == "compatible" and worse else record["verdict"]
    evidence = {"metric": metric, "verdict": verdict, **scores}
    backwards = _number(query) < _number(gallery)
    cross, own = scores["cross"], scores["self_new"]
    reached = cross is not None and own is not None and cross >= own
    if not (verdict == "compatible" or (backwards and reached)):
        lost = "".join(f"; clearly worse in {name}: {_change(record, name)}" for name in worse)
        guards = "evaluate again with --guard and the metrics that count, " if verdict == "mixed" else ""
        raise GalleryError(
            f"'{path}' says that queries of {query.name} on vectors of {gallery.name} are "
            f"{'compatible in' if verdict == 'mixed' else verdict + ' in'} {metric} ({_shown(scores)}){lost}.",
            expected="a report that they may",
            to_do=f"{guards}fill the new generation before the swap, or force it with a reason that is recorded "
            "(--force REASON); the gallery is intact.",
        )
    return Link(query.name, gallery.name, "report", str(path), evidence)


def _number(generation: Generation) -> int:
    return int(generation.name.lstrip("g"))


def _change(record: Record, metric: str) -> str:
    return f"{record['self_old'][metric]:.3f} with old queries, {record['cross'][metric]:.3f} with new ones"


def _shown(scores: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items() if value is not None) or "no scores"


def _record_of(path: Path, query: Generation, gallery: Generation) -> Record:
    file = path / "results.json" if path.is_dir() else path
    try:
        document = read_json(file)
        records = list(document["evaluations"].values())
        found = next(_about(records, query, gallery), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GalleryError(
            f"'{path}' is no compatibility report: {error}.", expected="results.json of an evaluation", to_do=_NEXT
        ) from error
    if found is None:
        raise GalleryError(
            f"'{path}' is about other models.",
            expected=f"queries of {query.fingerprint} on a gallery of {gallery.fingerprint}",
            to_do=_NEXT,
        )
    return found


def _about(records: list[Any], query: Generation, gallery: Generation) -> Iterator[Record]:
    """Yield the records whose cross-test was queries of one, as they are, on vectors of the other, mapped or not."""
    for record in records:
        made = {model: (record["fingerprints"].get(model) or {}).get("fingerprint") for model in ("old", "new")}
        mapped = record.get("mapped") or {}
        own = made["new"] == query.fingerprint and "query" not in mapped
        if own and gallery.fingerprint == (mapped.get("gallery") or made["old"]):
            yield record
