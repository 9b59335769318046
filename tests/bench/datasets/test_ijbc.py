"""IJB-C in small, in the layout of its usual release: lists, alignment and templates."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import minimize

from limpet.data.datasets import load_dataset
from limpet.errors import DataError
from limpet_bench.datasets.ijbc import TEMPLATE, FaceTruth, aligned, similarity

TEMPLATES = "1.jpg 1 69544\n2.jpg 1 69544\n3.jpg 4 7\n4.jpg 12 8\n"
PAIRS = "1 4 1\n4 12 0\n1 12 0\n"
GALLERY = "TEMPLATE_ID,SUBJECT_ID,FILENAME\n12,9,img/1.png\n1,1,img/2.png\n12,9,img/3.png\n"


def landmarks_line(name: str, points: np.ndarray, score: str = "0.999") -> str:
    return " ".join([name, *(f"{value:.3f}" for value in points.ravel()), score])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four faces that lie where the template has them, but for the third: it is shifted by (20, 10)."""
    folder = tmp_path / "IJBC"
    (folder / "loose_crop").mkdir(parents=True)
    (folder / "meta").mkdir()
    lines = []
    for number in range(1, 5):
        shift = np.array([20.0, 10.0]) if number == 3 else 0.0
        lines.append(landmarks_line(f"{number}.jpg", TEMPLATE + shift, f"0.9{number}"))
        Image.fromarray(scene()).save(folder / "loose_crop" / f"{number}.jpg", quality=100, subsampling=0)
    (folder / "meta" / "ijbc_face_tid_mid.txt").write_text(TEMPLATES)
    (folder / "meta" / "ijbc_name_5pts_score.txt").write_text("\n".join(lines) + "\n")
    (folder / "meta" / "ijbc_template_pair_label.txt").write_text(PAIRS)
    for part in ("gallery_G1", "gallery_G2", "probe_mixed"):
        (folder / "meta" / f"ijbc_1N_{part}.csv").write_text(GALLERY)
    return tmp_path


def scene() -> np.ndarray:
    """A smooth picture of 160 x 140 pixels, different everywhere."""
    y, x = np.mgrid[:140, :160]
    return np.stack([x + 0.5 * y, 220 - x, 60 + y], axis=-1).clip(0, 255).astype(np.uint8)


# --- alignment -------------------------------------------------------------------------------------------------------


def test_a_similarity_is_found_again() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        angle, scale, shift = rng.uniform(-np.pi, np.pi), rng.uniform(0.1, 9), rng.normal(size=2) * 50
        turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        points = rng.normal(size=(5, 2))
        found = similarity(points, points @ turn.T + shift)
        np.testing.assert_allclose(found, np.column_stack([turn, shift]), atol=1e-9)


def test_no_similarity_is_closer() -> None:
    """Against a search that knows nothing of the solution, on points that no similarity brings together."""
    rng = np.random.default_rng(1)
    points, targets = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))

    def distance(values: np.ndarray) -> float:
        a, b, x, y = values
        return float((((points @ np.array([[a, b], [-b, a]])) + [x, y] - targets) ** 2).sum())

    best = minimize(distance, np.zeros(4)).x
    found = similarity(points, targets)
    np.testing.assert_allclose(found, [[best[0], -best[1], best[2]], [best[1], best[0], best[3]]], atol=1e-5)


def test_landmarks_without_extent_are_refused() -> None:
    for points in (np.ones((5, 2)), np.full((5, 2), np.nan)):
        with pytest.raises(ValueError, match="all in one place, or no numbers"):
            similarity(points, TEMPLATE)


def test_a_face_in_place_is_cut_out_as_it_is() -> None:
    image = scene()
    for shift in ((0, 0), (20, 10), (-5, -9)):
        found = np.asarray(aligned(Image.fromarray(image), TEMPLATE + np.array(shift)))
        x, y = shift
        padded = np.pad(image, ((20, 20), (20, 20), (0, 0)))
        np.testing.assert_allclose(found.astype(int), padded[20 + y : 132 + y, 20 + x : 132 + x], atol=1)


def test_faces_of_any_pose_are_interpolated_from_the_centres_of_pixels() -> None:
    """A slow loop of the definition: every pixel of the result looked up where the inverse similarity puts it."""
    image = scene()
    angle, scale = 0.4, 1.3
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    landmarks = (TEMPLATE - 56) @ turn.T + [80, 70]
    found = np.asarray(aligned(Image.fromarray(image), landmarks)).astype(float)
    checked = 0
    for row in range(0, 112, 7):
        for column in range(0, 112, 7):
            x, y = turn @ (np.array([column, row]) - 56.0) + [80, 70]
            left, top = int(np.floor(x)), int(np.floor(y))
            if 0 <= left < 159 and 0 <= top < 139:
                right, below = x - left, y - top
                expected = (
                    image[top, left] * (1 - right) * (1 - below) + image[top, left + 1] * right * (1 - below)
                    + image[top + 1, left] * (1 - right) * below + image[top + 1, left + 1] * right * below
                )  # fmt: skip
                np.testing.assert_allclose(found[row, column], expected, atol=1.01)
                checked += 1
            elif not (-2 < x < 161 and -2 < y < 141):
                assert found[row, column].tolist() == [0, 0, 0]
    assert checked > 150


# --- the reader ------------------------------------------------------------------------------------------------------


def test_faces_are_aligned_and_carry_their_templates(root: Path) -> None:
    data = load_dataset("ijbc", root)
    assert data.train is None and not data.labelled and data.leave_one_out and data.query is data.gallery
    assert list(data.query.ids) == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"] and data.query.shape == (3, 112, 112)
    columns = data.query.columns
    assert columns["template"].tolist() == [1, 1, 4, 12] and columns["template"].dtype == np.int64
    assert columns["media"].tolist() == [69544, 69544, 7, 8] and columns["media"].dtype == np.int64
    np.testing.assert_array_equal(columns["detector_score"], np.array([0.91, 0.92, 0.93, 0.94], np.float32))
    assert columns["detector_score"].dtype == np.float32
    pixels = data.query.read(np.array([2, 0])).transpose(0, 2, 3, 1).astype(int)
    np.testing.assert_allclose(pixels[1], scene()[:112, :112], atol=6)
    np.testing.assert_allclose(pixels[0], scene()[10:122, 20:132], atol=6)
    assert "4 images in 3 templates" in data.description and "4 images (469,375)" in data.description


def test_another_size_shows_the_same_face(root: Path) -> None:
    large, small = (load_dataset("ijbc", root, image_size=size).query.read(np.array([0]))[0, 1] for size in (112, 56))
    np.testing.assert_allclose(small.astype(int), large[::2, ::2], atol=8)


def test_landmarks_change_the_digest(root: Path) -> None:
    before = load_dataset("ijbc", root).query.digest()
    path = root / "IJBC" / "meta" / "ijbc_name_5pts_score.txt"
    path.write_text(path.read_text().replace("38.295", "38.296", 1))
    assert load_dataset("ijbc", root).query.digest() != before


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("meta/ijbc_face_tid_mid.txt", r"no meta/ijbc_face_tid_mid\.txt \((.|\n)*NIST, on request"),
        ("meta/ijbc_name_5pts_score.txt", r"no meta/ijbc_name_5pts_score\.txt"),
        ("loose_crop", "no loose_crop/"),
        ("loose_crop/3.jpg", r"1 of 4 images are not in .*first: '3\.jpg'"),
    ],
)
def test_what_is_missing_first_is_named(root: Path, missing: str, message: str) -> None:
    (root / "IJBC" / missing).rename(root / "elsewhere")
    with pytest.raises(DataError, match=message):
        load_dataset("ijbc", root)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("ijbc_face_tid_mid.txt", lambda text: text.replace("2.jpg", "5.jpg"), "differ from line 2"),
        ("ijbc_face_tid_mid.txt", lambda text: text[: text.rindex("4.jpg")], "differ from line 4"),
        ("ijbc_face_tid_mid.txt", lambda text: text.replace("69544", "x"), "cannot be read"),
        ("ijbc_name_5pts_score.txt", lambda text: text.replace(" 0.91", ""), "cannot be read"),
        ("ijbc_name_5pts_score.txt", lambda text: text.replace("0.91", "high"), "cannot be read: .*high"),
        ("ijbc_name_5pts_score.txt", lambda text: "", "cannot be read: .*[Ee]mpty"),
    ],
)
def test_lists_that_do_not_fit_are_refused(root: Path, file: str, change: Callable[[str], str], message: str) -> None:
    path = root / "IJBC" / "meta" / file
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=message):
        load_dataset("ijbc", root)


def test_names_that_lead_out_of_the_folder_are_refused(root: Path) -> None:
    for file in ("ijbc_face_tid_mid.txt", "ijbc_name_5pts_score.txt"):
        path = root / "IJBC" / "meta" / file
        path.write_text(path.read_text().replace("2.jpg", "../2.jpg"))
    with pytest.raises(DataError, match=r"names the image '\.\./2\.jpg'"):
        load_dataset("ijbc", root)


def test_a_face_whose_landmarks_are_nowhere_is_named_when_read(root: Path) -> None:
    path = root / "IJBC" / "meta" / "ijbc_name_5pts_score.txt"
    lines = path.read_text().splitlines()
    lines[1] = landmarks_line("2.jpg", np.ones((5, 2)))
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"2\.jpg: landmarks that are all in one place"):
        load_dataset("ijbc", root).query.read(np.array([1]))


# --- the truth -------------------------------------------------------------------------------------------------------


def test_pairs_and_galleries_are_read(root: Path) -> None:
    for folder in (root / "IJBC", root / "IJBC" / "meta"):
        truth = FaceTruth.read(folder)
        assert truth.pairs is not None and truth.same is not None
        assert truth.pairs.tolist() == [[1, 4], [4, 12], [1, 12]] and truth.pairs.dtype == np.int64
        assert truth.same.tolist() == [True, False, False] and truth.same.dtype == np.bool_
        for part in (truth.gallery_1, truth.gallery_2, truth.probes):
            assert part is not None
            assert part.templates.tolist() == [1, 12] and part.subjects.tolist() == [1, 9]
            assert part.templates.dtype == part.subjects.dtype == np.int64


def test_absent_parts_are_none(root: Path) -> None:
    meta = root / "IJBC" / "meta"
    (meta / "ijbc_template_pair_label.txt").unlink()
    (meta / "ijbc_1N_gallery_G2.csv").unlink()
    truth = FaceTruth.read(meta)
    assert truth.pairs is None and truth.same is None and truth.gallery_2 is None
    assert truth.gallery_1 is not None and truth.probes is not None
    with pytest.raises(DataError, match=r"No lists of IJB-C(.|\n)*ijbc_template_pair_label\.txt"):
        FaceTruth.read(root)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("ijbc_template_pair_label.txt", "1 2 1\n1 3 2\n", "Line 2 of .* ends with 2"),
        ("ijbc_template_pair_label.txt", "1 2 1\n1 3 1\n", "All 2 pairs are of one kind"),
        ("ijbc_template_pair_label.txt", "1 2 0\n", "All 1 pairs are of one kind"),
        ("ijbc_template_pair_label.txt", "1 2 1\n1 3\n", "cannot be read"),
        ("ijbc_template_pair_label.txt", "1 2 1\n1 three 0\n", "cannot be read: .*three"),
        ("ijbc_1N_gallery_G1.csv", "TEMPLATE_ID,SUBJECT_ID\n5,1\n5,2\n", "template 5 to the people 1 and 2"),
        ("ijbc_1N_gallery_G1.csv", "TEMPLATE_ID,SUBJECT_ID\n5,1\n6,1\n", "two templates in gallery_1"),
        ("ijbc_1N_gallery_G2.csv", "TEMPLATE_ID,SUBJECT_ID\n", "has no templates"),
        ("ijbc_1N_probe_mixed.csv", "TEMPLATE,SUBJECT_ID\n5,1\n", "cannot be read: .*TEMPLATE_ID"),
    ],
)
def test_lists_that_cannot_be_right_are_refused(root: Path, file: str, content: str, message: str) -> None:
    (root / "IJBC" / "meta" / file).write_text(content)
    with pytest.raises(DataError, match=message):
        FaceTruth.read(root / "IJBC")


def test_probes_may_show_a_person_twice(root: Path) -> None:
    (root / "IJBC" / "meta" / "ijbc_1N_probe_mixed.csv").write_text("TEMPLATE_ID,SUBJECT_ID\n6,1\n5,1\n")
    probes = FaceTruth.read(root / "IJBC").probes
    assert probes is not None and probes.templates.tolist() == [5, 6] and probes.subjects.tolist() == [1, 1]
