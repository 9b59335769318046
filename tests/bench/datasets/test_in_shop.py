"""In-shop Clothes Retrieval in small, in its official layouts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from limpet.data.datasets import load_dataset
from limpet.errors import DataError

ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "train"),
    ("img/WOMEN/Blouses_Shirts/id_00000001/02_1_front.jpg", "id_00000001", "query"),
    ("img/WOMEN/Blouses_Shirts/id_00000001/02_2_side.jpg", "id_00000001", "gallery"),
    ("img/WOMEN/Skirts/id_00000003/02_1_front.jpg", "id_00000003", "gallery"),
    ("img/WOMEN/Skirts/id_00000003/02_3_back.jpg", "id_00000003", "query"),
]
HEADER = f"{len(ROWS)}\nimage_name item_id evaluation_status\n"


def listing(rows: list[tuple[str, str, str]] = ROWS, header: str = HEADER) -> str:
    return header + "".join(f"{file:60s} {item} {part}\n" for file, item, part in rows)


@pytest.fixture
def build(tmp_path: Path, paint: Callable[..., None]) -> Callable[..., Path]:
    def make(images: str = "Img/img", lists: str = "Eval") -> Path:
        root = tmp_path / "in-shop"
        for number, (file, _, _) in enumerate(ROWS):
            paint(root / images / file.removeprefix("img/"), 30 * number)
        (root / lists).mkdir(exist_ok=True)
        (root / lists / "list_eval_partition.txt").write_text(listing())
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("images", "lists"),
    [("Img/img", "Eval"), ("img", "Eval"), ("Img/img", "Anno"), ("img", "."), ("Img/img_highres", "Eval")],
)
def test_the_partition_decides(build: Callable[..., Path], brightness, images: str, lists: str) -> None:
    data = load_dataset("in-shop", build(images, lists), image_size=8)
    assert data.train is not None and not data.leave_one_out and data.train.shape == (3, 8, 8)
    assert data.train.class_names == ("id_00000002", "id_00000080") and data.train.labels.tolist() == [0, 0, 1]
    assert data.query.class_names == data.gallery.class_names == ("id_00000001", "id_00000003")
    assert data.query.labels.tolist() == data.gallery.labels.tolist() == [0, 1]
    assert list(data.query.ids) == [ROWS[3][0], ROWS[6][0]]
    assert [brightness(part) for part in (data.train, data.query, data.gallery)] == [[0, 30, 60], [90, 180], [120, 150]]
    assert "2 items to search (3,985)" in data.description


def test_missing_parts_are_named(build: Callable[..., Path]) -> None:
    root = build()
    (root / "in-shop" / "Img").rename(root / "in-shop" / "pictures")
    with pytest.raises(DataError, match=r"no Img/img/ or img/ or .*(.|\n)*InShopRetrieval"):
        load_dataset("in-shop", root)
    (root / "in-shop" / "Eval" / "list_eval_partition.txt").unlink()
    with pytest.raises(DataError, match=r"no Eval/list_eval_partition.txt or Anno/"):
        load_dataset("in-shop", root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"begins with ''(.|\n)*image_name item_id"),
        (listing(header="image_name item_id evaluation_status\n"), "begins with 'image_name item_id"),
        (listing(header="7\nfile item part\n"), "begins with '7 / file item part'"),
        (listing(header="9\nimage_name item_id evaluation_status\n"), "announces 9 images and lists 7"),
        (listing() + "img/x.jpg id_1\n", r"Line 10 of .* is 'img/x.jpg id_1'"),
        (listing([*ROWS[:-1], (*ROWS[-1][:2], "val")]), r"02_3_back.jpg into 'val'(.|\n)*train, query, gallery"),
        (listing([*ROWS[:-1], ("img/x.jpg", "id_1", "query")]), r"1 of 2 images are not in .*'x.jpg'"),
    ],
)
def test_a_list_that_cannot_be_right_is_refused(build: Callable[..., Path], text: str, message: str) -> None:
    root = build()
    (root / "in-shop" / "Eval" / "list_eval_partition.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        load_dataset("in-shop", root)
