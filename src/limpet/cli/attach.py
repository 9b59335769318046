"""``limpet attach``: carry out an upgrade on a table of PostgreSQL, while the application goes on using it.

Every step has a way back until `detach`, which leaves the table as it was, or with the new vectors in place of the old.
"""

from __future__ import annotations

import json as json_text
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
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
from limpet.cli.parameters import RARE, as_typed
from limpet.cli.places import Place
from limpet.errors import ConfigError, LimpetError, UpgradeStateError, refuse, shown, without_secrets
from limpet.models.names import ModelName
from limpet.support.wording import duration

if TYPE_CHECKING:
    from limpet.attached.base import Attachment, AttachmentStatus
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
        """Open the attachment, and close it."""
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
        return re.sub(r"`limpet attach (\w+)", lambda found: f"`limpet attach {found[1]} {place}", text)

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
    """Attach to a table: room for new vectors, and triggers that mark what the application writes.

    Nothing that is served changes. One transaction adds two columns to the table (three with --same-column), or with
    --aside a table beside it, and a schema, limpet_attached, in which is written down what was done. The application
    needs no rights for it.

    Args:
        source: What will make the new vectors, of which only the identity is taken here.
        old_name: What you call the model of the vectors that are there, or its fingerprint.
        new_name: What you call the new model, with --dim where nothing else says it.
        dim: Dimension of its vectors.
        aside: Keep new vectors in a table of their own, where the table may not be altered. The application then
            changes its queries; nothing can be swapped.
        same_column: Write new vectors into the application's own column, in any order, where its index serves on; for a
            model that is compatible with the old one, which --evidence says.
        evidence: What `limpet evaluate --mixing` wrote of the two models: a results.json, or its folder.
        fire_triggers: Let filling fire the application's own triggers on updates, instead of keeping them silent.
        index: What indexes over new vectors hold, where the old ones are indexed: whole vectors of up to 4,000 numbers;
            bits, the sign of every number; first:N, the first N numbers; none builds no index.
        dry_run: Print the SQL of every step and the rights that they take, and change nothing; of a collection print in
            words what every step would do.

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
            with opening.attach(url, old=old, new=new) as collection:
                return _tell(collection, url, {})
        from limpet.attached.postgres.attachment import attach
        from limpet.attached.postgres.start import plan

        def planned() -> TablePlan:
            return plan(url, old=old, new=new, aside=aside, mixing=mixing, fire_triggers=fire_triggers, index=index)

        if dry_run:
            found = planned()
            _tell_plan(found)
            print_json({"rights": [asdict(one) for one in found.rights], "refusals": found.refusals,
                           "notes": found.notes, "steps": found.steps})  # fmt: skip
            return int(bool(found.lacking or found.refusals))
        with suppress(UpgradeStateError):  # attached already
            for note in planned().notes:
                console.print(f"Note: {note}")
        with console.status("waiting for a moment to attach"):
            it = attach(url, old=old, new=new, aside=aside, mixing=mixing, fire_triggers=fire_triggers,
                        index=index)  # fmt: skip
        with it:
            return _tell(it, url, {})


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


def _tell_plan(found: TablePlan) -> None:
    for note in found.notes:
        console.print(f"Note: {note}")
    for refusal in found.refusals:
        console.print(f"Refused: {refusal}.")
    print_table("Rights", ["right", "held"], [[one.statement, "yes" if one.held else "no"] for one in found.rights])
    for step, statements in found.steps.items():
        console.print(f"\n-- {step}")
        for statement in statements:
            console.print(f"{statement};")


def status(url: Attached) -> int:
    """Show where the upgrade stands, what the application may ask, and what to type next.

    Examples:
        limpet attach status "postgresql://shop@db/shop?table=shop.items"
    """
    with url.opened() as it:
        return _tell(it, url, {})


def backfill(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    of: Side = "new",
    batch: Annotated[int | None, RARE] = None,
    batch_size: Annotated[int, RARE] = 64,
    budget: int | None = None,
    rate: Annotated[float | None, RARE] = None,
    share: Annotated[float | None, RARE] = None,
    seconds: Annotated[float | None, RARE] = None,
    made: Annotated[str | None, RARE] = None,
    watch: float | None = None,
) -> int:
    """Give rows that lack one a new vector, in small transactions; what the application writes meanwhile wins.

    Stopped anywhere, the same command goes on, and several may run at once. Rows whose text is blank are counted as
    without text, and get no vector. The exit code is 1 if the source does not have some of the other rows.

    Args:
        of: Whose vectors: new; or old, so that nothing is missing after a rollback.
        batch: Rows embedded and written at a time. When left out, 512 of a table; of a collection as many as are
            measured to be fast.
        batch_size: Texts that the model takes at a time.
        budget: Embed at most so many now.
        rate: Embed at most so many rows a second.
        share: Spend at most such a share of the time on writing, such as 0.1, and rest after every transaction: the
            busier the database is, the longer.
        seconds: Begin no further batch after so many seconds.
        made: When stored vectors were made, such as 2026-11-23T18:00+00:00: rows that the application changed
            later are left. The moment of the start when left out.
        watch: Look again every so many seconds for rows that the application wrote, until Ctrl-C.

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
                done = it.backfill(opened, of=of, made=moment, batch=batch, budget=budget, rate=rate, share=share,
                                   seconds=seconds, on_step=on_step)  # fmt: skip
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


def _refuse_negative(allow_missing: int) -> None:
    refuse(allow_missing < 0, f"--allow-missing {allow_missing}.", "at least 0 rows")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--made {text}.", expected="a moment, such as 2026-11-23T18:00+00:00") from None
    return moment.astimezone()


def index(url: Attached) -> int:
    """Build the indexes over new vectors that there are over the old ones, while the application reads and writes.

    Examples:
        limpet attach index "postgresql://shop@db/shop?table=shop.items"
    """
    with url.opened() as it:
        with console.status("building indexes"):
            it.index()
        return _tell(it, url, {})


def swap(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    writes: Side | None = None,
    allow_missing: int = 0,
) -> int:
    """Let the application's queries find new vectors: two columns change their names in one transaction.

    With --same-column it is from now on to ask with the new model; that is possible before, while and after rows are
    filled, and locks nothing.

    Args:
        source: Where vectors of rows come from that were written a moment ago; refused if there are any, when left out.
        writes: With which model the application writes from then on; as before when left out.
        allow_missing: So many rows may lack a vector, and are not found until they have one.

    Examples:
        limpet attach swap "postgresql://shop@db/shop?table=shop.items" --model st:MODEL
    """
    source.refuse_stored()
    _refuse_negative(allow_missing)
    with url.opened() as it:
        opened = source.opened(it, "new")
        with console.status("waiting for a moment to swap"):
            it.swap(opened, writes=writes, allow_missing=allow_missing)
        return _tell(it, url, {})


def rollback(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    writes: Side | None = None,
    allow_missing: int = 0,
) -> int:
    """Let the application's queries find old vectors again, at once.

    With --same-column it is to ask with the old model again at once, and old vectors are put back in small
    transactions; the same command goes on where it was stopped.

    Args:
        source: Where old vectors of rows come from that were written since; refused if there are any, when left out.
        writes: With which model the application writes from then on; as before when left out.
        allow_missing: So many rows may lack an old vector, and are not found until they have one.

    Examples:
        limpet attach rollback "postgresql://shop@db/shop?table=shop.items"
    """
    source.refuse_stored()
    _refuse_negative(allow_missing)
    with url.opened() as it:
        opened = source.opened(it, "old")
        with console.status("going back"):
            it.rollback(opened, writes=writes, allow_missing=allow_missing)
        return _tell(it, url, {})


def writes(
    url: Attached,
    *,
    source: NewVectors = NewVectors(),
    of: str,
    allow_missing: int = 0,
) -> int:
    """Declare with which model the application writes, where its sessions do not say it by limpet.writes_with.

    A collection has no triggers. A pass therefore brings over what the application wrote until now, and the command is
    refused where that needs a model and none is given.

    Args:
        source: What makes vectors of that model, for items of a collection that were written since the last pass.
        of: Of which model its vectors are: old, new, or what the models are called.
        allow_missing: So many items of a collection may lack a vector of that model.

    Examples:
        limpet attach writes "postgresql://shop@db/shop?table=shop.items" --of new
        limpet attach writes "qdrant://db:6333/items?ledger=upgrade.db" --of new --model st:MODEL
    """
    source.refuse_stored()
    _refuse_negative(allow_missing)
    with url.opened() as it:
        opened = source.opened(it, it.state.side_of(of))
        with console.status("bringing over what was written"):
            it.declare_writes(of, opened, allow_missing=allow_missing)
        return _tell(it, url, {})


def verify(url: Attached, *, source: NewVectors = NewVectors(), watch: float = 0.0) -> int:
    """Look for what is not as it should be, and for queries of the application that should change; exit code 1 if so.

    Rows that were written without our triggers are found by digests of their texts and vectors, and count as lacking
    from then on. Given the model that serves, up to 256 rows that the application wrote since the last swap or rollback
    are embedded again: a writer that was not updated shows by vectors of the other model.

    Args:
        source: The model that serves.
        watch: Seconds to watch pg_stat_statements: only queries that are still sent are named. All that it remembers
            when 0.

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


def complete(url: Attached, *, allow_missing: int = 0) -> int:
    """Count every row, and declare the upgrade finished: `detach` keeps the new vectors then.

    Args:
        allow_missing: So many rows may lack a new vector.

    Examples:
        limpet attach complete "postgresql://shop@db/shop?table=shop.items"
    """
    _refuse_negative(allow_missing)
    with url.opened() as it:
        with console.status("looking at every row"):
            it.complete(allow_missing=allow_missing)
        return _tell(it, url, {})


def detach(url: Attached, *, allow_missing: int = 0, abandon: bool = False) -> int:
    """Remove everything that was added: the table is as it was, or after `complete` with new vectors for the old ones.

    Args:
        allow_missing: So many rows may stay without a vector.
        abandon: Remove what is left, whatever became of the table meanwhile.

    Examples:
        limpet attach detach "postgresql://shop@db/shop?table=shop.items"
    """
    _refuse_negative(allow_missing)
    with url.opened() as it:
        state = it.state
        stays = state.fingerprint("new" if state.phase == "completed" else "old")
        with console.status("removing what was added"):
            it.detach(allow_missing=allow_missing, abandon=abandon)
    left = "what was left of the attachment was removed" if abandon else f"the vectors of {stays} stay"
    console.print(f"Detached; {left}.")
    for note in it.notes:
        console.print(f"Note: {note}")
    print_json({"detached": True, "stays": stays, "notes": it.notes})
    return 0


def journal(url: Attached) -> int:
    """List what was done, the last step last.

    Examples:
        limpet attach journal "postgresql://shop@db/shop?table=shop.items"
    """
    with url.opened() as it:
        events = [dict(event) for event in it.journal()]
    rows = [[str(one.pop("at")), str(one.pop("kind")), json_text.dumps(one)] for one in map(dict, events)]
    print_table("Journal", ["at", "step", "what"], rows)
    print_json({"journal": events})
    return 0


def _tell(it: Attachment, url: Attached, document: Mapping[str, object]) -> int:
    """Say where it stands and what to type next, and for machines what was done."""
    with console.status("counting rows"):
        found = it.status()
    state = found.state
    called = {"old": found.old.called, "new": found.new.called}
    model = called[state.serving]
    serving = f"Queries are to be of {model}" if state.shared else f"{model} serves"
    console.print(
        f"{found.place}: {state.phase}. {serving}, and "
        f"the application writes with {called[state.writes]} unless a session says otherwise."
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
    steps = _next(found)
    for purpose, words in steps:
        console.print(f"Next, to {purpose}: {url.command(*words)}")
    print_json({**document, **asdict(found), "notes": it.notes, "serving": state.serving, "queries": dict(queries),
                   "next": [url.command(*words) for _, words in steps]})  # fmt: skip
    return 0


Step = tuple[str, list[str]]


def _stored(words: Sequence[str]) -> bool:
    """Say whether words name vectors that were made before, which no row has that was written a moment ago."""
    from limpet.engines.sources import SOURCES

    named = ModelName(words[words.index("--over" if "--over" in words else "--model") + 1], sources=SOURCES)
    return named.scheme == "vectors" and named.place not in ("MODEL", "OLD_MODEL")


def _next(found: AttachmentStatus) -> list[Step]:
    """Return what to type next, each with what it is for, the most sensible first.

    Each is possible as it stands. Where it names a model that nobody named by options, the purpose says which one.
    """
    state, phase, named = found.state, found.state.phase, {"old": found.old.fingerprint, "new": found.new.fingerprint}
    one_dim = found.old.dim == found.new.dim
    lacking = {side: found.lacking[side] - found.without_text.get(side, 0) for side in get_args(Side)}

    def allowed(side: Side) -> list[str]:
        """Return words that allow rows to lack a vector which nothing can be made for."""
        left = found.lacking[side] - lacking[side]
        return ["--allow-missing", str(left)] if left else []

    def source(side: Side) -> tuple[str, list[str]]:
        """Return words that name what makes vectors of a model, and what to put in for a word in capitals."""
        known = found.new.options if side == "new" else found.old.options
        if known:
            return "", shlex.split(known)
        place = "MODEL" if side == "new" else "OLD_MODEL"
        if not found.texts or (side == "new" and named[side].startswith(DECLARED)):
            file = "FILE" if side == "new" else "OLD_FILE"
            return f" ({file} stands for vectors of {named[side]})", ["--model", file]
        return f" ({place} stands for the text model {named[side]})", ["--model", place]

    def fresh(side: Side) -> list[str]:
        """Return the same for rows that were written a moment ago: files hold no vectors of them."""
        words = source(side)[1]
        return [] if _stored(words) or words[-1] in ("MODEL", "OLD_MODEL") else words

    def writing(side: Side) -> list[str]:
        return [] if one_dim else ["--writes", side]

    def fill(side: Side) -> list[Step]:
        what, words = source(side)
        purpose = "fill rows" if side == "new" else "fill old vectors, for a way back"
        return [(f"{purpose}{what}", ["backfill", *(["--of", "old"] if side == "old" else []), *words])] * bool(
            lacking[side]
        )

    def leave(side: Side, purpose: str) -> list[Step]:
        if state.writes != side and (one_dim or state.serving == side):
            return [(f"declare that the application writes with {named[side]} again", ["writes", "--of", side])]
        counted = state.shared or phase not in ("attached", "filling", "filled")
        if counted and lacking[side]:
            return fill(side)
        return [(purpose, ["detach", *(allowed(side) if counted else [])])]

    what, words = source("old")
    backwards: list[Step] = []
    if state.shared or not lacking["old"]:
        backwards.append(("go back", ["rollback", *writing("old"), *([] if state.shared else allowed("old"))]))
    if not _stored(words) and (lacking["old"] or phase == "swapped"):
        rest = [] if state.shared else allowed("old")
        backwards.append(
            (f"go back after rows were written with the new model{what}",
             ["rollback", *words, *writing("old"), *rest])
        )  # fmt: skip
    forwards: Step = ("ask with the new model" if state.shared else "let them serve",
                      ["swap", *fresh("new"), *writing("new"), *([] if state.shared else allowed("new"))])  # fmt: skip
    declared: list[Step] = [("declare who writes with what", ["writes", "--of", "new"])] * (
        state.writes == "old" and not (state.compared and found.lacking["new"])
    )
    end: list[Step] = [("end it", ["complete", *allowed("new")])] * (state.writes == "new" and not lacking["new"])
    away = leave("old", "leave everything as it was")
    if phase == "completed":
        return [*fill("new"), *leave("new", "keep the new vectors alone"), *backwards]
    if phase == "swapped":
        return [*fill("new"), *fill("old"), *backwards, *declared, *end]
    if state.shared:
        left: list[Step] = [("put back the rest", ["rollback"])] * bool(phase == "rolled back" and found.holding["new"])
        if phase != "rolled back" and found.holding["new"]:
            away = backwards[:1]
        return [*left, *(fill("old") if phase == "rolled back" else fill("new")), forwards, *away]
    if phase in ("attached", "filling"):
        return [*(fill("new") or [(f"fill rows{source('new')[0]}", ["backfill", *source("new")[1]])]), *away]
    if phase == "filled":
        return [*fill("new"), ("index them", ["index"]), *away]
    if not state.swappable:
        return [*fill("new"), ("see which queries still search old vectors", ["verify"]), *away]
    possible = not lacking["new"] or bool(fresh("new"))
    return [*fill("new"), *([forwards] if possible else []), *away]
