"""Rows between frozen models: adapters, heads that stay with the new model, and what each of them needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.adapters import build_adapter
from limpet.adapters.storage import GALLERY_ADAPTER
from limpet.data.text_set import TextData, TextSet
from limpet.data.texts import TEXT_DATASETS, Dataset
from limpet.embeddings import EmbeddingSet
from limpet.errors import ConfigError
from limpet.evaluation.retrieval import rank_metrics
from limpet.models.text_encoders import embed_texts, open_text_encoder
from limpet.training.compatible_head import load_head
from limpet_bench.cli import main
from limpet_bench.leaderboard import Leaderboard
from limpet_bench.reports.leaderboard_tables import footnotes, summary
from tiny_text_model import some_texts, write_tiny_model

from .writing import suite_of, write_suite

ROWS: dict[str, dict[str, Any]] = {
    "p2s": {},
    "ridge": {"adapter": "ridge", "options": {"penalty": 0.1}},
    "ridge (gallery)": {"adapter": "ridge", "direction": "old_to_new", "options": {"penalty": 0.1}},
    "keep": {"model": {"projection": "residual"}},
}
SUITE: dict[str, Any] = {
    "name": "links", "title": "Links", "track": "features", "seeds": [0], "methods": ROWS,
    "recipe": {"epochs": 1, "batch_size": 16},
    "data": {"own": {}}, "scenarios": {"some": {"bare": 20}, "all": {"bare": 0}}, "metrics": ["map"],
}  # fmt: skip


def divided(folder: Path, *, bare: int = 0) -> TextData:
    """Return texts, of which so many have no label."""
    train, query, gallery = (some_texts(60, 1), some_texts(20, 2), some_texts(32, 3))
    rest = train[np.arange(60 - bare, 60)]
    return TextData("own", train[np.arange(60 - bare)], query, gallery, "made up",
                    TextSet(rest.texts, None, (), rest.ids) if bare else None)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The board of the suite, and the folder of the two models."""
    root = tmp_path_factory.mktemp("linked")
    models = {side: str(write_tiny_model(root / side, seed=seed)) for seed, side in enumerate(("old", "new"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMPET_DATA", str(root))
        patch.setitem(TEXT_DATASETS, "own", Dataset(divided, "own texts", "."))
        write_suite(root / "suite.py", {**SUITE, "frozen": models})
        words = ["run", root / "suite.py", "--report", "none", "--processes", "1", "--out",
                 root / "out", "--cache", root / "cache"]  # fmt: skip
        assert main(list(map(str, words))) == 0
    return json.loads((root / "out" / "results.json").read_text()), models, root / "cache"


def run_of(board: dict[str, Any], label: str, scenario: str) -> dict[str, Any]:
    (found,) = (run for run in board["rows"] if (run["label"], run["scenario"]) == (label, scenario))
    return dict(found)


def embedded(models: dict[str, str]) -> dict[tuple[str, str], EmbeddingSet]:
    """Embed all parts of the texts with both models."""
    data, encoders = divided(Path()), {side: open_text_encoder(model) for side, model in models.items()}
    return {(side, part): embed_texts(encoders[side], texts) for side in models for part, texts in data.parts().items()}


def test_adapters_score_as_they_do_alone(finished: Any) -> None:
    board, models, _ = finished
    sets = embedded(models)
    fit = sets["old", "train"], sets["new", "train"]
    to_old = build_adapter("ridge", {"penalty": 0.1}).fit(*fit)
    to_new = build_adapter("ridge", {"penalty": 0.1, "direction": "old_to_new"}).fit(*fit)
    expected = {
        "ridge": (to_old.apply(sets["new", "query"]), sets["old", "gallery"]),
        "ridge (gallery)": (sets["new", "query"], to_new.apply(sets["old", "gallery"])),
    }
    after = rank_metrics(sets["new", "query"], sets["new", "gallery"], ("map",))["map"].mean()
    for label, sides in expected.items():
        run = run_of(board, label, "all")
        assert run["scores"]["cross"] == pytest.approx(rank_metrics(*sides, ("map",))["map"].mean(), abs=1e-6)
        assert run["scores"]["self_new"] == pytest.approx(after, abs=1e-6)
        assert run["method"] == "ridge" and run["options"]["penalty"] == 0.1


def test_a_head_that_stays_searches_the_mapped_gallery(finished: Any) -> None:
    board, models, cache = finished
    sets, found = embedded(models), set()
    for place in cache.rglob(GALLERY_ADAPTER):
        head = load_head(place.parent)
        sides = head.query(sets["new", "query"]), head.gallery(sets["old", "gallery"])
        found.add(round(float(rank_metrics(*sides, ("map",))["map"].mean()), 5))
    runs = [run_of(board, "keep", scenario) for scenario in ("some", "all")]
    assert found == {round(run["scores"]["cross"], 5) for run in runs} and len(found) == 2


def test_a_board_says_what_each_row_needs(finished: Any) -> None:
    board, _, _ = finished
    needs = {
        (label, scenario): tuple(run_of(board, label, scenario)[name] for name in ("gallery", "pairs", "labels"))
        for label in ROWS
        for scenario in ("some", "all")
    }
    assert needs == {
        ("p2s", "some"): ("as it is", 40, 40), ("p2s", "all"): ("as it is", 60, 60),
        ("ridge", "some"): ("as it is", 60, 0), ("ridge", "all"): ("as it is", 60, 0),
        ("ridge (gallery)", "some"): ("mapped", 60, 0), ("ridge (gallery)", "all"): ("mapped", 60, 0),
        ("keep", "some"): ("mapped", 60, 40), ("keep", "all"): ("mapped", 60, 60),
    }  # fmt: skip


def test_the_table_shows_them(finished: Any) -> None:
    results = Leaderboard.parse(finished[0])
    found = summary(results)
    assert found.columns[-3:] == ["old gallery", "pairs", "labels"]
    rows = {row[0]: row[-3:] for row in found.rows}
    assert rows["keep"] == ["mapped", "60", "40–60"] and rows["ridge"] == ["as it is", "60", "0"]
    assert any("no item of it is embedded again before the swap" in note for note in footnotes(results))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"adapter": "rigde"}, "Did you mean 'ridge'"),
        ({"adapter": "ridge", "options": {"penalti": 1}}, "Did you mean 'penalty'"),
        ({"adapter": "ridge", "start": "random"}, "has a search or a start"),
    ],
)
def test_adapters_that_cannot_be_rows(row: dict[str, Any], said: str) -> None:
    suite = {**SUITE, "data": {"banking77": {}}, "scenarios": {"all": {}}, "frozen": {"old": "a", "new": "b"}}
    with pytest.raises(ConfigError, match=said):
        suite_of({**suite, "methods": {"mine": row}})


def test_adapters_are_rows_of_frozen_models_alone() -> None:
    with pytest.raises(ConfigError, match="on the track 'images'"):
        suite_of({"data": {"glyphs": {}}, "methods": {"ridge": {"adapter": "ridge"}}})
