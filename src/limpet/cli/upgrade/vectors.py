"""Where the commands of ``limpet upgrade`` get vectors of a model, and which model takes over."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from limpet.cli.gallery.common import DECLARED
from limpet.cli.gallery.options import NewModel
from limpet.cli.gallery.sources import NewVectors, stored_vectors
from limpet.cli.models import Embedding, Model
from limpet.cli.options import DataSets
from limpet.cli.parameters import RARE, as_typed
from limpet.cli.places import Place
from limpet.engines.sides import ModelSide
from limpet.errors import ConfigError, refuse

if TYPE_CHECKING:
    from limpet.attached.base import Attachment, OwnedIndex
    from limpet.attached.plan import Unstarted
    from limpet.galleries.upgrade import GalleryUpgrade
    from limpet.geometry import Space
    from limpet.upgrade.base import UpgradeSteps
    from limpet.upgrade.model import UpgradeModel
    from limpet.upgrade.vector_sources import VectorSource


@dataclass(frozen=True)
class StartedModel(NewModel):
    """The new model.

    Args:
        model: The new model: SCHEME:PLACE, such as release:FOLDER or st:NAME; or its stored vectors, of which only the
            model's identity is read.
        name: Name of a model that limpet cannot open: with its stored vectors, or alone with --dim.
        dim: Dimension of its vectors, if none are given.
        over: Model whose vectors a head or an adapter reads, if its files do not name one that can be opened.
    """

    over: Annotated[Model | None, RARE] = None

    def opened(self) -> tuple[UpgradeModel, Space, str | None]:
        """Return the model, the space of its vectors, and of an adapter the fingerprint of the model that it reads."""
        from limpet.training.text_models import open_map
        from limpet.upgrade.model import UpgradeModel

        if self.model is not None and self.over is not None and self.over.vectors is None:
            over = self.text_model(self.model, self.over)
            fingerprint, space, note = over.fingerprint, over.space, self.model.short
        else:
            fingerprint, space, note = self.identity()
        reads = open_map(self.model).source if self.model is not None and self.model.scheme == "adapter" else None
        return UpgradeModel(fingerprint, space.dim, note, self._words), space, reads

    @property
    def _words(self) -> str:
        said = {"--model": self.model, "--over": self.over, "--name": None if self.model is None else self.name}
        said |= {as_typed(f"model_options.{name}"): value for name, value in self.model_options.items()}
        return shlex.join(word for option, value in said.items() if value is not None for word in (option, str(value)))


@dataclass(frozen=True)
class LateVectors(Embedding):
    """Model that embeds items which the application wrote since the last backfill.

    Args:
        model: Your own index only: st:FOLDER_OR_NAME, package:NAME or openai:MODEL@URL, which embed its texts;
            release:FOLDER, a head or a fine-tuned model; or adapter:FOLDER.
        over: Text model whose vectors a head or an adapter maps. Default: the recorded model for a head, the stored
            vectors for an adapter.
    """

    def opened(self, it: UpgradeSteps, side: ModelSide) -> VectorSource | None:
        """Return the source that these describe; None where they name none.

        Raises:
            ConfigError: They name vectors that were made before.
        """
        stored = _stored(self)
        refuse(stored is not None, f"{stored}, vectors that were made before.",
               "what makes vectors now; or `backfill` first")  # fmt: skip
        return None if self.model is None else vectors_for(attached(it), self, side)


def source_of(
    it: GalleryUpgrade | Attachment | Unstarted, given: NewVectors, sets: DataSets, side: ModelSide
) -> VectorSource | None:
    """Return where the vectors of a backfill come from; None where nothing names it.

    Args:
        it: The upgrade, whose index may keep texts and old vectors of its own.
        given: What was typed.
        sets: How data is read.
        side: Of which model the vectors are to be.
    """
    from limpet.attached.base import OwnedIndex

    if not isinstance(it, OwnedIndex):
        return given.opened(it.gallery, sets)
    items = [name for name in ("data", "texts", "workers") if getattr(given, name)]
    refuse(bool(items), f"{' and '.join(map(as_typed, items))} with an index that an application owns.",
           "its own texts, which the model reads there")  # fmt: skip
    return None if given.model is None else vectors_for(it, given, side, name=given.name, batch=given.batch_size)


def vectors_for(
    index: OwnedIndex,
    given: Embedding,
    side: ModelSide,
    *,
    name: str | None = None,
    batch: int | None = None,
) -> VectorSource:
    """Return what makes vectors of the items of an index that an application owns.

    Args:
        index: Whose items.
        given: The model, or vectors that were made before.
        side: Which of the two models it is.
        name: Of the model, where vectors do not say it.
        batch: Texts that the model takes at a time.
    """
    from limpet.attached.recognition import recognised
    from limpet.training.text_models import open_map
    from limpet.upgrade.vector_sources import through, vectors_of_texts

    model, stored = given.named("vectors"), _stored(given)
    expected = index.model(side).fingerprint
    source: VectorSource
    if stored is not None:
        link = None if given.over is None else open_map(model)
        made_by = expected if link is None else link.source
        source = stored_vectors(stored, (made_by if name is None else fingerprint(name)) if stored.nameless else None)
        if link is not None:
            return through(source, link)
    elif model.scheme == "adapter" and given.over is None:
        return through(index.stored, open_map(model))
    else:
        known = [index.model("old").fingerprint, index.model("new").fingerprint]
        source = vectors_of_texts(given.text_model(model, given.over, known=known), index.texts, batch_size=batch or 64)
    if side == "new" or source.fingerprint == expected:
        return source
    return (
        recognised(source, attached(index)) if expected.startswith(DECLARED) else source
    )  # people named it, and give it now


def made_at(it: UpgradeSteps, given: Embedding, made: str | None) -> datetime | None:
    """Return when stored vectors were made, which is the start of the upgrade unless somebody says; None of others."""
    refuse(made is not None and _stored(given) is None, "--made without stored vectors.", "both, or neither")
    if made is None:
        return None if _stored(given) is None else getattr(it, "started", None)
    try:
        return datetime.fromisoformat(made).astimezone()
    except ValueError:
        raise ConfigError(f"--made {made}.", expected="a moment, such as 2026-11-23T18:00+00:00") from None


def attached(it: object) -> Attachment:
    """Return the upgrade of an index that an application owns.

    Raises:
        ConfigError: It is that of a gallery.
    """
    from limpet.attached.base import Attachment

    if isinstance(it, Attachment):
        return it
    raise ConfigError(
        "This is for an index that an application owns.",
        expected="a table or a collection",
        to_do="leave --model out: limpet writes a gallery itself; `limpet gallery add` takes vectors of all "
        "its models.",
    )


def _stored(given: Embedding) -> Place | None:
    named = given.model if given.over is None else given.over
    return None if named is None else named.vectors


def fingerprint(name: str) -> str:
    """Return the fingerprint that a person means.

    >>> fingerprint("v1"), fingerprint("text:1234")
    ('declared:v1', 'text:1234')
    """
    return name if ":" in name else f"{DECLARED}{name}"
