"""Reading YAML in which a key that is written twice is refused, where others keep the last one without a word."""

from __future__ import annotations

from typing import Any

import yaml

from holdfast.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"

OTHER_NAMES = {
    "methods": "{method: p2s}",
    "scenarios": "{scenario: extended-class}",
    "test_sets": "{data: omniglot}",
}
"""Parts of a suite whose names are free, and how an entry then says what it is of."""


def read_yaml(text: str, where: str) -> Any:
    """Return what a YAML document holds, as plain values.

    Args:
        text: The document.
        where: What to call it in a message.

    Raises:
        ConfigError: A mapping has a key twice.
        yaml.YAMLError: It is no YAML.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_repeated(node, where, (), set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_repeated(node: yaml.Node, where: str, place: tuple[str, ...], seen: set[int]) -> None:
    """Refuse a key that stands twice in one mapping; what `<<` brings may be said again."""
    if id(node) in seen:  # an alias of what was looked at before, or of what it stands in
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _refuse_repeated(value, where, (*place, str(number)), seen)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[tuple[str, str], int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
            if (key.tag, name) in lines:
                raise _repeated((*place, name), where, lines[key.tag, name], line)
            lines[key.tag, name] = line
        _refuse_repeated(value, where, (*place, name), seen)


def _repeated(place: tuple[str, ...], where: str, first: int, again: int) -> ConfigError:
    lines = f"both in line {first}" if first == again else f"in lines {first} and {again}"
    as_another = OTHER_NAMES.get(place[0]) if len(place) == 2 else None
    hint = f"or give one another name, which is free: 'another name': {as_another}; " if as_another else ""
    return ConfigError(
        f"The key '{'.'.join(place)}' stands twice in {where}, {lines}.",
        expected="every key once: of two, only the last would count",
        to_do=f"leave one out, {hint}nothing was run." if hint else "leave one out; nothing was run.",
    )
