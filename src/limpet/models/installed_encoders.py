"""Encoders that installed packages offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from limpet.errors import ConfigError, LimpetError, reason
from limpet.models.module_origin import ModuleOrigin
from limpet.registry import Registry

ENCODERS: Registry[Callable[[], Any]] = Registry(
    "encoder",
    "encoders",
    {},
    fits=callable,
    expected="a function without arguments that returns limpet.Release.from_module(...)",
)
"""Encoders that installed packages offer under the entry-point group ``limpet.encoders``."""


def made_by(name: str) -> Any:
    """Call the function of an installed encoder; it should return a release of a module.

    Raises:
        ConfigError: The encoder is unknown, or its function raises.
    """
    factory = ENCODERS[name]
    try:
        return factory()
    except LimpetError:
        raise
    except Exception as error:  # a foreign function may raise anything
        raise ConfigError(
            f"The installed encoder '{name}' raised {type(error).__name__}: {reason(error)}.",
            to_do="repair or uninstall its package; everything else works without it.",
        ) from error


def rebuild(origin: ModuleOrigin) -> nn.Module:
    """Rebuild the encoder of an installed package that a record names.

    Raises:
        ConfigError: No such package is installed, or its function raises or returns something else.
    """
    made = made_by(origin.place)
    encoder = getattr(made, "encoder", None)
    if not isinstance(encoder, nn.Module):
        raise ConfigError(
            f"The installed encoder '{origin.place}' returned a {type(made).__name__}.",
            expected="a release of a module",
            to_do="repair or uninstall its package; everything else works without it.",
        )
    return encoder
