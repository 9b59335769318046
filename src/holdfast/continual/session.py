"""One session of one learner: train, embed, score, and choose what later sessions see again.

A session reads what it needs from the files of the session before and ends with one file, ``session.json``.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from torch import nn

from holdfast.continual.exemplars import EXEMPLARS, passes
from holdfast.continual.results import Seconds, SessionRecord, SessionScores
from holdfast.continual.scoring import hits, scores_of
from holdfast.continual.setting import KS, Setting
from holdfast.data.image_rules import Rows
from holdfast.data.image_set import ImageSet
from holdfast.data.loading import encoding_loader
from holdfast.embeddings import EmbeddingSet, storage
from holdfast.errors import DataError
from holdfast.geometry import Hypersphere
from holdfast.methods import build_method
from holdfast.models.release import Release, load_release
from holdfast.models.seeding import seeded
from holdfast.results import Part
from holdfast.training.encode import embed_images, encode
from holdfast.training.recipe import Experiment
from holdfast.training.run_state import load_history
from holdfast.training.train import OnStep, train_release
from holdfast.training.warm_start import WarmStart, load_carried, save_carried

OnRun = Callable[[str], AbstractContextManager[OnStep]]
BATCH = 512  # images embedded at a time


class Ending(Part):
    """What ``session.json`` holds: all that the next session needs to know of one that is done.

    Args:
        record: What the session came to.
        release: Folder of its model, in that of the whole comparison.
        galleries: Everything that is searched after it, the oldest first, in the same folder.
        memory: Rows of the images that the next session sees again.
    """

    record: SessionRecord
    release: str
    galleries: list[str]
    memory: list[int]

    @classmethod
    def read(cls, path: Path) -> Ending:
        """Read a ``session.json``.

        Raises:
            DataError: The file is missing or damaged.
        """
        found = read_plain(path)
        try:
            return cls.model_validate(found)
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
    on_run: OnRun | None = None,
) -> SessionRecord:
    """Train, embed and score one session of one learner; a finished one is read instead.

    Args:
        setting: Images, plan and memory.
        name: Name of the learner.
        experiment: How it is trained.
        folder: That of the whole comparison; earlier sessions of the learner are there.
        session: Which one, from 0.
        on_run: See `run_sessions`.
    """
    place = folder / name / f"session-{session + 1}"
    if not (place / "session.json").exists():
        ended = _Session(setting, name, experiment, folder, session, on_run).to_the_end()
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
    on_run: OnRun | None

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.method = build_method(self.experiment.method, self.experiment.method_options)
        self.place = self.folder / self.name / f"session-{self.session + 1}"
        first = self.session == 0
        shared = first and self.method.first_session == "shared"
        self.home = self.folder / "session-1" if shared else self.place  # of release and gallery
        self.reindex = self.method.gallery_policy == "reindex"
        self.device = self.experiment.recipe.build_fabric().device
        before = self.place.with_name(f"session-{self.session}") / "session.json"
        self.previous = None if first else Ending.read(before)
        self.encoded = 0

    def to_the_end(self) -> Ending:
        """Do everything, and return the contents of ``session.json``."""
        kept = np.array(self.previous.memory if self.previous else [], np.int64)
        replayed = kept if self._replays() else kept[:0]
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
            seconds=Seconds(training=history.seconds, rest=self.seconds_of_rest),
            fingerprint=release.fingerprint,
        )
        return Ending(
            record=record,
            release=str(self.home.relative_to(self.folder)),
            galleries=[str(path.relative_to(self.folder)) for path in galleries],
            memory=memory.tolist(),
        )

    @property
    def seconds_of_rest(self) -> float:
        """Seconds since training ended."""
        return time.monotonic() - self.started

    def _replays(self) -> bool:
        always = self.method.replays == "always"
        return always or not self.setting.brings_old_classes(self.session)

    def _trained(self, images: ImageSet, replayed: int) -> Release:
        """Train the session's model, or load it where that was done."""
        previous, plan = self.previous, self.setting.plan
        experiment = self.experiment
        if self.home != self.place:  # by classification alone, whoever asks for it first
            experiment = replace(experiment, method="independent", method_options={})
        warm_start = None
        if previous:
            warm_start = WarmStart(
                replayed=np.arange(len(images)) >= len(images) - replayed,
                gallery=storage.load(self.folder / previous.galleries[-1]),
                carried=load_carried(self.place.with_name(f"session-{self.session}")),
            )
        title = f"{self.name if self.home == self.place else 'all learners'}, session {self.session + 1}"
        with nullcontext() if self.on_run is None else self.on_run(title) as on_step:
            release = train_release(
                images,
                experiment,
                self.home,
                old=load_release(self.folder / previous.release) if previous else None,
                data_name=f"{self.setting.name}, {plan.name} {self.setting.identity['plan'][:12]}, "
                f"session {self.session + 1} of {plan.sessions}",
                cache=self.place / "cache",
                warm_start=warm_start,
                select=self._validation(),
                on_step=on_step,
            )
        self.started = time.monotonic()
        looks = int(previous is not None and self.method.needs_old) + int(self.method.looks_back)
        self.encoded += looks * len(images)
        if previous and self.method.needs_old and experiment.recipe.view_for(self.method) == "same":
            self.encoded += load_history(self.home).images  # the old model looks at every augmented image
        return release

    def _validation(self) -> Callable[[nn.Module], float]:
        """Return what scores the model in training: recall@1 of the validation queries, as the test is scored."""
        queries, own = self.setting.validation(self.session), self._own_gallery()
        earlier = self._earlier_galleries()
        self.encoded += self.experiment.recipe.epochs * (len(queries) + len(own))

        def score(model: nn.Module) -> float:
            parts = chain(map(storage.load, earlier), (self._encoded(model, images) for images in (own,)))
            found = hits(self._encoded(model, queries), parts, (1,))
            return float(found[1].mean())

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
        """Return what this session embeds: its own images, or all so far where the gallery is embedded again."""
        rows = self.setting.seen_rows(self.session) if self.reindex else self.setting.plan.rows(self.session)
        return self.setting.training(rows, self.session)

    def _earlier_galleries(self) -> list[Path]:
        return [] if self.reindex or not self.previous else [self.folder / part for part in self.previous.galleries]

    def _look_back(self, release: Release, images: ImageSet) -> None:
        """Let the learner see the end of a first session that others trained."""
        with seeded(0):  # building draws initial weights that are overwritten at once
            encoder = release.encoder.spec.build(freeze_backbone=self.experiment.freeze_backbone)
        encoder.load_state_dict(release.encoder.state_dict())
        if release.head is None:
            raise DataError("The first session's release has no classifier.", expected="a release with its classifier")
        loader = encoding_loader(images, batch_size=self.experiment.recipe.batch_size)
        head = copy.deepcopy(release.head).to(self.device)
        self.method.to(self.device).on_session_end(encoder.to(self.device), head, loader)
        save_carried(self.method, self.place)

    def _embedded(self, release: Release) -> Path:
        """Embed the session's gallery, once."""
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
        found = hits(self._embed(release, queries), map(storage.load, galleries), KS)
        return scores_of(found, queries.labels, self.setting)

    def _memory(self, release: Release, own: Rows, kept: Rows) -> Rows:
        """Choose the exemplars of the next session among the session's own images and those kept so far."""
        if self.method.memory is None or self.session + 1 == self.setting.plan.sessions:
            return kept[:0]
        rows = np.concatenate([own, kept])
        candidates = self.setting.training(rows, self.session)
        self.encoded += passes(self.method.memory, first=self.session == 0) * len(rows)
        choose, budget = EXEMPLARS[self.method.memory], self.setting.budget or len(rows)
        seed = self.experiment.seed * 1009 + self.session  # other draws in every session
        chosen = choose(
            candidates, release, budget, first=self.session == 0, seed=seed, batch_size=BATCH, device=self.device
        )
        return rows[chosen]


def read_plain(path: Path) -> dict[str, Any]:
    """Read plain values from a JSON file of this run.

    Raises:
        DataError: The file is missing or damaged.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(found, dict):
        raise _unreadable(path, "it does not hold names with values")
    return found


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        f"Cannot read '{path}': {reason}.",
        expected="what this run wrote there before",
        to_do="remove this one file, and the same command writes it again; models and galleries are intact.",
    )


def write_plain(path: Path, values: Mapping[str, Any]) -> None:
    """Write plain values to a JSON file, wholly or not at all."""
    text = json.dumps(values, indent=1) + "\n"
    storage.write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
