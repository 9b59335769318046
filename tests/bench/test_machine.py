import platform

import numpy as np
import scipy
import torch

import limpet
from limpet_bench.machine import machine


def test_the_versions_come_last_with_those_asked_for() -> None:
    versions = f"torch {torch.__version__}, numpy {np.__version__}, limpet {limpet.__version__}"
    assert machine().endswith(f" cores, {platform.system()}, Python {platform.python_version()}, {versions}")
    assert machine("scipy") == f"{machine()}, scipy {scipy.__version__}"


def test_only_a_shared_machine_is_said_to_be_one() -> None:
    assert " cores (shared), " in machine(shared=True)
    assert machine(shared=True).replace(" (shared)", "") == machine()
