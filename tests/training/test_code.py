"""Which code trained a model: what counts, and what a run does with a release that other code trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from limpet.cli import main
from limpet.methods import METHODS
from limpet.models.release import load_release
from limpet.models.specs import EncoderSpec
from limpet.support.source_code import bare_code, digest_of, version_of
from limpet.training import code
from limpet.training.code import TRAINING, training_code


def test_of_code_only_what_is_computed_counts(tmp_path) -> None:
    source = (
        '"""A module."""\n\nLIMIT = 3\n\n\ndef more(x: int) -> int:\n    """Return more."""\n    return x + LIMIT\n'
    )
    file = tmp_path / "code.py"

    def digest(text: str) -> str:
        file.write_text(text)
        return digest_of([file])

    plain = digest(source)
    for said in (
        source.replace("A module.", "The module."),
        source.replace("x + LIMIT", "x + LIMIT  # as the paper does"),
        source.replace("LIMIT = 3", 'LIMIT = 3\n"""How much."""'),
        source.replace("    return x + LIMIT", "    return (\n        x + LIMIT\n    )"),
    ):
        assert said != source and digest(said) == plain
    for done in (source.replace("3", "4"), source.replace("x + LIMIT", "LIMIT + x"), source.replace("int)", "float)")):
        assert done != source and digest(done) != plain


def test_a_text_that_is_used_is_no_docstring() -> None:
    assert "'kept'" in bare_code('def one():\n    """Gone."""\n    return "kept"')
    assert bare_code('class One:\n    """Gone."""') == "class One:\n    pass"


def test_a_new_public_name_changes_no_code() -> None:
    exported = 'if TYPE_CHECKING:\n    from one import Two\n__all__ = ["Two"]\n'
    assert bare_code(exported + "three = 3") == "three = 3"
    assert "four" in bare_code("if TYPE_CHECKING:\n    three = 3\nelse:\n    four = 4")


def codes() -> dict[str, str]:
    return {name: training_code(name, "softmax", EncoderSpec()) for name in ("bct", "p2s", "independent")}


def test_a_changed_method_changes_its_own_code_and_what_all_share_changes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {
        "methods/p2s.py": {"p2s"},
        "methods/nccl.py": set(),
        "methods/base.py": {"bct", "p2s", "independent"},
        "losses/alignment.py": {"bct", "p2s", "independent"},
        "training/loop.py": {"bct", "p2s", "independent"},
        "reports/page.py": set(),
    }
    for module in modules:
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / module).write_text("KNOWN = 1\n")
    monkeypatch.setattr(code, "ROOT", tmp_path)
    monkeypatch.setattr(code, "_code_of_limpet", code._code_of_limpet.__wrapped__)
    before = codes()
    for module, changed in modules.items():
        (tmp_path / module).write_text("KNOWN = 1  # a comment\n")
        assert codes() == before
        (tmp_path / module).write_text("KNOWN = 2\n")
        assert {name for name, now in codes().items() if now != before[name]} == changed, module
        (tmp_path / module).write_text("KNOWN = 1\n")


def test_the_packages_that_count_are_there() -> None:
    assert all((code.ROOT / package).is_dir() for package in TRAINING)


def test_the_code_of_another_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs_alone.py").write_text(
        "from limpet.methods.p2s import P2S\n\nclass Mine(P2S):\n    weight = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from theirs_alone import Mine

    monkeypatch.setitem(METHODS, "mine", Mine)
    before = training_code("mine", "softmax", EncoderSpec())
    (tmp_path / "theirs_alone.py").write_text(
        "from limpet.methods.p2s import P2S\n\nclass Mine(P2S):\n    weight = 2\n"
    )
    assert training_code("mine", "softmax", EncoderSpec()) != before
    assert version_of(METHODS["p2s"]) == ""


FAST = ["--data-options.training_classes", "6", "--data-options.validation_classes", "2",
        "--data-options.evaluation_classes", "2", "--recipe.epochs", "1", "--recipe.batch_size", "32", "--dim", "8",
        "--backbone-options.filters", "4", "--data-options.distortions", "1"]  # fmt: skip


def test_a_release_that_other_code_trained_is_kept_and_said_to_be_until_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "first"
    words = ["train", "--data", "glyphs", "--method", "independent", "--out", str(out), *FAST]

    def run(*more: str) -> tuple[str, str]:
        assert main([*words, *more, "--json"]) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out)["releases"]["independent"]["code"], " ".join(shown.err.split())

    for _ in range(2):
        found, said = run()
        assert found == "same" and "--again" not in said
    first = load_release(out)
    assert first.record.code is not None

    monkeypatch.setattr("limpet.training.code._code_of_limpet", lambda place: "changed")
    found, said = run()
    assert found == "other" and "made by other code" in said and "--again" in said
    assert load_release(out).record == first.record, "it is kept"

    assert run("--again")[0] == "same"
    assert load_release(out).record.code != first.record.code
    assert load_release(tmp_path / "first.before-1").record == first.record, "what was there is kept beside it"
    assert run("--again")[0] == "same" and not (tmp_path / "first.before-2").exists()


def test_an_unfinished_run_is_not_continued_by_other_code(
    every_epoch_kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "first"
    words = ["train", "--data", "glyphs", "--method", "independent", "--out", str(out), *FAST]
    with monkeypatch.context() as stopped:
        stopped.setattr("limpet.training.train.make_release", lambda *given, **values: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(words)
    assert (out / "checkpoint.safetensors").exists() and not (out / "config.json").exists()
    monkeypatch.setattr("limpet.training.code._code_of_limpet", lambda place: "changed")
    assert main(words) == 2
    assert "written by other code" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--again"]) == 0
    assert (tmp_path / "first.before-1" / "checkpoint.safetensors").exists() and load_release(out).record.code
