"""``limpet attach``: upgrade the vectors in your own table or collection while an application uses it.

Until `finish`, `rollback` leads back to the old vectors. `cancel` leaves everything as it was.
"""

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
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter

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


def _attached(kind: Any, tokens: Any) -> Attached:
    return Attached(tokens[0].value)


@Parameter(
    converter=_attached,
    accepts_keys=False,
    n_tokens=1,
    help="postgresql://USER@HOST/DATABASE?table=SCHEMA.TABLE&id=COLUMN&vector=COLUMN&text=COLUMN; "
    "qdrant://HOST/COLLECTION?vector=NAME&text=NAME&ledger=FILE; milvus://HOST/COLLECTION?text=NAME&ledger=FILE; "
    "chroma://HOST/COLLECTION?text=document&ledger=FILE.",
)
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
        return re.sub(r"`limpet upgrade (\w+)", lambda found: f"`limpet attach {found[1]} {place}", text)

    def command(self, subcommand: str, *words: object) -> str:
        """Return what to type, without a password."""
        return shlex.join(["limpet", "attach", subcommand, without_secrets(self), *map(str, words)])


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
                    expected="--model SCHEME:PLACE; --model FILE of its vectors; or --new-name NAME --dim D for one "
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
    source: NewVectors = NewVectors(),
    old_name: str | None = None,
    new_name: str | None = None,
    dim: int | None = None,
    aside: bool = False,
    same_column: bool = False,
    evidence: Path | None = None,
    fire_triggers: Annotated[bool, RARE] = False,
    index: Annotated[str, RARE] = "whole",
    dry_run: bool = False,
) -> int:
    """Start an upgrade: make room for new vectors, and watch what the application writes.

    Queries find what they found before. One transaction adds two columns to the table (three with --same-column), or
    with --aside a table beside it, triggers, and the schema limpet_attached, which records every step. The application
    needs no rights there. Beside a collection, a second one or a second vector is made.

    Args:
        source: What will make the new vectors. Only its identity is recorded.
        old_name: Name or fingerprint of the model that made the existing vectors.
        new_name: Name of the new model. Needs --dim where no --model is given.
        dim: Dimension of the new vectors.
        aside: Keep new vectors in a table of their own, for tables that may not be altered. The application then
            changes its queries, and no swap is possible.
        same_column: Write new vectors into the application's own column, whose index goes on serving. Only for a model
            that is compatible with the old one: needs --evidence.
        evidence: Results of `limpet evaluate --mixing` for the two models: a results.json, or its folder.
        fire_triggers: Let the backfill fire the application's own triggers on updates.
        index: What the new indexes hold: whole vectors (up to 4,000 numbers), bits (the sign of every number), first:N
            (the first N numbers), or none to build no index.
        dry_run: Print the SQL of every step and the rights it takes (for a collection: what every step does), and
            change nothing.

    Examples:
        limpet attach start "postgresql://shop@db/shop?table=shop.items&text=title" --old-name v1 --model st:MODEL
            --dry-run
    """
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
    """Show the phase of the upgrade, queries for the application, and the commands to type next.

    Examples:
        limpet attach status "postgresql://shop@db/shop?table=shop.items"
    """
    with url.opened() as it:
        return _tell(it, url)


def backfill(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    limits: FillLimits = FillLimits(),
    of: Side = "new",
    batch_size: Annotated[int, RARE] = 64,
    made: Annotated[str | None, RARE] = None,
    watch: float | None = None,
) -> int:
    """Give rows that lack a new vector one, in small transactions. What the application writes meanwhile wins.

    Repeat the command to resume. Several may run at once. Rows whose text is blank get no vector, and are counted as
    without text. The exit code is 1 if the source lacks other rows.

    Args:
        of: Model whose vectors are filled in: new, or old before a rollback.
        batch_size: Texts that the model takes at a time.
        made: When stored vectors were made, such as 2026-11-23T18:00+00:00. Rows that the application changed later
            are skipped. Default: when the upgrade was started.
        watch: Look again every this many seconds for rows that the application wrote, until Ctrl-C.

    Examples:
        limpet attach backfill "postgresql://shop@db/shop?table=shop.items" --model st:MODEL
    """
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
    """Build the indexes over new vectors that exist over the old ones, while the application reads and writes.

    Examples:
        limpet attach index "postgresql://shop@db/shop?table=shop.items"
    """
    with url.opened() as it:
        with console.status("building indexes"):
            it.index()
        return _tell(it, url)


def swap(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    writes: Side | None = None,
    allow_missing: int = 0,
) -> int:
    """Let the application's queries find the new vectors: one transaction renames both columns.

    With --same-column the application asks with the new model from now on. That needs no lock, and is possible before,
    during and after the backfill. Of a collection, the pointer in the ledger moves.

    Args:
        source: What makes vectors for rows that were written a moment ago. Without it, the swap is refused if there are
            such rows.
        writes: Model with which the application writes from now on. Default: as before.
        allow_missing: Maximum number of rows without a new vector. They are not found until they have one.

    Examples:
        limpet attach swap "postgresql://shop@db/shop?table=shop.items" --model st:MODEL
    """
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
    source: NewVectors = NewVectors(),
    writes: Side | None = None,
    allow_missing: int = 0,
) -> int:
    """Let the application's queries find the old vectors again, at once.

    With --same-column the application asks with the old model again, and old vectors are put back in small
    transactions. Repeat the command to resume.

    Args:
        source: What makes old vectors for rows that were written since the swap. Without it, the rollback is refused if
            there are such rows.
        writes: Model with which the application writes from now on. Default: as before.
        allow_missing: Maximum number of rows without an old vector. They are not found until they have one.

    Examples:
        limpet attach rollback "postgresql://shop@db/shop?table=shop.items"
    """
    return _turn(url, "old", source, writes, allow_missing)


def writes(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    of: str,
    allow_missing: int = 0,
) -> int:
    """Declare with which model the application writes. A session may say otherwise by limpet.writes_with.

    A collection has no triggers: a pass first brings over what the application wrote until now. Give the model for it
    if items were written since the last pass.

    Args:
        source: What makes vectors of that model, for items of a collection that were written since the last pass.
        of: Model that makes the application's vectors: old, new, or its name.
        allow_missing: Maximum number of items of a collection without a vector of that model.

    Examples:
        limpet attach writes "postgresql://shop@db/shop?table=shop.items" --of new
        limpet attach writes "qdrant://db:6333/items?ledger=upgrade.db" --of new --model st:MODEL
    """
    source.refuse_stored()
    with url.opened() as it:
        opened = source.opened(it, it.state.side_of(of))
        with console.status("bringing over what was written"):
            it.declare_writes(of, opened, allow_missing=allow_missing)
        return _tell(it, url)


def verify(url: Attached, *, source: NewVectors = NewVectors(), watch: float = 0.0) -> int:
    """Look for wrong rows, triggers and indexes, and for queries that should change. The exit code is 1 if so.

    Rows that were written without our triggers are found by digests of their texts and vectors, and count as lacking
    from then on. Given the model that serves, up to 256 rows that the application wrote since the last swap or rollback
    are embedded again. This finds a writer that still uses the other model.

    Args:
        source: The model that serves.
        watch: Seconds to watch pg_stat_statements: only queries sent meanwhile are named. Default: all that it has.

    Examples:
        limpet attach verify "postgresql://shop@db/shop?table=shop.items" --watch 60
    """
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


def finish(url: Attached, *, allow_missing: int = 0) -> int:
    """Keep the new vectors alone, and remove everything else that was added. There is no way back.

    Every row is counted before. The second collection, or vector, of an engine stays: it is its owner's to remove.

    Args:
        allow_missing: Maximum number of rows that stay without a vector.

    Examples:
        limpet attach finish "postgresql://shop@db/shop?table=shop.items"
    """
    return _end(url, lambda it: it.finish(allow_missing=allow_missing))


def cancel(url: Attached, *, allow_missing: int = 0, force: bool = False) -> int:
    """Keep the old vectors alone, and remove everything that was added: the table is as it was.

    Args:
        allow_missing: Maximum number of rows that stay without a vector.
        force: Remove what is left of the upgrade of a table that was changed, whatever became of it.

    Examples:
        limpet attach cancel "postgresql://shop@db/shop?table=shop.items"
    """
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


def log(url: Attached) -> int:
    """List the steps that were taken, the last one last.

    Examples:
        limpet attach log "postgresql://shop@db/shop?table=shop.items"
    """
    with url.opened() as it:
        events = [dict(event) for event in it.journal()]
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
        console.print(f"Next, to {step.purpose}: {url.command(*step.words)}")
    print_json({**(document or {}), **asdict(found), "notes": it.notes, "queries": dict(queries),
                   "next": [url.command(*step.words) for step in found.next]})  # fmt: skip
    return 0
