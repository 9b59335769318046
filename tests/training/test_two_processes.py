"""Two real processes on the CPU: every method trains, and its state is the same in both."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import json, os, sys, warnings
import numpy as np, torch
from pathlib import Path
warnings.simplefilter("ignore")
torch.set_num_threads(1)
from limpet.data.image_set import ImageSet
from limpet.data.images import ArrayImages
from limpet.data.loading import encoding_loader, training_loader
from limpet.embeddings import EmbeddingSet
from limpet.geometry import SPACES
from limpet.methods import METHODS
from limpet.methods.base import OldModel
from limpet.models.lifting import LearnedLorentz
from limpet.models.heads import build_head, default_head
from limpet.models.seeding import seeded
from limpet.training.loop import fit
from limpet.training.experiment import Recipe

class Floats(torch.nn.Module):
    def forward(self, inputs):
        return inputs.float() / 255

rng, out = np.random.default_rng(0), Path(sys.argv[1])
labels, names = np.arange(64) % 8, [f"c{c}" for c in range(8)]
pixels = rng.integers(0, 256, (64, 1, 4, 4), dtype=np.uint8)
ids = [str(row) for row in range(64)]
images = ImageSet(ArrayImages(pixels), labels, names, ids)
vectors = (rng.normal(size=(8, 6))[labels] + 0.3 * rng.normal(size=(64, 6))).astype(np.float32)
fabric = Recipe(devices=2, accelerator="cpu").build_fabric()
cells = [(name, key) for name, method in METHODS.items() for key in SPACES if key in method.spaces]
runs = [(name, {}, SPACES[key](6)) for name, key in cells]
sphere = SPACES["hypersphere"](6)
runs += [(name, {"new_prototypes": "running"}, sphere) for name in ("ndpp", "odpp")]
runs += [("nccl", {"queue_size": 7}, sphere), ("odpp", {"threshold_old": 0.0, "threshold_new": -1.0}, sphere)]
runs += [("hbct", {"same_class_negatives": False}, LearnedLorentz(6))]
found = []
for name, options, space in runs:
    kept = space.settled()
    embeddings = EmbeddingSet(vectors, ids, "declared:old", kept, form="features", labels=labels, class_names=names)
    with seeded(1):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 6), torch.nn.BatchNorm1d(6))
        model.insert(0, Floats())
        head, old_head = (build_head(default_head(space), 8, 6, {}) for _ in range(2))
    method = METHODS[name](**options)
    history = fit(
        model, head, method, training_loader(images, batch_size=8, seed=0, rank=fabric.global_rank, world_size=2),
        encoding_loader(images, batch_size=8), space=space, class_names=names,
        old=OldModel(embeddings, names, old_head, own_training=embeddings) if method.needs_old else None,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05), fabric=fabric, epochs=2, seed=0,
    )
    state = {key: value.double().sum().item() for key, value in method.state_dict().items() if "critic.1" not in key}
    weights = {key: value.sum().item() for key, value in model.named_parameters()}
    weights["curvature"] = space.settled().curvature
    found.append([name, options, history.epochs[-1]["loss"], state | weights])
(out / f"{fabric.global_rank}.json").write_text(json.dumps(found))
"""


@pytest.mark.slow
def test_all_methods_in_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert len(first) == 29 + 1 + 14 + 5  # on the hypersphere, hbct, others on the Lorentz space, with options
    for (name, options, loss, state), (_, _, other_loss, other_state) in zip(first, second, strict=True):
        assert state == other_state, (name, options)
        assert loss == loss and other_loss == other_loss and loss != other_loss  # finite, of different batches


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
        assert first[name] != second[name]
        assert (first[name] + second[name]) / 2 == pytest.approx(alone[name], rel=1e-5)
    assert first["gradient"] == second["gradient"] == pytest.approx(alone["gradient"], rel=1e-4, abs=1e-6)
    assert first["targets"] == second["targets"] == alone["targets"]
