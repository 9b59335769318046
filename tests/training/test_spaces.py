"""Every method on every space: it trains, or is refused before any data is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.image_set import ImageSet
from limpet.embeddings import storage
from limpet.errors import ConfigError, DataError, ReleaseError, SpaceMismatchError
from limpet.evaluation.retrieval import rank_metrics
from limpet.geometry import SPACES, Hypersphere, Lorentz
from limpet.methods import METHODS
from limpet.models.lifting import LearnedLorentz, lift_embeddings, lifted
from limpet.models.release import Release, load_release, save_release
from limpet.models.specs import EncoderSpec
from limpet.training.encode import embed_images
from limpet.training.experiment import Experiment, Geometry, Recipe
from limpet.training.spaces import common_space, settle
from limpet.training.train import train_release

CLASSES, STEPS = 4, 8
LORENTZ, SPHERE = Geometry("lorentz"), Geometry("hypersphere")


BASE = Experiment(
    model=EncoderSpec(dim=8, channels=1, image_size=16, projection="linear-bn", backbone_options={"filters": 8}),
    recipe=Recipe(epochs=2, batch_size=8, learning_rate=0.05, accelerator="cpu"),  # four steps an epoch
)


class InterruptionError(Exception):
    """Stops a run, as a user would."""


@pytest.fixture(scope="module")
def olds(images: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Release]:
    """An old model on every space."""
    return {
        name: train_release(images, replace(BASE, geometry=Geometry(name)), tmp_path_factory.mktemp(name))
        for name in SPACES
    }


def test_the_table_of_methods_and_spaces(images, olds, tmp_path) -> None:
    """Every cell trains eight steps with finite losses, or is refused before the images are looked at."""
    rows = []
    upgrades = {name: method for name, method in METHODS.items() if not method.sessions_only}
    for name, method in upgrades.items():
        cells = []
        for space, old in olds.items():
            experiment = replace(BASE, method=name, geometry=Geometry(space))
            losses: list[float] = []
            if space not in method.spaces:
                with pytest.raises(ConfigError, match=r"does not know the space|know the space") as error:
                    settle(experiment.geometry, method(), dim=8, old=old)
                assert method.space_reason in str(error.value) and min(method.spaces) in error.value.expected
                cells.append("refused")
                continue
            release = train_release(
                images, experiment, tmp_path / name / space, old=old, old_images=images,
                progress=lambda event: losses.append(float(event["loss"])),  # noqa: B023 - called within this turn
            )  # fmt: skip
            assert len(losses) == STEPS and np.isfinite(losses).all() and release.space == SPACES[space](8)
            cells.append(f"{losses[0]:.2f} -> {losses[-1]:.2f}")
        rows.append(f"{name:12s}" + "".join(f"{cell:>16s}" for cell in cells))
    print(  # noqa: T201 - the table is what a reader of this test wants
        "\n".join([f"{'':12s}" + "".join(f"{space:>16s}" for space in olds), *rows])
    )
    refused = [line for line in rows if "refused" in line]
    assert len(refused) == sum(method.spaces != set(SPACES) for method in upgrades.values())


def settled(method: str, **values: Any) -> Any:
    options = {
        "dim": 8,
        "zeta": values.pop("zeta", None),
        "head": values.pop("head", None),
        "old": values.pop("old", None),
    }
    return settle(Geometry(**values), METHODS[method](), **options)


def test_what_is_left_open(olds) -> None:
    first = settled("independent")
    assert (first.space, first.zeta, first.head, first.projection) == (Hypersphere(8), None, "softmax", "linear")
    hyperbolic = settled("independent", space="lorentz", curvature=0.5)
    assert (hyperbolic.space, hyperbolic.zeta, hyperbolic.head) == (Lorentz(8, 0.5), 1.0, "lorentz")
    assert hyperbolic.projection == "linear-bn"
    new = settled("hbct", old=olds["lorentz"])
    assert (new.space, new.zeta, new.old) == (Lorentz(8), 1.2, olds["lorentz"])
    assert settled("hbct", old=olds["lorentz"], zeta=1.7).zeta == 1.7
    assert settled("hbct").space == Lorentz(8), "the only space it knows"
    assert settled("independent", old=olds["lorentz"]).zeta == 1.2, "the same recipe without alignment"
    assert settled("bct", old=olds["hypersphere"]).space == Hypersphere(8)


def test_a_chain_of_releases_raises_zeta_by_two_tenths_a_generation(images, olds, tmp_path) -> None:
    chain = [olds["lorentz"]]
    for generation in range(2):
        experiment = replace(BASE, method="hbct", recipe=replace(BASE.recipe, epochs=1))
        chain.append(train_release(images, experiment, tmp_path / str(generation), old=chain[-1]))
    assert [release.record.lift for release in chain] == [{"zeta": 1.0}, {"zeta": 1.2}, {"zeta": 1.4}]
    assert [release.encoder.spec.zeta for release in chain] == [1.0, 1.2, 1.4]
    assert len({release.fingerprint for release in chain}) == 3 and len({release.space for release in chain}) == 1
    lengths = [embed_images(release, images, form="features").vectors for release in chain]
    for zeta, features in zip((1.0, 1.2, 1.4), lengths, strict=True):
        assert np.linalg.norm(features, axis=1).max() <= zeta * (1 + 1e-5)
    # points of different zeta are comparable
    found = rank_metrics(embed_images(chain[2], images), embed_images(chain[0], images), ("map",))
    assert np.isfinite(found["map"]).all()


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no such space": ({"method": "independent", "space": "lorenz"}, "Did you mean 'lorentz'", ""),
    "a space of stored vectors": (
        {"method": "independent", "space": "euclidean"}, "No model is trained", "--space hypersphere"
    ),
    "a curvature on the sphere": ({"method": "independent", "curvature": 1.0}, "on the hypersphere", "--space lorentz"),
    "a negative curvature": (
        {"method": "independent", "space": "lorentz", "curvature": -1.0}, "curvature=-1", "above 0"
    ),
    "zeta on the sphere": ({"method": "bct", "old": "hypersphere", "zeta": 1.0}, "clipping length", "directions"),
    "zeta too large": ({"method": "independent", "space": "lorentz", "zeta": 10.0}, "ζ = 10", "noise"),
    "a head of the sphere": (
        {"method": "independent", "space": "lorentz", "head": "softmax"}, "'softmax'", "lorentz"
    ),
    "a head of lorentz": ({"method": "independent", "head": "lorentz"}, "'lorentz'", "softmax"),
    "a learned curvature on the sphere": ({"method": "independent", "learn_curvature": True}, "learned", "lorentz"),
    "hbct over the sphere": (
        {"method": "hbct", "old": "hypersphere"}, "on which the old model embeds", "--lift-old 1.0"
    ),
    "lorentz over the sphere": (
        {"method": "bct", "old": "hypersphere", "space": "lorentz"}, "hypersphere", "--lift-old"
    ),
    "the sphere over lorentz": (
        {"method": "bct", "old": "lorentz", "space": "hypersphere"}, "Lorentz", "leave out --space"
    ),
    "another curvature": ({"method": "hbct", "old": "lorentz", "curvature": 0.5}, "curvature 0.5", "--curvature"),
    "a method of the sphere over lorentz": ({"method": "ndpp", "old": "lorentz"}, "directions", "hypersphere"),
    "p2s while the curvature moves": (
        {"method": "p2s", "old": "lorentz", "learn_curvature": True}, "keeps points", "mixbct, hbct"
    ),
    "lifted where it is already": ({"method": "hbct", "old": "lorentz", "lift_old": 1.0}, "already", "no --lift-old"),
    "lifted for a method of the sphere": (
        {"method": "ndpp", "old": "hypersphere", "lift_old": 1.0}, "onto which old embeddings", "no --lift-old"
    ),
    "a curvature of the sphere lifted again": (
        {"method": "hbct", "old": "hypersphere", "space": "lorentz", "relift_old": True}, "hypersphere", "two Lorentz"
    ),
    "another curvature, not lifted": ({"method": "hbct", "old": "lorentz", "curvature": 0.5}, "0.5", "--relift-old"),
    "a tiny curvature": ({"method": "independent", "space": "lorentz", "curvature": 1e-45}, "1e-45", "0.000001"),
    "a curvature that may grow": (
        {"method": "independent", "space": "lorentz", "learn_curvature": True, "zeta": 1.4}, "may grow to 10", "--zeta"
    ),
    "lifted too far": ({"method": "hbct", "old": "hypersphere", "lift_old": 5.0}, "ζ = 5", "noise"),
    "lifted onto the sphere": (
        {"method": "bct", "old": "hypersphere", "lift_old": 1.0, "space": "hypersphere"}, "lifted", "--space lorentz"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together_is_refused_with_a_way_out(case: str, olds) -> None:
    values, given, way_out = REFUSED[case]
    values = {**values, **({"old": olds[values["old"]]} if "old" in values else {})}
    with pytest.raises((ConfigError, SpaceMismatchError)) as error:
        settled(**values)
    assert given in str(error.value) and way_out in str(error.value)


def test_methods_that_share_no_space_are_refused() -> None:
    assert common_space([METHODS["bct"](), METHODS["hoc"]()]) == "hypersphere"
    assert common_space([METHODS["bct"](), METHODS["hbct"]()]) == "lorentz"
    with pytest.raises(ConfigError, match="share no space"):
        common_space([METHODS["advbct"](), METHODS["hbct"]()])


def test_an_old_model_of_the_sphere_is_searched_once_it_is_lifted(images, olds, tmp_path) -> None:
    old = olds["hypersphere"]
    experiment = replace(BASE, method="hbct", geometry=Geometry(lift_old=0.8))
    new = train_release(images, experiment, tmp_path / "new", old=old)
    laid = load_release(tmp_path / "new" / "old-lifted")
    assert new.record.compatible_with == laid.fingerprint != old.fingerprint
    assert laid.record.lifted_from == old.fingerprint and laid.space == new.space == Lorentz(8)
    assert (laid.encoder.spec.zeta, new.encoder.spec.zeta) == (0.8, 1.0)

    # rows of the old gallery, and items embedded by the lifted model, are the same points, all at one distance
    gallery, again = embed_images(old, images), embed_images(laid, images)
    moved = lift_embeddings(gallery, laid)
    np.testing.assert_allclose(moved.vectors, again.vectors, atol=1e-6)
    assert moved.fingerprint == again.fingerprint and moved.space == Lorentz(8)
    np.testing.assert_allclose(np.arcsinh(np.linalg.norm(moved.vectors, axis=1)), 0.8, rtol=1e-5)
    np.testing.assert_allclose(moved.columns["uncertainty"], 1 - np.tanh(0.8), rtol=1e-5)
    before, after = rank_metrics(gallery, gallery, ("map",)), rank_metrics(moved, moved, ("map",))
    np.testing.assert_allclose(before["map"], after["map"])
    assert np.isfinite(rank_metrics(embed_images(new, images), moved, ("map",))["map"]).all()
    assert train_release(images, experiment, tmp_path / "new", old=old).fingerprint == new.fingerprint, "finished"
    with pytest.raises(ReleaseError, match="lifted"):
        lift_embeddings(embed_images(new, images), laid)
    with pytest.raises(SpaceMismatchError):
        lifted(olds["lorentz"], Lorentz(8), 1.0)


def test_an_old_model_of_another_curvature_is_searched_once_it_is_lifted_again(images, olds, tmp_path) -> None:
    old = olds["lorentz"]
    experiment = replace(BASE, method="hbct", geometry=Geometry(curvature=0.5, relift_old=True))
    new = train_release(images, experiment, tmp_path / "new", old=old)
    laid = load_release(tmp_path / "new" / "old-lifted")
    assert new.space == laid.space == Lorentz(8, 0.5) and old.space == Lorentz(8)
    assert new.record.compatible_with == laid.fingerprint and (laid.encoder.spec.zeta, new.encoder.spec.zeta) == (
        1,
        1.2,
    )

    # points of curvature=-1 and of -0.5 have the same tangent vectors: space components are sinh(√K r) / √K along them
    gallery, moved = embed_images(old, images), lift_embeddings(embed_images(old, images), laid)
    lengths = np.arcsinh(np.linalg.norm(gallery.vectors, axis=1))
    expected = np.sinh(np.sqrt(0.5) * lengths) / np.sqrt(0.5)
    np.testing.assert_allclose(np.linalg.norm(moved.vectors, axis=1), expected, rtol=1e-5)
    assert np.isfinite(rank_metrics(embed_images(new, images), moved, ("map",))["map"]).all()
    same = settled("hbct", old=old, curvature=1.0, relift_old=True)
    assert same.old is old, "nothing to lift"


def test_a_learned_curvature_is_settled_in_the_release_and_inherited(images, olds, tmp_path) -> None:
    start = 0.7
    experiment = replace(BASE, geometry=Geometry("lorentz", curvature=start, learn_curvature=True))
    first = train_release(images, experiment, tmp_path / "first")
    assert first.record.curvature_start == start and first.space.curvature != start
    assert start / 10 <= first.space.curvature <= 10 * start and isinstance(first.space, Lorentz)
    assert load_release(tmp_path / "first").space == first.space
    assert train_release(images, experiment, tmp_path / "first").fingerprint == first.fingerprint
    with pytest.raises(ConfigError, match="curvature_start"):
        train_release(images, replace(BASE, geometry=Geometry("lorentz", curvature=start)), tmp_path / "first")

    new = train_release(images, replace(BASE, method="hbct"), tmp_path / "new", old=first)
    assert new.space == first.space and new.record.curvature_start is None
    assert new.record.compatible_with == first.fingerprint


def test_a_curvature_learned_over_a_predecessor_lifts_its_gallery_again(images, olds, tmp_path) -> None:
    old = olds["lorentz"]
    experiment = replace(BASE, method="hbct", geometry=Geometry(learn_curvature=True))
    new = train_release(images, experiment, tmp_path / "new", old=old)
    again = load_release(tmp_path / "new" / "old-lifted")
    assert new.space == again.space != old.space
    assert new.record.compatible_with == again.fingerprint and again.record.lifted_from == old.fingerprint
    moved = lift_embeddings(embed_images(old, images), again)
    np.testing.assert_allclose(moved.vectors, embed_images(again, images).vectors, atol=1e-5)
    with pytest.raises(SpaceMismatchError):
        rank_metrics(embed_images(new, images), embed_images(old, images), ("map",))
    assert np.isfinite(rank_metrics(embed_images(new, images), moved, ("map",))["map"]).all()
    assert train_release(images, experiment, tmp_path / "new", old=old).fingerprint == new.fingerprint, "finished"


def test_a_finished_or_unfinished_run_of_another_start_or_predecessor_is_refused(
    every_epoch_kept, images, olds, tmp_path
) -> None:
    def learning(start: float) -> Experiment:
        return replace(BASE, geometry=Geometry("lorentz", curvature=start, learn_curvature=True))

    train_release(images, learning(0.5), tmp_path / "done")
    with pytest.raises(ConfigError, match="curvature_start"):
        train_release(images, learning(0.6), tmp_path / "done")

    def stop(event: dict[str, Any]) -> None:
        if event["epoch"] == 1:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        train_release(images, learning(0.5), tmp_path / "broken", progress=stop)
    with pytest.raises(ConfigError, match="another run: curvature_start differ"):
        train_release(images, learning(0.6), tmp_path / "broken")
    other = train_release(images, replace(BASE, geometry=LORENTZ, seed=5), tmp_path / "other")
    experiment = replace(BASE, method="hbct", geometry=Geometry(learn_curvature=True))
    train_release(images, experiment, tmp_path / "new", old=olds["lorentz"])
    with pytest.raises(ConfigError, match="data differ"):
        train_release(images, experiment, tmp_path / "new", old=other)


def test_models_right_at_the_largest_radius_embed(images, olds, tmp_path) -> None:
    for curvature, zeta in ((1.0, 4.0), (16.0, 1.0)):
        model = BASE.model.model_copy(update={"zeta": zeta})
        experiment = replace(BASE, model=model, geometry=Geometry("lorentz", curvature=curvature))
        release = train_release(images, experiment, tmp_path / str(zeta))
        for form in ("points", "features"):
            embed_images(release, images, form=form)  # type: ignore[arg-type]
    laid = lifted(olds["hypersphere"], Lorentz(8), 4.0)
    moved = lift_embeddings(embed_images(olds["hypersphere"], images), laid)
    rows, asked = moved.space.index_form(moved.vectors, "gallery"), moved.space.index_form(moved.vectors, "query")
    assert np.isfinite(rows).all() and np.isfinite(asked).all() and laid.classes == olds["hypersphere"].classes
    saved = load_release(save_release(laid, tmp_path / "laid"))
    assert saved.classes == laid.classes and saved.head is None
    with pytest.raises(DataError, match="no farther"):
        moved.replace(vectors=2 * moved.vectors)


def test_an_interrupted_run_with_a_learned_curvature_ends_as_if_it_had_not_been(
    every_epoch_kept, images, tmp_path
) -> None:
    experiment = replace(BASE, geometry=Geometry("lorentz", learn_curvature=True))
    whole = train_release(images, experiment, tmp_path / "whole")

    def stop(event: dict[str, Any]) -> None:
        if (event["epoch"], event["step"]) == (1, 1):
            raise InterruptionError

    with pytest.raises(InterruptionError):
        train_release(images, experiment, tmp_path / "broken", progress=stop)
    assert train_release(images, experiment, tmp_path / "broken").fingerprint == whole.fingerprint


def test_the_curvature_stays_within_a_factor_of_ten() -> None:
    space = LearnedLorentz(3, 0.5)
    for value, expected in ((-20.0, 0.05), (20.0, 5.0)):
        space.learned.log_ratio.data.fill_(value)
        assert space.live_curvature.detach().item() == pytest.approx(expected)
        assert space.settled() == Lorentz(3, float(space.live_curvature.detach()))


def test_fingerprints_of_the_sphere_do_not_know_of_lifts(olds, tmp_path) -> None:
    release = olds["hypersphere"]
    record = json.loads((save_release(release, tmp_path / "r") / "config.json").read_text())
    assert not {"zeta", "lifts_directions"} & record["encoder"].keys()
    assert not {"lifted_from", "curvature_start"} & record.keys()
    hyperbolic = json.loads((save_release(olds["lorentz"], tmp_path / "h") / "config.json").read_text())
    assert hyperbolic["encoder"]["zeta"] == 1.0 and hyperbolic["lift"] == {"zeta": 1.0}


def test_embeddings_of_points_say_how_uncertain_they_are_and_keep_it_in_their_file(
    images, olds, tmp_path: Path
) -> None:
    points = embed_images(olds["lorentz"], images)
    lengths = np.linalg.norm(points.vectors, axis=1)
    expected = 1 - lengths / np.sqrt(1 + lengths**2)
    np.testing.assert_allclose(points.columns["uncertainty"], expected, rtol=1e-4)
    storage.save(points, tmp_path / "points.safetensors")
    np.testing.assert_array_equal(
        storage.load(tmp_path / "points.safetensors").columns["uncertainty"], points.columns["uncertainty"]
    )
    assert "uncertainty" not in embed_images(olds["hypersphere"], images).columns
    assert "uncertainty" not in embed_images(olds["lorentz"], images, form="features").columns
