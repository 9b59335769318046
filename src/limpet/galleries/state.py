"""State of a gallery and how upgrade steps change it: values and one pure function."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Required, TypedDict, cast, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from limpet.engines.checks import damaged
from limpet.engines.filters import COLUMN_TYPES
from limpet.engines.store import Document
from limpet.errors import ConfigError, UnknownModelError, UpgradeStateError, unknown_name
from limpet.geometry import Space, space_from_record
from limpet.upgrade.lifecycle import Phase, check_step

How = Literal["report", "adapter", "mapped", "forced"]
_BECAUSE: Mapping[How, str] = {
    "report": "a passing compatibility report",
    "adapter": "an adapter of its queries",
    "mapped": "an adapter of the vectors",
    "forced": "force, without a passing report",
}

_EXACT = ConfigDict(strict=True, extra="forbid")


@with_config(_EXACT)
@dataclass(frozen=True)
class Generation:
    """The vectors of a gallery that one model made.

    Args:
        name: Short name, unique in its gallery and never reused.
        space: Record of its space, see `Space.record`.
        mapped_from: Name of the generation whose stored vectors an adapter converted into these, or None.
        adapter: Digest of that adapter among the files of the store.
        note: Readable name of the model.
        options: Command-line arguments that name the source of its vectors, if known.
    """

    name: str
    fingerprint: str
    space: Mapping[str, Any]
    mapped_from: str | None = None
    adapter: str | None = None
    note: str = ""
    options: str | None = None

    @cached_property
    def geometry(self) -> Space:
        """Its space."""
        return space_from_record(self.space)

    def to_record(self) -> dict[str, object]:
        """Return plain values for an event; missing fields are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@with_config(_EXACT)
@dataclass(frozen=True)
class Link:
    """A link: why queries of one model may search the vectors of another one.

    Args:
        query: Generation whose model embeds the queries.
        gallery: Generation whose vectors they search.
        how: "report" (a passing compatibility report of these two fingerprints), "adapter" (it maps the queries),
            "mapped" (the vectors were mapped into the space of the queries), or "forced".
        reason: The file or folder of the evidence, or the reason that the user gave.
        evidence: Numbers of the report, if there are any.
        adapter: Digest of the adapter that maps queries among the files of the store; None if they are used unchanged.
        score_map: Digest of the object that converts scores of these vectors to those of the queries' own, if there is
            one: the map that came with an adapter of queries, or the cohort of a link that was calibrated.
    """

    query: str
    gallery: str
    how: How
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    adapter: str | None = None
    score_map: str | None = None

    @property
    def words(self) -> str:
        """Description of the link in a sentence."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.query} searches vectors of {self.gallery}, too, because of {_BECAUSE[self.how]}{reason}."


@with_config(_EXACT)
@dataclass(frozen=True)
class GalleryState:
    """State of a gallery, apart from its rows.

    Args:
        generations: Searchable generations, in the order of their creation.
        active: The generation whose model embeds queries and new items now.
        started: The generation that is to become active, or None.
        previous: Formerly active generations, the last one last: the targets of rollbacks.
        links: Permissions to search vectors of other generations.
        columns: Types of the metadata columns, by name.
        created: Number of generations ever created, so that no name is used twice.
    """

    generations: tuple[Generation, ...] = ()
    active: str = ""
    started: str | None = None
    previous: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    created: int = 0

    @property
    def phase(self) -> Phase:
        """Phase of the upgrade."""
        if self.started is not None:
            return "started"
        return "swapped" if self.previous else "steady"

    @cached_property
    def epoch(self) -> str:
        """Hash of the state, 16 hexadecimal digits: changes with every step of an upgrade, and not with rows."""
        return hashlib.sha256(json.dumps(self.to_record(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def by_name(self) -> dict[str, Generation]:
        """The generations by name."""
        return {generation.name: generation for generation in self.generations}

    @property
    def target(self) -> str:
        """The generation that a backfill fills: the started one, or else the active one."""
        return self.started or self.active

    def of(self, fingerprint: str) -> Generation | None:
        """Return the generation of a model, or None."""
        return next((one for one in self.generations if one.fingerprint == fingerprint), None)

    def made_by(self, fingerprint: str) -> Generation:
        """Return the generation of the model that made queries or items.

        Raises:
            UnknownModelError: No generation of the gallery was made by that model.
        """
        generation = self.of(fingerprint)
        if generation is None:
            known = ", ".join(
                f"{one.name}: {f'{one.note}, ' if one.note else ''}{one.fingerprint}" for one in self.generations
            )
            raise UnknownModelError(
                f"Vectors with the fingerprint {fingerprint}.",
                expected=f"a model of this gallery ({known})",
                to_do="embed with one of these models, or `limpet upgrade start` with the new one.",
                intact="The gallery is intact.",
            )
        return generation

    def named(self, name: str) -> Generation:
        """Return a generation by its name or fingerprint.

        Raises:
            ConfigError: No generation has it.
        """
        generation = self.by_name.get(name) or self.of(name)
        if generation is None:
            raise unknown_name("generation", name, self.by_name, listing="limpet upgrade status")
        return generation

    def new_generation(
        self, fingerprint: str, space: Space, note: str = "", *, number: int | None = None, options: str | None = None
    ) -> Generation:
        """Return a generation for a model that the gallery does not have.

        Raises:
            ConfigError: The gallery has a generation of this model.
        """
        known = self.of(fingerprint)
        if known is not None:
            raise ConfigError(
                f"The gallery has a generation of the model {fingerprint} already: {known.name}.",
                expected="another model",
                to_do="`limpet upgrade status` lists the generations.",
            )
        name = f"g{self.created + 1 if number is None else number}"
        return Generation(name, fingerprint, space.record(), note=note, options=options)

    @property
    def files(self) -> frozenset[str]:
        """Digests of the adapters and score maps that the store keeps."""
        named = [name for link in self.links for name in (link.adapter, link.score_map)]
        return frozenset(name for name in [*named, *(one.adapter for one in self.generations)] if name is not None)

    def to_record(self) -> dict[str, object]:
        """Return plain values, from which `from_record` restores the state."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> GalleryState:
        """Return the state of a record.

        Raises:
            StoreError: The record is not one of a created gallery.
        """
        what = "The state of the gallery"
        try:
            state = _RECORD.validate_json(json.dumps(record))
            dims = [generation.geometry.dim for generation in state.generations]
        except ValidationError as error:
            [first, *_] = error.errors()
            raise damaged(what, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        except ConfigError as error:
            raise damaged(what, error.given.rstrip(".")) from error
        ends = [end for link in state.links for end in (link.query, link.gallery)]
        unknown = {state.active, state.target, *state.previous, *ends} - set(state.by_name)
        if state.generations and unknown:
            raise damaged(what, f"it has no generation {', '.join(map(repr, sorted(unknown)))}")
        if len(state.by_name) < len(state.generations):
            raise damaged(what, "two generations have one name")
        if not all(isinstance(dim, int) and dim < 2**31 for dim in dims):
            raise damaged(what, "a generation is of no whole dimension")
        if not set(state.columns.values()) <= set(COLUMN_TYPES):
            raise damaged(what, "a metadata column is of no known type")
        return state


_RECORD = TypeAdapter(GalleryState)


class Event(TypedDict, total=False):
    """Entry of the journal: its kind, and the fields of that kind, see `advance` or the code that reads it."""

    kind: Required[str]
    generation: Mapping[str, Any]
    columns: Mapping[str, str]
    links: Sequence[Mapping[str, Any]]
    bridge: Mapping[str, Any] | None
    link: Mapping[str, Any] | None
    forced: str | None
    missing: int
    dropped: Sequence[str]
    to: int
    state: Document
    items: int
    only_new: int


def advance(state: GalleryState, event: Event) -> GalleryState:
    """Return the state after an event; events that only concern rows do not change it.

    Args:
        state: State before the event.
        event: The event, with the fields of its kind: "create" (generation, columns), "start" (generation, links,
            bridge), "link" (link), "swap" (link, if it is forced), "rollback", "finish", "cancel", "repair" (state: an
            earlier one).

    Raises:
        UpgradeStateError: The step is not possible in this phase; the message names the possible steps.
        ConfigError: The kind is unknown.
    """
    kind = str(event.get("kind"))
    if kind in ROW_EVENTS:
        return state
    if kind not in _STEPS:
        raise ConfigError(f"An event of the kind '{kind}'.", expected=f"one of {', '.join([*_STEPS, *ROW_EVENTS])}")
    if bool(state.generations) == (kind == "create"):
        raise UpgradeStateError(
            f"Cannot {kind}: the gallery {'was created already' if state.generations else 'was not created'}.",
            expected="`create` once, before all other events",
            to_do="`limpet upgrade status` shows where it stands.",
        )
    return _STEPS[kind](state, event)


def replay(events: Iterable[Document]) -> GalleryState:
    """Return the state after all events of a journal."""
    state = GalleryState()
    for event in events:
        state = advance(state, cast(Event, event))
    return state


def _create(state: GalleryState, event: Event) -> GalleryState:
    first = Generation(**event["generation"])
    return GalleryState(generations=(first,), active=first.name, columns=dict(event["columns"]), created=1)


def _start(state: GalleryState, event: Event) -> GalleryState:
    check_step("start", state.phase, possible=("steady", "swapped"))
    new = Generation(**event["generation"])
    mapped = event.get("bridge")
    bridge = () if mapped is None else (Generation(**mapped),)
    links = tuple(_checked(Link(**link)) for link in event.get("links", ()))
    return replace(
        state,
        generations=(*state.generations, *bridge, new),
        started=new.name,
        links=(*state.links, *links),
        created=state.created + 1 + len(bridge),
    )


def _checked(link: Link) -> Link:
    if link.how not in get_args(How):
        raise ConfigError(f"A link by '{link.how}'.", expected=f"one of {', '.join(get_args(How))}")
    return link


def _link(state: GalleryState, event: Event) -> GalleryState:
    link = _checked(Link(**event["link"] or {}))
    ends = {link.query, link.gallery}
    if len(ends) < 2 or not ends <= set(state.by_name):
        raise UpgradeStateError(
            f"Cannot link {link.query} to {link.gallery}: the gallery has {', '.join(state.by_name)}.",
            expected="two of its generations",
            to_do="`limpet upgrade status` lists them.",
        )
    others = tuple(one for one in state.links if (one.query, one.gallery) != (link.query, link.gallery))
    return replace(state, links=(*others, link))


def _swap(state: GalleryState, event: Event) -> GalleryState:
    check_step("swap", state.phase)
    return replace(
        _link(state, event) if event.get("link") else state,
        active=state.target,
        started=None,
        previous=(*state.previous, state.active),
    )


def _rollback(state: GalleryState, event: Event) -> GalleryState:
    check_step("rollback", state.phase)
    return replace(state, active=state.previous[-1], previous=state.previous[:-1], started=state.active)


def _finish(state: GalleryState, event: Event) -> GalleryState:
    check_step("finish", state.phase)
    return replace(_without(state, set(state.by_name) - {state.active}), previous=())


def _cancel(state: GalleryState, event: Event) -> GalleryState:
    check_step("cancel", state.phase)
    return replace(_without(state, _with_bridges(state, {state.target})), started=None)


def _with_bridges(state: GalleryState, names: set[str]) -> set[str]:
    """Add the generations that were mapped from these, or that only queries of these search."""
    mapped = [one for one in state.generations if one.mapped_from is not None]
    users = {one.name: {link.query for link in state.links if link.gallery == one.name} for one in mapped}
    return names | {one.name for one in mapped if one.mapped_from in names or users[one.name] <= names}


def _without(state: GalleryState, gone: set[str]) -> GalleryState:
    return replace(
        state,
        generations=tuple(one for one in state.generations if one.name not in gone),
        links=tuple(one for one in state.links if not gone & {one.query, one.gallery}),
    )


_STEPS: dict[str, Callable[[GalleryState, Event], GalleryState]] = {
    "create": _create,
    "start": _start,
    "link": _link,
    "swap": _swap,
    "rollback": _rollback,
    "finish": _finish,
    "cancel": _cancel,
    "repair": lambda state, event: GalleryState.from_record(event["state"]),
}
ROW_EVENTS = ("add", "upsert", "delete", "backfill", "map", "index", "tidy", "gc")
"""Events that change rows only."""
