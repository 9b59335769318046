"""AdvBCT (CVPR 2023): Boundary-Aware Backward-Compatible Representation via Adversarial Learning in Image Retrieval."""

from __future__ import annotations

from limpet import EncoderSpec, Recipe
from limpet_bench.figures import Curve, Embedding, LossCurve, Reference, Table
from limpet_bench.suite import Data, EvaluationSet, Run, Scenario, Suite, Training, Values
from limpet_bench.suites.columns import P_OVER_SETS, SELF_AND_CROSS
from limpet_bench.suites.published import published

# As in the released code: no augmentation, images resized to 224 x 224 pixels without keeping the aspect ratio, and
# initial weights of ImageNet, for old models too (folders weights/resnet-18 and weights/resnet-50 in the data root).
TRAINING = Training(
    model=EncoderSpec(
        backbone="resnet18",
        dim=256,
        projection="linear-bn",
        image_size=224,
        fit="squash",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    # The released code uses 256 images in each of four processes, and full precision.
    recipe=Recipe(
        epochs=30,
        batch_size=1024,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.0005,
        schedule="steps",
        milestones=(5, 10, 20),
    ),
    weights="resnet-18",
)


def larger(training: Training) -> Training:
    """Return the training with ResNet50 instead of ResNet18."""
    return training.but(model={"backbone": "resnet50"}, weights="resnet-50")


GLDV2_IMAGES: Values = {"image_size": 224, "fit": "squash", "usage": "Private"}
GLDV2 = Data("gldv2", GLDV2_IMAGES)

# Test sets of the paper: RParis and ROxford (medium), and GLDv2. As in the released code, queries of RParis and ROxford
# are not cropped to their boxes, and the queries of GLDv2 are the private ones.
BUILDINGS = EvaluationSet(
    options={"image_size": 224, "fit": "squash", "crop_queries": False},
    protocol="revisited",
    protocol_options={"difficulty": "medium"},
    metrics=("map-trapezoid",),
)
RPARIS = {"rparis": BUILDINGS}
BOTH_BUILDINGS = {**RPARIS, "roxford": BUILDINGS}
LANDMARKS = {
    **BOTH_BUILDINGS,
    "gldv2": EvaluationSet(
        options=GLDV2_IMAGES, protocol="gldv2", protocol_options={"usage": "Private"}, metrics=("map@100",)
    ),
}

MORE_DATA: Values = {"rule": "gldv2", "seed": 666}
MORE_CLASSES: Values = {"old_fraction": 0.3, "seed": 666}
THRESHOLD: Values = {"threshold": 0.4}
THRESHOLDS = (0.2, 0.4, 0.6, 0.8, 1.0)  # 0.4 is the paper's value, the others are our choice

WITHOUT: dict[str, Values] = {
    "L_cls": {"task_weight": 0.0},
    "L_adv": {"adversarial_weight": 0.0},
    "L_p2s": {"weight": 0.0},
}
"""Options that turn off a loss, by loss."""


def losses(data: Data, scenario: Scenario, training: Training) -> list[Run]:
    """Return a run for every non-empty subset of the three losses (Table 2); the last one has all three."""
    runs = [Run("L_cls", data, scenario, "independent", training=training)]
    for kept in (
        ("L_adv",), ("L_p2s",), ("L_cls", "L_adv"), ("L_cls", "L_p2s"), ("L_adv", "L_p2s"), ("L_cls", "L_adv", "L_p2s"),
    ):  # fmt: skip
        options = {name: value for loss in WITHOUT if loss not in kept for name, value in WITHOUT[loss].items()}
        runs.append(Run(" + ".join(kept), data, scenario, "advbct", options or THRESHOLD, training))
    return runs


OLD_MODEL: dict[str, Reference] = {"old": "self_old"}


def threshold_curve(row: str, *scenarios: str) -> Curve:
    """Return Figure 5: self-test and cross-test over the threshold."""
    return Curve(
        title="Self-test and cross-test over the threshold",
        scenarios=scenarios,
        rows=(row,),
        over="options.threshold",
        measures=("self_new", "cross"),
    )


def figure_5() -> Suite:
    """Figure 5: the threshold t."""
    scenario = Scenario("extended-class", MORE_CLASSES)
    advbct = Run("advbct", GLDV2, scenario, options=THRESHOLD, training=TRAINING)
    return Suite(
        title="AdvBCT, Figure 5: the threshold of its boundaries",
        description=(
            "Five thresholds of AdvBCT, searched on RParis, with more classes of GLDv2, at the paper's full size."
        ),
        reproduces=("advbct/figure-5",),
        test_sets=RPARIS,
        runs=(
            Run("independent", GLDV2, scenario, training=TRAINING),
            advbct,
            *(advbct.variant("options.threshold", value) for value in THRESHOLDS),
        ),
        figures={
            "threshold": threshold_curve("advbct"),
            "numbers": Table(title="Figure 5: its numbers", columns=SELF_AND_CROSS),
        },
        published=published("advbct-figure-5"),
    )


def small() -> Suite:
    """A quarter of Omniglot's characters at 20 pixels, and a small network; takes minutes on one core."""
    data = Data("omniglot", {"class_share": 0.25, "image_size": 20})
    training = Training(
        model=EncoderSpec(dim=32, projection="linear-bn", channels=1, image_size=20, backbone_options={"filters": 16}),
        recipe=Recipe(epochs=6, batch_size=64, learning_rate=0.1, schedule="steps", milestones=(3, 5)),
    )
    runs: list[Run] = []
    for scenario in (Scenario("extended-data"), Scenario("extended-class")):
        runs += losses(data, scenario, training)
        runs += [runs[-1].variant("options.threshold", value) for value in THRESHOLDS]
    return Suite(
        title="AdvBCT's three losses and its threshold on a quarter of Omniglot",
        description=(
            "Table 2 and Figure 5 of AdvBCT at a small size: all subsets of its three losses, and five thresholds, "
            "for more images and for more classes, three seeds each."
        ),
        reproduces=("advbct/table-2", "advbct/figure-5"),
        runs=tuple(runs),
        seeds=(0, 1, 2),
        figures={
            "joined": Table(
                title="Table 2 at a small size: the three losses", columns=SELF_AND_CROSS, references=OLD_MODEL
            ),
            "threshold": threshold_curve("L_cls + L_adv + L_p2s", "extended-class"),
        },
    )


def table_2() -> Suite:
    """Table 2: the three losses, alone and together."""
    scenarios = (Scenario("extended-data", MORE_DATA), Scenario("extended-class", MORE_CLASSES))
    return Suite(
        title="AdvBCT, Table 2: its three losses",
        description="All subsets of the three losses of AdvBCT on GLDv2, ResNet18, at the paper's full size.",
        reproduces=("advbct/table-2",),
        test_sets=BOTH_BUILDINGS,
        runs=tuple(run for scenario in scenarios for run in losses(GLDV2, scenario, TRAINING)),
        figures={"joined": Table(title="Table 2: the three losses", columns=SELF_AND_CROSS, references=OLD_MODEL)},
        published=published("advbct-table-2"),
    )


def table_3() -> Suite:
    """Table 3: the benchmark of five methods."""
    methods: dict[str, Values] = {
        "independent": {},
        "bct": {},
        "lce": {"form": "angle", "classes": "old"},  # no transformation (K = 0)
        "unibct": {"refine": False, "classes": "old"},  # no refinement, and old classes only (released code)
        "hot_refresh": {},
        "advbct": THRESHOLD,
    }
    upgrades = (
        (Scenario("extended-data", MORE_DATA), TRAINING),
        (Scenario("extended-class", MORE_CLASSES), TRAINING),
        (Scenario("enlarged-backbone-data", MORE_DATA), larger(TRAINING)),
        (Scenario("enlarged-backbone-class", MORE_CLASSES), larger(TRAINING)),
    )
    return Suite(
        title="AdvBCT, Table 3: five methods",
        description="Five methods in four upgrades on GLDv2 at the paper's full size.",
        reproduces=("advbct/table-3", "advbct/figure-2", "advbct/figure-6"),
        test_sets=LANDMARKS,
        runs=tuple(
            Run(method, GLDV2, scenario, options=options, training=training, old=TRAINING)
            for scenario, training in upgrades
            for method, options in methods.items()
        ),
        figures={
            "joined": Table(
                title="Table 3: five methods", columns=(*SELF_AND_CROSS, *P_OVER_SETS), references=OLD_MODEL
            ),
            "distributions": Embedding(
                title="Old and new embeddings of RParis without compatible training",
                data=("rparis",),
                scenarios=("extended-data",),
                rows=("independent",),
                method="tsne",
                classes=10,  # our choice: the paper does not say; classes are photographs relevant to the same queries
                show=("old", "new"),
            ),  # Figure 2
            "convergence": LossCurve(
                title="Losses of six trainings of ResNet50 on more classes",
                scenarios=("enlarged-backbone-class",),
                rows=("bct", "lce", "hot_refresh", "unibct", "advbct", "independent"),
                terms=("task",),  # our choice, the paper does not say which loss; all six methods have this one
            ),  # Figure 6
        },
        published=published("advbct-table-3"),
    )
