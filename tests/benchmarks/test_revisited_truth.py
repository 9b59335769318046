"""The converter of pickled ground truths builds numbers and runs nothing."""

import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest

from limpet_bench.datasets.revisited import RevisitedTruth

converted = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "revisited_truth.py"))["converted"]


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_converted_writes_lists_and_arrays_as_json(protocol: int, tmp_path: Path) -> None:
    query = {"bbx": np.array([0.5, 0, 4, 5]), "easy": np.array([1]), "hard": [], "junk": [np.int64(0)]}
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps({"imlist": ["a", "b"], "qimlist": ["q"], "gnd": [query]}, protocol))
    read = RevisitedTruth.read(converted(path))
    assert (read.gallery_names, read.easy[0].tolist(), read.junk[0].tolist()) == (("a", "b"), [1], [0])
    assert read.boxes.tolist() == [[0.5, 0, 4, 5]]


def test_converted_refuses_other_names(tmp_path: Path) -> None:
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path) + b"/ran'\ntR.")
    with pytest.raises(pickle.UnpicklingError, match=r"os\.system"):
        converted(path)
    assert list(tmp_path.iterdir()) == [path]
