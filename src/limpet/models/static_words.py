"""Static word embeddings: the vector of a text is the mean of one vector per token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from limpet.errors import ConfigError, refuse
from limpet.models.long_texts import TokenLimit
from limpet.models.text_folders import contract_fingerprint, file_digest, read_json
from limpet.support.disk import regular
from limpet.support.extras import needing

LONGEST = 512
"""Default maximum number of tokens in the layout of model2vec."""


@dataclass(frozen=True)
class StaticFiles:
    """The files of a static model, in one of two layouts.

    The layout of wordllama has one matrix ``embedding.weight``, and all tokens count. The layout of model2vec has a
    matrix ``embeddings`` with an optional row number (``mapping``) and weight (``weights``) per token; unknown tokens
    do not count, and ``config.json`` may request unit vectors.

    Args:
        names: Names of the arrays in the weights.
    """

    folder: Path
    weights: Path
    tokenizer: Path
    names: frozenset[str]

    @property
    def distilled(self) -> bool:
        """Whether the layout is that of model2vec."""
        return "embeddings" in self.names


def static_files(folder: Path) -> StaticFiles | None:
    """Return the files of a static model in a folder, or None if it holds something else.

    Raises:
        ConfigError: The folder has several such models, or the weights cannot be read.
    """
    flat = (sorted(folder.glob("*.safetensors")), sorted(folder.glob("tokenizer.json")))
    nested = (sorted((folder / "weights").glob("*.safetensors")), sorted((folder / "tokenizers").glob("*.json")))
    weights, tokenizers = flat if all(flat) else nested
    if not weights or not tokenizers:
        return None
    names = _array_names(weights[0])
    if not names & {"embeddings", "embedding.weight"}:
        return None
    if len(weights) > 1 or len(tokenizers) > 1:
        found = ", ".join(file.name for file in (*weights, *tokenizers))
        raise ConfigError(
            f"'{folder}' holds several static models or tokenizers: {found}.",
            expected="one .safetensors file and one tokenizer",
            to_do="put the ones you mean into a folder of their own, the tokenizer as tokenizer.json.",
        )
    return StaticFiles(folder, weights[0], tokenizers[0], names)


class StaticWords:
    """A static model: the mean of the vectors of a text's tokens.

    Args:
        max_length: Maximum number of tokens per text; longer texts are truncated. The model's own when left out.
        truncate_dim: Truncate embeddings to this many dimensions; all when left out.

    Raises:
        ConfigError: The library or a file is missing, or a setting is out of range.
    """

    def __init__(self, files: StaticFiles, max_length: int | None, truncate_dim: int | None) -> None:
        config = read_json(files.folder / "config.json") if files.distilled else {}
        self._matrix = _matrix(files, truncate_dim)
        self._normalised = bool(config.get("normalize", False))
        max_length = max_length or (config.get("max_length", LONGEST) if files.distilled else None)
        digests = {"weights": file_digest(files.weights), "tokenizer": file_digest(files.tokenizer)}
        self._tokenizer = _tokenizer(files.tokenizer, digests["tokenizer"], max_length)
        tokens = self._tokenizer.get_vocab_size()
        refuse(
            tokens > len(self._matrix),
            f"The tokenizer of '{files.folder}' knows {tokens} tokens, its weights {len(self._matrix)}.",
            "a vector for every token",
        )
        name = read_json(files.tokenizer).get("model", {}).get("unk_token") if files.distilled else None
        self._left_out: int | None = None if name is None else self._tokenizer.token_to_id(name)
        self.dim = self._matrix.shape[1]
        self.prompts: dict[str, str | None] = {"query": "", "document": "", "both": None}
        contract: dict[str, Any] = {
            "kind": "static",
            "files": digests,
            "pooling": "mean of all tokens" if self._left_out is None else "mean of known tokens",
            "normalised": self._normalised,
            "dtype": "float32",
            "max_length": max_length,
            "dim": self.dim,
        }
        self.fingerprint = contract_fingerprint(contract)
        self.limit = TokenLimit.of(self._tokenizer, max_length, special=False)

    def __call__(self, texts: list[str], prefix: str) -> NDArray[np.float32]:
        """Return raw vectors (N, D); the vector of a text without any known token is zero."""
        encodings = self._tokenizer.encode_batch([prefix + text for text in texts], add_special_tokens=False)
        tokens = [np.array(encoding.ids, np.int64) for encoding in encodings]
        if self._left_out is not None:
            tokens = [ids[ids != self._left_out] for ids in tokens]
        vectors = mean_of_rows(self._matrix, tokens)
        if self._normalised:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-32)
        return vectors


def mean_of_rows(matrix: NDArray[np.float32], rows: list[NDArray[np.int64]]) -> NDArray[np.float32]:
    """Return the mean of the chosen rows of a matrix (V, D), one mean per list (N, D); zero for an empty list.

    >>> mean_of_rows(np.array([[0, 2], [4, 4]], np.float32), [np.array([0, 1, 1]), np.array([], int), np.array([0])])
    array([[2.6666667, 3.3333333],
           [0.       , 0.       ],
           [0.       , 2.       ]], dtype=float32)
    """
    counts = np.array([len(chosen) for chosen in rows])
    means = np.zeros((len(rows), matrix.shape[1]), np.float32)
    filled = np.flatnonzero(counts)
    if len(filled):
        starts = np.cumsum(counts[filled]) - counts[filled]
        sums = np.add.reduceat(matrix[np.concatenate(rows)], starts, axis=0)
        means[filled] = sums / counts[filled, None]
    return means


def _array_names(path: Path) -> frozenset[str]:
    try:
        with safe_open(regular(path), framework="pt") as file:
            return frozenset(file.keys())
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"Cannot read '{path}': {error}.", expected="weights in safetensors", to_do="download the model again."
        ) from error


def _matrix(files: StaticFiles, truncate_dim: int | None) -> NDArray[np.float32]:
    """Return one vector per token (V, D) in float32, row numbers and weights of tokens applied."""
    with safe_open(regular(files.weights), framework="pt") as file:  # NumPy does not support bfloat16
        matrix = file.get_tensor("embeddings" if files.distilled else "embedding.weight").float().numpy()
        mapping = file.get_tensor("mapping").numpy() if "mapping" in files.names else None
        factors = file.get_tensor("weights").float().numpy() if "weights" in files.names else None
    if matrix.ndim != 2:
        raise ConfigError(f"'{files.weights}' holds an array of shape {matrix.shape}.", expected="(tokens, dimension)")
    refuse(
        truncate_dim is not None and truncate_dim > matrix.shape[1],
        f"truncate_dim = {truncate_dim}.",
        f"at most {matrix.shape[1]}, the dimension of the model",
    )
    matrix = matrix[:, :truncate_dim] if mapping is None else matrix[mapping, :truncate_dim]
    return np.ascontiguousarray(matrix if factors is None else matrix * factors[:, None])


@lru_cache(maxsize=4)  # reading a tokenizer is the slowest part of opening a model
def _tokenizer(path: Path, digest: str, max_length: int | None) -> Any:
    with needing("A model of static words"):
        from tokenizers import Tokenizer
    try:
        tokenizer = Tokenizer.from_file(str(regular(path)))
    except Exception as error:  # the library raises this class itself
        raise ConfigError(f"Cannot read the tokenizer '{path}': {error}.", expected="a tokenizer in JSON") from error
    tokenizer.no_padding()
    if max_length is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(max_length)
    return tokenizer
