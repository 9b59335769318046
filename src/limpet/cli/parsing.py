"""From words on a command line, and a YAML file, to the arguments of a typed function."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from limpet.cli.commands import all_functions, below, first_of, function_of, reader_of_words
from limpet.cli.config import Settings, Typed, known_options, leaves, optional_groups, read_yaml, refuse_unknown
from limpet.cli.parameters import Options, as_typed
from limpet.cli.places import Place
from limpet.errors import ConfigError, refuse, unknown_name, without_secrets
from limpet.support.documents import parsed_yaml
from limpet.support.options import Keywords

NamedSetting = tuple[str, Any]  # dotted name, and a value: a tuple of words, or what a YAML file says


def run_command(words: Sequence[str]) -> int:
    """Run the command that words begin with, such as "evaluate chain", and return its exit code.

    Raises:
        ConfigError: No command is named, or its words are wrong.
        SystemExit: Help was asked for.
    """
    command, rest = words[0], list(words[1:])
    if reader := reader_of_words(command):
        return reader(rest)
    while rest and f"{command} {rest[0]}" in all_functions():
        command = f"{command} {rest.pop(0)}"
    if command in all_functions():
        if len(rest) > 1 and not rest[1].startswith("-") and get_close_matches(rest[0], below(command), 1, 0.6):
            raise _without_subcommand(command, rest)  # a mistyped one, and then what it is to do it with
        return run(function_of(command), rest, command)
    if not rest or rest[0] in ("-h", "--help", "help"):
        from limpet.cli.help import help_of_group

        print(help_of_group(command))
        if rest:
            raise SystemExit(0)
        return 2
    raise _without_subcommand(command, rest)


def _without_subcommand(command: str, words: Sequence[str]) -> ConfigError:
    """Build the error for a command that is nothing without a further word, and was given another one."""
    if not words[0].startswith("-"):
        return unknown_name(
            f"subcommand of `limpet {command}`", words[0], below(command), listing=f"limpet {command} --help"
        )
    given = _groups(words, command)
    inner = [f"{command} {name}" for name in below(command)]
    takers = [one for one in inner if given[0][0] in known_options(function_of(one))] or inner
    return ConfigError(
        f"`limpet {command}` was given {words[0]} and nothing that says what to do.",
        expected=" or ".join(f"`limpet {one} {first_of(one).upper()} …`" for one in takers),
        to_do=f"`limpet {command} --help` lists all.",
        intact="Nothing was started.",
    )


def run(function: Callable[..., int], words: Sequence[str], command: str) -> int:
    """Call a command with what the words say, see `parse`, and return its exit code."""
    return function(**parse(function, words, command))


def parse(function: Callable[..., Any], words: Sequence[str], command: str) -> Keywords:
    """Return the arguments for ``function``, every default resolved.

    Flags need no value (``--json``), lists take several words (``--release a b``), dashes and underscores in names are
    the same, and ``--config FILE`` reads settings that later words override.

    Args:
        function: Its annotated signature and docstring define the options, those of groups (`Options`) by their own.
        words: What the user typed after the command.
        command: Its name; words before all options belong to the option that `first_of` names.

    Raises:
        ConfigError: An option is unknown, has a wrong value, or is missing.
        SystemExit: Help was asked for.
    """
    known, first = known_options(function), first_of(command)
    typed = Typed(without_secrets(shlex.join(["limpet", *command.split(), *words])))
    if first and words and not words[0].startswith("-"):
        refuse(
            first in [name for name, _ in _groups([f"--{first}", *words[1:]], command)[1:]],
            f"Both '{words[0]}' and {as_typed(first)} were given.",
            f"the {first} once: `limpet {command} {first.upper()} …`",
        )
        words = [f"--{first}", *words]
    parser, usual, groups, told = _parser(function, command)
    if "-h" in words or "--help" in words:
        from limpet.cli.help import help_of

        print(help_of(parser, function, command, first))
        raise SystemExit(0)
    settings = list(_settings(words, known, command))
    simple = [word for name, value in settings if name in known for word in _written(name, value, known[name], command)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser's own next version
            whole = any(  # where a group is given as one, the parser fills in what it leaves out
                optional_groups(known.get(name.rpartition(".")[0])) or any(one.startswith(f"{name}.") for one in known)
                for name, _ in settings
            )
            namespace = usual.clone()  # all of which the parser would check as if it had been typed
            namespace.update(parser.parse_args(simple, defaults=whole))
            within = [one for one in settings if one[0] not in known or get_origin(known[one[0]]) is dict]
            for name, value in within:
                _put(namespace, name, value, known)
            del namespace["config"]
            repr(namespace)  # refuses whole numbers longer than Python writes
            if within:
                parser.validate(namespace)
            text: str = parser.dump(namespace, skip_validation=True) if Settings in told.values() else ""
            arguments: Keywords = vars(parser.instantiate(namespace))
    except _PARSER_ERRORS as error:
        if isinstance(error, ConfigError):
            raise
        raise _wrong_value(error, known, command) from error
    arguments.pop("config", None)
    refuse(arguments.get("seed", 0) < 0, f"--seed {arguments.get('seed')}.", "a whole number of at least 0")
    for name, group in groups.items():
        arguments[name] = group(
            **{option: arguments.pop(option) for option in known_options(group) if "." not in option}
        )
    of_kind = {Settings: Settings(without_secrets(text)), Typed: typed}
    return arguments | {name: of_kind[kind] for name, kind in told.items()}


@cache  # programs and tests that call `main` again wait for it once
def _parser(
    function: Callable[..., Any], command: str
) -> tuple[Any, Any, dict[str, type[Options]], dict[str, type[Settings | Typed]]]:
    """Return a parser of a function's options with their defaults, the groups, and the parameters told of the words."""
    from jsonargparse import ArgumentParser
    from jsonargparse.typing import register_type

    register_type(Place, fail_already_registered=False)
    hints = get_type_hints(function)
    function.__annotations__ = hints  # see `_with_types`
    function.__qualname__ = f"`limpet {command}`"  # by a plain name the parser asks the packages for their own
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, Options)}
    told = {name: kind for name, kind in hints.items() if kind in (Settings, Typed)}
    for kind in hints.values():
        _with_types(kind)
    parser = ArgumentParser(prog=f"limpet {command}", exit_on_error=False)
    parser.add_argument("--config", type=str, help="YAML file of these options; later words override it.")
    parser.add_function_arguments(function, fail_untyped=True, skip={*groups, *told})
    for group in groups.values():
        parser.add_class_arguments(group, fail_untyped=True)
    return parser, parser.get_defaults(skip_validation=True), groups, told


def _with_types(kind: Any) -> None:
    """Let settings, and those within them, carry their types instead of texts.

    Of texts the parser would import whatever modules name for type checkers, torch among it.
    """
    for group in (kind, *optional_groups(kind)):
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            hints = get_type_hints(group)
            group.__init__.__annotations__ = hints
            for one in dataclasses.fields(group):
                one.type = hints[one.name]
                _with_types(one.type)


_PARSER_ERRORS = (argparse.ArgumentError, TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What the parser raises for words, which it reads as YAML: also what PyYAML does for `!!bool x` or `&a [*a]`."""
_KINDS = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "a text", "NoneType": "nothing"}
_KEY = re.compile(r'Parser key "([^"]*)"(?=:)')
_LITERAL = re.compile(r"(?:an? )?typing\.Literal\[(.*?)\]")
_SUBTYPE = re.compile(r"(one of [^<\]]*[^<\],\s])|<class '(?:[\w.]*\.)?(\w+)'>")
_NESTED = re.compile(r"NestedArg\(key='([\w.]+)', val=(.*?)\)")
_OWN_REFUSAL = re.compile(r"Union subtypes .*? Errors: - (.*? Expected: .*?) - Expected ")
_UNION = re.compile(r"(option '--[^']+': )Does not validate.* Subtypes: (\[.*?\]) Errors: .* Given value: (.*)$")


_GROUP = re.compile(r'^Parser key "([\w.]+)": Does not validate .* Given value: (.*)$')
_IN_GROUP = re.compile(r'Parser key "(\w+)": Expected (.+?)\. Got value: (.+?) - Expected an? ')
"""What the parser says of a group of settings that may be left out, and of one setting in it."""


def _wrong_value(error: BaseException, known: Mapping[str, Any], command: str) -> ConfigError:
    """Build the error for a value that an option does not take; within a group of settings it shows one that it takes.

    Args:
        error: Of the parser.
        known: All options with their types.
        command: What was typed.
    """
    text = " ".join(str(error).split())
    group, inside = _GROUP.search(text), _IN_GROUP.search(text)
    kinds = optional_groups(known.get(group[1])) if group else []
    if group is None or not kinds or _OWN_REFUSAL.search(text):
        return ConfigError(
            f"`limpet {command}` was given something wrong: {_short(error)}",
            to_do=f"`limpet {command} --help` lists the options.",
        )
    usual = {one.name: one.default for one in dataclasses.fields(kinds[0])}
    name, given, expected, example = group[1], group[2], "settings in braces, or none", _one_word(usual)
    if inside is not None:
        name, given, default = f"{name}.{inside[1]}", inside[3], usual[inside[1]]
        expected = re.sub(r"a tuple with (\d+) elements", r"\1 values", _kinds_in_words(inside[2]))
        example = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return ConfigError(
        f"`limpet {command}` was given {as_typed(name)} {given}.",
        expected=expected,
        to_do=f"give it a value such as the usual one, `{as_typed(name)} {example}`.",
        intact="Nothing was started.",
    )


def _one_word(settings: Mapping[str, Any]) -> str:
    """Write settings as one word of a command line."""
    return shlex.quote(json.dumps(settings))


def _kinds_in_words(text: str) -> str:
    return re.sub(r"an? <class '(\w+)'>", lambda found: _KINDS.get(found[1], found[0]), text)


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = _KEY.sub(lambda found: f"option '{as_typed(found[1])}'", " ".join(lines))
    text = _LITERAL.sub(lambda found: f"one of {found[1]}".replace("'", ""), text)
    text = _NESTED.sub(r"\1=\2", text)
    if refused := _OWN_REFUSAL.search(text):  # by the settings themselves
        return refused[1]
    union = _UNION.search(text)
    if union is None:
        return _kinds_in_words(text)
    kinds = [choice or _KINDS.get(name, name) for choice, name in _SUBTYPE.findall(union[2])]
    return f"{text[: union.start()]}{union[1]}given {union[3]}, expected {' or '.join(kinds) or union[2]}"


def _settings(words: Sequence[str], known: Mapping[str, Any], command: str) -> Iterator[NamedSetting]:
    """Yield names with their values, in order, from words and from the files they name; unknown names are refused."""
    groups = _groups(words, command)
    for name, values in groups:
        if name == "config":
            for path in values:
                found = read_yaml(Path(path), known)
                _refuse_servers(found, path)
                yield from leaves(found, known)
            continue
        refuse_unknown([name], known, f"of `limpet {command}`", as_typed)
        yield name, tuple(values)


def _refuse_servers(values: object, file: str) -> None:
    """Refuse servers that a file of settings names and the user did not list: they would receive texts or a key."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            _refuse_servers(value, file)
    elif isinstance(values, str) and ":" in values:
        from limpet.models.api.settings import refuse_unlisted
        from limpet.models.text_encoders import refuse_named_in
        from limpet.sources import scheme_of

        refuse_named_in(file, values)
        if "://" in values and values.rpartition("//")[2] and scheme_of(values) is not None:
            refuse_unlisted(values, values, file)


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
                f"`limpet {command}` does not know what '{word}' is.",
                expected="options with two dashes, such as --data FOLDER",
                to_do=f"`limpet {command} --help` lists them.",
            )
    return groups


def _written(name: str, value: Any, kind: Any, command: str) -> list[str]:
    """Write one setting as the parser wants it; what is of a mapping type is put in afterwards."""
    if get_origin(kind) is dict:
        return []
    words = isinstance(value, tuple)
    if kind is bool and value == ():
        return [f"--{name}=true"]
    if get_origin(kind) in (list, tuple):
        values = list(value) if isinstance(value, list | tuple) else [value]
        whole = words and len(values) == 1 and values[0].startswith("[")
        if words and not whole and get_args(kind)[:1] in ((int,), (float,)):
            values = [number for word in values for number in word.split(",") if number]  # 0 1 2, or 0,1,2
        given = f"`limpet {command}` was given {as_typed(name)} without a value."
        refuse(words and not values, given, "one value or more")
        texts = get_args(kind)[:1] in ((str,), (Path,), (Place,))
        write = json.dumps if texts and words else _scalar_text  # the id 007 stays as it is, and so does a folder
        return [f"--{name}={values[0] if whole else '[' + ', '.join(map(write, values)) + ']'}"]
    if words:
        given = f"`limpet {command}` was given {len(value)} values for {as_typed(name)}: {' '.join(value) or 'none'}."
        refuse(len(value) != 1, given, "one value")
        return [f"--{name}={value[0]}"]
    return [f"--{name}={value if isinstance(value, str) else json.dumps(value)}"]


def _scalar_text(value: Any) -> str:
    """Write an item of a list: numbers as they are, texts in quotes."""
    read = _scalar(value) if isinstance(value, str) else value
    return json.dumps(read if isinstance(read, int | float) and not isinstance(read, bool) else value)


def _scalar(word: str) -> Any:
    """Read a word as YAML does (0.5 is a number, true a truth value); what is no YAML stays as it is."""
    try:
        return parsed_yaml(word, f"'{word}'", "a value")
    except ConfigError:
        return word


def _put(namespace: Any, name: str, value: Any, known: Mapping[str, Any]) -> None:
    """Put a setting of a mapping type, or one inside it, where it belongs."""
    if isinstance(value, tuple):
        value = _scalar(value[0]) if len(value) == 1 else [_scalar(word) for word in value]
    root = next(option for option in known if name == option or name.startswith(f"{option}."))
    if name == root:
        option = as_typed(name)
        refuse(not isinstance(value, dict), f"{option} is {value!r}.", f"names with values: {option}.NAME VALUE")
        namespace[root] = value
        return
    *path, last = name.removeprefix(f"{root}.").split(".")
    namespace[root] = inner = dict(namespace[root] or {})
    for part in path:
        inner[part] = inner = dict(inner.get(part) or {})
    inner[last] = value
