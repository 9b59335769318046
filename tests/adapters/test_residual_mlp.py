from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from limpet.adapters import build_adapter
from limpet.adapters import residual_mlp as module
from limpet.adapters.moments import best_penalty, fold_moments, ridge, total, unit_rows
from limpet.adapters.pairs import matched, paired_vectors
from limpet.adapters.residual_mlp import NAMES, ResidualMLP
from limpet.adapters.storage import save_adapter
from limpet.errors import ConfigError, DataError


def fit(make_set, source, target, **options) -> ResidualMLP:
    return build_adapter("residual_mlp", options).fit(make_set(target, "old"), make_set(source, "new"))


def cosine(adapter, source, target) -> float:
    return float((adapter.map(source) * target).sum(axis=1).mean())


@pytest.fixture(scope="module")
def bent(related) -> tuple[np.ndarray, np.ndarray]:
    return related(900, (10, 8), noise=0.02, bent=0.8, causes=3)


@pytest.fixture(scope="module")
def trained(bent, make_set) -> ResidualMLP:
    source, target = bent
    return fit(make_set, source[:700], target[:700], epochs=25, hidden=48, learning_rate=3e-3, batch_size=64)


def test_it_learns_what_no_linear_map_can(bent, trained, make_set) -> None:
    source, target = bent
    straight = build_adapter("ridge", {}).fit(make_set(target[:700], "old"), make_set(source[:700], "new"))
    gap = 1 - cosine(straight, source[700:], target[700:])
    assert 1 - cosine(trained, source[700:], target[700:]) < 0.7 * gap


def test_images_are_those_of_the_network_it_trained(bent, trained) -> None:
    rows = torch.from_numpy(unit_rows(bent[0][:30].astype(np.float32)))
    skip, skip_offset, inner, inner_offset, outer, outer_offset = (
        torch.from_numpy(trained.fitted.state[name]) for name in NAMES
    )
    expected = rows @ skip + skip_offset + F.linear(F.gelu(rows @ inner + inner_offset), outer.T, outer_offset)
    np.testing.assert_allclose(trained.images(rows.numpy()), expected.numpy(), atol=1e-12)


def test_training_that_does_not_help_leaves_the_ridge_map(related, make_set) -> None:
    source, target = (rows.astype(np.float32) for rows in related(200, (6, 5), noise=0.3))
    adapter = fit(make_set, source, target, epochs=3, learning_rate=10.0, seed=3)
    old, new = make_set(target, "old"), make_set(source, "new")
    pairs = paired_vectors(old, new, matched(old, new))
    kept = np.sort(np.random.default_rng(3).permutation(200)[20:])
    folds = fold_moments(pairs[kept])
    expected = ridge(total(folds), best_penalty(folds))
    np.testing.assert_allclose(adapter.fitted.state["skip"], expected[:-1], atol=1e-6)
    np.testing.assert_allclose(adapter.fitted.state["skip_offset"], expected[-1], atol=1e-6)
    assert not adapter.fitted.state["outer"].any() and adapter.fitted.state["inner"].any()


def test_patience_ends_training_and_the_best_weights_are_kept(bent, make_set, monkeypatch) -> None:
    source, target = bent
    measured = []
    real = module._mean_cosine
    monkeypatch.setattr(module, "_mean_cosine", lambda *given: measured.append(real(*given)) or measured[-1])
    adapter = fit(make_set, source, target, epochs=40, patience=2, learning_rate=0.05, hidden=8)
    best = int(np.argmax(measured))
    assert len(measured) == best + 3 < 41, "two passes after the best one, it ends"
    order = np.argsort([f"i{row}" for row in range(900)])[np.random.default_rng(0).permutation(900)[:90]]
    assert cosine(adapter, source[order], target[order]) == pytest.approx(measured[best], abs=1e-5)


def test_a_seed_decides_everything_and_no_global_state_is_touched(related, make_set) -> None:
    source, target = related(60, (5, 4))
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    found = [fit(make_set, source, target, epochs=2, hidden=4, seed=seed).fingerprint for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(numbers, np.random.get_state()[1])  # noqa: NPY002


def test_too_few_pairs_are_refused(related, make_set) -> None:
    with pytest.raises(DataError, match=r"19 pairs(.|\n)*at least 20"):
        fit(make_set, *related(19, (3, 3)))


def test_a_saved_network_maps_without_torch(related, make_set, tmp_path) -> None:
    source, target = related(60, (5, 4))
    adapter = fit(make_set, source, target, epochs=1, hidden=4)
    save_adapter(adapter, tmp_path / "adapter")
    np.save(tmp_path / "source.npy", source)
    code = textwrap.dedent(f"""
        import sys
        import numpy as np
        from limpet.adapters.storage import load_adapter
        adapter = load_adapter({str(tmp_path / "adapter")!r})
        np.save({str(tmp_path / "images.npy")!r}, adapter.map(np.load({str(tmp_path / "source.npy")!r})))
        print("torch" in sys.modules)
    """)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
    np.testing.assert_array_equal(np.load(tmp_path / "images.npy"), adapter.map(source))


@pytest.mark.parametrize(
    "options",
    [{"hidden": 0}, {"epochs": 0}, {"patience": 0}, {"batch_size": 0}, {"held_out": 0.0}, {"held_out": 1.0},
     {"learning_rate": 0.0}],
)  # fmt: skip
def test_impossible_options_are_refused(options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        build_adapter("residual_mlp", options)
