"""Where an upgrade of a live index stands, as notebooks and scripts show it."""

from __future__ import annotations

from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.status import NextStep, UpgradeStatus

STATUS = UpgradeStatus(
    place="shop.items", phase="started", old=UpgradeModel("declared:v1", 8), new=UpgradeModel("declared:v2", 8),
    serving="old", writes="new", items=1200, lacking={"old": 0, "new": 300},
    next=(NextStep("give the others a vector", ("backfill",)),),
)  # fmt: skip


def test_a_status_shows_itself_in_words_a_table_and_numbers() -> None:
    headline, *_, following = STATUS.summary().splitlines()
    assert headline == STATUS.lines()[0] and following.endswith("limpet upgrade backfill URL")
    assert repr(STATUS).splitlines()[0] == f"<UpgradeStatus> {headline}" and len(repr(STATUS).splitlines()) == 4
    old, new = STATUS.to_arrow().to_pylist()
    assert (old["serving"], old["writes"], old["lacking"]) == (True, False, 0)
    assert (new["serving"], new["writes"], new["lacking"]) == (False, True, 300)
    assert "<td>declared:v2</td>" in STATUS._repr_html_() and "| declared:v2 |" in STATUS.to_markdown()
