"""The board for Grafana asks for what a service counts."""

from __future__ import annotations

import json
import re
from importlib import resources

from prometheus_client import REGISTRY

from limpet.service import metrics

FORMS = re.compile("_(bucket|sum|count|total)$")


def test_the_board_shows_every_metric_and_none_that_is_not_there() -> None:
    assert metrics.REQUESTS in REGISTRY._collector_to_names
    counted = {one.name for one in REGISTRY.collect() if one.name.startswith("limpet_")}
    board = json.loads((resources.files("limpet") / "service" / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown = {FORMS.sub("", name) for expression in asked for name in re.findall(r"limpet_\w+", expression)}
    assert shown == counted
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})
