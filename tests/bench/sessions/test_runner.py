"""Sessions one after another: galleries that stay, numbers that do not depend on interruptions, refusals."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.embeddings import storage
from limpet.errors import ConfigError, DataError
from limpet.methods import METHODS
from limpet.models.release import load_release
from limpet.models.specs import EncoderSpec
from limpet.training.experiment import Experiment, Geometry, Recipe
from limpet.training.warm_start import load_carried
from limpet_bench.sessions.plans import PLANS, Setting, disjoint, general_incremental
from limpet_bench.sessions.results import Bounds, SessionRecord, SessionsResults, average_recall, forgetting
from limpet_bench.sessions.runner import run_sessions

LEARNERS = ("finetune", "joint", "bct", "lwf", "mmd", "ewc", "rwalk", "rainbow", "cvs")


def bars(per_class: int, classes: int = 6, side: int = 12, seed: int = 0, prefix: str = "i") -> ImageSet:
    """Noisy images with a bright bar whose place tells the class."""
    labels = np.repeat(np.arange(classes), per_class)
    pixels = np.random.default_rng(seed).integers(0, 60, (len(labels), 1, side, side))
    for row, label in enumerate(labels):
        pixels[row, 0, 2 * label : 2 * label + 2] += 120
    names = tuple(f"bar {label}" for label in range(classes))
    return ImageSet(
        ArrayImages(pixels.astype(np.uint8)), labels, names, [f"{prefix}{row}" for row in range(len(labels))]
    )


def three_sessions() -> Setting:
    """Three sessions of two new classes each, with fresh images of the old ones."""
    images = bars(16)
    plan = general_incremental(
        images.labels, first_classes=2, new_classes=2, old_share=0.3, sessions=3, validation=1, seed=3
    )
    return Setting.of("bars", images, bars(3, seed=1, prefix="q"), plan, budget=8)


def small() -> Experiment:
    return Experiment(
        method="finetune",
        model=EncoderSpec(dim=8, channels=1, image_size=12, backbone_options={"filters": 4}),
        head="normalised",
        recipe=Recipe(epochs=2, batch_size=8, learning_rate=0.05, accelerator="cpu"),
        seed=5,
    )


@pytest.fixture(scope="module")
def setting() -> Setting:
    return three_sessions()


@pytest.fixture(scope="module")
def base() -> Experiment:
    return small()


def comparable(records: list[SessionRecord]) -> list[dict[str, Any]]:
    """Everything but the seconds."""
    return [record.model_dump(exclude={"seconds"}) for record in records]


@pytest.fixture(scope="module")
def finished(setting: Setting, base: Experiment, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """All nine learners, uninterrupted."""
    folder = tmp_path_factory.mktemp("sessions")
    learners = {name: replace(base, method=name) for name in LEARNERS}
    return folder, run_sessions(setting, learners, folder)


def test_every_learner_ends_with_scores_of_every_session(finished, setting) -> None:
    _, records = finished
    for name in LEARNERS:
        assert [record.queries for record in records[name]] == [6, 12, 18]
        for session, record in enumerate(records[name]):
            assert 0 <= record.recall["1"] <= record.recall["2"] <= record.recall["4"] <= 1
            assert [found is None for found in record.recall_by_home] == [home > session for home in range(3)]
            mean = sum(r * n for r, n in zip(record.recall_by_home, record.queries_by_home, strict=True) if n)
            assert mean / record.queries == pytest.approx(record.recall["1"])
            assert record.fingerprint.startswith("release:")
    assert records["joint"][-1].recall["1"] > 0.5  # it learns what bars are


def test_all_learners_share_the_first_session_and_one_that_trains_its_own_ends_there_too(finished) -> None:
    folder, records = finished
    assert len({record[0].fingerprint for record in records.values()}) == 1
    assert (folder / "rwalk" / "session-1" / "model.safetensors").exists()
    assert not (folder / "cvs" / "session-1" / "model.safetensors").exists()
    assert len({record[1].fingerprint for record in records.values()}) == len(LEARNERS)


def test_galleries_are_appended_and_never_embedded_again_but_by_the_one_that_says_so(finished, setting) -> None:
    folder, records = finished
    sizes = [len(setting.plan.rows(session)) for session in range(3)]
    for name in LEARNERS:
        found = json.loads((folder / name / "session-3" / "session.json").read_text())
        parts = [storage.load(folder / path) for path in found["galleries"]]
        prints = [record.fingerprint for record in records[name]]
        if METHODS[name].gallery_policy == "reindex":
            assert [len(part) for part in parts] == [sum(sizes)]
            assert [part.fingerprint for part in parts] == prints[-1:]
            assert [record.embedded_rows for record in records[name]] == np.cumsum(sizes).tolist()
        else:
            assert [len(part) for part in parts] == sizes
            assert [part.fingerprint for part in parts] == prints
            assert [record.embedded_rows for record in records[name]] == sizes
        assert [record.gallery_rows for record in records[name]] == np.cumsum(sizes).tolist()
        ids = [item for part in parts for item in part.ids]
        assert sorted(ids) == sorted(setting.images.ids[setting.seen_rows(2)])


def test_a_session_begins_with_the_weights_and_the_classifier_rows_of_the_one_before(setting, base, tmp_path) -> None:
    frozen = replace(base, recipe=replace(base.recipe, learning_rate=1e-12, weight_decay=0.0))
    run_sessions(setting, {"finetune": frozen}, tmp_path, sessions=2)
    first, second = load_release(tmp_path / "session-1"), load_release(tmp_path / "finetune" / "session-2")
    assert second.classes[: len(first.classes)] == first.classes and len(second.classes) == 4
    np.testing.assert_allclose(second.head.weight[:2], first.head.weight, atol=1e-6)
    for name, value in first.encoder.named_parameters():
        np.testing.assert_allclose(second.encoder.state_dict()[name], value, atol=1e-6, err_msg=name)


def test_exemplars_stay_within_one_budget_and_are_replayed_by_those_that_have_a_memory(finished, setting) -> None:
    folder, records = finished
    for name in LEARNERS:
        kept = [json.loads((folder / name / f"session-{n}" / "session.json").read_text())["memory"] for n in (1, 2)]
        replayed = [record.replayed for record in records[name]]
        if name == "joint":
            assert replayed == [0, *np.cumsum([len(setting.plan.rows(session)) for session in range(2)])]
        elif name in ("cvs", "rwalk", "rainbow"):
            assert replayed == [0, len(kept[0]), len(kept[1])] and 0 < max(replayed) <= 8
            assert set(kept[0]) <= set(setting.plan.rows(0)) and set(kept[1]) <= set(setting.seen_rows(1))
        else:  # bct replays only where a session brings no earlier class
            assert replayed == [0, 0, 0]


def test_bct_replays_where_a_session_brings_no_earlier_class(base, tmp_path) -> None:
    images = bars(8)
    plan = disjoint(images.labels, sessions=3, validation=1)
    setting = Setting.of("bars", images, bars(2, seed=1, prefix="q"), plan, budget=6)
    found = run_sessions(setting, {"bct": replace(base, method="bct")}, tmp_path)["bct"]
    assert [record.replayed for record in found] == [0, 6, 4]  # 6 // 2 classes, then 6 // 4


@contextmanager
def stopping(after: int, counted: list[int]):
    """Be interrupted at a step of all that are trained."""

    def progress(event: dict[str, Any]) -> None:
        counted[0] += 1
        if counted[0] == after:
            raise KeyboardInterrupt

    yield progress


@pytest.mark.parametrize("name", ["cvs", "rwalk", "ewc", "rainbow"])
def test_interrupted_anywhere_it_ends_with_the_same_numbers(
    name, setting, base, finished, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("limpet.training.loop.CHECKPOINT_PAUSE", 0.0)
    learners, counted, stops = {name: replace(base, method=name)}, [0], 0
    for after in (3, 9, 17, 26):  # in the first session, at an epoch's end, in later sessions
        try:
            run_sessions(setting, learners, tmp_path, on_run=lambda title, after=after: stopping(after, counted))
        except KeyboardInterrupt:
            stops += 1
    assert stops >= 3
    assert comparable(run_sessions(setting, learners, tmp_path)[name]) == comparable(finished[1][name])


@pytest.mark.parametrize("lost", ["session.json", "gallery.safetensors"])
def test_what_was_not_written_yet_is_done_again_and_nothing_else(lost, setting, base, finished, tmp_path) -> None:
    learners = {"cvs": replace(base, method="cvs")}
    run_sessions(setting, learners, tmp_path, sessions=2)
    place = tmp_path / "cvs" / "session-2"
    for name in {lost, "session.json"}:
        (place / name).unlink()
    before = (place / "model.safetensors").stat().st_mtime_ns
    assert comparable(run_sessions(setting, learners, tmp_path)["cvs"]) == comparable(finished[1]["cvs"])
    assert (place / "model.safetensors").stat().st_mtime_ns == before
    assert not (place / "cache").exists()


@pytest.mark.slow
def test_killed_at_random_it_ends_with_the_same_numbers(setting, base, tmp_path) -> None:
    learners = {"cvs": replace(base, method="cvs")}
    run_sessions(setting, learners, tmp_path / "imports", sessions=1)  # what it needs, and lives share
    begun = time.process_time()
    expected = run_sessions(setting, learners, tmp_path / "whole")
    took = time.process_time() - begun

    def life(seconds: float) -> int:
        """Go on for so many seconds of the processor, however busy it is; return how that ended."""
        child = os.fork()
        if not child:
            try:
                signal.setitimer(signal.ITIMER_PROF, seconds)  # whose signal kills
                run_sessions(setting, learners, tmp_path / "killed")
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    generator, ended = np.random.default_rng(0), list[int]()
    while not ended or ended[-1] == -signal.SIGPROF:  # the first ones too short to finish, later ones long enough
        ended.append(life(took * generator.uniform(0.1, 0.5 + 0.1 * len(ended))))
    assert ended[-1] == 0 and len(ended) >= 3, "killed twice at least"
    records = run_sessions(setting, learners, tmp_path / "killed")
    assert comparable(records["cvs"]) == comparable(expected["cvs"])


def test_a_learner_hands_on_what_it_knows_of_the_shared_first_session(finished) -> None:
    folder, _ = finished
    assert any("importance" in name or "fisher" in name for name in load_carried(folder / "ewc" / "session-1"))
    assert load_carried(folder / "finetune" / "session-1") == {}
    assert load_carried(folder / "cvs" / "session-3")["sums"].shape == (2, 4, 8)  # sessions, known classes, D


def test_the_importance_of_the_first_session_is_not_nothing(finished) -> None:
    folder, _ = finished
    carried = load_carried(folder / "ewc" / "session-1")
    assert sum(float(values.abs().sum()) for values in carried.values()) > 0


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_runs(plan, base, tmp_path) -> None:
    images = bars(12)
    asked = {"general-incremental": {"first_classes": 2, "new_classes": 2, "old_share": 0.3, "sessions": 3}}
    made = PLANS[plan](images.labels, **asked.get(plan, {"sessions": 2}), validation=1)
    setting = Setting.of("bars", images, bars(2, seed=1, prefix="q"), made, budget=12)
    learners = {name: replace(base, method=name) for name in ("cvs", "mmd")}
    records = run_sessions(setting, learners, tmp_path)
    assert all(len(found) == made.sessions for found in records.values())
    if made.known_from_start:
        assert [record.queries for record in records["cvs"]] == [12, 12]


def test_a_memory_below_the_number_of_classes_keeps_that_many_images(base, tmp_path) -> None:
    images = bars(12)
    plan = general_incremental(images.labels, first_classes=3, new_classes=3, old_share=0.3, sessions=2, validation=1)
    setting = Setting.of("bars", images, bars(2, seed=1, prefix="q"), plan, budget=2)
    learners = {name: replace(base, method=name) for name in ("cvs", "rainbow")}
    for found in run_sessions(setting, learners, tmp_path).values():
        assert [record.replayed for record in found] == [0, 2]


def test_a_session_with_a_single_image_of_a_class_works(base, tmp_path) -> None:
    images = bars(10)
    plan = general_incremental(
        images.labels, first_classes=4, new_classes=2, old_share=0.1, sessions=2, validation=1, seed=0
    )
    assert (plan.training_counts[:, 1] == 1).any()
    setting = Setting.of("bars", images, bars(2, seed=1, prefix="q"), plan, budget=6)
    found = run_sessions(setting, {"cvs": replace(base, method="cvs")}, tmp_path)["cvs"]
    assert len(found) == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no memory": ({"method": "cvs"}, "--budget N"),
    "another space": ({"method": "cvs", "geometry": Geometry("lorentz")}, "hypersphere"),
    "a method of another space": ({"method": "hbct"}, "hypersphere"),
    "several devices": ({"recipe": Recipe(devices=2)}, "one"),
    "an option that is none": ({"method": "cvs", "method_options": {"alpha": 10.0}}, "no option 'alpha'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_learn_in_sessions_is_refused_before_anything_is_trained(what, setting, base, tmp_path) -> None:
    values, expected = REFUSED[what]
    without = replace(setting, budget=None)
    with pytest.raises(ConfigError, match=expected):
        run_sessions(without, {"finetune": base, "mine": replace(base, **values)}, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a/b", "session-2", ".hidden"])
def test_a_learner_whose_name_is_no_folder_is_refused(name, setting, base, tmp_path) -> None:
    with pytest.raises(ConfigError, match="name"):
        run_sessions(setting, {name: base}, tmp_path)


@pytest.mark.parametrize("sessions", [0, 4])
def test_a_number_of_sessions_that_the_plan_does_not_have_is_refused(sessions, setting, base, tmp_path) -> None:
    with pytest.raises(ConfigError, match="from 1 to 3"):
        run_sessions(setting, {"finetune": base}, tmp_path, sessions=sessions)


def test_a_folder_of_other_settings_is_refused_and_left_alone(setting, base, tmp_path) -> None:
    run_sessions(setting, {"finetune": base}, tmp_path, sessions=1)
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with pytest.raises(ConfigError, match="seed"):
        run_sessions(setting, {"finetune": replace(base, seed=6)}, tmp_path)
    with pytest.raises(ConfigError, match="memory"):
        run_sessions(replace(setting, budget=9), {"finetune": base}, tmp_path)
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_learners_with_other_networks_cannot_share_a_first_session(setting, base, tmp_path) -> None:
    run_sessions(setting, {"finetune": base}, tmp_path, sessions=1)
    larger = replace(base, model=base.model.model_copy(update={"dim": 6}))
    with pytest.raises(ConfigError, match="model differ"):
        run_sessions(setting, {"mine": larger}, tmp_path, sessions=1)
    assert len(run_sessions(setting, {"mine": base}, tmp_path, sessions=1)["mine"]) == 1  # the name is not taken
    with pytest.raises(ConfigError, match="first session"):
        run_sessions(setting, {"finetune": base, "other": larger}, tmp_path / "new")
    assert not (tmp_path / "new").exists()


UNTRAINABLE = {
    "head": {"head": "normalized"},
    "head options": {"head_options": {"temperature": 0.0}},
    "network": {"model": EncoderSpec(dim=8, channels=1, image_size=12, backbone="resnet17")},
    "batches": {"method": "rainbow", "recipe": Recipe(batch_size=8, items_per_class=4)},
    "too few classes": {"recipe": Recipe(batch_size=32, items_per_class=4)},
}


@pytest.mark.parametrize("what", UNTRAINABLE)
def test_a_refusal_leaves_the_folder_free_for_the_right_settings(what, setting, base, tmp_path) -> None:
    with pytest.raises(ConfigError):
        run_sessions(setting, {"mine": replace(base, **UNTRAINABLE[what])}, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_session_of_one_class_is_refused_unless_others_are_replayed(base, tmp_path) -> None:
    images = bars(6)
    plan = disjoint(images.labels, sessions=6, validation=1)
    setting = Setting.of("bars", images, bars(2, seed=1, prefix="q"), plan, budget=6)
    with pytest.raises(ConfigError, match="Session 1 of the disjoint plan brings images of 1 class"):
        run_sessions(setting, {"finetune": base}, tmp_path)
    assert not any(tmp_path.iterdir())


def test_batches_hold_whole_classes_only_where_a_learner_needs_them(setting, base, tmp_path) -> None:
    """Hardest positives need two items of a class; the first session, which all share, is as the recipe says."""
    hardest = replace(base, method="cvs", method_options={"coherence": "batch_hard"})
    four = replace(hardest, recipe=replace(base.recipe, items_per_class=4))
    records = run_sessions(setting, {"cvs": replace(base, method="cvs"), "hardest": hardest}, tmp_path, sessions=2)
    run_sessions(setting, {"four": four}, tmp_path / "four", sessions=2)

    def told(*places: str) -> list[int | None]:
        return [load_release(tmp_path / place).record.recipe.get("items_per_class") for place in places]

    assert told("session-1", "cvs/session-2", "hardest/session-2", "four/four/session-2") == [None, None, 2, 4]
    assert records["cvs"][0].fingerprint == records["hardest"][0].fingerprint
    assert records["cvs"][1].fingerprint != records["hardest"][1].fingerprint


def test_damaged_files_are_named_and_nothing_else_is_blamed(setting, base, tmp_path) -> None:
    run_sessions(setting, {"finetune": base}, tmp_path, sessions=1)
    for path in (tmp_path / "setting.json", tmp_path / "finetune" / "session-1" / "session.json"):
        before = path.read_text()
        texts = ["[]", "{", "7"]
        if path.name == "session.json":
            whole = json.loads(before)
            texts += ['{"record": 1}', json.dumps({**whole, "record": {**whole["record"], "queries": None}})]
        for damaged in texts:
            path.write_text(damaged)
            with pytest.raises(DataError, match="remove this one file"):
                run_sessions(setting, {"finetune": base}, tmp_path, sessions=2)
        path.write_text(before)


def test_validation_queries_are_those_of_the_plan_and_no_test_query(setting) -> None:
    for session in range(3):
        queries = setting.validation(session)
        assert set(queries.ids) == set(setting.images.ids[setting.plan.queries(session)])
        assert not set(queries.ids) & set(setting.test.ids)


def test_results_have_all_that_reports_need(finished, setting, base) -> None:
    _, records = finished
    learners = {name: replace(base, method=name) for name in LEARNERS}
    results = SessionsResults.gather(setting, learners, records, title="Bars", description="bright bars")
    assert results.bounds == Bounds(lower="finetune", upper="joint")
    assert results.plan.introduced == [2, 2, 2] == results.plan.home
    assert results.learners["cvs"].average_recall == average_recall([record.recall for record in records["cvs"]])
    assert (
        SessionsResults.parse(json.loads(json.dumps(results.to_dict(), allow_nan=False))).learners == results.learners
    )


def test_bounds_are_none_where_nobody_marks_them(base) -> None:
    assert Bounds.of({"mine": replace(base, method="cvs")}) == Bounds(lower=None, upper=None)


def test_forgetting_is_the_mean_loss_since_the_best_by_hand() -> None:
    table = [[0.9, None, None], [0.5, 0.8, None], [0.6, 0.9, 0.4]]
    assert forgetting(table) == pytest.approx(((0.9 - 0.6) + (0.8 - 0.9)) / 2)
    assert forgetting(table[:1]) is None
    assert forgetting([[0.9, 0.1], [0.5, 0.8]]) == pytest.approx(0.4)  # what the last session introduced is not lost
    later = [[0.5, None, None], [0.8, 0.6, None], [0.4, 0.7, 0.9]]  # the best of the first group is not its first
    assert forgetting(later) == pytest.approx(((0.8 - 0.4) + (0.6 - 0.7)) / 2)


def test_classes_are_numbered_in_the_order_in_which_they_come(setting: Setting) -> None:
    order = setting.plan.classes_seen(2)
    assert list(setting.images.class_names) == [f"bar {label}" for label in order]
    rows = setting.plan.rows(1)
    names = [f"bar {label}" for label in setting.plan.labels[rows]]
    chosen = setting.training(rows, 1)
    assert [chosen.class_names[label] for label in chosen.labels] == names
    assert len(chosen.class_names) == 4 and chosen.class_names == setting.images.class_names[:4]
    assert setting.home.tolist() == [0, 0, 1, 1, 2, 2]
    assert set(setting.queries(0).labels) == {0, 1}
    assert setting.brings_old_classes(1) and not setting.brings_old_classes(0)


WRONG: dict[str, tuple[Callable[[Setting], dict[str, Any]], str]] = {
    "another plan": (lambda s: {"images": bars(20)}, "was made for"),
    "queries of other classes": (lambda s: {"test": bars(2, classes=5, prefix="q")}, "class names"),
    "a query that is trained on": (lambda s: {"test": bars(2)}, "training images too"),
    "a class without a query": (lambda s: {"test": bars(2, prefix="q")[np.arange(10)]}, "no test query"),
}


@pytest.mark.parametrize("what", WRONG)
def test_images_that_do_not_go_together_are_refused(what, setting) -> None:
    values, expected = WRONG[what]
    given = {"images": bars(16), "test": bars(3, seed=1, prefix="q"), **values(setting)}
    with pytest.raises(DataError, match=expected):
        Setting.of("bars", given["images"], given["test"], setting.plan)
