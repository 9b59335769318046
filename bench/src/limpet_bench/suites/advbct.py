"""AdvBCT (Pan et al., CVPR 2023): its tables and figures, a function each."""

from __future__ import annotations

from limpet_bench.suite import Suite, Values
from limpet_bench.suites.columns import P_OVER_SETS, SELF_AND_CROSS
from limpet_bench.suites.published import published

MODEL: Values = {
    "backbone": "resnet18",
    "dim": 256,
    "projection": "linear-bn",
    "image_size": 224,
    "fit": "squash",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}

# 256 images in each of four processes in the released code. Images without augmentation, at 224 x 224 pixels whatever
# their aspect, and weights of ImageNet to begin with, of the old model too (released code): the folder
# weights/resnet-18 beside the data. Numbers of full precision, as in that code.
RECIPE: Values = {
    "epochs": 30,
    "batch_size": 1024,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 0.0005,
    "schedule": "steps",
    "milestones": [5, 10, 20],
}

GLDV2_IMAGES: Values = {"image_size": 224, "fit": "squash", "usage": "Private"}

L_ADV: Values = {"method": "advbct", "options": {"task_weight": 0.0, "weight": 0.0}}

L_P2S: Values = {"method": "advbct", "options": {"task_weight": 0.0, "adversarial_weight": 0.0}}

L_CLS_L_ADV: Values = {"method": "advbct", "options": {"weight": 0.0}}

L_CLS_L_P2S: Values = {"method": "advbct", "options": {"adversarial_weight": 0.0}}

L_ADV_L_P2S: Values = {"method": "advbct", "options": {"task_weight": 0.0}}

SEARCH_RPARIS: Values = {
    "options": {"image_size": 224, "fit": "squash", "crop_queries": False},
    "protocol": "revisited",
    "protocol_options": {"difficulty": "medium"},
    "metrics": ["map-trapezoid"],
}


def figure_5() -> Suite:
    """Figure 5: its threshold t."""
    return Suite(
        title="AdvBCT, Figure 5: the threshold of its boundaries",
        description=(
            "Five thresholds of AdvBCT, searched on RParis, with more classes of GLDv2, at the paper's full size."
        ),
        reproduces=["advbct/figure-5"],
        # Searched as in the paper: RParis (medium), with queries that are not cropped to its boxes (released code).
        data={"gldv2": GLDV2_IMAGES},
        test_sets={"rparis": SEARCH_RPARIS},
        scenarios={"extended-class": {"old_fraction": 0.3, "seed": 666}},
        methods={
            "independent": {},
            "advbct": {
                "options": {"threshold": 0.4},
                "vary": {"options.threshold": [0.2, 0.4, 0.6, 0.8, 1.0]},
            },  # ours: what else than 0.4
        },
        model=MODEL,
        recipe=RECIPE,
        weights="resnet-18",
        figures={
            "threshold": {
                "kind": "curve",
                "title": "Self-test and cross-test over the threshold",
                "rows": ["advbct"],
                "over": "options.threshold",
                "measures": ["self_new", "cross"],
            },
            "numbers": {"kind": "table", "title": "Figure 5: its numbers", "columns": SELF_AND_CROSS},
        },
        published=published("advbct-figure-5"),
    )


def small() -> Suite:
    """Minutes on one core: a quarter of Omniglot's characters at 20 pixels, and a small network."""
    return Suite(
        title="AdvBCT's three losses and its threshold on a quarter of Omniglot",
        description=(
            "Table 2 and Figure 5 of AdvBCT at a small size: all subsets of its three losses, and five thresholds, "
            "for more images and for more classes, three seeds each."
        ),
        reproduces=["advbct/table-2", "advbct/figure-5"],
        data={"omniglot": {"class_share": 0.25, "image_size": 20}},
        scenarios={
            "extended-data": {},
            "extended-class": {},
        },
        methods={
            "L_cls": {"method": "independent"},
            "L_adv": L_ADV,
            "L_p2s": L_P2S,
            "L_cls + L_adv": L_CLS_L_ADV,
            "L_cls + L_p2s": L_CLS_L_P2S,
            "L_adv + L_p2s": L_ADV_L_P2S,
            "L_cls + L_adv + L_p2s": {
                "method": "advbct",
                "options": {"threshold": 0.4},
                "vary": {"options.threshold": [0.2, 0.4, 0.6, 0.8, 1.0]},
            },
        },
        seeds=[0, 1, 2],
        model={
            "dim": 32,
            "projection": "linear-bn",
            "channels": 1,
            "image_size": 20,
            "backbone_options": {"filters": 16},
        },
        recipe={"epochs": 6, "batch_size": 64, "learning_rate": 0.1, "schedule": "steps", "milestones": [3, 5]},
        metrics=["recall@1", "map"],
        figures={
            "joined": {
                "kind": "table",
                "title": "Table 2 at a small size: the three losses",
                "columns": SELF_AND_CROSS,
                "references": {"old": "self_old"},
            },
            "threshold": {
                "kind": "curve",
                "title": "Self-test and cross-test over the threshold",
                "scenarios": ["extended-class"],
                "rows": ["L_cls + L_adv + L_p2s"],
                "over": "options.threshold",
                "measures": ["self_new", "cross"],
            },
        },
    )


def table_2() -> Suite:
    """Table 2: its three losses, alone and together."""
    return Suite(
        title="AdvBCT, Table 2: its three losses",
        description="All subsets of the three losses of AdvBCT on GLDv2, ResNet18, at the paper's full size.",
        reproduces=["advbct/table-2"],
        # Searched as in the paper: RParis and ROxford (medium), with queries that are not cropped to the boxes of these
        # benchmarks (released code).
        data={"gldv2": GLDV2_IMAGES},
        test_sets={
            "rparis": SEARCH_RPARIS,
            "roxford": SEARCH_RPARIS,
        },
        scenarios={
            "extended-data": {"rule": "gldv2", "seed": 666},
            "extended-class": {"old_fraction": 0.3, "seed": 666},
        },
        methods={
            "L_cls": {"method": "independent"},
            "L_adv": L_ADV,
            "L_p2s": L_P2S,
            "L_cls + L_adv": L_CLS_L_ADV,
            "L_cls + L_p2s": L_CLS_L_P2S,
            "L_adv + L_p2s": L_ADV_L_P2S,
            "L_cls + L_adv + L_p2s": {"method": "advbct", "options": {"threshold": 0.4}},
        },
        model=MODEL,
        # 256 images in each of four processes in the released code. Images without augmentation, at 224 x 224 pixels
        # whatever their aspect, and weights of ImageNet to begin with, old models too (released code): folders
        # weights/resnet-18 and weights/resnet-50 beside the data. Numbers of full precision, as in that code.
        recipe=RECIPE,
        weights="resnet-18",
        figures={
            "joined": {
                "kind": "table",
                "title": "Table 2: the three losses",
                "columns": SELF_AND_CROSS,
                "references": {"old": "self_old"},
            }
        },
        published=published("advbct-table-2"),
    )


def table_3() -> Suite:
    """Table 3: the benchmark of five methods."""
    return Suite(
        title="AdvBCT, Table 3: five methods",
        description="Five methods in four upgrades on GLDv2 at the paper's full size.",
        reproduces=["advbct/table-3", "advbct/figure-2", "advbct/figure-6"],
        # Searched as in the paper: RParis and ROxford (medium) and, as in its released code, the private queries of
        # GLDv2; queries of RParis and ROxford are not cropped to their boxes there.
        data={"gldv2": GLDV2_IMAGES},
        test_sets={
            "rparis": SEARCH_RPARIS,
            "roxford": SEARCH_RPARIS,
            "gldv2": {
                "options": {"image_size": 224, "fit": "squash", "usage": "Private"},
                "protocol": "gldv2",
                "protocol_options": {"usage": "Private"},
                "metrics": ["map@100"],
            },
        },
        scenarios={
            "extended-data": {"rule": "gldv2", "seed": 666},
            "extended-class": {"old_fraction": 0.3, "seed": 666},
            "enlarged-backbone-data": {"rule": "gldv2", "seed": 666},
            "enlarged-backbone-class": {"old_fraction": 0.3, "seed": 666},
        },
        methods={
            "independent": {},
            "bct": {},
            "lce": {"options": {"form": "angle", "classes": "old"}},  # no transformation (K = 0)
            "unibct": {
                "options": {"refine": False, "classes": "old"}
            },  # no refinement, and old classes alone (released code)
            "hot_refresh": {},
            "advbct": {"options": {"threshold": 0.4}},
        },
        model=MODEL,
        # 256 images in each of four processes in the released code. Images without augmentation, at 224 x 224 pixels
        # whatever their aspect, and weights of ImageNet to begin with, old models too (released code): folders
        # weights/resnet-18 and weights/resnet-50 beside the data. Numbers of full precision, as in that code.
        recipe=RECIPE,
        weights="resnet-18",
        by_scenario={
            "enlarged-backbone-data": {"model": {"backbone": "resnet50"}, "weights": "resnet-50"},
            "enlarged-backbone-class": {"model": {"backbone": "resnet50"}, "weights": "resnet-50"},
        },
        figures={
            "joined": {
                "kind": "table",
                "title": "Table 3: five methods",
                "columns": [*SELF_AND_CROSS, *P_OVER_SETS],
                "references": {"old": "self_old"},
            },
            "distributions": {
                "kind": "embedding",
                "title": "Old and new embeddings of RParis without compatible training",
                "data": ["rparis"],
                "scenarios": ["extended-data"],
                "rows": ["independent"],
                "method": "tsne",
                "classes": 10,  # ours: the paper does not say; a class are the photographs that answer the same queries
                "show": ["old", "new"],
            },  # Figure 2
            "convergence": {
                "kind": "loss-curve",
                "title": "Losses of six trainings of ResNet50 on more classes",
                "scenarios": ["enlarged-backbone-class"],
                "rows": ["bct", "lce", "hot_refresh", "unibct", "advbct", "independent"],
                "terms": ["task"],  # ours: the paper does not say which loss, and this one all six have
            },  # Figure 6
        },
        published=published("advbct-table-3"),
    )
