"""Learning in sessions without embedding the gallery again: plans and exemplars, importable without torch.

Replayed embeddings are in `holdfast.losses.replayed_embedding`, where their method looks for them.
"""

from holdfast.continual.memory import herding, quotas, random_exemplars, spread_by_uncertainty, vote_uncertainty
from holdfast.continual.plan import Plan
from holdfast.continual.plans import PLANS, blurry, disjoint, general_incremental

__all__ = [
    "PLANS",
    "Plan",
    "blurry",
    "disjoint",
    "general_incremental",
    "herding",
    "quotas",
    "random_exemplars",
    "spread_by_uncertainty",
    "vote_uncertainty",
]
