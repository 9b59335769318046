"""An upgrade behind `limpet serve`, steered over HTTP with the names of `limpet.upgrade.base.Upgrade`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import TypeAdapter

from limpet.engines.sides import ModelSide
from limpet.service.client import Client, error_of
from limpet.service.documents import without_nothing
from limpet.support.progress import Told
from limpet.upgrade.base import UpgradeVerification
from limpet.upgrade.filling import Backfilled, FillInterruptedError
from limpet.upgrade.lifecycle import Phase
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.status import UpgradeStatus

_EVENTS = 1000
_STATUS, _FILLED, _FOUND = TypeAdapter(UpgradeStatus), TypeAdapter(Backfilled), TypeAdapter(UpgradeVerification)


class ServedUpgrade:
    """The upgrade of the index that a service serves. The service embeds, with its own models and items.

    Args:
        client: Client of the service; closed together with the upgrade.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, client: Client) -> None:
        self.client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.client.close()

    @property
    def phase(self) -> Phase:
        """Phase of the upgrade."""
        return self.status().phase

    @property
    def serving(self) -> ModelSide:
        """The model whose vectors queries search."""
        return self.status().serving

    def model(self, side: ModelSide) -> UpgradeModel:
        """Return one of the two models."""
        return self.status().model(side)

    def status(self) -> UpgradeStatus:
        """Return the status of the upgrade and the next commands."""
        found = self.client.status()
        steps = [(one["purpose"], shlex.split(one["command"])) for one in found["next"]]
        known = {name: value for name, value in found.items() if name in UpgradeStatus.__dataclass_fields__}
        next_steps = [
            {"purpose": purpose, "words": [words[2], *_over_http(words[2], words[4:])], "group": words[1]}
            for purpose, words in steps
        ]
        return _STATUS.validate_python({**known, "next": next_steps})

    def start(self, model: str | None = None, *, dim: int | None = None, old: str | None = None) -> None:
        """Start an upgrade to a model that the service has loaded, or to one given by fingerprint and dimension."""
        self._take("start", model=model, dim=dim, old=old)

    def backfill(
        self, model: str | None = None, *, progress: Callable[[Told], object] | None = None, **options: Any
    ) -> Backfilled:
        """Write new vectors for items that lack one.

        Args:
            model: A loaded model, if it is not the new one.
            progress: Called with "done" and "total"; if it raises `FillInterruptedError`, the service stops after its
                batch.
            **options: The order, and those of `limpet.upgrade.filling.FillOptions` that the service supports.
        """
        job = self.client.take_step("backfill", wait=False, **without_nothing({"model": model, **options}))
        while job["status"] in ("queued", "running"):
            job = self.client.job(job["id"], wait=1.0)
            try:
                if progress is not None and job["progress"]:
                    progress(job["progress"])
            except FillInterruptedError:
                self.client.cancel_job(job["id"])
        if job["problem"] is not None:
            raise error_of(job["problem"])
        return _FILLED.validate_python(job["result"])

    def index(self) -> None:
        """Build the indexes over the new vectors."""
        self._take("index")

    def swap(
        self, *, writes: ModelSide | None = None, allow_missing: int | None = None, force: str | None = None
    ) -> None:
        """Make queries search the new vectors."""
        self._take("swap", writes=writes, allow_missing=allow_missing, force=force)

    def rollback(self, *, writes: ModelSide | None = None, allow_missing: int | None = None) -> None:
        """Make queries search the old vectors again."""
        self._take("rollback", writes=writes, allow_missing=allow_missing)

    def finish(self, *, allow_missing: int | None = None) -> None:
        """Keep only the new vectors; this cannot be undone."""
        self._take("finish", allow_missing=allow_missing or None)

    def cancel(self, *, allow_missing: int | None = None) -> None:
        """Keep only the old vectors."""
        self._take("cancel", allow_missing=allow_missing)

    def verify(self) -> UpgradeVerification:
        """Check the index for problems."""
        found = self._take("verify")
        known = {name: found[name] for name in UpgradeVerification.__dataclass_fields__ if name in found}
        return _FOUND.validate_python({"problems": (), **known})

    def journal(self, last: int | None = None) -> Sequence[Mapping[str, object]]:
        """Return the events of the journal in order; at most a thousand."""
        return self.client.journal(_EVENTS if last is None else last)

    def _take(self, step: str, **options: Any) -> dict[str, Any]:
        """Take a step, and return its result."""
        result = self.client.take_step(step, **without_nothing(options))["result"] or {}
        self.notes = tuple(result.get("notes", ()))
        return dict(result)


def _over_http(step: str, options: Sequence[str]) -> list[str]:
    """Return the options of a command that a service also takes: it has its own items and models.

    >>> _over_http("swap", ["--model", "st:new", "--writes", "new"])
    ['--writes', 'new']
    """
    known = ("--model",) if step == "start" else ("--writes", "--allow-missing", "--budget")
    pairs = zip(options[::2], options[1::2], strict=False)
    return [word for pair in pairs if pair[0] in known for word in pair]
