"""The steps of an upgrade as jobs: accepted at once, run one after the other in a thread, and watched."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from limpet.attached.base import Attachment, NotStartedError, OwnedIndex
from limpet.attached.opening import is_attached, open_upgrade, planner, rows_of, starter
from limpet.engines.reading import SourceTexts
from limpet.engines.sides import ModelSide
from limpet.engines.sources import open_source
from limpet.errors import ConfigError, LimpetError, ServiceError, without_secrets
from limpet.galleries import Gallery
from limpet.galleries.upgrade import GalleryUpgrade
from limpet.geometry import Hypersphere, Space
from limpet.service.documents import without_nothing
from limpet.service.encoders import Encoders, ImageModel
from limpet.service.problems import problem_of
from limpet.service.settings import ServiceSettings
from limpet.service.writer import GalleryWriter
from limpet.support.progress import Told
from limpet.upgrade.base import Upgrade
from limpet.upgrade.filling import FillInterruptedError
from limpet.upgrade.lifecycle import POSSIBLE, Phase, check_step
from limpet.upgrade.model import UpgradeModel
from limpet.upgrade.vector_sources import (
    CallableItems,
    ItemSource,
    ReleaseVectors,
    VectorSource,
    WithText,
    vectors_of_texts,
)

if TYPE_CHECKING:
    from limpet.training.text_models import TextModel

JobStep = Literal["start", "backfill", "index", "swap", "rollback", "finish", "cancel", "verify", "gc", "doctor"]
STEPS: tuple[JobStep, ...] = get_args(JobStep)
JobStatus = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
_AFTER: Mapping[str, Phase] = {
    "start": "started", "swap": "swapped", "rollback": "started", "finish": "steady", "cancel": "steady",
}  # fmt: skip
"""Phase after a step that is one commit, which shows an interrupted job that the step was taken."""
_IN_ONE_COMMIT = ("swap", "rollback", "cancel")
_WAITING = 16  # maximum waiting jobs
_KEPT = 1000  # maximum jobs to keep
_TEXT = "text"  # column of the texts that a backfill embeds if the service has no others
_log = logging.getLogger("limpet.service")


class StepOptions(BaseModel):
    """Options of a step; those that a step does not have are refused."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="Of start, backfill and doctor: a model that the service has loaded, "
                              "by name or fingerprint. Of start also any fingerprint, with dim.")  # fmt: skip
    dim: int | None = Field(None, ge=1, description="Of start: dimension of a model that is not loaded.")
    old: str | None = Field(None, description="Of start in an index of an application: its model's fingerprint.")
    budget: int | None = Field(None, ge=0, description="Of backfill: stop after embedding this many items.")
    batch: int | None = Field(None, ge=1, description="Of backfill: items written at a time.")
    rate: float | None = Field(None, gt=0, description="Of backfill: maximum number of items a second.")
    share: float | None = Field(None, gt=0, le=1, description="Of backfill: maximum share of the time for writing.")
    seconds: float | None = Field(None, ge=0, description="Of backfill: begin no batch after this many seconds.")
    order: str | None = Field(None, description="Of backfill in a gallery: id, random, traffic or uncertainty.")
    allow_missing: int | None = Field(None, ge=0, description="Items without a vector that stop no step.")
    force: str | None = Field(None, description="Of swap in a gallery: a reason to do so without evidence.")
    writes: ModelSide | None = Field(None, description="Of swap and rollback in an index of an application: the model "
                                     "that it writes with from then on.")  # fmt: skip
    older_than: float | None = Field(None, ge=0, description="Of gc: seconds for which files are kept.")
    sample: int | None = Field(None, ge=1, description="Of doctor: items a generation that are looked at closely.")


@dataclass
class Job:
    """A step of an upgrade that was asked for.

    Args:
        id: Its name; that of a request with an Idempotency-Key follows from the key.
        options: As they were given.
        who: Who asked; empty without keys.
        epoch: At which the step was to be taken; None for any.
        progress: As told last.
        result: What the step returned.
        problem: Why it failed.
        submitted: When, in seconds since 1970; as are `started` and `ended`.
    """

    id: str
    step: JobStep
    options: dict[str, Any]
    who: str = ""
    epoch: str | None = None
    status: JobStatus = "queued"
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    submitted: float = 0.0
    started: float | None = None
    ended: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will become of it."""
        return self.status not in ("queued", "running")


_JOB = TypeAdapter(Job)


class Jobs:
    """Runs the steps of one upgrade, one after the other; created inside the event loop.

    Args:
        settings: Settings of the service; a file in its folder stores every job, so that the next process resumes.
        encoders: Models for new vectors.
        writer: Writer of a gallery; None for an index that an application owns.
    """

    def __init__(self, settings: ServiceSettings, encoders: Encoders, writer: GalleryWriter | None) -> None:
        self.settings, self.encoders, self.writer = settings, encoders, writer
        self._folder = settings.folder / "jobs"
        self._folder.mkdir(parents=True, exist_ok=True)
        self.all: dict[str, Job] = {}
        self._stopped = set[str]()
        self._closing, self._loop, self._changed = threading.Event(), asyncio.get_running_loop(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        kept = [_JOB.validate_json(path.read_bytes()) for path in self._folder.glob("*.json")]
        for job in sorted(kept, key=lambda one: one.submitted):
            self.all[job.id] = job
            if not job.over:
                self._thread.submit(self._run, job, resumed=job.status == "running")

    def submit(self, step: JobStep, options: StepOptions, *, who: str, key: str | None, epoch: str | None) -> Job:
        """Accept a step, or return the job of an identical earlier request.

        Raises:
            ServiceError: The upgrade is at another epoch, too many jobs wait, or the key was used for another step.
            UpgradeStateError: The step is not possible now, and no earlier job can make it possible.
        """
        given = without_nothing(options.model_dump())
        name = secrets.token_hex(8) if key is None else hashlib.sha256(f"{who}\0{key}".encode()).hexdigest()[:16]
        job = Job(name, step, given, who, epoch, submitted=time.time())
        if (known := self.all.get(name) or self._of_journal(job)) is not None:
            if (known.step, known.options) != (step, given):
                raise ServiceError(
                    422, f"The Idempotency-Key '{key}' was given with another request.", expected="a key of its own",
                    to_do="send a new key.", intact="Nothing was changed.",
                )  # fmt: skip
            return known
        waiting = [one for one in self.all.values() if not one.over]
        if len(waiting) >= _WAITING:
            raise ServiceError(429, f"{len(waiting)} jobs wait already.", expected=f"at most {_WAITING}",
                               to_do="ask again once they are done.", retry_after=10)  # fmt: skip
        if not waiting:
            with self._opened(job) as it:
                self._check(job, it)
        self.all[name] = job
        while len(self.all) > _KEPT and (old := next(iter(self.all.values()))).over:
            del self.all[old.id]
            (self._folder / f"{old.id}.json").unlink(missing_ok=True)
        self._tell(job)
        self._thread.submit(self._run, job)
        return job

    def _of_journal(self, job: Job) -> Job | None:
        """Return a job of an earlier service, from the journal of the gallery."""
        entry = None if self.writer is None else self.writer.jobs.get(job.id)
        if entry is None or (job.step in _AFTER and entry.event["kind"] != job.step) or job.step not in _AFTER:
            return None
        done = Job(job.id, job.step, job.options, job.who, status="done", submitted=entry.time, ended=entry.time)
        self.all[job.id] = done
        return done

    def dry_run(self, step: JobStep, options: StepOptions, *, epoch: str | None) -> dict[str, Any]:
        """Check a step, and return its expected effort, as far as known; nothing is changed."""
        job = Job("", step, without_nothing(options.model_dump()), epoch=epoch)
        begun = self._start_options(job.options) if step == "start" else {}
        if begun and is_attached(self.settings.url):
            return asdict(self._called(planner(self.settings.url), begun))
        with self._opened(job) as it:
            self._check(job, it)
            if it is None:
                return {"possible": True}
            if step == "swap" and isinstance(it, GalleryUpgrade):
                self._called(it.gallery.check_swap, job.options)
            found = it.status()
            plan = it.plan(self._source(it, job.options)) if step == "backfill" else None
            return {
                "possible": True, "phase": found.phase, "items": found.items, "lacking": dict(found.lacking),
                "plan": None if plan is None else plan.to_dict(),
            }  # fmt: skip

    def cancel(self, job: Job) -> Job:
        """Cancel a waiting job, or stop a backfill or a doctor after its batch."""
        if job.step not in ("backfill", "doctor") and job.status == "running":
            raise ServiceError(409, f"The step {job.step} cannot be stopped in the middle.", to_do="wait for its end.")
        self._stopped.add(job.id)
        return job

    def get(self, name: str) -> Job:
        """Return a job.

        Raises:
            ServiceError: The job does not exist.
        """
        if name not in self.all:
            raise ServiceError(
                404, f"There is no job '{name}'.", expected="one of `GET /v1/jobs`",
                to_do="`GET /v1/upgrade` says where the upgrade stands.",
            )  # fmt: skip
        return self.all[name]

    async def events(self, job: Job) -> AsyncIterator[Job]:
        """Yield a job after every change, until it is over or the service stops."""
        last = None
        while not self._closing.is_set():
            changed, now = self._changed, replace(job)  # the thread may change it at any time
            if now != last:
                last = now
                yield now
            if now.over:
                return
            await changed.wait()

    def _tell(self, job: Job) -> None:
        path = self._folder / f"{job.id}.json"
        path.with_suffix(".part").write_bytes(_JOB.dump_json(job))
        path.with_suffix(".part").replace(path)
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # In the thread

    def _run(self, job: Job, *, resumed: bool = False) -> None:
        if self._closing.is_set():
            return
        job.status, job.started = "running", time.time()
        self._tell(job)
        status: JobStatus = "failed"
        try:
            if job.id in self._stopped:
                raise FillInterruptedError
            job.result = self._take(job, resumed=resumed)
            stopped = job.result.get("stopped") == "interrupted"
            status = "done" if not stopped else "cancelled" if job.id in self._stopped else "interrupted"
        except FillInterruptedError:
            status = "cancelled"
        except LimpetError as error:
            job.problem = problem_of(error)
        except Exception:
            _log.exception("job %s (%s) failed", job.id, job.step)
            job.problem = problem_of(ServiceError(500, "The service failed at this step; its log says why."))
        job.ended = time.time()
        job.status = status
        _log.info("job %s: %s %s", job.id, job.step, status)
        self._tell(job)

    def _take(self, job: Job, *, resumed: bool) -> dict[str, Any]:
        if self.writer is not None:
            self.writer.refuse_reader()
        try:
            with self._opened(job, resumed=resumed) as it:
                if resumed and it is not None and it.phase == _AFTER.get(job.step):
                    return {"notes": ["The step was taken before the service was interrupted."]}
                if not resumed:
                    self._check(job, it)
                return self._step(job, it)
        except NotStartedError:
            if resumed and _AFTER.get(job.step) == "steady":
                return {"notes": ["The step was taken before the service was interrupted."]}
            raise

    def _opened(self, job: Job, *, resumed: bool = False) -> Any:
        """Open the upgrade, which a start and a doctor do not need; its journal records the job of a step."""
        if job.step in ("start", "doctor") and is_attached(self.settings.url):
            if resumed and job.step == "start":
                with suppress(NotStartedError):
                    return open_upgrade(self.settings.url)
            return nullcontext(None)
        it = open_upgrade(self.settings.url)
        if isinstance(it, GalleryUpgrade):
            it.gallery.noted = {**({"who": job.who} if job.who else {}), "job": job.id}
        return it

    def _check(self, job: Job, it: Upgrade | None) -> None:
        if it is None:
            return
        now = epoch_of(it)
        if job.epoch not in (None, "*", now):
            raise ServiceError(
                412, f"The upgrade is at the epoch {now}.", expected=f"{job.epoch}, as If-Match says",
                to_do="read `GET /v1/upgrade` again, and decide anew.", intact="Nothing was changed.",
            )  # fmt: skip
        if job.step in POSSIBLE and not (job.step == "backfill" and isinstance(it, GalleryUpgrade)):
            check_step(job.step, it.phase)  # type: ignore[arg-type]

    def _step(self, job: Job, it: Upgrade | None) -> dict[str, Any]:
        """Take a step; if it is one commit, only at the requested epoch."""
        options, notes = dict(job.options), [] if it is None else list(it.notes)
        if job.step in ("gc", "doctor"):
            return self._upkeep(job, it)
        if it is None:
            with self._called(starter(self.settings.url), self._start_options(options)) as opened:
                return {"notes": list(opened.notes)}
        if job.step == "start":
            begun: dict[str, Any] = self._called(self._start, self._start_options(options), it)
            return begun
        if job.step == "backfill":
            source = self._source(it, options)
            options.pop("model", None)
            found = self._called(it.backfill, {**options, "progress": lambda told: self._progress(job, told)}, source)
            return asdict(found)
        held = isinstance(it, GalleryUpgrade) and job.step in _IN_ONE_COMMIT
        with it.gallery.writing(job.step) if held and isinstance(it, GalleryUpgrade) else nullcontext():
            if job.epoch is not None:
                self._check(job, it)
            found = self._called(getattr(it, job.step), options)
        told = {"notes": [note for note in it.notes if note not in notes]}
        return told if found is None else {**told, **asdict(found), "passed": found.passed}

    def _start(self, it: GalleryUpgrade, new: UpgradeModel, space: Space | None = None) -> dict[str, Any]:
        space = space or Hypersphere(new.dim)
        made = it.gallery.start(new.fingerprint, space, note=new.note, options=new.options or None)
        return {"generation": made.name}

    def _upkeep(self, job: Job, it: Upgrade | None) -> dict[str, Any]:
        if job.step == "gc":
            if not isinstance(it, GalleryUpgrade):
                raise ConfigError("gc of an index that an application owns.", expected="a gallery")
            return asdict(self._called(it.gallery.gc, job.options))
        options = {**job.options, "progress": lambda told: self._progress(job, told)}
        name = options.pop("model", None)
        model = None if name is None else self.encoders.model(name)
        if isinstance(it, GalleryUpgrade):
            from limpet.galleries.doctor import doctor

            source = None if model is None else self._vectors(model, partial(self._texts, it.gallery))
            found = self._called(doctor, options, it.gallery, source)
        else:
            from limpet.galleries.doctor.own_index import examine

            rows = open_source(rows_of(self.settings.url))
            source = None if model is None else self._vectors(model, partial(SourceTexts, rows))
            found = self._called(examine, options, rows, source)
        told: dict[str, Any] = {**found.to_dict(), "url": without_secrets(found.url)}
        return told

    def _progress(self, job: Job, told: Told) -> None:
        job.progress = dict(told)
        self._tell(job)
        if self._closing.is_set() or job.id in self._stopped:
            raise FillInterruptedError

    def _start_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        name, dim, old = options.get("model"), options.get("dim"), options.get("old")
        if name is None:
            raise ConfigError("A start without a model.", expected='"model", a loaded one; or a fingerprint and "dim"')
        attached = is_attached(self.settings.url)
        found: dict[str, Any] = {name: value for name, value in options.items() if name not in ("model", "dim", "old")}
        if dim is None:
            model = self.encoders.model(name)
            label = next(given for given, one in self.encoders.named.items() if one is model)
            found["new"] = UpgradeModel(model.fingerprint, model.space.dim, label, f"--model {label}")
            if not attached:
                found["space"] = model.space
        else:
            found["new"] = UpgradeModel(name, dim)
        if attached:
            if old is None:
                raise ConfigError("Nothing says which model made the existing vectors.", expected='"old"')
            found["old"] = UpgradeModel(old, 0, old)
        elif old is not None:
            found["old"] = old  # refused under its own name
        return found

    def _source(self, it: Upgrade, options: Mapping[str, Any]) -> VectorSource:
        """Return a source that embeds the items: a loaded model, and their texts or images."""
        wanted = it.model("new").fingerprint
        model = self.encoders.model(options.get("model") or wanted)
        if isinstance(it, OwnedIndex):
            return self._vectors(model, lambda: it.texts)
        assert isinstance(it, GalleryUpgrade)
        return self._vectors(model, partial(self._texts, it.gallery))

    def _vectors(self, model: TextModel | ImageModel, texts: Callable[[], ItemSource[list[str]]]) -> VectorSource:
        if not isinstance(model, ImageModel):
            return vectors_of_texts(model, texts())
        if self.settings.images is None:
            raise ServiceError(
                409, "The service does not know the images of the items.", expected="images to embed",
                to_do="start it with --data DATA; or run `limpet upgrade backfill` beside it.",
                intact="Nothing was changed.",
            )  # fmt: skip
        return ReleaseVectors(model.release, self.settings.images(model.release.record.encoder))

    def _texts(self, gallery: Gallery) -> ItemSource[list[str]]:
        """Open the texts of a gallery's items."""
        if self.settings.texts is not None:
            return self.settings.texts()
        if gallery.state.columns.get(_TEXT) != "text":
            raise ServiceError(
                409, "The service does not know the texts of the items.", expected="texts to embed",
                to_do="start it with --texts TEXTS; or run `limpet upgrade backfill` beside it.",
                intact="Nothing was changed.",
            )  # fmt: skip
        return WithText(CallableItems(partial(_texts_of, gallery)))

    def _called(self, function: Callable[..., Any], options: Mapping[str, Any], /, *given: Any) -> Any:
        """Call a step with the given options, and refuse those that it does not have."""
        signature = inspect.signature(function).parameters
        several = any(one.kind is one.VAR_KEYWORD for one in signature.values())
        filling = ("budget", "batch", "rate", "share", "seconds", "progress") if several else ()
        wrong = [name for name in options if name not in signature and name not in filling]
        if wrong:
            raise ConfigError(f"{' and '.join(map(repr, wrong))} with this step of this index.",
                              expected="a step without")  # fmt: skip
        return function(*given, **options)

    def stop(self) -> None:
        """Start no further job: a backfill stops after its batch, and watching clients reconnect."""
        self._closing.set()
        self._wake()

    async def close(self) -> None:
        """Stop, and wait for the running step."""
        self.stop()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)


def _texts_of(gallery: Gallery, ids: list[str]) -> list[str | None]:
    """Return the texts of items in a column of their gallery; None for missing items."""
    items = gallery.store.fetch(ids)
    texts = {name: str(metadata.get(_TEXT) or "") for name, metadata in zip(items.ids, items.metadata, strict=True)}
    return [texts.get(name) for name in ids]


def epoch_of(it: Upgrade) -> str:
    """Return a hash that changes with every step of an upgrade, and not with rows: 16 hexadecimal digits."""
    if isinstance(it, GalleryUpgrade):
        return it.gallery.state.epoch
    assert isinstance(it, Attachment)
    return hashlib.sha256(repr((it.entry.id, it.entry.state)).encode()).hexdigest()[:16]
