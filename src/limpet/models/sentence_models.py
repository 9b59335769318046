"""Models of the sentence-transformers library, from a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from limpet.errors import ConfigError, refuse
from limpet.models.long_texts import TokenLimit
from limpet.models.published_weights import as_float32, quietly
from limpet.models.seeding import seeded
from limpet.models.text_folders import contract_fingerprint, file_digest, read_json, sentence_files
from limpet.support.extras import needing

_DOCUMENT = ("document", "passage", "corpus")
_FAILURES = (OSError, ValueError, RuntimeError, ImportError, LookupError, TypeError, AttributeError, SafetensorError)


class SentenceModel:
    """A network with its pooling, as listed in ``modules.json`` of its folder, in float32.

    Args:
        max_length: Maximum number of tokens per text, with special tokens; longer texts are truncated. The model's own
            when left out.
        truncate_dim: Truncate embeddings to this many dimensions; the model's own when left out.

    Raises:
        ConfigError: The library or the files are missing, a module needs custom code, or a setting is out of range.
    """

    def __init__(
        self, folder: Path, max_length: int | None, truncate_dim: int | None, device: torch.device | str
    ) -> None:
        files = sentence_files(folder)
        self._model = opened_by_library(folder, device)
        _refuse_random(self._model, folder, files)
        if max_length is not None:
            _set_length(self._model, max_length, _longest(folder, self._model))
        if truncate_dim is not None:
            self._model.truncate_dim = truncate_dim
        self.dim = len(_probe(self._model))
        refuse(
            self.dim < (truncate_dim or 0), f"truncate_dim = {truncate_dim}.", f"at most {self.dim}, all that there is"
        )
        contract: dict[str, Any] = {
            "kind": "sentence-transformers",
            "files": {file.relative_to(folder).as_posix(): file_digest(file) for file in files},
            "dtype": "float32",
            "max_length": self._model.max_seq_length if np.isfinite(self._model.max_seq_length or np.inf) else None,
            "dim": self.dim,
        }
        self.fingerprint = contract_fingerprint(contract)
        self.folder, self.max_length, self.truncate_dim = folder, contract["max_length"], truncate_dim
        self.prompts = _prompts(self._model.prompts, self._model.default_prompt_name)
        tokenizer = getattr(self._model.tokenizer, "backend_tokenizer", None)
        self.limit = None if tokenizer is None else TokenLimit.of(tokenizer, self.max_length, special=True)

    @property
    def opened(self) -> Any:
        """The model object of the library."""
        return self._model

    def __call__(self, texts: list[str], prefix: str) -> NDArray[np.float32]:
        """Return raw vectors (N, D); the library itself puts the prefix before each text, as some poolings skip it."""
        vectors: NDArray[np.float32] = self._model.encode(
            texts, prompt=prefix, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )
        return vectors


def of_library(part: Literal["models", "losses"]) -> Any:
    """Return the module of the sentence-transformers library with model parts or losses, in any version."""
    try:
        return import_module(f"sentence_transformers.sentence_transformer.{'modules' if part == 'models' else part}")
    except ModuleNotFoundError:  # before version 6
        return import_module(f"sentence_transformers.{part}")


def opened_by_library(folder: Path, device: torch.device | str, seed: int = 0) -> Any:
    """Open a model; missing weights are drawn, reproducibly for each seed."""
    with needing(f"The model '{folder}'"):
        from sentence_transformers import SentenceTransformer
    try:
        with quietly(), seeded(seed):
            return SentenceTransformer(
                str(folder),
                device=str(device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, **as_float32()},
            )
    except _FAILURES as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"Cannot load the text model '{folder}': {reason}",
            expected="the folder of a sentence-transformers model, complete and with its weights in safetensors",
            to_do="download the model again, or choose another one.",
        ) from error


def _refuse_random(model: Any, folder: Path, files: Sequence[Path]) -> None:
    """Refuse weights that leave a relevant part of the network random, so that two draws give different vectors.

    Many published models lack parts that do not affect their vectors. The second draw is therefore made only if the
    files lack an array of the right shape for some parameter.
    """
    needed = Counter(tuple(parameter.shape) for parameter in model.parameters())
    stored: Counter[tuple[int, ...]] = Counter()
    for file in (file for file in files if file.suffix == ".safetensors"):
        with safe_open(file, framework="pt") as arrays:
            stored.update(tuple(arrays.get_slice(name).get_shape()) for name in arrays.keys())  # noqa: SIM118
    if needed <= stored:
        return
    if not np.array_equal(_probe(model), _probe(opened_by_library(folder, model.device, seed=1))):
        raise ConfigError(
            f"The weights in '{folder}' lack a part of the network, which would stay random.",
            expected="weights for every part that the vectors depend on",
            to_do="download the model again, or choose another one.",
        )


def _probe(model: Any) -> NDArray[np.float32]:
    """Return the vector of one short text (D,)."""
    vector: NDArray[np.float32] = model.encode(["a"], prompt="", show_progress_bar=False)[0]
    return vector


def _longest(folder: Path, model: Any) -> float:
    """Return the number of positions of the network; the opened tokenizer only knows the configured length."""
    published = folder / "tokenizer_config.json"
    longest = read_json(published).get("model_max_length", np.inf) if published.exists() else np.inf
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return float(min(longest, getattr(config, "max_position_embeddings", np.inf)))


def _set_length(model: Any, tokens: int, longest: float) -> None:
    """Set the maximum number of tokens: at least one in addition to the special ones, at most `longest`."""
    if not np.isfinite(model.max_seq_length or np.inf):
        raise ConfigError("This model reads texts of any length.", expected="no max_length")
    least = model.tokenizer.num_special_tokens_to_add() + 1
    refuse(not least <= tokens <= longest, f"max_length = {tokens}.", f"from {least} to {longest:.0f} tokens")
    model.max_seq_length = tokens


def _prompts(prompts: Mapping[str, str], default: str | None) -> dict[str, str | None]:
    """Return the model's own prefix per role; None for "both" if the model has no prefix for all texts."""
    return {
        "query": prompts.get("query") or "",
        "document": next((prompts[name] for name in _DOCUMENT if prompts.get(name)), ""),
        "both": prompts.get(default) if default else None,
    }
