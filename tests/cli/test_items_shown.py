"""Texts and metadata beside ids, wherever a person is to judge what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from limpet.cli import main

ITEMS = 60


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """old.npz and new.npz of the same products with prices, without labels; products.csv says what they are."""
    root, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    ids = np.array([f"p{row}" for row in range(ITEMS)])
    base, price = rng.normal(size=(ITEMS, 8)), rng.uniform(1000, 9000, ITEMS)
    for name, noise in (("old", 1.0), ("new", 0.5)):
        vectors = (base + noise * rng.normal(size=base.shape)).astype(np.float32)
        np.savez(root / f"{name}.npz", ids=ids, vectors=vectors, price=price)
    rows = [f"{name},<b>shoe</b> number {row},{row % 7}" for row, name in enumerate(ids)]
    (root / "products.csv").write_text("\n".join(["id,text,shelf", *rows]))
    return root


def test_examples_of_a_report_show_what_the_items_are(shop: Path, tmp_path: Path) -> None:
    words = ["evaluate", "--old", shop / "old.npz", "--new", shop / "new.npz", "--resamples", "50"]
    assert main([*map(str, [*words, "--texts", shop / "products.csv", "--out", tmp_path / "told"])]) == 3
    page = (tmp_path / "told" / "report.html").read_text()
    assert "&lt;b&gt;shoe&lt;/b&gt; number" in page and "<b>shoe" not in page
    assert "<small>shelf</small> " in page and "<small>price</small> " in page
    assert main([*map(str, [*words, "--out", tmp_path / "bare"])]) == 3
    bare = (tmp_path / "bare" / "report.html").read_text()
    assert "<small>price</small> " in bare and "shoe" not in bare


def test_a_file_without_ids_is_refused_before_anything_is_computed(shop: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "bad.csv").write_text("name,text\na,b\n")
    words = ["evaluate", "--old", shop / "old.npz", "--new", shop / "new.npz", "--texts", tmp_path / "bad.csv"]
    assert main([*map(str, [*words, "--out", tmp_path / "out"])]) == 2
    assert "name the column of ids 'id'" in capsys.readouterr().err and not (tmp_path / "out").exists()
