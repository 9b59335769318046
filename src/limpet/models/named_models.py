"""Image models by name: releases, models of a library, functions of a Python file, encoders of installed packages.

A Python file runs only if the user names it; the contents of a release or a data folder never run code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from limpet.support.extras import importing

with importing(__name__):
    import torch  # noqa: F401

from limpet.errors import ConfigError, LimpetError, ReleaseError, reason, refuse
from limpet.geometry import Space, space_from_record
from limpet.models.image_towers import open_tower
from limpet.models.installed_encoders import made_by
from limpet.models.module_origin import Kept, OpenedModule
from limpet.models.names import CODE, ModelName
from limpet.models.own_modules import ModuleSpec, module_encoder
from limpet.models.release import Release, load_classes, load_record, load_release, release_of
from limpet.models.specs import EncoderSpec
from limpet.models.timm_models import open_timm

Name = str | Path | ModelName
Named = TypeVar("Named", bound=ModelName)
_LIBRARIES: dict[str, Callable[[str, Kept], OpenedModule]] = {"hf": open_tower, "timm": open_timm}


class ReleaseFacts(NamedTuple):
    """Facts about a release that are known without its network.

    Args:
        space: Space of its embeddings.
        classes: Classes that it was trained on; empty if not recorded.
    """

    fingerprint: str
    space: Space
    classes: tuple[str, ...]


def open_release(name: Name, over: Name | None = None, *, weights: Kept = "copy") -> Release:
    """Open an image model, or a head, by name.

    Args:
        name: release:FOLDER, or the folder alone; hf:FOLDER, a model of the transformers library; timm:FOLDER, one of
            timm; FILE.py:FUNCTION, a function that returns `Release.from_module`; or package:NAME, the encoder of an
            installed package.
        over: Source of the module, in any form above but the first, if ``name`` is a release made from a user-defined
            module.
        weights: "copy" to store the weights in a saved release of hf: or timm:, "keep" to leave them in place.

    Raises:
        ConfigError: The model does not exist, or cannot be used.
        ReleaseError: A folder was altered since it was saved.
    """
    named = ModelName.of(name, bare="release")
    if named.scheme == "release":
        return load_release(named.place, module=None if over is None else _made(ModelName.of(over, "release"), weights))
    refuse(over is not None, f"'{named}' over {over}.", "it only for a release that was made of a module of yours")
    return _made(named, weights)


def needs_module(name: Name) -> bool:
    """Return whether a name is that of a release made from a user-defined module."""
    named = ModelName.of(name, bare="release")
    return named.scheme == "release" and Path(named.place).is_dir() and load_record(named.place).encoder.needs_module


def open_releases(names: Sequence[Named], over: Name | None) -> dict[Named, Release]:
    """Open several image models; those that need a user-defined module get the same one.

    Raises:
        ConfigError: None of them needs ``over``; see also `open_release`.
    """
    needy = [name for name in names if needs_module(name)]
    if over is not None and not needy:
        raise ConfigError(
            f"--over {over} was given, and none of {', '.join(map(str, names))} was made of a module of yours.",
            expected="it only for a release that needs it",
            to_do="leave --over out.",
        )
    return {name: open_release(name, over if name in needy else None) for name in names}


def image_spec(release: Release, name: object) -> EncoderSpec:
    """Return the input contract of a release for images.

    Raises:
        ReleaseError: The release takes other inputs.
    """
    spec = release.record.encoder
    if not isinstance(spec, EncoderSpec):
        raise ReleaseError(
            f"The release '{name}' takes {spec.input_words}, no images.",
            expected="a model that was trained on images",
            to_do="for heads over frozen models see `limpet embed texts` and `limpet embed stored`.",
        )
    return spec


def known_of(name: Name) -> ReleaseFacts:
    """Return the facts about a named release, without requiring its user-defined module.

    Raises:
        ConfigError: See `open_release`.
        ReleaseError: A folder was altered since it was saved.
    """
    if needs_module(name):
        folder = ModelName.of(name, bare="release").place
        record = load_record(folder)
        return ReleaseFacts(record.fingerprint, space_from_record(record.space), load_classes(folder))
    release = open_release(name)
    return ReleaseFacts(release.fingerprint, release.space, release.classes)


def _made(name: ModelName, weights: Kept) -> Release:
    name.refuse_unless("hf", "timm", "package", CODE, what="images")
    if name.scheme == CODE:
        return _of_file(*name.file)
    if name.scheme == "package":
        return _installed(name.place)
    opened = _LIBRARIES[name.scheme](name.place, weights)
    return release_of(module_encoder(opened.module, opened.image_input, output=opened.output, origin=opened.origin))


def _installed(name: str) -> Release:
    return _named(made_by(name), f"The installed encoder '{name}'", {"kind": "entry point", "place": name})


def _of_file(file: Path, function: str) -> Release:
    """Run a Python file that the user named, and its function.

    Raises:
        ConfigError: The file or function does not exist, raises, or does not return a release.
    """
    if not file.is_file():
        raise ConfigError(
            f"There is no file '{file}'.",
            expected="a Python file and one of its functions: FILE.py:FUNCTION",
            to_do="check the path.",
        )
    with _importing_beside(file):
        module = _run(file)
        factory = getattr(module, function, None)
        if not callable(factory):
            functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise ConfigError(
                f"The file '{file}' has no function '{function}'.",
                expected=f"one of {', '.join(functions) or 'its functions, of which it has none'}",
                to_do="def NAME(): return limpet.Release.from_module(module, image_size=..., mean=..., std=...)",
            )
        try:
            made = factory()
        except LimpetError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything
            raise _raised(file, error) from error
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    origin = {"kind": "file", "place": f"{file}:{function}", "file_digest": digest}
    return _named(made, f"'{function}' of '{file}'", origin)


def _run(file: Path) -> ModuleType:
    name = f"limpet_encoder_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"'{file}' cannot be read as Python.", expected="a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and `inspect` look modules up here
    try:  # from its text: cached bytecode may be stale within a second after an edit
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # user code may raise anything
        sys.modules.pop(name, None)
        raise _raised(file, error) from error
    return module


def _raised(file: Path, error: BaseException) -> ConfigError:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == file.resolve()
    ]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    where = f"'{file}'" if line is None else f"'{file}', line {line},"
    return ConfigError(
        f"{where} raised {type(error).__name__}: {reason(error)}.",
        expected="a file that runs, and a function that returns limpet.Release.from_module(...)",
        to_do="correct it there.",
        intact="Nothing was started.",
    )


@contextmanager
def _importing_beside(file: Path) -> Iterator[None]:
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _named(made: object, who: str, origin: Mapping[str, Any]) -> Release:
    """Return a release of a module with its origin.

    Raises:
        ConfigError: The value is not a release of a module.
    """
    if not isinstance(made, Release) or not isinstance(made.encoder.spec, ModuleSpec):
        raise ConfigError(
            f"{who} returned a {type(made).__name__}.",
            expected="a release of a module",
            to_do="return limpet.Release.from_module(module, image_size=..., mean=..., std=...), which says what is "
            "done to images before the module.",
        )
    spec = made.encoder.spec
    module = spec.module.model_copy(update=dict(origin))
    made.encoder.spec = spec.model_copy(update={"backbone": module.called, "module": module})
    return release_of(made.encoder, made.space)
