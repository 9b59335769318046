"""Run sessions in order: train, embed the session's gallery once, score everything embedded so far.

A session reads its input from the files of the previous session and ends with one file, ``session.json``. A run that
was stopped at any point therefore continues with the same command and ends with the same numbers, and later sessions
need no more memory than early ones. ::

    OUT/
      setting.json              what all learners share
      session-1/                the first model, the same for all learners, with its gallery
      LEARNER/
        learner.json            its settings
        session-1/ session-2/ ...
          model.safetensors ... the session's release
          gallery.safetensors   its embeddings
          session.json          scores, exemplars for the next session, and where release and gallery are
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue, ValidationError
from torch import nn

from limpet import Experiment, Release, embed_images, encode, train_release
from limpet.data import ImageSet, RowNumbers, encoding_loader
from limpet.embeddings import EmbeddingSet, labels_as_in, storage
from limpet.errors import ConfigError, DataError, refuse, unknown_name
from limpet.evaluation import EmbeddingRows, JoinedRows, RowLists, check_sides, rank, recall_at
from limpet.geometry import Hypersphere
from limpet.methods import CompatibilityMethod, build_method
from limpet.models import build_head, load_record, seeded
from limpet.results import Part
from limpet.support import Standing, combined, digest_of, put_beside, read_text, standing
from limpet.training import (
    OnStep,
    WarmStart,
    code_of,
    load_carried,
    load_history,
    network_of,
    save_carried,
    standing_of,
    trained,
)
from limpet_bench.sessions.memory import EXEMPLARS, Candidates, passes
from limpet_bench.sessions.plans import KS, Setting
from limpet_bench.sessions.results import Seconds, SessionRecord, SessionScores


def run_sessions(
    setting: Setting,
    learners: Mapping[str, Experiment],
    folder: Path,
    *,
    sessions: int | None = None,
    encoder: Release | None = None,
    on_run: OnRun | None = None,
    again: bool = False,
) -> dict[str, list[SessionRecord]]:
    """Train every learner through the sessions of a plan, and score each session.

    Args:
        setting: Images, plan and memory that the learners share.
        learners: Training settings of every learner, by its name; they differ in method and method options.
        folder: Output folder; a run that was stopped there continues.
        sessions: Stop after this many sessions; run all when left out.
        encoder: The release whose backbone the first session starts from, if the learners' experiments are based on
            it; see `train_release`.
        on_run: Function that opens a context for the run of a given name; the context yields a callback for training
            steps.
        again: Rerun a learner if the code has changed, or all learners if the code of their shared first session has.
            The existing folder is kept as ``FOLDER.before-1``.

    Returns:
        For every learner the record of each session.

    Raises:
        ConfigError: A learner does not support sessions, or the folder holds other sessions; nothing was trained.
    """
    total = setting.plan.sessions if sessions is None else sessions
    refuse(not 1 <= total <= setting.plan.sessions, f"sessions = {total}.", f"from 1 to {setting.plan.sessions}")
    for name, experiment in learners.items():
        check_learner(name, experiment, setting, encoder)
    shared = {**setting.identity, **_shared(learners)}
    if encoder is not None:
        shared["initial weights"] = encoder.fingerprint
    claims = {folder / name / "learner.json": _own(experiment) for name, experiment in learners.items()}
    claims = {folder / "setting.json": shared, **claims}
    for path, identity in claims.items():
        refuse_other(path, identity)
    if again:
        _put_others_beside(learners, folder)
    for path, identity in claims.items():
        write_plain(path, identity)
    return {
        name: [
            run_session(setting, name, experiment, folder, session, encoder=encoder, on_run=on_run, again=again)
            for session in range(total)
        ]
        for name, experiment in learners.items()
    }


def learner_code(experiment: Experiment) -> str:
    """Return the digest of the code that runs a learner's sessions: training and exemplar selection."""
    return combined(code_of(experiment) + _code_of_sessions(), ())


@cache
def _code_of_sessions() -> str:
    return digest_of(Path(__file__).with_name(f"{name}.py") for name in ("memory", "perturbations", "plans", "runner"))


def standing_of_learner(experiment: Experiment, folder: Path, name: str) -> Standing:
    """Return whether the current code matches that of a learner's existing sessions.

    Raises:
        DataError: A file of a session is damaged.
    """
    today = learner_code(experiment)
    found = {standing(Ending.read(path).code, today) for path in (folder / name).glob("session-*/session.json")}
    if build_method(experiment.method, experiment.method_options).first_session == "shared":
        found.add(_standing_of_first(folder))
    return "other" if "other" in found else "same"


def _standing_of_first(folder: Path) -> Standing:
    """Return whether the current code matches that of the shared first session; "same" if there is none yet."""
    first = folder / SHARED
    return standing_of(load_record(first)) if (first / "config.json").exists() else "same"


def _put_others_beside(learners: Mapping[str, Experiment], folder: Path) -> None:
    """Rename the folders of learners that other code ran; all of them if it trained the shared first session."""
    if _standing_of_first(folder) != "same":
        put_beside(folder)
        return
    for name, experiment in learners.items():
        if standing_of_learner(experiment, folder, name) != "same":
            put_beside(folder / name)


def check_learner(
    name: str, experiment: Experiment, setting: Setting, encoder: Release | None = None
) -> CompatibilityMethod:
    """Return the method of a learner, or refuse it before anything is trained.

    Raises:
        ConfigError: Its method, name or recipe does not support sessions, or it needs a memory and there is none.
    """
    method = build_method(experiment.method, experiment.method_options)
    refuse(
        not name or name.startswith(".") or "/" in name or name.startswith("session-"),
        f"A learner named '{name}'.",
        "a name that can be a folder, and does not begin with session-",
    )
    refuse(
        "hypersphere" not in method.spaces or experiment.geometry.space not in (None, "hypersphere"),
        f"The learner '{name}' trains on the {experiment.geometry.space or ' or '.join(sorted(method.spaces))} space.",
        "the hypersphere: a gallery of many models is searched by cosine",
    )
    refuse(
        experiment.recipe.devices > 1,
        f"The learner '{name}' was to train with {experiment.recipe.devices} devices.",
        "one: sessions are trained in one process",
    )
    _try_out(name, experiment, method, setting, encoder)
    if method.memory is not None and method.memory not in EXEMPLARS:
        raise unknown_name("choice of exemplars", method.memory, EXEMPLARS)
    refuse(
        method.memory not in (None, "everything") and setting.budget is None,
        f"The learner '{name}' replays images of earlier sessions, and no memory was given.",
        "how many images it may keep: --budget N",
    )
    return method


def _try_out(
    name: str, experiment: Experiment, method: CompatibilityMethod, setting: Setting, encoder: Release | None
) -> None:
    """Build the objects of every session, and refuse sessions that cannot be trained.

    Raises:
        ConfigError: An option of network, head or batches is wrong, or a session has too few classes.
    """
    recipe, plan = experiment.recipe.batches_for(method), setting.plan
    with seeded(0):
        network_of(experiment, encoder)
        build_head(experiment.head or "normalised", 2, experiment.model.dim, dict(experiment.head_options))
    refuse(
        method.memory_share is not None and recipe.items_per_class is not None,
        f"The learner '{name}' draws a share of every batch from its memory, and items_per_class was given, too.",
        "one of the two: leave --recipe.items-per-class out",
    )
    for session in range(plan.sessions):
        batches = experiment.recipe if session == 0 and method.first_session == "shared" else recipe
        least = 2 if batches.items_per_class is None else batches.batch_size // batches.items_per_class
        classes = len(np.unique(plan.labels[plan.rows(session)]))
        refuse(
            classes < least and not (session > 0 and method.memory is not None and method.replays == "always"),
            f"Session {session + 1} of the {plan.name} plan brings images of {classes} "
            f"class{'' if classes == 1 else 'es'}, for the learner '{name}'.",
            f"at least {least} in every session; fewer sessions, or more classes in each",
        )


def refuse_other(path: Path, identity: Mapping[str, object]) -> None:
    """Refuse a folder that belongs to other settings, according to a file in it.

    Raises:
        ConfigError: The file names other settings; nothing in the folder was changed.
    """
    if not path.exists():
        return
    written, wanted = read_plain(path), json.loads(json.dumps(identity))
    different = sorted(key for key in written.keys() | wanted.keys() if written.get(key) != wanted.get(key))
    if different:
        raise ConfigError(
            f"The folder '{path.parent}' holds a run with other settings: {', '.join(different)} differ.",
            expected="the settings that it was started with",
            to_do="use them to continue, or choose another --out.",
            intact="What is there is intact.",
        )


def _shared(learners: Mapping[str, Experiment]) -> dict[str, Any]:
    """Return the settings that all learners and their first session share, as plain values.

    Raises:
        ConfigError: The settings differ.
    """
    recipes = {name: _recipe(experiment) for name, experiment in learners.items()}
    first, *others = recipes
    for name in others:
        different = [key for key, value in recipes[name].items() if recipes[first][key] != value]
        refuse(
            bool(different),
            f"The learners '{first}' and '{name}' have other settings: {', '.join(different)}.",
            "learners that differ in method and method options only: they share the first session",
        )
    return recipes[first]


def _own(experiment: Experiment) -> dict[str, Any]:
    return {"method": experiment.method, "method options": json.loads(json.dumps(dict(experiment.method_options)))}


def _recipe(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of a learner that affect its results, without its method, as plain values."""
    values = {
        "model": experiment.model.model_dump(mode="json"),
        "head": [experiment.head, dict(experiment.head_options)],
        "recipe": experiment.recipe.decides(),
        "geometry": asdict(experiment.geometry),
        "initial weights": None if experiment.weights is None else str(experiment.weights),
        "frozen backbone": experiment.freeze_backbone,
        "seed": experiment.seed,
    }
    return dict(json.loads(json.dumps(values)))


OnRun = Callable[[str], AbstractContextManager[OnStep]]
BATCH = 512  # images per batch for embedding
SHARED = "session-1"
"""Folder of the first session that learners share."""


class Ending(Part):
    """Contents of ``session.json``: the state that the next session needs.

    Args:
        record: Results of the session.
        release: Folder of its model, relative to that of the comparison.
        galleries: Galleries to search after the session, the oldest first, relative to the same folder.
        memory: Rows of the images that the next session replays.
        code: Digest of the code that ran the session.
    """

    record: SessionRecord
    release: str
    galleries: list[str]
    memory: list[int]
    code: str

    @classmethod
    def read(cls, path: Path) -> Ending:
        """Read a ``session.json``.

        Raises:
            DataError: The file is missing or damaged.
        """
        values = read_plain(path)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            raise _unreadable(path, f"{first['msg']} at '{'.'.join(map(str, first['loc']))}'") from error


def run_session(
    setting: Setting,
    name: str,
    experiment: Experiment,
    folder: Path,
    session: int,
    *,
    encoder: Release | None = None,
    on_run: OnRun | None = None,
    again: bool = False,
) -> SessionRecord:
    """Train, embed and score one session of one learner; a finished one is read instead.

    Args:
        setting: Images, plan and memory.
        name: Name of the learner.
        experiment: Training settings of the learner.
        folder: Folder of the comparison, with earlier sessions of the learner.
        session: Number of the session, from 0.
        encoder: See `run_sessions`.
        on_run: See `run_sessions`.
        again: Retrain an unfinished session if other code began it; see `run_sessions` for finished ones.
    """
    place = folder / name / f"session-{session + 1}"
    if not (place / "session.json").exists():
        ended = _Session(setting, name, experiment, folder, session, encoder, on_run, again).to_the_end()
        shutil.rmtree(place / "cache", ignore_errors=True)
        write_plain(place / "session.json", ended.to_dict())
    return Ending.read(place / "session.json").record


@dataclass
class _Session:
    """One session that is being run."""

    setting: Setting
    name: str
    experiment: Experiment
    folder: Path
    session: int
    encoder: Release | None
    on_run: OnRun | None
    again: bool

    def __post_init__(self) -> None:
        self.trained_at = time.monotonic()  # end of the training time
        self.method = build_method(self.experiment.method, self.experiment.method_options)
        self.place = self.folder / self.name / f"session-{self.session + 1}"
        first = self.session == 0
        shared = first and self.method.first_session == "shared"
        self.home = self.folder / SHARED if shared else self.place  # of release and gallery
        self.reindex = self.method.gallery_policy == "reindex"
        self.device = self.experiment.recipe.build_fabric().device
        before = self.place.with_name(f"session-{self.session}") / "session.json"
        self.previous = None if first else Ending.read(before)
        self.encoded = 0

    def to_the_end(self) -> Ending:
        kept = np.array(self.previous.memory if self.previous else [], np.int64)
        always = self.method.replays == "always"
        replayed = kept if always or not self.setting.brings_old_classes(self.session) else kept[:0]
        own = self.setting.plan.rows(self.session)
        images = self.setting.training(np.concatenate([own, replayed]), self.session)
        release = self._trained(images, len(replayed))
        history = load_history(self.home)
        if self.home != self.place:
            self._look_back(release, images)
        galleries = [*self._earlier_galleries(), self._embedded(release)]
        scores = self._scored(release, galleries)
        memory = self._memory(release, own, kept)
        record = SessionRecord(
            **scores.to_dict(),
            validation_recall=history.epochs[history.best_epoch or 0]["score"],
            best_epoch=history.best_epoch or 0,
            epochs=len(history.epochs),
            gallery_rows=sum(len(storage.load(path)) for path in galleries),
            embedded_rows=len(storage.load(galleries[-1])),
            replayed=len(replayed),
            trained_images=history.images,
            encoded_images=self.encoded,
            seconds=Seconds(training=history.seconds, rest=time.monotonic() - self.trained_at),
            fingerprint=release.fingerprint,
        )
        return Ending(
            record=record,
            release=str(self.home.relative_to(self.folder)),
            galleries=[str(path.relative_to(self.folder)) for path in galleries],
            memory=memory.tolist(),
            code=learner_code(self.experiment),
        )

    def _trained(self, images: ImageSet, replayed: int) -> Release:
        previous, plan = self.previous, self.setting.plan
        experiment = self.experiment
        if self.home != self.place:  # shared by all learners, so trained by classification alone
            experiment = replace(experiment, method="independent", method_options={})
        warm_start = None
        if previous:
            warm_start = WarmStart(
                replayed=np.arange(len(images)) >= len(images) - replayed,
                gallery=storage.load(self.folder / previous.galleries[-1]),
                carried=load_carried(self.place.with_name(f"session-{self.session}")),
            )
        title = f"{self.name if self.home == self.place else 'all learners'}, session {self.session + 1}"
        with nullcontext() if self.on_run is None else self.on_run(title) as progress:
            release = train_release(
                images,
                experiment,
                self.home,
                old=trained(self.folder / previous.release, self.encoder) if previous else None,
                encoder=self.encoder,
                data_name=f"{self.setting.name}, {plan.name} {self.setting.plan_digest[:12]}, "
                f"session {self.session + 1} of {plan.sessions}",
                cache=self.place / "cache",
                warm_start=warm_start,
                select=self._validation(),
                progress=progress,
                again=self.again,
            )
        self.trained_at = time.monotonic()
        looks = int(previous is not None and self.method.needs_old) + int(self.method.looks_back)
        self.encoded += looks * len(images)
        if previous and self.method.needs_old and experiment.recipe.view_for(self.method) == "same":
            self.encoded += load_history(self.home).images  # the old model encodes every augmented image
        return release

    def _validation(self) -> Callable[[nn.Module], float]:
        """Return the scoring function for training: recall@1 of the validation queries, computed as in the test."""
        queries, own = self.setting.validation(self.session), self._own_gallery()
        earlier = self._earlier_galleries()
        self.encoded += self.experiment.recipe.epochs * (len(queries) + len(own))

        def score(model: nn.Module) -> float:
            parts = chain(map(storage.load, earlier), (self._encoded(model, images) for images in (own,)))
            right = hits(self._encoded(model, queries), parts, (1,))
            return float(right[1].mean())

        return score

    def _encoded(self, model: nn.Module, images: ImageSet) -> EmbeddingSet:
        return encode(
            model,
            encoding_loader(images, batch_size=BATCH, workers=self.experiment.recipe.workers),
            Hypersphere(self.experiment.model.dim),
            ids=images.ids,
            fingerprint="declared:in training",
            class_names=images.class_names,
            device=next(model.parameters()).device,
        )

    def _own_gallery(self) -> ImageSet:
        """Return the images to embed: those of this session, or all so far if the gallery is re-embedded."""
        rows = self.setting.seen_rows(self.session) if self.reindex else self.setting.plan.rows(self.session)
        return self.setting.training(rows, self.session)

    def _earlier_galleries(self) -> list[Path]:
        return [] if self.reindex or not self.previous else [self.folder / part for part in self.previous.galleries]

    def _look_back(self, release: Release, images: ImageSet) -> None:
        """Let the learner process the end of a first session that was trained for all."""
        with seeded(0):  # building draws initial weights that are overwritten immediately
            encoder = network_of(self.experiment, self.encoder)
        encoder.load_state_dict(release.encoder.state_dict())
        if release.head is None:
            raise DataError("The first session's release has no classifier.", expected="a release with its classifier")
        loader = encoding_loader(images, batch_size=self.experiment.recipe.batch_size)
        head = copy.deepcopy(release.head).to(self.device)
        self.method.to(self.device).on_session_end(encoder.to(self.device), head, loader)
        save_carried(self.method, self.place)

    def _embedded(self, release: Release) -> Path:
        path, images = self.home / "gallery.safetensors", self._own_gallery()
        if not path.exists() or storage.load(path).fingerprint != release.fingerprint:
            storage.save(self._embed(release, images), path)
        self.encoded += len(images)
        return path

    def _embed(self, release: Release, images: ImageSet) -> EmbeddingSet:
        workers = self.experiment.recipe.workers
        return embed_images(release, images, batch_size=BATCH, workers=workers, device=self.device)

    def _scored(self, release: Release, galleries: list[Path]) -> SessionScores:
        queries = self.setting.queries(self.session)
        self.encoded += len(queries)
        right = hits(self._embed(release, queries), map(storage.load, galleries), KS)
        return scores_of(right, queries.labels, self.setting)

    def _memory(self, release: Release, own: RowNumbers, kept: RowNumbers) -> RowNumbers:
        if self.method.memory is None or self.session + 1 == self.setting.plan.sessions:
            return kept[:0]
        rows = np.concatenate([own, kept])
        candidates = self.setting.training(rows, self.session)
        self.encoded += passes(self.method.memory, first=self.session == 0) * len(rows)
        chosen = EXEMPLARS[self.method.memory](
            Candidates(
                images=candidates,
                release=release,
                budget=self.setting.budget or len(rows),
                first=self.session == 0,
                seed=self.experiment.seed * 1009 + self.session,  # different draws in every session
                batch_size=BATCH,
                device=self.device,
            )
        )
        return rows[chosen]


def read_plain(path: Path) -> dict[str, JsonValue]:
    """Read plain values from a JSON file of this run.

    Raises:
        DataError: The file is missing or damaged.
    """
    try:
        values = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(values, dict):
        raise _unreadable(path, "it does not hold names with values")
    return values


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        f"Cannot read '{path}': {reason}.",
        expected="what this run wrote there before",
        to_do="remove this one file, and the same command writes it again.",
        intact="Models and galleries are intact.",
    )


def write_plain(path: Path, values: Mapping[str, object]) -> None:
    """Write plain values to a JSON file atomically."""
    text = json.dumps(values, indent=1) + "\n"
    storage.write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def hits(query: EmbeddingSet, parts: Iterable[EmbeddingSet], ks: Sequence[int]) -> dict[int, NDArray[np.float64]]:
    """Return for every query whether an item of its class is among the first K of the whole gallery (CVS's recall@K).

    The gallery parts are ranked as one gallery and read block by block. Where items tie, the value is the probability
    over all orders of the tied items; see `metrics`. The value of a query whose class is not in the gallery is 0.

    Args:
        query: Labelled queries (Q), embedded by the newest model.
        parts: Labelled gallery parts of one space, by any models; classes match by name if both sides have class names.
        ks: Values of K, at least 1.

    Returns:
        For every K an array (Q,).

    Raises:
        DataError: There is no gallery part, or a side is empty or has no labels.
        SpaceMismatchError: A part and the queries are in different spaces.

    >>> def items(names, vectors, labels):
    ...     return EmbeddingSet(np.array(vectors, np.float32), names, model="example", labels=labels)
    >>> old, new = items(["a"], [[1, 0]], [0]), items(["b", "c"], [[0, 1], [0.8, 0.6]], [1, 1])
    >>> hits(items(["q", "r"], [[0.6, 0.8], [1, 0]], [0, 0]), [old, new], (1, 3))
    {1: array([0., 1.]), 3: array([1., 1.])}
    """
    refuse(not ks or min(ks) < 1, f"Recall at K = {', '.join(map(str, ks)) or 'nothing'}.", "values of at least 1")
    if query.labels is None:
        raise DataError("The queries have no labels.", expected="a class for every query")
    sides = list(parts)
    if not sides:
        raise DataError("The gallery has no part.", expected="what at least one session embedded")
    for part in sides:
        check_sides(query, part)
    labels = np.concatenate([labels_as_in(query, part) for part in sides])
    gallery = JoinedRows([EmbeddingRows(part, "gallery") for part in sides])
    ranked = rank(EmbeddingRows(query, "query"), gallery, RowLists.by_label(query.labels, labels))
    return {k: np.nan_to_num(recall_at(k)(ranked)) for k in ks}


def scores_of(
    right_at: Mapping[int, NDArray[np.float64]], labels: NDArray[np.int64], setting: Setting
) -> SessionScores:
    """Return recall by K, and recall@1 by the session that introduced the class of the query.

    Args:
        right_at: Values from `hits`.
        labels: Class of every query, int64 (Q,).
        setting: Setting that defines the classes.
    """
    homes, sessions = setting.home[labels], setting.plan.sessions
    asked = np.bincount(homes, minlength=sessions)
    right = np.bincount(homes, weights=right_at[1], minlength=sessions)
    return SessionScores(
        recall={str(k): float(values.mean()) for k, values in right_at.items()},
        recall_by_home=[float(r / n) if n else None for r, n in zip(right, asked, strict=True)],
        queries=len(labels),
        queries_by_home=asked.tolist(),
    )
