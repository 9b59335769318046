"""HBCT: Learning Along the Arrow of Time: Hyperbolic Geometry for Backward-Compatible Representation Learning.

Figure 4, loss and gradient of RINCE and InfoNCE over the distance, is drawn by
`python benchmarks/rince_shape.py`.
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
    augmentation=Augmentation(crop_padding=4, flip=True),  # ours: the paper does not say
    old_view="same",  # ours: every method aligns with the old view of the very image it sees, hyperbolic or not
    precision="bf16-mixed",  # ours, as is the layout: the paper does not say
    channels_last=True,
)

# linear-bn is ours: with it, hyperbolic models score higher after the same training (benchmarks/lorentz_projection.py).
# So all rows have it, in both spaces.
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

# Section 5.1: the best of ten settings, weights in [0, 1] and temperatures of 0.5 and 1, that does not hurt the new
# model. Ours: the values, and how the best is known, by a tenth of every class's training images that no model of a
# trial has seen.
VALIDATION = {"validation_fraction": 0.1}
WEIGHTS = tuple(tenth / 10 for tenth in range(1, 11))
TUNED: dict[str, Search] = {
    "bct": Search(10, options={"weight": WEIGHTS}),
    "hot_refresh": Search(10, options={"weight": (0.2, 0.4, 0.6, 0.8, 1.0), "temperature": (0.5, 1.0)}),
    # The sum of hoc is convex: a weight w is a share of 1 / (1 + w) for the task. Its scale is one over a temperature.
    "hoc": Search(10, options={"task_share": (0.8333, 0.7143, 0.625, 0.5556, 0.5), "scale": (2.0, 1.0)}),
}


def half_of_cifar(label: str, options: Values | None = None, method: str = "") -> Run:
    """Return a hyperbolic run from 50 to 100 classes of CIFAR-100."""
    return Run(label, CIFAR_100, HALF, method, options or {}, HYPERBOLIC, old=OLD)


NAMES = {"recall@1": "CMC@1", "map": "mAP", "accuracy": "Acc"}
SYSTEMS = {"self_new": "self", "cross": "cross", "p_up": "P_up", "p_comp": "P_com"}


def columns(*metrics: str, measures: tuple[str, ...], digits: int = 3) -> tuple[Column, ...]:
    """Return columns with the paper's names: P metrics are raw, and accuracy alone is in per cent."""
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
    """Figures 2 and 6: what the time axis tells of old and new models."""
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
                classes=10,  # ours: the paper does not say; ten can be told apart
                show=("old", "new"),
            ),
            "figure-6-uncertainty": Histogram(
                title="Figure 6, above: uncertainty of old and new embeddings", of="uncertainty", rows=("hbct",)
            ),
        },
    )


def five_models(label: str, options: Values, old: Training, generations: dict[int, Training]) -> Iterator[Run]:
    """Yield all pairs of five models with 20, 40, 60, 80 and 100 classes (section 5.3), one row.

    Each model is trained to fit the one before it (ours, as is what P_comp is held against: an independent model of the
    newer one's recipe; and the older one itself, whose gallery is searched).
    """
    first: dict[int, Run] = {}  # of every generation the run that searches the first one's gallery
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
    """Return the runs of rows, all rows of a scenario after each other."""
    return tuple(run for cell in zip(*rows, strict=True) for run in cell)


def pairs_of(*rows: str) -> Matrix:
    """Return Figure 5."""
    title = "P_comp of every model on the galleries before it"
    return Matrix(title=title, rows=rows, measure="p_comp", metric="recall@1")


def figure_5_euclidean() -> Suite:
    """Figure 5: five models in a row, ResNet18 twice and then ResNet50: the methods that HBCT is compared with."""
    resnet50 = EUCLIDEAN.but(model={"backbone": "resnet50"})  # trained as ResNet18 is: ours, the paper does not say
    generations = {2: EUCLIDEAN, 3: resnet50, 4: resnet50, 5: resnet50}
    # Weights and temperatures are those with which their own papers begin, within the ranges of section 5.1: chains are
    # not tuned, since a trial would be judged with a predecessor of other settings.
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
    """Figure 5: five models in a row, ResNet18 twice and then ResNet50, clipped at 1.0, 1.2, ... 1.8."""
    # ResNet50 is trained as ResNet18 is: ours, the paper does not say.
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
    """Figure 7: the weights and the temperature."""
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
            # The values are ours: the paper does not print them.
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
    """About ten minutes on one core: a quarter of Omniglot's characters, 241 to train on and 165 to search."""
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
            # Of drawings to train on: those that are searched are of characters that no model has seen.
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
    """Yield data, scenario, and old and new training of the eight cells of Table 1 (section 5.1)."""
    for data, pixels in (("cifar-100", 32), ("tiny-imagenet", 64)):
        first = old.but(model={"image_size": pixels})
        resnet = new.but(model={"image_size": pixels})
        # ViT-B/16, begun with weights of ImageNet-21k (a folder weights/vit-b-16-in21k beside the data). Ours: images
        # are brought to the 224 pixels of those weights inside the model; pixels are scaled to [-1, 1], as its authors
        # do.
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
    """Table 1, the rows of hyperbolic models."""
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
    """Table 1, the rows of models in Euclidean space.

    Those of hyperbolic models have another old and another independent model: hbct-table-1-hyperbolic.
    """
    # Form and scale of the weight of l2: ours. The mean over 128 squared elements has next to none of the task's
    # gradient; times 128 it is the squared distance of unit vectors, so that these are weights of 0.1 to 1 of that.
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
    """Table 2: what the two objectives add."""
    rince, infonce = {"contrast": "rince"}, {"weight": 0.3, "temperature": 0.5, "contrast": "infonce"}
    return Suite(
        title="HBCT, Table 2: objectives",
        description=(
            "RINCE, whose exponent is the uncertainty of old embeddings, or InfoNCE, each with and without the "
            "entailment cone; on CIFAR-100 from 50 to 100 classes, at the paper's full size."
        ),
        # The table's first row, Hot-Refresh, has the numbers of Euclidean models in Table 1: hbct-table-1.
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

    The old model and the independent one have the curvature 1: with the 0.330 and 0.656 of Table 1 the table's P
    metrics agree. Old tangent vectors are lifted again by the curvature of the new model, in the loss and for the
    search (ours).
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
    """Table 4: how far out new points may lie."""
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
    """Table 5: distances, and the mean distortion in place of the contrast."""
    hbct = half_of_cifar("hbct", HBCT)
    # It has no temperature; the entailment stays.
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
    """Table 6: classification beside retrieval, the hyperbolic row."""
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
    """Table 6: classification beside retrieval, the Euclidean rows."""
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
