"""Frozen text models, whose fingerprint covers everything that determines their vectors."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from limpet.data.text_files import OnEmpty
from limpet.data.text_set import TextSet
from limpet.embeddings import EmbeddingSet, Form, Role, StringArray, storage
from limpet.embeddings.embedding_set import as_points
from limpet.errors import ConfigError, DataError, ReleaseError, refuse
from limpet.geometry import Hypersphere
from limpet.models.api.settings import ApiSettings, refuse_unlisted
from limpet.models.long_texts import SHORT_BYTES, LongTexts, OnLong, TokenLimit
from limpet.models.names import ModelName
from limpet.models.text_folders import SOURCES, WITHIN, contract_fingerprint, find_model, is_remote
from limpet.registry import Registry
from limpet.support.devices import device_named
from limpet.support.progress import Progress, Told, listener, showing
from limpet.support.ranges import PositiveInt, checked

if TYPE_CHECKING:
    import torch

BATCH_SIZE = 64


@dataclass(frozen=True)
class TextSettings:
    """Settings by which a frozen model embeds texts.

    Args:
        query_prefix: Text before every query; the model's own when left out, "" for none.
        document_prefix: Text before every document; the model's own when left out, "" for none.
        max_length: Maximum number of tokens per text; the model's own when left out.
        truncate_dim: Truncate vectors to this many dimensions (Matryoshka models).
        on_long: Treatment of texts with more tokens than the model reads: "warn" truncates and counts them, "fail"
            refuses them, "chunk-mean" embeds the mean of their windows. "warn" when left out.
    """

    query_prefix: str | None = None
    document_prefix: str | None = None
    max_length: int | None = None
    truncate_dim: int | None = None
    on_long: str | None = None


class TextNetwork(Protocol):
    """Network from texts to vectors; one class per kind of model.

    Args:
        dim: Dimension D of the vectors.
        fingerprint: ``text:<sha256>`` over everything that determines them: digests of the files, precision, pooling,
            lengths; ``api:<digits>`` for a model behind an API, from its address and probe answers.
        prompts: The model's own prefix per role; None for "both" if it has no prefix for all texts.
    """

    dim: int
    fingerprint: str
    prompts: dict[str, str | None]

    def __call__(self, texts: list[str], prefix: str) -> NDArray[np.float32]:
        """Return raw vectors (N, D) of texts with a prefix."""
        ...


class TextService(Protocol):
    """Opener of models behind a service, named by a scheme before a colon; one class per kind of service."""

    def short_name(self, place: str) -> str:
        """Return a name for a folder with the embeddings of a model."""
        ...

    def may_be(self, place: str, fingerprint: str, dim: int, truncate_dim: int | None) -> bool:
        """Return whether a model can have a fingerprint, as far as is known without a request to its server.

        Args:
            place: The text after the colon of the model's name.
            fingerprint: The expected fingerprint.
            dim: Dimension of the vectors.
            truncate_dim: Truncate embeddings to this many dimensions.
        """
        ...

    def open(
        self,
        place: str,
        *,
        max_length: int | None,
        truncate_dim: int | None,
        settings: ApiSettings,
        known: Iterable[str],
    ) -> TextNetwork:
        """Open a model.

        Args:
            place: The text after the colon of the model's name.
            max_length: Maximum number of tokens per text; longer texts are truncated.
            truncate_dim: Truncate embeddings to this many dimensions.
            settings: Request settings.
            known: Fingerprints that the model may already have.
        """
        ...


TEXT_SERVICES: Registry[TextService] = Registry(
    "service of text models",
    "text_services",
    {"openai": "limpet.models.api.openai:OPENAI"},
    fits=lambda service: all(callable(getattr(service, name, None)) for name in ("open", "may_be", "short_name")),
    expected="an object with open(), may_be() and short_name(), as limpet.models.text_encoders.TextService says",
)


def is_service(model: ModelName) -> bool:
    """Return whether a name refers to a model behind an API."""
    return model.scheme in TEXT_SERVICES


def refuse_named_in(file: str | Path, model: str) -> None:
    """Refuse a model behind an API that a file of settings names, unless the user listed its server.

    Raises:
        ConfigError: LIMPET_API_HOSTS does not list it.
    """
    if model.partition(":")[0] in TEXT_SERVICES and not Path(model).is_dir():
        refuse_unlisted(model.rpartition("@")[2], model, file)


def recorded_model(release: Path, recorded: str) -> ModelName:
    """Return the text model that a release's record names, if it is on this machine.

    A folder from an untrusted source must not choose the server that receives texts and a key, nor the files to
    download.

    Raises:
        ReleaseError: The model is behind an API, on the hub but not in its cache, or code, or ``within:`` leads out of
            the folder.

    >>> recorded_model(Path("runs/tuned"), "within:text_model"), recorded_model(Path("runs/head"), "package:minilm")
    (ModelName('st:runs/tuned/text_model'), ModelName('package:minilm'))
    """
    if recorded.startswith(WITHIN):
        place = release / recorded.removeprefix(WITHIN)
        if not place.resolve().is_relative_to(release.resolve()):
            raise ReleaseError(
                f"The release '{release}' names a text model outside of its folder: {recorded}.",
                expected="one within it",
                to_do="get the release again from where it came.",
            )
        return ModelName(f"st:{place}")
    named = ModelName.of(recorded, bare="st")
    if named.scheme not in ("st", "package") or is_remote(named):
        where = "behind an API" if is_service(named) else "neither on this machine nor in the cache of the hub"
        raise ReleaseError(
            f"The release '{release}' is a head over {named}, which is {where}.",
            expected="a model on this machine, or one that you name: a folder does not decide what receives your "
            "texts and your key, or what is downloaded",
            to_do=f"if you trust it, add {shlex.join(['--over', str(named)])}.",
            intact="Nothing was sent.",
        )
    return named


def refuse_another(model: ModelName, fingerprint: str, dim: int, truncate_dim: int | None, owner: str | Path) -> None:
    """Refuse a model behind an API that cannot be the one a folder was made with, before any request.

    Raises:
        ReleaseError: The address or the dimension differs.
    """
    if is_service(model) and not TEXT_SERVICES[model.scheme].may_be(model.place, fingerprint, dim, truncate_dim):
        raise ReleaseError(
            f"'{owner}' was made with the model {fingerprint}, which is not {model}.",
            expected="the very model, at the same URL and with the same truncate-dim",
            to_do="pass --over with the model that it was made with.",
            intact="Nothing was sent.",
        )


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A frozen text model.

    Args:
        name: Name given by the user.
        fingerprint: ``text:<sha256>`` over weights, architecture, tokenizer, pooling, normalisation, precision, maximum
            length and dimension. Role and prefix are recorded separately.
        dim: Dimension D of the vectors.
        prefixes: Prefixes for queries, for documents, and for texts that are both (None: undecided).
        network: Network from texts to vectors.
        limit: Token counter and maximum number of tokens per text; None if unknown.
        on_long: Treatment of longer texts.
    """

    name: str
    fingerprint: str
    dim: int
    prefixes: Mapping[str, str | None]
    network: TextNetwork
    limit: TokenLimit | None = None
    on_long: OnLong = "warn"

    def __post_init__(self) -> None:
        limit = None if self.limit is None else self.limit.tokens
        object.__setattr__(self, "long_texts", LongTexts(self.name, limit, known=self.limit is not None))

    long_texts: LongTexts = field(init=False, repr=False)
    """Statistics of texts that the model truncates, since it was opened."""

    def __repr__(self) -> str:
        return f"TextEncoder('{self.name}', {self.dim} dimensions, {self.fingerprint[:24]})"

    def prefix(self, role: Role) -> str:
        """Return the prefix for texts of a role.

        Raises:
            ConfigError: The texts are both query and document, and the model has different prefixes for the two.
        """
        found = self.prefixes[role]
        if found is None:
            raise ConfigError(
                f"The text model '{self.name}' puts '{self.prefixes['query']}' before a query and "
                f"'{self.prefixes['document']}' before a document, and these texts are both.",
                expected="one role, or one prefix for both",
                to_do="pass --role query or --role document; or the same --model-options.query-prefix"
                " and .document-prefix.",
            )
        return found

    @showing("embed")
    @checked
    def encode(
        self,
        texts: Sequence[str],
        *,
        role: Role = "both",
        batch_size: PositiveInt = BATCH_SIZE,
        progress: Progress[Told] = None,
    ) -> NDArray[np.float32]:
        """Return the vectors (N, D) of texts as the model returns them, without further normalisation.

        With ``on_long="chunk-mean"``, the vector of a text with too many tokens is the mean of the unit vectors of its
        windows, as a unit vector.

        Args:
            texts: Texts to embed; longer ones go first, so that a batch holds texts of similar length.
            role: Role of the texts for the model, which determines the prefix.
            batch_size: Number of texts per batch.
            progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" texts.

        Raises:
            DataError: A text has too many tokens and ``on_long`` is "fail"; nothing was embedded.
        """
        prefix, given = self.prefix(role), list(texts)
        long = self.notice(given, role)
        vectors, done = np.empty((len(given), self.dim), np.float32), 0
        order = np.argsort([-len(text) for text in given], kind="stable")
        if self.limit is not None and self.on_long == "chunk-mean":
            order = order[~np.isin(order, long)]
            for row in long.tolist():
                parts = self.limit.windows(given[row], prefix)
                found = np.concatenate([
                    self.network(parts[start : start + batch_size], prefix)
                    for start in range(0, len(parts), batch_size)
                ])  # fmt: skip
                mean = (found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)).mean(axis=0)
                vectors[row] = mean / max(float(np.linalg.norm(mean)), 1e-12)
                done += 1
                listener(progress)({"done": done, "total": len(given)})
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            vectors[rows] = self.network([given[row] for row in rows], prefix)
            done += len(rows)
            listener(progress)({"done": done, "total": len(given)})
        return vectors

    def notice(self, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
        """Count the texts with more tokens than the model reads in `long_texts`, and return their rows.

        Raises:
            DataError: Such a text exists, and ``on_long`` is "fail".
        """
        told = self.long_texts
        told.read += len(texts)
        if self.limit is None:
            told.long += sum(len(text.encode("utf-8", "replace")) > SHORT_BYTES for text in texts)
            return np.empty(0, np.int64)
        counts = self.limit.counts(texts, self.prefix(role))
        rows = np.flatnonzero(counts > (self.limit.tokens or np.inf))
        if len(rows):
            told.long, told.longest = told.long + len(rows), max(told.longest, int(counts.max()))
            if self.on_long == "fail":
                raise told.refusal()
        return rows


@checked
def open_text_encoder(
    model: str | Path | ModelName,
    *,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    max_length: PositiveInt | None = None,
    truncate_dim: PositiveInt | None = None,
    on_long: OnLong | None = None,
    device: torch.device | str = "cpu",
    api: ApiSettings | None = None,
    known: Iterable[str] = (),
) -> TextEncoder:
    """Open a frozen text model; none of its files is executed or unpickled.

    Args:
        model: st:FOLDER or the folder alone (a sentence-transformers model; or static word embeddings as wordllama and
            model2vec lay them out), st:OWNER/NAME on the hub, package:NAME for an installed Python package that carries
            its weights, or ``openai:MODEL@BASE_URL`` for a model behind an OpenAI-compatible API; see `TEXT_SERVICES`.
        query_prefix: Text before every query; the model's own when left out, "" for none.
        document_prefix: Text before every document; the model's own when left out, "" for none.
        max_length: Maximum number of tokens per text; the model's own when left out.
        truncate_dim: Truncate embeddings to this many dimensions (Matryoshka models).
        on_long: How to treat a text with more tokens than the model reads: "warn" truncates and counts it, "fail"
            refuses it, "chunk-mean" embeds the mean of its windows, which is another model with another fingerprint.
            "warn" when left out.
        device: Device to compute on; static word embeddings always use the CPU.
        api: Request settings for a model behind an API.
        known: Fingerprints that a model behind an API may already have, such as those of a gallery. Its answers vary a
            little, so it gets the one that they agree with.

    Raises:
        ConfigError: The model does not exist or cannot be used, or a setting is out of range.
        ApiError: The server of a model refuses, cannot be reached, or answers wrongly.
    """
    named = ModelName.of(model, bare="st")
    if is_service(named):
        network = TEXT_SERVICES[named.scheme].open(
            named.place, max_length=max_length, truncate_dim=truncate_dim, settings=api or ApiSettings(), known=known
        )
    else:
        network = _network(find_model(named), max_length, truncate_dim, device_named(device))
    # those given, else the model's own; for "both" only an unambiguous one
    query = network.prompts["query"] if query_prefix is None else query_prefix
    document = network.prompts["document"] if document_prefix is None else document_prefix
    both = network.prompts["both"] if query_prefix is None and document_prefix is None else None
    if both is None and query == document:
        both = query
    limit: TokenLimit | None = getattr(network, "limit", None)
    refuse(
        limit is None and on_long in ("fail", "chunk-mean"),
        f"on_long = {on_long!r} for '{named}', whose tokenizer is not known here.",
        "a model on this machine; a server counts the tokens of its model itself",
    )
    means = on_long == "chunk-mean" and limit is not None and limit.tokens is not None
    return TextEncoder(
        name=str(named),
        fingerprint=contract_fingerprint({"of": network.fingerprint, "long texts": on_long})
        if means
        else network.fingerprint,
        limit=limit,
        on_long=on_long or "warn",
        dim=network.dim,
        prefixes={"query": query, "document": document, "both": both},
        network=network,
    )


def _network(folder: Path, max_length: int | None, truncate_dim: int | None, device: torch.device) -> TextNetwork:
    """Build the network of a folder; model2vec goes first, because its folders may have ``modules.json`` too."""
    from limpet.models.static_words import StaticWords, static_files

    files = static_files(folder)
    if files is not None and (files.distilled or not (folder / "modules.json").exists()):
        return StaticWords(files, max_length, truncate_dim)
    if (folder / "modules.json").exists():
        from limpet.models.sentence_models import SentenceModel

        return SentenceModel(folder, max_length, truncate_dim, device)
    found = ", ".join(sorted(file.name for file in folder.iterdir())[:8]) or "nothing"
    raise ConfigError(
        f"'{folder}' holds {found}.",
        expected="a sentence-transformers model (with modules.json, which says how words become one vector), or static "
        "word embeddings (a .safetensors file and tokenizer.json)",
        to_do=f"give {SOURCES}.",
    )


@showing("embed")
def embed_texts(
    encoder: TextEncoder,
    texts: TextSet,
    *,
    role: Role = "both",
    form: Form = "points",
    batch_size: int = BATCH_SIZE,
    cache: Path | None = None,
    on_empty: OnEmpty = "fail",
    progress: Progress[Told] = None,
) -> EmbeddingSet:
    """Embed a set of texts; rows, ids, labels and classes are those of the texts.

    Args:
        encoder: The model.
        texts: Texts to embed.
        role: Role of the texts for the model, which determines the prefix.
        form: "points" on the hypersphere for queries and galleries, "features" for vectors as the model returned them.
        batch_size: Number of texts per batch.
        cache: Cache folder for the features; cached features of this model, role, prefix and these texts are opened
            instead of embedding again.
        on_empty: Treatment of a text without any known token, whose vector is zero: "fail", or "skip" to leave it out.
        progress: "rich" or "tqdm" for a bar, or a function that is called with "done" and "total" texts; not called for
            cached texts.

    Raises:
        ConfigError: The texts are both query and document, and the model has different prefixes for the two.
        DataError: The set of texts is empty, or a vector is zero or not finite.
    """
    if len(texts) == 0:
        raise DataError("There is nothing to encode.", expected="at least one text")
    path = None if cache is None else cache / _cache_name(encoder, texts, role)
    if path is not None and path.exists():
        encoder.notice(texts.texts, role)
        features = storage.load(path)
    else:
        vectors = encoder.encode(texts.texts, role=role, batch_size=batch_size, progress=progress)
        if on_empty == "skip":
            known = np.flatnonzero(np.any(vectors != 0, axis=1))
            vectors, texts = vectors[known], texts[known]
        features = _with_identity(vectors, encoder, texts, role)
        if path is not None:
            storage.save(features, path)
    return features if form == "features" else as_points(features)


def _with_identity(vectors: NDArray[np.float32], encoder: TextEncoder, texts: TextSet, role: Role) -> EmbeddingSet:
    return EmbeddingSet(
        ids=texts.ids,
        vectors=vectors,
        fingerprint=encoder.fingerprint,
        space=Hypersphere(encoder.dim),
        role=role,
        form="features",
        labels=texts.labels,
        class_names=None if texts.labels is None else StringArray.of(texts.class_names),
        prefix=encoder.prefix(role),
        contents=texts.digests(),
    )


def _cache_name(encoder: TextEncoder, texts: TextSet, role: Role) -> str:
    asked = hashlib.sha256(repr((role, encoder.prefix(role))).encode()).hexdigest()
    parts = (encoder.fingerprint.split(":")[1], asked, texts.digest())
    return f"texts-{'-'.join(part[:16] for part in parts)}.safetensors"
