"""Progress of long steps: the events, and the bars by Rich or tqdm that show them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypedDict, TypeVar

from limpet.errors import ConfigError, printable
from limpet.support.extras import needing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task

_Event = TypeVar("_Event", bound=Mapping[str, object])
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Told(TypedDict, total=False):
    """Progress of a long step; each step reports some of these values.

    Args:
        state: The same in a word or two, where several things are done by turns.
        done: Completed amount, in items or mebibytes.
        total: Total amount; None if unknown.
        skipped: Number of rows whose item existed before.
        embedded: Number of items that a source embedded.
        missing: Number of items that the source does not have.
        seconds: Elapsed seconds.
        waiting: Seconds until the next request to the store.
    """

    step: str
    state: str
    done: float
    total: int | None
    read: int
    written: int
    skipped: int
    embedded: int
    missing: int
    seconds: float
    waiting: float


BarName = Literal["rich", "tqdm"]
"""Library that draws a bar."""

Progress = BarName | Callable[[_Event], object] | None
"""Values of the keyword ``progress``: the name of a bar, a callback for every event, or None."""


def listener(progress: Progress[_Event]) -> Callable[[_Event], object]:
    """Return the callback for events; `showing` and `shown` replace the name of a bar by the bar."""
    return progress if callable(progress) else _ignore


def _ignore(event: Mapping[str, object]) -> None:
    """Show nothing."""


def showing(
    name: str, *, unit: str = "items"
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Return a decorator for functions with a keyword ``progress``: the bar of that name is shown while they run.

    Args:
        name: Label in front of the bar.
        unit: Unit of "done".

    Raises:
        ConfigError: No bar has this name; the function was not called.
        MissingExtraError: Its library is not installed; the function was not called.

    >>> @showing("count")
    ... def count(most: int, *, progress: Progress[Told] = None) -> None:
    ...     for number in range(most):
    ...         listener(progress)({"done": number + 1, "total": most})
    >>> count(2, progress=print)
    {'done': 1, 'total': 2}
    {'done': 2, 'total': 2}
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def called(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
            progress: Any = options.get("progress")
            if progress is None or callable(progress):
                return function(*args, **options)
            with shown(progress, name, unit=unit) as options["progress"]:
                return function(*args, **options)

        return called

    return decorate


@contextmanager
def shown(progress: Progress[_Event], name: str, *, unit: str = "items") -> Iterator[Callable[[_Event], object] | None]:
    """Open the bar that ``progress`` names, and yield its callback, or ``progress`` itself if it names none.

    Args:
        progress: See `Progress`.
        name: Label in front of the bar.
        unit: Unit of "done".

    Raises:
        ConfigError: No bar has this name.
        MissingExtraError: Its library is not installed.
    """
    if progress is None or callable(progress):
        yield progress
        return
    if progress not in BARS:
        raise ConfigError(
            f"progress={progress!r} is unknown.",
            expected=f"{', '.join(map(repr, BARS))}, a function that takes events, or None",
        )
    with needing(f"progress={progress!r}"):
        bar = BARS[progress](name, unit)
    with bar:
        yield bar


class Bar(ABC):
    """One bar on standard error, called with every event; a context manager.

    A restarted run, such as the training of the next of several models, restarts the bar.
    """

    def __init__(self) -> None:
        self._since, self._before, self._items, self._shown = time.monotonic(), 0.0, 0.0, float("-inf")

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show an event: one of `Told`, or a `limpet.training.events.TrainingStep`."""
        now, done, total = time.monotonic(), event.get("done", 0), event.get("total")
        training = "terms" in event
        if done < self._before:
            self._since, self._items = now, 0.0
            self._shown = now if training else self._shown  # a rate needs some time
            self._begin_again()
        self._before = done
        self._items = self._items + event["images"] if training else done
        if training and now - self._shown < _EVERY and done != total:
            return  # numbers of training are read from the device
        self._shown = now
        self._show(done, total, _words(event), self._items / max(now - self._since, 1e-3))

    @abstractmethod
    def _show(self, done: float, total: float | None, words: str, rate: float) -> None:
        """Draw the bar; ``rate`` is in items per second."""

    @abstractmethod
    def _begin_again(self) -> None:
        """Reset the bar and its clock."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


_EVERY = 0.25  # seconds between two looks at the numbers of training


def _words(event: Mapping[str, Any]) -> str:
    """Return further words of a bar about an event."""
    if "terms" in event:
        terms = (f"{name} {float(value):.3f}" for name, value in event["terms"].items())
        return "  ".join([f"epoch {event['epoch'] + 1}/{event['epochs']}", *terms])
    if event.get("waiting"):
        return f"out of reach, trying again in {event['waiting']:g} s"
    return printable(str(event.get("state") or event.get("step") or ""))


class RichBar(Bar):
    """A bar by Rich.

    Args:
        total: Total number of items, if known in advance.
        console: Console to draw on; standard error when left out.
        transient: Whether the bar disappears at the end.
    """

    def __init__(
        self,
        name: str,
        unit: str = "items",
        *,
        total: float | None = None,
        console: Console | None = None,
        transient: bool = False,
        disable: bool = False,
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__()
        self._unit = unit
        self._bars = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            disable=disable,
            transient=transient,
        )
        self._name = self._bars.add_task(name, total=total, state="")

    @property
    def task(self) -> Task:
        """The task object of Rich."""
        return self._bars.tasks[0]

    def _show(self, done: float, total: float | None, words: str, rate: float) -> None:
        state = "  ".join(filter(None, (words, f"{rate:,.0f} {self._unit}/s" * (rate >= 1))))
        self._bars.update(self._name, total=self.task.total if total is None else total, completed=done, state=state)

    def _begin_again(self) -> None:
        self._bars.reset(self._name)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()


class TqdmBar(Bar):
    """A bar by tqdm, drawn as a widget in notebooks."""

    def __init__(self, name: str, unit: str = "items") -> None:
        from tqdm.auto import tqdm

        super().__init__()
        self._open: Callable[[], Any] = partial(tqdm, desc=name, unit=f" {unit}")

    def _show(self, done: float, total: float | None, words: str, rate: float) -> None:
        self._bar.total = total
        self._bar.set_postfix_str(words, refresh=False)
        self._bar.update(done - self._bar.n)

    def _begin_again(self) -> None:
        self._bar.reset()

    def __enter__(self) -> Self:
        self._bar = self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.refresh()
        self._bar.close()


BARS: Mapping[str, Callable[[str, str], Bar]] = {"rich": RichBar, "tqdm": TqdmBar}
"""The bars by name."""
