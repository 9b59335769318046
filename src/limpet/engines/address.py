"""URLs of sources: location, roles of columns, rows to read, and facts about the vectors that the source lacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, get_args
from urllib.parse import unquote

from limpet.embeddings.forms import SIMILARITIES
from limpet.errors import ConfigError, nearest, refuse, unknown_name, without_secrets

Missing = Literal["refuse", "skip"]

SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9-]+)(?:\+\w+)?:(?=.)")
"""Start of a URL: a kind of source, and an optional driver, which is ignored."""
_SAME = {"postgres": "postgresql"}
_NAME = re.compile(r"\w+")
_FEW = 10  # maximum number of options in a message; libpq has fifty
_OPTIONS = (
    "table", "collection", "id", "vector", "text", "image", "label", "where", "sample", "seed", "model", "similarity",
    "missing",
)  # fmt: skip
"""Query parameters of all kinds of URLs."""


@dataclass(frozen=True)
class Roles:
    """Roles of columns; None if there is no such column, or if none was named.

    Args:
        id: Unique texts or integers.
        image: Paths of images to embed.
        label: Classes, by number or name.
    """

    id: str | None = None
    vector: str | None = None
    text: str | None = None
    image: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Sample:
    """A random sample of rows by their ids alone: for the same ids, every source gives the same sample.

    Args:
        rows: Number of rows, at least 1; all if there are fewer.
    """

    rows: int
    seed: int = 0


@dataclass(frozen=True)
class Address:
    """Address of a source, and how it is read.

    Args:
        scheme: Its kind, a key of `limpet.engines.sources.SOURCES`.
        place: ``scheme://user:password@host/path`` of a service, or a path; may contain a password.
        table: Table or collection; None if the place is one.
        roles: Roles of columns, as far as they were named.
        where: Conditions such as ``price<10``, which all rows must match.
        sample: Sample of these rows to read; all rows if None.
        model: Name of the model that made the vectors.
        similarity: Similarity of the vectors, a key of `SIMILARITIES`.
        missing: Treatment of rows without a vector.
        options: Other parameters; may contain a password.
    """

    scheme: str
    place: str = field(repr=False)
    table: str | None = None
    roles: Roles = Roles()
    where: tuple[str, ...] = ()
    sample: Sample | None = None
    model: str | None = None
    similarity: str | None = None
    missing: Missing = "refuse"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Name for messages, without a password."""
        place = without_secrets(self.place)
        return f"table '{self.table}' of {place}" if self.table else place

    @property
    def called(self) -> str:
        """Display name of the vectors: their model, or the table and its column, or the file."""
        parts = [self.table or PurePath(without_secrets(self.place)).stem, self.roles.vector]
        return self.model or ".".join(part for part in parts if part)

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse options that a kind of source does not know.

        Raises:
            ConfigError: An option is unknown.
        """
        for name in self.options:
            if name not in known:
                raise ConfigError(
                    f"Unknown option '{name}' of a URL of {self.scheme}.{nearest(name, [*_OPTIONS, *known])}",
                    expected=f"one of {', '.join([*_OPTIONS, *(known if len(known) < _FEW else ())])}"
                    + ", or a parameter of its client" * (len(known) >= _FEW),
                )


def scheme_of(url: str) -> str | None:
    """Return the kind of source of a URL; None if the text is no URL.

    >>> scheme_of("postgres+psycopg://h/d"), scheme_of("lance:db#t"), scheme_of("runs/old"), scheme_of("C:")
    ('postgresql', 'lance', None, None)
    """
    found = SCHEME.match(url)
    return None if found is None else _SAME.get(found[1].lower(), found[1].lower())


def read_address(url: str) -> Address:
    """Parse a URL such as ``postgresql://me@host/shop?table=items&vector=emb`` or ``lance:PATH#items?vector=emb``.

    Args:
        url: A scheme, a place and, after a question mark, options. A path may be followed by ``#`` and a table.

    Raises:
        ConfigError: The URL cannot be parsed, or an option has a wrong value. No message repeats a password.

    >>> address = read_address("lance:db#items?vector=emb&where=price<10&sample=100")
    >>> address.place, address.table, address.roles.vector, address.where, address.sample
    ('db', 'items', 'emb', ('price<10',), Sample(rows=100, seed=0))
    """
    scheme, begin = scheme_of(url), SCHEME.match(url)
    if scheme is None or begin is None:
        raise ConfigError("A source without a scheme.", expected="SCHEME:PLACE?OPTIONS")
    rest = url[begin.end() :]
    service = rest.startswith("//")
    place, _, query = rest.partition("?")
    named = None
    if service:
        place = f"{scheme}:{place}"
    else:
        (place, _, fragment), (query, _, after) = place.partition("#"), query.partition("#")
        named = fragment or after or None
    said = _read_options(scheme, query, service)
    tables = [*([named] if named else []), *said.pop("table", []), *said.pop("collection", [])]
    refuse(len(tables) > 1 or tables == [""], f"The URL of {scheme} names {len(tables)} tables.", "table=NAME, once")
    where = tuple(said.pop("where", ()))
    single = {name: _single(scheme, name, values) for name, values in said.items()}
    roles = Roles(**{name: single.pop(name) for name in Roles.__dataclass_fields__ if name in single})
    similarity = single.pop("similarity", None)
    if similarity is not None and similarity not in SIMILARITIES:
        raise unknown_name("similarity", similarity, SIMILARITIES)
    missing = single.pop("missing", "refuse")
    if missing not in get_args(Missing):
        raise unknown_name("value of missing=", missing, get_args(Missing))
    return Address(
        scheme=scheme,
        place=place,
        table=tables[0] if tables else None,
        roles=roles,
        where=where,
        sample=_sample(single),
        model=single.pop("model", None),
        similarity=similarity,
        missing=missing,  # type: ignore[arg-type]
        options=single,
    )


def _read_options(scheme: str, query: str, service: bool) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for part in query.split("&") if query else ():
        name, sign, value = part.partition("=")
        if not sign or not _NAME.fullmatch(name) or (service and "@" in part):
            raise ConfigError(
                f"What follows the question mark of the URL of {scheme} cannot be read.",
                expected="NAME=VALUE&NAME=VALUE; in a name, a password or a value / : @ ? & and # are written %2F %3A "
                "%40 %3F %26 and %23",
                to_do="better than in the URL, keep passwords where the client of the service finds them; nothing was "
                "read.",
            )
        said.setdefault(name, []).append(unquote(value))
    return said


def _single(scheme: str, name: str, values: list[str]) -> str:
    refuse(len(values) > 1, f"The URL of {scheme} says {name}= {len(values)} times.", "once")
    refuse(not values[0], f"The URL of {scheme} says {name}= and nothing.", f"{name}=VALUE, or no {name}=")
    return values[0]


def _sample(said: dict[str, str]) -> Sample | None:
    numbers = {name: said.pop(name) for name in ("sample", "seed") if name in said}
    for name, value in numbers.items():
        fewest = 1 if name == "sample" else 0
        wrong = not (value.isdecimal() and value.isascii()) or int(value) < fewest
        refuse(wrong, f"{name}={value}.", f"a whole number of at least {fewest}")
    refuse("seed" in numbers and "sample" not in numbers, "seed= without sample=.", "both, or neither")
    return Sample(int(numbers["sample"]), int(numbers.get("seed", 0))) if numbers else None
