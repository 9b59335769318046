"""Base classes of all results: frozen typed values, saved to and loaded from results.json."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, ValidationInfo
from pydantic_core import PydanticSerializationError

from limpet.embeddings.storage import write_atomically
from limpet.errors import ConfigError, DataError, unknown_name
from limpet.support import documents
from limpet.support.reporting import Charted
from limpet.version import __version__

__all__ = ["Defined", "Disagreement", "Finite", "Part", "Results"]

_FILE_NAME = "results.json"

_PACKAGES = ("numpy", "torch", "safetensors")


def _none_if_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _none_unless_finite(value: Any, info: ValidationInfo) -> Any:
    """Return None for what was computed and is NaN or infinite; in JSON neither may stand."""
    return None if info.mode == "python" and isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_none_if_nan)]
"""A number, or None where it is not defined; NaN becomes None."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Defined = Annotated[Finite | None, BeforeValidator(_none_unless_finite)]
"""A finite number, or None where it is not defined; NaN and infinity that were computed become None."""
Difference = Annotated[float, Ge(-1), Le(1)]
"""A difference of two shares."""
NumberInterval = tuple[Number, Number]
"""Lower and upper end."""
Disagreement = tuple[str, Any, str]
"""A place in results, what it is, and what another part of them asks for."""


class Part(BaseModel):
    """A part of results. Unknown keys of later versions are kept."""

    model_config = ConfigDict(
        frozen=True, extra="allow", defer_build=True, ser_json_inf_nan="constants"
    )  # `save` refuses them

    def to_dict(self) -> dict[str, JsonValue]:
        """Return plain values that can be written as JSON."""
        return self.model_dump(mode="json", by_alias=True)


class Data(Part):
    """Description of the searched data."""

    name: str
    description: str
    numbers: dict[str, Any]


class ModelIdentity(Part):
    """Identity of the model of embeddings.

    Args:
        fingerprint: Fingerprint of the model.
        declared: Whether the model was declared by name, rather than by a release.
    """

    fingerprint: str
    declared: bool = False


def packages() -> dict[str, str]:
    """Return the versions of limpet's dependencies, by name; those not installed were not used."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


class Results(Charted, Part):
    """Results of one kind, as stored in results.json.

    Subclasses set `KIND`, the value of "kind" in the file (None: no such key), `VERSION`, the schema version, `WRITER`,
    the writer of such results, `AGAIN`, what to repeat if they are incomplete, and `FILE`, the name of the file, if it
    is not results.json.
    """

    KIND: ClassVar[str | None]
    VERSION: ClassVar[int] = 1
    WRITER: ClassVar[str]
    AGAIN: ClassVar[str] = "evaluate"
    FILE: ClassVar[str] = _FILE_NAME

    schema_version: int
    limpet: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    command: str = Field("", exclude=True)
    """What was typed, without passwords, for the page; no file holds it, since it names places."""

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return new results with these values, in the schema of this version of limpet.

        Raises:
            ConfigError: Values are missing, have a wrong type, or contradict each other.
        """
        for name in values.keys() - cls.model_fields.keys():
            raise unknown_name("part of results", name, list(cls.model_fields))
        kind = {} if cls.KIND is None else {"kind": cls.KIND}
        wrote = {"schema_version": cls.VERSION, **kind, "limpet": __version__, "versions": packages()}
        return cls._validated({**wrote, **values}, "These results", python=True)

    @classmethod
    def parse(cls, document: Any, where: str = "These results") -> Self:
        """Parse and validate results: complete, of this kind and schema version, with consistent parts.

        Args:
            document: Plain values from a results.json.
            where: Name of the results in messages.

        Raises:
            ConfigError: The results are not valid.
        """
        if not isinstance(document, dict) or document.get("schema_version") != cls.VERSION:
            found = document.get("schema_version") if isinstance(document, dict) else type(document).__name__
            raise ConfigError(
                f"{where}: schema version {found}.",
                expected=f"schema version {cls.VERSION}",
                to_do=f"{cls.AGAIN} again with this version of limpet, or read the file with the version that wrote "
                "it.",
            )
        if document.get("kind") != cls.KIND:
            raise ConfigError(
                f"{where}: results of the kind '{document.get('kind', 'evaluation')}'.",
                expected=f"results of {cls.WRITER}",
                to_do="check which file or folder was given.",
            )
        return cls._validated(document, where)

    @classmethod
    def _validated(cls, document: Mapping[str, Any], where: str, *, python: bool = False) -> Self:
        """Return results of values in Python, or of those of JSON, where lists are tuples and texts are no numbers."""
        try:
            if python:
                results = cls.model_validate(document)
            else:
                results = cls.model_validate_json(json.dumps(document), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(key) for key in first["loc"])
            raise ConfigError(
                f"{where}: {first['msg']} at '{place}' ({error.error_count()} in all).",
                expected=f"complete results of {cls.WRITER}",
                to_do=f"{cls.AGAIN} again; a report is never made of a part of the numbers.",
            ) from None
        for place, given, expected in results.disagreements():
            raise ConfigError(f"{where}: {place} is {given}.", expected=expected, to_do=f"{cls.AGAIN} again.")
        return results

    def disagreements(self) -> Iterator[Disagreement]:
        """Yield every part that is inconsistent with another."""
        yield from ()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load results from a file or a folder, and check that they are complete.

        Raises:
            ConfigError: The file is missing, not JSON, of another kind or schema version, or incomplete.
        """
        path = Path(path)
        file = path / cls.FILE if path.is_dir() else path
        try:
            document = documents.read_json(file)
        except OSError as error:
            raise ConfigError(f"Cannot read '{file}': {error.strerror}.", expected=f"a {cls.FILE}") from error
        except ValueError as error:
            raise ConfigError(f"'{file}' is no valid JSON: {error}.", expected=f"a {cls.FILE}") from error
        return cls.parse(document, f"'{file}'")

    def save(self, folder: str | Path) -> Path:
        """Save the results to a file in a folder atomically, and return its path.

        Raises:
            DataError: The file cannot be written, or a value cannot be written as JSON.
        """
        try:
            plain = self.model_dump(by_alias=True)  # in JSON's mode, sets, bytes and paths would become texts
            text = json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        except (TypeError, ValueError, PydanticSerializationError) as error:
            raise DataError(
                f"These results cannot be written as JSON: {error}.",
                expected="text, finite numbers, True, False, None, lists and mappings",
                to_do="convert the values of what is told of data and models.",
            ) from error
        return write_atomically(Path(folder) / self.FILE, lambda part: part.write_text(text, encoding="utf-8"))
