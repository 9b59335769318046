"""The suites that come with limpet: each reads, builds all it names, and states what its paper states."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.datasets import DATASETS
from limpet.data.scenarios import SCENARIOS
from limpet.data.text_set import TextSet
from limpet.data.texts import TEXT_DATASETS
from limpet.embeddings import EmbeddingSet, StringArray
from limpet.errors import ConfigError, DataError
from limpet.geometry import Hypersphere
from limpet.methods import build_method
from limpet.models.backbones import BACKBONES
from limpet.models.specs import EncoderSpec
from limpet.support.options import bound
from limpet.support.wording import listed
from limpet.training.experiment import Experiment
from limpet.training.spaces import settle
from limpet_bench.run import planned_trials
from limpet_bench.sessions.plans import PLANS
from limpet_bench.settings import FETCHED, experiment_on, weights_digest
from limpet_bench.steps import embedded_of, without_labels
from limpet_bench.suite import Data, Run, Scenario, Suite, Training
from limpet_bench.suites import SUITES, suite_named
from limpet_bench.tasks import Planner, Row, Task, in_order

from .conftest import SIDE
from .shipped import EVERY
from .writing import with_runs, write_suite

FULL = tuple(name for name in SUITES if not name.endswith("-small") and name not in ("frozen-text", "text-upgrade"))


def experiments(suite: Suite) -> Iterator[tuple[Run, str, Experiment]]:
    """Yield every experiment of a suite: the run, what is trained, and how."""
    for run in suite.runs:
        if run.adapter is None:
            yield run, run.label, Experiment.from_settings(run.training.values(run.method, run.options))
        if suite.track == "images":
            yield run, "independent", Experiment.from_settings(run.reference.values())
            yield run, "old", Experiment.from_settings(run.before.values())


def first_run(suite: Suite, scenario: str, data: str = "") -> Run:
    return next(run for run in suite.runs if run.scenario.name == scenario and data in ("", run.data.name))


def old_of(suite: Suite, scenario: str, data: str = "") -> Training:
    return first_run(suite, scenario, data).before


def new_of(suite: Suite, scenario: str, data: str = "") -> Training:
    return first_run(suite, scenario, data).reference


def test_every_results_table_has_its_suite() -> None:
    tables = {
        "hbct-table-1": 1, "hbct-table-1-hyperbolic": 1, "hbct-figure-5": 1, "advbct-table-2": 1, "advbct-table-3": 1,
        "mixbct-table-2": 1, "mixbct-table-3": 1, "mixbct-table-4": 1, "mixbct-table-5": 1, "mixbct-table-6": 1,
        "mixbct-table-7": 1, "mixbct-table-8": 1, "mixbct-figure-6": 1, "advbct-figure-5": 1, "ndpp-table-2": 1,
        "ndpp-table-3": 1, "ndpp-table-4": 1, "ndpp-table-5": 1, "cvs-table-1-": 5, "cvs-table-2-": 5,
        "hbct-table-2": 1, "hbct-table-3": 1, "hbct-table-4": 1, "hbct-table-5": 1, "hbct-table-6": 1,
        "hbct-table-6-hyperbolic": 1, "hbct-figure-5-euclidean": 1, "hbct-figure-2": 1, "hbct-figure-7": 1,
        "ndpp-figure-4": 1, "ndpp-figure-5": 1, "ndpp-figure-6": 1,
    }  # fmt: skip
    exact = [name for name in tables if tables[name] == 1]
    assert set(exact) <= set(FULL)
    for start in ("cvs-table-1-", "cvs-table-2-"):
        assert sum(name.startswith(start) for name in FULL) == tables[start]


def test_an_unknown_suite_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"Unknown suite 'omniglot-smal'\. Did you mean 'omniglot-small'"):
        suite_named("omniglot-smal")
    with pytest.raises(ConfigError, match=r"There is no file 'mine\.py'"):
        suite_named("mine.py")


def test_a_suite_of_your_own_is_read_by_path(tmp_path: Path) -> None:
    path = write_suite(tmp_path / "mine.py", {"data": {"omniglot": {}}, "methods": {"p2s": {}}})
    assert (suite_named(path).name, suite_named(path).title) == ("mine", "mine")
    assert suite_named(str(path)).rows.keys() == {"p2s"}
    assert suite_named(f"{path}:suite") == suite_named(path)
    with pytest.raises(ConfigError, match="Did you mean 'suite'"):
        suite_named(f"{path}:suit")


FILES = {
    "nothing that builds one": ("def suite(): ...", "no functions that return a suite"),
    "two that build one": (
        "from limpet_bench.suite import Suite\ndef one() -> Suite: ...\ndef two() -> Suite: ...",
        "2 functions that return a suite",
    ),
    "no Python": ("def (:", "cannot be imported: SyntaxError"),
    "an error when it is imported": ("1 / 0", "cannot be imported: ZeroDivisionError"),
    "an error when it builds": (
        "from limpet_bench.suite import Suite\ndef suite() -> Suite: raise KeyError('x')",
        "raises KeyError",
    ),
    "no suite": ("from limpet_bench.suite import Suite\ndef suite() -> Suite: return 1", "returns int"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_without_a_suite_is_refused(what: str, tmp_path: Path) -> None:
    text, said = FILES[what]
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        suite_named(tmp_path / "mine.py")


@pytest.mark.parametrize("name", SUITES)
def test_everything_a_suite_names_can_be_built(name: str) -> None:
    """Methods with their options, encoders, recipes, heads, spaces: none is refused, and no weights are needed."""
    suite = EVERY[name]
    for _run, label, experiment in experiments(suite):
        model = experiment.model
        assert isinstance(model, EncoderSpec)
        assert model.backbone in BACKBONES
        if suite.track == "images" and label != "old" and experiment.geometry.lift_old is None:
            method = build_method(experiment.method, experiment.method_options)
            settle(experiment.geometry, method, dim=model.dim, zeta=model.zeta, head=experiment.head)


@pytest.mark.parametrize("name", SUITES)
def test_options_of_data_scenarios_and_plans_are_known(name: str) -> None:
    suite = EVERY[name]
    sets: Mapping[str, Any] = TEXT_DATASETS if suite.track == "features" else DATASETS
    for run in suite.runs:
        bound(sets[run.data.name].read, {**run.data.options, **run.data.validation}, run.data.name)
        if suite.track == "images":
            bound(SCENARIOS[run.scenario.kind].split, run.scenario.options, run.scenario.name)
        elif suite.track == "sessions":
            bound(PLANS[run.scenario.kind], run.scenario.options, run.scenario.name)
        else:
            bound(sets[run.data.name].read, run.scenario.options, run.scenario.name)
    for name_of_test, asked in suite.test_sets.items():
        bound(DATASETS[asked.data or name_of_test].read, asked.options, name_of_test)


@pytest.mark.parametrize("name", SUITES)
def test_scenarios_that_change_the_architecture_train_two(name: str) -> None:
    suite = EVERY[name]
    for run in suite.runs if suite.track == "images" else ():
        scenario = SCENARIOS[run.scenario.kind]
        assert "backbone" not in run.scenario.name or run.scenario.kind.startswith("enlarged-backbone")
        found = [training.model.backbone for training in (run.before, run.reference)]
        if scenario.old_backbone is not None:
            assert found == [scenario.old_backbone, scenario.new_backbone], (run.scenario.name, found)


@pytest.mark.parametrize("name", FULL)
def test_published_rows_are_about_rows_of_the_suite(name: str) -> None:
    suite = EVERY[name]
    for row in suite.published:
        assert row.label in suite.rows, row
        assert row.scenario in suite.conditions, row
        assert all(0 <= value <= 1 for value in row.scores.values()), row
    if suite.published:  # not where the paper has a picture without numbers
        told = {row.label for row in suite.published}
        told |= {suite.variants[label].row for label in told if label in suite.variants}
        assert told >= set(suite.rows) - set(suite.variants) - {"independent"}
        assert {row.scenario for row in suite.published} == set(suite.conditions)


@pytest.mark.parametrize("name", FULL)
def test_published_scores_are_of_what_the_suite_measures(name: str) -> None:
    suite = EVERY[name]
    own = dict.fromkeys(suite.data, suite.metrics)
    measured = {test: asked.metrics for test, asked in suite.test_sets.items()} or own
    measured = {data: (*metrics, "accuracy") if suite.accuracy else metrics for data, metrics in measured.items()}
    for row in suite.published:
        if row.data in measured:
            assert row.metric in measured[row.data] and (row.scores or row.printed), row
        else:
            assert row.data == listed(list(measured)), row


def test_hbct_trains_a_vision_transformer_by_its_own_recipe() -> None:
    suite = EVERY["hbct-table-1"]
    for data, pixels in (("cifar-100", 32), ("tiny-imagenet", 64)):
        for scenario in ("new-architecture", "both"):
            old, new = old_of(suite, scenario, data), new_of(suite, scenario, data)
            assert (new.recipe.epochs, new.recipe.learning_rate, str(new.weights)) == (80, 0.005, "vit-b-16-in21k")
            assert (old.recipe.epochs, old.recipe.learning_rate, old.weights) == (200, 0.1, None)
            assert old.model.image_size == pixels


def test_hbct_clips_each_generation_farther_out() -> None:
    suite = EVERY["hbct-table-1-hyperbolic"]
    assert old_of(suite, "both").model.zeta == 1.0
    assert new_of(suite, "both").model.zeta == 1.2
    chain = EVERY["hbct-figure-5"]
    assert {old_of(chain, name).model.zeta for name in chain.conditions} == {1.0}
    found = {name[-1]: new_of(chain, name).model for name in chain.conditions}
    assert {generation: (model.name, model.zeta) for generation, model in found.items()} == {
        "2": ("resnet18", 1.2), "3": ("resnet50", 1.4), "4": ("resnet50", 1.6), "5": ("resnet50", 1.8),
    }  # fmt: skip


@pytest.fixture
def official(tmp_path: Path, write_official: Callable[..., Path]) -> Path:
    """The layouts of GLDv2, ROxford, RParis and IJB-C, with a handful of images that show nothing; and weights."""
    for weights in ("resnet-18", "resnet-50"):
        (tmp_path / "weights" / weights).mkdir(parents=True)
        (tmp_path / "weights" / weights / "model.safetensors").write_bytes(b"")
    return write_official(tmp_path)


BUILDINGS = {"roxford": EVERY["advbct-table-2"].test_sets["roxford"]}


def over_landmarks(suite: Suite, channels: int = 3, **settings: Any) -> Suite:
    """Return a suite over 24 images of as many landmarks, which stand in for images that are not here."""

    def there(run: Run) -> Run:
        old, new, reference = (
            replace(one, weights=None).but(model={"channels": channels})
            for one in (run.before, run.training, run.reference)
        )
        return replace(run, data=Data("gldv2"), old=old, training=new, independent=reference)

    return with_runs(suite, there, **settings)


def test_every_generation_of_hbct_is_trained_once_and_searches_all_before_it(official: Path) -> None:
    suite = over_landmarks(EVERY["hbct-figure-5"], test_sets=BUILDINGS)
    rows = {(row.scenario, row.label): row for row in Planner(suite, official).rows()}
    models = [task for task in in_order(row.score for row in rows.values()) if task.kind == "train"]
    assert len(rows) == 20 and len(models) == 1 + 4 + 4, "the first, four of hbct, four independent ones"
    of = {("1-to-2", "old"): 1} | {(f"1-to-{generation}", "model"): generation for generation in range(2, 6)}
    tasks = {generation: _model(rows[name, "hbct"], role) for (name, role), generation in of.items()}
    assert len({task.address for task in tasks.values()}) == 5
    for old, new in combinations(range(1, 6), 2):
        row = rows[f"{old}-to-{new}", "hbct"]
        assert _model(row, "model").address == tasks[new].address
        assert _model(row, "model").needs["old"].address == tasks[new - 1].address
        assert _model(row, "searched").address == _model(row, "old").address == tasks[old].address
        sees = [_model(row, role).settings["rows"] for role in ("independent", "new")]
        assert sees[0] == sees[1] and len({task.settings["rows"] for task in tasks.values()}) == 5


def _model(row: Row, role: str) -> Task:
    """Return the task of a model of a row, by what it is there."""
    found = row.score.needs[role]
    return found if role == "model" else found.needs["model"]


@pytest.mark.parametrize("name", ["ndpp-table-4", "omniglot-chain-small"])
def test_third_models_succeed_the_second_and_are_held_against_the_independent_one(name: str, official: Path) -> None:
    suite = over_landmarks(EVERY[name], test_sets=BUILDINGS, seeds=(0,))
    rows = {(row.scenario, row.label): row for row in Planner(suite, official).rows()}
    for label in suite.rows:
        first, far, near = (rows[scenario, label] for scenario in ("1-to-2", "1-to-3", "2-to-3"))
        assert _model(near, "model").address == _model(far, "model").address
        assert _model(near, "searched").address == _model(first, "new").address
        assert _model(far, "searched").address == _model(far, "old").address == _model(first, "old").address
        assert _model(near, "old").address == _model(first, "independent").address
        if label != "independent":
            assert _model(far, "model").needs["old"].address == _model(first, "new").address
    models = {task.address for task in in_order(row.score for row in rows.values()) if task.kind == "train"}
    assert len(models) == 1 + 2 * len(suite.rows)


def test_mixbct_old_models_have_the_quality_of_their_column() -> None:
    suite = EVERY["mixbct-table-3"]
    found = {}
    for scenario in suite.conditions:
        old, new = old_of(suite, scenario), new_of(suite, scenario)
        assert old.model.dim == new.model.dim
        assert (old.model.name, new.model.name, new.head) == ("iresnet18", "iresnet50", "arcface")
        assert (new.recipe.precision, new.recipe.clip_norm) == ("bf16-mixed", 5.0)
        found[scenario] = (old.model.dim, old.head)
    assert found["extended-class, low quality"] == (128, "softmax")
    assert found["open-data, low quality"] == found["extended-data, low quality"] == (512, "softmax")
    assert found["open-data, high quality"] == (512, "arcface")
    dims = [new_of(EVERY["mixbct-table-2"], name).model.dim for name in EVERY["mixbct-table-2"].conditions]
    assert dims == [128, 256, 512]


def searched(suite: Suite, root: Path) -> dict[str, tuple[Row, dict[str, Any]]]:
    """Return the first row of every test set, and what its queries are embedded with."""
    rows = {row.data: row for row in reversed(list(Planner(suite, root).rows()))}
    return {name: (row, dict(row.score.needs["new"].settings)) for name, row in rows.items()}


def test_landmark_suites_search_buildings_and_the_private_queries(official: Path) -> None:
    for name in ("ndpp-table-2", "ndpp-table-4", "ndpp-table-5", "advbct-table-2", "advbct-table-3"):
        metrics = {"rparis": "map-trapezoid", "roxford": "map-trapezoid", "gldv2": "map@100"}
        if name == "advbct-table-2":
            del metrics["gldv2"]
        suite = EVERY[name]
        found = searched(suite, official)
        assert {data: row.metric for data, (row, _) in found.items()} == metrics, name
        for data, (row, embedded) in found.items():
            protocol = row.score.settings["protocol"]
            chosen = {"usage": "Private"} if data == "gldv2" else {"difficulty": "medium"}
            assert protocol["options"] == chosen
            assert embedded["data"]["options"].items() >= {"image_size": 224, "fit": "squash"}.items()
            assert data == "gldv2" or embedded["data"]["options"]["crop_queries"] is False
            assert (embedded["form"], embedded["flip"]) == ("points", False)
        assert suite.runs[0].data == Data("gldv2", {"image_size": 224, "fit": "squash", "usage": "Private"})


def test_face_suites_compare_templates_of_ijbc(official: Path) -> None:
    for name in ("mixbct-table-2", "mixbct-table-3", "mixbct-table-4", "mixbct-table-5"):
        assert EVERY[name].runs[0].data == Data("ms1mv3", {"held_out_classes": 0.0})
        found = searched(over_landmarks(EVERY[name]), official)
        assert {
            data: (row.metric, row.score.settings["metrics"], row.score.settings["protocol"]["name"])
            for data, (row, _) in found.items()
        } == {
            "ijbc": ("tar@1e-4", ["tar@1e-4"], "ijbc-verification"),
            "ijbc 1:N": ("tpir@1e-2", ["tpir@1e-2"], "ijbc-identification"),
        }
        one, other = (embedded for _, embedded in found.values())
        assert one == other and (one["form"], one["flip"]) == ("features", True)


def test_the_upper_bound_of_face_suites_has_learnt_all_people(official: Path) -> None:
    suite = over_landmarks(EVERY["mixbct-table-2"])
    for row in Planner(suite, official).rows():
        bound, new = (_model(row, role) for role in ("independent", "new"))
        assert (bound.work, new.work) == (24 * 35, 17 * 35), "images times epochs"
        assert bound.settings["experiment"]["model"]["dim"] == new.settings["experiment"]["model"]["dim"]


def weights_of(suite: Suite) -> set[str]:
    """Return the published weights that any model starts from."""
    trainings = [training for run in suite.runs for training in (run.training, run.reference, run.before)]
    return {training.weights for training in trainings if training.weights}


def test_half_precision_is_where_papers_have_it_or_leave_it_open() -> None:
    full = {"advbct-figure-5", "advbct-table-2", "advbct-table-3"}
    full |= {name for name in FULL if name.startswith("cvs-") and not weights_of(EVERY[name])}
    for name in FULL:
        found = EVERY[name].runs[0].reference.recipe
        expected = ("32-true", False) if name in full else ("bf16-mixed", True)
        assert (found.precision, found.channels_last) == expected, name


def test_landmark_suites_divide_by_the_papers_shares() -> None:
    assert {
        run.scenario.name: (run.scenario.options["old_fraction"], run.scenario.options["new_fraction"])
        for run in EVERY["ndpp-table-4"].runs
    } == {"1-to-2": (0.09, 0.3), "1-to-3": (0.09, 1.0), "2-to-3": (0.3, 1.0)}
    for name in ("advbct-table-3", "ndpp-table-2"):
        assert all(run.scenario.options["seed"] == 666 for run in EVERY[name].runs)
    assert str(new_of(EVERY["advbct-table-3"], "enlarged-backbone-data").weights) == "resnet-50"
    assert str(old_of(EVERY["advbct-table-3"], "enlarged-backbone-data").weights) == "resnet-18"


def test_sessions_bring_the_papers_classes() -> None:
    classes = {"cifar-100": 100, "tiny-imagenet": 200, "stanford-dogs": 120, "inat-m": 200, "product-m": 2743}
    for name in classes:
        for table in ("cvs-table-1", "cvs-table-2"):
            plan = first_run(EVERY[f"{table}-{name}"], "general-incremental").scenario.options
            assert plan["first_classes"] + plan["new_classes"] * (plan["sessions"] - 1) == classes[name]


def test_what_tables_of_cvs_have_in_common_is_learnt_once(images: Path) -> None:
    """On small images in place of CIFAR-100: a learner is the same task in all tables that have it."""
    plan = Scenario("general-incremental", {"first_classes": 4, "new_classes": 4, "sessions": 3, "validation": 1})
    data, found = Data(str(images), {"image_size": SIDE, "channels": 1}), dict[tuple[str, str], str]()

    def small(run: Run) -> Run:
        return replace(
            run, data=data, scenario=plan, training=run.training.but(model={"channels": 1, "image_size": SIDE})
        )

    for table in ("table-1-cifar-100", "table-2-cifar-100", "table-c-3", "table-c-4", "table-c-5-cifar-100"):
        suite = EVERY[f"cvs-{table}"]
        runs = [run for run in suite.runs if run.scenario.name == plan.name]
        suite = with_runs(replace(suite, runs=runs, seeds=(0,), test_images=2, accuracy=False), small)
        found |= {(table[6:9], row.label): row.score.address for row in Planner(suite, None).rows()}
    same = [
        {("1-c", "cvs"), ("2-c", "L_c + L_m + L_d"), ("c-3", "cvs"), ("c-4", "cvs"), ("c-5", "cvs")},
        {("1-c", "cvs without replay"), ("2-c", "L_c + L_m + L_d without replay")},
        {("1-c", "finetune"), ("2-c", "L_c")},
        {("2-c", "L_c + L_d"), ("c-3", "none"), ("c-4", "none")},
        *({("1-c", name), ("c-5", name)} for name in ("rwalk", "rainbow")),
    ]
    assert [len({found[one] for one in names}) for names in same] == [1] * len(same)
    assert len(set(found.values())) == len(found) - sum(len(names) - 1 for names in same)


def test_published_numbers_are_those_of_the_golden_tables(golden_tables: list[dict[str, Any]]) -> None:
    """Of AdvBCT's Table 3, which were transcribed on their own."""
    methods = {"independent": "independent", "BCT": "bct", "UniBCT": "unibct", "AdvBCT": "advbct", "LCE": "lce",
               "NDPP": "ndpp", "ODPP": "odpp", "RACT": "hot_refresh"}  # fmt: skip
    scenarios = {"enlarged backbone (data)": "enlarged-backbone-data"}
    compared = 0
    for known in golden_tables:
        if (known["paper"], known["table"]) != ("AdvBCT", "Table 3") or known["method"] not in methods:
            continue
        label, scenario = methods[known["method"]], scenarios.get(known["scenario"], known["scenario"])
        rows = [row for row in EVERY["advbct-table-3"].published if (row.label, row.scenario) == (label, scenario)]
        single, averaged = rows[:3], rows[3]
        assert [round(100 * row.scores["cross"], 2) for row in single] == known["cross"]
        assert [round(100 * row.scores["self_new"], 2) for row in single] == known["new_self"]
        assert {name.lower(): value for name, value in known["printed"].items() if value is not None} == {
            name.replace("p_score", "p_1"): value for name, value in averaged.printed.items()
        }
        compared += 1
    assert compared >= 9


@pytest.fixture(scope="module")
def golden_tables() -> list[dict[str, Any]]:
    """Rows of the papers' tables that are consistent in themselves."""
    tables = json.loads((Path(__file__).parent.parent / "golden" / "paper_tables.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = tables["consistent_sigmoid"]
    return rows


@pytest.fixture(scope="module")
def root() -> Path:
    """Folder of the data sets."""
    if "LIMPET_DATA" not in os.environ:
        pytest.skip("LIMPET_DATA is not set")
    return Path(os.environ["LIMPET_DATA"])


@pytest.fixture
def characters(tmp_path: Path) -> Path:
    """Folder of an Omniglot of half the classes to train on, in blank drawings of a few pixels."""
    (tmp_path / "omniglot").mkdir()
    for part, classes in (("background", 480), ("evaluation", 40)):
        labels = np.repeat(np.arange(classes), 20).reshape(-1, 20)
        np.savez(
            tmp_path / "omniglot" / f"images_{part}.npz", images=np.ones((*labels.shape, 2, 2), bool), labels=labels
        )
    return tmp_path


@pytest.mark.parametrize(
    ("name", "folder", "rows", "trials"),  # rows of one method that differ in what is tuned share what is alike
    [("omniglot-small", "omniglot", 14 * 3, 15 * 3 * 3 - 6), ("tiny-imagenet-small", "tiny-imagenet-32", 14 * 3, 0)],
)
def test_small_suites_plan_what_they_say(
    name: str, folder: str, rows: int, trials: int, characters: Path, request: pytest.FixtureRequest
) -> None:
    root = characters if folder == "omniglot" else request.getfixturevalue("root")
    if not (root / folder).is_dir():
        pytest.skip(f"no folder '{folder}' in LIMPET_DATA")
    suite = replace(EVERY[name], seeds=(0,))
    planned = list(Planner(suite, root).rows())
    assert len({row.score.address for row in planned}) == rows
    assert len({row.score.address for row in planned_trials(suite, root)}) == trials
    sees = {"extended-class": "all", "extended-data": "all", "open-class": "the classes that the old model lacks"}
    independent = {(sees[row.scenario], row.score.needs["independent"].address) for row in planned}
    assert len(independent) == len({address for _, address in independent}) == 2, "models that see the same are one"


def test_the_small_chain_and_the_small_sessions_plan_what_they_say(characters: Path) -> None:
    tasks: dict[str, Counter[str]] = {}
    for name in ("omniglot-chain-small", "omniglot-sessions-small"):
        suite = replace(EVERY[name], seeds=(0,))
        tasks[name] = Counter(task.kind for task in in_order(row.score for row in Planner(suite, characters).rows()))
        assert EVERY[name].seeds == (0, 1, 2)
    assert tasks["omniglot-chain-small"] == {"train": 1 + 6 * 2, "embed": 13, "score": 6 * 3}
    assert tasks["omniglot-sessions-small"] == {"first-session": 3, "sessions": 9 * 3}


def test_heads_share_the_texts_that_a_model_has_embedded(root: Path) -> None:
    if not (root / "banking77").is_dir():
        pytest.skip("no folder 'banking77' in LIMPET_DATA")
    whole = EVERY["frozen-text"]
    suite = replace(whole, runs=[run for run in whole.runs if run.data.name == "banking77"])
    planned = list(Planner(suite, root).rows())
    assert len({row.score.address for row in planned}) == 15 * 2 * 3
    wholes = {row.score.needs[side].needs["whole"].address for row in planned for side in ("old", "independent")}
    assert len(wholes) == 2  # one per model, whatever the seed and the scenario


def test_published_weights_are_found_beside_the_data(tmp_path: Path) -> None:
    values = Training(weights="tiny").values("p2s")
    with pytest.raises(DataError, match="The published weights 'tiny' are not there"):
        experiment_on(values, "cpu", tmp_path)
    for name, model in FETCHED.items():
        with pytest.raises(
            DataError, match=rf"weights/{name}/model.safetensors(.|\n)*fetch '{model}' and put its files there"
        ):
            weights_digest(name, tmp_path)
    assert set().union(*map(weights_of, EVERY.values())) <= FETCHED.keys()
    (tmp_path / "weights" / "tiny").mkdir(parents=True)
    (tmp_path / "weights" / "tiny" / "model.safetensors").write_bytes(b"one")
    found = experiment_on(values, "cpu", tmp_path)
    assert found.weights == tmp_path / "weights" / "tiny"
    first = weights_digest("tiny", tmp_path)
    (tmp_path / "weights" / "tiny" / "model.safetensors").write_bytes(b"two")
    assert weights_digest("tiny", tmp_path) != first


def embedding_set(ids: list[str]) -> EmbeddingSet:
    vectors = np.random.default_rng(len(ids)).normal(size=(len(ids), 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return EmbeddingSet(ids=StringArray.of(ids), vectors=vectors, fingerprint="declared:m", space=Hypersphere(3))


def test_parts_of_a_split_are_taken_out_of_the_whole() -> None:
    one, two = embedding_set(["a", "b"]), embedding_set(["c", "d", "e"])
    whole = without_labels([one, two])
    texts, ids = (StringArray.of(values) for values in (["text d", "text a"], ["d", "a"]))
    wanted = TextSet(texts, np.array([1, 0]), ("x", "y"), ids)
    part = embedded_of(whole, wanted)
    assert list(part.ids) == ["d", "a"]
    assert [list(part.class_names or ())[label] for label in part.labels] == ["y", "x"]
    assert np.array_equal(part.vectors, np.stack([two.vectors[1], one.vectors[0]]))
    with pytest.raises(DataError, match="1 items were not embedded"):
        embedded_of(one, wanted)
