"""From words on a command line, and a YAML file, to the arguments of a typed function."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml

from holdfast.config import known_options, read_yaml, refuse_unknown
from holdfast.errors import ConfigError


def parse(function: Callable[..., Any], words: Sequence[str], command: str) -> tuple[dict[str, Any], str]:
    """Return the arguments for ``function`` and the same as YAML text, every default resolved.

    Flags need no value (``--json``), lists take several words (``--release a b``), dashes and underscores in names are
    the same, and ``--config FILE`` reads settings that later words override.

    Args:
        function: Its annotated signature and docstring define the options.
        words: What the user typed after the command.
        command: Name of the command, for messages.

    Raises:
        ConfigError: An option is unknown, has a wrong value, or is missing.
        SystemExit: Help was asked for.
    """
    from jsonargparse import ActionConfigFile, ArgumentParser

    known = known_options(function)
    parser = ArgumentParser(prog=f"holdfast {command}", exit_on_error=False)
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file of these options.")
    parser.add_function_arguments(function, fail_untyped=True)
    if "-h" in words or "--help" in words:
        parser.print_help()
        raise SystemExit(0)
    prepared = list(_prepared(words, known, command))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser's own next version
            namespace = parser.parse_args(prepared)
            text: str = parser.dump(namespace)
            arguments = vars(parser.instantiate(namespace))
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise ConfigError(
            f"`holdfast {command}` was given something wrong: {_short(error)}",
            to_do=f"`holdfast {command} --help` lists the options.",
        ) from error
    arguments.pop("config", None)
    for name, kind in known.items():
        if get_origin(kind) is dict:
            arguments[name] = _scalars(arguments[name])
    return arguments, text


def _scalars(value: Any) -> Any:
    """Read the words inside a mapping of options as YAML does: 0.5 is a number, true a truth value."""
    if isinstance(value, dict):
        return {key: _scalars(inner) for key, inner in value.items()}
    return yaml.safe_load(value) if isinstance(value, str) else value


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines).replace('Parser key "', 'option "--')


def _prepared(words: Sequence[str], known: dict[str, Any], command: str) -> Iterator[str]:
    """Check names, and write flags and lists the way the parser wants them."""
    groups = _groups(words, command)
    for name, values in groups:
        if name == "config":
            for value in values:
                read_yaml(Path(value), known)
            yield from ("--config", *values)
            continue
        refuse_unknown([name], known, f"of `holdfast {command}`", dashes="--")
        kind = known.get(name)
        if kind is bool and not values:
            yield f"--{name}=true"
        elif _is_list(kind):
            yield f"--{name}=[]"
            yield from (f"--{name}+={value}" for value in values)
        elif get_origin(kind) is tuple:
            yield f"--{name}={values[0] if len(values) == 1 else '[' + ','.join(values) + ']'}"
        elif len(values) == 1:
            yield f"--{name}={values[0]}"
        else:
            raise ConfigError(
                f"`holdfast {command}` was given {len(values)} values for --{name}: {' '.join(values) or 'none'}.",
                expected="one value",
            )


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(get_origin(part) is list for part in get_args(kind))


def _groups(words: Sequence[str], command: str) -> list[tuple[str, list[str]]]:
    """Split words into options with their values: --a b c --d=e becomes (a, [b, c]), (d, [e])."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            groups.append((name.replace("-", "_"), [value] if equals else []))
        elif groups:
            groups[-1][1].append(word)
        else:
            raise ConfigError(
                f"`holdfast {command}` does not know what '{word}' is.",
                expected="options with two dashes, such as --data FOLDER",
                to_do=f"`holdfast {command} --help` lists them.",
            )
    return groups
