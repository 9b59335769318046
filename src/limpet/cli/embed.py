"""``limpet embed``: make embeddings of images or texts, or carry stored ones over to another space.

Every model gets a folder of its name below --out, with query.safetensors and gallery.safetensors (for texts also
train.safetensors); or with embeddings.safetensors, where every item is a query among all others. Other commands take
that folder, and --out itself while it holds those of one model.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from limpet.cli.console import as_json, console, long_texts, print_json, print_table, progress_bar
from limpet.cli.models import Model, Opening, WorkerOptions, releases_of
from limpet.cli.options import DataSets, Reading
from limpet.cli.parameters import RARE, Options
from limpet.cli.places import Place
from limpet.cli.settings import Settings
from limpet.embeddings import EmbeddingSet
from limpet.embeddings.files import files_in, model_folder
from limpet.errors import ConfigError, refuse, shown
from limpet.models.names import ModelName
from limpet.reports.formats import score
from limpet.support.devices import device_named

if TYPE_CHECKING:
    from limpet.data.image_set import ImageSet
    from limpet.data.retrieval_data import RetrievalData
    from limpet.data.text_set import TextSet
    from limpet.embeddings import Role
    from limpet.models.release import Release
    from limpet.models.specs import EncoderSpec
    from limpet.support.progress import Bar, Told
    from limpet.training.text_models import TextModel

Part = Literal["evaluation", "train", "validation", "all"]

WORDS = {"train": "training", "validation": "validation"}
"""What the parts of a data set are called, where it lacks them."""

ROLES: Mapping[str, Role] = {"train": "document", "query": "query", "gallery": "document"}
"""What the parts of a data set of texts are to a model; what is fitted on ``train`` is used on a gallery's side."""


@dataclass(frozen=True)
class Made:
    """What is said of one file of embeddings.

    Args:
        model: What made it.
        file: Where it is.
        items: How many it holds.
        dim: Of its vectors.
        fingerprint: Of the model.
        role: What the items were to the model.
        prefix: That stood before every text.
        mean_uncertainty: Of its items; None where the model knows none.
        without_text: Ids of items that were skipped, since they have no text.
    """

    model: str
    file: Path
    items: int
    dim: int
    fingerprint: str
    role: Role
    prefix: str
    mean_uncertainty: float | None
    without_text: Sequence[str] = ()

    @classmethod
    def of(cls, model: ModelName, embeddings: EmbeddingSet, file: Path, *, without_text: Sequence[str] = ()) -> Made:
        """Save embeddings, and return what is said of them."""
        from limpet.embeddings import storage
        from limpet.evaluation.uncertainty import uncertainty_of

        known = uncertainty_of(embeddings)
        return cls(
            str(model), storage.save(embeddings, file), len(embeddings), embeddings.dim, embeddings.fingerprint,
            embeddings.role, embeddings.prefix, None if known is None else float(known.mean()), without_text,
        )  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        """Return what is printed of it for machines."""
        return {**vars(self), "file": str(self.file)}


@dataclass(frozen=True)
class Destination(Options):
    """Output folder.

    Args:
        out: Output folder for the embeddings, with one subfolder per model.
    """

    out: Path

    def folders(self, models: Sequence[Model]) -> dict[Model, Path]:
        """Return where the embeddings of every model go.

        Raises:
            ConfigError: Two models have one name, or older embeddings would lie beside theirs.
        """
        there = files_in(self.out)
        if there:
            raise ConfigError(
                f"--out '{self.out}' holds embeddings itself: {', '.join(there[:4])}.",
                expected="a folder in which every model gets one of its own",
                to_do="name another --out, or move these files.",
                intact="They are intact, and nothing was embedded.",
            )
        names = [model.short for model in models]
        refuse(
            len(set(names)) < len(names),
            f"Models of the same name: {', '.join(names)}.",
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
    columns = ["model", "file", "items", "dimension"]
    rows = [[one.model, str(one.file), f"{one.items:,}", str(one.dim)] for one in made]
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
    model: list[Model],
    destination: Destination,
    by: WorkerOptions = WorkerOptions(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    over: Annotated[Model | None, RARE] = None,
    part: Part = "evaluation",
    form: Literal["points", "features"] = "points",
    flip: bool = False,
    batch_size: int = 512,
    device: str = "cpu",
) -> int:
    """Embed images with one or more models.

    Args:
        data: Data set: a name, a folder with one subfolder of images per class, a folder of images without classes, or
            the URL of a table or collection with a column of image paths (image=COLUMN).
        model: Embedding models: release:FOLDER, trained by limpet; hf:FOLDER, timm:FOLDER, package:NAME, or
            FILE.py:FUNCTION.
        over: FILE.py:FUNCTION, which returns your module of a release; the folder of the release contains no code.
        part: Images to embed: those for evaluation, for training or for validation, or all of them in one set.
        form: Output vectors: points in the embedding space of each model, or raw features, such as those that face
            templates pool.
        flip: Add the features of the mirrored image to those of the image, before any normalisation.
        batch_size: Images per batch.
        device: Compute device: cpu, cuda, cuda:1, mps.

    Examples:
        limpet embed images photos --model release:runs/photos/old release:runs/photos/independent
            release:runs/photos/p2s --out runs/embedded
    """
    from limpet.embeddings.embedding_set import joined
    from limpet.models.named_models import image_spec
    from limpet.support.workers import Opened

    folders = destination.folders(model)
    releases, workers = releases_of(list(folders), over), by.started(model)
    read: dict[tuple[object, ...], tuple[dict[str, list[ImageSet]], bool]] = {}  # rarely need two models two readings
    made: list[Made] = []
    for name, folder in folders.items():
        spec = image_spec(releases[name], name.place)
        key = (spec.channels, spec.image_size, spec.fit)
        if key not in read:
            read[key] = _images_for(data, spec, sets, part)
        parts, labelled = read[key]
        alone = partial(_opened_images, name, over, data, sets, part)
        opened = Opened((lambda: (releases[name], parts)) if by.engine == "threads" else alone, workers)  # noqa: B023
        for of_part, found in parts.items():
            total, embedded = sum(map(len, found)), list[EmbeddingSet]()
            with progress_bar(f"{folder.name} {of_part}", total) as bar:
                for number, one in enumerate(found):
                    told = partial(_of_all, bar, sum(map(len, embedded)), total) if workers is None else None
                    how = {"form": form, "flip": flip, "labelled": labelled, "batch_size": batch_size,
                           "device": device_named(device), "progress": told}  # fmt: skip
                    rows = [(of_part, number, some, how) for some in by.divided(len(one), batch_size)]
                    for more in opened.each(_embedded_images, rows):
                        embedded.append(more)
                        bar({"done": sum(map(len, embedded)), "total": total})
            made.append(Made.of(name, joined(embedded), folder / f"{of_part}.safetensors"))
    return destination.tell(made, settings)


_Images: TypeAlias = "tuple[Release, dict[str, list[ImageSet]]]"


def _opened_images(name: Model, over: Model | None, data: str, sets: DataSets, part: Part) -> _Images:
    """Open a model of images, and the images, in a worker."""
    from limpet.models.named_models import image_spec

    release = releases_of([name], over)[name]
    return release, _images_for(data, image_spec(release, name.place), sets, part)[0]


def _embedded_images(opened: _Images, part: str, number: int, rows: slice, how: dict[str, Any]) -> EmbeddingSet:
    from limpet.training.encode import embed_images

    release, parts = opened
    return embed_images(release, parts[part][number][rows], **how)


def _of_all(bar: Bar, before: int, total: int, event: Told) -> None:
    bar({"done": before + event["done"], "total": total})


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


def texts(
    texts: str,
    *,
    model: list[Model],
    destination: Destination,
    opening: Opening = Opening(),
    by: WorkerOptions = WorkerOptions(),
    sets: DataSets = DataSets(),
    settings: Settings = Settings(),
    over: Model | None = None,
    role: Literal["query", "document", "both"] = "both",
    on_empty: Annotated[Literal["fail", "skip"], RARE] = "fail",
    batch_size: Annotated[int, RARE] = 64,
) -> int:
    """Embed texts with one or more models.

    Args:
        texts: Texts: a name (clinc150, banking77), or a .csv, .parquet, .jsonl or .txt file.
        model: Embedding models: st:FOLDER or st:OWNER/NAME; package:NAME, an installed package that contains a model;
            openai:MODEL@URL; release:FOLDER, a head or a fine-tuned model, which opens its own text model; or
            adapter:FOLDER.
        over: Text model whose vectors an adapter or a head maps. Default for a head: the recorded model.
        role: Role of the texts of a file for the model; data sets have their own queries and documents.
        on_empty: Handling of blank texts: fail before anything is embedded, or skip them and list their ids.
        batch_size: Texts per batch.

    Examples:
        limpet embed texts requests.csv --model package:wordllama --out runs/old
        limpet embed texts questions.csv --model package:wordllama --out runs/old-questions
        limpet embed texts questions.csv --model release:runs/link/head --out runs/new-questions
        limpet embed texts requests.csv --model openai:bge-m3@http://localhost:8000/v1 --out runs/new
        limpet embed texts requests.csv --model package:wordllama --out runs/old --workers 2 --engine processes
    """
    from limpet.embeddings.embedding_set import joined
    from limpet.support.workers import Opened

    folders, workers = destination.folders(model), by.started(model)
    opened = {name: Opened(partial(opening.text_model, name, over), workers) for name in folders}
    for one in opened.values():  # a model that cannot be opened is named before any text is read
        list(one.each(_prefixes, [([],)]))
    parts = _parts_of_texts(texts, sets, role, on_empty)
    roles = list(dict.fromkeys(of_part for _, of_part in parts.values()))
    for one in opened.values():  # refuses a role that the model needs a prefix for, before anything is embedded
        list(one.each(_prefixes, [(roles,)]))
    made = []
    for model_name, folder in folders.items():
        for name, (found, of_part) in parts.items():
            embedded: list[EmbeddingSet] = []
            with progress_bar(f"{model_name.short} {name}", len(found)) as bar:
                how = {"role": of_part, "batch_size": batch_size, "on_empty": on_empty,
                       "progress": bar if workers is None else None}  # fmt: skip
                some = [(found[rows], how) for rows in by.divided(len(found), batch_size)]
                for more in opened[model_name].each(_embedded_texts, some):
                    embedded.append(more)
                    bar({"done": sum(map(len, embedded)), "total": len(found)})
            whole = joined(embedded)
            skipped = [*found.without_text, *sorted(set(found.ids).difference(whole.ids))]
            made.append(Made.of(model_name, whole, folder / f"{name}.safetensors", without_text=skipped))
    opening.tell()
    return destination.tell(made, settings)


def _prefixes(model: TextModel, roles: Sequence[Role]) -> list[str]:
    return [model.encoder.prefix(role) for role in roles]


def _embedded_texts(model: TextModel, texts: TextSet, how: dict[str, Any]) -> EmbeddingSet:
    return model.embed(texts, **how)


def _parts_of_texts(
    texts: str, sets: DataSets, role: Role, on_empty: Literal["fail", "skip"]
) -> dict[str, tuple[TextSet, Role]]:
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
    model: list[Model],
    destination: Destination,
    reading: Reading = Reading(),
    settings: Settings = Settings(),
    name: str | None = None,
) -> int:
    """Map stored embeddings to another space, with a head, an adapter or a lifted release.

    No item is embedded again. Everything is computed before the first file is written.

    Args:
        embeddings: Stored embeddings by the model that the adapter maps or that the head was trained over. For the
            release old-lifted, which training writes beside a new one: those by the old model.
        model: Mapping: adapter:FOLDER, or release:FOLDER of a head or a lifted release.
        name: Name of the model that made the embeddings, for .npz, .npy and .parquet files and URLs, which do not store
            it. Default: their path.

    Examples:
        limpet embed stored runs/old --model adapter:runs/link/adapter --out runs/mapped
    """
    from limpet.training.text_models import open_map

    folders = destination.folders(model)
    if embeddings.address is None:
        given = model_folder(embeddings.path)
        for folder in folders.values():
            refuse(
                folder.resolve() in (given.resolve(), given.resolve().parent),
                f"The outcome would take the place of those in '{given}'.",
                "another folder as --out",
            )
    sides = reading.sides([embeddings], name)
    sets = {"embeddings": sides.query} if sides.leave_one_out else {"query": sides.query, "gallery": sides.gallery}
    carried: list[tuple[Model, Path, EmbeddingSet]] = []
    for link, folder in folders.items():
        through = open_map(link)
        for found in sets.values():
            if found.fingerprint != through.source:
                raise ConfigError(
                    f"'{embeddings}' has the fingerprint {found.fingerprint}; '{link}' reads {through.source}.",
                    expected="embeddings of that very model",
                    to_do=renamed(through.source, found.fingerprint) or "give these, or fit another: `limpet adapt`.",
                )
        carried += [(link, folder / f"{part}.safetensors", through.apply(found)) for part, found in sets.items()]
    return destination.tell([Made.of(link, found, file) for link, file, found in carried], settings)


def renamed(wanted: str, found: str) -> str | None:
    """Say how vectors without a model get the name they were given elsewhere; None if one of the two has a model.

    >>> renamed("declared:b", "declared:queries.npz")
    "if these are vectors of 'b', say so: --name b."
    """
    prefix = "declared:"
    if not (wanted.startswith(prefix) and found.startswith(prefix)):
        return None
    name = wanted.removeprefix(prefix)
    return f"if these are vectors of '{name}', say so: --name {shlex.quote(name)}."
