"""Files to deploy the service with: their linters pass, and their options, ports and paths are those of the service."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from limpet.cli import main
from limpet.support.extras import EXTRAS

DEPLOY = Path(__file__).parents[1] / "deploy"
SCRIPTS = Path(sys.executable).parent


def checked(*words: object) -> str:
    """Run a program, and return what it says."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_image_is_built_of_extras_that_there_are() -> None:
    assert checked(SCRIPTS / "hadolint", DEPLOY / "Dockerfile") == ""
    text = (DEPLOY / "Dockerfile").read_text()
    named = re.findall(r"EXTRAS=([\w,-]+)", text)
    assert len(named) == 2 and {extra for names in named for extra in names.split(",")} <= set(EXTRAS)


def test_compose_is_valid() -> None:
    checked(SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze, of systemd")
def test_the_unit_is_valid_and_its_sandbox_closed(tmp_path: Path) -> None:
    unit = tmp_path / "limpet.service"
    unit.write_text((DEPLOY / "limpet.service").read_text().replace("/opt/limpet/bin/limpet", "/bin/true"))
    assert checked("systemd-analyze", "verify", unit) == ""
    checked("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)


def commands() -> dict[str, list[str]]:
    """Return the words after `limpet` in every file."""
    compose: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    pod: Any = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    unit = re.search(r"^ExecStart=\S+ (.*)$", (DEPLOY / "limpet.service").read_text(), re.MULTILINE)
    assert unit is not None
    return {
        "compose": compose["services"]["limpet"]["command"],
        "kubernetes": pod["spec"]["template"]["spec"]["containers"][0]["args"],
        "systemd": unit[1].split(),
    }


@pytest.mark.parametrize("name", ["compose", "kubernetes", "systemd"])
def test_the_service_takes_the_options(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = commands()[name]
    assert words[0] == "serve" and "8521" in " ".join(words) and "keys" in " ".join(words)
    words[1] = f"memory:{tmp_path / 'nothing'}"  # so that it stops when it has read its options
    assert main(words) == 2
    assert "no gallery" in capsys.readouterr().err.lower().replace("not a gallery", "no gallery")
