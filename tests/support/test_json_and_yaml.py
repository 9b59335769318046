"""JSON and YAML that nobody could use, or that would stop whoever reads them, is refused where it is read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from limpet.cli import main
from limpet.errors import ConfigError
from limpet.support.documents import DEPTH_LIMIT, SIZE_LIMIT, parsed_json, parsed_yaml, read_yaml

ROOT = Path(__file__).parents[2]
LAUGHS = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))])

NOT_YAML = {
    "nested without end": ("name: " + "[" * 5000, "holds itself, or too much"),
    "nested deeper than anybody writes": ("name: " + "[" * 80 + "]" * 80, f"at most {DEPTH_LIMIT} lists"),
    "a list in itself": ("name: &a [1, *a]", "holds itself"),
    "a mapping in itself": ("name: &a {b: *a}", "holds itself"),
    "a mapping as its own key": ("&a {? *a : 1}", "holds itself"),
    "aliases that multiply": (LAUGHS, "too much"),
    "a date of no calendar": ("name: 2024-02-31", r"line 1, column 7: '2024-02-31' is no timestamp"),
    "a number longer than Python converts": ("name: " + "1" * 5000, r"line 1, column 7: '1+\.\.\. is no int"),
    "a number longer than Python writes": ("name: 0x" + "f" * 5000, "no whole number of 64 bits"),
    "a number of more than 64 bits": ("name: 9223372036854775808", "no whole number of 64 bits"),
    "minutes without end": ("name: 1" + ":59" * 5000, "no whole number of 64 bits"),
    "a key twice": ("name: 1\nname: 2", "'name' stands twice in .*, in lines 1 and 2"),
    "a key that is a list": ("? [1]\n: 2", "line 1, column 3: found unhashable key"),
    "an empty number": ('name: !!int ""', "'' is no int"),
    "a word as a truth value": ("name: !!bool maybe", "'maybe' is no bool"),
    "a word as a date": ("name: !!timestamp soon", "'soon' is no timestamp"),
    "an object of Python": ("name: !!python/object/apply:os.getpid []", "could not determine a constructor"),
    "a control character": ("name: \x07", "no valid YAML"),
    "two documents": ("a: 1\n---\nb: 2", "but found another document"),
    "nothing but spaces": ("  ", "holds NoneType"),
}


@pytest.mark.parametrize("what", NOT_YAML)
def test_yaml_that_nobody_could_use_is_refused(what: str, tmp_path: Path) -> None:
    text, said = NOT_YAML[what]
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        read_yaml(path, "a mapping")
    assert "a.yaml" in refused.value.given and "\n" not in refused.value.given


def test_a_file_larger_than_people_write_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [" + "1, " * SIZE_LIMIT + "]")
    started = time.process_time()
    with pytest.raises(ConfigError, match="at most 1 MiB"):
        read_yaml(tmp_path / "a.yaml", "a mapping")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["a: 1", "[train", "data = 'a'\ndata = 'b'", "data = '\x07'", "data = " + "[" * 5000])
def test_settings_that_are_no_toml_are_refused_without_a_traceback(text: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    assert main(["train", "--config", str(path)]) == 2
    assert "a.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "word", ["[" * 3000, "9" * 5000, "2024-02-31", "&a [*a]", "{a: 1, a: 2}", "!!bool x", "\x1b[31m", "0x" + "f" * 5000]
)
@pytest.mark.parametrize("option", ["--recipe.epochs", "--method-options.weight", "--method", "--seed"])
def test_words_that_are_no_value_are_refused_too(option: str, word: str, tmp_path: Path, capsys) -> None:
    assert (
        main(["train", "--data", "glyphs", "--method", "independent", "--out", str(tmp_path / "out"), option, word])
        == 2
    )
    said = capsys.readouterr().err
    assert "limpet train: `limpet train` was given" in said or option.split(".")[-1].lstrip("-") in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, r"1111\.\.\. is no number of 64 bits"),
        ("-9223372036854775809", "no number of 64 bits"),
        ("[1e999]", "1e999 is no number"),
        ("NaN", "NaN is no number"),
        ("-Infinity", "-Infinity is no number"),
        ("{", "Expecting"),
        ("\ud800", "JSON|utf|Expecting"),
    ],
)
def test_json_that_nobody_could_use_is_a_value_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed_json(text)


def test_plain_values_come_back() -> None:
    assert parsed_json('{"a": [1, -2.5e3, null, true, "x"]}') == {"a": [1, -2500.0, None, True, "x"]}
    assert parsed_json("18446744073709551615") == 2**64 - 1
    assert parsed_yaml("a: &x [1, 2]\nb: *x\nc: {<<: {d: 1}, e: 0.5}", "here", "") == {
        "a": [1, 2], "b": [1, 2], "c": {"d": 1, "e": 0.5}
    }  # fmt: skip
    assert parsed_yaml("", "here", "") is None


def test_yaml_is_what_pyyaml_alone_makes_of_it() -> None:
    """Whether libyaml reads it or not."""
    for path in ROOT.glob("tests/bench/paper_settings/*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert parsed_yaml(text, path.name, "a mapping") == yaml.load(text, yaml.SafeLoader)


def test_what_a_merge_brings_may_be_said_again(tmp_path: Path) -> None:
    text = (
        "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: [{<<: *b, x: 4}, *a]\nd: {<<: *a, <<: {z: 5}}\n1: one\n'1': text"
    )
    merged = {"x": 1, "y": 3}
    assert parsed_yaml(text, "here", "a suite") == {
        "a": {"x": 1, "y": 2}, "b": merged, "c": [{**merged, "x": 4}, {"x": 1, "y": 2}],
        "d": {"x": 1, "y": 2, "z": 5}, 1: "one", "1": "text"
    }  # fmt: skip
