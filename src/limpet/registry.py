"""Things by name: limpet's own, and those that installed packages offer."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from sys import path as search_path
from typing import Any, TypeVar

from limpet.errors import ConfigError, MissingExtraError, reason, unknown_name
from limpet.support.extras import needing
from limpet.support.source_code import definition_at

Thing = TypeVar("Thing")


class Registry(MutableMapping[str, Thing]):
    """Things of one kind by name, each imported when it is first asked for.

    A package of one's own offers such a thing under the entry-point group ``limpet.<group>``; it is imported when it
    is asked for by its name, so that one that is broken hinders nothing else. A name that is taken twice is refused by
    whoever asks for it. Iteration goes over limpet's own, those that were set, and those that were imported;
    `import_installed` imports all.

    Args:
        kind: What a thing is called in messages, such as ``"method"``.
        group: Last part of the entry-point group, such as ``"methods"``.
        own: Limpet's own things by name, or where they are: ``"limpet.methods.bct:BCT"``.
        fits: Whether what a package offers is such a thing.
        expected: What `fits` asks for, in words.
        listing: A command that lists the things, if there is one.
        in_bench: Names of things that the package limpet-bench offers; the error for such a name says to install it.
        facts: What to tell of a name beside the first paragraph of its documentation, by columns of the table that
            ``repr`` returns.

    >>> signs = Registry("sign", "signs", {"plus": 1}, fits=lambda sign: isinstance(sign, int), expected="a number")
    >>> signs["plus"], "minus" in signs
    (1, False)
    >>> signs["pluss"]
    Traceback (most recent call last):
    ...
    limpet.errors.ConfigError: Unknown sign 'pluss'. Did you mean 'plus'?
    Expected: one of plus
    """

    def __init__(
        self,
        kind: str,
        group: str,
        own: Mapping[str, Thing | str],
        *,
        fits: Callable[[Any], bool],
        expected: str,
        listing: str = "",
        in_bench: Sequence[str] = (),
        facts: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.in_bench, self._facts = in_bench, facts
        self.kind, self.group, self.listing = kind, f"limpet.{group}", listing
        self.places = {name: place for name, place in own.items() if isinstance(place, str)}
        self._own = tuple(own)
        self._things: dict[str, Thing] = {name: one for name, one in own.items() if not isinstance(one, str)}
        self._fits, self._expected = fits, expected

    def __getitem__(self, name: str) -> Thing:
        if name in self._things and name not in self._own:
            return self._things[name]
        offers = self._offers(name)
        if len(offers) > (0 if name in self._own else 1):
            raise ConfigError(
                f"The installed {self.kind} '{offers[-1].name}' ({offers[-1].value}) has the name of another one.",
                expected="a name of its own",
                to_do=f"uninstall '{_package(offers[-1])}' or rename its entry point.",
            )
        if offers:
            self._things[name] = self._imported(offers[0])
        return self._thing(name)

    def _thing(self, name: str) -> Thing:
        if name not in self._things and name in self.places:
            module, _, attribute = self.places[name].partition(":")
            with needing(f"The {self.kind} '{name}'"):
                self._things[name] = getattr(import_module(module), attribute)
        if name not in self._things:
            raise self.unknown(name)
        return self._things[name]

    def __setitem__(self, name: str, thing: Thing) -> None:
        self._things[name] = thing

    def __delitem__(self, name: str) -> None:
        self.places.pop(name, None)
        self._things.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        known = {**self.places, **self._things}
        return iter(
            [*(name for name in self._own if name in known), *(name for name in known if name not in self._own)]
        )

    def __len__(self) -> int:
        return len({*self.places, *self._things})

    def __contains__(self, name: object) -> bool:
        return name in self.places or name in self._things or bool(self._offers(name))

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the thing of a name, or the default where there is none."""
        return self[name] if name in self else default  # noqa: SIM401 - this is that method

    def items(self) -> ItemsView[str, Thing]:
        """Return names and things; what packages offer under names that are taken is passed over."""
        return {name: self._thing(name) for name in self}.items()

    def values(self) -> ValuesView[Thing]:
        """Return the things that `items` returns."""
        return {name: self._thing(name) for name in self}.values()

    def documentation(self, name: str) -> str:
        """Return the documentation of a thing, read from its source where it was not imported yet.

        Empty for what has none of its own, such as a number.
        """
        if name in self.places and not self.imported(name):
            return ast.get_docstring(definition_at(self.places[name])) or ""
        thing: Any = self[name]
        thing = thing.func if isinstance(thing, partial) else thing
        return inspect.getdoc(thing) or "" if inspect.isclass(thing) or inspect.isroutine(thing) else ""

    def __repr__(self) -> str:
        rows = [
            {
                "name": name,
                **self._facts(name),
                "what it is": " ".join(self.documentation(name).split("\n\n")[0].split()),
            }
            for name in self
        ]
        lines = [dict(zip(rows[0], rows[0], strict=True)), *rows] if rows else []
        widths = {column: max(len(line[column]) for line in lines) for column in (lines[0] if lines else ())}
        return "\n".join("  ".join(line[one].ljust(widths[one]) for one in widths).rstrip() for line in lines)

    def imported(self, name: str) -> bool:
        """Say whether a thing was imported already."""
        return name in self._things

    def names(self) -> list[str]:
        """Return all names, those that packages offer too; nothing is imported."""
        return list(dict.fromkeys([*self, *(entry.name for entry in self._offers())]))

    def unknown(self, name: str) -> ConfigError:
        """Build the error for a name that nothing has: the package to install, or the names that there are."""
        if name in self.in_bench:
            return ConfigError(
                f"The {self.kind} '{name}' belongs to the package limpet-bench, which is not installed.",
                to_do="run `pip install ./bench` in the checkout of limpet.",
            )
        return unknown_name(self.kind, name, self.names(), listing=self.listing)

    def import_installed(self) -> list[ConfigError]:
        """Import what packages offer; return what is wrong with those that cannot be used."""
        wrong = []
        for name in {entry.name: None for entry in self._offers()}:
            try:
                self[name]
            except ConfigError as error:
                wrong.append(error)
        return wrong

    def _offers(self, name: object = None) -> list[EntryPoint]:
        return [entry for entry in _offered(self.group, tuple(search_path)) if name is None or entry.name == name]

    def _imported(self, entry: EntryPoint) -> Thing:
        try:
            with needing(f"The {self.kind} '{entry.name}' of the package '{_package(entry)}'"):
                thing: Thing = entry.load()
        except MissingExtraError:
            raise
        except (Exception, SystemExit) as error:  # whatever a module of others does when it is imported
            raise ConfigError(
                f"The {self.kind} '{entry.name}' of the package '{_package(entry)}' cannot be imported: "
                f"{type(error).__name__}, {reason(error)}.",
                expected=f"that `{entry.module}` can be imported and has `{entry.attr}`",
                to_do=f"repair or uninstall '{_package(entry)}'; everything else works without it.",
            ) from error
        if not self._fits(thing):
            raise ConfigError(
                f"The {self.kind} '{entry.name}' of the package '{_package(entry)}' is {entry.value}, which is none.",
                expected=self._expected,
                to_do=f"correct the entry point of '{_package(entry)}'; everything else works without it.",
            )
        return thing


@lru_cache(maxsize=64)
def _offered(group: str, folders: tuple[str, ...]) -> Sequence[EntryPoint]:
    return list(dict.fromkeys(_of_all_groups(folders).select(group=group)))


@lru_cache(maxsize=16)
def _of_all_groups(folders: tuple[str, ...]) -> Any:
    return entry_points()  # which reads a file of every package, whatever group is asked for


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module.partition(".")[0]
