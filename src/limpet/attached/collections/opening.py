"""Attach to collections by URL, and resolve which collection an application must query, and which it must write."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from limpet.attached.base import NotStartedError, StartPlan
from limpet.attached.collections.attachment import CollectionAttachment
from limpet.attached.collections.ledger import CollectionEntry, CollectionLedger, CollectionRecord, NoLedgerError
from limpet.engines.address import Address, read_address
from limpet.engines.collection import Engine, Target, Wanted
from limpet.engines.collections import ENGINES
from limpet.engines.services import collection_of, endpoint_of
from limpet.errors import ConfigError, GalleryError, UpgradeStateError, refuse, without_secrets
from limpet.upgrade.model import UpgradeModel

_OPTIONS = ("ledger", "alias", "new", "version", "beside")
"""Parameters in the URL of an attached collection in addition to those of a source.

``ledger`` is the SQLite file or the URL of the PostgreSQL database that keeps the pointer; ``alias`` is set after every
swap; ``new`` names the new collection or vector; ``version`` names the field that the application changes with every
write; ``beside`` is "vector" or "collection", in Qdrant.
"""


@dataclass(frozen=True)
class CollectionPlace:
    """The parsed URL of an attached collection."""

    address: Address
    said: dict[str, str]

    @property
    def ledger(self) -> str:
        """The file, or the URL of the database, of the ledger."""
        return self.said["ledger"]

    @property
    def source(self) -> str:
        """The folder, or the database of the service, that contains the collections."""
        kind, said = ENGINES[self.address.scheme], self.address.options
        if "://" not in self.address.place:
            return str(Path(self.address.place).resolve())
        host, port = endpoint_of(self.address, kind.port)
        inside = {name: said.get(name, default) for name, default in kind.scopes.items()}
        return f"{self.address.scheme}://{host}:{port}{f'?{urlencode(inside)}' if inside else ''}"


def read_place(url: str) -> CollectionPlace:
    """Parse the URL of an attached collection.

    Raises:
        ConfigError: The URL names no ledger, contains a password, or is of another kind.
    """
    address = read_address(url)
    if address.scheme not in ENGINES:
        raise ENGINES.unknown(address.scheme)
    said = {name: value for name, value in address.options.items() if name in _OPTIONS}
    refuse("ledger" not in said, f"The URL of {address.scheme} names no ledger.",
           "ledger=FILE, an SQLite file of its own; or the URL of a PostgreSQL database")  # fmt: skip
    refuse(without_secrets(said["ledger"]) != said["ledger"], "The URL of the ledger holds a password.",
           "none, but PGPASSWORD or ~/.pgpass, since the URL is printed and kept")  # fmt: skip
    options = {name: value for name, value in address.options.items() if name not in _OPTIONS}
    return CollectionPlace(replace(address, options=options), said)


class _Preparation:
    """Facts about a collection before it is attached.

    Args:
        old: The model of the existing vectors; a dimension of 0 is taken from them.
        new: The new model.
    """

    def __init__(self, place: CollectionPlace, old: UpgradeModel, new: UpgradeModel) -> None:
        from limpet.engines.sources import open_source

        self.place, self.new, self.kind = place, new, ENGINES[place.address.scheme]
        beside = place.said.get("beside")
        refuse(beside is not None and beside not in self.kind.beside, f"beside={beside}.",
               " or ".join(self.kind.beside) or "no word of it: it is always a second collection")  # fmt: skip
        source: Any = open_source(place.address)
        self.name = source.name
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
                to_do="name that model, or another vector.",
            )
        self.old, self.vector = replace(old, dim=dim), vector
        self.collection = self.kind.resolved(place.address, source.collection)
        aliased = source.collection if source.collection != self.collection else None
        self.alias = place.said.get("alias") or aliased

    def known(self, ledger: CollectionLedger) -> CollectionEntry | None:
        """Return the existing attachment of these two models.

        Raises:
            UpgradeStateError: The collection has an upgrade already, to other models.
        """
        here = (
            one
            for one in ledger.entries()
            if one.state.phase != "steady"
            and (one.record.source, one.record.old_target.collection) == (self.place.source, self.collection)
        )
        entry = next(here, None)
        if entry is not None:
            self._refuse_other_names(entry)
        if entry is not None and (entry.state.old, entry.state.new) != (self.old.fingerprint, self.new.fingerprint):
            raise UpgradeStateError(
                f"{self.name} has an upgrade already: from {entry.state.old} to {entry.state.new}, "
                f"{entry.state.phase}.",
                to_do="`limpet upgrade status` shows it; finish or cancel it first.",
            )
        return entry

    def _refuse_other_names(self, entry: CollectionEntry) -> None:
        record, said = entry.record, self.place.said
        begun = {"vector": record.old_target.vector, "text": record.text, "version": record.version}
        given = {"vector": record.old_target.vector and self.vector, "text": self.place.address.roles.text,
                 "version": said.get("version")}  # fmt: skip
        for what, name in given.items():
            if name is not None and name != begun[what]:
                raise UpgradeStateError(
                    f"{self.name} has an upgrade already, with {what}={begun[what] or 'nothing'} and not {name}.",
                    expected="the URL as the upgrade was started; one upgrade of a collection at a time",
                    to_do="leave it out to go on with that one; or finish or cancel it first.",
                )

    def record(self, number: int) -> CollectionRecord:
        said = self.place.said
        wanted = Wanted(self.collection, self.vector, self.alias, said.get("beside"), said.get("new"), number)
        targets = self.kind.sides(self.place.address, wanted)
        further = (said.get("version"), self.place.address.roles.text)
        return CollectionRecord(self.place.source, self.old, self.new, *targets, self.alias, *further)

    def refuse(self, record: CollectionRecord) -> None:
        """Refuse items that cannot be copied, and names that are taken.

        Raises:
            GalleryError: The collection cannot be attached.
        """
        with closing(_engine(self.place.address, record)) as engine:
            engine.refuse()
            if engine.is_there():
                raise GalleryError(
                    f"There is a {record.new_target.vector or ''} {record.new_target.collection} already.",
                    to_do="name another one: new=NAME in the URL.",
                    intact="Nothing was changed.",
                )


def start(url: str, *, old: UpgradeModel, new: UpgradeModel) -> CollectionAttachment:
    """Start an upgrade of a collection, or return the started one between the same models.

    Args:
        url: ``qdrant://HOST/COLLECTION?vector=NAME&ledger=FILE``, ``milvus://HOST/COLLECTION?ledger=FILE``,
            ``chroma://HOST/COLLECTION?ledger=FILE``, or a folder or file; see `_OPTIONS`.
        old: The model of the existing vectors; a dimension of 0 is taken from them.
        new: The new model.

    Raises:
        ConfigError: The URL, or a name in it, is wrong.
        DataError: The vectors are sparse, or no space corresponds to their metric.
        GalleryError: The collection cannot be attached, or the new target exists already.
        UpgradeStateError: The collection has an upgrade already, to other models.
        StoreError: The service is unreachable, or refuses.
    """
    place = read_place(url)
    it = _Preparation(place, old, new)
    ledger = CollectionLedger(place.ledger)
    try:
        with ledger.transaction():
            known = it.known(ledger)
            if known is None:
                record = it.record(len(ledger.entries()) + 1)
                it.refuse(record)
                number = ledger.add(record, {"kind": "start", "old": old.fingerprint, "new": new.fingerprint,
                                             "compared": True})  # fmt: skip
                known = ledger.entry(number)
        attachment = _opened(url, place, ledger, known)
    except BaseException:
        ledger.close()
        raise
    try:
        with ledger.alone(known.id):
            if attachment.phase != "steady":  # another process may have cancelled it
                attachment.engine.create()
    except BaseException:
        attachment.close()
        raise
    return attachment


def plan(url: str, *, old: UpgradeModel, new: UpgradeModel) -> StartPlan:
    """Return the effects of a start, in words; nothing is changed, and no ledger is created."""
    place = read_place(url)
    it = _Preparation(place, old, new)
    known, number = None, 1
    with suppress(NoLedgerError), closing(CollectionLedger(place.ledger, make=False)) as ledger:
        known, number = it.known(ledger), len(ledger.entries()) + 1
    record = it.record(number) if known is None else known.record
    refusals: list[str] = []
    if known is None:
        try:
            it.refuse(record)
        except GalleryError as error:
            refusals.append(f"{error.given} {error.to_do}")
    before, after, dim = record.old_target, record.new_target, new.dim
    if after.collection == before.collection:
        made = f"vector '{after.vector}' of {dim} numbers beside '{before.vector}' of the same points"
        gone = f"vector '{after.vector}'"
    else:
        made = f"collection '{after.collection}' with vectors of {dim} numbers, fields, settings and indexes as those "
        made += f"of '{before.collection}'"
        gone = f"collection '{after.collection}'"
    moved = [f"set the alias '{record.alias}' to '{{}}'"] * bool(record.alias)
    steps = {
        "start": (f"make the {made}", f"note the upgrade in the ledger '{place.ledger}'"),
        "backfill": ("read both sides, and write what the new one lacks",),
        "index": ("let the service index the new vectors",),
        "swap": ("move the pointer in the ledger", *(one.format(after.collection) for one in moved)),
        "rollback": ("move the pointer back", *(one.format(before.collection) for one in moved)),
        "finish": ("remove nothing: the old side is its owner's to remove",),
        "cancel": (f"remove the {gone}",),
    }
    return StartPlan(tuple(refusals), steps)


def _engine(address: Address, record: CollectionRecord) -> Engine:
    kind = ENGINES[address.scheme]
    return kind(address, record.old_target, record.new_target, record.new.dim, record.version)


def open_attachment(url: str) -> CollectionAttachment:
    """Open an attachment.

    Args:
        url: URL of the start; only the ledger, the service and the collection matter.

    Raises:
        GalleryError: The attachment or the ledger does not exist.
    """
    place = read_place(url)
    ledger = CollectionLedger(place.ledger, make=False)
    try:
        entry = _entry_of(place, ledger)
        if entry is None:
            raise NotStartedError(
                f"The ledger knows no upgrade of '{_named(place)}'.",
                to_do="`limpet upgrade start` starts one.",
                intact="Nothing was changed.",
            )
        return _opened(url, place, ledger, entry)
    except BaseException:
        ledger.close()
        raise


def _opened(url: str, place: CollectionPlace, ledger: CollectionLedger, entry: CollectionEntry) -> CollectionAttachment:
    engine = _engine(place.address, entry.record)
    return CollectionAttachment(engine, ledger, entry.id, without_secrets(url), place.address)


def _named(place: CollectionPlace) -> str:
    return collection_of(place.address)


def _entry_of(place: CollectionPlace, ledger: CollectionLedger) -> CollectionEntry | None:
    """Return the last attachment of a collection."""
    name = _named(place)
    meant = [one for one in ledger.entries() if one.record.source == place.source
             and name in (one.record.alias, one.record.old_target.collection)]  # fmt: skip
    return meant[-1] if meant else None


def current(url: str, *, for_: str = "queries") -> Target:
    """Return the target that an application must name when it searches, or when it writes.

    It reads the ledger and calls no service. When an upgrade has ended and the next one has started, it follows.

    Args:
        url: URL of the start.
        for_: "queries" or "writes".

    Raises:
        GalleryError: The ledger does not exist, or does not know the collection.

    The collections are named explicitly, so that one search cannot see two of them.
    """
    refuse(for_ not in ("queries", "writes"), f"for_={for_!r}", "'queries' or 'writes'")
    return _found(url, for_)[0]


def everywhere(url: str) -> tuple[Target, ...]:
    """Return all targets in which an application must delete an item, in this order; the one that it writes is last.

    While a collection is attached these are both sides. If an item was added just when another side was declared as
    written, that side may not have the item yet, and a deletion there has no effect.

    Args:
        url: URL of the start.

    Raises:
        GalleryError: The ledger does not exist, or does not know the collection.
    """
    written, entry = _found(url, "writes")
    both = () if entry.state.phase == "steady" else (entry.record.old_target, entry.record.new_target)
    return (*(one for one in both if one.collection != written.collection), written)


def _found(url: str, for_: str) -> tuple[Target, CollectionEntry]:
    place = read_place(url)
    ledger = CollectionLedger(place.ledger, make=False)
    try:
        entry = _entry_of(place, ledger)
        if entry is None:
            raise GalleryError(f"The ledger knows no upgrade of '{_named(place)}'.", expected="one that was begun")
        found = entry.serving if for_ == "queries" else entry.writing
        for later in ledger.entries():
            if later.id > entry.id and later.record.source == place.source and later.record.old_target == found:
                entry, found = later, later.serving if for_ == "queries" else later.writing
        return found, entry
    finally:
        ledger.close()
