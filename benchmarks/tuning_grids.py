"""What is tried of every method's one tuned option: equally many values, those of its paper among them.

`GRIDS` holds the values that all_methods.py and hyperbolic.py try. `PUBLISHED` holds those that the method's own paper
took or, where it shows a study, those that it tried; a grid has to contain them. Beyond these a grid goes where
earlier runs on Omniglot found their best values at its end.
"""

from __future__ import annotations

GRIDS: dict[str, tuple[float, ...]] = {
    "l2": (1.0, 5.0, 10.0, 15.0, 20.0),
    "p2s": (0.1, 0.3, 1.0, 3.0, 10.0),
    "bct": (0.1, 0.3, 1.0, 3.0, 10.0),
    "lce": (0.3, 1.0, 3.0, 10.0, 30.0),
    "unibct": (0.03, 0.1, 0.3, 1.0, 3.0),
    "hot_refresh": (0.03, 0.1, 0.3, 1.0, 3.0),
    "nccl": (0.3, 1.0, 3.0, 10.0, 30.0),
    "hoc": (0.1, 0.3, 0.5, 0.7, 0.9),
    "advbct": (0.3, 1.0, 2.0, 4.0, 10.0),
    "mixbct": (0.1, 0.2, 0.3, 0.4, 0.5),
    "ndpp": (0.1, 0.3, 1.0, 3.0, 10.0),
    "odpp": (0.1, 0.3, 1.0, 3.0, 10.0),
    "hbct": (0.03, 0.1, 0.3, 0.6, 1.0),
    "free_dimensions": (0.1, 0.3, 1.0, 3.0, 10.0),
    "oca": (0.1, 0.3, 1.0, 3.0, 10.0),
    "d3still": (0.1, 0.3, 1.0, 3.0, 10.0),
    "ssp": (0.1, 0.3, 1.0, 3.0, 10.0),
    "blended_targets": (0.1, 0.2, 0.4, 0.8, 1.6),
}
"""By method: values of the option that its `balance` names."""

PUBLISHED: dict[str, tuple[float, ...]] = {
    "l2": (1.0, 5.0, 10.0, 15.0, 20.0),  # MixBCT's study of L2*, whose sixth value, 6, stands beside 5; 10 is its best
    "p2s": (1.0,),
    "bct": (1.0,),
    "lce": (1.0,),
    "unibct": (1.0,),
    "hot_refresh": (1.0,),
    "nccl": (1.0,),
    "hoc": (0.1,),
    "advbct": (1.0, 4.0),  # its own, and that of its copy beside MixBCT
    "mixbct": (0.1, 0.2, 0.3, 0.4, 0.5),  # its study of the ratio
    "ndpp": (1.0,),
    "odpp": (1.0,),
    "hbct": (0.3, 1.0),  # its own, and the end of the range in which it tunes its rivals
    "free_dimensions": (1.0,),  # ours: the weights of BT² belong to terms that differ
    "oca": (1.0,),
    "d3still": (1.0,),  # what its code counts its terms by
    "ssp": (1.0,),
    "blended_targets": (0.8,),  # our own
}
"""By method: values of the same option in the papers."""
