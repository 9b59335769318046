"""Layout of a sharded gallery: a file, written by the user, that names its top and shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from limpet.engines.store import Document
from limpet.engines.top import TOPS, Top
from limpet.errors import ConfigError, GalleryError, refuse, shown, without_secrets
from limpet.support.disk import Disk, read_bytes
from limpet.support.documents import parsed_json

MOST_SHARDS = 1024
_LIMIT = 2**20  # bytes of the file
_Folder = Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4000)]
_Shard = Annotated[str, StringConstraints(pattern=r"^(lance|memory):([^/\x00]|/[^/\x00])[^\x00]*$", max_length=4000)]
_EXAMPLE = '{"format_version": 1, "top": "top", "shards": ["lance:shard0", "lance:shard1"]}'
_TOPS = "?top=postgresql://USER@HOST/DATABASE or ?top=s3://BUCKET/PREFIX"


class ShardFile(BaseModel):
    """Content of the file. It names folders only: reading it runs no code and uses no network.

    Args:
        top: Folder of the top; None if it is in a database or a bucket, which the URL then names.
        shards: ``lance:FOLDER`` or ``memory:FOLDER`` each, in an order that never changes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format_version: Literal[1] = 1
    top: _Folder | None = None
    shards: Annotated[list[_Shard], Field(min_length=1, max_length=MOST_SHARDS)]


class ShardedLayout:
    """Places of all parts of a sharded gallery; folders are relative to that of the file.

    Args:
        url: ``sharded:FILE``, or ``sharded:FILE?top=postgresql://…`` or ``?top=s3://…`` if the top is in a database or
            a bucket.

    Raises:
        ConfigError: The URL names neither a database nor a bucket, or two tops, or none.
        GalleryError: The file is missing, or is no list of shards.
    """

    def __init__(self, url: str) -> None:
        place, named, elsewhere = url.removeprefix("sharded:").removeprefix("//").partition("?top=")
        self.file, self.elsewhere = Path(place), elsewhere
        self.scheme = elsewhere.partition("://")[0] if named else "folder"
        wrong = named and ("://" not in elsewhere or self.scheme not in TOPS)
        refuse(bool(wrong), f"The top of '{without_secrets(url)}' is no database and no bucket.", _TOPS)
        found = _read(self.file)
        if (found.top is None) is not bool(elsewhere):
            raise ConfigError(
                f"'{self.file}' names {'no' if found.top is None else 'a'} folder of the top, and the URL "
                f"{'another' if elsewhere else 'no'} place.",
                expected="one of them",
                to_do=f"write sharded:{self.file} with {_TOPS}, or a folder into the file: {_EXAMPLE}.",
            )
        pairs = [shard.partition(":")[::2] for shard in found.shards]
        self.shards = [f"{kind}:{self.file.parent / folder}" for kind, folder in pairs]
        self._top = None if found.top is None else self.file.parent / found.top
        folders = [self.file.parent / folder for _, folder in pairs] + ([self._top] if self._top is not None else [])
        twice = sorted({str(one) for one in folders if folders.count(one) > 1})
        refuse(
            bool(twice), f"'{self.file}' names {shown(twice)} twice.", "a folder for the top and one for every shard"
        )

    def top(self, disk: Disk, document: Document | None = None) -> Top:
        """Return the existing top, or create one with a first document."""
        place = self.elsewhere if self._top is None else str(self._top)
        return TOPS[self.scheme](place, disk, *([] if document is None else [document]))


def _read(path: Path) -> ShardFile:
    expected = f"a file that names the top and the shards, such as {_EXAMPLE}"
    try:
        content = parsed_json(read_bytes(path, _LIMIT))
        found = ShardFile.model_validate(content)
        elsewhere = [one for one in (found.top or "", *found.shards) if "://" in one]
        if not elsewhere:
            return found
        why = f"{shown(elsewhere)} is no folder"
    except FileNotFoundError:
        raise GalleryError(
            f"There is no file '{path}'.", expected=expected, to_do="write it, then create the gallery."
        ) from None
    except ValidationError as error:
        [first, *_] = error.errors()
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
    raise GalleryError(f"'{path}' is no list of shards: {why}.", expected=expected, to_do="correct the file.")
