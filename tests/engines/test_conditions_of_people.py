"""Conditions as people type them."""

from __future__ import annotations

import pytest

from limpet.engines.filters import Condition, checked
from limpet.engines.where import read_filter
from limpet.errors import ConfigError

COLUMNS = {"label": "text", "price": "integer"}


@pytest.mark.parametrize("word", ["label<3", "label>=10", "label<2.5e3"])
def test_numbers_are_not_compared_among_texts(word: str) -> None:
    with pytest.raises(ConfigError, match="'10' comes before '3': the column 'label' holds texts"):
        read_filter([word], COLUMNS)


def test_texts_are_compared_as_texts_and_numbers_as_numbers() -> None:
    for word in ("label=3", "label!=3", "label<m", "price<3", "label<2024", "label<00501", "label=<b>", "label=!x"):
        assert isinstance(read_filter([word], COLUMNS), Condition)
    assert checked(Condition("label", "<", "3"), COLUMNS) == Condition("label", "<", "3"), (
        "who writes a condition in Python knows the column"
    )


@pytest.mark.parametrize("word", ["price=1_0", "price<\N{ARABIC-INDIC DIGIT FOUR}", "price IN (1, 1_0)"])
def test_what_only_python_reads_as_a_number_is_none(word: str) -> None:
    with pytest.raises(ConfigError, match="The condition 'price"):
        read_filter([word], COLUMNS)


@pytest.mark.parametrize("word", ["price<<3", "price==3", "label<=>3"])
def test_a_second_comparison_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="more than one comparison"):
        read_filter([word], COLUMNS)


def test_a_column_with_a_dot_in_its_name_is_no_way_into_json() -> None:
    assert read_filter(["meta.topic=red"], {"meta": "text", "meta.topic": "text"}) == Condition(
        "meta.topic", "=", "red"
    )
