"""The machine in words, for every committed measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import torch

import holdfast


def describe() -> str:
    """Return processor, cores, system and versions in one line."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line.split(":", 1)[1].strip() for line in information.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{model}, {cores} cores (shared), {platform.system()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}, holdfast {holdfast.__version__}"
    )
