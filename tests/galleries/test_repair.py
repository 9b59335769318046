"""A gallery in Lance tables whose last commits the disk damaged goes back to the last one that is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from limpet.cli import main
from limpet.embeddings import EmbeddingSet
from limpet.errors import GalleryError
from limpet.galleries import Gallery
from limpet.galleries.doctor import doctor
from limpet.galleries.doctor.repair import repair
from limpet.geometry import Hypersphere

SPACE, OLD, NEW = Hypersphere(8), "declared:old", "declared:new"


def names(first: int, last: int) -> list[str]:
    return [f"i{number}" for number in range(first, last)]


def embedded(model: str, ids: list[str], seed: int = 0) -> EmbeddingSet:
    vectors = np.random.default_rng([seed, *model.encode(), *ids[0].encode()]).standard_normal((len(ids), 8))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return EmbeddingSet(ids=ids, vectors=unit, fingerprint=model, space=SPACE, role="document")  # type: ignore[arg-type]


class Source:
    fingerprint, space = NEW, SPACE

    def embed(self, ids: list[str]) -> EmbeddingSet:
        return embedded(NEW, list(ids))


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    """In mid-upgrade: 30 items, 10 of them with new vectors."""
    made = Gallery.create(str(tmp_path / "gallery"), fingerprint=OLD, space=SPACE, columns={"colour": "text"})
    made.add(embedded(OLD, names(0, 30)), metadata={"colour": ["red", None, "blue"] * 10})
    made.start(NEW, SPACE)
    made.swap(force="a test")
    made.backfill(Source(), budget=10, batch=10)
    return made


def contents(gallery: Gallery) -> dict[str, object]:
    items = gallery.store.scan(limit=1000)
    query = embedded(NEW, ["query"]).vectors
    hits = gallery.search(query, 20, fingerprint=NEW).hits[0]
    return {
        "items": list(
            zip(items.ids, items.versions.tolist(), items.generations, map(dict, items.metadata), strict=True)
        ),
        "held": {names: count for names, count in gallery.store.pointer().held.items() if count},
        "state": gallery.state,
        "hits": [(hit.id, round(hit.score, 5), hit.generation) for hit in hits],
    }


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HARM: list[Callable[[Path], object]] = [cut, Path.unlink]


@pytest.mark.parametrize("harm", HARM, ids=["torn", "gone"])
@pytest.mark.parametrize("what", ["_deletions/*.arrow", "data/*.lance", "_versions/*.manifest"])
def test_the_last_whole_commit_comes_back(
    gallery: Gallery, tmp_path: Path, what: str, harm: Callable[[Path], object]
) -> None:
    before, whole = contents(gallery), gallery.store.pointer().sequence
    there = set(tmp_path.rglob(what))
    gallery.upsert(embedded(OLD, ["i4", "new"], 1), metadata={"colour": ["green", "green"]})
    gallery.delete(["i3"])
    gallery.close()
    for path in set(tmp_path.rglob(what)) - there:
        harm(path)
    with Gallery.open(str(tmp_path / "gallery")) as again:
        assert any(one.kind == "damaged" for one in doctor(again).findings)
        repaired = repair(again)
        assert repaired is not None and (repaired.sequence, repaired.commits) == (whole, 2)
        assert set(repaired.lost_ids) == {"i4", "new"} and repaired.returned_ids == ("i3",)
        assert "i3" in str(repaired) and "2 later commits" in str(repaired)
        assert contents(again) == before
        assert doctor(again).healthy and repair(again) is None
        again.upsert(embedded(OLD, ["new"], 1), metadata={"colour": ["green"]})
        again.backfill(Source())
        again.finish()
        assert doctor(again).healthy and len(again) == 31


def test_vectors_that_only_a_backfill_wrote_are_told_apart(gallery: Gallery, tmp_path: Path) -> None:
    there = set(tmp_path.rglob("data/*.lance"))
    gallery.backfill(Source(), budget=5, batch=5)
    gallery.close()
    for path in set(tmp_path.rglob("data/*.lance")) - there:
        cut(path)
    with Gallery.open(str(tmp_path / "gallery")) as again:
        repaired = repair(again)
        assert repaired is not None and (repaired.lost, repaired.returned, repaired.unfilled) == (0, 0, 5)
        again.backfill(Source())
        assert again.check_vectors().lacking == 0


def test_where_nothing_is_whole_nothing_is_changed(gallery: Gallery, tmp_path: Path) -> None:
    gallery.gc(older_than=0.0)
    sequence = gallery.store.pointer().sequence
    gallery.close()
    for path in tmp_path.rglob("data/*.lance"):
        cut(path)
    with Gallery.open(str(tmp_path / "gallery")) as again:
        with pytest.raises(GalleryError, match="restore"):
            repair(again)
        assert again.store.pointer().sequence == sequence


def test_the_command_repairs_and_says_what_is_lost(
    gallery: Gallery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = set(tmp_path.rglob("_deletions/*"))
    gallery.delete(["i3"])
    gallery.close()
    for path in set(tmp_path.rglob("_deletions/*")) - there:
        cut(path)
    place = str(tmp_path / "gallery")
    assert main(["doctor", place]) == 1
    assert "--repair" in capsys.readouterr().err
    assert main(["doctor", place, "--repair"]) == 0
    assert "i3" in capsys.readouterr().err
    assert main(["doctor", place]) == 0
