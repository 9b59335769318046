"""Where embeddings are: a path or the URL of a source, as a person gave it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from limpet.cli.parameters import of_one_word
from limpet.errors import without_secrets

if TYPE_CHECKING:
    from limpet.engines.address import Address


@Parameter(converter=of_one_word, accepts_keys=False, n_tokens=1)
class Place:
    """A folder or file, or the URL of a source; written without passwords.

    Args:
        given: As a person wrote it; may hold a password.

    >>> Place("runs/old").address, str(Place("postgresql://me:s3cret@host/shop?table=items"))
    (None, 'postgresql://me@host/shop?table=items')
    """

    def __init__(self, given: str) -> None:
        self.given = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.given == other.given

    def __hash__(self) -> int:
        return hash(self.given)

    def __repr__(self) -> str:
        return f"Place({str(self)!r})"

    def __str__(self) -> str:
        return without_secrets(self.given)

    @cached_property
    def address(self) -> Address | None:
        """Where the source is; None for a path.

        Raises:
            ConfigError: It is a URL that cannot be read.
        """
        if ":" not in self.given:  # nearly every path, for which nothing is imported
            return None
        from limpet.engines.sources import address_of

        return address_of(self.given)

    @property
    def path(self) -> Path:
        """The path, of what is no URL."""
        return Path(self.given)

    @property
    def nameless(self) -> bool:
        """Whether the vectors there do not say which model made them."""
        from limpet.embeddings.files import IMPORTED

        return self.address is not None or self.path.suffix in IMPORTED

    @property
    def resolved(self) -> Path | str:
        """The same for all ways of writing one path."""
        return self.given if self.address is not None else self.path.resolve()

    @property
    def folder(self) -> Path | None:
        """The folder that it is or lies in; None for a URL."""
        if self.address is not None:
            return None
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def name(self) -> str:
        """What people call it: a folder by its name, a file without its ending, a source by table and column."""
        if self.address is not None:
            return self.address.called
        path = self.path.resolve()
        return path.name if path.is_dir() or not path.suffix else path.stem
