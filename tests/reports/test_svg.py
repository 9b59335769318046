from __future__ import annotations

from limpet.reports.svg import Scale, clean, cut, shortened


def test_scales_keep_their_ends() -> None:
    scale = Scale(0.1, 0.6, 0, 100)
    assert (scale(0.0), scale(0.35), scale(9.0)) == (0, 50, 100)
    assert Scale(0, 0, 5, 10)(0) == 5 and Scale(2.0, 2.0, 0, 100).ticks() == [2.0]
    assert [round(tick, 9) for tick in scale.ticks()] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_words_are_cut_where_they_do_not_fit() -> None:
    assert shortened("abc", 1) == "a…" and cut("abcdefgh", 30) == "a…h"


def test_names_are_escaped_and_control_characters_dropped() -> None:
    assert clean("a\x00<b>\x1f") == "a&lt;b&gt;"
