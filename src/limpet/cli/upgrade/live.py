"""What the commands of ``limpet upgrade`` share: the URL of a live index, calling a step, and telling where it led."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from limpet.cli.console import console, print_json
from limpet.cli.gallery.options import GalleryUrl
from limpet.cli.parameters import as_typed, of_one_word
from limpet.errors import ConfigError, DataError, LimpetError, without_secrets

if TYPE_CHECKING:
    from limpet.attached.base import Attachment
    from limpet.evaluation.thresholds import Thresholds
    from limpet.galleries.upgrade import GalleryUpgrade
    from limpet.service.remote import ServedUpgrade
    from limpet.upgrade.base import UpgradeSteps

_TYPED = {"source": "model", "reports": "evidence", "adapter": "link", "mixing": "same_column", "orders": "order"}
"""Options by the parameter that they become, where the names differ."""
_INSTEAD = {
    "adapter": "leave it out: an adapter fills your own index with mapped vectors, `--model adapter:FOLDER`.",
    "orders": "leave it out: your own index is filled in the order of its keys.",
    "order": "leave it out: your own index is filled in the order of its keys.",
}
"""What to do about an option that an index of an application does not have, by parameter."""


@Parameter(
    converter=of_one_word,
    accepts_keys=False,
    n_tokens=1,
    help="A gallery: FOLDER, memory:FOLDER or postgresql://HOST/DATABASE. Or your own index: "
    "postgresql://HOST/DATABASE?table=NAME, qdrant://HOST/COLLECTION?ledger=FILE, or milvus:// and chroma:// likewise. "
    "Steps can also be those of a service, http://HOST:PORT; its key is read from LIMPET_KEY.",
)
class LiveUrl(str):
    """URL of a live index, as the user typed it; may contain a password."""

    @property
    def served(self) -> bool:
        """Whether it is the URL of a service."""
        return self.startswith(("http://", "https://"))

    @property
    def owner(self) -> str:
        """Who owns the rows, for messages."""
        from limpet.attached.opening import is_attached

        if self.served:
            return "a service"
        return "an index that an application owns" if is_attached(self) else "a gallery"

    @contextmanager
    def opened(self) -> Iterator[GalleryUpgrade | Attachment]:
        """Open the upgrade, and close it."""
        from limpet.attached.opening import open_upgrade

        with self.told(), open_upgrade(self) as it:
            yield it

    @contextmanager
    def steered(self) -> Iterator[GalleryUpgrade | Attachment | ServedUpgrade]:
        """Open the upgrade, here or behind a service, and close it."""
        with self.service() if self.served else self.opened() as it:
            yield it

    @contextmanager
    def service(self) -> Iterator[ServedUpgrade]:
        """Open the upgrade behind a service, and close it."""
        from limpet.service.client import Client
        from limpet.service.remote import ServedUpgrade

        with self._completing(), ServedUpgrade(Client(self, key=os.environ.get("LIMPET_KEY"))) as it:
            yield it

    @contextmanager
    def told(self) -> Iterator[None]:
        """Complete the commands in errors, and say that a gallery is intact.

        Raises:
            ConfigError: It is the URL of a service, or of a gallery that ends with its process.
        """
        from limpet.attached.opening import is_attached

        if self.served:
            raise ConfigError("This command does not work over HTTP.", expected="the URL of what the service serves",
                              to_do="run it there; steps of the upgrade work over HTTP.")  # fmt: skip
        with self._completing():
            if not is_attached(self):
                GalleryUrl(self).refuse_in_ram()
            yield

    @contextmanager
    def _completing(self) -> Iterator[None]:
        from limpet.attached.opening import is_attached

        try:
            yield
        except ConfigError as error:  # which comes before any work
            error.to_do = self.completed(error.to_do)
            raise
        except LimpetError as error:
            error.to_do = self.completed(error.to_do or "`limpet upgrade status` says where the upgrade stands.")
            error.intact = error.intact or "The gallery is intact." * (not self.served and not is_attached(self))
            raise

    def completed(self, text: str) -> str:
        """Return a text in which every command between backticks names the URL.

        >>> LiveUrl("my gallery").completed("`limpet upgrade index` builds it.")
        "`limpet upgrade index 'my gallery'` builds it."
        """
        place = shlex.quote(without_secrets(self))
        return re.sub(r"`limpet upgrade (\w+)", lambda found: f"`limpet upgrade {found[1]} {place}", text)

    def call(self, function: Callable[..., Any], /, *given: object, **options: object) -> Any:
        """Call a step with the options that the user gave: those that are not None, False or empty.

        Args:
            function: The step.
            given: What every such step takes.
            options: What only some do.

        Raises:
            ConfigError: An option was given that the step does not have for such an index.
        """
        from limpet.upgrade.filling import FillOptions
        from limpet.upgrade.plan import PlanOptions

        kept = {name: value for name, value in options.items() if not (value is None or value is False or value == [])}
        known = {*inspect.signature(function).parameters, *FillOptions.__annotations__, *PlanOptions.__annotations__}
        wrong = [as_typed(_TYPED.get(name, name)) for name in kept if name not in known]
        if wrong:
            raise ConfigError(
                f"{' and '.join(wrong)} with {self.owner}.",
                expected=f"a command without {'it' if len(wrong) == 1 else 'them'}",
                to_do=next((_INSTEAD[name] for name in kept if name in _INSTEAD and name not in known), self._instead),
            )
        return function(*given, **kept)

    @property
    def _instead(self) -> str:
        from limpet.attached.opening import is_attached

        if self.served:
            return "leave it out: the service knows what to embed, and with which model."
        if is_attached(self):
            return "leave it out: a gallery alone has it."
        return "leave it out: it is for your own index, such as a table, ?table=NAME in the URL."

    def tell(self, it: UpgradeSteps, **done: object) -> int:
        """Print the status and the next commands; with --json also what the command did."""
        from limpet.upgrade.status import next_lines

        with console.status("counting items"):
            found = it.status()
        for line in (*found.lines(), *next_lines(found.next, self)):
            console.print(self.completed(line))
        print_json({**found.to_dict(self), **({"done": done} if done else {})})
        return 0


def tell_thresholds(found: Thresholds, asked: Sequence[float], when: str) -> None:
    """Print what thresholds on scores become; why they become nothing, where that is so."""
    for one in asked:
        try:
            console.print(f"{when}: {found.at(one).words}")
        except DataError as error:
            console.print(f"{when}: {error.given} Expected: {error.expected}.")
