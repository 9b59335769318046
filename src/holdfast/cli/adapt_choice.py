"""What ``holdfast adapt`` compares: from its options to adapters and heads, wrong ones refused before any computing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from holdfast.cli.choices import options_by_method
from holdfast.data.augment import Augmentation
from holdfast.errors import ConfigError, refuse

if TYPE_CHECKING:
    from holdfast.adapters.adapt import Choice
    from holdfast.embeddings import EmbeddingSet

OF_TEXTS = {"role", "device", "data_root", "data_options"}
OF_HEADS = {"projection", "head", "head_options", "recipe"}
OF_ADAPTERS = {"direction"}
OF_NAMED_HEADS = {"projection"}


def check_options(arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse options that are wrong, or of no use beside the others, before anything is read.

    Args:
        arguments: Of the command.
        defaults: What they are where nothing is given.

    Raises:
        ConfigError: Two options do not go together, or one has a wrong value.
    """
    adapters, methods = arguments["adapter"], arguments["method"]
    refuse(bool(adapters or methods) and arguments["auto"], "--auto was given with --adapter or --method.",
           "--auto alone, or the names of what to compare")  # fmt: skip
    for name, named in (("adapter", adapters), ("method", methods)):
        without = bool(arguments[f"{name}_options"]) and not named
        refuse(without, f"--{name}-options without --{name}.", f"--{name} NAME with its options, or neither")
    changed = {name for name, default in defaults.items() if arguments[name] != default}
    if arguments["texts"] is None:
        _refuse_useless(
            changed & OF_TEXTS, "without --texts", "give --texts DATA and a model of text, or leave it out."
        )
    if not adapters and not methods:
        _refuse_useless(changed & OF_NAMED_HEADS, "without --method", "name a --method; otherwise both are tried.")
    if adapters and not methods:
        _refuse_useless(changed & OF_HEADS, "with adapters alone", "name a --method for a head, too, or leave it out.")
    if methods and not adapters:
        _refuse_useless(changed & OF_ADAPTERS, "with heads alone", "name an --adapter, too, or leave it out.")
    refuse(
        arguments["recipe"].augmentation != Augmentation(),
        "--recipe.augmentation, for heads over vectors.",
        "none: random changes of images do not go through vectors",
    )
    refuse(arguments["resamples"] < 1, f"--resamples {arguments['resamples']}.", "at least 1")


def _refuse_useless(changed: set[str], where: str, to_do: str) -> None:
    for name in sorted(changed):
        option = f"--{name.replace('_', '-')}"
        raise ConfigError(f"{option} was given {where}.", expected="it only where it changes something", to_do=to_do)


def choice_of(arguments: Mapping[str, Any]) -> Choice:
    """Return what to compare; what suits the dimensions is settled by `suited`.

    Raises:
        ConfigError: A name or an option of an adapter, a method or a classifier is unknown.
    """
    from holdfast.adapters.adapt import USUAL_HEADS, Choice
    from holdfast.experiment import Experiment
    from holdfast.models.encoder import EncoderSpec
    from holdfast.models.heads import build_head

    adapters, methods = arguments["adapter"], arguments["method"]
    if arguments["head"] is not None:
        build_head(arguments["head"], 2, 2, arguments["head_options"])
    named = {} if not methods else options_by_method(methods, arguments["method_options"])
    _check_methods(named)
    shared = {key: arguments[key] for key in ("head", "head_options", "recipe", "seed")}
    spec = EncoderSpec(projection=arguments["projection"])
    if not adapters and not methods:
        heads = {name: replace(one, **shared) for name, one in USUAL_HEADS.items()}
        return Choice(heads=heads, direction=arguments["direction"])
    heads = {
        name: Experiment(method=name, method_options=options, model=spec, **shared) for name, options in named.items()
    }
    options = {} if not adapters else options_by_method(adapters, arguments["adapter_options"], "adapter")
    return Choice(adapters, options, heads, arguments["direction"])


def _check_methods(named: dict[str, dict[str, Any]]) -> None:
    from holdfast.methods import build_method

    for name, options in named.items():
        refuse(
            build_method(name, options).sessions_only,
            f"--method {name}, which learns in sessions.",
            "a method for one upgrade, such as p2s; `holdfast methods` lists them",
        )


def suited(choice: Choice, arguments: Mapping[str, Any], old: EmbeddingSet, new: EmbeddingSet) -> Choice:
    """Return the choice for such embeddings: every adapter that can be fitted, where none was named.

    Raises:
        ConfigError: Something was named that cannot be fitted on them.
    """
    from holdfast.adapters.adapt import suitable_adapters
    from holdfast.cli.adapt import adapt

    fitting, methods = suitable_adapters(old, new), arguments["method"]
    refuse(
        bool(methods) and old.labels is None and new.labels is None,
        f"--method {' '.join(methods)} for items without labels.",
        "labels with either side, or no --method: adapters need none",
    )
    labelled = old.labels is not None or new.labels is not None
    for name in () if labelled else ("recipe", "head", "head_options", "unseen_share"):
        refuse(
            arguments[name] != signature(adapt).parameters[name].default,
            f"--{name.replace('_', '-')} for items without labels.",
            "it only where heads are trained, or classes kept from fitting: give labels with either side",
        )
    if not arguments["adapter"] and not methods:
        return replace(choice, adapters=fitting)
    others = [name for name in choice.adapters if name not in fitting]
    refuse(
        bool(others),
        f"--adapter {' '.join(others)} for models of {old.dim} and {new.dim} dimensions.",
        f"adapters that take different dimensions: {', '.join(fitting)}",
    )
    return choice
