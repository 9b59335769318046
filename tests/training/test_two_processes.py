"""Two real processes on the CPU train what one process trains on the whole batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from limpet.geometry import SPACES
from limpet.methods import METHODS
from limpet.models.lifting import LearnedLorentz

SCRIPT = """
import sys, warnings
import numpy as np, torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from pathlib import Path
from safetensors.torch import save_file
warnings.simplefilter("ignore")
torch.set_num_threads(1)
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.embeddings import EmbeddingSet
from limpet.methods import METHODS
from limpet.methods.base import OldModel
from limpet.models.heads import build_head, default_head
from limpet.models.seeding import seeded
from limpet.training.loop import fit
from tests.training.test_two_processes import RUNS

class Floats(torch.nn.Module):
    def forward(self, inputs):
        return inputs.double() / 255

class Stop(Exception):
    pass

rng, out, processes = np.random.default_rng(0), Path(sys.argv[1]), int(sys.argv[2])
labels, names = np.arange(64) % 9, [f"c{c}" for c in range(9)]
pixels = rng.integers(0, 256, (64, 1, 4, 4), dtype=np.uint8)
ids = [str(row) for row in range(64)]
images = ImageSet(ArrayImages(pixels), labels, names, ids)
vectors = (rng.normal(size=(9, 6))[labels] + 0.3 * rng.normal(size=(64, 6))).astype(np.float32)
strategy = DDPStrategy(find_unused_parameters=True, broadcast_buffers=False) if processes > 1 else "auto"
fabric = Fabric(accelerator="cpu", devices=processes, precision="64-true", strategy=strategy)
if processes > 1:
    fabric.launch()

def trained(run, checkpoint=None, stop=None):
    def at_step(step):
        if step["done"] == stop:
            raise Stop

    space = run.space(6)
    kept = space.settled()
    embeddings = EmbeddingSet(vectors, ids, "declared:old", kept, form="features", labels=labels, class_names=names)
    with seeded(1):
        model = torch.nn.Sequential(Floats(), torch.nn.Flatten(), torch.nn.Linear(16, 6))
        head = build_head(run.head or default_head(space), 9, 6, run.head_options)
        old_head = build_head(default_head(space), 9, 6, {})
    method = METHODS[run.method](**run.options)
    place = {"rank": fabric.global_rank, "world_size": processes}
    history = fit(
        model, head, method, training_loader(images, batch_size=16 // processes, seed=0, **place),
        encoding_loader(images, batch_size=8), space=space, class_names=names,
        old=OldModel(embeddings, names, old_head, own_training=embeddings) if method.needs_old else None,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5), fabric=fabric, epochs=2,
        seed=0, checkpoint=checkpoint, checkpoint_seconds=0.0, progress=at_step,
    )
    found = dict(model.state_dict()) | method.state_dict(prefix="method.") | head.state_dict(prefix="head.")
    found["curvature"] = torch.tensor(space.settled().curvature or 0.0)
    found["losses"] = torch.tensor([epoch["loss"] for epoch in history.epochs])
    return {key: value.contiguous().clone() for key, value in found.items()}

for number, run in enumerate(RUNS.values()):
    save_file(trained(run), out / f"{number}.{fabric.global_rank}")
    if run.head_options:
        checkpoint = out / f"checkpoint{number}"
        try:
            trained(run, checkpoint, stop=6)
        except Stop:
            save_file(trained(run, checkpoint), out / f"{number}.{fabric.global_rank}.resumed")
"""


class Run(NamedTuple):
    """What is trained; without a name, the head is that of the space."""

    method: str
    options: dict[str, Any] = {}  # noqa: RUF012
    space: Callable[[int], Any] = SPACES["hypersphere"]
    head: str | None = None
    head_options: dict[str, Any] = {}  # noqa: RUF012


RUNS = {
    f"{name}-{key}": Run(name, space=space)
    for name, method in METHODS.items()
    for key, space in SPACES.items()
    if key in method.spaces
} | {
    "ndpp-running": Run("ndpp", {"new_prototypes": "running"}),
    "odpp-running": Run("odpp", {"new_prototypes": "running"}),
    "nccl-queue": Run("nccl", {"queue_size": 7}),
    "odpp-thresholds": Run("odpp", {"threshold_old": 0.0, "threshold_new": -1.0}),
    "p2s-sampled": Run("p2s", {"negatives": 3}),
    "hbct-curvature": Run("hbct", {"same_class_negatives": False}, LearnedLorentz),
}
DIVIDED = {
    f"{method}-{head}": Run(method, head=head, head_options={"divided": True, **options})
    for method in ("independent", "p2s")
    for head, options in {"softmax": {"bias": True}, "normalised": {}, "arcface": {"scale": 16.0}}.items()
}
RUNS |= DIVIDED


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Train everything with one process and with two; each writes its files into a folder."""
    folders = {}
    for processes in (1, 2):
        folders[processes] = folder = tmp_path_factory.mktemp("trained")
        (folder / "train.py").write_text(SCRIPT)
        command, root = [sys.executable, folder / "train.py", folder, str(processes)], Path(__file__).parents[2]
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=paths)
        assert done.returncode == 0, done.stderr[-2000:]
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_two_processes_train_what_one_does(trained: dict[int, Path], run: str) -> None:
    """In float64: rounding decides which negatives are the hardest, and a temperature of 0.01 magnifies it."""
    number = list(RUNS).index(run)
    alone = load_file(trained[1] / f"{number}.0")
    first, second = (load_file(trained[2] / f"{number}.{rank}") for rank in (0, 1))
    for name, wanted in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(
            first[name], wanted, rtol=1e-6, atol=1e-6, msg=lambda said, name=name: f"{name}: {said}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("run", DIVIDED)
def test_a_run_of_divided_classes_resumes_to_the_same_rows(trained: dict[int, Path], run: str) -> None:
    number = list(RUNS).index(run)
    for rank in (0, 1):
        whole, resumed = (load_file(trained[2] / f"{number}.{rank}{end}") for end in ("", ".resumed"))
        assert len(whole["head.weight"]) == 9
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)


OWN_LOOP = """
import json, sys
import torch
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
import limpet

torch.set_num_threads(1)
rank, folder = int(sys.argv[1]), Path(sys.argv[2])
generator = torch.Generator().manual_seed(0)
old, new = torch.randn(2, 16, 6, generator=generator)
labels = torch.arange(16) % 4
makes = {"old_embeddings": old, "old_labels": labels}

def losses():
    whole = limpet.CompatibilityLoss("hot_refresh", options={"negatives": 0}, **makes)
    trained = limpet.CompatibilityLoss("p2s", classifier="normalised", **makes)
    ndpp = limpet.CompatibilityLoss("ndpp", options={"alpha_new": 1.0}, **makes)
    return whole, trained, ndpp

def measured(rows, wrapped):
    contrast, trained, ndpp = losses()
    leaf = new[rows].clone().requires_grad_()
    module = wrapped(trained)
    found = module(leaf, labels[rows])
    found.backward()
    ndpp.start_epoch(0, of=1, new_embeddings=new + rank)
    return {
        "contrast": contrast(new[rows], labels[rows], old=old[rows]).item(),
        "loss": found.item(),
        "gradient": trained.head.weight.grad.flatten().tolist(),
        "targets": ndpp.method.targets.flatten().tolist(),
    }

alone = measured(slice(None), lambda loss: loss) if rank == 0 else None
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
found = measured(slice(8 * rank, 8 * rank + 8), DistributedDataParallel)
(folder / f"{rank}.json").write_text(json.dumps([alone, found]))
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_a_loss_in_a_loop_of_one_s_own_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    """Halves of a batch contrast with all of it; gradients are averaged; an epoch's start is that of the first."""
    script = tmp_path / "loop.py"
    script.write_text(textwrap.dedent(OWN_LOOP))
    started = [
        subprocess.Popen([sys.executable, script, str(rank), tmp_path], stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for process in started:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said[-2000:]
    (alone, first), (_, second) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    for name in ("contrast", "loss"):
        assert first[name] == second[name] == pytest.approx(alone[name], rel=1e-5)
    assert first["gradient"] == second["gradient"] == pytest.approx(alone["gradient"], rel=1e-4, abs=1e-6)
    assert first["targets"] == second["targets"] == alone["targets"]
