"""Attaching to collections by URL, and what an application asks: which collection to query, and which to write."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.attached.base import ModelIdentity
from holdfast.attached.collections.attachment import CollectionAttachment
from holdfast.attached.collections.engine import Engine, Target
from holdfast.attached.collections.ledger import Entry, Ledger, Record
from holdfast.errors import ConfigError, GalleryError, UpgradeStateError, refuse, unknown_name, without_secrets
from holdfast.extras import needing
from holdfast.sources.address import Address, read_address

ENGINES = ("qdrant", "milvus")
OPTIONS = ("ledger", "alias", "new", "version", "beside")
"""What the URL of an attached collection may say besides what that of a source may.

``ledger`` is the SQLite file or the URL of the PostgreSQL database that keeps the pointer; ``alias`` is set after every
swap; ``new`` names the collection or the vector that is made; ``version`` names what the application changes with every
write; ``beside`` is "vector" or "collection", in Qdrant.
"""
_NUMBERED = re.compile(r"_upgrade\d+$")


@dataclass(frozen=True)
class _Place:
    """A URL of an attached collection, taken apart."""

    address: Address
    said: dict[str, str]

    @property
    def ledger(self) -> str:
        return self.said["ledger"]

    @property
    def source(self) -> str:
        """The service or the folder, whatever collection of it is meant."""
        parts = urlsplit(self.address.place)
        return f"{parts.scheme}://{parts.netloc}" if parts.netloc else str(Path(self.address.place).resolve())


def _read(url: str) -> _Place:
    address = read_address(url)
    if address.scheme not in ENGINES:
        raise unknown_name("engine of collections", address.scheme, ENGINES)
    said = {name: value for name, value in address.options.items() if name in OPTIONS}
    refuse("ledger" not in said, f"The URL of {address.scheme} names no ledger.",
           "ledger=FILE, an SQLite file of its own; or the URL of a PostgreSQL database")  # fmt: skip
    refuse(without_secrets(said["ledger"]) != said["ledger"], "The URL of the ledger holds a password.",
           "none, but PGPASSWORD or ~/.pgpass, since the URL is printed and kept")  # fmt: skip
    beside = said.get("beside", "vector")
    refuse(beside not in ("vector", "collection"), f"beside={beside}.", "vector or collection")
    refuse(address.scheme == "milvus" and "beside" in said, "beside= of Milvus.", "no word of it: a second collection")
    options = {name: value for name, value in address.options.items() if name not in OPTIONS}
    address = replace(address, options=options)
    return _Place(address, said)


def attach(url: str, *, old: ModelIdentity, new: ModelIdentity) -> CollectionAttachment:
    """Attach to a collection, or return the attachment of these two models that is there.

    Args:
        url: ``qdrant://HOST/COLLECTION?vector=NAME&ledger=FILE`` or ``milvus://HOST/COLLECTION?ledger=FILE``, or a
            folder or file; see `OPTIONS`.
        old: The model whose vectors are there; a dimension of 0 is taken from them.
        new: The model that is to take over.

    Raises:
        ConfigError: The URL, or a name in it, is wrong.
        DataError: Vectors are sparse, or compared in a way that there is no space for.
        GalleryError: Something rules the collection out, or what is to be made is there already.
        UpgradeStateError: The collection is attached already, for other models.
        StoreError: The service is out of reach, or refuses.
    """
    place = _read(url)
    from holdfast.sources import open_source

    source: Any = open_source(place.address)
    vectors = [name for name, type_ in source.schema.items() if getattr(type_, "list_size", 0)]
    vector = place.address.roles.vector or (vectors[0] if len(vectors) == 1 else None)
    if vector is None or vector not in vectors:
        raise ConfigError(
            f"The vector {vector!r} of {source.name}.",
            expected=f"vector=NAME of {', '.join(vectors) or 'which there are none'}",
        )
    source.similarity(vector)
    dim = int(source.schema[vector].list_size)
    if old.dim and old.dim != dim:
        raise ConfigError(
            f"The vectors in {source.name} have the dimension {dim}, those of {old.fingerprint} {old.dim}.",
            expected="the model that made the vectors which are there",
            to_do="name that model, or another vector; nothing was changed.",
        )
    ledger = Ledger(place.ledger)
    try:
        with ledger.database.transaction():
            collection, alias = _resolved(place, source.collection)
            here = [one for one in ledger.entries() if not one.detached and one.record.source == place.source
                    and one.record.old_target.collection == collection]  # fmt: skip
            known = here[0] if here else None
            if known is not None and (known.state.old, known.state.new) != (old.fingerprint, new.fingerprint):
                raise UpgradeStateError(
                    f"{source.name} is attached already: from {known.state.old} to {known.state.new}, "
                    f"{known.state.phase}.",
                    expected="one upgrade of a collection at a time",
                    to_do="`holdfast attach status` shows it; detach it first. Nothing was changed.",
                )
            if known is None:
                number = len(ledger.entries()) + 1
                record = _record(place, replace(old, dim=dim), new, collection, vector, alias, number)
                engine = _engine(place.address, record)
                try:
                    engine.refuse()
                    if engine.is_there():
                        raise GalleryError(
                            f"There is a {record.new_target.vector or ''} {record.new_target.collection} already.",
                            expected="a name that is free for the new vectors",
                            to_do="name another one: new=NAME in the URL; nothing was changed.",
                        )
                finally:
                    engine.close()
                known = ledger.add(record, {"kind": "attach", "old": old.fingerprint, "new": new.fingerprint})
        attachment = CollectionAttachment(_engine(place.address, known.record), ledger, known.id, without_secrets(url))
    except BaseException:
        ledger.close()
        raise
    try:
        attachment.engine.create()
    except BaseException:
        attachment.close()
        raise
    return attachment


def _resolved(place: _Place, name: str) -> tuple[str, str | None]:
    """Return the collection that a name or an alias leads to, and the alias to be set."""
    module = _module(place.address.scheme)
    with module.connected(place.address) as client:
        if place.address.scheme == "qdrant":
            aliases = {one.alias_name: one.collection_name for one in client.get_aliases().aliases}
        else:
            there = name in client.list_collections()
            aliases = {} if there else {name: str(client.describe_alias(name)["collection_name"])}
    return aliases.get(name, name), place.said.get("alias") or (name if name in aliases else None)


def _record(
    place: _Place, old: ModelIdentity, new: ModelIdentity, collection: str, vector: str, alias: str | None, number: int
) -> Record:
    """Return what an attachment would be made of."""
    name, further = place.said.get("new"), (place.said.get("version"), place.address.roles.text)
    old_target = Target(collection, vector)
    if place.address.scheme == "qdrant":
        from holdfast.attached.collections.qdrant import adds_vectors
        from holdfast.sources.qdrant import UNNAMED, connected

        if vector == UNNAMED:
            old_target = Target(collection)
        with connected(place.address) as client:
            added = old_target.vector is not None and alias is None and adds_vectors(client)
        if added and place.said.get("beside") != "collection":
            made = name or f"{_NUMBERED.sub('', vector)}_upgrade{number}"
            return Record(place.source, old, new, old_target, Target(collection, made), None, *further)
        refuse(place.said.get("beside") == "vector", "beside=vector.",
               "a vector that has a name, no alias, and Qdrant 1.18 or later")  # fmt: skip
    new_target = replace(old_target, collection=name or f"{_NUMBERED.sub('', collection)}_upgrade{number}")
    return Record(place.source, old, new, old_target, new_target, alias, *further)


def _module(scheme: str) -> Any:
    with needing(f"An attachment to {scheme}"):
        if scheme == "qdrant":
            import holdfast.sources.qdrant as module
        else:
            import holdfast.sources.milvus as module  # type: ignore[no-redef]
    return module


def _engine(address: Address, record: Record) -> Engine:
    arguments = (address, record.old_target, record.new_target, record.new.dim, record.version)
    with needing(f"An attachment to {address.scheme}"):
        if address.scheme == "qdrant":
            from holdfast.attached.collections.qdrant import QdrantEngine

            return QdrantEngine(*arguments)
        from holdfast.attached.collections.milvus import MilvusEngine

        return MilvusEngine(*arguments)


def open_attachment(url: str) -> CollectionAttachment:
    """Open an attachment.

    Args:
        url: As it was attached; only the ledger, the service and the collection matter.

    Raises:
        GalleryError: There is none, or no ledger.
    """
    place = _read(url)
    ledger = Ledger(place.ledger, make=False)
    try:
        entry = _entry_of(place, ledger)
        if entry is None:
            raise GalleryError(
                f"The ledger knows no attachment to '{_named(place)}'.",
                expected="the collection, or its alias, as it was attached",
                to_do="begin: `holdfast attach start`; nothing was changed.",
            )
        return CollectionAttachment(_engine(place.address, entry.record), ledger, entry.id, without_secrets(url))
    except BaseException:
        ledger.close()
        raise


def _named(place: _Place) -> str:
    from holdfast.sources.services import collection_of

    return collection_of(place.address)


def _entry_of(place: _Place, ledger: Ledger) -> Entry | None:
    """Return the last attachment of a collection."""
    name = _named(place)
    meant = [one for one in ledger.entries() if one.record.source == place.source
             and name in (one.record.alias, one.record.old_target.collection)]  # fmt: skip
    return meant[-1] if meant else None


def current(url: str, *, for_: str = "queries") -> Target:
    """Return what an application has to name when it searches, or when it writes.

    It reads the ledger and asks no service. Where an upgrade ended and the next one began, it follows.

    Args:
        url: As it was attached.
        for_: "queries" or "writes".

    Raises:
        GalleryError: There is no ledger, or it knows no such collection.

    The collections are named explicitly, so that one search cannot see two of them.
    """
    refuse(for_ not in ("queries", "writes"), f"for_={for_!r}", "'queries' or 'writes'")
    place = _read(url)
    ledger = Ledger(place.ledger, make=False)
    try:
        entry = _entry_of(place, ledger)
        if entry is None:
            raise GalleryError(f"The ledger knows no attachment to '{_named(place)}'.", expected="one that was begun")
        found = entry.serving if for_ == "queries" else entry.writing
        for later in ledger.entries():
            if later.id > entry.id and later.record.source == place.source and later.record.old_target == found:
                found = later.serving if for_ == "queries" else later.writing
        return found
    finally:
        ledger.close()
