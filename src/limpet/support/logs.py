"""Logging of the library: loggers below ``logging.getLogger("limpet")``, silent by default.

Epochs, upgrades of galleries, rankings and fits are logged at INFO, single batches and rows at DEBUG. Only the command
line prints::

    logging.basicConfig()
    logging.getLogger("limpet").setLevel(logging.INFO)
"""

from __future__ import annotations

import logging

logging.getLogger("limpet").addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """Return the logger of a part of the library, such as ``limpet.galleries``."""
    return logging.getLogger(f"limpet.{name}")
