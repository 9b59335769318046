"""Lance acknowledges writes that failed (docs/lance_swallowed_writes.md); galleries in Lance tables do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import lance
import pytest

from crash import faults

DOCS = Path(__file__).parents[2] / "docs" / "lance_swallowed_writes"
GALLERY = f"""
import sys
sys.path.insert(0, {str(Path(faults.__file__).parents[1])!r})
from crash import faults
faults.preload()
import errno
from pathlib import Path
import numpy as np
from limpet.embeddings import EmbeddingSet
from limpet.errors import LimpetError
from limpet.galleries import Gallery
from limpet.geometry import Hypersphere

def embedded(first, last):
    vectors = np.random.default_rng(first).standard_normal((last - first, 8))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    ids = ["i%d" % number for number in range(first, last)]
    return EmbeddingSet(ids=ids, vectors=unit, fingerprint="declared:a", space=Hypersphere(8), role="document")

folder = Path(sys.argv[1])
gallery = Gallery.create(str(folder), fingerprint="declared:a", space=Hypersphere(8))
gallery.add(embedded(0, 50))
steps = {{
    "_deletions": lambda: gallery.delete(["i%d" % number for number in range(10)]),
    "data": lambda: gallery.add(embedded(50, 90)),
    "_indices": lambda: gallery.store.build_index("g1"),
}}
if sys.argv[2] == "_indices":
    gallery.add(embedded(100, 6_000))
items, failed = gallery.status().items, 1
while True:  # every write of such a file, one after the other
    faults.arm(folder, faults.Action.FAIL, pattern=f"write *{{sys.argv[2]}}/*", occurrence=failed, error=errno.ENOSPC)
    try:
        steps[sys.argv[2]]()
    except LimpetError as error:
        assert faults.struck() and error.intact, error
    else:
        break
    finally:
        faults.disarm()
    again = Gallery.open(str(folder))
    assert not again.store.damage() and again.status().items == items
    assert len(again.search(np.eye(8, dtype=np.float32)[:1], 5).hits[0]) == 5
    again.close()
    failed += 1
assert not faults.struck() and not Gallery.open(str(folder)).store.damage()
print(failed - 1)
"""


def printed(command: list[object]) -> str:
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def compiler() -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) for the library that lets writes fail")


def test_lance_acknowledges_a_deletion_that_nobody_can_read() -> None:
    """Where this fails, Lance reports the write: the document is to be brought up to date."""
    first, second = printed([DOCS / "reproduce.py"]).splitlines()
    assert first == f"pylance {lance.__version__}: delete() returned {{'num_deleted_rows': 50000}}, version 2"
    assert "Encountered corrupt file" in second


@pytest.mark.usefixtures("compiler")
def test_the_document_says_which_writes_are_swallowed() -> None:
    block = printed([DOCS / "every_write.py", "delete"]).partition("\nOf ")[0].partition("\n")[2]
    assert "swallowed; these fail: rows" in block and block in (DOCS / "every_write.txt").read_text()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("files", "least"), [("_deletions", 1), ("data", 2), ("_indices", 4)])
def test_a_gallery_refuses_it_and_stays_whole(files: str, least: int, tmp_path: Path) -> None:
    faults.compiled()
    assert int(printed(["-W", "ignore", "-c", GALLERY, tmp_path / "gallery", files])) >= least
