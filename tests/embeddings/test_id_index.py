from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.embeddings.string_array import IdIndex, StringArray


@settings(deadline=None, max_examples=50)
@given(
    parts=st.lists(st.lists(st.text(max_size=3), max_size=8), max_size=3), wanted=st.lists(st.text(max_size=3)),
    hash_of=st.sampled_from([hash, len, lambda name: 0]),
)  # fmt: skip
def test_the_index_finds_what_a_search_of_all_ids_finds(
    parts: list[list[str]], wanted: list[str], hash_of: Callable[[str], int]
) -> None:
    """Also where different ids have one hash, and where an id is there twice."""
    ids = [name for part in parts for name in part]
    wanted = wanted + ids[::2]
    index = IdIndex(*(StringArray.of(part) for part in parts), hash_of=hash_of)
    rows = index.find(wanted)
    assert rows.tolist() == [ids.index(name) if name in ids else -1 for name in wanted]
    found = {}
    for part, which, places in index.by_part(rows[rows >= 0]):
        found |= {int(row): parts[part][place] for row, place in zip(which, places, strict=True)}
    assert [found[row] for row in range(len(found))] == [name for name in wanted if name in ids]
