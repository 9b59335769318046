"""``limpet embed``: make embeddings of images or texts, or carry stored ones over to another space.

Every model gets a folder of its name below --out, with query.safetensors and gallery.safetensors (for texts also
train.safetensors); or with embeddings.safetensors, where every item is a query among all others. Other commands take
that folder, and --out itself while it holds those of one model.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from limpet.cli.console import as_json, console, counting_progress, long_texts, print_json, print_table
from limpet.cli.options import Api, DataSets, Reading, TextModel
from limpet.cli.parameters import RARE, Options
from limpet.cli.places import Place
from limpet.cli.settings import Settings
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.files import files_in, model_folder
from limpet.errors import ConfigError, ReleaseError, refuse, shown
from limpet.reports.formats import score
from limpet.support.devices import device_named

if TYPE_CHECKING:
    from limpet.adapters import Adapter
    from limpet.data.image_set import ImageSet
    from limpet.data.retrieval_data import RetrievalData
    from limpet.data.text_set import TextSet
    from limpet.embeddings import Role
    from limpet.models.release import Release
    from limpet.models.specs import EncoderSpec
    from limpet.models.text_encoders import TextEncoder

Model = TypeVar("Model", Path, str)
Carry = Callable[[EmbeddingSet], EmbeddingSet]
Part = Literal["evaluation", "train", "validation", "all"]

WORDS = {"train": "training", "validation": "validation"}
"""What the parts of a data set are called, where it lacks them."""

ROLES: Mapping[str, Role] = {"train": "document", "query": "query", "gallery": "document"}
"""What the parts of a data set of texts are to a model; what is fitted on ``train`` is used on a gallery's side."""


@dataclass(frozen=True)
class Made:
    """What is said of one file of embeddings.

    Args:
        by: What made it: "release", "text_model" or "adapter" with its name or folder.
        file: Where it is.
        items: How many it holds.
        dim: Of its vectors.
        fingerprint: Of the model.
        role: What the items were to the model.
        prefix: That stood before every text.
        mean_uncertainty: Of its items; None where the model knows none.
        without_text: Ids of items that were skipped, since they have no text.
    """

    by: Mapping[str, str]
    file: Path
    items: int
    dim: int
    fingerprint: str
    role: Role
    prefix: str
    mean_uncertainty: float | None
    without_text: Sequence[str] = ()

    @classmethod
    def of(
        cls, by: Mapping[str, str], embeddings: EmbeddingSet, file: Path, *, without_text: Sequence[str] = ()
    ) -> Made:
        """Save embeddings, and return what is said of them."""
        from limpet.embeddings import storage
        from limpet.evaluation.uncertainty import uncertainty_of

        known = uncertainty_of(embeddings)
        return cls(
            by, storage.save(embeddings, file), len(embeddings), embeddings.dim, embeddings.fingerprint,
            embeddings.role, embeddings.prefix, None if known is None else float(known.mean()), without_text,
        )  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        """Return what is printed of it for machines."""
        facts = {name: value for name, value in vars(self).items() if name != "by"}
        return {**self.by, **facts, "file": str(self.file)}


@dataclass(frozen=True)
class Destination(Options):
    """Where embeddings go.

    Args:
        out: Folder for the embeddings, in which every model gets one of its own.
    """

    out: Path

    def folders(self, models: Sequence[Model], what: str) -> dict[Model, Path]:
        """Return where the embeddings of every model go.

        Raises:
            ConfigError: No model was given, two have one name, or older embeddings would lie beside theirs.
        """
        from limpet.models.text_encoders import short_name

        refuse(not models, f"No {what} was given.", f"--{what.replace(' ', '-')} MODEL [MODEL ...]")
        there = files_in(self.out)
        if there:
            raise ConfigError(
                f"--out '{self.out}' holds embeddings itself: {', '.join(there[:4])}.",
                expected="a folder in which every model gets one of its own",
                to_do="name another --out, or move these files.",
                intact="They are intact, and nothing was embedded.",
            )
        names = [short_name(model) for model in models]
        refuse(
            len(set(names)) < len(names),
            f"{what.capitalize()}s of the same name: {', '.join(names)}.",
            "names whose last parts differ",
        )
        return {model: self.out / name for model, name in zip(models, names, strict=True)}

    def tell(self, made: Sequence[Made], settings: Settings) -> int:
        """Write the settings beside what was made, and say where it is."""
        for folder in {one.file.parent for one in made}:
            settings.write(folder)
        if as_json():
            long = [one.to_dict() for one in long_texts()]
            print_json({"embeddings": [one.to_dict() for one in made], "long_texts": long})
        for one in made:
            if one.without_text:
                count, ids = len(one.without_text), shown(one.without_text)
                console.print(f"{one.file}: {count:,} items are without text and were skipped: {ids}.")
        print_table("Embeddings", *table_of(made))
        return 0


def table_of(made: Sequence[Made]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows for people: roles, prefixes and uncertainties only where there are any."""
    columns = [*(name.replace("_", " ") for name in made[0].by), "file", "items", "dimension"]
    rows = [[*one.by.values(), str(one.file), f"{one.items:,}", str(one.dim)] for one in made]
    further: dict[str, list[str]] = {}
    if any(one.role != "both" for one in made):
        further["role"] = [one.role for one in made]
    if any(one.prefix for one in made):
        further["prefix"] = [repr(one.prefix) for one in made]
    if any(one.mean_uncertainty is not None for one in made):
        further["mean uncertainty"] = [score(one.mean_uncertainty) for one in made]
    rows = [[*row, *more] for row, *more in zip(rows, *further.values(), strict=True)]
    return [*columns, *further], rows


# ---- images


def images(
    data: str,
    *,
    release: list[Path],
    destination: Destination,
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    part: Part = "evaluation",
    form: Literal["points", "features"] = "points",
    flip: bool = False,
    batch_size: int = 512,
    workers: int = 0,
    device: str = "cpu",
    encoder: str | None = None,
) -> int:
    """Embed images with releases.

    Args:
        data: A data set by name, a folder with one sub-folder of images per class, a folder of images without classes,
            or the URL of a table or collection with a column of their paths (image=COLUMN).
        release: Folders of releases; or models by name: hf:FOLDER, FILE.py:FUNCTION, ..., as `limpet train --model`
            takes them.
        part: Which images: those for evaluation, those for training, those for validation, or all of them in one set.
        form: Points of the releases' spaces, or the raw features, such as those that face templates pool.
        flip: Add the features of the mirrored image to those of the image, before anything is normalised.
        batch_size: Images at a time.
        workers: Processes that read images.
        device: Where to compute: cpu, cuda, cuda:1, mps.
        encoder: FILE.py:FUNCTION, which gives the module of yours that a release was made of; its folder holds no code.

    Examples:
        limpet embed images photos --release runs/photos/old runs/photos/independent runs/photos/p2s
            --out runs/embedded
    """
    from limpet.embeddings.embedding_set import joined
    from limpet.models.named_models import open_releases
    from limpet.training.encode import embed_images

    folders = destination.folders(release, "release")
    releases = open_releases(list(folders), encoder)
    encoders = {path: encoder_for_images(path, found) for path, found in releases.items()}
    read: dict[tuple[object, ...], tuple[dict[str, list[ImageSet]], bool]] = {}  # rarely need two releases two readings
    made: list[Made] = []
    for path, folder in folders.items():
        spec = encoders[path]
        key = (spec.channels, spec.image_size, spec.fit)
        if key not in read:
            read[key] = _images_for(data, spec, sets, part)
        parts, labelled = read[key]
        for name, found in parts.items():
            with counting_progress(f"{folder.name} {name}", sum(map(len, found))) as on_batch:
                embedded = [
                    embed_images(
                        releases[path], one, form=form, flip=flip, labelled=labelled, batch_size=batch_size,
                        workers=workers, device=device_named(device), on_batch=on_batch,
                    )
                    for one in found
                ]  # fmt: skip
            made.append(Made.of({"release": str(path)}, joined(embedded), folder / f"{name}.safetensors"))
    return destination.tell(made, settings)


def encoder_for_images(path: Path, release: Release) -> EncoderSpec:
    """Return how a release takes images.

    Raises:
        ReleaseError: It takes something else.
    """
    from limpet.models.specs import EncoderSpec

    spec = release.record.encoder
    if not isinstance(spec, EncoderSpec):
        raise ReleaseError(
            f"The release '{path}' takes {spec.input_words}, no images.",
            expected="a release that was trained on images",
            to_do="carry embeddings of its frozen model over: `limpet embed stored`; or give texts.",
        )
    return spec


def _images_for(data: str, spec: EncoderSpec, sets: DataSets, part: Part) -> tuple[dict[str, list[ImageSet]], bool]:
    """Return the sets to embed by file name, read as an encoder wants them, and whether their labels mean something.

    Raises:
        ConfigError: The encoder would have to change the images, or there are none of that part.
    """
    found = sets.images(data, spec)
    parts = parts_of(found, part)
    shape, wanted = next(iter(parts.values()))[0].shape, spec.input_shape
    refuse(
        shape != wanted,
        f"The images have shape {shape}, and the release was trained on {wanted} (channels, height, width).",
        "images read as in training: leave --data-options.image_size and .channels out, or use data of that shape",
    )
    return parts, found.labelled or part in WORDS


def parts_of(data: RetrievalData, part: Part) -> dict[str, list[ImageSet]]:
    """Return the sets of images to embed, by the name of the file that they go to.

    Raises:
        ConfigError: The data set has no such images.
    """
    if part == "all":
        everything = [data.train, data.validation, data.query, *([] if data.leave_one_out else [data.gallery])]
        return {"embeddings": [images for images in everything if images is not None]}
    if part == "evaluation" and not data.leave_one_out:
        return {"query": [data.query], "gallery": [data.gallery]}
    images = {"evaluation": data.query, "train": data.train, "validation": data.validation}[part]
    if images is None:
        others = [other for other in ("train", "validation") if other in data.parts()]
        raise ConfigError(
            f"The data set '{data.name}' has no {WORDS[part]} images.",
            expected=" or ".join(f"--part {other}" for other in ("evaluation", *others, "all")),
        )
    return {"embeddings": [images]}


# ---- texts


@dataclass(frozen=True)
class _Embedding:
    """One model to embed texts with.

    Args:
        encoder: The frozen model of text.
        folder: Where the files go.
        carry: From its embeddings to what is written: those of a head over it, or of an adapter that maps it.
        by: "release" or "adapter", with its folder; empty without.
    """

    encoder: TextEncoder
    folder: Path
    carry: Carry = lambda embeddings: embeddings
    by: Mapping[str, str] = field(default_factory=dict)


def texts(
    texts: str,
    *,
    destination: Destination,
    model: TextModel = TextModel(),
    api: Api = Api(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    text_model: list[str] = [],
    release: list[Path] = [],
    adapter: Path | None = None,
    role: Literal["query", "document", "both"] = "both",
    on_empty: Annotated[Literal["fail", "skip"], RARE] = "fail",
    batch_size: Annotated[int, RARE] = 64,
    device: Annotated[str, RARE] = "cpu",
) -> int:
    """Embed texts with frozen models, or with heads or an adapter over one.

    Args:
        texts: Texts by name (clinc150, banking77), or a .csv, .parquet, .jsonl or .txt file.
        text_model: Frozen models of text: folders, installed Python packages that carry weights, names on the hub, or
            openai:MODEL@BASE_URL for one behind an API.
        release: Folders of heads over a frozen model, each of which opens its own; or the one --text-model.
        adapter: Folder of an adapter that `limpet adapt` fitted: what the one --text-model makes is mapped by it.
        role: What the texts of a file are to the model; data sets have queries and documents of their own.
        on_empty: What to do with blank texts: fail before anything is embedded, or skip them and list their ids.
        batch_size: Texts at a time.
        device: Where to compute: cpu, cuda, cuda:1, mps.

    Examples:
        limpet embed texts requests.csv --text-model wordllama --out runs/old
        limpet embed texts questions.csv --text-model wordllama --out runs/old-questions
        limpet embed texts questions.csv --release runs/link/head --out runs/new-questions
        limpet embed texts requests.csv --text-model openai:bge-m3@http://localhost:8000/v1 --out runs/new
    """
    from limpet.adapters.storage import load_adapter
    from limpet.models.text_encoders import embed_texts

    refuse(
        adapter is not None and bool(release),
        "--release and --adapter were given.",
        "--release for heads, or --adapter to map embeddings",
    )
    refuse(
        (adapter is not None or bool(release and text_model)) and len(text_model) != 1,
        f"{'--release' if adapter is None else '--adapter'} was given with {len(text_model)} text models.",
        "one, whose embeddings it reads: --text-model MODEL",
    )
    jobs: list[_Embedding] = []
    if release:
        from limpet.training.encode import embed_features

        named = text_model[0] if text_model else None
        for path, folder in destination.folders(release, "release").items():
            head, encoder = model.head(path, named, device, api)
            jobs.append(_Embedding(encoder, folder, partial(embed_features, head), {"release": str(path)}))
    else:
        for name, folder in destination.folders(text_model, "text model").items():
            if adapter is None:
                jobs.append(_Embedding(model.opened(name, device, api), folder))
            else:
                encoder = model.opened(name, device, api, [load_adapter(adapter).fitted.source])
                mapped = adapter_for(adapter, {encoder.fingerprint}, name)
                jobs.append(_Embedding(encoder, folder, mapped.apply, {"adapter": str(adapter)}))
    parts = _parts_of_texts(texts, sets, role, on_empty)
    for job in jobs:
        for _, of_part in parts.values():
            job.encoder.prefix(of_part)  # refuses a role that the model needs a prefix for, before anything is embedded
    made = []
    for job in jobs:
        for name, (found, of_part) in parts.items():
            with counting_progress(f"{job.encoder.name} {name}", len(found)) as on_batch:
                embedded = embed_texts(job.encoder, found, role=of_part, batch_size=batch_size, on_empty=on_empty,
                                       on_batch=on_batch)  # fmt: skip
            by = {"text_model": job.encoder.name, **job.by}
            skipped = [*found.without_text, *sorted(set(found.ids).difference(embedded.ids))]
            file = job.folder / f"{name}.safetensors"
            made.append(Made.of(by, job.carry(embedded), file, without_text=skipped))
    api.tell()
    return destination.tell(made, settings)


def _parts_of_texts(
    texts: str, sets: DataSets, role: Role, on_empty: Literal["fail", "skip"]
) -> dict[str, tuple[TextSet, Role]]:
    """Return the sets of texts to embed with their roles, by file name."""
    from limpet.data.text_set import TextData

    data = sets.texts(texts, on_empty=on_empty)
    if not isinstance(data, TextData):
        return {"embeddings": (data, role)}
    refuse(
        role != "both",
        f"--role {role} was given with the data set '{data.name}'.",
        "no --role: its queries are queries, and all others are documents",
    )
    return {name: (found, ROLES[name]) for name, found in data.parts().items()}


# ---- stored embeddings


def stored(
    embeddings: Place,
    *,
    destination: Destination,
    reading: Reading = Reading(),
    settings: Settings = Settings(),
    release: list[Path] = [],
    adapter: Path | None = None,
    model: str | None = None,
) -> int:
    """Carry stored embeddings over to another space, with a head, an adapter or a lifted release.

    No item is embedded again. Everything is computed before the first file is written.

    Args:
        embeddings: With --adapter, those of the model that it maps; with a head, those of its frozen model; with the
            release old-lifted that training wrote beside a new one, those of the old model.
        release: Folders of heads over the frozen model, or a lifted release.
        adapter: Folder of an adapter that `limpet adapt` fitted.
        model: Name of the model that made them, for .npz, .npy and .parquet files, which carry none; their path when
            left out.

    Examples:
        limpet embed stored runs/old --adapter runs/link/adapter --out runs/mapped
    """
    refuse(
        adapter is not None and bool(release),
        "--release and --adapter were given.",
        "--release for a head or a lifted release, or --adapter to map embeddings",
    )
    made_by = "release" if adapter is None else "adapter"
    folders = destination.folders(release if adapter is None else [adapter], made_by)
    if embeddings.address is None:
        given = model_folder(embeddings.path)
        for folder in folders.values():
            refuse(
                folder.resolve() in (given.resolve(), given.resolve().parent),
                f"The outcome would take the place of those in '{given}'.",
                "another folder as --out",
            )
    sides = reading.sides(embeddings, model)
    sets = {"embeddings": sides.query} if sides.leave_one_out else {"query": sides.query, "gallery": sides.gallery}
    fingerprints = {found.fingerprint for found in sets.values()}
    carried: dict[tuple[Path, Path], EmbeddingSet] = {}
    for path, folder in folders.items():
        carry = (
            _release_for(path, fingerprints, embeddings)
            if adapter is None
            else adapter_for(path, fingerprints, embeddings).apply
        )
        carried |= {(path, folder / f"{name}.safetensors"): carry(found) for name, found in sets.items()}
    return destination.tell(
        [Made.of({made_by: str(path)}, found, file) for (path, file), found in carried.items()], settings
    )


def _release_for(path: Path, fingerprints: set[str], given: object) -> Carry:
    """Return what carries the embeddings of a model over with a release; refuse those of another model."""
    from limpet.models.lifting import lift_embeddings
    from limpet.models.release import load_release
    from limpet.models.specs import FeatureSpec
    from limpet.training.encode import embed_features

    release = load_release(path)
    spec = release.record.encoder
    if release.record.lifted_from is not None:
        return lambda embeddings: lift_embeddings(embeddings, release)
    if not isinstance(spec, FeatureSpec):
        raise ReleaseError(
            f"The release '{path}' takes {spec.input_words}, no embeddings.",
            expected="a head over a frozen model, a release that training wrote as old-lifted, or an adapter",
            to_do="embed the items with it: `limpet embed images`.",
        )
    others = sorted(fingerprints - {spec.frozen})
    if others:
        raise ConfigError(
            f"'{given}' has the fingerprint {others[0]}; '{path}' is a head over {spec.frozen}.",
            expected="embeddings of that very model",
            to_do=renamed(spec.frozen, others[0]) or "give these, or train another head: `limpet adapt`.",
        )
    return partial(embed_features, release)


def adapter_for(folder: Path, fingerprints: set[str], given: object) -> Adapter:
    """Open an adapter, and refuse one that does not map what was given.

    Raises:
        ConfigError: It maps another model.
    """
    from limpet.adapters.storage import load_adapter

    adapter = load_adapter(folder)
    source = adapter.fitted.source
    others = sorted(fingerprints - {source})
    if others:
        raise ConfigError(
            f"'{given}' has the fingerprint {others[0]}; the adapter '{folder}' maps {source}.",
            expected="the very model whose embeddings the adapter maps",
            to_do=renamed(source, others[0])
            or "give that one, or fit another adapter: `limpet adapt --old A --new B`.",
        )
    return adapter


def renamed(wanted: str, found: str) -> str | None:
    """Say how vectors without a model get the name they were given elsewhere; None if one of the two has a model.

    >>> renamed("declared:b", "declared:queries.npz")
    "if these are vectors of 'b', say so: --model b."
    """
    prefix = "declared:"
    if not (wanted.startswith(prefix) and found.startswith(prefix)):
        return None
    name = wanted.removeprefix(prefix)
    return f"if these are vectors of '{name}', say so: --model {shlex.quote(name)}."
