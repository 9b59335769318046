"""Where the papers' claims hold at a small size: settings varied one at a time, predictions written down first.

    LIMPET_DATA=FOLDER python benchmarks/regimes.py              # half an hour on one idle core
    LIMPET_DATA=FOLDER python benchmarks/regimes.py prototypes   # one family

New models are heads of a linear layer over frozen sentence vectors (MiniLM-L6, 384 numbers), old ones over word vectors
(wordllama, 256) unless a row says otherwise. "Intents" are CLINC150 and BANKING77 together: 170 classes of 15 texts to
train on, 10 further texts of each that search one another, and 57 classes held out. "Characters" are Omniglot's
drawings as 14 × 14 pixels, under networks of one hidden layer: 964 classes of 10 drawings, 150 more held out. Old
models learn 30 % of the trained classes for 10 epochs (4 of characters), new ones all of them for 10, in 32 dimensions,
unless a row says otherwise. Options are those of the papers, or were written here before anything ran; nothing is
tuned. Numbers are mAP in percent, means over seeds 0, 1 and 2; intervals of 95 % draw whole classes.

A finished cell is kept in the work folder and skipped by the next run; regimes.json and regimes.md are written from
what is finished. `PREDICTIONS` of a family were written before it ran, those of "scale" and two of "mixing" after a
look at other cells. Items and epochs were halved before any family was compared, to save time.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from regimes_cells import INDEPENDENT, Place, Row, Setting, cell, old_facts, one_thread
from regimes_data import CHARACTERS
from regimes_tables import write

SEEDS = (0, 1, 2)

CLAIMS = {
    "prototypes": "NDPP/ODPP, Table V (GLDv2, data-extension): on RParis p2s has 75.42 of self and 69.87 of cross, "
    "ndpp 76.21 and 71.10, odpp 76.84 and 70.99.",
    "scale": "NDPP/ODPP, Figure 4: 0.01 is the best α, 100 the best number of neighbours.",
    "mixing": "MixBCT, Table 2 (faces, an old model of low quality): TAR of cross is 0.8305 with mixbct, 0.8094 with "
    "l2 and 0.6263 with bct, of self 0.9525, 0.9362 and 0.9553.",
    "order": "MixBCT, Table 2, as above. There a deep network learns from random weights, while old features can be "
    "told apart from the first step on.",
    "same start": "MixBCT, Table 2, as above; every row starts from the classifier that has learned old vectors alone.",
    "critic": "AdvBCT, Table 2 (extended-data, RParis): beside classifier and boundaries the critic brings cross from "
    "77.18 to 78.55 and self from 82.12 to 82.78.",
    "long critic": "AdvBCT, Table 2, as above.",
    "strong critic": "AdvBCT, Table 2, as above; with the weights of MixBCT's copy of it, 4 for boundaries and critic.",
    "cones": "HBCT, Table 2 (CIFAR-100, CMC@1): entailment brings P_com from 0.435 to 0.495 and P_up from 0.006 to "
    "−0.001.",
}
PREDICTIONS: dict[str, tuple[str, ...]] = {
    "prototypes": (
        "ndpp with the paper's α (0.01 twice) turns its targets by less than 1.5 degrees in every setting: the push is "
        "a weighted mean of differences of unit vectors, shorter than √2. So it differs from p2s by less than half a "
        "point, whatever the regime.",
        "odpp with the paper's θ (0.6) turns its targets by more than 3 degrees only where prototypes are crowded (a "
        "tenth or more of the pairs above 0.6): few dimensions, and an old model trained for one epoch.",
        "What a strong perturbation (odpp with θ 0.3, ndpp with α 0.1 and 10 neighbours) gains in self over p2s "
        "grows with the confusion of the old prototypes of new classes: a rank correlation over settings above 0.5. "
        "Where less than a tenth of the items are confused it gains nothing.",
        "p2s with a smaller weight (0.3) gains at least as much self as a strong perturbation does: the perturbation "
        "is another way to align less.",
    ),
    "scale": (
        "Written after the first setting of the family before, where ndpp gained cross with α 0.1 and 10 neighbours "
        "and nothing with the paper's 0.01 and 100: what decides is the angle that targets turn by, not the neighbours."
        " With α 0.01 and 10 neighbours it gains nothing; with α 0.1 and 100 it does.",
        "Gains in cross rise up to α 0.3 and are gone at α 1.",
    ),
    "mixing": (
        "With a plain softmax classifier the cross of mixbct is the lowest of bct, l2, unibct and mixbct; with ArcFace "
        "it is not.",
        "From 42 to 170 classes, and from softmax to ArcFace, mixbct gains on the best of the other three.",
        "Training 5 times as long brings mixbct nearer to the best of the other three.",
        "With 8 dimensions, for 170 classes, one classifier has no room for old and new embeddings "
        "apart: mixbct comes nearer to the best of the other three than with 32.",
        "Leaving doubtful rows out changes cross by less than half a point in every setting.",
    ),
    "order": (
        "What decides is which embeddings the classifier learns first. Where it has learned old vectors before the new "
        "network starts, the cross of mixbct is at least 15 points higher than from random weights, in every setting, "
        "and its self at most 1 point lower.",
        "Started from the independent model, whose classifier already separates new embeddings, its cross is lower "
        "than from random weights.",
        "The start alone does not do it: without old vectors in the batches (independent, old first) cross is less "
        "than half of what mixbct, old first, has.",
        "Old first, mixbct has more cross than bct and unibct and more self than l2, but not more cross than l2.",
        "bct and unibct as MixBCT's code has them, with cosines that are not scaled, have less than half of their "
        "usual cross: part of the paper's order is how its rivals are run.",
    ),
    "same start": (
        "Written after the first setting of the family before, where the start alone brought most of the cross, so "
        "that rows with other starts do not compare. With one start for all, mixbct has more cross than bct and unibct "
        "as MixBCT's code has them and than l2, intervals apart, as in the paper, and less than unibct with scaled "
        "cosines.",
        "Its self is at most half a point below any of theirs.",
        "After 50 epochs the others have lost more of what the start gave them: mixbct leads by more.",
        "Written after 10 epochs, where l2 had more cross than mixbct and no less self: ArcFace's loss, which is still "
        "large then, leaves a weight of 10 little to say. After 50 epochs l2 costs self against mixbct, and more so "
        "beside an old model of 1 epoch, whose vectors are worth less: there mixbct is ahead of it in self by more "
        "than 2 points, and at most a point behind in cross.",
        "Written after that was false (l2: cross +2.0, self +0.4). A linear layer cannot reproduce the noise of old "
        "vectors, so that l2 is an alignment to class means that costs nothing. With two layers, which can, l2 costs "
        "more than a point of self against mixbct, and is at most a point ahead in cross.",
    ),
    "critic": (
        "With batches of 32 the critic beside the classifier gains nothing; with 512 it gains cross.",
        "It gains more where old and new models are over different frozen vectors, so that more tells them apart.",
        "Seeing old and new in one batch normalisation makes the critic gain more than the released form does.",
    ),
    "long critic": (
        "Written after batches of 512 and 10 epochs. Boundaries align slowly: after 50 epochs of batches of 32 their "
        "cross is above 25, against 9 after 50 steps.",
        "Then the critic gains cross beside them, by less than a point, with batches of 32; with 512 nothing.",
        "It gains more where the old model knows all classes and is trained for 60 epochs, so that its classes are "
        "compact and boundaries tight.",
        "Written after the first setting, where the critic gained 1.7 points of cross and cost 3.3 of self: a critic "
        "draws the new embeddings to the shape of the old ones, which costs where these are much worse (43.6 against "
        "66.1; in the paper 75.45 against 81.15). Beside an old model over the same vectors that knows all classes it "
        "costs less than a point of self, and still gains cross.",
    ),
    "strong critic": (
        "A critic of weight 4 gains more cross beside boundaries of weight 4 than one of weight 1 beside those of "
        "weight 1, and it costs self.",
    ),
    "cones": (
        "What entailment costs in self shrinks with longer training (5, 20, 60 epochs of both models).",
        "RINCE and InfoNCE are apart only where lengths tell unseen classes (an AUC above 0.65), which takes 20 epochs "
        "or more.",
        "The cone of an old vector at the clip is 10 degrees wide, so that entailment asks the new model to reproduce "
        "old noise. With a cone of 31 degrees (ε 0.3) it costs less than half as much self and keeps more than half of "
        "what it gains in cross.",
        "Entailment costs less self beside an old model of 60 epochs, whose classes are compact, than beside one of 5, "
        "the new one being trained for 20 epochs.",
    ),
}

OUTCOMES: dict[str, tuple[str, ...]] = {
    "prototypes": (
        "true in six settings: 0.2 or 0.3 degrees, and no difference above 0.1.",
        "false, if narrowly: 4.2 degrees with 9 % of the pairs above 0.6, 1.9 to 2.8 elsewhere, the old model of one "
        "epoch included, whose prototypes are not crowded.",
        "false: over six settings all four correlations with confusion are negative, −0.26 to −0.71, and none is apart "
        "from 0. No setting confuses less than a quarter.",
        "false: it costs self in five of six settings, and cross in all.",
    ),
    "scale": (
        "in part: α 0.01 with 10 neighbours gains 0.1, its interval above 0; α 0.1 gains with either.",
        "true: +1.2 at 0.3, +0.3 [−0.3, +1.0] at 1.",
    ),
    "mixing": (
        'in part: it is the lowest with softmax. With ArcFace (family "order") it is above bct, below l2 and unibct.',
        "open for the number of classes. With ArcFace it is 6.3 behind the best, with softmax 34.7; the best falls.",
        'open here; true from another start (family "same start").',
        "open.",
        "true where it ran: 0.2.",
    ),
    "order": (
        "true with 32 dimensions: +32.8, and self rises by 3.0; false in size with 8: +7.5, of 2.1.",
        "true: −1.7 [−2.1, −1.3], and −0.2 [−0.4, −0.1] with 8 dimensions.",
        "false: the start alone brings 35.5 of 39.1. Mixing adds 3.6 [3.2, 4.2] after 10 epochs, and 10.2 [9.1, 11.5] "
        'after 50 (family "same start").',
        "false: it has more cross than all rows from random weights, l2 included. They do not compare; see the next "
        "family.",
        "true: 1.4 against 3.8, and 1.3 against 12.6.",
    ),
    "same start": (
        "in part: it is ahead of bct and unibct as MixBCT's code has them, by 2.8 and 3.1, and of bct as it is, and "
        "behind unibct as it is; but behind l2, too, by 2.5.",
        "false: it is 0.6 to 1.1 lower after 10 epochs. After 50 it is level with unibct, 0.8 below l2, 2.0 below bct.",
        "true for bct and unibct as MixBCT's code has them: by 7.7 and 8.2.",
        "false: l2 has 0.4 more self and 2.0 more cross beside the weak old model, too.",
        "true: with two layers l2 has 5.0 [4.0, 6.0] less self and 1.8 [1.0, 2.6] less cross than mixbct, whose cross "
        "is the highest of all, if not apart from unibct's. Not so among held-out classes, where l2 has more cross.",
    ),
    "critic": ("false for 512: +0.0; open for 32.", "open.", "false: it costs 1.3 of cross and 2.1 of self."),
    "long critic": (
        "true: 32.8.",
        "false in size: +1.7 [+0.9, +2.5]; open for 512.",
        "open.",
        "true, and more than that: cross +4.0 [+3.4, +4.5], self +1.4 [+0.9, +1.8]. The first try of one seed began "
        "with the same random weights for the old and the new model, which made them alike unaligned (65.2 of cross), "
        "and was thrown away.",
    ),
    "strong critic": ("false: it costs self (−3.8), and gains no cross.",),
    "cones": (
        "true in the end: 0.6 after 5 and after 20 epochs, nothing after 60 (+0.4 [−0.2, +1.0]).",
        "false: lengths tell unseen classes after 5 epochs (0.66), less after 20 (0.59) and not at all after 60 "
        "(0.50), where 95 % of these are clipped, too; InfoNCE is 7 to 22 of cross ahead of RINCE everywhere.",
        "false: a wider cone changes nothing. The logged loss says that new vectors lie far outside either.",
        "not run.",
    ),
}
"""What came of each prediction."""

P2S = Row("p2s", "p2s")
PROTOTYPES = (
    INDEPENDENT,
    P2S,
    Row("p2s, weight 0.3", "p2s", {"weight": 0.3}),
    Row("ndpp", "ndpp"),
    Row("ndpp, α 0.1, 10 neighbours", "ndpp", {"alpha_old": 0.1, "alpha_new": 0.1, "neighbours": 10}),
    Row("odpp", "odpp", {"pairs": "active"}),
    Row("odpp, θ 0.3", "odpp", {"pairs": "active", "threshold_old": 0.3, "threshold_new": 0.3}),
)
SCALE = (
    INDEPENDENT,
    P2S,
    *(
        Row(f"ndpp, α {alpha:g}, {count} neighbours", "ndpp",
            {"alpha_old": alpha, "alpha_new": alpha, "neighbours": count})
        for alpha, count in ((0.01, 10), (0.03, 10), (0.1, 10), (0.1, 100), (0.3, 10), (1.0, 10))
    ),
)  # fmt: skip
MIXING = (
    INDEPENDENT,
    Row("bct", "bct"),
    Row("l2", "l2"),
    Row("unibct", "unibct"),
    Row("mixbct", "mixbct"),
    Row("mixbct, ratio 0.5", "mixbct", {"ratio": 0.5}),
    Row("mixbct, all rows", "mixbct", {"denoise": 1.0}),
)
OLD_FIRST, NEW_FIRST = "old first", "new first"
AS_RELEASED = {"bct": {"classifier": "means", "temperature": 1.0}, "unibct": {"scale": 1.0, "margin": 0.0}}
"""Rivals as MixBCT's code has them: cosines to class means that are not scaled."""
ORDER = (
    INDEPENDENT,
    Row("bct", "bct"),
    Row("bct, as in MixBCT's code", "bct", AS_RELEASED["bct"]),
    Row("unibct", "unibct"),
    Row("unibct, as in MixBCT's code", "unibct", AS_RELEASED["unibct"]),
    Row("l2", "l2"),
    Row("mixbct", "mixbct"),
    Row("mixbct, old first", "mixbct", start=OLD_FIRST),
    Row("mixbct, new first", "mixbct", start=NEW_FIRST),
    Row("independent, old first", "independent", start=OLD_FIRST),
)
SAME_START = (
    INDEPENDENT,
    *(replace(row, label=f"{row.label}, old first", start=OLD_FIRST) for row in ORDER if row.start is None),
)
BOUNDARY = {"classes": "new", "adversarial_weight": 0.0}
CRITIC = (
    INDEPENDENT,
    Row("boundary", "advbct", BOUNDARY),
    Row("boundary and critic", "advbct", {"classes": "new"}),
    Row("boundary and critic, one normalisation", "advbct", {"classes": "new", "joint_batch_norm": True}),
    Row("critic", "advbct", {"classes": "new", "weight": 0.0}),
)
LONG = (INDEPENDENT, Row("boundary", "advbct", BOUNDARY), Row("boundary and critic", "advbct", {"classes": "new"}))
STRONG = (
    INDEPENDENT,
    Row("boundary, weight 4", "advbct", {**BOUNDARY, "weight": 4.0}),
    Row("boundary and critic, weight 4", "advbct", {"classes": "new", "weight": 4.0, "adversarial_weight": 4.0}),
)
INFONCE = {"contrast": "infonce"}
CONES = (
    INDEPENDENT,
    Row("hbct", "hbct"),
    Row("hbct without entailment", "hbct", {"entail_weight": 0.0}),
    Row("hbct with InfoNCE", "hbct", INFONCE),
    Row("hbct with InfoNCE, without entailment", "hbct", {**INFONCE, "entail_weight": 0.0}),
    Row("hbct, wide cones", "hbct", {"min_radius": 0.3}),
)

BASE = Setting()
DRAWN = Setting(data=CHARACTERS, classes=964, old_model="pixels", old_epochs=4, batch=256)
CONE = replace(BASE, lorentz=True, old_share=0.5)
MARGIN = replace(BASE, head="arcface")
MANY_STEPS = replace(BASE, batch=32, epochs=50)
COMPACT = {"old_share": 1.0, "old_epochs": 60}
LONGER = {
    "batches of 32, 50 epochs": MANY_STEPS,
    "batches of 32, 50 epochs, old model of 60 epochs over sentences that knows all classes": replace(
        MANY_STEPS, old_model="sentences", **COMPACT
    ),
    "batches of 512, 50 epochs": replace(MANY_STEPS, batch=512),
    "batches of 32, 50 epochs, old model of 60 epochs that knows all classes": replace(MANY_STEPS, **COMPACT),
}


class Family(NamedTuple):
    """What is compared, where, and with which row."""

    settings: dict[str, Setting]
    rows: tuple[Row, ...]
    beside: str


FAMILIES: dict[str, Family] = {
    "prototypes": Family(
        {
            "intents": BASE,
            "8 dimensions": replace(BASE, dim=8),
            "old model knows all classes": replace(BASE, old_share=1.0),
            "old model of 1 epoch": replace(BASE, old_epochs=1),
            "128 dimensions": replace(BASE, dim=128),
            "old model of 60 epochs": replace(BASE, old_epochs=60),
            "old model knows 10 % of the classes": replace(BASE, old_share=0.1),
            "42 classes": replace(BASE, classes=42),
            "old model over the new one's vectors": replace(BASE, old_model="sentences"),
            "characters": DRAWN,
            "characters, 8 dimensions": replace(DRAWN, dim=8),
            "characters, old model of 1 epoch": replace(DRAWN, old_epochs=1),
        },
        PROTOTYPES,
        "p2s",
    ),
    "scale": Family({"intents": BASE, "characters": DRAWN}, SCALE, "p2s"),
    "mixing": Family(
        {
            "170 classes, softmax": BASE,
            "170 classes, arcface": MARGIN,
            "170 classes, arcface, 8 dimensions": replace(MARGIN, dim=8),
            "170 classes, arcface, 50 epochs": replace(MARGIN, epochs=50),
            **{f"42 classes, {head}": replace(BASE, classes=42, head=head) for head in ("softmax", "arcface")},
            **{f"964 characters, {head}": replace(DRAWN, head=head) for head in ("softmax", "arcface")},
        },
        MIXING,
        "mixbct",
    ),
    "order": Family(
        {
            "170 classes": MARGIN,
            "170 classes, 8 dimensions": replace(MARGIN, dim=8),
            "170 classes, 50 epochs": replace(MARGIN, epochs=50),
            "964 characters": replace(DRAWN, head="arcface"),
        },
        ORDER,
        "mixbct",
    ),
    "same start": Family(
        {
            "170 classes": MARGIN,
            "170 classes, 50 epochs": replace(MARGIN, epochs=50),
            "170 classes, 50 epochs, old model of 1 epoch": replace(MARGIN, epochs=50, old_epochs=1),
            "170 classes, 50 epochs, two layers": replace(MARGIN, epochs=50, projection="mlp"),
            "170 classes, 8 dimensions": replace(MARGIN, dim=8),
            "964 characters": replace(DRAWN, head="arcface"),
        },
        SAME_START,
        "mixbct, old first",
    ),
    "critic": Family(
        {f"batches of {batch}, old model over {model}": replace(BASE, batch=batch, old_model=model)
         for batch in (512, 32) for model in ("words", "sentences")},
        CRITIC,
        "boundary",
    ),
    "long critic": Family(LONGER, LONG, "boundary"),
    "strong critic": Family(LONGER, STRONG, "boundary, weight 4"),
    "cones": Family(
        {
            **{f"{epochs} epochs": replace(CONE, epochs=epochs, old_epochs=epochs) for epochs in (20, 5, 60)},
            **{f"20 epochs, old model of {old}": replace(CONE, epochs=20, old_epochs=old) for old in (60, 5)},
        },
        CONES,
        "hbct without entailment",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=[*FAMILIES], help=", ".join(FAMILIES))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("LIMPET_DATA", "")))
    parser.add_argument("--work", type=Path, default=Path("runs/regimes"))
    parser.add_argument("--turns", type=int, help="settings of each family to run (default: all)")
    parser.add_argument("--tables-only", action="store_true", help="write what is finished")
    given = parser.parse_args()
    one_thread()
    place = Place(given.data, given.work)
    # families take turns, so that a run that is stopped has something of each
    turns = [
        (turn, place_in, family, name)
        for place_in, family in enumerate(given.families if not given.tables_only else ())
        for turn, name in enumerate([*FAMILIES[family].settings][: given.turns])
    ]
    for _, _, family, name in sorted(turns):
        setting = FAMILIES[family].settings[name]
        for seed in SEEDS:
            started = time.monotonic()
            old_facts(setting, seed, place)
            for row in FAMILIES[family].rows:
                cell(setting, row, seed, place)
            print(f"{family}: {name}, seed {seed}: {time.monotonic() - started:.0f} s", flush=True)
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    write(FAMILIES, CLAIMS, PREDICTIONS, OUTCOMES, about, SEEDS, place, Path(__file__).parent / "results" / "regimes")


if __name__ == "__main__":
    main()
