"""Train the two small text models of `limpet examples copy`, and embed the sample texts with them.

    python tools/sample_models.py

Both models are tables with one vector per word piece; the vector of a text is their mean. Model v1 is trained without
labels, only on the two halves of each text. Model v2 has more dimensions, and is trained on the labels of the requests
and the categories of the products. Neither is trained on questions.csv. The script writes models/ and vectors/ of
`src/limpet/examples/shop`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch.nn import functional as F

from limpet.models.text_encoders import open_text_encoder

SHOP = Path(__file__).parents[1] / "src" / "limpet" / "examples" / "shop"


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a sample file."""
    with (SHOP / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tokenizer_of(texts: list[str]) -> Tokenizer:
    """Return a WordPiece tokenizer, trained on texts."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=["[UNK]"], show_progress=False)
    )
    return made


def mean_of(table: torch.Tensor, texts: list[list[int]]) -> torch.Tensor:
    """Return the mean vector of each text, scaled to unit length, (N, D)."""
    offsets = torch.tensor([0, *np.cumsum([len(ids) for ids in texts])[:-1]])
    return F.normalize(F.embedding_bag(torch.tensor([one for ids in texts for one in ids]), table, offsets))


def train(texts: list[list[int]], labels: list[int] | None, dim: int, steps: int) -> torch.Tensor:
    """Train a table of vectors (V, dim) with cross entropy over cosines within batches of 128 texts.

    Args:
        texts: Numbers of the word pieces of every text.
        labels: Class of every text; None makes the two halves of each text a class.
        dim: Dimension of the vectors.
        steps: Number of batches.
    """
    generator = torch.Generator().manual_seed(dim)
    pieces = max(max(ids) for ids in texts) + 1
    table = torch.randn((pieces, dim), generator=generator).mul_(0.1).requires_grad_()
    optimizer = torch.optim.Adam([table], lr=0.01)
    classes = None if labels is None else torch.tensor(labels)
    for _ in range(steps):
        rows = torch.randperm(len(texts), generator=generator)[:128].tolist()
        halves: tuple[list[list[int]], list[list[int]]] = ([], [])
        for row in rows:
            order = torch.randperm(len(texts[row]), generator=generator).tolist()
            ids = [texts[row][place] for place in order]
            for half, part in zip(halves, (ids[::2], ids[1::2] or ids), strict=True):
                half.append(part)
        cosines = mean_of(table, halves[0]) @ mean_of(table, halves[1]).T
        own = torch.arange(len(rows)) if classes is None else classes[rows]
        same = (own[:, None] == own).float()
        loss = F.cross_entropy(cosines / 0.1, same / same.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return table.detach()


def main() -> None:
    """Train both models, and write models and vectors."""
    torch.set_num_threads(1)
    requests, questions, products = (rows_of(f"{name}.csv") for name in ("requests", "questions", "products"))
    texts = [row["text"] for row in requests] + [row["title"] for row in products]
    names = [row["label"] for row in requests] + [row["category"] for row in products]
    tokenizer = tokenizer_of(texts)
    encoded = [one.ids for one in tokenizer.encode_batch(texts)]
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    tables = {
        "v1": train(encoded, None, dim=32, steps=200),
        "v2": train(encoded, [known[name] for name in names], dim=64, steps=200),
    }
    (SHOP / "vectors").mkdir(exist_ok=True)
    for model, table in tables.items():
        folder = SHOP / "models" / model
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"embeddings": table.half()}, folder / "model.safetensors")
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        (folder / "config.json").write_text(json.dumps({"normalize": True}) + "\n", encoding="utf-8")
        encoder = open_text_encoder(f"st:{folder}")
        for name, rows, column in (
            ("requests", requests, "text"), ("questions", questions, "text"), ("products", products, "title")
        ):  # fmt: skip
            vectors = encoder.encode([row[column] for row in rows])
            columns = {"id": [row["id"] for row in rows], "vector": list(vectors)}
            if "label" in rows[0]:
                columns["label"] = [row["label"] for row in rows]
            pq.write_table(pa.table(columns), SHOP / "vectors" / f"{name}-{model}.parquet", compression="zstd")


if __name__ == "__main__":
    main()
