"""What is kept beside is never the folder that one is in; and digests of code, whose bare form is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from limpet.errors import ConfigError
from limpet.support import source_code
from limpet.support.source_code import digest_of, put_beside


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


def test_a_digest_is_the_same_from_code_that_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "code.py"
    path.write_text('def one():  # counts\n    """It is one."""\n    return "1"\n')
    first = digest_of([path])
    (kept,) = (tmp_path / "kept").rglob("*.bare")
    monkeypatch.setattr(source_code, "bare_code", lambda source: pytest.fail("it was kept"))
    assert digest_of([path]) == first
    monkeypatch.undo()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    kept.write_text(kept.read_text().replace("one", "two"))
    assert digest_of([path]) == first, "a damaged file is not believed"
    path.write_text('def one():\n    return "2"\n')
    assert digest_of([path]) != first


def test_a_digest_needs_no_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "code.py"
    path.write_text("one = 1\n")
    expected = digest_of([path])
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    assert digest_of([path]) == expected
