"""What `limpet adapt` says of pairs of which a share does not belong together, on CLINC150 and BANKING77.

Partners are exchanged at random among a share of the sentences to fit on; the models are those of frozen_models.py.

    python benchmarks/wrong_pairs.py            # writes benchmarks/results/wrong_pairs.txt
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SHARES = (0.0, 0.1, 0.5, 1.0)
RESULTS = Path(__file__).parent / "results"
RUNS = Path(__file__).parents[1] / "runs" / "frozen_models"


def lines(root: Path, work: Path) -> Iterator[str]:
    from frozen_models import DATASETS
    from frozen_models_tasks import embedded
    from limpet.linking.adapt import Choice, adapt

    yield f"{'data':<12}{'wrong':>7}{'estimate':>10}{'95 % interval':>17}  {'action':<16} candidate"
    for data in DATASETS:
        old, new = (side["train"] for side in embedded(data, "", 0, root, work))
        for share in SHARES:
            moved = np.random.default_rng(0).permutation(len(new))[: round(share * len(new))]
            vectors = new.vectors.copy()
            vectors[moved] = new.vectors[np.roll(moved, 1)]
            found = adapt(old, new.replace(vectors=vectors), Choice(("procrustes", "ridge"), heads={}))
            suspects, advice = found.suspects, found.recommendation
            interval = f"{suspects.low:.1%} to {suspects.high:.1%}"
            yield (
                f"{data:<12}{share:>7.0%}{suspects.share:>10.1%}{interval:>17}  {advice.action:<16} "
                f"{advice.candidate or 'none'}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--work", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from limpet.cli.choices import data_root
    from machine import describe

    text = "\n".join([describe(), "", *lines(data_root(arguments.data_root), arguments.work)]) + "\n"
    (arguments.out / "wrong_pairs.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
