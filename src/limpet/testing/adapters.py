"""What every adapter promises, in both directions."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import scipy.stats
import torch
from numpy.typing import ArrayLike, NDArray

from limpet.adapters import ADAPTERS, Adapter, Direction, PairReport, build_adapter
from limpet.adapters.storage import load_adapter, save_adapter
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError, EmptyOverlapError, LimpetError, SpaceMismatchError
from limpet.export.exportable import of_adapter
from limpet.export.formats import export
from limpet.export.npz import NumpyArrays
from limpet.export.reader import Map
from limpet.geometry import Hypersphere, Lorentz
from limpet.testing.contract import Check, Contract, refused

CONTRACT = Contract()
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
Array = NDArray[Any]
Sets = tuple[EmbeddingSet, EmbeddingSet]


def adapter_contract(name: str) -> list[Check]:
    """Return what an adapter promises, by its name, as checks.

    Raises:
        ConfigError: There is no such adapter, or it cannot be imported.
    """
    assert ADAPTERS[name]
    return CONTRACT.checks(name=name)


def make_set(vectors: ArrayLike, model: str, ids: Sequence[str] | None = None, **values: Any) -> EmbeddingSet:
    """Build a set of points named i0, i1, ... by their rows, or by the ids given."""
    vectors = np.asarray(vectors, np.float32)
    named = StringArray.of([f"i{row}" for row in range(len(vectors))] if ids is None else ids)
    return EmbeddingSet(vectors, named, f"declared:{model}", Hypersphere(vectors.shape[1]), **values)


def related(
    items: int, dims: tuple[int, int], *, noise: float = 0.1, bent: float = 0.0, causes: int = 12, seed: int = 0
) -> tuple[Array, Array]:
    """Draw unit rows of the same items under two models, from common causes of unequal weight.

    ``bent`` is the share of each model that is no linear function of the causes; both have a mean of their own.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(items, causes)) / np.arange(1, causes + 1) ** 0.5

    def view(dim: int) -> Array:
        straight = hidden @ rng.normal(size=(causes, dim))
        curved = np.tanh(2 * hidden @ rng.normal(size=(causes, 4 * causes))) @ rng.normal(size=(4 * causes, dim))
        rows = (1 - bent) * straight / straight.std() + bent * curved / curved.std()
        rows = rows + noise * rng.normal(size=rows.shape) + rng.normal(size=dim)
        unit: Array = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    return view(dims[0]), view(dims[1])


def rotation(rows: int, columns: int, seed: int = 0) -> Array:
    """Draw a matrix with orthonormal rows, or columns where it has fewer of those."""
    whole: Array = scipy.stats.ortho_group.rvs(max(rows, columns), random_state=seed)
    return whole[:rows, :columns]


def eighty_items() -> Sets:
    """Return eighty items under two models of 6 dimensions, with labels and a column."""
    old, new = related(80, (6, 6), noise=0.05, bent=0.5, causes=3)
    values: dict[str, Any] = {"labels": np.arange(80) % 4, "class_names": list("abcd")}
    return (
        make_set(old, "old", **values, columns={"camera": np.arange(80) % 3}),
        make_set(new, "new", **values, columns={"camera": np.arange(80) % 3}, role="query"),
    )


def build(name: str, direction: str = "new_to_old", **options: Any) -> Adapter:
    """Build an adapter that a fit on few pairs makes quick."""
    return build_adapter(name, {**ADAPTERS[name].quick, **options, "direction": direction})


def report_of(adapter: Adapter) -> PairReport:
    """Return what a fit says of its pairs."""
    assert adapter.report is not None, "a fit leaves no report"
    return adapter.report


def source_of(sets: Sets, direction: str) -> EmbeddingSet:
    """Return what is mapped."""
    return sets[1] if direction == "new_to_old" else sets[0]


@CONTRACT.promise(direction=DIRECTIONS)
def images_are_points_of_the_target_with_all_else_kept(name: str, direction: Direction) -> None:
    sets = eighty_items()
    adapter = build(name, direction).fit(*sets)
    source = source_of(sets, direction)
    target = sets[0] if source is sets[1] else sets[1]
    found = adapter.apply(source)
    np.testing.assert_allclose(np.linalg.norm(found.vectors.astype(np.float64), axis=1), 1, atol=1e-6)
    assert found.space == target.space and found.form == "points" and found.vectors.dtype == np.float32
    assert found.ids == source.ids and found.role == source.role and found.class_names == source.class_names
    assert found.labels is not None and source.labels is not None
    assert np.array_equal(found.labels, source.labels) and np.array_equal(found.columns["camera"], np.arange(80) % 3)
    np.testing.assert_array_equal(found.vectors, adapter.map(source.vectors))
    assert not np.array_equal(found.vectors, source.vectors)


@CONTRACT.promise(direction=DIRECTIONS)
def images_are_nearer_to_their_targets_than_to_others(name: str, direction: Direction) -> None:
    sets = eighty_items()
    source = source_of(sets, direction)
    if ADAPTERS[name].equal_dimensions:  # the models share their coordinates but for a shift
        shifted = source.vectors + np.array([1, 0, 0, 0, 0, 0], np.float32)
        sets = (make_set(shifted, "old"), source) if direction == "new_to_old" else (source, make_set(shifted, "new"))
    target = sets[0] if source is sets[1] else sets[1]
    wanted = target.vectors / np.linalg.norm(target.vectors, axis=1, keepdims=True)
    scores = build(name, direction).fit(*sets).apply(source).vectors @ wanted.T
    assert np.diag(scores).mean() > 0.85 and (scores > np.diag(scores)[:, None]).mean() < 0.15


@CONTRACT.promise(dims=[(4, 7), (7, 4)])
def dimensions_may_differ_or_are_refused_with_advice(name: str, dims: tuple[int, int]) -> None:
    old, new = (make_set(rows, side) for rows, side in zip(related(60, dims), ("old", "new"), strict=True))
    if ADAPTERS[name].equal_dimensions:
        refused(lambda: build(name).fit(old, new), SpaceMismatchError, words=r"equal dimensions(.|\n)*Next: fit procr")
        return
    for direction, source, target in (("new_to_old", new, old), ("old_to_new", old, new)):
        adapter = build(name, direction).fit(old, new)
        assert adapter.apply(source).space == target.space and report_of(adapter).source_dim == source.dim


@CONTRACT.promise()
def the_same_fit_twice_and_no_global_randomness(name: str) -> None:
    sets = eighty_items()
    numbers, state = np.random.get_state(legacy=False)["state"]["key"].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (build(name).fit(*sets) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(first.map(sets[1].vectors), second.map(sets[1].vectors))
    np.testing.assert_array_equal(numbers, np.random.get_state(legacy=False)["state"]["key"])  # noqa: NPY002
    assert torch.equal(state, torch.get_rng_state())


@CONTRACT.promise(direction=DIRECTIONS)
def pairs_are_matched_by_id_bit_for_bit(name: str, direction: Direction) -> None:
    sets = eighty_items()
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
    assert (report_of(again).pairs, report_of(again).old.unpaired, report_of(again).new.unpaired) == (80, 1, 1)


@CONTRACT.promise()
def only_directions_count(name: str) -> None:
    sets = eighty_items()
    lengths = 2.0 ** np.random.default_rng(0).integers(-40, 60, size=(2, 80, 1))
    scaled = [side.replace(vectors=(side.vectors * length).astype(np.float32), form="features")
              for side, length in zip(sets, lengths, strict=True)]  # fmt: skip
    adapter = build(name).fit(*scaled)
    assert adapter.fingerprint == build(name).fit(*sets).fingerprint
    found = adapter.apply(scaled[1])
    np.testing.assert_array_equal(found.vectors, adapter.apply(sets[1]).vectors)
    assert found.form == "points" and report_of(adapter).old.lengths_differ and report_of(adapter).new.lengths_differ


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


@CONTRACT.promise(edge=EDGES, direction=DIRECTIONS)
def finite_unit_rows_at_the_edges_or_a_reason(name: str, edge: str, direction: Direction) -> None:
    sets = eighty_items()
    old, new = (make_set(EDGES[edge](side.vectors), side.fingerprint[9:]) for side in sets)
    try:
        adapter = build(name, direction).fit(old, new)
    except DataError as error:
        fewest = ADAPTERS[name].minimum_pairs
        assert len(old) < fewest and f"at least {fewest}" in str(error), f"refused: {error}"
        return
    found = adapter.apply(source_of((old, new), direction)).vectors
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.linalg.norm(found.astype(np.float64), axis=1), 1, atol=1e-6)


@CONTRACT.promise(row=[np.zeros(6), np.full(6, np.nan), np.full(6, np.inf), np.full(6, 1e200)])
def vectors_without_direction_are_refused_by_their_row(name: str, row: Array) -> None:
    sets = eighty_items()
    adapter = build(name).fit(*sets)
    rows = np.stack([*sets[1].vectors[:2].astype(np.float64), row])
    refused(lambda: adapter.map(rows), DataError, words=r"1 vectors have no direction, first: row 2(.|\n)*remove")


@CONTRACT.promise()
def memory_mapped_strided_and_fortran_ordered_vectors_are_mapped_alike(name: str) -> None:
    sets = eighty_items()
    old, new = (side.vectors for side in sets)
    wide = np.repeat(old, 2, axis=1)[:, ::2]
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "new.npy", new)
        mapped = make_set(np.load(Path(folder) / "new.npy", mmap_mode="r"), "new")
        found = build(name).fit(make_set(wide, "old"), mapped)
    other = build(name).fit(make_set(np.asfortranarray(old), "old"), make_set(np.asfortranarray(new), "new"))
    assert found.fingerprint == build(name).fit(*sets).fingerprint == other.fingerprint
    np.testing.assert_array_equal(found.map(np.asfortranarray(new)), other.map(new[::-1])[::-1])


@CONTRACT.promise(items=[2, 7, 30], direction=DIRECTIONS)
def fewer_pairs_than_dimensions_and_single_dimensions_will_do(name: str, items: int, direction: Direction) -> None:
    rng = np.random.default_rng(0)
    for old_dim, new_dim in ((40, 40), (40, 9), (9, 40), (1, 1), (1, 3), (3, 1)):
        if (ADAPTERS[name].equal_dimensions and old_dim != new_dim) or items < ADAPTERS[name].minimum_pairs:
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


@CONTRACT.promise(direction=DIRECTIONS)
def embeddings_of_another_model_or_dimension_are_refused(name: str, direction: Direction) -> None:
    sets = eighty_items()
    adapter, source = build(name, direction).fit(*sets), source_of(sets, direction)
    target = sets[0] if source is sets[1] else sets[1]
    for other in (target, source.replace(fingerprint="declared:third"), adapter.apply(source)):
        refused(partial(adapter.apply, other), DataError, words=re.escape(source.fingerprint))
    narrow = make_set(np.ones((2, 5)), source.fingerprint[9:])
    refused(lambda: adapter.apply(narrow), SpaceMismatchError, words=r"\(2, 5\)(.|\n)*\(items, 6\)")
    refused(lambda: adapter.map(np.ones(5)), SpaceMismatchError, words=r"\(5,\)")


@CONTRACT.promise()
def one_model_other_spaces_and_no_overlap_are_refused(name: str) -> None:
    sets = eighty_items()
    old, new = sets
    refused(lambda: build(name).fit(old, old), DataError, words="same model")
    flat = old.replace(vectors=old.vectors * np.float32(0.1), space=Lorentz(6))
    for pair in ((flat, new), (new, flat)):
        refused(partial(build(name).fit, *pair), SpaceMismatchError, words=r"Lorentz(.|\n)*hypersphere")
    others = make_set(new.vectors, "new", [f"x{row}" for row in range(80)])
    refused(lambda: build(name).fit(old, others), EmptyOverlapError)


@CONTRACT.promise(direction=DIRECTIONS)
def arrays_are_fitted_as_sets_are_and_mapped_by_transform(name: str, direction: Direction) -> None:
    """X is what is mapped, in both directions; by name, the direction says which of old and new is."""
    sets = eighty_items()
    source = source_of(sets, direction)
    target = sets[0] if source is sets[1] else sets[1]
    numbered = [side.replace(ids=StringArray.of(f"row {row:02}" for row in range(80))) for side in sets]
    expected = build(name, direction).fit(*numbered)
    for adapter in (
        build(name, direction).fit(source.vectors, target.vectors),
        build(name, direction).fit(old=sets[0].vectors, new=sets[1].vectors),
        build(name, direction).fit(old=numbered[0], new=numbered[1]),
    ):
        np.testing.assert_array_equal(adapter.transform(source.vectors), expected.map(source.vectors))
        assert report_of(adapter).pairs == 80 and adapter.declared
    wide = build(name, direction).fit(source.vectors.astype(np.float64), target.vectors.astype(np.float64))
    np.testing.assert_array_equal(wide.map(source.vectors), expected.map(source.vectors))


@CONTRACT.promise()
def one_query_has_one_image(name: str) -> None:
    """Vectors (S,) and (N, S) are mapped alike, and transform never takes raw rows for unit ones."""
    sets = eighty_items()
    adapter = build(name).fit(*sets)
    image = adapter.transform(sets[1].vectors[3])
    assert image.shape == (6,) and image.dtype == np.float32
    np.testing.assert_array_equal(image, adapter.map(sets[1].vectors[3:4])[0])
    np.testing.assert_allclose(adapter.transform(4 * sets[1].vectors), adapter.map(sets[1].vectors), atol=1e-6)


@CONTRACT.promise()
def options_are_got_and_set_and_a_copy_is_not_fitted(name: str) -> None:
    """get_params returns what __init__ was given, as it was; set_params checks values and forgets the fit."""
    sets = eighty_items()
    adapter = build(name).fit(*sets)
    options, kind = adapter.get_params(), cast(Callable[..., Adapter], type(adapter))
    copied = kind(**options)
    assert all(copied.get_params()[key] is value for key, value in options.items()), "an option is kept otherwise"
    assert list(options) == list(inspect.signature(type(adapter)).parameters)
    assert eval(repr(adapter), {kind.__name__: kind}).get_params() == options, "repr does not say the options"  # noqa: S307
    refused(lambda: copied.fingerprint, ConfigError, words="not fitted")
    assert copied.set_params(**options).fit(*sets).fingerprint == adapter.fingerprint
    before = adapter.fingerprint
    assert adapter.set_params(direction="new_to_old").fingerprint == before, "nothing was changed"
    refused(lambda: adapter.set_params(directoin="old_to_new"), ConfigError, words="Did you mean 'direction'")
    refused(lambda: adapter.set_params(direction="upwards"), LimpetError, words="direction")
    assert adapter.get_params() == options and adapter.fingerprint == before, "a refusal changed something"
    adapter.set_params(direction="old_to_new")
    refused(lambda: adapter.fingerprint, ConfigError, words="not fitted")
    other = build(name, "old_to_new").fit(*sets)
    np.testing.assert_array_equal(adapter.fit(*sets).map(sets[0].vectors), other.map(sets[0].vectors))


ARRAYS: dict[str, tuple[Callable[[Adapter, Array, Array], object], type[LimpetError], str]] = {
    "one side": (lambda adapter, x, y: adapter.fit(x), ConfigError, r"1 sides(.|\n)*fit\(X, Y\)"),  # type: ignore[call-overload]
    "no side": (lambda adapter, x, y: adapter.fit(), ConfigError, "0 sides"),  # type: ignore[call-overload]
    "three sides": (lambda adapter, x, y: adapter.fit(x, y, old=x), ConfigError, "3 sides"),  # type: ignore[call-overload]
    "a set and an array": (
        lambda adapter, x, y: adapter.fit(make_set(x, "old"), y),  # type: ignore[call-overload]
        ConfigError, "a set of embeddings and a ndarray"),
    "other lengths": (lambda adapter, x, y: adapter.fit(x, y[:-1]), DataError, "X has 80 rows, and Y has 79"),
    "one row": (lambda adapter, x, y: adapter.fit(x[0], y[0]), DataError, r"X has the shape \(6,\)"),
    "three axes": (lambda adapter, x, y: adapter.fit(old=x[None], new=y), DataError, r"old has the shape \(1, 80, 6\)"),
    "whole numbers": (lambda adapter, x, y: adapter.fit(x, y.astype(int)), DataError, "Y is a ndarray of int64"),
    "rows of unequal length": (
        lambda adapter, x, y: adapter.fit([[1.0], [1.0, 2.0]], y),  # type: ignore[call-overload]
        DataError, "X cannot be read"),
    "texts": (lambda adapter, x, y: adapter.fit(np.array([["a"]]), y), DataError, "X is a ndarray of <U1"),
    "NaN": (lambda adapter, x, y: adapter.fit(np.where(x == x[7, 0], np.nan, x), y), DataError, "NaN(.|\n)*'row 07'"),
    "zero": (lambda adapter, x, y: adapter.fit(x * (np.arange(80) != 5)[:, None], y), DataError, "'row 05'"),
    "whole numbers to map": (lambda adapter, x, y: adapter.transform(np.ones((2, 6), int)), DataError, "int64"),
    "a set to map": (
        lambda adapter, x, y: adapter.transform(make_set(x, "new")),  # type: ignore[arg-type]
        DataError, r"call apply\(embeddings\)"),
    "three axes to map": (lambda adapter, x, y: adapter.transform(x[None]), SpaceMismatchError, r"\(1, 80, 6\)"),
    "another dimension": (lambda adapter, x, y: adapter.transform(x[:, :5]), SpaceMismatchError, r"\(80, 5\)"),
}  # fmt: skip


@CONTRACT.promise(case=ARRAYS)
def arrays_that_cannot_be_used_are_refused_in_words(name: str, case: str) -> None:
    old, new = (side.vectors for side in eighty_items())
    action, error, words = ARRAYS[case]
    adapter = build(name).fit(new, old)
    before = adapter.fingerprint
    refused(lambda: action(adapter, new, old), error, words=words)
    assert adapter.fingerprint == before, "a refusal changed the fit"


@CONTRACT.promise()
def what_was_not_fitted_says_so(name: str) -> None:
    sets = eighty_items()
    adapter = build(name)
    uses: list[Callable[[], object]] = [
        lambda: adapter.apply(sets[1]), lambda: adapter.fingerprint, lambda: adapter.map(sets[1].vectors)
    ]  # fmt: skip
    for use in uses:
        refused(use, ConfigError, words=r"not fitted(.|\n)*fit\(old, new\)")


@CONTRACT.promise(direction=DIRECTIONS)
def fingerprints_tell_maps_models_and_directions_apart(name: str, direction: Direction) -> None:
    sets = eighty_items()
    adapter = build(name, direction).fit(*sets)
    renamed = [side.replace(fingerprint=f"{side.fingerprint}-2") for side in sets]
    other = build(name, "old_to_new" if direction == "new_to_old" else "new_to_old")
    found = [
        adapter, build(name, direction).fit(renamed[0], sets[1]), build(name, direction).fit(sets[0], renamed[1]),
        other.fit(*sets), build(name, direction).fit(*(side[np.arange(60)] for side in sets)),
    ]  # fmt: skip
    prints = [one.fingerprint for one in found] + [one.mapped_fingerprint for one in found]
    assert len(set(prints)) == 10
    assert all(re.fullmatch("adapter:[0-9a-f]{64}", one) for one in prints)
    assert adapter.apply(source_of(sets, direction)).fingerprint == adapter.mapped_fingerprint
    assert adapter.declared


@CONTRACT.promise(direction=DIRECTIONS)
def saved_and_loaded_it_maps_alike_bit_for_bit(name: str, direction: Direction) -> None:
    sets = eighty_items()
    adapter = build(name, direction).fit(*sets)
    with tempfile.TemporaryDirectory() as folder:
        again = load_adapter(save_adapter(adapter, Path(folder) / "adapter"))
    source = source_of(sets, direction)
    assert type(again) is type(adapter) and again.options == adapter.options and again.direction == direction
    assert again.fingerprint == adapter.fingerprint and again.fitted.pairs == 80
    np.testing.assert_array_equal(again.apply(source).vectors, adapter.apply(source).vectors)
    assert again.apply(source).fingerprint == adapter.apply(source).fingerprint


@CONTRACT.promise()
def the_steps_it_is_exported_by_make_the_same_images(name: str) -> None:
    sets = eighty_items()
    for beside, changed in (
        ({}, {}),
        *(({**beside}, {option: value}) for option, (beside, value) in ADAPTERS[name].effects.items()),
    ):
        adapter = build(name, **{**beside, **changed}).fit(*sets)
        model = of_adapter(adapter)
        with tempfile.TemporaryDirectory() as folder:
            if model.steps is None:
                refused(
                    partial(export, model, NumpyArrays(), folder), ConfigError, words="does not say what it computes"
                )
            else:
                vectors = sets[1].vectors
                found = Map(export(model, NumpyArrays(), folder).folder)(vectors)
                np.testing.assert_allclose(found, adapter.map(vectors), atol=1e-6)


@CONTRACT.promise()
def a_row_is_mapped_alike_alone_and_in_company(name: str) -> None:
    sets = eighty_items()
    adapter = build(name).fit(*sets)
    together = adapter.map(sets[1].vectors)
    alone = np.concatenate([adapter.map(row[None]) for row in sets[1].vectors])
    np.testing.assert_allclose(alone, together, atol=1e-6)
    assert adapter.map(sets[1].vectors[:0]).shape == (0, 6)


@CONTRACT.promise(centre=[False, True])
def turning_either_model_turns_the_map(name: str, centre: bool) -> None:
    sets = eighty_items()
    options: dict[str, Any] = {"centre": centre} if "centre" in inspect.signature(ADAPTERS[name]).parameters else {}
    old, new = sets
    turn, other_turn = rotation(6, 6, seed=1), rotation(6, 6, seed=2)
    turned_new = new.replace(vectors=(new.vectors @ turn).astype(np.float32))
    turned_old = old.replace(vectors=(old.vectors @ other_turn).astype(np.float32))
    expected = build(name, **options).fit(old, new).apply(new).vectors
    if ADAPTERS[name].turns == "with each model":
        found = build(name, **options).fit(turned_old, turned_new).apply(turned_new).vectors
        np.testing.assert_allclose(found, expected @ other_turn, atol=1e-4)
    elif ADAPTERS[name].turns == "with both models":
        turned_old = old.replace(vectors=(old.vectors @ turn).astype(np.float32))
        found = build(name).fit(turned_old, turned_new).apply(turned_new).vectors
        np.testing.assert_allclose(found, expected @ turn, atol=1e-4)


@CONTRACT.promise()
def every_option_is_documented_has_a_default_and_changes_something(name: str) -> None:
    sets = eighty_items()
    adapter = ADAPTERS[name]
    options = {key: value for key, value in inspect.signature(adapter).parameters.items() if key != "direction"}
    for option in options.values():
        assert option.default is not inspect.Parameter.empty, f"the option '{option.name}' has no default"
        assert f"{option.name}:" in (adapter.__doc__ or ""), f"the docstring does not say what '{option.name}' is"
    assert adapter.kind == name, f"kind is '{adapter.kind}', and the name '{name}'"
    assert next(iter(inspect.signature(adapter).parameters)) == "direction", "direction is not the first option"
    assert set(options) == set(adapter.effects), f"effects names {sorted(adapter.effects)}, and not {sorted(options)}"
    for option_name, (beside, value) in adapter.effects.items():
        plain, changed = (build(name, **{**beside, **extra}).fit(*sets) for extra in ({}, {option_name: value}))
        assert not np.array_equal(plain.map(sets[1].vectors), changed.map(sets[1].vectors)), option_name


@CONTRACT.promise()
def negative_seeds_are_refused(name: str) -> None:
    if "seed" in inspect.signature(ADAPTERS[name]).parameters:
        refused(lambda: build(name, seed=-1), ConfigError, words=r"seed(.|\n)*at least 0")
        refused(lambda: build(name).set_params(seed=-1), ConfigError, words=r"seed(.|\n)*at least 0")


@CONTRACT.promise()
def unknown_names_and_options_are_refused_with_a_suggestion(name: str) -> None:
    refused(lambda: build_adapter(name[:-1] + "x", {}), ConfigError, words=f"Did you mean '{name}'")
    words = r"has no option 'directoin'\. Did you mean 'direction'"
    refused(lambda: build_adapter(name, {"directoin": "new_to_old"}), ConfigError, words=words)
    refused(lambda: build_adapter(name, {"direction": "upwards"}), LimpetError, words="direction")
