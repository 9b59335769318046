from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.errors import ConfigError
from limpet.geometry import Lorentz, lorentz
from limpet.methods.base import View
from limpet.methods.hbct import HBCT, entailment, robust_contrast
from limpet.models.embedding_network import tangent_vectors
from limpet.models.heads import LorentzHead
from limpet.models.lifting import LearnedLorentz


@pytest.fixture(params=[0, 1, 2])
def run(request: pytest.FixtureRequest) -> int:
    """Which of the three curvatures of the reference."""
    number: int = request.param
    return number


def options_of(g: dict[str, torch.Tensor], **changes: Any) -> dict[str, Any]:
    return {
        "weight": float(g["lam"]),
        "entail_weight": float(g["lam_ent"]),
        "temperature": float(g["tau"]),
        "beta": float(g["beta"]),
        "min_radius": float(g["eps"]),
        **changes,
    }


def reference_step(g: dict[str, torch.Tensor], run: int, make_step: Any) -> tuple[torch.Tensor, Any]:
    """The reference's batch, from raw embeddings on: the encoder's lift, the space, the classifier."""
    space, z = Lorentz(12, float(g["K"][run])), g["z_new"].clone().requires_grad_()
    head = LorentzHead(len(g["mlr_a"]), 12).to(z.dtype)
    head.load_state_dict({"weight": g["mlr_z"], "offsets": g["mlr_a"]})
    new, old = tangent_vectors(z, float(g["zeta_new"])), tangent_vectors(g["z_old"], float(g["zeta_old"]))
    return z, make_step(new, g["labels"], head, old, space=space)


def test_points_of_both_models(reference, agrees, make_step, run: int) -> None:
    g = reference("hbct")
    _, step = reference_step(g, run, make_step)
    agrees(step.new.points, g[f"h_new_space_{run}"])
    agrees(step.old.points, g[f"h_old_space_{run}"])
    agrees(step.new.space.uncertainty(step.old.points), g[f"uncertainty_{run}"])
    agrees(-step.new.space.similarity(step.new.points, step.old.points), g[f"dist_{run}"])


def test_the_whole_objective_and_its_gradient(reference, agrees, make_step, run: int) -> None:
    g = reference("hbct")
    z, step = reference_step(g, run, make_step)
    terms = HBCT(**options_of(g))(step)
    agrees(terms["task"], g[f"base_{run}"].mean())
    agrees(terms["contrast"], g["lam"] * g[f"rince_{run}"].mean())
    agrees(terms["entailment"], g["lam"] * g["lam_ent"] * g[f"entail_{run}"].mean())
    total = sum(terms.values())
    agrees(total, g[f"total_{run}"])
    agrees(torch.autograd.grad(total, z)[0], g[f"grad_z_new_{run}"])


FORMS: dict[str, dict[str, Any]] = {
    "rince": {},
    "infonce": {"contrast": "infonce"},
    "rince_sq_lorentz": {"similarity": "squared_lorentz"},
    "rince_inner": {"similarity": "inner"},
    "rince_no_same_class": {"same_class_negatives": False},
    "infonce_no_same_class": {"contrast": "infonce", "same_class_negatives": False},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_of_the_contrast(reference, agrees, make_step, run: int, form: str) -> None:
    g = reference("hbct")
    _, step = reference_step(g, run, make_step)
    terms = HBCT(**options_of(g, entail_weight=0.0, **FORMS[form]))(step)
    assert list(terms) == ["task", "contrast"]
    agrees(terms["contrast"], g["lam"] * g[f"{form}_{run}"].mean())


@pytest.mark.parametrize(("similarity", "table"), [("geodesic", "dist"), ("squared_lorentz", "sq_lorentz")])
def test_mean_distortion_is_the_mean_distance_of_pairs(reference, agrees, make_step, run, similarity, table) -> None:
    g = reference("hbct")
    _, step = reference_step(g, run, make_step)
    terms = HBCT(**options_of(g, contrast="mean_distortion", similarity=similarity))(step)
    agrees(terms["contrast"], g["lam"] * g[f"{table}_{run}"].diagonal().mean())


def test_without_negatives_of_the_own_class_only_the_own_row_of_it_is_kept(make_step) -> None:
    space, generator = Lorentz(4), torch.Generator().manual_seed(0)
    new, old = (0.5 * torch.randn(6, 4, generator=generator) for _ in range(2))
    labels, index = torch.tensor([0, 1, 0, 0, 1, 2]), torch.arange(5, 11)
    step = make_step(new, labels, LorentzHead(3, 4), old, space=space, index=index)
    found = HBCT(contrast="infonce", same_class_negatives=False, entail_weight=0.0, weight=1.0, temperature=1.0)(step)
    scores, rows = space.similarity(space.project(new), space.project(old)), []
    for i in range(6):
        kept = [j for j in range(6) if labels[j] != labels[i] or j == i]
        rows.append(torch.logsumexp(scores[i, kept], dim=0) - scores[i, i])
    torch.testing.assert_close(found["contrast"], torch.stack(rows).mean())


def test_an_uncertain_old_point_far_away_pulls_less_than_a_certain_one(make_step) -> None:
    space = Lorentz(2)
    pulls = []
    for certainty in (0.2, 1.0):
        new = torch.tensor([[-1.0, 0.3], [0.1, 0.2]], requires_grad=True)
        old = torch.tensor([[certainty, 0.0], [0.0, -certainty]])
        step = make_step(new, [0, 1], LorentzHead(2, 2), old, space=space)
        contrast = HBCT(entail_weight=0.0, temperature=0.2)(step)["contrast"]
        pulls.append(torch.autograd.grad(contrast, new)[0][0].norm() / step.new.points[0].detach().norm())
    assert pulls[0] < pulls[1]


def test_hbct_does_not_learn_the_curvature_through_the_uncertainty(make_step) -> None:
    space, generator = LearnedLorentz(3, 0.7), torch.Generator().manual_seed(0)
    new, old = (torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    step = make_step(new, [0, 1, 2, 3], LorentzHead(4, 3).double(), old, space=space)
    contrast = HBCT(weight=1.0, temperature=0.5, beta=0.1, entail_weight=0.0)(step)["contrast"]
    points, curvature = step.predecessor.points, space.live_curvature
    scores = -lorentz.distance(step.new.points, points, curvature=curvature) / 0.5
    constant = lorentz.uncertainty(points, curvature=float(curvature.detach()))
    expected = robust_contrast(scores.diagonal(), scores, constant, 0.1)
    learned = space.learned.log_ratio
    found, wanted = (torch.autograd.grad(one, learned, retain_graph=True)[0] for one in (contrast, expected))
    torch.testing.assert_close(found, wanted)
    assert wanted.abs().max() > 0


@pytest.mark.parametrize("wrong", [
    {"weight": -0.1}, {"temperature": 0.0}, {"beta": 0.0}, {"min_radius": 0.0}, {"contrast": "nce"},
    {"similarity": "cosine"}, {"contrast": "mean_distortion", "similarity": "inner"},
])  # fmt: skip
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="was given"):
        HBCT(**wrong)


def steps_taken(zeta: float, curvature: float, steps: int) -> tuple[list[float], torch.Tensor]:
    """Train a small encoder by HBCT, with autocast to bfloat16 around it as the training loop has it."""
    torch.manual_seed(0)
    space, dim, classes = Lorentz(16, curvature), 16, 8
    net = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, dim), torch.nn.BatchNorm1d(dim)
    )
    head, method = LorentzHead(classes, dim), HBCT()
    centres = torch.randn(classes, 32)
    old_net = torch.nn.Linear(32, dim)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1, momentum=0.9)  # 0.3 swings about
    losses = []
    for step in range(steps):
        labels = torch.randint(0, classes, (16,))
        inputs = centres[labels] + torch.randn(16, 32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            raw = net(inputs)
            with torch.autocast("cpu", enabled=False):
                new = View.of(tangent_vectors(raw, zeta), space)
                old = View.of(tangent_vectors(10 * old_net(inputs).detach(), zeta), space)
                terms = method(step_of(new, old, labels, head))
        loss = sum(terms.values())
        optimizer.zero_grad()
        loss.backward()
        gradients = [value.grad for value in (*net.parameters(), *head.parameters())]
        assert all(torch.isfinite(value).all() for value in gradients), f"step {step}"
        optimizer.step()
        losses.append(loss.item())
    return losses, new.points.detach()


def step_of(new: View, old: View, labels: torch.Tensor, head: LorentzHead) -> Any:
    from limpet.methods.base import Step

    nothing = torch.zeros_like(labels)
    return Step(new, old, labels, labels, torch.arange(len(labels)), nothing > 0, head, 0.0, 0, 1, torch.Generator())


@pytest.mark.slow
@pytest.mark.parametrize(("zeta", "curvature"), [(1.0, 0.1), (1.0, 2.0), (1.6, 1.0), (2.4, 0.1), (2.4, 2.0)])
def test_a_thousand_steps_stay_finite_under_autocast(zeta: float, curvature: float) -> None:
    losses, points = steps_taken(zeta, curvature, 1000)
    assert np.isfinite(losses).all() and np.mean(losses[-50:]) < np.mean(losses[:50])
    assert len(Lorentz(16, curvature).check(points.numpy())) == 0
    radii = lorentz.log_map0(points, curvature=curvature).norm(dim=1)
    assert radii.max() <= zeta * (1 + 1e-5)


@pytest.mark.parametrize(("zeta", "curvature"), [(10.0, 0.1), (12.0, 1.0), (3.0, 2.0), (0.0, 1.0), (float("nan"), 1.0)])
def test_an_unstable_reach_is_refused(zeta: float, curvature: float) -> None:
    with pytest.raises(ConfigError, match="clipping length") as error:
        Lorentz(16, curvature).clip_after(None, zeta)
    assert "float32" in error.value.expected


def points(count: int, seed: int, k: float = 1.0) -> torch.Tensor:
    u = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lorentz.exp_map0(u, curvature=k)


def test_worked_numbers() -> None:
    old = torch.tensor([[1.0, 0.0]]).expand(3, 2).double()
    behind, origin, beyond = [2.0, 0.0], [0.0, 0.0], [-1.0, 0.0]
    found = [entailment(torch.tensor([new]).double(), old[:1]).item() for new in (behind, origin, beyond)]
    outside = math.pi - math.asin(0.2)  # the cone opens by asin(2 · 0.1 / 1) to either side
    assert found == pytest.approx([0.0, outside, outside], abs=2e-6)
    together = entailment(torch.tensor([behind, origin, beyond]).double(), old)
    assert together.item() == pytest.approx(2 * outside / 3, abs=2e-6)


def test_min_radius_and_curvature_open_the_cone() -> None:
    old, new = torch.tensor([[0.0, 1.0]]).double(), torch.tensor([[1.0, 0.5]]).double()
    narrow, wide = entailment(new, old), entailment(new, old, min_radius=0.3)
    assert (narrow - wide).item() == pytest.approx(math.asin(0.6) - math.asin(0.2), rel=1e-12)
    flat = entailment(new / 10, old / 10, curvature=100.0)  # the same figure, ten times smaller
    assert flat.item() == pytest.approx(narrow.item(), rel=1e-12)


@given(seed=st.integers(0, 10_000), k=st.sampled_from([0.4, 1.0, 2.5]))
@settings(max_examples=30)
def test_by_a_slow_loop_of_the_printed_formula(seed: int, k: float) -> None:
    new, old, expected = points(6, seed, k), points(6, seed + 1, k), 0.0
    for n, o in zip(new, old, strict=True):
        times = [math.sqrt(1 / k + float(p @ p)) for p in (n, o)]
        c = k * (float(n @ o) - times[0] * times[1])
        length = float(o.norm())
        angle = math.acos(max(-1, min(1, (times[0] + times[1] * c) / (length * math.sqrt(c * c - 1)))))
        aperture = math.asin(min(1.0, 0.2 / (math.sqrt(k) * length)))
        expected += max(0.0, angle - aperture) / 6
    assert entailment(new, old, curvature=k).item() == pytest.approx(expected, rel=1e-6, abs=1e-5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(entailment(new[order], old[order], curvature=k), entailment(new, old, curvature=k))
    assert 0 <= entailment(new, old, curvature=k) < math.pi


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [0.0, 1e-9, 1e-7, 9e-5])
def test_close_pairs_cost_nothing(gap: float, precision: torch.dtype) -> None:
    old = torch.tensor([[0.6, 0.8]], dtype=precision)
    new = (old - gap * old).requires_grad_()  # towards the origin: the far side of every cone
    loss = entailment(new, old)
    loss.backward()
    assert loss.item() == 0 and new.grad.tolist() == [[0.0, 0.0]]
    far = entailment(old - 1e-3 * old, old)
    assert far.item() == pytest.approx(math.pi - math.asin(0.2), abs=3e-3)


EDGES = {
    "no row": (torch.zeros(0, 3), torch.zeros(0, 3)),
    "coinciding points": (torch.ones(3, 3), torch.ones(3, 3)),
    "apex at the origin": (torch.eye(3), torch.zeros(3, 3)),
    "apex all but at the origin": (torch.eye(3), 1e-12 * torch.ones(3, 3)),
    "new point at the origin": (torch.zeros(3, 3), torch.eye(3)),
    "one line": (torch.eye(3) * torch.tensor([2.0, 0.5, -1.0]), torch.eye(3)),
    "far away": (2e4 * torch.eye(3), -2e4 * torch.eye(3)),
}


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", EDGES)
def test_finite_at_the_edges(edge: str, precision: torch.dtype) -> None:
    new, old = (values.to(precision).clone() for values in EDGES[edge])
    loss = entailment(new.requires_grad_(), old)
    loss.backward()
    assert loss.dtype == precision and torch.isfinite(loss) and torch.isfinite(new.grad).all()
    assert loss.item() == 0 or edge not in ("no row", "coinciding points", "apex at the origin")


def test_the_gradient_turns_the_new_point_into_the_cone() -> None:
    old = torch.tensor([[1.0, 0.0]]).double()
    new = torch.tensor([[1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    loss = entailment(new, old)
    (gradient,) = torch.autograd.grad(loss, new)
    assert 0 < entailment(new - 0.1 * gradient, old) < loss
    learned = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda n, k: entailment(n, old, curvature=k), [new, learned])
