"""Settings from limpet.toml, and the settings of a command as TOML beside its results."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import App, Parameter, Token
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict

from limpet.cli.parameters import Options, by_name
from limpet.cli.places import Place
from limpet.errors import ConfigError, brief, reason, refuse, unknown_name, without_secrets
from limpet.models.names import ModelName
from limpet.support.disk import read_text
from limpet.support.options import Keywords

FILE = "limpet.toml"
BENCH = "bench"
"""The table with the settings of `limpet-bench`."""
SHARED = ("device", "gallery")
"""Settings that stand above all tables and count for every command that has such an option."""
APART = ("api", "data-root")
"""Settings that are no options."""


@Parameter(parse=False)
@dataclass(frozen=True)
class Settings:
    """All settings of a command, every default resolved, for commands that write them beside their results; no option.

    Args:
        command: Its words.
        values: By name, as TOML has them; None is left out.
    """

    command: str = ""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, command: str, arguments: Mapping[str, Any]) -> Settings:
        """Return the settings that a command was called with."""
        return cls(command, dict(_plain(arguments)))

    def resolved(self, **values: object) -> Settings:
        """Return the settings with values that were left open and are decided now."""
        return Settings(self.command, {**self.values, **dict(_plain(values))})

    @property
    def file(self) -> str:
        """The name of the file that they are written to."""
        return f"{self.command.replace(' ', '-')}.toml"

    def write(self, folder: Path) -> Path:
        """Write a file for ``--config`` beside the results, wholly or not at all, and return its path.

        Raises:
            DataError: The folder cannot be written.
        """
        import tomli_w

        from limpet.embeddings.storage import write_atomically

        inner: Mapping[str, Any] = self.values
        for word in reversed(self.command.split()):
            inner = {word: inner}
        path, text = folder / self.file, tomli_w.dumps(inner)
        write_atomically(path, lambda part: part.write_text(without_secrets(text), encoding="utf-8"))
        return path


@Parameter(parse=False)
class Typed(str):
    """A command as it was typed, for commands that write it down; no option."""

    @classmethod
    def of(cls, words: Sequence[str], program: str = "limpet") -> Typed:
        """Return the command line without passwords."""
        return cls(without_secrets(shlex.join([program, *words])))


def _plain(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names as people type them with values that TOML has; settings of shared groups stand among the others."""
    for name, value in values.items():
        if isinstance(value, Options):
            yield from _plain(_fields(value))
        elif value is not None and value != {} and not isinstance(value, Settings | Typed):
            yield name.replace("_", "-"), _toml(value)


def _toml(value: Any) -> Any:
    if isinstance(value, ModelName):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(_plain(_fields(value)))
    if isinstance(value, Mapping):
        return {str(name): _toml(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_toml(one) for one in value]
    return str(value) if isinstance(value, Path | Place) else value


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}


# ---- limpet.toml


def found() -> Path | None:
    """Return the nearest limpet.toml, in the working folder or one above it; one that another user wrote is refused.

    Raises:
        ConfigError: It belongs to another user.
    """
    folder = Path.cwd()
    path = next((one / FILE for one in (folder, *folder.parents) if (one / FILE).is_file()), None)
    if path is not None and path.stat().st_uid not in owners():
        raise ConfigError(
            f"'{path}' belongs to another user, and its settings would count for your command.",
            expected=f"a {FILE} of your own",
            to_do=f"read it; then name it, `--config {shlex.quote(str(path))}`, or make it yours.",
        )
    return path


def owners() -> set[int]:
    """Return the users whose limpet.toml counts: the one who runs the command, and root."""
    return {os.getuid(), 0}


def read(path: Path, *, named: bool) -> dict[str, Any]:
    """Read a file of settings.

    Args:
        path: The file.
        named: Whether the user named it. One that was only found names no code, since a downloaded folder may have it.

    Raises:
        ConfigError: It cannot be read, is no TOML, or holds what it must not: a password, a server that the user has
            not listed, or code.
    """
    document = read_toml(path)
    for value in _texts(document):
        _refuse_text(value, path, named)
    for name, profile in _profiles_of(document):
        variable = str(profile.get("key-variable", profile.get("key_variable", "_API_KEY")))
        unsafe = profile.get("allow-http", profile.get("allow_http")) or not variable.endswith("_API_KEY")
        if unsafe and not named:
            raise ConfigError(
                f"[api.{name}] in '{path}' sends texts and key unencrypted, or another secret than the key of an API.",
                expected="such settings in files that you name",
                to_do=f"give them as options, or name the file: `--config {shlex.quote(str(path))}`.",
            )
    return document


def _profiles_of(document: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    profiles = document.get("api")
    found = profiles.items() if isinstance(profiles, dict) else ()
    return [(name, profile) for name, profile in found if isinstance(profile, dict)]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: It cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"Cannot read '{path}': {error.strerror or error}.", expected="a TOML file") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"'{path}' is no TOML: {reason(error)}.", expected="settings such as `seed = 1`") from error


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _refuse_text(value: str, path: Path, named: bool) -> None:
    """Refuse a password, a server that the user did not list, and code in a file that the user did not name."""
    if ":" not in value:
        return
    from limpet.engines.sources import scheme_of
    from limpet.models.api.settings import refuse_unlisted
    from limpet.models.text_encoders import refuse_named_in

    if without_secrets(value) != value:
        raise ConfigError(
            f"'{path}' holds the password of {without_secrets(value)}.",
            expected="passwords in the environment only",
            to_do="take it out of the file; PGPASSWORD, ~/.pgpass or an environment variable LIMPET_… may hold it.",
        )
    refuse_named_in(path, value)
    if "://" in value and value.rpartition("//")[2] and scheme_of(value) is not None:
        refuse_unlisted(value, value, path)
    if not named and ".py:" in value:
        raise ConfigError(
            f"'{path}' names code to run: {brief(value)}.",
            expected="code in files that you name",
            to_do=f"give it as an option, or name the file: `--config {shlex.quote(str(path))}`.",
        )


def document(config: str | None = None) -> tuple[dict[str, Any], str]:
    """Return the settings and the path of the file that was named, or of the nearest limpet.toml.

    Raises:
        ConfigError: See `found` and `read`.
    """
    path = found() if config is None else Path(config)
    return ({}, FILE) if path is None else (read(path, named=config is not None), str(path))


def sources(config: str | None, path: str, table: str = "") -> list[Callable[..., Any]]:
    """Return what gives a command the settings of a file.

    Args:
        config: The file; None for the nearest limpet.toml.
        path: The command.
        table: The table that holds those of the commands of this program; "" for the top.

    Raises:
        ConfigError: See `document`; or the file has a table or a name that nothing reads.
    """
    global _apart
    from limpet.cli.program import LIMPET

    content, source = document(config)
    _apart = {name: content.pop(name) for name in APART if name in content}, source
    shared = {name: content.pop(name) for name in SHARED if name in content}
    for name, value in content.items():
        if name not in LIMPET.summaries and name != BENCH:
            raise unknown_name(f"table or setting in '{source}'", name, (*LIMPET.summaries, BENCH, *APART, *SHARED))
        refuse(not isinstance(value, dict), f"'{name}' in '{source}' is {brief(value)}.", f"a table: [{name}]")
    content = content.get(table, {}) if table else {name: value for name, value in content.items() if name != BENCH}
    usual = Dict(shared, source=source, use_commands_as_keys=False, allow_unknown=True)
    own: Any = content
    for word in path.split():
        own = own.get(word) if isinstance(own, dict) else None
    return [_Named(own if isinstance(own, dict) else {}, source), Dict(content, source=source), usual]


@dataclass(frozen=True)
class _Named:
    """Adds options by name to those that were typed, each where its name was not typed.

    Args:
        own: The table of the command, from which they are taken.
        source: The file.
    """

    own: dict[str, Any]
    source: str

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        for argument in arguments:
            name = argument.name.removeprefix("--")
            key = next((one for one in self.own if one.replace("_", "-") == name), "")
            if argument.parameter.converter is not by_name or not isinstance(self.own.get(key), dict):
                continue
            typed = [tuple(key.replace("-", "_") for key in token.keys) for token in argument.tokens]
            for keys, value in _leaves(self.own.pop(key)):
                if not any(keys[: len(one)] == one[: len(keys)] for one in typed):
                    word = value if isinstance(value, str) else json.dumps(value)
                    argument.append(Token(keyword=f"[{name}]", value=word, source=self.source, keys=keys))


def _leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        keys = (*above, name.replace("-", "_"))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, keys)
        else:
            yield keys, value


_apart: tuple[dict[str, Any], str] | None = None
"""The settings of this command that are no options, and their file."""


def data_root() -> Path | None:
    """Return the folder of the named data sets, of the environment variable LIMPET_DATA or of limpet.toml.

    Raises:
        ConfigError: The file does not name a folder.
    """
    from limpet.data import datasets

    content, source = _apart or document()
    given = content.get("data-root")
    refuse(not isinstance(given, str | None), f"'data-root' in '{source}' is {brief(given)}.", "a folder")
    return datasets.data_root() or datasets.data_root(given)


def api_profile(name: str) -> Keywords:
    """Return the settings of ``[api.NAME]``, for `limpet.models.api.settings.api_settings`; none without such a table.

    Args:
        name: Of the table; "default" for the models that have none of their own.
    """
    content, source = _apart or document()
    known = content.get("api", {})
    refuse(not isinstance(known, dict), f"'api' in '{source}' is {brief(known)}.", "tables: [api.NAME]")
    found = known.get(name, {})
    refuse(not isinstance(found, dict), f"'api.{name}' in '{source}' is {brief(found)}.", f"a table: [api.{name}]")
    return {key.replace("-", "_"): value for key, value in found.items()}
