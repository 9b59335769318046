"""What terms that need no labels bring a head where half of the classes of BANKING77 have none.

    python benchmarks/label_free.py --data ../shared/data       # LIMPET_DATA when left out

The case "half of the classes without labels" of partial_labels.py, with default options of every method. Heads of l2,
d3still, ssp and one_side are linear maps of new queries to the old space (one_side also of two layers), as those of
p2s, which is shown the labelled pairs alone, as is l2; keep and both_sides stay with the new model, and the old
gallery is taken there. One seed: differences of a point or two say nothing. Writes label_free.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from limpet.linking.adapt import Choice, candidates_of, usual_heads
from limpet.training.experiment import HEAD_RECIPE, Experiment
from machine import describe
from partial_labels import NO_LABEL, RESULTS, apart, by_class, cell, embedded, precision, references, values

DATA = "banking77"
IN_OLD_SPACE = ("p2s", "l2", "d3still", "ssp")


def written(line: str) -> tuple[str, list[str]]:
    """Return name and cells of a line of the page's table."""
    name, *cells = [part.strip() for part in line.strip("| ").split("|")]
    return name, cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=[], help="to measure; others stay as the page has them")
    parser.add_argument("--work", type=Path, default=Path("runs/partial-labels"))
    parser.add_argument("--out", type=Path, default=RESULTS / "label_free.md")
    given = parser.parse_args()
    sets = embedded(DATA, given.data, given.work)
    shown = by_class(sets, np.random.default_rng(given.seed))
    unknown = np.array([*(shown.old.class_names or ())])[shown.old.labels] == NO_LABEL
    usual = usual_heads()
    heads = {name: Experiment(method=name, recipe=HEAD_RECIPE) for name in IN_OLD_SPACE}
    heads["one_side"] = usual_heads(as_it_is=True)["one side"]
    heads["one_side, two layers"] = usual_heads(as_it_is=True)["one side, two layers"]
    heads |= {"keep": usual["two-step"], "both_sides": usual["both sides"]}
    wanted = given.methods or list(heads)
    rows = {name: [cell([value]) for value in found[:3]] for name, found in references(sets, shown.others).items()}
    known = {} if not given.out.exists() else dict(written(line) for line in given.out.read_text().splitlines())
    with tempfile.TemporaryDirectory() as folder:
        for one in candidates_of(Choice((), heads=heads), True, Path(folder), given.seed):
            name = one.name.removeprefix("head ")
            if name in wanted:
                link = one.fit(*apart(shown.old, shown.new, unknown))
                rows[name] = [cell([value]) for value in precision(*values(link, sets), shown.others)]
            elif name in known:
                rows[name] = known[name]
            print(name, rows.get(name), flush=True)
    lines = [
        "# Terms that need no labels",
        "",
        " ".join((__doc__ or "").split("\n\n")[2].split()),
        "",
        f"## Half of the classes without labels: {DATA}",
        "",
        "| mAP | cross | others | after backfill |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {name} | {' | '.join(found)} |" for name, found in rows.items()),
        "",
        describe(),
        "",
        f"Seed {given.seed}.",
    ]
    given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
