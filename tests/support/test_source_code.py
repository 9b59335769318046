"""What is kept beside is never the folder that one is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet.errors import ConfigError
from limpet.support.source_code import put_beside


def test_folders_are_put_beside_under_the_first_name_that_is_free(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "run").mkdir()
        assert put_beside(tmp_path / "run") == tmp_path / f"run.before-{number}"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("where", [".", ".."])
def test_the_folder_one_is_in_is_not_renamed(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run" / "inner")
    with pytest.raises(ConfigError, match="from outside"):
        put_beside(Path(where))
    assert (tmp_path / "run" / "inner").exists()
