"""Folders of models, and the files that determine the vectors of text models; no file is executed or unpickled."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from limpet.errors import ConfigError, brief
from limpet.models.names import OF_TEXTS, ModelName, forms
from limpet.support.disk import only_files, open_file, read_text, regular
from limpet.support.extras import needing

TEXT_MODEL = "text_model"
"""Folder within a release that holds the text model trained with it."""

WITHIN = "within:"
"""Prefix for the place of a text model that the folder of its release contains."""

SOURCES = forms(OF_TEXTS)
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_OF_TEXTS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.safetensors", "*.txt", "*.model"],
    "ignore_patterns": ["onnx/*", "openvino/*"],
}
"""Files of a text model that are downloaded from the hub."""
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_DECIDING = (".json", ".safetensors", ".txt", ".model")
_WITHOUT_EFFECT = ("config_sentence_transformers.json", "data_config.json", "requirements.txt")
"""Files without effect on vectors: versions and prompts (recorded separately), training data, and requirements."""


def find_model(name: ModelName) -> Path:
    """Return the folder of a text model.

    For st:PLACE, a local folder takes precedence over a name on the hub. Downloaded files are reused from the cache
    without a request.

    Args:
        name: st:FOLDER, st:OWNER/NAME, or package:NAME.

    Raises:
        ConfigError: The model does not exist, or cannot be reached.
    """
    name.refuse_unless("st", "package", "openai", what="texts")
    place = name.place
    if name.scheme == "package":
        folder = _in_package(place) if _PACKAGE.fullmatch(place) else None
        if folder is None:
            raise _no_model(name, f"no installed package of this name.{_similar_package(place)}")
        return folder
    path = Path(place).expanduser()
    if path.is_dir():
        return _of_files(path)
    if not _HUB_NAME.fullmatch(place) or path.exists():
        raise _no_model(name, f"no such folder.{_installed_package(place)}")
    with needing(f"'{place}' is no folder; to ask the hub for it"):
        from huggingface_hub import snapshot_download
    try:
        return _in_cache(place, **_OF_TEXTS) or Path(snapshot_download(place, **_OF_TEXTS))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The text model '{place}' is no folder, is not in the cache of the hub, and cannot be downloaded: "
            f"{str(error).splitlines()[0]}",
            expected=SOURCES,
            to_do="check the name and the connection, or copy the model's folder to this machine and give its path.",
        ) from error


def _no_model(name: ModelName, why: str) -> ConfigError:
    return ConfigError(
        f"There is no text model '{name}': {why}",
        expected=SOURCES,
        to_do="check the spelling; models of the hub are written with their owner, as in st:owner/name.",
    )


def cached_folder(name: str, what: str, file: str) -> Path:
    """Return the local folder of a model: a path, or the copy of a name in the hub's cache.

    Args:
        name: Path, or name on the hub (owner/name).
        what: Expected kind, for messages, such as "an image model".
        file: Required file, such as config.json.

    Raises:
        ConfigError: The model is not on this machine, or lacks that file.
    """
    path = Path(name).expanduser()
    found = path if path.is_dir() else _in_cache(name) if _HUB_NAME.fullmatch(name) else None
    if found is None:
        hub = f", and the hub's cache has no '{name}'" if _HUB_NAME.fullmatch(name) else ""
        raise ConfigError(
            f"There is no folder '{name}'{hub}.",
            expected=f"the folder of {what}, or a name (owner/name) whose files were fetched before",
            to_do="limpet downloads no image models: fetch it where there is a connection, `hf download OWNER/NAME "
            "--local-dir FOLDER`, copy that folder to this machine and give its path.",
        )
    refuse_parts_of_weights(_of_files(found))
    if not (found / file).exists():
        there = ", ".join(sorted(one.name for one in found.iterdir())[:8]) or "nothing"
        raise ConfigError(
            f"'{found}' holds {there}.",
            expected=f"the folder of {what}, with {file}",
            to_do="check the path, or fetch the model's files again.",
        )
    return found


def _of_files(folder: Path) -> Path:
    """Return the folder of a model; refuse pipes and devices in it, which would block a library.

    Raises:
        ConfigError: The folder contains a pipe or a device.
    """
    try:
        return only_files(folder, deep=True)
    except OSError as error:
        raise ConfigError(
            f"Cannot read the model in '{folder}': {error.strerror}.",
            expected="a folder of plain files",
            to_do="get the model again from where it came, or give another folder.",
        ) from error


def is_remote(name: ModelName) -> bool:
    """Return whether a name is on the hub and not in the local cache, so that it would be downloaded."""
    place = name.place
    fetched = name.scheme == "st" and _HUB_NAME.fullmatch(place) and not Path(place).expanduser().exists()
    return bool(fetched) and _in_cache(place, **_OF_TEXTS) is None


def _in_cache(name: str, **wanted: Any) -> Path | None:
    """Return the folder of a name in the hub's cache; None if it is not cached."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        return None
    try:
        return Path(snapshot_download(name, local_files_only=True, **wanted))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None


def _installed_package(name: str) -> str:
    """Return ``" Type package:x …"`` if an installed package has this name, or a similar one."""
    try:
        known = bool(_PACKAGE.fullmatch(name) and distribution(name))
    except PackageNotFoundError:
        known = False
    return f" Type package:{name} for the installed package." if known else _similar_package(name)


def _similar_package(name: str) -> str:
    installed = {str(one.name) for one in distributions()}
    for close in get_close_matches(name, sorted(installed), n=3, cutoff=0.7):
        if any(file.suffix == ".safetensors" for file in distribution(close).files or []):
            return f" Did you mean 'package:{close}'?"
    return ""


def _in_package(name: str) -> Path | None:
    """Return the folder of the weights in an installed package, without importing it; None if not found."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return None
    folders = {Path(str(file.locate())).parent for file in files if file.suffix == ".safetensors"}
    outermost = min(folders, key=lambda folder: len(folder.parts), default=None)
    if outermost is None or not all(folder.is_relative_to(outermost) for folder in folders):
        found = ", ".join(sorted(map(str, folders))) or "none"
        raise ConfigError(
            f"The installed package '{name}' has weights (.safetensors) in these folders: {found}.",
            expected="a package that carries one text model",
            to_do="give the folder of the model instead.",
        )
    return outermost.parent if outermost.name == "weights" else outermost


def sentence_files(folder: Path) -> list[Path]:
    """Return the files of a sentence-transformers model that determine its vectors, sorted.

    Raises:
        ConfigError: Its parts or settings need foreign code, or weights are pickled or missing.
    """
    places = [folder, *_module_folders(folder)]
    for place in places:
        refuse_parts_of_weights(place)
        _refuse_pickled(place)
    files = {file for place in places for file in (place.iterdir() if place == folder else place.rglob("*"))}
    deciding = [file for file in files if file.suffix in _DECIDING and file.name not in _WITHOUT_EFFECT]
    if not any(file.suffix == ".safetensors" for file in deciding):
        raise ConfigError(f"'{folder}' holds no weights.", expected="model.safetensors", to_do="download it again.")
    for file in deciding:
        if file.name.endswith("config.json"):
            refuse_foreign_code(read_json(file), str(file))
    return sorted(file for file in deciding if file.is_file())


def _module_folders(folder: Path) -> list[Path]:
    """Return the folders of the parts in ``modules.json``; parts from outside the library are refused."""
    path = folder / "modules.json"
    parts = read_json(path)
    if not (
        isinstance(parts, list) and all(isinstance(part, dict) and {"type", "path"} <= set(part) for part in parts)
    ):
        raise ConfigError(f"'{path}' lists no parts of a model.", expected="a list of parts with type and path")
    for part in parts:
        if not str(part["type"]).startswith("sentence_transformers."):
            raise ConfigError(
                f"The text model '{folder}' has a part '{part['type']}', which is code of its own.",
                expected="parts of the sentence-transformers library only; no code of a model is ever run",
                to_do="choose another model, or embed with it yourself and give limpet the vectors.",
            )
    inner = [(folder / str(part["path"])).resolve() for part in parts if part["path"]]
    if not all(place.is_relative_to(folder.resolve()) for place in inner):
        raise ConfigError(f"'{path}' names a folder outside of '{folder}'.", expected="parts inside the folder")
    return [folder / place.relative_to(folder.resolve()) for place in inner if place.is_dir()]


def _refuse_pickled(place: Path) -> None:
    """Refuse a folder whose only weights are pickled: reading them could run code."""
    files = sorted(place.iterdir())
    pickled = [file.name for file in files if file.suffix in _PICKLED]
    if pickled and not any(file.suffix == ".safetensors" for file in files):
        raise ConfigError(
            f"The weights in '{place}' are pickled ({', '.join(pickled)}): reading them could run code.",
            expected="weights in model.safetensors",
            to_do="where you trust the model, write it anew: "
            "SentenceTransformer(MODEL).save_pretrained(FOLDER); then give that folder.",
        )


ADAPTER_CONFIG = "adapter_config.json"
_QUANTISED = ("I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2")
"""Array types in safetensors that a library would have to dequantise."""


def refuse_parts_of_weights(folder: Path) -> None:
    """Refuse a folder whose weights are an addition to those of another model, or are quantised.

    Libraries may ignore such weights, depending on installed packages; vectors would then silently be those of another
    model.

    Raises:
        ConfigError: The folder holds such weights.
    """
    if (folder / ADAPTER_CONFIG).exists():
        base = read_json(folder / ADAPTER_CONFIG)
        base = base.get("base_model_name_or_path") if isinstance(base, Mapping) else None
        raise ConfigError(
            f"'{folder}' holds {ADAPTER_CONFIG}: an addition, such as LoRA, to the weights of "
            f"{'another model' if base is None else brief(base)}.",
            expected="the weights of a whole model",
            to_do="put it into the weights, and give that folder: peft.AutoPeftModel.from_pretrained(FOLDER)"
            ".merge_and_unload().save_pretrained(MERGED), with the tokenizer or image processor beside it.",
        )
    settings = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    if _says(settings, "quantization_config"):
        raise _quantised(folder, "config.json says so (quantization_config)")
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(regular(file), framework="numpy") as arrays:
                kinds = {arrays.get_slice(name).get_dtype() for name in arrays.keys()}  # noqa: SIM118 - not a mapping
        except (OSError, SafetensorError):
            continue  # the code that reads the file reports the error
        if kinds & set(_QUANTISED):
            raise _quantised(folder, f"'{file.name}' has arrays of {', '.join(sorted(kinds & set(_QUANTISED)))}")


def _says(settings: object, name: str) -> bool:
    if not isinstance(settings, Mapping):
        return False
    return bool(settings.get(name)) or any(_says(value, name) for value in settings.values())


def _quantised(folder: Path, why: str) -> ConfigError:
    return ConfigError(
        f"The weights in '{folder}' are quantised: {why}.",
        expected="weights in float32, float16 or bfloat16",
        to_do="take the model as it was published before; or let its library write it anew: model.dequantize()"
        ".save_pretrained(FOLDER).",
    )


_PLAIN = ("eager", "sdpa")
"""Attention implementations of the libraries themselves; others are downloaded from the hub as code."""
_FETCHING = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_UNPICKLING = ("checkpoint_path",)


def refuse_foreign_code(settings: object, where: str) -> None:
    """Refuse network settings that make a library run foreign code or unpickle a file.

    Args:
        settings: Contents of a JSON file; nested mappings and lists are checked as well.
        where: Origin of the settings, for messages.

    Raises:
        ConfigError: A setting does so.

    >>> refuse_foreign_code({"hidden_size": 16, "text_config": {"attn_implementation": "sdpa"}}, "config.json")
    """
    if isinstance(settings, list):
        for one in settings:
            refuse_foreign_code(one, where)
    if not isinstance(settings, Mapping):
        return
    for name, value in settings.items():
        parts = list(value.values()) if isinstance(value, Mapping) else [value]
        fetches = name in _FETCHING and any(part is not None and part not in _PLAIN for part in parts)
        if fetches or (name in _UNPICKLING and value):
            raise ConfigError(
                f"'{where}' sets {name} to {brief(value)}, by which code from elsewhere could run.",
                expected="settings of the network alone; no code of a model is ever run",
                to_do="where you trust the model, take that setting out of the file.",
            )
        refuse_foreign_code(value, where)


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file of a model.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"Cannot read '{path}': {error}.", expected="a file of a text model", to_do="download the model again."
        ) from error


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, 64 hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def contract_fingerprint(contract: Mapping[str, object]) -> str:
    """Return the fingerprint of a model: ``text:<sha256>`` over everything that determines its vectors."""
    return f"text:{hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()}"
