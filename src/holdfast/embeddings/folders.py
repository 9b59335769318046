"""Where in a folder that ``holdfast embed`` wrote the embeddings of one model are."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import ConfigError

PARTS = ("query", "gallery", "embeddings", "train")
"""Names of the files of a model, without their ending."""
_RELEASE = ("config.json", "model.safetensors")


def files_in(folder: Path) -> list[str]:
    """Return the names of the files of embeddings that lie in a folder itself."""
    own = [f"{part}.safetensors" for part in PARTS]
    return [name for name in own if (folder / name).is_file()] or sorted(path.name for path in folder.glob("*.parquet"))


def model_folder(path: Path) -> Path:
    """Return the folder of a model's embeddings: the one given, or the only one below it; any other path as it is.

    Raises:
        ConfigError: It is a model itself, or there are folders of several models below it.
    """
    if not path.is_dir() or files_in(path):
        return path
    if all((path / name).is_file() for name in _RELEASE):
        raise ConfigError(
            f"The folder '{path}' is a release: a model, and no embeddings.",
            expected="embeddings that it made",
            to_do=f"make them: holdfast embed --data DATA --release {path} --out DIR.",
        )
    below = sorted(folder for folder in path.iterdir() if folder.is_dir() and files_in(folder))
    if len(below) > 1:
        raise ConfigError(
            f"The folder '{path}' holds embeddings of {len(below)} models: "
            f"{', '.join(folder.name for folder in below[:8])}{', …' if len(below) > 8 else ''}.",
            expected="those of one model",
            to_do=f"give one of these folders, such as '{below[0]}'.",
        )
    return below[0] if below else path
