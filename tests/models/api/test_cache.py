"""Vectors that were paid for are not lost, nor given for another text or model."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from limpet.errors import DataError
from limpet.models.api.cache import VectorCache

ONE, TWO = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> VectorCache:
    return VectorCache(tmp_path / "deep" / "vectors.sqlite")


def test_a_vector_belongs_to_its_text_and_its_model(cache: VectorCache) -> None:
    cache.put("a", {"x": ONE, "y": TWO})
    found = VectorCache(cache.path).get("a", ["y", "x", "z"], 2)
    assert found.keys() == {"x", "y"} and found["x"].tolist() == [1, 2] and found["y"].tolist() == [3, 4]
    assert cache.get("b", ["x"], 2) == {} and cache.get("a", [], 2) == {}
    cache.put("a", {"x": TWO})
    assert cache.get("a", ["x"], 2)["x"].tolist() == [1, 2], "what is there stays"


def test_more_texts_than_one_question_holds(cache: VectorCache) -> None:
    texts = {str(number): np.full(2, number, np.float32) for number in range(1200)}
    cache.put("a", texts)
    assert {text: vector[0] for text, vector in cache.get("a", list(texts), 2).items()} == {
        text: float(text) for text in texts
    }


def test_only_its_owner_reads_it(cache: VectorCache) -> None:
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600


def test_models_that_were_met_latest_first(cache: VectorCache) -> None:
    for fingerprint in ("first", "second", "first"):
        cache.remember(fingerprint, "m@url")
    assert cache.fingerprints("m@url") == ["second", "first"] and cache.fingerprints("other") == []


def test_threads_and_processes_share_it(cache: VectorCache) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: cache.put("a", {str(number): ONE}), range(16)))
    assert len(cache.get("a", [str(number) for number in range(16)], 2)) == 16


WRITER = """
import sys
from pathlib import Path
import numpy as np
from limpet.models.api.cache import VectorCache
cache = VectorCache(Path(sys.argv[1]))
for number in range(10**6):
    cache.put("a", {f"{number} {part}": np.full(256, number, np.float32) for part in range(8)})
    print(number, flush=True)
"""


def test_nothing_acknowledged_is_lost_by_a_kill_nor_half_a_request_kept(cache: VectorCache) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(cache.path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 20:
                break
        writer.send_signal(signal.SIGKILL)
        told = int(([line, *writer.stdout.read().splitlines()])[-1])
    found = cache.get("a", [f"{number} {part}" for number in range(told + 2) for part in range(8)], 256)
    assert len(found) in (8 * (told + 1), 8 * (told + 2)), "whole requests, at most one that was not told yet"
    assert all(vector[0] == float(text.split()[0]) for text, vector in found.items())


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be seen as none" * 30])
def test_something_else_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be used: file is not a database"):
        VectorCache(path)
    assert path.read_bytes() == content
    with pytest.raises(DataError, match="cannot be used"):
        VectorCache(path / "below a file")


@pytest.mark.parametrize("wrong", [np.ones(3, np.float32), np.array([np.nan, 1], np.float32)])
def test_a_damaged_vector_is_not_given(cache: VectorCache, wrong: np.ndarray) -> None:
    cache.put("a", {"x": wrong, "y": ONE})
    with pytest.raises(DataError, match="a vector in it is damaged"):
        cache.get("a", ["x", "y"], 2)
