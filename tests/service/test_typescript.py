"""The TypeScript client, built from the committed description of the API and run by node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from service.services import create, served
from service.test_keys import line

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs node and npm")
def test_the_typescript_client_asks_a_service(tmp_path: Path) -> None:
    client = tmp_path / "clients" / "typescript"
    ignored = shutil.ignore_patterns("node_modules", "dist", "api.d.ts")
    shutil.copytree(ROOT / "clients" / "typescript", client, ignore=ignored)
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "reference" / "openapi.json", tmp_path / "docs" / "reference")
    keys = tmp_path / "keys"
    keys.write_text(line("ops", "upgrade", "s3cret"))
    with served(create(f"memory:{tmp_path / 'live'}"), keys=keys) as service:
        service.headers["Authorization"] = "Bearer s3cret"
        service.until_it_writes()
        environment = {**os.environ, "LIMPET_URL": str(service.base_url), "LIMPET_KEY": "s3cret"}
        for words in (["install", "--no-package-lock", "--no-audit", "--no-fund"], ["run", "build"], ["test"]):
            done = subprocess.run(["npm", *words], cwd=client, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
