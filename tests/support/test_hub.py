"""Releases and adapters on the hub: pushed to and fetched from a stand-in, described by cards that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import RepoCard

import limpet
from hub_server import Hub, serving
from limpet.adapters import Adapter, build_adapter
from limpet.errors import ReleaseError
from limpet.models.release import Release
from limpet.support.hub import fetched


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def release() -> Release:
    torch.manual_seed(0)
    return Release.from_module(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4)), image_size=8, channels=1
    )


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    rng = np.random.default_rng(0)
    new = rng.normal(size=(40, 5)).astype(np.float32)
    return build_adapter("ridge", {}).fit(new, (new @ rng.normal(size=(5, 3))).astype(np.float32))


def test_an_adapter_goes_to_the_hub_and_comes_back(hub: Hub, adapter: Adapter, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": "hf_none"}
    assert adapter.push_to_hub("me/link", **where) == f"{hub.url}/me/link"
    files = ["README.md", "adapter.safetensors", "config.json", "trained-on.safetensors"]
    assert sorted(hub.repositories["me/link"]) == files
    hub.repositories["me/link"]["evil.py"] = b"raise SystemExit"
    again = limpet.Adapter.from_pretrained("me/link", cache_dir=tmp_path, **where)
    rows = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    np.testing.assert_array_equal(again.transform(rows), adapter.transform(rows))
    assert not list(tmp_path.rglob("evil.py"))
    kept = Adapter.from_pretrained("me/link", cache_dir=tmp_path, local_files_only=True)
    assert kept.fingerprint == adapter.fingerprint


def test_a_release_goes_to_the_hub_and_comes_back(hub: Hub, release: Release, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    release.push_to_hub("me/model", endpoint=hub.url, token="hf_none")
    again = Release.from_pretrained("me/model", module=module, cache_dir=tmp_path, endpoint=hub.url, token="hf_none")
    assert again.fingerprint == release.fingerprint


def test_a_folder_is_taken_as_it_is(adapter: Adapter, release: Release, tmp_path: Path) -> None:
    assert adapter.save_pretrained(tmp_path / "a") == tmp_path / "a"
    assert Adapter.from_pretrained(tmp_path / "a").fingerprint == adapter.fingerprint
    assert fetched(tmp_path / "a") == tmp_path / "a"
    release.save_pretrained(tmp_path / "r")
    assert limpet.load_release(tmp_path / "r", module=release).fingerprint == release.fingerprint


def test_cards_have_what_the_hub_reads(adapter: Adapter, release: Release, tmp_path: Path) -> None:
    adapter.save_pretrained(tmp_path / "a")
    release.save_pretrained(tmp_path / "r")
    for folder, task, tag in (("a", "feature-extraction", "ridge"), ("r", "image-feature-extraction", "independent")):
        text = (tmp_path / folder / "README.md").read_text(encoding="utf-8")
        assert RepoCard(text).data.library_name == "limpet"
        told = yaml.safe_load(text.split("---")[1])
        assert told["library_name"] == "limpet" and told["pipeline_tag"] == task and tag in told["tags"]
        assert told.keys() == {"library_name", "pipeline_tag", "tags"}  # no license or base model that nobody named


def test_what_cannot_be_fetched_or_pushed_says_what_to_do(hub: Hub, adapter: Adapter, tmp_path: Path) -> None:
    for name, where in (
        ("me/none", {"endpoint": hub.url}),
        ("me/none", {"local_files_only": True}),
        ("not a name", {}),
    ):
        with pytest.raises(ReleaseError, match=rf"hf download {name} --local-dir FOLDER"):
            Adapter.from_pretrained(name, cache_dir=tmp_path, token="hf_none", **where)
    hub.refused.add("other/link")
    with pytest.raises(ReleaseError, match="hf auth login"):
        adapter.push_to_hub("other/link", endpoint=hub.url, token="hf_none")
