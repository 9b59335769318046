"""Runs the examples of docstrings that need a service or a file, with what a test has in their place."""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Mapping
from typing import Any

SKIPPED = "  # doctest: +SKIP"


def run_example(part: Any, changed: Mapping[str, str], **names: Any) -> None:
    """Run the example of a class, of which other tests skip what needs more than is there.

    Args:
        part: The class.
        changed: What to run instead of words of the example, such as the URL of a server.
        **names: What the example takes for granted.
    """
    source = inspect.getdoc(part) or ""
    assert SKIPPED in source, part
    for printed, real in {SKIPPED: "", **changed}.items():
        assert printed in source, f"{part} does not say {printed}"
        source = source.replace(printed, real)
    known = {**vars(sys.modules[part.__module__]), **names}
    example = doctest.DocTestParser().get_doctest(source, known, part.__name__, None, None)
    assert doctest.DocTestRunner().run(example).failed == 0
