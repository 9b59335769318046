"""Every exception that limpet raises on purpose.

::

    LimpetError
    ├── ConfigError          (ValueError)    an option, a name or a file that people write
    │   └── MissingExtraError (ImportError)  a package that only a part of this one needs is not installed
    ├── DataError            (ValueError)    images, labels or embeddings that cannot be used
    │   └── UnknownModelError                vectors of a model that a gallery does not have
    ├── SpaceMismatchError   (ValueError)    points of two different spaces or dimensions meet
    ├── EmptyOverlapError    (ValueError)    two sides share no class or no item where some are needed
    ├── ReleaseError         (RuntimeError)  a saved model that is missing, altered or could not be written
    ├── ApiError             (RuntimeError)  a model behind an API that refuses, or does not answer as it should
    │   └── BudgetError                      what was allowed to be spent on one is spent
    ├── ServiceError         (RuntimeError)  what `limpet serve` refuses, and why a client does not reach it
    └── GalleryError         (RuntimeError)  a gallery that cannot do what was asked of it
        ├── GoneError                        an earlier commit that is not kept any more
        ├── StoreError                       the place where it is kept is out of reach, full or failing
        │   └── LastingStoreError            the same, where trying again changes nothing: damage, missing rights
        └── UpgradeStateError                a step of an upgrade that is not possible from where it stands

A message has up to four parts: what was given, what was expected, what to do next, and what is intact.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from operator import index

__all__ = [
    "ApiError", "BudgetError", "ConfigError", "DataError", "EmptyOverlapError", "GalleryError", "GoneError",
    "LastingStoreError", "LimpetError", "MissingExtraError", "ReleaseError", "ServiceError", "SpaceMismatchError",
    "StoreError", "UnknownModelError", "UnusableVectorsError", "UpgradeStateError", "brief", "count_of", "nearest",
    "reason", "refuse", "shown", "unknown_name",
]  # fmt: skip

_UNPRINTABLE = re.compile("[\x00-\x08\n-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text for people, with an escape such as ``\x1b`` for every sign that would steer their terminal.

    Ids, labels and names of files may hold anything. Escaped are control characters but the tab, line breaks, signs
    that change the direction of writing, and halves of pairs (surrogates), which no terminal could be sent.

    Args:
        text: The text.
        keep: Signs that stay as they are, such as the line breaks of a text of several lines.

    >>> printable("red\x1b[31m\u202e")
    'red\\x1b[31m\\u202e'
    """
    return _UNPRINTABLE.sub(lambda sign: sign[0] if sign[0] in keep else ascii(sign[0])[1:-1], text)


def distinct(text: str) -> str:
    r"""Return a text in which two names that look alike are not the same: signs that Unicode composes are escaped.

    ``é`` is one code point in most files (NFC), and two in names of files from some systems (NFD).

    >>> distinct("cafe\u0301 and caf\u00e9 weigh 1 \u212b")
    'cafe\\u0301 and café weigh 1 \\u212b'
    """
    if unicodedata.is_normalized("NFC", text):
        return text
    before = ["", *text]
    return "".join(
        sign if unicodedata.is_normalized("NFC", previous + sign) else ascii(sign)[1:-1]
        for previous, sign in zip(before, text, strict=False)
    )


def brief(value: object) -> str:
    """Return a value as Python writes it, but no more than 100 signs of it, and whole numbers of any size.

    >>> brief("red"), brief(10**5000), len(brief("a" * 1000))
    ("'red'", 'a whole number of more than 4,300 digits', 103)
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no longer ones
        return "a whole number of more than 4,300 digits"
    return text if len(text) <= 100 else f"{text[:100]}..."


_NAMED = r"""\w*(?:password|secret|scram_)\w*\s?=\s?(?:'(?:[^'\\]|\\.)*'|[^&\s'"]*)"""
_SECRETS = (
    (re.compile(r"(:/+[^\s:/@]*):\S*@"), r"\1@"),  # up to the last @, since a password may hold any sign
    (re.compile(rf"(?<=\?){_NAMED}&?|&{_NAMED}|(?<!\w){_NAMED}\s?", re.IGNORECASE), ""),
)


def without_secrets(text: str) -> str:
    """Leave the passwords of database URLs out of a text.

    >>> without_secrets("no answer from postgresql://me:s3cret@host/db?password=x&a=b")
    'no answer from postgresql://me@host/db?a=b'
    >>> without_secrets("'postgresql:/me:p@ss/w?rd@host:1/db?a=b&sslpassword=x'; host=h password='my own' user=me")
    "'postgresql:/me@host:1/db?a=b'; host=h user=me"
    """
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def reason(error: BaseException) -> str:
    r"""Return what an error says, on one line and without a full stop, to be put into the message of another.

    >>> reason(OSError("no header\n  at the end.\n")), reason(MemoryError()), reason(DataError("Two ids.", "one"))
    ('no header at the end', 'MemoryError', 'Two ids; expected one')
    """
    parts = [error.given, error.expected] if isinstance(error, LimpetError) else [str(error)]
    said = [" ".join(part.split()).rstrip(".") for part in parts if part]
    return "; expected ".join(said) or type(error).__name__


class LimpetError(Exception):
    """Base class of all errors of this package; messages never contain passwords of URLs.

    Args:
        given: What was found, with the offending value.
        expected: What would have been right.
        to_do: What to type or change next.
        intact: What the failure left unchanged, as a sentence; the class's own assurance when left out.

    The four attributes hold the words as they were given; ``str(error)`` is for people, see `printable`.
    """

    INTACT = ""
    """What every error of this class leaves unchanged."""

    def __init__(self, given: str, expected: str = "", to_do: str = "", *, intact: str = "") -> None:
        self.given, self.expected, self.to_do = map(without_secrets, (given, expected, to_do))
        self.intact = without_secrets(intact or self.INTACT)
        lines = [self.given]
        if expected:
            lines.append(f"Expected: {self.expected}")
        if to_do:
            lines.append(f"Next: {self.to_do}")
        if self.intact:
            lines.append(self.intact)
        super().__init__("\n".join(distinct(printable(line)) for line in lines))


class ConfigError(LimpetError, ValueError):
    """An option, a name or a user-written file is invalid."""


class MissingExtraError(ConfigError, ModuleNotFoundError):
    """A package for an optional part of limpet is not installed; see `limpet.support.extras`.

    Args:
        given: What needs it.
        to_do: The command that installs it.
        packages: What is missing, as it is called where it is installed from.
        name: What is missing, as it is imported, where whoever imported it may still tell what for; None: that is told.
    """

    def __init__(
        self, given: str, expected: str = "", to_do: str = "", *, packages: Sequence[str] = (), name: str | None = None
    ) -> None:
        super().__init__(given, expected, to_do)
        self.packages, self.name = tuple(packages), name


class DataError(LimpetError, ValueError):
    """Images, labels or embeddings cannot be used as they are."""


class UnusableVectorsError(DataError):
    """Vectors cannot be searched: they are zero, NaN, infinite or otherwise no points of their space."""


class UnknownModelError(DataError):
    """The gallery has no generation of the model of the vectors."""


class SpaceMismatchError(LimpetError, ValueError):
    """Points of different spaces or dimensions are combined."""


class EmptyOverlapError(LimpetError, ValueError):
    """Two sides have no common class or item, but at least one is required."""


class ReleaseError(LimpetError, RuntimeError):
    """A saved model is missing, altered, or could not be written."""


class ApiError(LimpetError, RuntimeError):
    """A model behind an API refuses, cannot be reached, or does not answer as it should."""


class BudgetError(ApiError):
    """The budget for a model behind an API is spent."""


class ServiceError(LimpetError, RuntimeError):
    """The service refuses a request, or cannot be reached.

    Args:
        status: HTTP status; 0 without a response.
        retry_after: Seconds after which the same request may succeed; None if it will not.
    """

    def __init__(
        self, status: int, given: str, expected: str = "", to_do: str = "", *, intact: str = "",
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(given, expected, to_do, intact=intact)
        self.status, self.retry_after = status, retry_after


class GalleryError(LimpetError, RuntimeError):
    """A gallery or an attached table cannot perform an operation; earlier commits are intact."""

    INTACT = "What was committed is intact."


class GoneError(GalleryError):
    """An earlier commit of a gallery is no longer kept."""


class StoreError(GalleryError):
    """The storage of a gallery is unreachable, full or failing; acknowledged writes are intact."""

    INTACT = "What was acknowledged is intact."


class LastingStoreError(StoreError):
    """The storage of a gallery refuses permanently, or its data is damaged; retrying does not help."""


class LockedError(StoreError):
    """A lock could not be acquired within the time limit."""


class UpgradeStateError(GalleryError):
    """An upgrade step is not possible in the current phase."""

    INTACT = "Nothing was changed."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known name closest to ``name``, or that begins with it, or nothing.

    >>> nearest("p2z", ["p2s", "bct"])
    " Did you mean 'p2s'?"
    >>> nearest("general", ["blurry", "general-incremental"])
    " Did you mean 'general-incremental'?"
    >>> nearest("zzz", ["p2s", "bct"]), nearest("cat", ["complaint"])
    ('', '')
    """
    names = list(known)
    begun = [one for one in names if len(name) > 2 and one.startswith(name)]
    matches = get_close_matches(name, names, n=1, cutoff=0.55) or begun
    return f" Did you mean '{matches[0]}'?" if matches else ""


def refuse(wrong: bool, given: str, expected: str) -> None:
    """Raise a `ConfigError` if something is wrong.

    >>> refuse(True, "temperature=0", "a temperature above 0")
    Traceback (most recent call last):
    ...
    limpet.errors.ConfigError: temperature=0
    Expected: a temperature above 0
    """
    if wrong:
        raise ConfigError(given, expected=expected)


def count_of(name: str, value: object) -> int:
    """Return a whole number of at least 1, or refuse what was given for it.

    >>> count_of("k", 10)
    10
    >>> count_of("k", 2.5)
    Traceback (most recent call last):
    ...
    limpet.errors.ConfigError: k=2.5
    Expected: a whole number of at least 1
    """
    try:
        number = 0 if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:  # a text, a fraction, None
        number = 0
    refuse(number < 1, f"{name}={brief(value)}", "a whole number of at least 1")
    return number


def shown(names: Iterable[str], total: int | None = None) -> str:
    """Write the first three names, and how many more there are; see `distinct`."""
    listed = list(names)
    more = (len(listed) if total is None else total) - min(3, len(listed))
    return ", ".join(f"'{distinct(name)}'" for name in listed[:3]) + (f" and {more} more" if more > 0 else "")


def unknown_name(kind: str, name: str, known: Iterable[str], *, listing: str = "") -> ConfigError:
    """Build the error for a name that is not in a table of names.

    Args:
        kind: What the name stands for, such as ``"method"``.
        name: The name given.
        known: The names that would have been right.
        listing: A command that lists them, if there is one.
    """
    names = list(known)
    return ConfigError(
        f"Unknown {kind} '{name}'.{nearest(name, names)}",
        expected=f"one of {', '.join(names)}",
        to_do=f"type one of these; `{listing}` describes them." if listing else "",
    )
