"""HBCT: Learning Along the Arrow of Time: Hyperbolic Geometry for Backward-Compatible Representation Learning.

`python benchmarks/rince_shape.py` draws Figure 4, loss and gradient of RINCE and InfoNCE over the distance.
"""

from __future__ import annotations

from collections.abc import Iterator

from limpet import EncoderSpec, Geometry, Recipe
from limpet.data import Augmentation
from limpet_bench.figures import Column, Curve, Embedding, Histogram, Matrix, Table
from limpet_bench.suite import Data, Run, Scenario, Search, Suite, Training, Values
from limpet_bench.suites.published import published

METRICS = ("recall@1", "recall@5", "map")  # section 5.1

RECIPE = Recipe(  # section 5.1: ResNet18 from scratch
    epochs=200,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=0.0005,
    schedule="cosine",
    augmentation=Augmentation(crop_padding=4, flip=True),  # our choice: the paper does not say
    old_view="same",  # our choice: in every method, the old model sees the same augmented image
    precision="bf16-mixed",  # our choice, like channels_last: the paper does not say
    channels_last=True,
)

# linear-bn is our choice, for all rows in both spaces: hyperbolic models score higher with it after the same training
# (benchmarks/lorentz_projection.py).
EUCLIDEAN = Training(
    model=EncoderSpec(backbone="resnet18", dim=128, channels=3, image_size=32, projection="linear-bn"), recipe=RECIPE
)
# Section 5.1: curvature 1; tangent vectors are clipped at 1.0 in the old model and at 1.2 in the new ones.
OLD = EUCLIDEAN.but(model={"zeta": 1.0}, geometry={"space": "lorentz", "curvature": 1.0}, head="lorentz")
HYPERBOLIC = OLD.but(model={"zeta": 1.2})

# Section 5.1.
HBCT: Values = {"weight": 0.3, "entail_weight": 1.0, "temperature": 0.5, "beta": 0.01}
WITHOUT_ENTAILMENT: Values = {**HBCT, "entail_weight": 0.0}

ROWS: dict[str, Values] = {"independent": {}, "hbct": HBCT}

CIFAR_100 = Data("cifar-100")
HALF = Scenario("extended-class", {"old_fraction": 0.5, "order": "first"})  # the first 50 % of the classes

# Section 5.1: the best of ten settings that does not harm the new model, with weights in [0, 1] and temperatures of 0.5
# and 1. Our choice: the values, and that the best one is selected on a tenth of every class's training images, which no
# model of a trial was trained on.
VALIDATION = {"validation_fraction": 0.1}
WEIGHTS = tuple(tenth / 10 for tenth in range(1, 11))
TUNED: dict[str, Search] = {
    "bct": Search(10, options={"weight": WEIGHTS}),
    "hot_refresh": Search(10, options={"weight": (0.2, 0.4, 0.6, 0.8, 1.0), "temperature": (0.5, 1.0)}),
    # hoc is a convex sum: a weight w is a task share of 1 / (1 + w). Its scale is 1 / temperature.
    "hoc": Search(10, options={"task_share": (0.8333, 0.7143, 0.625, 0.5556, 0.5), "scale": (2.0, 1.0)}),
}


def half_of_cifar(label: str, options: Values | None = None, method: str = "") -> Run:
    """Return a hyperbolic run from 50 to 100 classes of CIFAR-100."""
    return Run(label, CIFAR_100, HALF, method, options or {}, HYPERBOLIC, old=OLD)


NAMES = {"recall@1": "CMC@1", "map": "mAP", "accuracy": "Acc"}
SYSTEMS = {"self_new": "self", "cross": "cross", "p_up": "P_up", "p_comp": "P_com"}


def columns(*metrics: str, measures: tuple[str, ...], digits: int = 3) -> tuple[Column, ...]:
    """Return columns with the names of the paper; P metrics are raw, and only accuracy is in per cent."""
    return tuple(
        Column(metric=metric, measure=measure, title=f"{NAMES[metric]} {SYSTEMS[measure]}", digits=digits)
        if metric != "accuracy"
        else Column(metric=metric, measure=measure, title=f"Acc {SYSTEMS[measure]}", unit="%", digits=2)
        for metric in metrics
        for measure in measures
    )


BOTH = ("self_new", "cross")


def curve(title: str, over: str, metric: str = "map", **settings: str) -> Curve:
    """Return new-to-new and new-to-old search over a setting of the row "hbct"."""
    return Curve(title=title, rows=("hbct",), over=over, measures=BOTH, metric=metric, **settings)


WEIGHT_CURVE = curve("Alignment weight", "options.weight")
TABLE_1 = {
    "table-1": Table(
        title="New-to-new and new-to-old search, and P metrics",
        columns=columns("recall@1", "map", measures=("self_new", "cross", "p_up", "p_comp")),
        references={"old": "self_old"},
    )
}
TABLE_6 = {
    "table-6": Table(title="Retrieval and classification", columns=columns("recall@1", "accuracy", measures=BOTH))
}


def figure_2() -> Suite:
    """Figures 2 and 6: uncertainty and positions of old and new embeddings."""
    return Suite(
        title="HBCT, Figures 2 and 6: uncertainty",
        description=(
            "How uncertain the old model is of classes it has seen and of others, and where old and new embeddings of"
            " the gallery lie; on CIFAR-100 from 50 to 100 classes, at the paper's full size."
        ),
        reproduces=("hbct/figure-2", "hbct/figure-6"),
        runs=(half_of_cifar("hbct", HBCT),),
        metrics=METRICS,
        gate_metric="recall@1",
        figures={
            "figure-2": Histogram(
                title="Figure 2: uncertainty of the old model, by whether it has seen the class",
                of="uncertainty",
                rows=("hbct",),
                split="seen",
                show=("old",),
            ),
            "figure-6": Embedding(
                title="Figure 6: old and new embeddings in a hyperboloid of two dimensions",
                method="hyperboloid",
                rows=("hbct",),
                classes=10,  # our choice, the paper does not say; ten can be distinguished
                show=("old", "new"),
            ),
            "figure-6-uncertainty": Histogram(
                title="Figure 6, above: uncertainty of old and new embeddings", of="uncertainty", rows=("hbct",)
            ),
        },
    )


def five_models(label: str, options: Values, old: Training, generations: dict[int, Training]) -> Iterator[Run]:
    """Yield the runs of one row: all pairs of five models with 20, 40, 60, 80 and 100 classes (section 5.3).

    Our choice: each model is trained to be compatible with the one before it. P_comp compares with an independent model
    of the newer model's recipe, and with the older model itself, whose gallery is searched.
    """
    first: dict[int, Run] = {}  # for every generation, the run that searches the first gallery
    for new in range(2, 6):
        for held in range(1, new):
            shares = {"old_fraction": held / 5, "new_fraction": new / 5, "order": "first"}
            run = Run(
                label,
                CIFAR_100,
                Scenario("extended-class", shares, f"{held}-to-{new}"),
                options=options,
                training=generations[new],
                old=old,
                predecessor=first.get(new - 1),
                gallery=first.get(held),
            )
            first.setdefault(new, run)
            yield run


def in_cells(rows: list[list[Run]]) -> tuple[Run, ...]:
    """Return the runs of several rows, grouped by scenario."""
    return tuple(run for cell in zip(*rows, strict=True) for run in cell)


def pairs_of(*rows: str) -> Matrix:
    """Return the matrices of Figure 5."""
    title = "P_comp of every model on the galleries before it"
    return Matrix(title=title, rows=rows, measure="p_comp", metric="recall@1")


def figure_5_euclidean() -> Suite:
    """Figure 5: a chain of five models, ResNet18 twice and then ResNet50, by the methods that HBCT is compared with."""
    resnet50 = EUCLIDEAN.but(model={"backbone": "resnet50"})  # with the recipe of ResNet18: our choice
    generations = {2: EUCLIDEAN, 3: resnet50, 4: resnet50, 5: resnet50}
    # Weights and temperatures are the initial ones of the methods' own papers, within the ranges of section 5.1. Chains
    # are not tuned, because a trial would be judged with a predecessor of other settings.
    methods: dict[str, Values] = {
        "independent": {},
        "bct": {"weight": 1.0},
        "hot_refresh": {"weight": 1.0, "temperature": 0.5},
        "hoc": {"task_share": 0.5, "scale": 2.0},
    }
    return Suite(
        title="HBCT, Figure 5: five models in a row, in Euclidean space",
        description="All pairs of five generations of 20 to 100 classes of CIFAR-100, at the paper's full size.",
        reproduces=("hbct/figure-5",),
        runs=in_cells([list(five_models(name, own, EUCLIDEAN, generations)) for name, own in methods.items()]),
        metrics=METRICS,
        gate_metric="recall@1",
        figures={"figure-5": pairs_of("bct", "hot_refresh", "hoc")},
    )


def figure_5() -> Suite:
    """Figure 5: a chain of five hyperbolic models, ResNet18 twice and then ResNet50, clipped at 1.0, 1.2, ... 1.8."""
    # ResNet50 has the recipe of ResNet18: our choice, the paper does not say.
    generations = {2: HYPERBOLIC}
    generations |= {new: OLD.but(model={"zeta": 0.8 + new / 5, "backbone": "resnet50"}) for new in (3, 4, 5)}
    return Suite(
        title="HBCT, Figure 5: five models in a row",
        description="All pairs of five generations of 20 to 100 classes of CIFAR-100, at the paper's full size.",
        reproduces=("hbct/figure-5",),
        runs=in_cells([list(five_models(name, own, OLD, generations)) for name, own in ROWS.items()]),
        metrics=METRICS,
        gate_metric="recall@1",
        figures={"figure-5": pairs_of("hbct")},
    )


def figure_7() -> Suite:
    """Figure 7: alignment weight, temperature and entailment weight."""
    hbct = half_of_cifar("hbct", HBCT)
    return Suite(
        title="HBCT, Figure 7: sensitivity",
        description=(
            "Alignment weight, temperature and weight of the entailment, one at a time; on CIFAR-100 from 50 to 100 "
            "classes, at the paper's full size."
        ),
        reproduces=("hbct/figure-7",),
        runs=(
            half_of_cifar("independent"),
            hbct,
            # The values are our choice: the paper does not print them.
            *(hbct.variant("options.weight", value) for value in (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)),
            *(hbct.variant("options.temperature", value) for value in (0.1, 0.25, 0.5, 1.0, 2.0)),
            *(hbct.variant("options.entail_weight", value) for value in (0.0, 0.1, 0.3, 0.5, 1.0, 2.0)),
        ),
        metrics=METRICS,
        figures={
            "figure-7a": WEIGHT_CURVE,
            "figure-7b": curve("Temperature of the contrast", "options.temperature", scale="log"),
            "figure-7c": curve("Weight of the entailment", "options.entail_weight"),
        },
    )


def small() -> Suite:
    """A quarter of Omniglot's characters, 241 for training and 165 for search; takes ten minutes on one core."""
    old = Training(
        model=EncoderSpec(
            dim=32, channels=1, image_size=28, backbone_options={"filters": 16}, projection="linear-bn", zeta=1.0
        ),
        # The hyperbolic classifier learns slowly: a learning rate of 0.1 would leave it untrained after so few epochs.
        recipe=Recipe(epochs=6, batch_size=64, learning_rate=0.3, warmup_epochs=0.5),
        geometry=Geometry("lorentz", 1.0),
        head="lorentz",
    )
    new, infonce = old.but(model={"zeta": 1.2}), {"contrast": "infonce"}

    def row(label: str, options: Values, training: Training = new) -> Run:
        scenario = Scenario("extended-class", {"old_fraction": 0.5})
        data = Data("omniglot", {"class_share": 0.25})
        method = label.partition(" ")[0]
        return Run(label, data, scenario, method, options, training, old=old, independent=new)

    hbct = row("hbct", HBCT, new.but(geometry={"relift_old": True}))
    return Suite(
        title="HBCT on a quarter of Omniglot",
        description=(
            "What contrast, entailment, weights, temperature and curvature of HBCT do, three seeds each: the "
            "questions of its tables 2 and 3 and of its figures 2, 6 and 7, in small. Half of the characters are new "
            "to the old model."
        ),
        reproduces=("hbct/table-2", "hbct/table-3", "hbct/figure-2", "hbct/figure-6", "hbct/figure-7"),
        runs=(
            row("independent", {}),
            hbct,
            *(hbct.variant("options.weight", value) for value in (0.1, 0.3, 1.0)),
            *(hbct.variant("options.temperature", value) for value in (0.5, 1.0)),
            *(hbct.variant("geometry.curvature", value) for value in (0.5, 1.0, 1.5)),
            row("hbct without entailment", WITHOUT_ENTAILMENT),
            row("hbct with InfoNCE", {**HBCT, **infonce}),
            row("hbct with InfoNCE, without entailment", {**WITHOUT_ENTAILMENT, **infonce}),
        ),
        seeds=(0, 1, 2),
        figures={
            "table-2": Table(
                title="What the objectives add",
                rows=(
                    "hbct",
                    "hbct without entailment",
                    "hbct with InfoNCE",
                    "hbct with InfoNCE, without entailment",
                ),
                columns=columns("recall@1", "map", measures=("p_up", "p_comp")),
            ),
            "weight": WEIGHT_CURVE,
            "curvature": curve("Curvature", "geometry.curvature"),
            # Training drawings, because no model has seen the characters of the searched ones.
            "uncertainty": Histogram(
                title="Uncertainty, by whether the old model has seen the class",
                part="training",
                of="uncertainty",
                rows=("hbct",),
                split="seen",
            ),
            "embeddings": Embedding(
                title="Old and new embeddings", method="hyperboloid", rows=("hbct",), classes=8, show=("old", "new")
            ),
        },
    )


def four_upgrades(old: Training, new: Training) -> Iterator[tuple[Data, Scenario, Training, Training]]:
    """Yield data, scenario, old training and new training for the eight cells of Table 1 (section 5.1)."""
    for data, pixels in (("cifar-100", 32), ("tiny-imagenet", 64)):
        first = old.but(model={"image_size": pixels})
        resnet = new.but(model={"image_size": pixels})
        # ViT-B/16 with initial weights of ImageNet-21k (folder weights/vit-b-16-in21k in the data root). Our choice:
        # the model resizes images to the 224 pixels of these weights, and scales pixels to [-1, 1] as the authors of
        # ViT do.
        transformer = new.but(
            model={"backbone": "vit_b", "image_size": 224},
            recipe={"epochs": 80, "learning_rate": 0.005},
            weights="vit-b-16-in21k",
        )
        for scenario, training in (
            (Scenario("extended-data", {"rule": "random"}), resnet),  # 30 % of all images
            (HALF, resnet),
            (Scenario("new-architecture"), transformer),
            (Scenario("both", {"order": "first"}), transformer),
        ):
            yield Data(data, validation=VALIDATION), scenario, first, training


def table_1_hyperbolic() -> Suite:
    """Table 1: hyperbolic models."""
    methods = {"independent": {}, "hbct without entailment": WITHOUT_ENTAILMENT, "hbct": HBCT}
    return Suite(
        title="HBCT, Table 1: hyperbolic models",
        description="Four upgrades on CIFAR-100 and Tiny-ImageNet at the paper's full size, old models hyperbolic too.",
        reproduces=("hbct/table-1",),
        runs=tuple(
            Run(label, data, scenario, label.partition(" ")[0], options, training, old=old)
            for data, scenario, old, training in four_upgrades(OLD, HYPERBOLIC)
            for label, options in methods.items()
        ),
        metrics=METRICS,
        gate_metric="recall@1",
        figures=TABLE_1,
        published=published("hbct-table-1-hyperbolic"),
    )


def table_1() -> Suite:
    """Table 1: models in Euclidean space.

    Hyperbolic models have other old and independent models, in the suite hbct-table-1-hyperbolic.
    """
    # Our choice: form and scale of the weight of l2. The gradient of the mean over 128 squared elements is negligible
    # beside that of the task; times 128, the mean is the squared distance of unit vectors, with weights of 0.1 to 1.
    l2 = Search(10, options={"weight": tuple(128 * weight for weight in WEIGHTS)})
    searches = {**TUNED, "l2": l2, "advbct": TUNED["bct"]}
    return Suite(
        title="HBCT, Table 1: methods in Euclidean space",
        description=(
            "Four upgrades on CIFAR-100 and Tiny-ImageNet at the paper's full size. As in the paper, every method has"
            " the best of ten settings, weights in [0, 1] and temperatures 0.5 or 1."
        ),
        reproduces=("hbct/table-1",),
        runs=tuple(
            Run(
                method,
                data,
                scenario,
                options={"power": 2} if method == "l2" else {},
                training=training,
                old=old,
                search=searches.get(method),
            )
            for data, scenario, old, training in four_upgrades(EUCLIDEAN, EUCLIDEAN)
            for method in ("independent", "l2", "bct", "hot_refresh", "advbct", "hoc")
        ),
        metrics=METRICS,
        gate_metric="recall@1",
        figures=TABLE_1,
        published=published("hbct-table-1"),
    )


def table_2() -> Suite:
    """Table 2: RINCE or InfoNCE, each with and without the entailment loss."""
    rince, infonce = {"contrast": "rince"}, {"weight": 0.3, "temperature": 0.5, "contrast": "infonce"}
    return Suite(
        title="HBCT, Table 2: objectives",
        description=(
            "RINCE, whose exponent is the uncertainty of old embeddings, or InfoNCE, each with and without the "
            "entailment cone; on CIFAR-100 from 50 to 100 classes, at the paper's full size."
        ),
        # The first row of the table, Hot-Refresh, repeats numbers of Euclidean models in Table 1, see hbct-table-1.
        reproduces=("hbct/table-2",),
        runs=(
            half_of_cifar("independent"),
            half_of_cifar("hbct", {**HBCT, **rince}),
            half_of_cifar("hbct without entailment", {**WITHOUT_ENTAILMENT, **rince}, "hbct"),
            half_of_cifar("hbct with InfoNCE", {**infonce, "entail_weight": 1.0}, "hbct"),
            half_of_cifar("hbct with InfoNCE, without entailment", {**infonce, "entail_weight": 0.0}, "hbct"),
        ),
        metrics=METRICS,
        gate_metric="recall@1",
        figures={
            "table-2": Table(
                title="P metrics by objective", columns=columns("recall@1", "map", measures=("p_up", "p_comp"))
            )
        },
        published=published("hbct-table-2"),
    )


def table_3() -> Suite:
    """Table 3: curvatures.

    The old and the independent model have the curvature 1: the P metrics of the table agree with their scores in
    Table 1, 0.330 and 0.656. Our choice: old tangent vectors are lifted again with the curvature of the new model, in
    the loss and for the search.
    """
    hbct = half_of_cifar("hbct", HBCT).changed({"geometry.relift_old": True})
    learned = half_of_cifar("hbct, curvature learned", HBCT, "hbct").changed({"geometry.learn_curvature": True})
    curvatures = (0.1, 0.5, 0.7, 1.0, 1.5)
    return Suite(
        title="HBCT, Table 3: curvatures",
        description=(
            "New models of other curvatures than the old one, and of one that is learned; on CIFAR-100 from 50 to 100"
            " classes, at the paper's full size."
        ),
        reproduces=("hbct/table-3",),
        runs=(
            half_of_cifar("independent"),
            hbct,
            *(hbct.variant("geometry.curvature", curvature) for curvature in curvatures),
            learned,
        ),
        metrics=METRICS,
        figures={
            "table-3": Table(
                title="Curvatures", columns=columns("map", measures=("self_new", "cross", "p_up", "p_comp"))
            ),
            "curvatures": curve("mAP by curvature", "geometry.curvature", scale="log"),
        },
        published=published("hbct-table-3"),
    )


def table_4() -> Suite:
    """Table 4: clipping of new tangent vectors."""
    hbct = half_of_cifar("hbct", HBCT)
    return Suite(
        title="HBCT, Table 4: clipping",
        description=(
            "Tangent vectors of new models clipped at 1.0 to 1.3, those of the old model at 1.0; on CIFAR-100 from 50"
            " to 100 classes, at the paper's full size."
        ),
        reproduces=("hbct/table-4",),
        runs=(
            half_of_cifar("independent"),
            hbct,
            *(hbct.variant("model.zeta", length) for length in (1.0, 1.1, 1.2, 1.3)),
        ),
        metrics=METRICS,
        gate_metric="recall@1",
        figures={
            "table-4": Table(title="Clipping of the new model", columns=columns("recall@1", measures=BOTH, digits=4)),
            "clipping": curve("CMC@1 by clipping", "model.zeta", "recall@1"),
        },
        published=published("hbct-table-4"),
    )


def table_5() -> Suite:
    """Table 5: distances in the contrast, and the mean distortion in place of the contrast."""
    hbct = half_of_cifar("hbct", HBCT)
    # The mean distortion has no temperature. The entailment loss is kept.
    distortion = half_of_cifar(
        "mean distortion", {"weight": 0.3, "entail_weight": 1.0, "contrast": "mean_distortion"}, "hbct"
    )
    return Suite(
        title="HBCT, Table 5: distances",
        description=(
            "Geodesic distance, Lorentz inner product and squared Lorentz distance in the contrast, and the mean "
            "distance of pairs in place of it; on CIFAR-100 from 50 to 100 classes, at the paper's full size."
        ),
        reproduces=("hbct/table-5",),
        runs=(
            half_of_cifar("independent"),
            hbct,
            *(hbct.variant("options.similarity", name) for name in ("geodesic", "inner", "squared_lorentz")),
            distortion,
            *(distortion.variant("options.similarity", name) for name in ("geodesic", "squared_lorentz")),
        ),
        metrics=METRICS,
        figures={"table-5": Table(title="Distances", columns=columns("map", measures=BOTH, digits=4))},
        published=published("hbct-table-5"),
    )


CLASSIFICATION = (
    "How well new models classify, and how well the old classifier does on their embeddings, beside CMC@1; on "
    "CIFAR-100 from 50 to 100 classes, at the paper's full size."
)


def table_6_hyperbolic() -> Suite:
    """Table 6: classification and retrieval, the hyperbolic row."""
    return Suite(
        title="HBCT, Table 6: classification, hyperbolic",
        description=CLASSIFICATION,
        reproduces=("hbct/table-6",),
        runs=tuple(half_of_cifar(label, options) for label, options in ROWS.items()),
        metrics=METRICS,
        gate_metric="recall@1",
        accuracy=True,
        figures=TABLE_6,
        published=published("hbct-table-6-hyperbolic"),
    )


def table_6() -> Suite:
    """Table 6: classification and retrieval, the Euclidean rows."""
    data = Data("cifar-100", validation=VALIDATION)
    return Suite(
        title="HBCT, Table 6: classification",
        description=CLASSIFICATION,
        reproduces=("hbct/table-6",),
        runs=tuple(
            Run(method, data, HALF, training=EUCLIDEAN, search=TUNED.get(method))
            for method in ("independent", "bct", "hot_refresh", "hoc")
        ),
        metrics=METRICS,
        gate_metric="recall@1",
        accuracy=True,
        figures=TABLE_6,
        published=published("hbct-table-6"),
    )
