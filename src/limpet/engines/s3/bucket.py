"""Objects below a prefix of a bucket, on S3 or a compatible service: read, list, and write with compare-and-set."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
from obstore.store import S3Store

from limpet.errors import ConfigError, GalleryError, StoreError, reason

_URL = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/([\w!'()*.-]+(?:/[\w!'()*.-]+)*)/?", re.ASCII)
_RETRIES: Any = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=5), "base": 2},
}
_COPIED = 5 * 2**30  # maximum bytes of an object that S3 copies in one request

_used_by: set[int] = set()  # processes that used a client, this one and those it was forked from


class Bucket:
    """All objects below a prefix, which no other program may write to.

    Endpoint and keys come only from environment variables: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, optionally
    ``AWS_SESSION_TOKEN``, ``AWS_REGION`` and, for services other than Amazon's, ``AWS_ENDPOINT_URL``. An unencrypted
    endpoint also needs ``AWS_ALLOW_HTTP=true``.

    Args:
        url: ``s3://BUCKET/PREFIX``.

    Raises:
        ConfigError: The URL is invalid, or the environment has no keys.
    """

    def __init__(self, url: str) -> None:
        found = _URL.fullmatch(url)
        if found is None or {".", ".."} & set(found[2].split("/")):
            raise ConfigError(
                f"'{_brief(url)}' is no place in a bucket.",
                expected="s3://BUCKET/PREFIX, of letters, digits and -._!'()*",
                to_do="keys belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, another service than Amazon's in "
                "AWS_ENDPOINT_URL.",
                intact="Nothing was made.",
            )
        self.name, self.prefix = found[1], found[2]
        self.url, self.options = f"s3://{self.name}/{self.prefix}", _options(os.environ)

    @property
    def _store(self) -> Any:
        if _used_by - {os.getpid()}:
            raise GalleryError(
                f"This process was forked from one that used a bucket, and cannot use '{self.url}'.",
                expected="a process that was started anew, or forked before any bucket was used",
                to_do="let multiprocessing start processes by 'spawn' or 'forkserver'.",
            )
        _used_by.add(os.getpid())
        return self._client

    @cached_property
    def _client(self) -> Any:
        options: Any = self.options
        return S3Store(self.name, prefix=self.prefix, config=options, retry_config=_RETRIES)

    def read(self, name: str, before: tuple[bytes, str] | None = None) -> tuple[bytes, str] | None:
        """Return the content of an object, and the tag of exactly that; None if it does not exist.

        Args:
            name: Name of the object.
            before: What an earlier call returned; not sent again if it is unchanged.
        """
        options: Any = {} if before is None else {"if_none_match": before[1]}
        with self._translated(), suppress(FileNotFoundError):
            try:
                found = obstore.get(self._store, name, options=options)
            except NotModifiedError:
                return before
            return bytes(found.bytes()), str(found.meta["e_tag"])
        return None

    def put(self, name: str, content: bytes, over: str | None) -> str | None:
        """Write an object if the present one has a tag, or if none exists; return the new tag, None if not written.

        Requests that fail are repeated. If the reply to the first was lost, the repetition finds another tag: None may
        mean that exactly this content was written.

        Args:
            name: Name of the object.
            content: Unique content, since a tag may be a digest of it.
            over: Expected tag; None for an object that does not exist.

        Raises:
            StoreError: The service fails: the object may have been written, or not.
        """
        with self._translated(), suppress(AlreadyExistsError, PreconditionError, FileNotFoundError):
            mode: Any = "create" if over is None else {"e_tag": over}
            return str(obstore.put(self._store, name, content, mode=mode, use_multipart=False)["e_tag"])
        return None

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write an object unconditionally; it appears when it is complete."""
        with self._translated(), obstore.open_writer(self._store, name) as writer:
            for block in blocks:
                writer.write(block)

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object."""
        with self._translated():
            yield from map(bytes, obstore.get(self._store, name).stream())

    def copy(self, source: str, target: str) -> None:
        """Copy an object, within the service if possible."""
        with self._translated():
            if obstore.head(self._store, source)["size"] <= _COPIED:
                obstore.copy(self._store, source, target)
            else:
                self.write(target, self.blocks(source))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of all objects below a name, by their names."""
        with self._translated():
            listed = obstore.list(self._store, folder, chunk_size=1000)
            return {str(one["path"]): int(one["size"]) for some in listed for one in some}

    def folders(self) -> list[str]:
        """Return the part of object names before the first slash."""
        with self._translated():
            return [str(one) for one in obstore.list_with_delimiter(self._store)["common_prefixes"]]

    def remove(self, names: Collection[str]) -> None:
        """Remove existing objects."""
        if names:
            with self._translated(), suppress(FileNotFoundError):
                obstore.delete(self._store, sorted(names))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, PermissionError, NotImplementedError, TimeoutError, ValueError) as error:
            raise StoreError(
                f"'{self.url}' fails: {reason(error).partition(' Debug source:')[0][:500]}.",
                expected="a bucket that answers, and keys that may read and write it",
                to_do="check bucket, AWS_REGION, AWS_ENDPOINT_URL and the keys, then repeat the same command.",
            ) from error


def _options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of S3 clients, also those that a client would else look up under other names."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    missing = [key for key in keys if not environment.get(key)]
    if missing:
        raise ConfigError(
            f"The environment has no {' and no '.join(missing)}, by which a bucket is used.",
            expected=f"{' and '.join(keys)}, and AWS_SESSION_TOKEN for keys that expire",
            to_do='set them, for instance by: eval "$(aws configure export-credentials --format env)".',
            intact="Nothing was opened.",
        )
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    plain = environment.get("AWS_ALLOW_HTTP", "").lower() == "true"
    if endpoint and not endpoint.startswith("https://") and not (plain and endpoint.startswith("http://")):
        raise ConfigError(
            f"The endpoint in AWS_ENDPOINT_URL is '{_brief(endpoint)}'.",
            expected="https://HOST",
            to_do="where no encryption is needed, as on this machine, set AWS_ALLOW_HTTP=true.",
            intact="Nothing was opened.",
        )
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    found = {
        "aws_access_key_id": environment[keys[0]],
        "aws_secret_access_key": environment[keys[1]],
        "aws_session_token": environment.get("AWS_SESSION_TOKEN"),
        "aws_region": region,
        "aws_endpoint": endpoint or f"https://s3.{region}.amazonaws.com",
        "aws_allow_http": "true" if plain else "false",
        "aws_virtual_hosted_style_request": "false",
        "aws_skip_signature": "false",
    }
    return {name: value for name, value in found.items() if value}


def _brief(url: str) -> str:
    """Return a URL for a message without parts that may be keys: before an @, and after a question mark."""
    return re.sub(r"//.*@", "//", url.partition("?")[0])[:200]
