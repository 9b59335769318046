from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.data.batches import EpochBatches, LengthBatches, PairBatches
from limpet.errors import ConfigError

LENGTHS = np.random.default_rng(0).integers(1, 60, 1000)


def rows_of(batches: EpochBatches, epoch: int = 0, step: int = 0) -> list[list[int]]:
    batches.set_position(epoch, step)
    return [place.rows.tolist() for place in batches]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=200),
    batch_size=st.integers(1, 40),
    seed=st.integers(0, 5),
    processes=st.integers(1, 3),
)
def test_an_epoch_holds_every_item_once(lengths: list[int], batch_size: int, seed: int, processes: int) -> None:
    if len(lengths) < processes:
        return
    place = {"batch_size": batch_size, "seed": seed, "world_size": processes}
    parts = [rows_of(LengthBatches(np.array(lengths), rank=rank, **place)) for rank in range(processes)]
    for step in zip(*parts, strict=True):
        assert len({len(rows) for rows in step}) == 1 <= len(step[0]) <= batch_size
    sizes = [len(rows) for rows in parts[0]]
    assert max(sizes) - min(sizes) <= 1
    seen = sorted(row for part in parts for rows in part for row in rows)
    assert len(set(seen)) == len(seen) == len(lengths) // processes * processes


def test_a_run_goes_on_within_an_epoch_with_the_batches_it_has_not_seen() -> None:
    whole = rows_of(LengthBatches(LENGTHS, batch_size=32, seed=3), epoch=2)
    assert rows_of(LengthBatches(LENGTHS, batch_size=32, seed=3), epoch=2, step=11) == whole[11:]
    assert rows_of(LengthBatches(LENGTHS, batch_size=32, seed=3), epoch=1) != whole
    assert rows_of(LengthBatches(LENGTHS, batch_size=32, seed=4), epoch=2) != whole


def test_little_of_a_batch_is_padding_and_long_ones_come_at_any_time() -> None:
    def padding(batches: EpochBatches) -> float:
        read = [LENGTHS[rows] for rows in rows_of(batches)]
        return 1 - float(sum(map(np.sum, read))) / sum(len(one) * one.max() for one in read)

    shuffled = padding(EpochBatches(len(LENGTHS), batch_size=32, seed=0))
    assert padding(LengthBatches(LENGTHS, batch_size=32, seed=0)) < 0.1 < 0.4 < shuffled
    longest = [LENGTHS[rows].max() for rows in rows_of(LengthBatches(LENGTHS, batch_size=32, seed=0))]
    assert longest != sorted(longest) and longest != sorted(longest, reverse=True)


def test_a_place_beyond_the_epoch_is_refused() -> None:
    with pytest.raises(ConfigError, match="Step 33"):
        LengthBatches(LENGTHS, batch_size=32, seed=0).set_position(0, 33)


def test_batches_of_pairs_hold_every_pair_once_with_its_texts_side_by_side() -> None:
    pairs = np.random.default_rng(1).integers(0, len(LENGTHS), (101, 3))
    batches = [np.array(rows).reshape(-1, 3) for rows in rows_of(PairBatches(pairs, LENGTHS, batch_size=32, seed=0))]
    assert sorted(map(len, batches)) == [25, 25, 25, 26]
    assert sorted(map(tuple, np.concatenate(batches).tolist())) == sorted(map(tuple, pairs.tolist()))
