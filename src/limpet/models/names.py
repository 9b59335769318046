"""Model names of the form SCHEME:PLACE; parsed without torch and without opening anything."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from pathlib import Path

from limpet.errors import ConfigError, nearest, without_secrets

SCHEMES = {
    "release": "a model that limpet trained: of images, a head, or a fine-tuned text model",
    "st": "a text model of sentence-transformers, or static word embeddings: a folder, or OWNER/NAME on the hub",
    "package": "the model that an installed Python package carries or offers",
    "hf": "an image model of transformers",
    "timm": "an image model of timm",
    "openai": "a text model behind an API",
    "adapter": "an adapter that `limpet adapt` fitted",
    "vectors": "stored vectors: a file, a folder or a URL, which stand alone, too",
}
"""Kinds of models by the scheme of their names. FILE.py:FUNCTION, which returns a release, has no scheme."""

_FORMS = {
    "release": "release:FOLDER",
    "st": "st:FOLDER_OR_NAME",
    "package": "package:NAME",
    "hf": "hf:FOLDER",
    "timm": "timm:FOLDER",
    "openai": "openai:MODEL@URL",
    "adapter": "adapter:FOLDER",
    "vectors": "vectors:PLACE",
}

CODE = "code"
"""The scheme of FILE.py:FUNCTION."""

OF_TEXTS = ("st", "package", "openai")
"""Schemes of frozen text models."""

OF_IMAGES = ("release", "hf", "timm", "package", CODE)
"""Schemes of image models."""

_IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")
_PREFIXED = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z_-]+):(?P<place>(?!//).*)")


class ModelName:
    """The name of a model.

    Args:
        given: SCHEME:PLACE, FILE.py:FUNCTION, or a path or URL alone.
        bare: Scheme to assume for a path or URL alone.
        sources: Schemes of vector URLs without ``//``: `limpet.engines.sources.SOURCES`.

    Raises:
        ConfigError: The scheme is unknown. A path alone that contains a colon must exist.

    >>> ModelName("st:models/minilm").place, ModelName("model.py:make").scheme, ModelName("old.npz").scheme
    ('models/minilm', 'code', 'vectors')
    """

    scheme: str
    """A key of `SCHEMES`, ``"code"``, or the name of an installed service of text models."""
    place: str
    """Text after the colon, or all of FILE.py:FUNCTION. The URL of vectors may contain a password."""

    def __init__(self, given: str | Path, bare: str = "vectors", sources: Container[str] = ()) -> None:
        text = str(given)
        self.scheme, self.place = bare, text
        if ":" not in text or Path(text).is_dir():  # nearly every path
            return
        if _IN_FILE.fullmatch(text):
            self.scheme = CODE
            return
        found = _PREFIXED.fullmatch(text)
        if found is None:
            return
        if not found["place"]:
            raise ConfigError(f"'{text}' names nothing.", expected=forms((*SCHEMES, CODE)))
        if found["scheme"] in SCHEMES or _is_service(found["scheme"]):
            self.scheme, self.place = found["scheme"], found["place"]
        elif found["scheme"] not in sources and not Path(text).exists():
            raise ConfigError(
                f"'{without_secrets(text)}' begins with no known scheme.{nearest(found['scheme'], SCHEMES)}",
                expected=forms((*SCHEMES, CODE)),
                to_do="check the spelling; a path or URL alone names stored vectors.",
            )

    @classmethod
    def of(cls, given: str | Path | ModelName, bare: str = "vectors") -> ModelName:
        """Parse a name; return a `ModelName` unchanged."""
        return given if isinstance(given, ModelName) else cls(given, bare)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelName) and (self.scheme, self.place) == (other.scheme, other.place)

    def __hash__(self) -> int:
        return hash((self.scheme, self.place))

    def __str__(self) -> str:
        alone = self.scheme == CODE or (self.scheme == "vectors" and not _PREFIXED.fullmatch(self.place))
        return without_secrets(self.place if alone else f"{self.scheme}:{self.place}")

    def __repr__(self) -> str:
        return f"ModelName({str(self)!r})"

    @property
    def file(self) -> tuple[Path, str]:
        """The file and the function of FILE.py:FUNCTION."""
        found = _IN_FILE.fullmatch(self.place)
        if found is None:
            raise ConfigError(f"'{self}' names no function.", expected="FILE.py:FUNCTION")
        return Path(found["file"]), found["function"]

    @property
    def short(self) -> str:
        """Short display name of the model: the last part of its place.

        >>> ModelName("release:runs/new").short, ModelName("openai:BAAI/bge-m3:fp16@http://host/v1").short
        ('new', 'bge-m3-fp16')
        """
        if self.scheme == CODE:
            return self.place.rpartition(":")[2]
        if self.scheme == "openai" and "@" not in self.place:  # a profile
            return self.place
        if self.scheme in SCHEMES and self.scheme != "openai":
            return Path(self.place).resolve().name
        from limpet.models.text_encoders import TEXT_SERVICES

        return TEXT_SERVICES[self.scheme].short_name(self.place)

    def refuse_unless(self, *schemes: str, what: str) -> None:
        """Refuse a model of another kind.

        Raises:
            ConfigError: It has another scheme.
        """
        if self.scheme in schemes or (self.scheme not in (*SCHEMES, CODE) and "openai" in schemes):
            return
        raise ConfigError(
            f"'{self}' names {'stored vectors' if self.scheme == 'vectors' else f'no model of {what}'}.",
            expected=f"a model of {what}: {forms(schemes)}",
            to_do=f"say of which kind it is, such as {schemes[0]}:{self.place}." if self.scheme == "vectors" else "",
        )


def forms(schemes: Iterable[str] = SCHEMES) -> str:
    """Describe the name formats of these schemes.

    >>> forms(("st", "package"))
    'st:FOLDER_OR_NAME or package:NAME'
    """
    *most, last = [_FORMS.get(scheme, "FILE.py:FUNCTION") for scheme in schemes]
    return f"{', '.join(most)} or {last}" if most else last


def _is_service(scheme: str) -> bool:
    from limpet.models.text_encoders import TEXT_SERVICES

    return scheme in TEXT_SERVICES
