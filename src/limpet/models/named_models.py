"""Releases by what people name: a folder, a model of a library, a function of a Python file, or an installed encoder.

A Python file runs because it is named here; what a release or a data folder says never runs anything.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from limpet.support.extras import importing

with importing(__name__):
    import torch  # noqa: F401

from limpet.errors import ConfigError, LimpetError, reason
from limpet.geometry import Space, space_from_record
from limpet.models.image_towers import open_tower
from limpet.models.installed_encoders import ENCODERS, made_by
from limpet.models.module_origin import Kept, OpenedModule
from limpet.models.names import SPELLINGS
from limpet.models.own_modules import ModuleSpec, module_encoder
from limpet.models.release import Release, load_classes, load_record, load_release, release_of
from limpet.models.text_folders import PREFIX
from limpet.models.timm_models import open_timm

_IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")
_PREFIXED = re.compile(r"(?P<library>[a-z]+):(?P<place>.+)")
_LIBRARIES: dict[str, Callable[[str, Kept], OpenedModule]] = {"hf": open_tower, "timm": open_timm}


class ReleaseFacts(NamedTuple):
    """What is known of a release without its network.

    Args:
        fingerprint: Of its encoder.
        space: What its embeddings are points of.
        classes: That it was trained on; empty if not kept.
    """

    fingerprint: str
    space: Space
    classes: tuple[str, ...]


def open_release(name: str | Path, encoder: str | None = None, *, weights: Kept = "copy") -> Release:
    """Open or make the release that people name.

    Args:
        name: The folder of a release; hf:FOLDER, a model of the transformers library; timm:FOLDER, one of timm;
            FILE.py:FUNCTION, a function that returns `Release.from_module`; or the name of an installed encoder.
        encoder: Where ``name`` is the folder of a release that was made of a module of one's own: what gives that
            module, in any of the spellings but the first.
        weights: Whether a release of hf: or timm: holds the weights when it is saved, or leaves them where they are.

    Raises:
        ConfigError: There is nothing of that name, or what it names cannot be used.
        ReleaseError: A folder was altered since it was saved.
    """
    text = str(name)
    if Path(text).is_dir():
        return load_release(text, module=None if encoder is None else _made(encoder, weights))
    if encoder is not None:
        raise ConfigError(
            f"'{text}' was given with the encoder {encoder}.",
            expected="an encoder only for the folder of a release that was made of it",
            to_do="give one of the two.",
        )
    return _made(text, weights)


def names_model(text: str | Path) -> bool:
    """Return whether this is written as the name of a model, rather than as the folder of a release."""
    text = str(text)
    return not Path(text).is_dir() and bool(_IN_FILE.fullmatch(text) or _PREFIXED.fullmatch(text) or text in ENCODERS)


def needs_module(name: str | Path) -> bool:
    """Return whether a name is the folder of a release that was made of a module of one's own."""
    return Path(name).is_dir() and load_record(name).encoder.needs_module


def open_releases(names: Sequence[Path], encoder: str | None) -> dict[Path, Release]:
    """Open several releases, of which those that need a module of one's own are given the same one.

    Raises:
        ConfigError: None of them needs it; and see `open_release`.
    """
    needy = [name for name in names if needs_module(name)]
    if encoder is not None and not needy:
        raise ConfigError(
            f"The encoder {encoder} was given, and none of {', '.join(map(str, names))} was made of a module of yours.",
            expected="it only for a release that needs it",
            to_do="leave --encoder out.",
        )
    return {name: open_release(name, encoder if name in needy else None) for name in names}


def known_of(name: str | Path) -> ReleaseFacts:
    """Return what is known of the release that people name, without asking for a module of one's own.

    Raises:
        ConfigError: See `open_release`.
        ReleaseError: A folder was altered since it was saved.
    """
    if needs_module(name):
        record = load_record(name)
        return ReleaseFacts(record.fingerprint, space_from_record(record.space), load_classes(name))
    release = open_release(name)
    return ReleaseFacts(release.fingerprint, release.space, release.classes)


def _made(text: str, weights: Kept) -> Release:
    """Make a release of what is no folder of one."""
    in_file, prefixed = _IN_FILE.fullmatch(text), _PREFIXED.fullmatch(text)
    if in_file:
        return _of_file(Path(in_file["file"]), in_file["function"])
    if prefixed and prefixed["library"] in _LIBRARIES:
        opened = _LIBRARIES[prefixed["library"]](prefixed["place"], weights)
        return release_of(module_encoder(opened.module, opened.image_input, output=opened.output, origin=opened.origin))
    if text.startswith(PREFIX):
        raise ConfigError(
            f"'{text}' is a model of texts.",
            expected="a model of images here",
            to_do=f"where texts are embedded, give --text-model {text}.",
        )
    if text in ENCODERS:
        return _installed(text)
    if ":" in text or Path(text).suffix == ".py":
        raise ConfigError(f"'{text}' names no model.", expected=SPELLINGS)
    if "/" in text or Path(text).exists() or not ENCODERS.names():
        return load_release(text)  # which says what a release is
    raise ENCODERS.unknown(text)


def _installed(name: str) -> Release:
    return _named(made_by(name), f"The installed encoder '{name}'", {"kind": "entry point", "place": name})


def _of_file(file: Path, function: str) -> Release:
    """Run a Python file that the user named, and its function.

    Raises:
        ConfigError: There is no such file or function, one of them raises, or it returns no release.
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
        except (Exception, SystemExit) as error:  # whatever the user's own code does
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
    sys.modules[name] = module  # where dataclasses and sources are looked up
    try:  # by its text: what was compiled before counts as of it for a second after an edit
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # whatever the user's own code does
        sys.modules.pop(name, None)
        raise _raised(file, error) from error
    return module


def _raised(file: Path, error: BaseException) -> ConfigError:
    """Build the error for a file that raises, with the line of the file that did."""
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
    """Let a file import what lies beside it, as Python does for the file that it runs."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _named(made: object, who: str, origin: Mapping[str, Any]) -> Release:
    """Return a release of a module with where it came from.

    Raises:
        ConfigError: It is none.
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
