"""The map between two frozen models that ``holdfast evaluate`` measures."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.evidence import Sides
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.adapters import Adapter

ADAPTER = "adapter"
"""What results call the map between two models."""
_NAMES = ("--old-model", "--new-model")


def adapter_between(arguments: dict[str, Any], old: Sides, new: Sides) -> Adapter:
    """Open the adapter, and refuse one that was fitted on other models."""
    from holdfast.adapters.storage import load_adapter

    adapter = load_adapter(arguments["adapter"])
    fitted, models = adapter.fitted, (old.gallery.fingerprint, new.gallery.fingerprint)
    sides = (fitted.target, fitted.source) if adapter.direction == "new_to_old" else (fitted.source, fitted.target)
    if sides == models:
        return adapter
    turned = sides == models[::-1]
    ways = [
        "exchange --old and --new: it was fitted the other way round" if turned else _renamed(sides, models),
        f"give the embeddings of its models, or fit another one: `{_fit_again(arguments)}`.",
    ]
    raise ConfigError(
        f"The adapter '{arguments['adapter']}' links the old model {sides[0]} and the new one {sides[1]}; "
        f"'{_path(arguments, 'old')}' is of {models[0]}, '{_path(arguments, 'new')}' of {models[1]}.",
        expected="an adapter that was fitted on these two models, in this order",
        to_do="; or ".join(way for way in ways if way is not None),
    )


def _renamed(wanted: tuple[str, str], found: tuple[str, str]) -> str | None:
    """Say how vectors without a model get the names that an adapter knows; None if one has a model.

    >>> _renamed(("declared:a", "declared:b"), ("declared:a", "declared:queries.npz"))
    "if these are vectors of 'b', say so: --new-model b"
    """
    prefix = "declared:"
    other = [(option, *pair) for option, *pair in zip(_NAMES, wanted, found, strict=True) if pair[0] != pair[1]]
    if not all(known.startswith(prefix) and given.startswith(prefix) for _, known, given in other):
        return None
    names = {option: known.removeprefix(prefix) for option, known, _ in other}
    models = " and ".join(f"'{name}'" for name in names.values())
    options = " ".join(f"{option} {shlex.quote(name)}" for option, name in names.items())
    return f"if these are vectors of {models}, say so: {options}"


def _fit_again(arguments: dict[str, Any]) -> str:
    given = {f"--{key.replace('_', '-')}": arguments[key] for key in ("old", "new", "old_model", "new_model")}
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    return shlex.join(["holdfast", "adapt", *words])


def cross_sides(adapter: Adapter, old: Sides, new: Sides) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Return the queries and the gallery that meet in the cross-test."""
    if adapter.direction == "new_to_old":
        return adapter.apply(new.query), old.gallery
    return new.query, adapter.apply(old.gallery)


def record_of(adapter: Adapter) -> dict[str, Any]:
    """Return what results say of an adapter."""
    return {
        "kind": adapter.kind,
        "direction": adapter.direction,
        "options": adapter.options,
        "pairs": adapter.fitted.pairs,
        "fingerprint": adapter.fingerprint,
    }


def _path(arguments: dict[str, Any], model: str) -> Path:
    """Return where a model's embeddings are."""
    found: Path = arguments[model] or arguments[f"{model}_gallery"]
    return found
