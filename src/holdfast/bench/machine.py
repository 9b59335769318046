"""The machine in words."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Return processor, accelerators and versions, as a page about results states them."""
    import torch

    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cards = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    parts = [f"{cores} cores of {cpu}", *cards, f"Python {platform.python_version()}, torch {torch.__version__}"]
    return "; ".join(parts)
