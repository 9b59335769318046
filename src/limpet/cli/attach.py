"""``limpet upgrade`` of a table or collection that an application owns."""

from __future__ import annotations

import json as json_text
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from limpet.cli.console import console, long_texts, print_json, print_table, rate_progress
from limpet.cli.gallery.common import DECLARED, name_of, open_vectors
from limpet.cli.gallery.sources import stored_vectors
from limpet.cli.models import Model, Opening
from limpet.cli.options import FillLimits
from limpet.cli.parameters import RARE, as_typed
from limpet.cli.places import Place
from limpet.errors import ConfigError, LimpetError, UpgradeStateError, refuse, shown, without_secrets
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.attached.base import Attachment
    from limpet.attached.postgres.start import TablePlan
    from limpet.evaluation.results import Evaluation
    from limpet.upgrade.model import UpgradeModel
    from limpet.upgrade.vector_sources import VectorSource

Side = Literal["old", "new"]


class Attached(str):
    """The URL of a table or collection, as a person gave it; may hold a password.

    The primary key and the only column of vectors need not be named. ``text`` is what vectors are made of, several
    columns with commas between. After the start the table alone suffices. Passwords belong into PGPASSWORD or
    ~/.pgpass, keys into QDRANT_API_KEY, MILVUS_TOKEN and CHROMA_TOKEN.
    """

    @contextmanager
    def opened(self) -> Iterator[Attachment]:
        """Open the upgrade, and close it."""
        from limpet.attached.opening import open_attachment

        with self.told(), open_attachment(self) as it:
            yield it

    @contextmanager
    def told(self) -> Iterator[None]:
        """Let errors name commands as they are to be typed."""
        try:
            yield
        except LimpetError as error:
            LimpetError.__init__(error, error.given, error.expected, self.completed(error.to_do))
            raise

    def completed(self, text: str) -> str:
        """Return a text whose commands between backticks name the URL."""
        place = shlex.quote(without_secrets(self))
        return re.sub(r"`limpet upgrade (\w+)", lambda found: f"`limpet upgrade {found[1]} {place}", text)


@dataclass(frozen=True)
class NewVectors(Opening):
    """Where vectors come from: a text model and the table's texts, an adapter and its old vectors, or stored ones.

    Args:
        model: What makes the vectors: st:FOLDER_OR_NAME, package:NAME or openai:MODEL@URL, which embed the
            table's texts; release:FOLDER, a head or a fine-tuned model; adapter:FOLDER; or vectors that are there
            already: a file, a folder of `limpet embed`, or a URL.
        over: What a head or an adapter reads: a text model, of a head the one on record when left out; or stored
            vectors, of an adapter those of the table when left out.
    """

    model: Model | None = None
    over: Annotated[Model | None, RARE] = None

    @property
    def words(self) -> str:
        """What to type to name the same again."""
        one = {"--model": self.model, "--over": self.over}
        one |= {as_typed(f"model_options.{name}"): value for name, value in self.model_options.items()}
        return shlex.join(word for option, value in one.items() if value is not None for word in (option, str(value)))

    @property
    def stored(self) -> Place | None:
        """Where vectors are that were made before, if they are used."""
        named = self.model if self.over is None else self.over
        return None if named is None else named.vectors

    def opened(self, it: Attachment, of: Side, batch_size: int = 64) -> VectorSource | None:
        """Return the source that these describe; None where they name none."""
        from limpet.attached.recognition import recognised
        from limpet.training.text_models import open_map
        from limpet.upgrade.vector_sources import through, vectors_of_texts

        model, state = self.model, it.state
        if model is None:
            return None
        source: VectorSource
        if self.stored is not None:
            link = None if self.over is None else open_map(model)
            made_by = state.fingerprint(of) if link is None else link.source
            source = stored_vectors(self.stored, made_by if self.stored.nameless else None)
            if link is not None:
                return through(source, link)
        elif model.scheme == "adapter" and self.over is None:
            return through(it.stored, open_map(model))
        else:
            opened = self.text_model(model, self.over, known=[state.old, state.new])
            source = vectors_of_texts(opened, it.texts, batch_size=batch_size)
        if of == "old" and source.fingerprint != state.old and state.old.startswith(DECLARED):
            return recognised(source, it)  # people named a model, and give it now
        return source

    def refuse_stored(self) -> None:
        """Refuse stored vectors where rows are to be filled that were written a moment ago."""
        refuse(self.stored is not None, f"{self.stored}, vectors that were made before.",
               "what makes vectors now; or `backfill` first")  # fmt: skip

    def identity(self, name: str | None, dim: int | None) -> tuple[UpgradeModel, str | None]:
        """Return the model whose vectors these are, and the fingerprint of the old one where an adapter says it.

        Args:
            name: What a person calls it.
            dim: Dimension of its vectors, where only a person says it.
        """
        from limpet.training.text_models import open_map
        from limpet.upgrade.model import UpgradeModel

        model = self.model
        if model is None:
            if name is None or dim is None:
                raise ConfigError(
                    "Nothing says which model takes over.",
                    expected="--model SCHEME:PLACE; --model FILE of its vectors; or --name NAME --dim D for one "
                    "that only you know",
                )
            return UpgradeModel(fingerprint(name), dim, name), None
        if model.vectors is not None:
            declared = None if name is None else fingerprint(name)
            made = open_vectors(model.vectors, fingerprint=declared)
            return UpgradeModel(made.fingerprint, made.space.dim, name or name_of(model.vectors), self.words), None
        if model.scheme == "adapter":
            link = open_map(model)
            return UpgradeModel(link.fingerprint, link.space.dim, name or model.short, self.words), link.source
        opened = self.text_model(model, None if self.stored is not None else self.over)
        called = name or (model.short if model.scheme == "release" else self.words.removeprefix("--model "))
        return UpgradeModel(opened.fingerprint, opened.space.dim, called, self.words), None


def fingerprint(name: str) -> str:
    """Return the fingerprint that a person means.

    >>> fingerprint("v1"), fingerprint("text:1234")
    ('declared:v1', 'text:1234')
    """
    return name if ":" in name else f"{DECLARED}{name}"


def start(
    url: Attached,
    *,
    source: NewVectors,
    old_name: str | None,
    new_name: str | None,
    dim: int | None,
    aside: bool,
    same_column: bool,
    evidence: Path | None,
    fire_triggers: bool,
    index: str,
    dry_run: bool,
) -> int:
    """Start an upgrade of a table or collection."""
    from limpet.attached.opening import of_collections
    from limpet.upgrade.model import UpgradeModel

    refuse(dim is not None and dim < 1, f"--dim {dim}.", "at least 1")
    refuse("" in (old_name, new_name), "A model without a name.", "--old-name NAME")
    new, mapped = source.identity(new_name, dim)
    if old_name is None and mapped is None:
        raise ConfigError("Nothing says which model made the vectors that are there.", expected="--old-name NAME")
    old = UpgradeModel(mapped or fingerprint(str(old_name)), 0, old_name or "")
    refuse(evidence is not None and not same_column, "--evidence without --same-column.", "both, or neither")
    mixing = _mixing_of(evidence) if same_column else None
    with url.told():
        if of_collections(url):
            refuse(aside or same_column or fire_triggers or index != "whole",
                   "--aside, --same-column, --fire-triggers or --index of a collection.",
                   "none of them: what is added is a collection, or a vector, of its own")  # fmt: skip
            from limpet.attached.collections import opening

            if dry_run:
                would = opening.plan(url, old=old, new=new)
                for refusal in would.refusals:
                    console.print(f"Refused: {refusal}")
                for step, words in would.steps.items():
                    console.print(f"{step}: {'; '.join(words)}.")
                print_json(asdict(would))
                return int(bool(would.refusals))
            with opening.start(url, old=old, new=new) as collection:
                return _tell(collection, url)
        from limpet.attached.postgres.attachment import start as start_table
        from limpet.attached.postgres.start import plan

        def planned() -> TablePlan:
            return plan(url, old=old, new=new, aside=aside, mixing=mixing, fire_triggers=fire_triggers, index=index)

        if dry_run:
            found = planned()
            _tell_plan(found, url)
            print_json({"rights": [asdict(one) for one in found.rights], "refusals": found.refusals,
                           "notes": found.notes, "steps": found.steps})  # fmt: skip
            return int(bool(found.lacking or found.refusals))
        with suppress(UpgradeStateError):  # started already
            for note in planned().notes:
                console.print(f"Note: {url.completed(note)}")
        with console.status("waiting for a lock"):
            it = start_table(url, old=old, new=new, aside=aside, mixing=mixing, fire_triggers=fire_triggers,
                             index=index)  # fmt: skip
        with it:
            return _tell(it, url)


def _mixing_of(evidence: Path | None) -> Evaluation:
    """Return the evaluation that allows to mix vectors of two models."""
    from limpet.evaluation.results import EvaluationResults

    if evidence is None:
        raise ConfigError(
            "--same-column without evidence.",
            expected="--evidence FILE, which says that vectors of the two models may be mixed",
            to_do="`limpet evaluate --old … --new … --mixing 0.01 --out FOLDER` measures it.",
        )
    return EvaluationResults.load(evidence).only(f"'{evidence}'")


def _tell_plan(found: TablePlan, url: Attached) -> None:
    for note in found.notes:
        console.print(f"Note: {url.completed(note)}")
    for refusal in found.refusals:
        console.print(f"Refused: {refusal}.")
    print_table("Rights", ["right", "held"], [[one.statement, "yes" if one.held else "no"] for one in found.rights])
    for step, statements in found.steps.items():
        console.print(f"\n-- {step}")
        for statement in statements:
            console.print(f"{statement};")


def status(url: Attached) -> int:
    """Show where the upgrade stands."""
    with url.opened() as it:
        return _tell(it, url)


def backfill(
    url: Attached,
    *,
    source: NewVectors,
    limits: FillLimits,
    of: Side,
    batch_size: int,
    made: str | None,
    watch: float | None,
) -> int:
    """Give rows new vectors."""
    refuse(watch is not None and watch <= 0, f"--watch {watch}.", "more than 0 seconds")
    refuse(made is not None and source.stored is None, "--made without stored vectors.", "both, or neither")
    with url.opened() as it:
        opened = source.opened(it, of, batch_size)
        if opened is None:
            raise ConfigError(
                "Nothing to embed with was given.",
                expected="--model SCHEME:PLACE; or --model FILE, vectors that are there",
            )
        moment = None if source.stored is None else it.started if made is None else _moment(made)
        while True:
            with rate_progress(f"vectors of the {of} model", None, unit="rows") as on_step:
                done = it.backfill(opened, of=of, made=moment, **limits.options(on_step))
            if done.embedded or watch is None:
                speed = f", {done.embedded / done.seconds:,.0f} rows/s" if done.embedded and done.seconds else ""
                changed = done.embedded - done.written
                again = f"; {changed:,} more changed or were deleted meanwhile" if changed else ""
                console.print(f"{done.written:,} rows filled in {duration(done.seconds)}{speed}{again}; "
                              f"{done.lacking:,} lack a vector of the {of} model.")  # fmt: skip
            if watch is None or done.stopped != "done":
                break
            time.sleep(watch)
        source.tell()
        if done.missing:
            console.print(f"{done.missing:,} rows are not in the source: {', '.join(done.missing_ids)}.")
        if done.without_text:
            console.print(f"{done.without_text:,} rows are without text and get no vector: "
                          f"{shown(done.without_text_ids, done.without_text)}.")  # fmt: skip
        _tell(it, url, {**asdict(done), "long_texts": [one.to_dict() for one in long_texts()]})
        return int(bool(done.missing))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--made {text}.", expected="a moment, such as 2026-11-23T18:00+00:00") from None
    return moment.astimezone()


def index(url: Attached) -> int:
    """Build the indexes over new vectors."""
    with url.opened() as it:
        with console.status("building indexes"):
            it.index()
        return _tell(it, url)


def swap(
    url: Attached,
    *,
    source: NewVectors,
    writes: Side | None,
    allow_missing: int,
) -> int:
    """Let the application's queries find the new vectors."""
    return _turn(url, "new", source, writes, allow_missing)


def _turn(url: Attached, side: Side, source: NewVectors, writes: Side | None, allow_missing: int) -> int:
    source.refuse_stored()
    with url.opened() as it:
        opened = source.opened(it, side)
        with console.status("waiting for a lock"):
            (it.swap if side == "new" else it.rollback)(opened, writes=writes, allow_missing=allow_missing)
        return _tell(it, url)


def rollback(
    url: Attached,
    *,
    source: NewVectors,
    writes: Side | None,
    allow_missing: int,
) -> int:
    """Let them find the old vectors again."""
    return _turn(url, "old", source, writes, allow_missing)


def writes(
    url: Attached,
    *,
    source: NewVectors,
    of: str,
    allow_missing: int,
) -> int:
    """Declare with which model the application writes."""
    source.refuse_stored()
    with url.opened() as it:
        opened = source.opened(it, it.state.side_of(of))
        with console.status("bringing over what was written"):
            it.declare_writes(of, opened, allow_missing=allow_missing)
        return _tell(it, url)


def verify(url: Attached, *, source: NewVectors, watch: float) -> int:
    """Look for wrong rows, and for queries that should change; exit code 1 if there are any."""
    refuse(watch < 0, f"--watch {watch}.", "at least 0 seconds")
    source.refuse_stored()
    with url.opened() as it, console.status("looking at rows and queries"):
        found = it.verify(watch=watch, source=source.opened(it, it.state.serving))
        source.tell()
    for problem in found.problems:
        console.print(f"Problem: {url.completed(problem)}.")
    if found.queries:
        print_table("Queries that should change", ["calls", "why", "query"],
                    [[f"{one.calls:,}", one.why, one.query] for one in found.queries])  # fmt: skip
    if found.unwatched:
        console.print(f"Queries were not watched. {found.unwatched}")
    elif found.passed:
        console.print("Nothing was found.")
    print_json({**asdict(found), "passed": found.passed})
    return int(not found.passed)


def finish(url: Attached, *, allow_missing: int) -> int:
    """Keep the new vectors alone."""
    return _end(url, lambda it: it.finish(allow_missing=allow_missing))


def cancel(url: Attached, *, allow_missing: int, force: bool) -> int:
    """Keep the old vectors alone."""
    return _end(url, lambda it: it.cancel(allow_missing=allow_missing, force=force))


def _end(url: Attached, step: Callable[[Attachment], None]) -> int:
    with url.opened() as it:
        stays = it.state.fingerprint(it.state.serving)
        with console.status("removing what was added"):
            step(it)
    console.print(f"Ended; the vectors of {stays} stay.")
    for note in it.notes:
        console.print(f"Note: {note}")
    print_json({"stays": stays, "notes": it.notes})
    return 0


def log(url: Attached, *, last: int) -> int:
    """List the steps that were taken."""
    with url.opened() as it:
        events = [dict(event) for event in it.journal()][-last:]
    rows = [[str(one.pop("at")), str(one.pop("kind")), json_text.dumps(one)] for one in map(dict, events)]
    print_table("Log", ["at", "step", "what"], rows)
    print_json({"log": events})
    return 0


def _tell(it: Attachment, url: Attached, document: Mapping[str, object] | None = None) -> int:
    """Say where it stands and what to type next, and for machines what was done."""
    with console.status("counting rows"):
        found = it.status()
    called = {side: found.model(side).called for side in get_args(Side)}
    model = called[found.serving]
    serving = f"Queries are to be of {model}" if found.holding else f"{model} serves"
    console.print(
        f"{found.place}: {found.phase}. {serving}, and "
        f"the application writes with {called[found.writes]} unless a session says otherwise."
    )
    for note in it.notes:
        console.print(f"Note: {url.completed(note)}")
    if found.holding:
        held = " and ".join(f"{count:,} of {called[side]}" for side, count in found.holding.items())
        console.print(f"Vectors of both models share the column: {held}.")
    lacking = ", ".join(
        f"{count:,} lack one of {called[side]}{f' ({blank:,} of these are without text)' if blank else ''}"
        for side, count in found.lacking.items()
        for blank in [found.without_text.get(side, 0)]
    )
    console.print(f"{found.items:,} rows with vectors: {lacking}. {found.empty:,} rows have none of the application.")
    if found.unknown:
        console.print(
            f"{found.unknown:,} rows were written without our triggers: vectors of both models are to be made."
        )
    for one in found.indexes:
        console.print(f"Index {one.name}: {'built' if one.built else 'not built'}.")
    queries = it.client_queries()
    for purpose, query in queries:
        console.print(f"For the application, {purpose}:\n  {query}")
    for step in found.next:
        console.print(f"Next, to {step.purpose}: {step.command(url)}")
    print_json({**(document or {}), **asdict(found), "notes": it.notes, "queries": dict(queries),
                   "next": [step.command(url) for step in found.next]})  # fmt: skip
    return 0
