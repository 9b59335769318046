"""The harness is a package of its own, which the benchmark imports, too."""

from __future__ import annotations

import sys
from pathlib import Path

if str(Path(__file__).parents[1]) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parents[1]))
