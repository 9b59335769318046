"""What the library tells while it works: loggers below ``logging.getLogger("limpet")``, silent unless asked.

Epochs, upgrades of galleries, rankings and fits are told at INFO, single batches and rows at DEBUG. Nothing is printed
outside of the command line::

    logging.basicConfig()
    logging.getLogger("limpet").setLevel(logging.INFO)
"""

from __future__ import annotations

import logging

logging.getLogger("limpet").addHandler(logging.NullHandler())


def logger(name: str) -> logging.Logger:
    """Return the logger of a part of the library, such as ``limpet.galleries``."""
    return logging.getLogger(f"limpet.{name}")
