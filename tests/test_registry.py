"""What installed packages offer: found by name, one by one, so that a broken one hinders nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from limpet.adapters import ADAPTERS, build_adapter
from limpet.cli import main
from limpet.data.datasets import DATASETS, load_dataset
from limpet.data.texts import TEXT_DATASETS, load_texts
from limpet.engines.stores import STORES, open_store
from limpet.errors import ConfigError
from limpet.evaluation.metrics import FAMILIES, METRICS, metrics_named
from limpet.evaluation.protocols import PROTOCOLS
from limpet.evaluation.ranking.engine import Ranked
from limpet.methods import METHODS, build_method
from limpet.models.backbones import BACKBONES, build_backbone
from limpet.models.heads import HEADS, build_head, default_head
from limpet.registry import Registry

REGISTRIES: dict[str, Registry] = {
    "methods": METHODS, "adapters": ADAPTERS, "datasets": DATASETS, "text_datasets": TEXT_DATASETS, "metrics": METRICS,
    "metric_families": FAMILIES, "heads": HEADS, "backbones": BACKBONES, "stores": STORES, "protocols": PROTOCOLS,
}  # fmt: skip
CODE = '''
from functools import partial
import numpy as np
from limpet.adapters.procrustes import Procrustes
from limpet.data.datasets import Dataset, glyphs
from limpet.evaluation.protocols import ByLabel
from limpet.methods.p2s import P2S
from limpet.models.backbones import convnet
from limpet.models.heads import SoftmaxHead
from limpet.engines.memory.store import MemoryStore

class Twisted(Procrustes):
    """A map of one's own."""
    kind = "theirs"

class Method(P2S):
    """A method of one's own."""

class Protocol(ByLabel):
    """A protocol of one's own."""
    name = "theirs"

class Head(SoftmaxHead):
    """A head of one's own."""

class Store(MemoryStore):
    """A store of one's own."""
    kind = "theirs"

DATA = Dataset(partial(glyphs, training_classes=4, validation_classes=2, evaluation_classes=4), "glyphs of one's own")
TEXTS = Dataset(lambda folder: folder.name, "texts of one's own", "their-texts")
first = lambda ranked: np.ones(len(ranked))
first_of = lambda k: lambda ranked: np.full(len(ranked), float(k))
wide = partial(convnet, filters=8)
'''
PLACES = {
    "methods": "Method", "adapters": "Twisted", "datasets": "DATA", "text_datasets": "TEXTS", "metrics": "first",
    "metric_families": "first_of", "heads": "Head", "backbones": "wide", "stores": "Store", "protocols": "Protocol",
}  # fmt: skip
BROKEN = {"methods": "lr", "adapters": "lr", "datasets": "lr"}

Install = Callable[[str, str, Mapping[str, Mapping[str, str]]], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install packages of one module, by name, code and entry points; forgotten afterwards."""
    modules = []

    def put(name: str, code: str, groups: Mapping[str, Mapping[str, str]]) -> None:
        folder = tmp_path / name
        metadata = folder / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (folder / f"{name}.py").write_text(code)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[limpet.{group}]\n" + "".join(f"{key} = {name}:{place}\n" for key, place in places.items())
                 for group, places in groups.items()]  # fmt: skip
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(folder)
        modules.append(name)

    known = {name: set(registry) for name, registry in REGISTRIES.items()}
    yield put
    for name, registry in REGISTRIES.items():
        for added in set(registry) - known[name]:
            del registry[added]
    for name in modules:
        sys.modules.pop(name, None)


@pytest.fixture
def theirs(install: Install) -> None:
    """A package that offers one thing of each kind."""
    names = {group: {"theirs@k" if group == "metric_families" else "theirs": place} for group, place in PLACES.items()}
    install("their_package", CODE, names)


def test_every_kind_of_thing_is_found_by_its_name(theirs: None, tmp_path: Path) -> None:
    assert all("theirs" not in [*registry] and registry.names() for registry in REGISTRIES.values())
    assert type(build_method("theirs", {})).__name__ == "Method"
    assert type(build_adapter("theirs", {"centre": False})).__name__ == "Twisted"
    assert load_dataset("theirs").name == "glyphs" and set(load_dataset("theirs").to_train_on().labels.tolist())
    (tmp_path / "their-texts").mkdir()
    assert load_texts("theirs", tmp_path) == "their-texts"
    ranked = Ranked.of([[0, 2], [1]], [4, 4])
    assert [metric(ranked).tolist() for metric in metrics_named(["theirs", "theirs@7"]).values()] == [[1, 1], [7, 7]]
    assert type(build_head("theirs", 3, 4, {"bias": True})).__name__ == "Head"
    assert build_backbone("theirs", 1, 28, None, {}).width == 16
    assert PROTOCOLS["theirs"]().name == "theirs"
    made = open_store(f"theirs:{tmp_path / 'gallery'}", create=True)
    assert (made.kind, made.pointer().sequence) == ("theirs", 0)
    made.close()
    with open_store(str(tmp_path / "gallery")).writing("a test") as pointer:
        assert pointer.sequence == 0


def test_commands_list_them(theirs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    assert "theirs" in json.loads(capsys.readouterr().out)["methods"]
    assert main(["data", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["data"]["theirs"] == "glyphs of one's own" and listed["texts"]["theirs"] == "texts of one's own"
    assert main(["data", "theirs"]) == 0


@pytest.mark.parametrize("group", REGISTRIES)
@pytest.mark.parametrize(
    ("code", "said"),
    {
        "no such module inside": ("import not_installed_anywhere", "ModuleNotFoundError"),
        "an error on import": ("1 / 0", "ZeroDivisionError"),
        "no Python": ("def (:", "SyntaxError"),
        "it leaves": ("raise SystemExit(3)", "SystemExit"),
        "no such attribute": ("other = 1", "AttributeError"),
        "another thing": ("theirs = 42", "which is none"),
    }.values(),
)
def test_one_that_is_broken_is_named_and_hinders_nothing_else(
    install: Install, group: str, code: str, said: str
) -> None:
    registry = REGISTRIES[group]
    install("broken_package", code, {group: {"theirs": "theirs"}})
    with pytest.raises(ConfigError, match=said) as refusal:
        registry["theirs"]
    assert "broken_package" in refusal.value.given and "everything else works without it" in refusal.value.to_do
    own = next(name for name in registry.names() if name != "theirs")
    assert registry[own] is not None and "theirs" not in dict(registry.items())
    (wrong,) = registry.import_installed()
    assert wrong.given == refusal.value.given


def test_commands_say_which_package_is_broken_and_go_on(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("broken_package", "1 / 0", {"methods": {"theirs": "Method"}, "datasets": {"their-data": "DATA"}})
    assert main(["methods"]) == 0
    shown = capsys.readouterr().err
    assert "broken_package" in shown and "p2s" in shown and "Traceback" not in shown
    assert main(["data", "list"]) == 0
    assert "broken_package" in capsys.readouterr().err
    assert main(["methods", "theirs"]) == 2
    assert "'theirs' of the package 'broken_package' cannot be imported" in " ".join(capsys.readouterr().err.split())
    assert main(["methods", "p2s"]) == 0
    assert "broken_package" not in capsys.readouterr().err


def test_a_name_that_is_taken_is_refused_where_it_is_asked_for(install: Install) -> None:
    install("their_package", CODE, {"heads": {"softmax": "Head"}, "adapters": {"theirs": "Twisted"}})
    install("another_package", CODE, {"adapters": {"theirs": "Twisted"}})
    with pytest.raises(ConfigError, match=r"head 'softmax' \(their_package:Head\) has the name of another"):
        build_head("softmax", 3, 4, {})
    assert type(build_head("normalised", 3, 4, {})).__name__ == "NormalisedHead"
    with pytest.raises(ConfigError, match=r"adapter 'theirs' .* has the name of another(.|\n)*uninstall '"):
        build_adapter("theirs", {})
    assert build_adapter("ridge", {}).kind == "ridge" and default_head.__name__
    assert [error.given for error in HEADS.import_installed()] and ADAPTERS.import_installed()


def test_unknown_names_are_answered_with_theirs_too(theirs: None) -> None:
    for registry in (METHODS, ADAPTERS, HEADS, BACKBONES, STORES):
        with pytest.raises(ConfigError, match="Did you mean 'theirs'"):
            registry["theirz"]


def test_a_table_of_things() -> None:
    table = Registry("sign", "signs", {"plus": 1, "pi": "math:pi"}, fits=lambda sign: True, expected="a sign")
    assert "pi" in table and "x" not in table and not table.imported("pi") and table.get("x") is None
    assert table["pi"] == np.pi and table.imported("pi")
    table["x"] = 3.0
    assert [*table] == ["plus", "pi", "x"] and len(table) == 3 and dict(table) == {"plus": 1, "pi": np.pi, "x": 3.0}
    del table["pi"], table["x"]
    assert [*table] == ["plus"]


def test_a_registry_shows_a_line_for_every_name_and_imports_nothing() -> None:
    code = "import sys, limpet; print(limpet.METHODS); print('torch' in sys.modules)"
    head, *lines, imported = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(METHODS.places) and imported == "False"
    assert head.split()[:3] == ["name", "needs", "an"]
    place = head.index("what it is")
    (bct,) = (line for line in lines if line.startswith("bct "))
    assert bct[place:].startswith("Influence loss") and bct[head.index("needs") : place].split() == ["yes"]


def test_a_registry_tells_the_documentation_of_what_was_set_and_of_what_is_a_part_of_a_function() -> None:
    def doubled(number: int, times: int) -> int:
        """Multiply a number."""
        return number * times

    things = Registry("thing", "things", {"two": 2}, fits=lambda _: True, expected="anything")
    assert repr(things).splitlines() == ["name  what it is", "two"]
    things["twice"] = partial(doubled, times=2)
    assert repr(things).splitlines()[-1] == "twice  Multiply a number."
    del things["twice"], things["two"]
    assert repr(things) == ""
