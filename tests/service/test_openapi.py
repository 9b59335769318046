"""The description of the API is the one that was committed: a change of it is a change that clients notice."""

from __future__ import annotations

import json
from pathlib import Path

from limpet.service.app import openapi

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_the_description_is_the_committed_one() -> None:
    assert openapi() == json.loads(COMMITTED.read_text(encoding="utf-8")), "run `python tools/openapi.py`"


def test_every_operation_says_which_right_it_needs() -> None:
    rights = {
        f"{method} {path}": operation["security"][0]["HTTPBearer"]
        for path, methods in openapi()["paths"].items()
        for method, operation in methods.items()
    }
    needs = {"post /v1/items": "write", "delete /v1/items": "write", "post /v1/upgrade/{step}": "upgrade"}
    needs["delete /v1/jobs/{name}"] = "upgrade"
    assert rights == {operation: [needs.get(operation, "read")] for operation in rights} and len(rights) == 17
