"""A one-line description of the machine and its software."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import limpet


@cache
def machine(*packages: str, shared: bool = False) -> str:
    """Return processor, cores, accelerators, operating system and versions in one line, for pages of results.

    Args:
        packages: Further installed packages whose versions are added.
        shared: Whether to note that other work runs on the same cores.
    """
    import numpy as np
    import torch

    from limpet.evaluation import available_cores

    cards = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    known = {"Python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    versions = {**known, "limpet": limpet.__version__, **{name: version(name) for name in packages}}
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    parts = [
        next(names, platform.processor() or platform.machine()),
        f"{available_cores()} cores{' (shared)' if shared else ''}",
        *cards,
        platform.system(),
    ]
    return ", ".join([*parts, *(f"{name} {number}" for name, number in versions.items())])
