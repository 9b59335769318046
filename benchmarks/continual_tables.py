"""From the records of continual.py to its page: average recall, recall by session, forgetting and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from all_methods_tables import Document, Record

FIRST, TUNE, FINAL = "first", "tune", "final"
KS = ("1", "2", "4")


def page(document: Document) -> str:
    """Return the Markdown page of a suite."""
    parts = [f"# {document['title']}", _how(document)]
    if document.get("predictions"):
        numbered = [f"{number}. {text}" for number, text in enumerate(document["predictions"], 1)]
        parts += ["*Predicted* before it ran:", "\n".join(numbered)]
    for setup, chosen in document["setups"].items():
        parts += _setup(document, setup, chosen)
    if any(learner["tuned"] for learner in document["learners"].values()):
        parts += ["## Weights that were chosen", _tuning(document)]
    failures = [record for record in document["records"] if "failure" in record]
    if failures:
        parts += [
            "## Failed",
            *(f"- {record['method']}, seed {record['seed']}: {record['failure']}" for record in failures),
        ]
    return "\n\n".join(parts) + "\n"


def _how(document: Document) -> str:
    data, model, recipe = document["data"], document["model"], document["recipe"]
    return "\n".join(
        [
            f"- Data: {data['name']}, {data['description']}.",
            f"- Network: {model['backbone']} ({_listed(model['backbone_options'])}), D = {model['dim']}; normalised "
            "softmax, T = 0.05.",
            f"- Recipe of every session: {recipe['epochs']} epochs, SGD, learning rate {recipe['learning_rate']} "
            f"({recipe['schedule']}), batches of {recipe['batch_size']}, weight decay {recipe['weight_decay']}; "
            "the first epoch with the best recall@1 of the validation queries is kept.",
            f"- Memory of the learners that have one: {document['budget']} images in all.",
            f"- Command: `{document['command']}`, {document['wall_seconds'] / 60:.1f} minutes with "
            f"{document['processes']} processes, interruptions left out.",
            f"- Machine: {document['machine']}.",
            "",
            "AR@K is the mean of recall@K over all sessions, the first one included, which all learners share. "
            "Forgetting: how much recall@1 the classes of earlier sessions lost since they were found best. Cost, of "
            "all sessions of one run, the shared first one included: images that went through training steps; images "
            "only embedded (validation, the old model's view, importance, exemplars, gallery, queries); gallery rows "
            "embedded (a learner that embeds again counts them each time); minutes of one core.",
        ]
    )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def _setup(document: Document, setup: str, chosen: Mapping[str, Any]) -> list[str]:
    seeds = chosen["seeds"]
    spread = f"mean ± deviation of {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    counts = [
        f"classes known: {', '.join(map(str, chosen['classes']))}",
        f"training images: {', '.join(map(str, chosen['training']))}",
        f"validation queries: {', '.join(map(str, chosen['validation']))}",
    ]
    found = _finished(document, setup)
    parts = set(document["ablation"].values()) - {"finetune", "cvs"}  # shown in a table of their own
    compared = {name: records for name, records in found.items() if name not in parts}
    return [
        f"## {setup}",
        f"Plan: {_listed(chosen['options'])}.",
        f"{spread.capitalize()}. By session: {'; '.join(counts)} (first seed).",
        _table(document, compared),
        "Recall@1 by session:",
        _by_session(compared),
        *_findings(compared),
        *_ablation(document, setup, found),
    ]


def _finished(document: Document, setup: str) -> dict[str, list[Record]]:
    """Return the records of every learner, by seed, best average first."""
    found: dict[str, list[Record]] = {name: [] for name in document["learners"]}
    for record in document["records"]:
        if record["phase"] == FINAL and record["scenario"] == setup and "sessions" in record:
            found[record["method"]].append(record)
    kept = {name: sorted(records, key=lambda one: int(one["seed"])) for name, records in found.items() if records}
    return dict(sorted(kept.items(), key=lambda item: -mean_ar(item[1])))


def mean_ar(records: Sequence[Record], k: str = "1") -> float:
    return float(np.mean([record["average_recall"][k] for record in records]))


def _table(document: Document, found: Mapping[str, Sequence[Record]]) -> str:
    rows = ["| learner | AR@1 | AR@2 | AR@4 | recall@1 at the end | forgetting | trained images | only embedded "
            "| gallery rows embedded | minutes |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, records in found.items():
        bound = document["learners"][name]["bound"]
        cells = [f"{name} ({bound} bound)" if bound else name]
        cells += [_percent([record["average_recall"][k] for record in records]) for k in KS]
        cells += [_percent([record["sessions"][-1]["recall"]["1"] for record in records])]
        cells += [_percent([record["forgetting"] for record in records])]
        cells += [f"{_sum(records, key):,.0f}" for key in ("trained_images", "encoded_images", "embedded_rows")]
        cells += [f"{np.mean([_minutes(record) for record in records]):.1f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _percent(values: Sequence[float]) -> str:
    mean = f"{100 * np.mean(values):.1f}"
    return f"{mean} ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else mean


def _sum(records: Sequence[Record], key: str) -> float:
    return float(np.mean([sum(session[key] for session in record["sessions"]) for record in records]))


def _minutes(record: Record) -> float:
    return sum(sum(session["seconds"].values()) for session in record["sessions"]) / 60


def _by_session(found: Mapping[str, Sequence[Record]]) -> str:
    sessions = len(next(iter(found.values()))[0]["sessions"])
    rows = [
        f"| learner | {' | '.join(f'session {place + 1}' for place in range(sessions))} |",
        "|---" * (sessions + 1) + "|",
    ]
    for name, records in found.items():
        cells = [
            _percent([record["sessions"][place]["recall"]["1"] for record in records]) for place in range(sessions)
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _ablation(document: Document, setup: str, found: Mapping[str, Sequence[Record]]) -> list[str]:
    """Show what every part of CVS brings (the paper's table 2)."""
    if not document["ablation"] or not set(document["ablation"].values()) <= set(found):
        return []
    first = {record["seed"]: record["average_recall"]["1"] for record in found["finetune"]}
    rows = ["| loss | AR@1 | AR@2 | AR@4 | forgetting | AR@1 gained over L_c |", "|---|---|---|---|---|---|"]
    for title, name in document["ablation"].items():
        records = found[name]
        cells = [_percent([record["average_recall"][k] for record in records]) for k in KS]
        cells.append(_percent([record["forgetting"] for record in records]))
        cells.append(_percent([record["average_recall"]["1"] - first[record["seed"]] for record in records]))
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return [
        "The parts of CVS (the paper's table 2), the same seeds:",
        "\n".join(rows),
        *_of_model_loss(document, setup),
    ]


def _of_model_loss(document: Document, setup: str) -> list[str]:
    rows = document.get("model_loss", {}).get(setup, [])
    lines = [f"- to {row['to']}: {row['gain']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]" for row in rows]
    told = "What the model loss L_m adds, in points of AR@1; intervals of 95 % draw whole classes:"
    return [told, "\n".join(lines).replace("-", "−").replace("− to", "- to")] if rows else []


def _findings(found: Mapping[str, Sequence[Record]]) -> list[str]:
    """Say how CVS stands against every other learner, seed by seed."""
    whole = "cvs"
    if whole not in found:
        return []
    own = {record["seed"]: record["average_recall"]["1"] for record in found[whole]}
    lines = []
    for name, records in found.items():
        if name == whole:
            continue
        gains = [own[record["seed"]] - record["average_recall"]["1"] for record in records if record["seed"] in own]
        ahead = sum(gain > 0 for gain in gains)
        lines.append(
            f"- {whole} − {name}: {100 * np.mean(gains):+.2f} points AR@1, ahead in {ahead} of {len(gains)} seeds"
        )
    return [f"{whole} against the others:", "\n".join(lines)]


def _tuning(document: Document) -> str:
    """List what was tried, with what decided."""
    rows = [f"Mean recall@1 of the validation queries over the sessions of the general-incremental plan with seed "
            f"{document['tune_seed']}; the best is used in all setups.", "",
            "| learner | weight | validation recall@1 |", "|---|---|---|"]  # fmt: skip
    for record in document["records"]:
        if record["phase"] == TUNE:
            option = document["learners"][record["method"]]["tuned"]
            scores = [session["validation_recall"] for session in record.get("sessions", [])]
            shown = f"{100 * np.mean(scores):.1f}" if scores else "diverged: the loss was no longer finite"
            rows.append(f"| {record['method']} | {record['options'][option]:g} | {shown} |")
    return "\n".join(rows)
