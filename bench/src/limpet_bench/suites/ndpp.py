"""NDPP and ODPP: Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible Learning."""

from __future__ import annotations

from collections.abc import Iterator

from limpet import EncoderSpec, Recipe
from limpet_bench.figures import Curve, Embedding, Table
from limpet_bench.suite import Data, Run, Scenario, Suite, Training, Values
from limpet_bench.suites import advbct
from limpet_bench.suites.advbct import GLDV2, LANDMARKS, OLD_MODEL, RPARIS, larger
from limpet_bench.suites.columns import P_METRICS, P_OVER_SETS, SELF_AND_CROSS
from limpet_bench.suites.published import published

# Our choice, because the paper does not say: batch size, initial weights and image processing are those of AdvBCT's
# released code, which the paper follows elsewhere; so are the private queries of GLDv2, and uncropped queries of RParis
# and ROxford.
TRAINING = advbct.TRAINING.but(
    model={"projection": "mlp"},
    recipe={"precision": "bf16-mixed", "channels_last": True},  # our choice: the paper does not say
)

# Section IV: the best scale factors, number of neighbours, thresholds and balance.
P2S: Values = {"weight": 1.0, "temperature": 0.07}  # "Baseline"
NDPP: Values = {**P2S, "alpha_old": 0.01, "alpha_new": 0.01, "neighbours": 100}
ODPP: Values = {**P2S, "threshold_old": 0.6, "threshold_new": 0.6, "gamma": 1.0}

METHODS: dict[str, Values] = {
    "independent": {},
    "bct": {},
    "unibct": {"refine": False, "classes": "old"},  # as in AdvBCT's benchmark
    "hot_refresh": {},  # RACT in the paper
    "advbct": {"threshold": 0.4},
    "ndpp": NDPP,
    "odpp": ODPP,
}

SHARES: Values = {"old_fraction": 0.09, "new_fraction": 0.3, "seed": 666}
DATA_EXTENSION = Scenario("extended-class", SHARES, "data-extension")


def on_landmarks(label: str, options: Values | None = None, method: str = "") -> Run:
    """Return a run from 9 to 30 percent of the classes of GLDv2."""
    return Run(label, GLDV2, DATA_EXTENSION, method, options or {}, TRAINING)


def curve(title: str, row: str, over: str, metric: str = "map-trapezoid") -> Curve:
    """Return new-to-new and new-to-old search over a setting of a row."""
    return Curve(title=title, rows=(row,), over=over, measures=("self_new", "cross"), metric=metric)


def landmarks(title: str) -> Table:
    """Return a table of landmarks, with P metrics averaged over the test sets."""
    return Table(title=title, columns=(*SELF_AND_CROSS, *P_OVER_SETS), references=OLD_MODEL)


SCALES = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05)


def figure_4() -> Suite:
    """Figure 4: scale factors and number of neighbours."""
    ndpp = on_landmarks("ndpp", NDPP)
    return Suite(
        title="NDPP, Figure 4: scale factors and neighbours",
        description=(
            "Both scale factors and the number of neighbours, one at a time, searched on RParis; from 9 to 30 percent"
            " of the classes of GLDv2, at the paper's full size."
        ),
        reproduces=("ndpp/figure-4",),
        test_sets=RPARIS,
        runs=(
            on_landmarks("independent"),
            ndpp,
            # The values are our choice, around the paper's best ones: it does not print them.
            *(ndpp.variant("options.alpha_old", value) for value in SCALES),
            *(ndpp.variant("options.alpha_new", value) for value in SCALES),
            *(ndpp.variant("options.neighbours", value) for value in (10, 50, 100, 200)),
        ),
        figures={
            "figure-4a": curve("Scale of the push from old neighbours", "ndpp", "options.alpha_old"),
            "figure-4b": curve("Scale of the push from new neighbours", "ndpp", "options.alpha_new"),
            "figure-4c": curve("Neighbours", "ndpp", "options.neighbours"),
        },
    )


THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def figure_5() -> Suite:
    """Figure 5: similarity thresholds of prototypes, and balance of old and new ones."""
    odpp = on_landmarks("odpp", ODPP)
    return Suite(
        title="ODPP, Figure 5: thresholds and balance",
        description=(
            "Both thresholds and the balance of old and new prototypes, one at a time, searched on RParis; from 9 to "
            "30 percent of the classes of GLDv2, at the paper's full size."
        ),
        reproduces=("ndpp/figure-5",),
        test_sets=RPARIS,
        runs=(
            on_landmarks("independent"),
            odpp,
            # The values are our choice, around the paper's best ones: it does not print them.
            *(odpp.variant("options.threshold_old", value) for value in THRESHOLDS),
            *(odpp.variant("options.threshold_new", value) for value in THRESHOLDS),
            *(odpp.variant("options.gamma", value) for value in (0.0, 0.5, 1.0, 2.0)),
        ),
        figures={
            "figure-5a": curve("Threshold of old prototypes", "odpp", "options.threshold_old"),
            "figure-5b": curve("Threshold of new prototypes", "odpp", "options.threshold_new"),
            "figure-5c": curve("Balance of old and new prototypes", "odpp", "options.gamma"),
        },
    )


def figure_6() -> Suite:
    """Figures 2 and 6: classes that the old model confuses.

    Prototypes are class means of the training images of the new models, so the figures show these images. The paper
    does not say which classes it draws and how it chose them; here they are the classes with the most similar old
    prototypes.
    """
    return Suite(
        title="NDPP and ODPP, Figures 2 and 6: classes that look alike",
        description=(
            "Old and new embeddings, and old prototypes, of a few landmarks that the old model holds for nearly one, "
            "without and with perturbations; from 9 to 30 percent of the classes of GLDv2, at the paper's full size."
        ),
        reproduces=("ndpp/figure-2", "ndpp/figure-6"),
        test_sets=RPARIS,
        runs=(on_landmarks("p2s", P2S), on_landmarks("ndpp", NDPP), on_landmarks("odpp", ODPP)),
        figures={
            "figure-2": Embedding(
                title="Figure 2: old space, and new embeddings aligned strictly",
                part="training",
                rows=("p2s",),
                method="tsne",
                similar=4,
                show=("old", "new", "old-prototypes"),
                apart=True,
            ),
            "figure-6": Embedding(
                title="Figure 6: without perturbation, NDPP and ODPP",
                part="training",
                rows=("p2s", "ndpp", "odpp"),
                method="tsne",
                similar=4,
                examples=2,  # our choice: the paper mentions a "first row", so it has at least two
                show=("new", "old-prototypes"),
            ),
        },
    )


def small() -> Suite:
    """A quarter of Omniglot's characters, 241 for training and 165 for search; takes ten minutes on one core."""
    training = Training(
        model=EncoderSpec(dim=32, channels=1, image_size=28, backbone_options={"filters": 16}),
        recipe=Recipe(epochs=6, batch_size=64, learning_rate=0.1, warmup_epochs=0.5),
    )

    def row(label: str, options: Values) -> Run:
        data = Data("omniglot", {"class_share": 0.25})
        return Run(label, data, method=label.partition(",")[0], options=options, training=training)

    ndpp = row("ndpp", {"alpha_old": 0.01, "alpha_new": 0.01, "neighbours": 100})
    # All pairs above a threshold: the expectation of the paper's sampled pairs, in less time.
    odpp = row("odpp", {"threshold_old": 0.6, "threshold_new": 0.6, "gamma": 1.0, "pairs": "active"})
    return Suite(
        title="NDPP and ODPP on a quarter of Omniglot",
        description=(
            "What perturbed prototypes bring beside prototypes as they are, and how far to push them, three seeds "
            "each: the questions of Table V and of the figures 4, 5 and 6, in small. 30 percent of the characters are"
            " known to the old model."
        ),
        reproduces=("ndpp/table-5", "ndpp/figure-4", "ndpp/figure-5", "ndpp/figure-6"),
        runs=(
            row("independent", {}),
            row("p2s", P2S),
            row("ndpp, old neighbours alone", {"old_only": True}),
            ndpp,
            *(ndpp.variant("options.alpha_old", value) for value in (0.0, 0.01, 0.3)),
            *(ndpp.variant("options.neighbours", value) for value in (10, 50, 100)),
            row("odpp, old prototypes alone", {"old_only": True, "pairs": "active"}),
            odpp,
            *(odpp.variant("options.threshold_old", value) for value in (0.3, 0.6)),
        ),
        seeds=(0, 1, 2),
        figures={
            "table-5": Table(
                title="Variants",
                rows=("p2s", "ndpp, old neighbours alone", "ndpp", "odpp, old prototypes alone", "odpp"),
                columns=(*SELF_AND_CROSS, *P_METRICS),
            ),
            "alpha": curve("Scale of the push from old neighbours", "ndpp", "options.alpha_old", "map"),
            "neighbours": curve("Neighbours", "ndpp", "options.neighbours", "map"),
            "similar": Embedding(
                title="Similar classes",
                part="training",
                method="tsne",
                rows=("p2s", "ndpp", "odpp"),
                similar=4,
                show=("new", "old-prototypes"),
            ),
        },
    )


def table_2() -> Suite:
    """Table II: upgrades on landmarks, with and without a larger backbone."""
    upgrades = (
        (DATA_EXTENSION, TRAINING),
        (Scenario("enlarged-backbone-class", SHARES, "backbone-extension"), larger(TRAINING)),
    )
    return Suite(
        title="NDPP and ODPP, Table II: landmarks",
        description=(
            "From 9 to 30 percent of the classes of GLDv2, with and without a larger backbone, at the paper's full "
            "size."
        ),
        reproduces=("ndpp/table-2",),
        test_sets=LANDMARKS,
        runs=tuple(
            Run(method, GLDV2, scenario, options=options, training=training, old=TRAINING)
            for scenario, training in upgrades
            for method, options in METHODS.items()
        ),
        figures={"table-2": landmarks("Table II")},
        published=published("ndpp-table-2"),
    )


def table_3() -> Suite:
    """Table III: upgrades on clothes, with and without a larger backbone."""
    # Our choice, because the paper does not say: the batch size; initial weights and image processing as on landmarks.
    old = TRAINING.but(recipe={"epochs": 200, "batch_size": 256, "milestones": (30, 60, 120)})
    clothes = [
        column.model_copy(update={"metric": metric, "title": f"{name} {column.title}"})
        for metric, name in (("recall@1", "Recall@1"), ("map", "mAP"))
        for column in SELF_AND_CROSS
    ]
    data, share = Data("in-shop", {"image_size": 224, "fit": "squash"}), {"old_fraction": 0.3}
    upgrades = ((Scenario("extended-class", share), old), (Scenario("enlarged-backbone-class", share), larger(old)))
    return Suite(
        title="NDPP and ODPP, Table III: clothes",
        description=(
            "From 30 to 100 percent of the items of In-shop, with and without a larger backbone, at the paper's full "
            "size."
        ),
        reproduces=("ndpp/table-3",),
        runs=tuple(
            Run(method, data, scenario, options=options, training=training, old=old)
            for scenario, training in upgrades
            for method, options in METHODS.items()
        ),
        figures={
            "table-3": Table(title="Table III", columns=(*clothes, *P_METRICS), references=OLD_MODEL),
        },
        published=published("ndpp-table-3"),
    )


def chain(data: Data, training: Training, methods: dict[str, Values], shares: dict[str, Values]) -> Iterator[Run]:
    """Yield the runs of a chain of three models, each trained to be compatible with the one before it (Table IV).

    The third model searches the galleries of the first and of the second. On the gallery of the second, self(old) is
    that of the independent second model, because the P metrics of the paper follow from it.
    """
    first, far, near = (Scenario("extended-class", options, name) for name, options in shares.items())
    second = {name: Run(name, data, first, options=own, training=training) for name, own in methods.items()}
    yield from second.values()
    for name, own in methods.items():
        yield Run(name, data, far, options=own, training=training, predecessor=second[name])
    for name, own in methods.items():
        before = second[name]
        yield Run(
            name, data, near, options=own, training=training, predecessor=before, gallery=before, baseline="independent"
        )


def table_4() -> Suite:
    """Table IV: a chain of models on 9, 30 and 100 percent of the classes."""
    methods = {name: METHODS[name] for name in ("independent", "bct", "advbct", "ndpp", "odpp")}
    shares = {
        "1-to-2": SHARES,
        "1-to-3": {"old_fraction": 0.09, "new_fraction": 1.0, "seed": 666},
        "2-to-3": {"old_fraction": 0.3, "new_fraction": 1.0, "seed": 666},
    }
    return Suite(
        title="NDPP and ODPP, Table IV: three generations of landmarks",
        description="A chain of 9, 30 and 100 percent of the classes of GLDv2, at the paper's full size.",
        reproduces=("ndpp/table-4",),
        test_sets=LANDMARKS,
        runs=tuple(chain(GLDV2, TRAINING, methods, shares)),
        figures={"table-4": landmarks("Table IV")},
        published=published("ndpp-table-4"),
    )


def table_5() -> Suite:
    """Table V: prototypes without perturbation, perturbed by old ones only, and perturbed by old and new ones."""
    return Suite(
        title="NDPP and ODPP, Table V: variants",
        description=(
            "Prototype contrast, perturbed by old prototypes alone and by both, on GLDv2 at the paper's full size."
        ),
        reproduces=("ndpp/table-5",),
        test_sets=LANDMARKS,
        runs=(
            on_landmarks("independent"),
            on_landmarks("p2s", P2S),
            on_landmarks("ndpp, old neighbours alone", {"old_only": True}, "ndpp"),
            on_landmarks("ndpp", {"alpha_old": 0.01, "alpha_new": 0.01, "neighbours": 100}),
            on_landmarks("odpp, old prototypes alone", {"old_only": True}, "odpp"),
            on_landmarks("odpp", {"threshold_old": 0.6, "threshold_new": 0.6, "gamma": 1.0}),
        ),
        figures={"table-5": landmarks("Table V")},
        published=published("ndpp-table-5"),
    )
