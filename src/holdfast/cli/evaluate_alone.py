"""What ``holdfast evaluate --combine`` and ``--chain`` share: names of folders, options that do not go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, refuse

ALWAYS = ("out", "report", "json")
"""Options that go with all of them."""


def handed_over(arguments: dict[str, Any], settings: str) -> int | None:
    """Run what --combine or --chain asks for and return its exit code; None where neither was given.

    Args:
        arguments: Of the command.
        settings: The same as YAML text.

    Raises:
        ConfigError: Both were given, or options that only go with one of them.
    """
    if arguments["combine"]:
        from holdfast.cli.evaluate_combine import evaluate_combine_command

        return evaluate_combine_command(arguments, settings)
    refuse(arguments["metric"] is not None, f"--metric {arguments['metric']} was given without --combine.",
           "--metrics, or --gate-metric for the verdict")  # fmt: skip
    if arguments["chain"]:
        from holdfast.cli.evaluate_chain import evaluate_chain_command

        return evaluate_chain_command(arguments, settings)
    for name in ("chain_independent", "old_baseline"):
        refuse(bool(arguments[name]), f"--{name.replace('_', '-')} was given without --chain.", "--chain PATH PATH ...")
    return None


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return what people call these folders and files: their names, or whole paths where two have one name.

    Raises:
        ConfigError: A path was given twice.

    >>> names_of([Path("runs/e1"), Path("runs/e2.npz")]), names_of([Path("a/x"), Path("b/x")])
    (['e1', 'e2'], ['a/x', 'b/x'])
    """
    for number, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise ConfigError(f"'{path}' was given twice.", expected="every folder or file once")
    names = [path.resolve().name if path.is_dir() or not path.suffix else path.stem for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))


def refuse_others(option: str, arguments: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse options that say nothing beside another one, instead of ignoring them; and results over their sources.

    Args:
        option: The other one, an argument of the command that lists paths.
        arguments: Of the command.
        allowed: Arguments that go with it.

    Raises:
        ConfigError: Another was given, or the folder for results is one of the paths.
    """
    from holdfast.cli.evaluate import evaluate

    defaults = {name: parameter.default for name, parameter in signature(evaluate).parameters.items()}
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in arguments.items()
        if name not in (option, *ALWAYS, *allowed) and value != defaults[name]
    ]
    if given:
        raise ConfigError(
            f"--{option} was given together with {', '.join(given)}.",
            expected=f"--{option} and what goes with it: "
            + ", ".join(f"--{name.replace('_', '-')}" for name in (*allowed, *ALWAYS)),
            to_do=f"leave {'it' if len(given) == 1 else 'them'} out.",
        )
    out = arguments["out"]
    if out.resolve() in {(path if path.is_dir() else path.parent).resolve() for path in arguments[option]}:
        raise ConfigError(
            f"The results would be written to '{out}', over what --{option} reads there.",
            expected="a folder of its own for them",
            to_do="--out FOLDER.",
        )
