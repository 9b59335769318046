"""What all kinds of results documents have in common: how they are checked, written to and read from results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holdfast.errors import ConfigError
from holdfast.reports.results import check_keys, check_kind, check_version, read_json, write_results

Document = dict[str, Any]
Disagreement = tuple[str, Any, str]  # a place, what it is, and what another part asks for


@dataclass(frozen=True)
class DocumentKind:
    """One kind of results, such as those of adapters.

    Args:
        kind: What its documents say under "kind".
        version: Their schema version.
        schema: What they hold.
        where: What to call one that is in no file.
        keys: Which keys they have, in words.
        again: What to do again where one is not complete.
        disagreements: Yields every part of a complete document that contradicts another.
    """

    kind: str
    version: int
    schema: type[BaseModel]
    where: str
    keys: str
    again: str
    disagreements: Callable[[Document], Iterator[Disagreement]]

    def checked(self, document: Any, where: str | None = None) -> Document:
        """Return a document that is complete, of this kind and schema version, and whose parts agree.

        Args:
            document: What was read or built.
            where: What to call it in a message.

        Raises:
            ConfigError: It is not.
        """
        where = self.where if where is None else where
        found = check_version(document, self.version, where, again=self.again)
        check_kind(found, self.kind, where)
        check_keys(found, self.schema, where, self.keys, again=self.again)
        for place, given, expected in self.disagreements(found):
            raise ConfigError(f"{where}: {place} is {given}.", expected=expected, to_do=f"{self.again} again.")
        return found

    def write(self, document: Mapping[str, Any], folder: str | Path) -> Path:
        """Write results.json into a folder, wholly or not at all, and return its path.

        Raises:
            ConfigError: The document is not complete.
            DataError: It could not be written, or a value is no JSON.
        """
        return write_results(self.checked(dict(document)), folder)

    def read(self, path: str | Path) -> Document:
        """Read a results.json of this kind, or that of a folder, and check that everything a report needs is there.

        Raises:
            ConfigError: The file is missing, no JSON, of another kind or schema version, or not complete.
        """
        return self.checked(*read_json(path))
