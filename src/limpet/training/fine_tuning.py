"""Fine-tuning a text model so that its queries search the gallery of an old one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from limpet.support.extras import importing
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import checked

with importing(__name__):
    import torch
    from torch import Tensor

from limpet.adapters.storage import GALLERY_ADAPTER
from limpet.data.augment import Augmentation
from limpet.data.text_pairs import TextPairs
from limpet.data.text_set import TextSet
from limpet.data.token_set import PairedTokens, TokenSet
from limpet.data.vector_set import VectorSet
from limpet.embeddings import EmbeddingSet, Role, StringArray
from limpet.embeddings.same_items import refuse_lengths
from limpet.errors import ConfigError, DataError, refuse, shown
from limpet.geometry import Hypersphere
from limpet.methods import build_method, classless_options
from limpet.models.pair_losses import PairLoss, RankingLoss
from limpet.models.release import Release, load_release
from limpet.models.release_record import FrozenModel
from limpet.models.sentence_models import SentenceModel
from limpet.models.specs import TextSpec
from limpet.models.text_encoders import TextEncoder, embed_texts, open_text_encoder, recorded_model
from limpet.models.text_folders import TEXT_MODEL, WITHIN
from limpet.models.text_tower import tokens_of
from limpet.training.code import code_of
from limpet.training.compatible_head import (
    CompatibleHead,
    frozen_release,
    load_head,
    on_its_space,
    paired,
    ridge_start,
    save_gallery_adapter,
    train_head,
)
from limpet.training.encode import embed_features
from limpet.training.events import TrainingStep
from limpet.training.experiment import TEXT_RECIPE, Experiment, head_recipe
from limpet.training.loggers import OpenLogger
from limpet.training.record import set_aside
from limpet.training.run_state import prefixed
from limpet.training.train import CLASSIFIER, train_release

Start = Literal["head", "ridge", "random"]
START = "start"
"""Folder within a release for the head that its training started from."""
OF_PAIRS = "l2"
"""Default method for training on pairs."""


@dataclass(frozen=True)
class FineTuned:
    """A fine-tuned text model, as a head over its trained layers.

    Args:
        head: The projection, with the old model lifted to its space if the two spaces differ.
        encoder: The text model in the release's folder; its own vectors are not those of the release.
    """

    head: CompatibleHead
    encoder: TextEncoder

    @property
    def release(self) -> Release:
        """The trained release; its fingerprint covers tokenizer, pooling and lengths of the text model as well."""
        return self.head.release

    def embed(self, texts: TextSet, *, role: Role = "both", batch_size: int = 64) -> EmbeddingSet:
        """Embed texts: queries, and documents once the gallery is re-embedded."""
        return embed_features(self.release, embed_texts(self.encoder, texts, role=role, batch_size=batch_size))

    def gallery(self, old: EmbeddingSet) -> EmbeddingSet:
        """Return the old model's embeddings in the form that is searched; no item is re-embedded."""
        return self.head.gallery(old)


@showing("training")
@checked
def fine_tune(
    old: EmbeddingSet,
    texts: TextSet | TextPairs,
    encoder: TextEncoder,
    experiment: Experiment | None,
    folder: Path,
    *,
    role: Role = "both",
    task: PairLoss | None = None,
    start: Start | None = None,
    cache: Path | None = None,
    data_name: str = "",
    progress: Progress[TrainingStep] = None,
    loggers: Sequence[OpenLogger] = (),
    again: bool = False,
) -> FineTuned:
    """Fine-tune a text model so that its vectors search the embeddings of an old model, and save a release.

    Training is the ordinary training of any method with labels; with pairs or triplets, of any method that needs no
    labels. A head over the unchanged model is trained first, then the whole model, so that an untrained projection and
    classifier do not distort its layers (Kumar et al., ICLR 2022, arXiv:2202.10054). The classifier of the old model
    consists of its class means. With pairs, the projection alone is fitted first, as the ridge map of new to old
    embeddings, and there are no classifiers.

    Args:
        old: Embeddings of the old model, on the hypersphere, as the gallery has them.
        texts: The same items, matched by id; either side has labels. Or pairs of texts, each of which is its own id.
        encoder: The text model that training starts from; it is not changed.
        experiment: Training settings. Of its model, only ``projection`` ("linear" or "mlp") and ζ count; None trains
            p2s, or `OF_PAIRS` with pairs, by `TEXT_RECIPE`.
        folder: Folder of the release, which holds the text model in ``text_model``. A finished release of the same
            settings and data is loaded instead; an unfinished run is continued.
        role: Role of the texts for the model. With "both" and different prefixes for the two roles, every other text is
            a query and the others are documents; in pairs, every anchor is a query and all others are documents.
        task: Loss on pairs; `RankingLoss` when left out.
        start: Initial weights. "head", the default with labels, starts from a head that `train_head` trains by the same
            method; it is kept in ``start`` within the release, for comparison. "ridge", the default with pairs, and
            "random" set the projection alone; see `train_head`.
        cache: Cache folder for the model's embeddings of the texts before training.
        data_name: Name of the data, for the record.
        progress: "rich" or "tqdm" for a bar, or a function that is called with every `TrainingStep`.
        loggers: Openers of loggers beside ``events.jsonl``; see `limpet.training.loggers`.
        again: Retrain if the code has changed; see `train_release`.

    Raises:
        ConfigError: The model cannot be trained, or settings are wrong.
        DataError: Neither side has labels, the labels of both disagree, or they have fewer than two classes; or a text
            of a pair has no old embedding.
        SpaceMismatchError: The old embeddings are not on the hypersphere.
        EmptyOverlapError: No id occurs in both.
    """
    paired_texts = isinstance(texts, TextPairs)
    experiment = experiment or Experiment(method=OF_PAIRS if paired_texts else "p2s", recipe=TEXT_RECIPE)
    start = start or ("ridge" if paired_texts else "head")
    if isinstance(texts, TextPairs):
        refuse(start == "head", "start='head' of pairs.", "'ridge', or 'random': a head is trained with labels")
        refuse(
            experiment.head is not None, f"The classifier '{experiment.head}' for pairs.", "none: they have no classes"
        )
        options = classless_options(experiment.method, experiment.method_options)
        experiment = dataclasses.replace(experiment, method_options=options)
        task = task or RankingLoss(texts.width)
    else:
        refuse(task is not None, f"{task} for texts with labels.", "pairs or triplets; or no task")
    refuse(
        experiment.recipe.augmentation != Augmentation(),
        "Random changes of images, for a model of text.",
        "no --recipe.augmentation",
    )
    network = refuse_untrainable(encoder)
    refuse(encoder.on_long == "chunk-mean", "--model-options.on-long chunk-mean, for a model to fine-tune.",
           "warn, or fail: training reads the first tokens of a text")  # fmt: skip
    new = embedded_before(encoder, texts, role, cache=cache)
    before, after = _each_its_own(old, new) if paired_texts else paired(old, new)
    method, asked = build_method(experiment.method, experiment.method_options), experiment
    predecessor = after if method.stays else before
    spec = TextSpec(
        frozen=encoder.fingerprint, width=encoder.dim, dim=predecessor.all.dim, projection=experiment.model.projection,
        zeta=experiment.model.zeta, place=str(network.folder), max_length=network.max_length,
        truncate_dim=network.truncate_dim, query_prefix=encoder.prefix("query"),
        document_prefix=encoder.prefix("document"),
    )  # fmt: skip
    experiment = on_its_space(dataclasses.replace(experiment, model=spec), method, predecessor.all.space.name)
    if again:
        set_aside(folder, code_of(experiment))  # with the head that it started from
    first = _start(start, before.embeddings, after.embeddings, asked, folder, progress)
    tokens = _tokens(network, encoder, texts, role)
    rows = _each(texts).ids.find(after.ids)
    contents = _each(texts).digests()[rows]
    items = TokenSet.of([tokens[row] for row in rows], after.labels, after.class_names, after.ids, contents)
    if isinstance(texts, TextPairs):
        items = PairedTokens(**vars(items), pairs=texts.rows)
    frozen: FrozenModel = {
        "model": f"{WITHIN}{TEXT_MODEL}", "query_prefix": spec.query_prefix, "document_prefix": spec.document_prefix,
        "truncate_dim": spec.truncate_dim,
    }  # fmt: skip
    release = train_release(
        items, experiment, folder, old=frozen_release(predecessor), old_embeddings=predecessor.all, gallery=before.all,
        start=first, frozen_model=frozen, task=task, data_name=data_name, progress=progress, loggers=loggers,
        again=again,
    )  # fmt: skip
    if method.stays and not (folder / GALLERY_ADAPTER).exists():
        own = FineTuned(CompatibleHead(release, None), _text_model(folder, release)).embed(_each(texts), role=role)
        save_gallery_adapter(method, before.all, own, folder)
    return load_fine_tuned(folder, release)


def load_fine_tuned(folder: Path, release: Release | None = None, *, device: torch.device | str = "cpu") -> FineTuned:
    """Open a release that `fine_tune` saved.

    Raises:
        ReleaseError: The folder holds no release, or a file of it was altered.
        ConfigError: The text model in it cannot be opened.
    """
    release = load_release(folder) if release is None else release
    encoder = _text_model(folder, release, device)
    head = load_head(folder, release)
    embed_features(release, _nothing_of(encoder))  # refuses a text model other than the one of the release
    return FineTuned(head, encoder)


def _text_model(folder: Path, release: Release, device: torch.device | str = "cpu") -> TextEncoder:
    recorded = dict(release.record.frozen_model or {})
    place = recorded_model(folder, str(recorded.pop("model", f"{WITHIN}{TEXT_MODEL}")))
    settings = {name: value for name, value in recorded.items() if name in FrozenModel.__annotations__}
    return open_text_encoder(place, device=device, **settings)


def refuse_untrainable(encoder: TextEncoder) -> SentenceModel:
    """Return the network of a text model that can be fine-tuned.

    Raises:
        ConfigError: The model has no network: static word embeddings, or a model behind an API.
    """
    if not isinstance(encoder.network, SentenceModel):
        raise ConfigError(
            f"The text model '{encoder.name}' is no network of the sentence-transformers library.",
            expected="one with layers that can be fine-tuned, on this machine",
            to_do="`limpet adapt` trains a head over any model: static words, or one behind an API.",
        )
    return encoder.network


def _start(
    start: Start,
    old: EmbeddingSet,
    new: EmbeddingSet,
    experiment: Experiment,
    folder: Path,
    progress: Progress[TrainingStep],
) -> dict[str, Tensor] | None:
    """Return the initial weights in addition to those of the text model; None for random ones."""
    if start == "head":
        recipe = dataclasses.replace(head_recipe(len(old)), accelerator=experiment.recipe.accelerator)
        head = train_head(
            old, new, dataclasses.replace(experiment, recipe=recipe), folder / START, progress=progress
        ).release
        classifier = {} if head.head is None else head.head.state_dict()
        return {**head.encoder.state_dict(), **prefixed(CLASSIFIER, classifier)}
    method = build_method(experiment.method, experiment.method_options)
    from_map = start == "ridge" and experiment.model.projection == "linear" and method.needs_old and not method.stays
    return ridge_start(old, new) if from_map else None


def _each(texts: TextSet | TextPairs) -> TextSet:
    return texts.texts if isinstance(texts, TextPairs) else texts


def _each_its_own(old: EmbeddingSet, new: EmbeddingSet) -> tuple[VectorSet, VectorSet]:
    """Return the old and new embeddings of the texts of pairs, in the order of the new ones; each text is a class.

    Raises:
        DataError: A text has no old embedding.
    """
    refuse_lengths(old, new, "fine-tuning reads")
    rows = old.ids.find(new.ids)
    if (rows < 0).any():
        raise DataError(
            f"The old embeddings lack {(rows < 0).sum()} of {len(rows)} texts: {shown(new.ids[rows < 0])}.",
            expected="a row for every text of the pairs, with the text itself as its id",
            to_do="let the old model embed them here: --old st:MODEL.",
        )
    names = StringArray.of([str(row) for row in range(len(rows))])
    before, after = (one.replace(labels=np.arange(len(rows)), class_names=names) for one in (old[rows], new))
    return VectorSet(before), VectorSet(after)


def _parts(encoder: TextEncoder, role: Role, texts: TextSet | TextPairs) -> list[tuple[NDArray[np.int64], Role]]:
    rows = np.arange(len(_each(texts)))
    if role == "both" and encoder.prefixes["both"] is None:
        asks = np.isin(rows, texts.rows[:, 0]) if isinstance(texts, TextPairs) else rows % 2 == 0
        return [(rows[asks], "query"), (rows[~asks], "document")]
    return [(rows, role)]


@showing("embed")
def embedded_before(
    encoder: TextEncoder,
    texts: TextSet | TextPairs,
    role: Role = "both",
    *,
    cache: Path | None = None,
    progress: Progress[Told] = None,
) -> EmbeddingSet:
    """Return the embeddings of a text model before fine-tuning, with the roles that training uses.

    Args:
        encoder: The text model.
        texts: Texts to embed.
        role: See `fine_tune`.
        cache: Cache folder for the embeddings.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" texts.
    """
    every = _each(texts)
    vectors = np.empty((len(every), encoder.dim), np.float32)
    done = 0

    def embedded(event: Told) -> None:
        listener(progress)({"done": done + event["done"], "total": len(every)})

    for rows, one in _parts(encoder, role, texts):
        vectors[rows] = embed_texts(encoder, every[rows], role=one, cache=cache, progress=embedded).vectors
        done += len(rows)
    names = None if every.labels is None else StringArray.of(every.class_names)
    return EmbeddingSet(
        vectors, every.ids, encoder.fingerprint, Hypersphere(encoder.dim), labels=every.labels, class_names=names,
        contents=every.digests(),
    )  # fmt: skip


def _tokens(
    network: SentenceModel, encoder: TextEncoder, texts: TextSet | TextPairs, role: Role
) -> list[NDArray[np.int64]]:
    found: dict[int, NDArray[np.int64]] = {}
    for rows, one in _parts(encoder, role, texts):
        made = tokens_of(network.opened, list(_each(texts).texts[rows]), encoder.prefix(one))
        found |= dict(zip(rows.tolist(), made, strict=True))
    return [found[row] for row in range(len(found))]


def _nothing_of(encoder: TextEncoder) -> EmbeddingSet:
    vectors = np.empty((0, encoder.dim), np.float32)
    return EmbeddingSet(vectors, StringArray.of([]), encoder.fingerprint, Hypersphere(encoder.dim))
