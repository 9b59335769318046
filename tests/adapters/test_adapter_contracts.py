"""What every adapter promises, run over all of `ADAPTERS`."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.adapters import ADAPTERS, Adapter, build_adapter
from holdfast.adapters.storage import load_adapter, save_adapter
from holdfast.embeddings import EmbeddingSet
from holdfast.errors import ConfigError, DataError, EmptyOverlapError, HoldfastError, SpaceMismatchError
from holdfast.geometry import Lorentz

QUICK: dict[str, dict[str, Any]] = {"residual_mlp": {"epochs": 6, "hidden": 16, "learning_rate": 0.01}}
EQUAL_DIMENSIONS_ONLY = {"mean_drift"}
TURNS_WITH_ITS_SOURCE = {"procrustes", "ridge", "low_rank", "lambda_orthogonal", "local"}
FIRM: dict[str, Any] = {"shrinkage": 5.0}
SOFT: dict[str, Any] = {"shrinkage": 5.0, "assignment": "soft"}
CHANGES: dict[str, dict[str, tuple[dict[str, Any], Any]]] = {  # beside which options another value changes the images
    "procrustes": {"centre": ({}, False)},
    "ridge": {"penalty": ({}, 5.0)},
    "low_rank": {"rank": ({}, 1), "penalty": ({}, 5.0)},
    "mean_drift": {},
    "lambda_orthogonal": {"tolerance": ({}, 0.05), "centre": ({}, False), "steps": ({}, 0)},
    "local": {"clusters": (FIRM, 1), "shrinkage": ({}, 5.0), "assignment": (FIRM, "soft"), "temperature": (SOFT, 1.0),
              "seed": (FIRM, 1)},
    "residual_mlp": {"hidden": ({}, 5), "epochs": ({}, 1), "patience": ({"epochs": 12, "patience": 12}, 1),
                     "held_out": ({}, 0.3), "learning_rate": ({}, 0.02), "batch_size": ({}, 16), "seed": ({}, 1)},
}  # fmt: skip


@pytest.fixture(params=sorted(ADAPTERS))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=["new_to_old", "old_to_new"])
def direction(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def sets(related, make_set) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Eighty items under two models of 6 dimensions, with labels and a column."""
    old, new = related(80, (6, 6), noise=0.05, bent=0.5, causes=3)
    values: dict[str, Any] = {"labels": np.arange(80) % 4, "class_names": list("abcd")}
    return (
        make_set(old, "old", **values, columns={"camera": np.arange(80) % 3}),
        make_set(new, "new", **values, columns={"camera": np.arange(80) % 3}, role="query"),
    )


def build(name: str, direction: str = "new_to_old", **options: Any) -> Adapter:
    return build_adapter(name, {**QUICK.get(name, {}), **options, "direction": direction})


def source_of(sets: tuple[EmbeddingSet, EmbeddingSet], direction: str) -> EmbeddingSet:
    return sets[1] if direction == "new_to_old" else sets[0]


def test_images_are_points_of_the_target_with_all_else_kept(name, direction, sets) -> None:
    adapter = build(name, direction).fit(*sets)
    source = source_of(sets, direction)
    target = sets[0] if source is sets[1] else sets[1]
    found = adapter.apply(source)
    np.testing.assert_allclose(np.linalg.norm(found.vectors.astype(np.float64), axis=1), 1, atol=1e-6)
    assert found.space == target.space and found.form == "points" and found.vectors.dtype == np.float32
    assert found.ids == source.ids and found.role == source.role and found.class_names == source.class_names
    assert np.array_equal(found.labels, source.labels) and np.array_equal(found.columns["camera"], np.arange(80) % 3)
    np.testing.assert_array_equal(found.vectors, adapter.map(source.vectors))
    assert not np.array_equal(found.vectors, source.vectors)


def test_images_are_nearer_to_their_targets_than_to_others(name, direction, sets, make_set) -> None:
    source = source_of(sets, direction)
    if name in EQUAL_DIMENSIONS_ONLY:  # the models share their coordinates but for a shift
        shifted = source.vectors + np.array([1, 0, 0, 0, 0, 0], np.float32)
        sets = (make_set(shifted, "old"), source) if direction == "new_to_old" else (source, make_set(shifted, "new"))
    target = sets[0] if source is sets[1] else sets[1]
    wanted = target.vectors / np.linalg.norm(target.vectors, axis=1, keepdims=True)
    scores = build(name, direction).fit(*sets).apply(source).vectors @ wanted.T
    assert np.diag(scores).mean() > 0.85 and (scores > np.diag(scores)[:, None]).mean() < 0.15


@pytest.mark.parametrize("dims", [(4, 7), (7, 4)])
def test_dimensions_may_differ_or_are_refused_with_advice(name, dims, related, make_set) -> None:
    old, new = (make_set(rows, side) for rows, side in zip(related(60, dims), ("old", "new"), strict=True))
    if name in EQUAL_DIMENSIONS_ONLY:
        with pytest.raises(SpaceMismatchError, match=r"equal dimensions(.|\n)*Next: fit procrustes"):
            build(name).fit(old, new)
        return
    for direction, source, target in (("new_to_old", new, old), ("old_to_new", old, new)):
        adapter = build(name, direction).fit(old, new)
        assert adapter.apply(source).space == target.space and adapter.report.source_dim == source.dim


def test_the_same_fit_twice_and_no_global_randomness(name, sets) -> None:
    numbers, state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (build(name).fit(*sets) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(first.map(sets[1].vectors), second.map(sets[1].vectors))
    np.testing.assert_array_equal(numbers, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(state, torch.get_rng_state())


def test_pairs_are_matched_by_id_bit_for_bit(name, direction, sets, make_set) -> None:
    plain = build(name, direction).fit(*sets)
    rng = np.random.default_rng(0)
    stranger = make_set(np.ones((1, 6)), "old", ["stranger"]).vectors
    shuffled = []
    for side in sets:
        order = rng.permutation(80)
        ids = [side.ids[int(row)] for row in order] + [f"only {side.fingerprint}"]
        shuffled.append(make_set(np.concatenate([side.vectors[order], stranger]), side.fingerprint[9:], ids))
    again = build(name, direction).fit(*shuffled)
    assert again.fingerprint == plain.fingerprint
    assert (again.report.pairs, again.report.old.unpaired, again.report.new.unpaired) == (80, 1, 1)


def test_only_directions_count(name, sets) -> None:
    lengths = 2.0 ** np.random.default_rng(0).integers(-40, 60, size=(2, 80, 1))
    scaled = [side.replace(vectors=(side.vectors * length).astype(np.float32), form="features")
              for side, length in zip(sets, lengths, strict=True)]  # fmt: skip
    adapter = build(name).fit(*scaled)
    assert adapter.fingerprint == build(name).fit(*sets).fingerprint
    found = adapter.apply(scaled[1])
    np.testing.assert_array_equal(found.vectors, adapter.apply(sets[1]).vectors)
    assert found.form == "points" and adapter.report.old.lengths_differ and adapter.report.new.lengths_differ


EDGES = {
    "two pairs": lambda rows: rows[:2],
    "three pairs": lambda rows: rows[:3],
    "constant coordinates": lambda rows: np.c_[np.full((len(rows), 2), 0.5), rows[:, 2:]],
    "coordinates that are zero": lambda rows: np.c_[np.zeros((len(rows), 2)), rows[:, 2:]],
    "every row twice": lambda rows: np.repeat(rows[:40], 2, axis=0),
    "one row again and again": lambda rows: np.repeat(rows[:1], 80, axis=0),
    "huge lengths": lambda rows: rows * 1e15,
    "tiny lengths": lambda rows: rows * 1e-15,
    "two opposite rows": lambda rows: np.concatenate([rows[:1], -rows[:1]]),
}


@pytest.mark.parametrize("edge", EDGES)
def test_finite_unit_rows_at_the_edges_or_a_reason(name, edge, direction, sets, make_set) -> None:
    old, new = (make_set(EDGES[edge](side.vectors), side.fingerprint[9:]) for side in sets)
    try:
        adapter = build(name, direction).fit(old, new)
    except DataError as error:
        assert name == "residual_mlp" and len(old) < 20 and "at least 20" in str(error)
        return
    found = adapter.apply(source_of((old, new), direction)).vectors
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.linalg.norm(found.astype(np.float64), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("row", [np.zeros(6), np.full(6, np.nan), np.full(6, np.inf), np.full(6, 1e200)])
def test_vectors_without_direction_are_refused_by_their_row(name, row, sets) -> None:
    adapter = build(name).fit(*sets)
    with pytest.raises(DataError, match=r"1 vectors have no direction, first: row 2(.|\n)*remove"):
        adapter.map(np.stack([*sets[1].vectors[:2].astype(np.float64), row]))


def test_memory_mapped_strided_and_fortran_ordered_vectors_are_mapped_alike(name, sets, make_set, tmp_path) -> None:
    old, new = (side.vectors for side in sets)
    np.save(tmp_path / "new.npy", new)
    mapped = make_set(np.load(tmp_path / "new.npy", mmap_mode="r"), "new")
    wide = np.repeat(old, 2, axis=1)[:, ::2]
    found = build(name).fit(make_set(wide, "old"), mapped)
    other = build(name).fit(make_set(np.asfortranarray(old), "old"), make_set(np.asfortranarray(new), "new"))
    assert found.fingerprint == build(name).fit(*sets).fingerprint == other.fingerprint
    np.testing.assert_array_equal(found.map(np.asfortranarray(new)), other.map(new[::-1])[::-1])


@pytest.mark.parametrize("items", [2, 7, 30])
def test_fewer_pairs_than_dimensions_and_single_dimensions_will_do(name, items, direction, make_set) -> None:
    rng = np.random.default_rng(0)
    for old_dim, new_dim in ((40, 40), (40, 9), (9, 40), (1, 1), (1, 3), (3, 1)):
        if (name in EQUAL_DIMENSIONS_ONLY and old_dim != new_dim) or items < ADAPTERS[name].minimum_pairs:
            continue
        old, new = (
            make_set(rng.normal(size=(items, old_dim)), "old"),
            make_set(rng.normal(size=(items, new_dim)), "new"),
        )
        source = source_of((old, new), direction)
        images = build(name, direction).fit(old, new).map(source.vectors).astype(np.float64)
        lengths = np.linalg.norm(images, axis=1)
        if old_dim == new_dim == 1:  # opposite targets of one source average to nothing
            lengths = lengths[lengths > 0]
        np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_embeddings_of_another_model_or_dimension_are_refused(name, direction, sets, make_set) -> None:
    adapter, source = build(name, direction).fit(*sets), source_of(sets, direction)
    target = sets[0] if source is sets[1] else sets[1]
    for other in (target, source.replace(fingerprint="declared:third"), adapter.apply(source)):
        with pytest.raises(DataError, match=re.escape(source.fingerprint)):
            adapter.apply(other)
    with pytest.raises(SpaceMismatchError, match=r"\(2, 5\)(.|\n)*\(items, 6\)"):
        adapter.apply(make_set(np.ones((2, 5)), source.fingerprint[9:]))
    with pytest.raises(SpaceMismatchError, match=r"\(6,\)"):
        adapter.map(np.ones(6))


def test_one_model_other_spaces_and_no_overlap_are_refused(name, sets, make_set) -> None:
    old, new = sets
    with pytest.raises(DataError, match="same model"):
        build(name).fit(old, old)
    flat = old.replace(vectors=old.vectors * np.float32(0.1), space=Lorentz(6))
    for pair in ((flat, new), (new, flat)):
        with pytest.raises(SpaceMismatchError, match=r"Lorentz(.|\n)*hypersphere"):
            build(name).fit(*pair)
    with pytest.raises(EmptyOverlapError):
        build(name).fit(old, make_set(new.vectors, "new", [f"x{row}" for row in range(80)]))


def test_what_was_not_fitted_says_so(name, sets) -> None:
    adapter = build(name)
    for use in (lambda: adapter.apply(sets[1]), lambda: adapter.fingerprint, lambda: adapter.map(sets[1].vectors)):
        with pytest.raises(ConfigError, match=r"not fitted(.|\n)*fit\(old, new\)"):
            use()


def test_fingerprints_tell_maps_models_and_directions_apart(name, direction, sets) -> None:
    adapter = build(name, direction).fit(*sets)
    renamed = [side.replace(fingerprint=f"{side.fingerprint}-2") for side in sets]
    other = build(name, "old_to_new" if direction == "new_to_old" else "new_to_old")
    found = [
        adapter, build(name, direction).fit(renamed[0], sets[1]), build(name, direction).fit(sets[0], renamed[1]),
        other.fit(*sets), build(name, direction).fit(*(side.select(np.arange(60)) for side in sets)),
    ]  # fmt: skip
    prints = [one.fingerprint for one in found] + [one.mapped_fingerprint for one in found]
    assert len(set(prints)) == 10
    assert all(re.fullmatch("adapter:[0-9a-f]{64}", one) for one in prints)
    assert adapter.apply(source_of(sets, direction)).fingerprint == adapter.mapped_fingerprint
    assert adapter.declared


def test_saved_and_loaded_it_maps_alike_bit_for_bit(name, direction, sets, tmp_path) -> None:
    adapter = build(name, direction).fit(*sets)
    again = load_adapter(save_adapter(adapter, tmp_path / "adapter"))
    source = source_of(sets, direction)
    assert type(again) is type(adapter) and again.options == adapter.options and again.direction == direction
    assert again.fingerprint == adapter.fingerprint and again.fitted.pairs == 80
    np.testing.assert_array_equal(again.apply(source).vectors, adapter.apply(source).vectors)
    assert again.apply(source).fingerprint == adapter.apply(source).fingerprint


def test_a_row_is_mapped_alike_alone_and_in_company(name, sets) -> None:
    adapter = build(name).fit(*sets)
    together = adapter.map(sets[1].vectors)
    alone = np.concatenate([adapter.map(row[None]) for row in sets[1].vectors])
    np.testing.assert_allclose(alone, together, atol=1e-6)
    assert adapter.map(sets[1].vectors[:0]).shape == (0, 6)


@pytest.mark.parametrize("centre", [False, True])
def test_turning_either_model_turns_the_map(name, centre, sets, rotation) -> None:
    options = {"centre": centre} if "centre" in inspect.signature(ADAPTERS[name]).parameters else {}
    old, new = sets
    turn, other_turn = rotation(6, 6, seed=1), rotation(6, 6, seed=2)
    turned_new = new.replace(vectors=(new.vectors @ turn).astype(np.float32))
    turned_old = old.replace(vectors=(old.vectors @ other_turn).astype(np.float32))
    expected = build(name, **options).fit(old, new).apply(new).vectors
    if name in TURNS_WITH_ITS_SOURCE:
        found = build(name, **options).fit(turned_old, turned_new).apply(turned_new).vectors
        np.testing.assert_allclose(found, expected @ other_turn, atol=1e-4)
    elif name == "mean_drift":  # shared coordinates have to be turned together
        turned_old = old.replace(vectors=(old.vectors @ turn).astype(np.float32))
        found = build(name).fit(turned_old, turned_new).apply(turned_new).vectors
        np.testing.assert_allclose(found, expected @ turn, atol=1e-4)
    else:
        assert name == "residual_mlp", "its hidden layer knows the coordinates"


def test_every_option_is_documented_has_a_default_and_changes_something(name, sets) -> None:
    adapter = ADAPTERS[name]
    options = {key: value for key, value in inspect.signature(adapter).parameters.items() if key != "direction"}
    for option in options.values():
        assert option.default is not inspect.Parameter.empty and f"{option.name}:" in (adapter.__doc__ or "")
    assert adapter.kind == name and next(iter(inspect.signature(adapter).parameters)) == "direction"
    assert set(options) == set(CHANGES[name])
    for option_name, (beside, value) in CHANGES[name].items():
        plain, changed = (build(name, **{**beside, **extra}).fit(*sets) for extra in ({}, {option_name: value}))
        assert not np.array_equal(plain.map(sets[1].vectors), changed.map(sets[1].vectors)), option_name


def test_numbers_of_numpy_are_options_as_well(sets, tmp_path) -> None:
    adapter = build("ridge", penalty=np.float32(0.5)).fit(*sets)
    assert (
        adapter.options == {"penalty": 0.5}
        and adapter.fingerprint == build("ridge", penalty=0.5).fit(*sets).fingerprint
    )
    assert load_adapter(save_adapter(adapter, tmp_path / "adapter")).options == {"penalty": 0.5}


@pytest.mark.parametrize("seeded", ["local", "residual_mlp"])
def test_negative_seeds_are_refused(seeded) -> None:
    with pytest.raises(ConfigError, match=r"seed=-1(.|\n)*at least 0"):
        build(seeded, seed=-1)


def test_unknown_names_and_options_are_refused_with_a_suggestion(name) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{name}'"):
        build_adapter(name[:-1] + "x", {})
    with pytest.raises(ConfigError, match=r"has no option 'directoin'\. Did you mean 'direction'"):
        build_adapter(name, {"directoin": "new_to_old"})
    with pytest.raises(HoldfastError, match="direction"):
        build_adapter(name, {"direction": "upwards"})
