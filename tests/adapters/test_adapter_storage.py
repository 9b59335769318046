from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from limpet.adapters import build_adapter
from limpet.adapters.base import Adapter
from limpet.adapters.storage import AdapterRecord, load_adapter, save_adapter
from limpet.errors import ConfigError, ReleaseError


@pytest.fixture
def adapter(related, make_set) -> Adapter:
    return fitted(related, make_set)


def fitted(related: Any, make_set: Any, dims: tuple[int, int] = (5, 4), **options: Any) -> Adapter:
    old, new = related(40, dims)
    return build_adapter("ridge", {"penalty": 0.1, **options}).fit(make_set(old, "old"), make_set(new, "new"))


@pytest.fixture
def saved(adapter, tmp_path) -> Path:
    return save_adapter(adapter, tmp_path / "adapter")


def test_files_with_all_that_is_known(saved, adapter) -> None:
    files = ["adapter.safetensors", "config.json", "trained-on.safetensors"]
    assert sorted(file.name for file in saved.iterdir()) == files
    record = json.loads((saved / "config.json").read_text())
    assert record["kind"] == "ridge" and record["options"] == {"penalty": 0.1} and record["pairs"] == 40
    assert (record["source"], record["target"]) == ("declared:new", "declared:old")
    assert (record["source_space"]["dim"], record["target_space"]["dim"]) == (4, 5)
    assert record["fingerprint"] == adapter.fingerprint and record["format_version"] == 1
    assert set(record["versions"]) == {"limpet", "numpy", "scipy", "python", "code"}
    assert load_adapter(saved).report is None


def flip(folder: Path) -> None:
    content = bytearray((folder / "adapter.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "adapter.safetensors").write_bytes(content)


def edit(folder: Path, key: str, value: Any) -> None:
    record = json.loads((folder / "config.json").read_text())
    record[key] = value
    (folder / "config.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (flip, "has the fingerprint"),
        (lambda folder: edit(folder, "options", {"penalty": 0.2}), "not what was saved"),
        (lambda folder: edit(folder, "options", {}), "not what was saved"),
        (lambda folder: edit(folder, "direction", "old_to_new"), "not what was saved"),
        (lambda folder: edit(folder, "direction", "up"), "does not describe an adapter(.|\n)*direction"),
        (lambda folder: edit(folder, "source", "declared:other"), "not what was saved"),
        (lambda folder: edit(folder, "target", "declared:other"), "not what was saved"),
        (lambda folder: edit(folder, "source_space", {"name": "hypersphere", "dim": 3}), "not what was saved"),
        (lambda folder: edit(folder, "pairs", 41), "not what was saved"),
        (lambda folder: edit(folder, "versions", {}), "not what was saved"),
        (lambda folder: edit(folder, "kind", "procrustes"), "not what was saved"),
        (lambda folder: edit(folder, "fingerprint", "adapter:" + "0" * 64), "not what was saved"),
        (lambda folder: edit(folder, "digest", "0" * 64), "not what was saved"),
        (lambda folder: edit(folder, "surprise", 1), "surprise"),
        (lambda folder: edit(folder, "format_version", 0), "format_version"),
        (lambda folder: edit(folder, "format_version", 99), "newer limpet"),
        (lambda folder: (folder / "config.json").write_text("{"), "does not describe an adapter"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"), "no text"),
        (lambda folder: (folder / "config.json").unlink(), "is no adapter"),
        (lambda folder: (folder / "adapter.safetensors").unlink(), "cannot be read"),
        (lambda folder: (folder / "adapter.safetensors").write_bytes(b"\x00" * 50), "cannot be read"),
    ],
)  # fmt: skip
def test_an_altered_adapter_is_refused(saved, alter, message) -> None:
    alter(saved)
    with pytest.raises(ReleaseError, match=message):
        load_adapter(saved)


def forge(folder: Path, arrays: dict[str, np.ndarray], **changes: Any) -> None:
    """Alter an adapter and compute its digests anew, as somebody would who knows how."""
    adapter = load_adapter(folder)
    record = AdapterRecord.model_validate_json((folder / "config.json").read_text()).model_copy(update=changes)
    object.__setattr__(adapter.fitted, "state", arrays)
    record = record.model_copy(update={"fingerprint": adapter.fingerprint})
    record = record.model_copy(update={"digest": record.computed_digest()})
    save_file(arrays, folder / "adapter.safetensors")
    (folder / "config.json").write_text(record.model_dump_json())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": np.zeros((5, 5))}, "no 'ridge'"),
        ({"weights": np.zeros((9, 5))}, "no 'ridge'"),
        ({"weights": np.zeros((5, 3))}, r"shape \(1, 3\)"),
        ({"weights": np.full((5, 5), np.nan)}, "not finite"),
        ({"weights": np.ones((5, 5)), "more": np.array([np.inf])}, "not finite"),
        ({"weights": np.array(3.0)}, "no 'ridge'"),
    ],
)
def test_arrays_that_are_no_such_map_are_refused_whatever_their_digest(saved, arrays, message) -> None:
    forge(saved, arrays)
    with pytest.raises(ReleaseError, match=message):
        load_adapter(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "magic"}, "unknown kind 'magic'(.|\n)*procrustes"),
        ({"options": {"power": 3}}, "no option 'power'"),
        ({"options": {"penalty": -1.0}}, "penalty"),
        ({"source_space": {"name": "torus", "dim": 4}}, "torus"),
        ({"source_space": {"dim": 4}}, "cannot be read"),
        ({"source_space": {"name": "hypersphere", "dim": "four"}}, "cannot be read"),
        ({"source_space": {"name": "hypersphere", "dim": -4}}, "dim=-4"),
        ({"target_space": {"name": "lorentz", "dim": 5, "curvature": 1.0}}, "hypersphere on both sides"),
        ({"pairs": 0}, "pairs"),
        ({"pairs": -40}, "pairs"),
    ],
)
def test_what_this_version_cannot_build_is_refused(saved, changes, message) -> None:
    forge(saved, load_file(saved / "adapter.safetensors"), **changes)
    with pytest.raises(ReleaseError, match=message):
        load_adapter(saved)


def test_local_maps_that_lack_a_centre_are_refused(related, make_set, tmp_path) -> None:
    old, new = related(60, (5, 4))
    adapter = build_adapter("local", {"clusters": 2}).fit(make_set(old, "old"), make_set(new, "new"))
    state = dict(adapter.fitted.state)
    for number, part in enumerate(({"weights": state["weights"][:1]}, {"centres": state["centres"][:1]})):
        saved = save_adapter(adapter, tmp_path / str(number))
        forge(saved, {**state, **part})
        with pytest.raises(ReleaseError, match="no 'local'"):
            load_adapter(saved)


def test_an_infinite_option_is_kept(related, make_set, tmp_path) -> None:
    old, new = related(60, (5, 4))
    adapter = build_adapter("local", {"shrinkage": float("inf")}).fit(make_set(old, "old"), make_set(new, "new"))
    again = load_adapter(save_adapter(adapter, tmp_path / "adapter"))
    assert again.options["shrinkage"] == float("inf") and again.fingerprint == adapter.fingerprint


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_arrays_that_were_cut_short_are_refused(saved, kept) -> None:
    content = (saved / "adapter.safetensors").read_bytes()
    (saved / "adapter.safetensors").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ReleaseError, match="cannot be read"):
        load_adapter(saved)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "NONE", "I64"])
def test_arrays_of_other_types_are_refused(saved, dtype) -> None:
    import ml_dtypes  # noqa: F401  (with it NumPy takes BF16)

    header = json.dumps({"weights": {"dtype": dtype, "shape": [1], "data_offsets": [0, 2]}}).encode()
    (saved / "adapter.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(ReleaseError, match=r"cannot be read|fingerprint"):
        load_adapter(saved)


def test_loading_never_unpickles_and_needs_no_torch(saved) -> None:
    code = textwrap.dedent(f"""
        import pickle, sys
        def refuse(*args, **kwargs): raise SystemExit("unpickled")
        pickle.load = pickle.loads = pickle.Unpickler = refuse
        from limpet.adapters.storage import load_adapter
        print(load_adapter({str(saved)!r}).fingerprint, "torch" in sys.modules)
    """)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("adapter:") and result.stdout.strip().endswith("False")


def test_a_full_disk_leaves_the_old_adapter(related, make_set, tmp_path, small_disk) -> None:
    adapter = fitted(related, make_set, (64, 64))
    saved = save_adapter(adapter, tmp_path / "adapter")
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    with small_disk(20_000), pytest.raises(ReleaseError) as refused:
        save_adapter(adapter, saved)
    told = str(refused.value)
    assert "Could not save the adapter" in told and "that was there before is intact" in told
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


def test_an_adapter_is_never_replaced_by_another_nor_anything_else_by_one(saved, adapter, related, make_set) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    with pytest.raises(ReleaseError, match="already holds the adapter:"):
        save_adapter(fitted(related, make_set, penalty=0.2), saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    save_adapter(adapter, saved)
    (saved / "config.json").write_text('{"encoder": {}}')
    with pytest.raises(ReleaseError, match=r"a config\.json of something else"):
        save_adapter(adapter, saved)


def test_other_files_in_the_folder_are_left_alone(saved, adapter) -> None:
    (saved / "notes.txt").write_text("mine")
    save_adapter(adapter, saved)
    assert (saved / "notes.txt").read_text() == "mine" and load_adapter(saved).fingerprint == adapter.fingerprint


def test_what_was_not_fitted_cannot_be_saved(tmp_path) -> None:
    with pytest.raises(ConfigError, match="not fitted"):
        save_adapter(build_adapter("ridge", {}), tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
