"""The machine in words."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import limpet


@cache
def machine(*packages: str, shared: bool = False) -> str:
    """Return processor, cores, accelerators, system and versions in one line, as a page about results states them."""
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
