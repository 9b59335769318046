r"""What to do between two frozen models: fit links, measure them on held-out items, recommend one.

`adapt(old, new)` takes two `EmbeddingSet`s of the same items and returns what was found; `save_link` fits what was
recommended on all of them and saves it::

    found = adapt(old, new)
    print(*found.recommendation.sentences, sep="\n")
    if found.recommendation.candidate:
        save_link(found.recommendation.candidate, old, new, Choice(), Path("link"))

A link is a label-free adapter (`holdfast.adapters`) or a compatible head (`holdfast.training.compatible_head`).
"""

from holdfast.adapting.candidates import Candidate, Link, measure
from holdfast.adapting.held_out import HeldOut, hold_out
from holdfast.adapting.linking import Adapted, Choice, adapt, open_link, save_link
from holdfast.adapting.recommendation import Recommendation, recommend

__all__ = [
    "Adapted",
    "Candidate",
    "Choice",
    "HeldOut",
    "Link",
    "Recommendation",
    "adapt",
    "hold_out",
    "measure",
    "open_link",
    "recommend",
    "save_link",
]
