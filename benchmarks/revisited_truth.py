"""Write the ground truth of Revisited Oxford or Paris as JSON, which limpet reads.

    python benchmarks/revisited_truth.py gnd_roxford5k.pkl    # writes gnd_roxford5k.json beside it

The authors publish it as a pickle. Only NumPy's arrays and scalars are built from it; every other name is refused.
"""

from __future__ import annotations

import argparse
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np

ALLOWED = {
    ("numpy", "dtype"), ("numpy", "ndarray"), ("_codecs", "encode"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}  # fmt: skip
SIZE_LIMIT = 64 * 1024**2


class PlainUnpickler(pickle.Unpickler):
    """Builds plain values and NumPy's numbers, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed function or class."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value. Nothing was run.")
        return super().find_class(module, name)


def plain(value: Any) -> Any:
    """Return the same with lists and Python's numbers in place of NumPy's."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def converted(path: Path) -> Path:
    """Write a pickled ground truth as JSON beside it, and return that file."""
    content = path.read_bytes()
    if len(content) > SIZE_LIMIT:
        raise pickle.UnpicklingError(f"{len(content)} bytes, and {SIZE_LIMIT} are allowed.")
    truth = plain(PlainUnpickler(io.BytesIO(content)).load())
    written = path.with_suffix(".json")
    written.write_text(json.dumps({name: truth[name] for name in ("imlist", "qimlist", "gnd")}), encoding="utf-8")
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="gnd_roxford5k.pkl or gnd_rparis6k.pkl")
    for path in parser.parse_args().files:
        print(converted(path))


if __name__ == "__main__":
    main()
