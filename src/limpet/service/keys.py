"""Access control: keys stored as digests, at most two per name, and their rate limit."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from limpet.errors import ConfigError, ServiceError, refuse
from limpet.support.disk import read_text

AccessRight = Literal["read", "write", "upgrade"]
RIGHTS: tuple[AccessRight, ...] = get_args(AccessRight)
"""Each right includes those before it."""
_LINE = re.compile(r"(?P<name>[\w.@-]{1,64}) +(?P<right>\w+) +(?P<digest>[0-9a-f]{64})")
_LOOK_AGAIN = 1.0  # seconds between two checks whether the file has changed


@dataclass(frozen=True)
class AccessKey:
    """One key.

    Args:
        name: Name of its holder; the journal records it.
        digest: SHA-256 of the key, in hexadecimal digits.
    """

    name: str
    right: AccessRight
    digest: str

    def may(self, right: AccessRight) -> bool:
        """Say whether its right includes another one."""
        return RIGHTS.index(self.right) >= RIGHTS.index(right)


EVERYBODY = AccessKey("", "upgrade", "")
"""Identity of all callers if there are no keys."""


def digest_of(key: str) -> str:
    """Return the stored digest of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(text: str, source: str) -> tuple[AccessKey, ...]:
    """Parse keys: lines of a name, a right and a digest; "#" begins a comment.

    Args:
        text: The lines; ";" also ends a line.
        source: Name of their place, for messages.

    Raises:
        ConfigError: A line is invalid, there are no keys, or a name has more than two.

    >>> read_keys(f"shop read {'0' * 64}  # until May", "keys.txt")[0].right
    'read'
    """
    keys = []
    for number, line in enumerate(re.split(r"[\n;]", text), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        found = _LINE.fullmatch(content)
        right = next((one for one in RIGHTS if found and one == found["right"]), None)
        if found is None or right is None:
            raise ConfigError(
                f"Line {number} of {source} is no key.",
                expected=f"a name, one of {', '.join(RIGHTS)}, and the SHA-256 of the key in 64 hexadecimal digits",
                to_do="make a key, `openssl rand -hex 32`, and its digest, `printf %s KEY | sha256sum`.",
            )
        keys.append(AccessKey(found["name"], right, found["digest"]))
    refuse(not keys, f"{source} has no keys.", "one line or more: NAME RIGHT SHA256")
    name, count = Counter(key.name for key in keys).most_common(1)[0]
    refuse(count > 2, f"{count} keys of '{name}' in {source}.", "at most two: the next one, and the one it replaces")
    return tuple(keys)


class AccessControl:
    """Authorizes requests.

    Args:
        source: A file of keys, which is read again when it changes; or their text. None admits everybody.
        rate: Maximum number of requests per second and name, in one process; None for no limit.
    """

    def __init__(self, source: Path | str | None, rate: float | None = None) -> None:
        self.source, self.rate = source, rate
        self._keys, self.read_at = tuple[AccessKey, ...](), time.time()
        self._stamp: tuple[int, int] | None = None
        self._looked, self._left = 0.0, dict[str, tuple[float, float]]()
        if isinstance(source, str):
            self._keys = read_keys(source, "the environment variable LIMPET_KEYS")
        elif source is not None:
            self._read(source)

    def _read(self, path: Path) -> None:
        try:
            stamp, text = (path.stat().st_mtime_ns, path.stat().st_ino), read_text(path)
        except OSError as error:
            raise ConfigError(f"Cannot read '{path}': {error.strerror}.", expected="a file of keys") from error
        if stamp != self._stamp:
            self._keys, self._stamp, self.read_at = read_keys(text, f"'{path}'"), stamp, time.time()
        self._looked = time.monotonic()

    def keys(self) -> tuple[AccessKey, ...]:
        """Return the current keys of the file; `read_at` is the time of the read, in seconds since 1970."""
        if isinstance(self.source, Path) and time.monotonic() > self._looked + _LOOK_AGAIN:
            self._read(self.source)
        return self._keys

    def enter(self, digest: str | None, right: AccessRight) -> AccessKey:
        """Return the key of the caller; `EVERYBODY` if there are no keys.

        Args:
            digest: Digest of the given key; None for none.
            right: The required right.

        Raises:
            ServiceError: The key is unknown, its right does not suffice, or the rate limit is exceeded.
        """
        key = EVERYBODY if self.source is None else self._found(digest, right)
        if self.rate is not None:
            self._take(key.name, self.rate)
        return key

    def _found(self, digest: str | None, right: AccessRight) -> AccessKey:
        # Compare all keys, each in constant time, so that the duration reveals nothing about any key.
        found = [key for key in self.keys() if hmac.compare_digest(key.digest, digest or "")]
        if not found:
            raise ServiceError(401, "No valid key was given." if digest else "No key was given.",
                               expected="the header Authorization: Bearer KEY")  # fmt: skip
        key = max(found, key=lambda one: RIGHTS.index(one.right))
        if not key.may(right):
            raise ServiceError(403, f"The key of '{key.name}' may {key.right}.", expected=f"a key that may {right}")
        return key

    def _take(self, name: str, rate: float) -> None:
        now = time.monotonic()
        left, when = self._left.get(name, (rate, now))
        left = min(rate, left + (now - when) * rate)
        if left < 1:
            raise ServiceError(
                429, f"More than {rate:g} requests a second.", to_do="ask less often.", retry_after=(1 - left) / rate,
                intact="Nothing was changed.",
            )  # fmt: skip
        self._left[name] = left - 1, now
