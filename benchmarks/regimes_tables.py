"""What regimes.py found, as regimes.json, regimes.md and regimes.svg."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from limpet.evaluation.intervals import mean_interval
from machine import describe
from regimes_cells import PARTS, Place, Row, Setting, cell, finished_cell, old_facts

if TYPE_CHECKING:
    from regimes import Family

SYSTEMS = ("self", "cross")
FACTS = {
    "confused_unseen": "items of new classes that are nearest to another class's old prototype",
    "crowded": "pairs of old prototypes with a cosine above 0.6",
    "auc": "AUC by which lengths of the old model tell unseen classes",
    "clipped_seen": "vectors of seen classes that are clipped",
    "clipped_unseen": "vectors of unseen classes that are clipped",
}
STRONG = ("ndpp, α 0.1, 10 neighbours", "odpp, θ 0.3")


class Gap(NamedTuple):
    """A difference of two rows in points of mAP, and its interval of 95 % over classes."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, first: NDArray[np.float64], second: NDArray[np.float64]) -> Gap:
        """Compare two rows, (seeds, classes) each; a NaN leaves the class of a seed out."""
        seen = ~np.isnan(first).all(axis=0)
        by_class = 100 * np.nanmean((first - second)[:, seen], axis=0)
        return cls(float(by_class.mean()), *map(float, mean_interval(by_class)))

    def __str__(self) -> str:
        mark = "**" if self.low > 0 or self.high < 0 else ""
        return f"{mark}{self.mean:+.1f}{mark} [{self.low:+.1f}, {self.high:+.1f}]".replace("-", "−")


def found_in(setting: Setting, rows: tuple[Row, ...], beside: str, seeds: tuple[int, ...], place: Place) -> Any:
    """Return what a setting came to; None while a cell of it is missing."""
    if not all(finished_cell(setting, row, seed, place) for row in rows for seed in seeds):
        return None
    olds = [old_facts(setting, seed, place) for seed in seeds]
    cells = {row.label: [cell(setting, row, seed, place) for seed in seeds] for row in rows}
    unseen = np.array([old["unseen"] for old in olds])
    record: dict[str, Any] = {
        "old": {
            part: 100 * float(np.mean([np.mean(old["self"][part]) for old in olds])) for part in PARTS
        },
        "facts": {name: float(np.mean([old[name] for old in olds])) for name in FACTS if name in olds[0]},
        "rows": {},
    }  # fmt: skip
    for label, of_seeds in cells.items():
        row: dict[str, Any] = {}
        for system in SYSTEMS:
            for part in PARTS:
                values, others = (np.array([one[system][part] for one in ones]) for ones in (of_seeds, cells[beside]))
                row[f"{system} {part}"] = 100 * float(values.mean())
                row[f"{system} {part} gain"] = Gap.of(values, others)
                row[f"{system} {part} gain by seed"] = (100 * (values - others).mean(axis=1)).tolist()
                if part == "trained" and unseen.any():
                    masked = np.where(unseen, values, np.nan)
                    row[f"{system} unseen gain"] = Gap.of(masked, others)
        for name in ("degrees", "told_apart"):
            if name in of_seeds[0]:
                row[name] = float(np.mean([one[name] for one in of_seeds]))
        record["rows"][label] = row
    independent, aligned = (record["rows"][name]["self trained"] for name in ("independent", beside))
    record["p_up"] = aligned / independent - 1
    return record


def table(title: str, record: Mapping[str, Any], beside: str) -> list[str]:
    """Return the part of the page on one setting."""
    facts = [f"{100 * value:.0f} % {FACTS[fact]}" for fact, value in record["facts"].items() if fact != "auc"]
    facts += [f"{FACTS['auc']}: {record['facts']['auc']:.3f}"] if "auc" in record["facts"] else []
    told = f"Old model: {record['old']['trained']:.1f} ({record['old']['held_out']:.1f} held out)"
    told += f"; P_up of {beside}: {100 * record['p_up']:+.1f} %".replace("-", "−")
    extra = [name for name in ("degrees", "told_apart") if any(name in row for row in record["rows"].values())]
    titles = {"degrees": "turned by", "told_apart": "told apart"}
    lines = [
        f"### {title}",
        "",
        "; ".join([told, *facts]) + ".",
        "",
        f"| | self | cross | self − {beside} | cross − {beside} | cross − {beside}, classes new to the old model "
        f"| cross − {beside}, held-out classes |" + "".join(f" {titles[one]} |" for one in extra),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |" + " ---: |" * len(extra),
    ]
    for label, row in record["rows"].items():
        alone = label == beside
        gaps = [
            "" if alone or gain not in row else str(row[gain])
            for gain in ("self trained gain", "cross trained gain", "cross unseen gain", "cross held_out gain")
        ]
        more = ""
        for one in extra:
            unit = f" {row[one]:.1f}° |" if one == "degrees" and one in row else ""
            more += unit or (f" {100 * row[one]:.0f} % |" if one in row else " |")
        lines.append(
            f"| {label} | {row['self trained']:.1f} | {row['cross trained']:.1f} | {gaps[0]} | {gaps[1]} | {gaps[2]} "
            f"| {gaps[3]} |{more}"
        )
    return [*lines, ""]


def against_confusion(found: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    """Return the gains of strong perturbations by the confusion of new classes, and their rank correlations."""
    points = [
        {
            "setting": name,
            "row": row,
            "confused": 100 * record["facts"]["confused_unseen"],
            "cost": -100 * record["p_up"],
            **{f"{system} gain": record["rows"][row][f"{system} trained gain"].mean for system in SYSTEMS},
        }
        for name, record in found.items()
        for row in STRONG
    ]
    ranks: dict[str, list[float]] = {}
    for row in STRONG:
        own = [point for point in points if point["row"] == row]
        for cause in ("confused", "cost"):
            for system in SYSTEMS:
                if len(own) > 3:
                    values = [[point[name] for point in own] for name in (cause, f"{system} gain")]
                    ranks[f"{row}: {system} by {cause}"] = [float(one) for one in spearmanr(*values)]
    return points, ranks


def draw(points: list[dict[str, Any]], path: Path) -> None:
    """Draw gains over p2s against the confusion of the old prototypes of new classes."""
    shown = [
        {**point, "gain": point[f"{system} gain"], "of": f"{point['row']}: {system}"}
        for point in points
        for system in SYSTEMS
    ]
    chart = (
        alt.Chart(alt.Data(values=shown), width=560, height=300, title="Gain over p2s by confusion")
        .mark_point(filled=True, size=70)
        .encode(
            alt.X("confused:Q", title="items of new classes nearest to another class's old prototype, %"),
            alt.Y("gain:Q", title="points of mAP over p2s"),
            alt.Color("of:N", title=None),
            alt.Shape("of:N", title=None),
            tooltip=["setting:N", "gain:Q"],
        )
    )
    chart.save(str(path))


def write(
    families: Mapping[str, Family],
    claims: Mapping[str, str],
    predictions: Mapping[str, tuple[str, ...]],
    outcomes: Mapping[str, tuple[str, ...]],
    about: str,
    seeds: tuple[int, ...],
    place: Place,
    out: Path,
) -> None:
    """Write what is finished."""
    document: dict[str, Any] = {"machine": f"{describe('torch')}; one thread", "seeds": list(seeds), "families": {}}
    lines = ["# Where the papers' claims hold at a small size", "", about, ""]
    lines += ["Bold differences have intervals that leave out zero.", ""]
    for name, family in families.items():
        found, missing = {}, []
        for title, setting in family.settings.items():
            record = found_in(setting, family.rows, family.beside, seeds, place)
            if record is None:
                missing.append(title)
            else:
                found[title] = record
        document["families"][name] = {"settings": found, "not run": missing}
        lines += [
            f"## {name.capitalize()}",
            "",
            f"*Claim.* {claims[name]}",
            "",
            "*Predicted* before the family ran, and what came:",
            "",
        ]
        lines += [
            f"{number}. {text} *Came:* {came}"
            for number, (text, came) in enumerate(zip(predictions[name], outcomes[name], strict=True), 1)
        ]
        lines += [""]
        if name == "prototypes" and found:
            points, ranks = against_confusion(found)
            document["families"][name]["rank correlations"] = ranks
            if ranks:
                draw(points, out.with_suffix(".svg"))
                lines += [f"![Gain over p2s by confusion]({out.with_suffix('.svg').name})", ""]
                lines += ["| gain over p2s, over settings | rank correlation | p |", "| --- | ---: | ---: |"]
                lines += [f"| {what} | {rank:+.2f} | {p:.3f} |".replace("-", "−") for what, (rank, p) in ranks.items()]
                lines += [""]
        for title, record in found.items():
            lines += table(f"{name.capitalize()}: {title}", record, family.beside)
        if missing:
            lines += [f"Not run: {'; '.join(missing)}.", ""]
    lines += [f"{document['machine']}. Seeds {', '.join(map(str, seeds))}."]
    out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")
