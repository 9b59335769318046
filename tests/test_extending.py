"""The pages on extending limpet run as printed: each is a package, installed, with tests of its own that pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.cli import main
from limpet.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "extending" / f"{name}.md" for name in ("method", "adapter", "dataset", "protocol", "store")]
SMALL = "--data-options.training_classes 8 --data-options.validation_classes 2 --data-options.evaluation_classes 4"
QUICK = "--recipe.epochs 1 --dim 8 --backbone-options.filters 4"


def install(page: Path, folder: Path) -> None:
    """Write the files of a page, and what an installer adds."""
    folder.mkdir()
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M):
        if language in ("python", "toml"):
            name = block.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(block, encoding="utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(about)
    entries = [
        f"[{group}]\n" + "\n".join(f"{name} = {place}" for name, place in places.items())
        for group, places in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n\n".join(entries))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_installer_finds_the_module_beside_its_test(page: Path) -> None:
    """Two modules in a folder, of which none is named, are refused by setuptools."""
    (block,) = re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    package = tomllib.loads(block)
    places = [place for group in package["project"]["entry-points"].values() for place in group.values()]
    assert package["tool"]["setuptools"]["py-modules"] == [place.partition(":")[0] for place in places]


@pytest.mark.slow
def test_the_packages_of_all_pages_pass_their_own_tests(tmp_path: Path) -> None:
    for page in PAGES:
        install(page, tmp_path / page.stem)
    paths = [*(str(tmp_path / page.stem) for page in PAGES), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The method of the page, installed; forgotten afterwards."""
    install(PAGES[0], tmp_path / "package")
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    yield
    del METHODS["steady"]
    sys.modules.pop("steady", None)


def test_the_commands_of_the_method_page_run(steady: None, capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"^limpet (.*)$", PAGES[0].read_text(encoding="utf-8"), flags=re.M)
    assert [line.split()[0] for line in lines] == ["methods", "methods", "train", "embed"]
    for line in lines:
        more = f"{SMALL} {QUICK}" if line.startswith("train") else SMALL if "glyphs" in line else ""
        assert main([*line.split(), *more.split()]) == 0
    assert "steady keeps all" in capsys.readouterr().err
    both = f"{lines[2]} {SMALL} {QUICK} --recipe.old_view same --out runs/same"
    assert main(both.split()) == 0
