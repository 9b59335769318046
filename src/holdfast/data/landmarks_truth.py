"""Who answers which query of Google Landmarks v2 (Weyand et al., CVPR 2020): its retrieval solution as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.data.delimited import read_columns
from holdfast.errors import ConfigError, DataError

Usage = Literal["Public", "Private", "both"]
"""Which queries of the solution count: its own two parts, or both."""

SOLUTIONS = ("retrieval_solution_v2.1.csv", "retrieval_solution.csv", "solution.csv")
"""Names of the file in its releases, newest first."""
_PARTS = {"Public": frozenset({"Public"}), "Private": frozenset({"Private"}), "both": frozenset({"Public", "Private"})}


@dataclass(frozen=True, eq=False)
class LandmarksTruth:
    """Queries and the images that answer them.

    Args:
        query_names: Ids of the queries (Q,), no two alike.
        relevant: Ids of the index images of every query, (Q,) tuples; empty where nothing answers, which the protocol
            counts as 0.

    Raises:
        DataError: Lengths differ, or a query or an answer is named twice.
    """

    query_names: tuple[str, ...]
    relevant: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if len(self.query_names) != len(self.relevant):
            raise DataError(
                f"{len(self.query_names)} queries with {len(self.relevant)} lists of images.", expected="one per query"
            )
        if not self.query_names:
            raise DataError("No queries.", expected="at least one")
        if len(set(self.query_names)) < len(self.query_names):
            raise DataError("A query is named twice.", expected="every query once")
        for name, images in zip(self.query_names, self.relevant, strict=True):
            if len(set(images)) < len(images):
                raise DataError(f"An image answers the query '{name}' twice.", expected="every image once")

    def __len__(self) -> int:
        return len(self.query_names)

    @classmethod
    def read(cls, path: Path, *, usage: Usage = "both") -> LandmarksTruth:
        """Read the official solution.

        Args:
            path: The file, with columns id, images (separated by blanks, or None) and Usage; or the folder of the data
                set that holds it.
            usage: The part of the queries to count. Those marked Ignored never do.

        Raises:
            ConfigError: An unknown usage.
            DataError: The file is missing, cannot be read, holds another usage or no query of the wanted one.
        """
        if usage not in _PARTS:
            raise ConfigError(f"usage = '{usage}'.", expected=f"one of {', '.join(_PARTS)}")
        path = solution_in(path)
        table = read_columns(path, {"id": "text", "images": "text", "Usage": "text"})
        names, images, uses = (table[name].to_pylist() for name in ("id", "images", "Usage"))
        unknown = sorted(set(uses) - _PARTS["both"] - {"Ignored"})
        if unknown:
            raise DataError(f"{path} has the usage '{unknown[0]}'.", expected="Public, Private or Ignored in every row")
        rows = [row for row, use in enumerate(uses) if use in _PARTS[usage]]
        if not rows:
            raise DataError(f"{path} has no queries of usage '{usage}'.", expected="at least one")
        return cls(tuple(names[row] for row in rows), tuple(_split(images[row]) for row in rows))


def solution_in(path: Path) -> Path:
    """Return the file of the solution, where a folder is given.

    Raises:
        DataError: The folder holds none.
    """
    if not path.is_dir():
        return path
    places = [path / folder / name for name in SOLUTIONS for folder in ("", "test")]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(
            f"No retrieval solution in {path}.",
            expected=f"one of {', '.join(SOLUTIONS)}, there or in its folder test",
            to_do="get it from the home page of Google Landmarks v2, or name the file.",
        )
    return found


def _split(images: str) -> tuple[str, ...]:
    return () if images.strip() in ("", "None") else tuple(images.split())
