"""Write the OpenAPI description of the service to docs/reference/openapi.json."""

from __future__ import annotations

import json
from pathlib import Path

from limpet.service.app import openapi

if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "reference" / "openapi.json"
    path.write_text(json.dumps(openapi(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
