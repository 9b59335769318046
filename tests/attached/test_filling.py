from __future__ import annotations

import re
from typing import Any, cast

import pytest

from limpet.errors import ConfigError
from limpet.upgrade.filling import Run


@pytest.mark.parametrize(
    ("options", "told"),
    [({"bugdet": 5}, "option of a backfill 'bugdet'"), ({"batch": 0}, "batch=0"), ({"rate": 0.0}, "rate=0.0"),
     ({"share": 1.5}, "share=1.5"), ({"budget": -1}, "budget=-1")],
)  # fmt: skip
def test_what_a_run_cannot_do_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        Run(cast(Any, None), "new", cast(Any, options), batch=512, items="rows")
