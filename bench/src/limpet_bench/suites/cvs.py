"""CVS (CVPR 2022): Continual Learning for Visual Search With Backward Consistent Feature Embedding."""

from __future__ import annotations

from dataclasses import dataclass, replace

from limpet import EncoderSpec, Recipe
from limpet.data import Augmentation, RandAugment, ResizedCrop
from limpet_bench.figures import ClassDistribution, Column, Curve, Figure, SessionCurve, Strips, Table
from limpet_bench.suite import Data, Run, Scenario, Search, Suite, Training, Values
from limpet_bench.suites.published import published

SEEDS = (0, 1, 2)  # the three runs of Table C.6

# Training of every session. Nesterov momentum and the warm-up epoch of the schedule are those of the released code.
CIFAR = Training(
    model=EncoderSpec(backbone="resnet18", dim=128, channels=3, image_size=32),
    recipe=Recipe(
        epochs=256,
        batch_size=16,
        learning_rate=0.03,
        momentum=0.9,
        nesterov=True,
        weight_decay=0.0001,
        schedule="cosine-restarts",
        augmentation=Augmentation(crop_padding=4, flip=True, auto_augment="cifar-10"),
    ),
    head="normalised",
    head_options={"temperature": 0.05},
)

TINY_IMAGENET = CIFAR.but(
    model={"backbone_options": {"stem": "imagenet"}, "image_size": 64},  # the stem is that of the released code
    recipe={
        "batch_size": 64,
        "augmentation": Augmentation(crop_padding=4, flip=True, rand_augment=RandAugment(operations=2, magnitude=9.0)),
    },
)

# Training of every session. Momentum and weight decay are those of the released code.
PHOTOGRAPHS = Training(
    model=EncoderSpec(
        backbone="resnet50",
        dim=128,
        image_size=256,
        centre_crop=224,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    recipe=Recipe(
        epochs=100,
        batch_size=64,
        learning_rate=0.0001,
        momentum=0.9,
        nesterov=True,
        weight_decay=0.0001,
        schedule="constant",
        augmentation=Augmentation(resized_crop=ResizedCrop(), flip=True),  # our choice: crops of the centre square
        precision="bf16-mixed",  # our choice, like channels_last: the paper does not say
        channels_last=True,
        freeze_batch_norm=True,  # as in the released code; the paper does not say
    ),
    head="normalised",
    head_options={"temperature": 0.05},
    weights="resnet-50",  # of ImageNet, in the folder weights/resnet-50 of the data root
)


@dataclass(frozen=True)
class Setting:
    """Data, training, memory budget and plans of one of the five data sets, with its name in the paper."""

    name: str
    data: Data
    training: Training
    budget: int
    plans: tuple[Scenario, ...]

    @property
    def general(self) -> Setting:
        """The setting with only the plan "general-incremental", which all five data sets have."""
        return replace(self, plans=tuple(plan for plan in self.plans if plan.kind == "general-incremental"))

    def runs(self, methods: dict[str, tuple[str, Values]], searches: dict[str, Search] | None = None) -> list[Run]:
        """Return a run for every plan and learner."""
        return [
            Run(
                label,
                self.data,
                plan,
                method,
                options,
                self.training,
                budget=self.budget,
                search=(searches or {}).get(label),
            )
            for plan in self.plans
            for label, (method, options) in methods.items()
        ]


def general(first: int, new: int, old_share: float, sessions: int, validation: float, **more: int) -> Scenario:
    """Return the plan of the setup "general incremental"."""
    options = {"first_classes": first, "new_classes": new, "old_share": old_share, "sessions": sessions}
    return Scenario("general-incremental", {**options, "validation": validation, **more})


def three_plans(sessions: int, minor_share: float, validation: float, last: Scenario) -> tuple[Scenario, ...]:
    """Return the setups "disjoint", "blurry" and "general incremental"."""
    options = {"sessions": sessions, "validation": validation}
    return Scenario("disjoint", options), Scenario("blurry", {**options, "minor_share": minor_share}), last


SETTINGS = {
    "cifar-100": Setting(
        "CIFAR-100",
        Data("cifar-100"),
        CIFAR,
        2000,
        three_plans(5, 0.1, 0.1, general(20, 20, 0.1, 5, 0.1, new_images=400)),
    ),
    "tiny-imagenet": Setting(
        "Tiny-ImageNet",
        Data("tiny-imagenet"),
        TINY_IMAGENET,
        4000,
        three_plans(10, 0.3, 0.05, general(20, 20, 0.3, 10, 0.05)),
    ),
    "inat-m": Setting(
        "iNat-M",
        Data("inaturalist", {"release": "inat2017", "subset": "iNat-M", "image_size": 256}),
        PHOTOGRAPHS,
        4000,
        (general(100, 25, 0.3, 5, 0.05),),
    ),
    "product-m": Setting(
        "Product-M",
        Data("product-10k", {"subset": "Product-M", "image_size": 256}),
        PHOTOGRAPHS.but(recipe={"batch_size": 32}),
        3000,
        (general(1343, 700, 0.4, 3, 2),),
    ),
    "stanford-dogs": Setting(
        "Stanford Dogs", Data("stanford-dogs", {"image_size": 256}), PHOTOGRAPHS, 600, (general(60, 20, 0.3, 4, 0.1),)
    ),
}

CVS: Values = {"model_weight": 10.0, "data_weight": 1.0}
WITHOUT_REPLAY: Values = {"replay": False}

METHODS: dict[str, tuple[str, Values]] = {
    # The paper does not print the regularisation weights of ewc and rwalk.
    **{name: (name, {}) for name in ("joint", "finetune", "bct", "lwf", "mmd", "ewc", "rwalk", "rainbow")},
    "cvs": ("cvs", CVS),
    # Published in Table C.1 only, for general-incremental only.
    "cvs without replay": ("cvs", {**CVS, **WITHOUT_REPLAY}),
}
NINE = tuple(METHODS)[:9]

ABLATION: dict[str, tuple[str, Values]] = {
    "L_c": ("finetune", {}),
    "L_c + L_m": ("cvs", {"model_weight": 10.0, "data_weight": 0.0, **WITHOUT_REPLAY}),
    "L_c + L_d without replay": ("cvs", {"coherence": "none", "data_weight": 1.0, **WITHOUT_REPLAY}),
    "L_c + L_d": ("cvs", {"coherence": "none", "data_weight": 1.0}),
    "L_c + L_m + L_d without replay": ("cvs", {**CVS, **WITHOUT_REPLAY}),
    "L_c + L_m + L_d": ("cvs", CVS),
}

# BatchHard draws batches with two items per class. Its weight is that of CVS, because the paper prints no other.
BATCH_HARD: tuple[str, Values] = ("cvs", {"coherence": "batch_hard", "model_weight": 10.0})

RECALLS = tuple(Column(metric=f"ar@{k}", unit="%", digits=2) for k in (1, 2, 4))
RECALL = SessionCurve(title="Recall@1 after every session", measure="recall@1")
PLANS = ClassDistribution(title="Classes of every session")
TABLE_C_1 = Table(
    title="Table C.1", scenarios=("general-incremental",), columns=RECALLS, where=("Table 1", "Table C.1")
)
TABLE_C_6 = Table(
    title="Table C.6: means of three runs",
    scenarios=("general-incremental",),
    columns=RECALLS,
    where=("Table C.6",),
)


def recalls(title: str, *rows: str, where: tuple[str, ...] = ()) -> Table:
    """Return a table of AR@1, AR@2 and AR@4."""
    return Table(title=title, rows=rows, columns=RECALLS, where=where)


def nine_learners(name: str, figures: dict[str, Figure], *reproduces: str, accuracy: bool = False) -> Suite:
    """Return Table 1 on one data set."""
    return Suite(
        title=f"CVS, Table 1: {SETTINGS[name].name}",
        description=(
            f"Nine learners through sessions of {SETTINGS[name].name} at the paper's full size; the gallery is never "
            "embedded again."
        ),
        reproduces=("cvs/table-1", "cvs/table-c-1", "cvs/table-c-6", *reproduces),
        track="sessions",
        runs=tuple(SETTINGS[name].runs(METHODS)),
        accuracy=accuracy,
        seeds=SEEDS,
        figures=figures,
        published=published(f"cvs-table-1-{name}"),
    )


def table_1_cifar_100() -> Suite:
    """Tables 1, C.1 and C.6, CIFAR-100: nine learners."""
    figures: dict[str, Figure] = {
        "table-1": recalls("Table 1 (a)", *NINE, where=("Table 1",)),
        "table-c-1": TABLE_C_1,
        "table-c-6": TABLE_C_6,
        "figure-4": SessionCurve(title="Figure 4: recall@1 after every session", measure="recall@1", rows=NINE),
        "figure-3": ClassDistribution(title="Figure 3: classes of every session"),
        "classification": Table(
            title="Section 4.3: accuracy of the classifier after the last session",
            rows=("cvs", "rainbow", "rwalk"),
            columns=(Column(metric="accuracy", unit="%", digits=2),),
            where=("Section 4.3",),
        ),
    }
    return nine_learners("cifar-100", figures, "cvs/figure-4", "cvs/figure-3", accuracy=True)


FIGURES: dict[str, Figure] = {
    "table-1": recalls("Tables 1 (c) and C.1", where=("Table 1", "Table C.1")),
    "table-c-6": TABLE_C_6,
    "recall": RECALL,
    "plans": PLANS,
}


def table_1_inat_m() -> Suite:
    """Tables 1, C.1 and C.6, iNat-M: nine learners."""
    return nine_learners("inat-m", FIGURES)


def table_1_product_m() -> Suite:
    """Tables 1, C.1 and C.6, Product-M: nine learners."""
    strips = Strips(title="Figure A.4: first four hits", rows=("cvs", "finetune"), queries=4, hits=4)
    return nine_learners("product-m", {**FIGURES, "figure-a-4": strips}, "cvs/figure-a-4")


def table_1_stanford_dogs() -> Suite:
    """Tables 1, C.1 and C.6, Stanford Dogs: nine learners."""
    return nine_learners("stanford-dogs", FIGURES)


def table_1_tiny_imagenet() -> Suite:
    """Tables 1, C.1 and C.6, Tiny-ImageNet: nine learners."""
    figures: dict[str, Figure] = {
        "table-1": recalls("Table 1 (b)", *NINE, where=("Table 1",)),
        "table-c-1": TABLE_C_1,
        "table-c-6": TABLE_C_6,
        "figure-5": SessionCurve(title="Figure 5: recall@1 after every session", measure="recall@1", rows=NINE),
        "plans": PLANS,
    }
    return nine_learners("tiny-imagenet", figures, "cvs/figure-5")


def ablation(name: str, *, in_paper: bool) -> Suite:
    """Return the ablation of the three losses on one data set: Tables 2 and C.2, or only Table C.2."""
    return Suite(
        title=f"CVS, Table {'2' if in_paper else 'C.2'}: {SETTINGS[name].name}",
        description=(
            f"The parts of CVS through sessions of {SETTINGS[name].name} at the paper's full size; the gallery is "
            "never embedded again."
        ),
        reproduces=("cvs/table-2", "cvs/table-c-2") if in_paper else ("cvs/table-c-2",),
        track="sessions",
        runs=tuple(SETTINGS[name].general.runs(ABLATION)),
        seeds=SEEDS,
        figures={"ablation": recalls("Tables 2 and C.2" if in_paper else "Table C.2")},
        published=published(f"cvs-table-2-{name}"),
    )


def table_2_cifar_100() -> Suite:
    """Tables 2 and C.2, CIFAR-100: the three losses."""
    return ablation("cifar-100", in_paper=True)


def table_2_inat_m() -> Suite:
    """Table C.2, iNat-M: the three losses."""
    return ablation("inat-m", in_paper=False)


def table_2_product_m() -> Suite:
    """Tables 2 and C.2, Product-M: the three losses."""
    return ablation("product-m", in_paper=True)


def table_2_stanford_dogs() -> Suite:
    """Tables 2 and C.2, Stanford Dogs: the three losses."""
    return ablation("stanford-dogs", in_paper=True)


def table_2_tiny_imagenet() -> Suite:
    """Table C.2, Tiny-ImageNet: the three losses."""
    return ablation("tiny-imagenet", in_paper=False)


def table_c_3() -> Suite:
    """Table C.3: other losses in place of the model coherence.

    The losses are those of the authors' code, with its temperature and number of neighbours; relative MLKD uses the
    Frobenius norm.
    """
    others = {
        "dark knowledge": "dark_knowledge",
        "absolute MLKD": "absolute",
        "relative MLKD": "relative_frobenius",
        "anglewise RKD": "angles",
        "distancewise RKD": "distances",
        "hard DarkRank": "dark_rank",
    }
    methods: dict[str, tuple[str, Values]] = {
        "none": ("cvs", {"coherence": "none"}),
        **{label: ("cvs", {"coherence": loss}) for label, loss in others.items()},
        "cvs": ("cvs", CVS),
    }
    # The weight of each loss is chosen by the recall of validation queries. One seed is our choice.
    weight = Search(2, options={"model_weight": (1.0, 10.0)})
    return Suite(
        title="CVS, Table C.3: CIFAR-100",
        description=(
            "What may stand in the place of CVS's model coherence, in the three setups of CIFAR-100 at the paper's "
            "full size."
        ),
        reproduces=("cvs/table-c-3",),
        track="sessions",
        runs=tuple(SETTINGS["cifar-100"].runs(methods, dict.fromkeys(others, weight))),
        seeds=SEEDS,
        figures={"table-c-3": recalls("Table C.3")},
        published=published("cvs-table-c-3"),
    )


def table_c_4() -> Suite:
    """Table C.4: selection of triplets in the model coherence."""
    methods: dict[str, tuple[str, Values]] = {
        "none": ("cvs", {"coherence": "none"}),
        "BatchHard": BATCH_HARD,
        "cvs": ("cvs", CVS),
    }
    return Suite(
        title="CVS, Table C.4: CIFAR-100",
        description=(
            "How CVS's model coherence finds its triplets, in the three setups of CIFAR-100 at the paper's full size."
        ),
        reproduces=("cvs/table-c-4",),
        track="sessions",
        runs=tuple(SETTINGS["cifar-100"].runs(methods)),
        seeds=SEEDS,
        figures={"table-c-4": recalls("Table C.4")},
        published=published("cvs-table-c-4"),
    )


def half_the_memory(name: str, description: str) -> Suite:
    """Return Table C.5 on one data set."""
    setting = SETTINGS[name].general
    rows = setting.runs({label: METHODS[label] for label in ("rwalk", "rainbow", "cvs")})
    return Suite(
        title=f"CVS, Table C.5: {SETTINGS[name].name}",
        description=description,
        reproduces=("cvs/table-c-5",),
        track="sessions",
        runs=tuple(run for row in rows for run in (row, row.variant("budget", setting.budget // 2))),
        seeds=SEEDS,
        figures={
            "table-c-5": recalls("Table C.5"),
            "memory": Curve(
                title="AR@1 over the images that are kept", rows=("rwalk", "rainbow", "cvs"), over="budget"
            ),
        },
        published=published(f"cvs-table-c-5-{name}"),
    )


def table_c_5_cifar_100() -> Suite:
    """Table C.5, CIFAR-100: half the memory."""
    return half_the_memory(
        "cifar-100",
        "Three learners with a memory of 1,000 and of 2,000 images through sessions of CIFAR-100 at the paper's full "
        "size.",
    )


def table_c_5_tiny_imagenet() -> Suite:
    """Table C.5, Tiny-ImageNet: half the memory."""
    return half_the_memory(
        "tiny-imagenet",
        "Three learners with a memory of 2,000 and of 4,000 images through sessions of Tiny-ImageNet at the paper's "
        "full size.",
    )


SMALL = Setting(
    "Omniglot",
    Data("omniglot", {"class_share": 0.25}),
    Training(
        model=EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 16}),
        recipe=Recipe(  # of every session
            epochs=8,
            batch_size=32,
            learning_rate=0.03,
            nesterov=True,
            weight_decay=0.0001,
            schedule="cosine-restarts",
            augmentation=Augmentation(degrees=10.0, scale=0.1, shift=0.05),
        ),
        head="normalised",
        head_options={"temperature": 0.05},
    ),
    120,
    (general(40, 40, 0.4, 3, 1),),
)
"""Three sessions with 40 new characters each."""


def small() -> Suite:
    """120 of Omniglot's characters and a small network; takes minutes on one core."""
    return Suite(
        title="CVS's losses through sessions of Omniglot",
        description=(
            "Tables 2 and C.4 and Figure 4 of CVS at a small size: its losses with and without replay, and BatchHard "
            "in the place of its triplets, while three sessions bring 40 new characters each, three seeds."
        ),
        reproduces=("cvs/table-2", "cvs/table-c-2", "cvs/table-c-4", "cvs/figure-4"),
        track="sessions",
        runs=tuple(SMALL.runs({"joint": ("joint", {}), **ABLATION, "BatchHard": BATCH_HARD})),
        test_images=4,
        classes=120,
        seeds=SEEDS,
        figures={
            "table-2": recalls("Table 2 at a small size: the three losses", *ABLATION),
            "table-c-4": recalls(
                "Table C.4 at a small size: triplets of the model coherence",
                "L_c + L_d",
                "BatchHard",
                "L_c + L_m + L_d",
            ),
            "figure-4": RECALL,
        },
    )
