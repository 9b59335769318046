"""Parts of the GPU kit: suites that one large GPU runs within nine minutes; see README.md beside this file.

Tiny-ImageNet at 32 pixels and ResNet-18, with the recipes of the papers' own suites, fewer epochs, and batches that
keep a large GPU busy. Every part trains its own old and independent model; parts that run on one machine share them.
"""

from __future__ import annotations

from dataclasses import replace

from limpet_bench.figures import Column, Histogram, SessionCurve, Table
from limpet_bench.suite import Data, Run, Scenario, Suite, Training, Values
from limpet_bench.suites import advbct, cvs, hbct, mixbct

HALF_OF_CLASSES = Data("tiny-imagenet-32", {"class_share": 0.5})
"""100 classes, 50,000 images to train on and 5,000 that search one another."""
HALF_OF_IMAGES = Data("tiny-imagenet-32", {"image_share": 0.5})
"""200 classes, 50,000 images to train on and 10,000 that search one another."""

METRICS = ("recall@1", "map")
SCORES: Values = {"measures": ("self_old", "self_new", "cross", "p_up", "p_comp")}
TABLE = Table(
    title="Self and cross search, and P metrics",
    columns=tuple(Column(metric=metric, measure=measure) for metric in METRICS for measure in SCORES["measures"]),
)

SHORTER: Values = {"epochs": 30, "batch_size": 256}
EUCLIDEAN = hbct.EUCLIDEAN.but(recipe=SHORTER)
HYPERBOLIC, OLD = hbct.HYPERBOLIC.but(recipe=SHORTER), hbct.OLD.but(recipe=SHORTER)
INFONCE: Values = {"contrast": "infonce"}


def half_known(label: str, options: Values, training: Training, old: Training) -> Run:
    """Return a run whose old model knows the first half of the classes (HBCT, section 5.1)."""
    return Run(label, HALF_OF_CLASSES, hbct.HALF, label.partition(" ")[0], options, training, old=old)


def of_hbct(title: str, rows: dict[str, Values], zeta: float = 1.0) -> Suite:
    """Return hyperbolic rows beside the independent model, and what lengths of the old model tell of unseen classes."""
    new, old = HYPERBOLIC.but(model={"zeta": zeta + 0.2}), OLD.but(model={"zeta": zeta})
    return Suite(
        title=title,
        description=(
            "From 50 to 100 classes of Tiny-ImageNet at 32 pixels, ResNet-18, 30 epochs; old vectors clipped at "
            f"{zeta:g}, new ones at {zeta + 0.2:g}."
        ),
        runs=tuple(half_known(label, options, new, old) for label, options in {"independent": {}, **rows}.items()),
        metrics=METRICS,
        figures={
            "table": TABLE,
            "uncertainty": Histogram(
                title="Uncertainty of the old model, by whether it has seen the class",
                of="uncertainty",
                rows=("hbct",),
                split="seen",
                show=("old",),
            ),
        },
    )


def hbct_objectives() -> Suite:
    """HBCT's Table 2, RINCE: with entailment and without."""
    rows = {"hbct": hbct.HBCT, "hbct without entailment": hbct.WITHOUT_ENTAILMENT}
    return of_hbct("HBCT on Tiny-ImageNet-32: entailment", rows)


def hbct_infonce() -> Suite:
    """HBCT's Table 2, InfoNCE: with entailment and without."""
    rows = {
        "hbct with InfoNCE": {**hbct.HBCT, **INFONCE},
        "hbct with InfoNCE, without entailment": {**hbct.WITHOUT_ENTAILMENT, **INFONCE},
    }
    found = of_hbct("HBCT on Tiny-ImageNet-32: InfoNCE", rows)
    return replace(found, figures={"table": TABLE})


def hbct_clipping() -> Suite:
    """HBCT with vectors clipped at 2: whether uncertainty says more where fewer vectors are clipped."""
    return of_hbct("HBCT on Tiny-ImageNet-32: clipped at 2", {"hbct": hbct.HBCT}, zeta=2.0)


def hbct_euclidean() -> Suite:
    """HBCT's Table 1, the rivals that it names, each beside the independent model of its own space."""
    # One of the ten settings that the paper tries for each, whose choice would take ten times as long.
    rows: dict[str, Values] = {
        "independent": {},
        "hot_refresh": {"temperature": 0.5},
        "hoc": {"task_share": 0.5, "scale": 2.0},
    }
    return Suite(
        title="HBCT's rivals on Tiny-ImageNet-32",
        description="As hbct-objectives, on the hypersphere; weights and temperatures are not chosen.",
        runs=tuple(half_known(label, options, EUCLIDEAN, EUCLIDEAN) for label, options in rows.items()),
        metrics=METRICS,
        figures={"table": TABLE},
    )


def cvs_general() -> Suite:
    """CVS's Table 2, general incremental: ten sessions of 20 classes, 10 epochs each."""
    general = cvs.SETTINGS["tiny-imagenet"].general
    training = general.training.but(model={"image_size": 32}, recipe={"epochs": 10, "batch_size": 256})
    rows = ("L_c", "L_c + L_m", "L_c + L_d", "L_c + L_m + L_d")
    setting = replace(general, data=Data("tiny-imagenet-32"), training=training)
    return Suite(
        title="CVS's losses on Tiny-ImageNet-32, general incremental",
        description="Ten sessions of ResNet-18, each with 20 new classes and 30 percent of images of earlier ones.",
        track="sessions",
        runs=tuple(setting.runs({row: cvs.ABLATION[row] for row in rows})),
        figures={
            "table": cvs.recalls("AR@K", *rows),
            "recall": SessionCurve(title="Recall@1 after every session", measure="recall@1"),
        },
    )


MARGIN = mixbct.RESNET18.but(
    model={"backbone": "resnet18", "image_size": 32}, recipe={"epochs": 16, "batch_size": 256, "old_view": "cached"}
)
"""ArcFace, flipped images, and the settings of MixBCT; a backbone for small images."""
KNOWN = Scenario("extended-class", {"old_fraction": 0.3})


def mixbct_margin() -> Suite:
    """MixBCT's claim: with ArcFace and an old model of low quality its cross is the highest."""
    low = MARGIN.but(head="softmax")
    methods = ("independent", "bct", "unibct", "l2", "mixbct")
    return Suite(
        title="MixBCT on Tiny-ImageNet-32, ArcFace",
        description="From 60 to 200 classes, ResNet-18, 16 epochs; the old model has a plain softmax classifier.",
        runs=tuple(
            Run(name, HALF_OF_IMAGES, KNOWN, options=mixbct.METHODS[name], training=MARGIN, old=low) for name in methods
        ),
        metrics=METRICS,
        figures={"table": TABLE},
    )


def advbct_margin() -> Suite:
    """AdvBCT's claim: the critic gains beside boundaries and classifier, here ArcFace, with batches of 1,024."""
    training = MARGIN.but(recipe={"batch_size": 1024, "learning_rate": 0.2, "old_view": "same"})
    own: Values = {"classes": "new", **advbct.THRESHOLD}
    rows: dict[str, Values] = {
        "independent": {},
        "advbct": own,
        "advbct without critic": {**own, **advbct.WITHOUT["L_adv"]},
        "advbct without boundaries": {**own, **advbct.WITHOUT["L_p2s"]},
    }
    return Suite(
        title="AdvBCT on Tiny-ImageNet-32, ArcFace",
        description="From 60 to 200 classes, ResNet-18, 16 epochs, batches of 1,024.",
        runs=tuple(
            Run(label, HALF_OF_IMAGES, KNOWN, label.partition(" ")[0], options, training)
            for label, options in rows.items()
        ),
        metrics=METRICS,
        figures={"table": TABLE},
    )
