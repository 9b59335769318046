"""Optional packages, the extra that installs each, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from limpet.errors import MissingExtraError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "train": ("torch", "lightning_fabric", "PIL"),
    "gallery": ("lance",),
    "report": ("altair", "vl_convert", "jinja2"),
    "demo": ("matplotlib",),
    "models": ("transformers",),
    "text": ("sentence_transformers", "tokenizers"),
    "hub": ("huggingface_hub",),
    "peft": ("peft",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "pgvector": ("psycopg", "pgvector"),
    "s3": ("obstore",),
    "qdrant": ("qdrant_client",),
    "milvus": ("pymilvus",),
    "milvus-lite": ("milvus_lite",),
    "api": ("httpx", "tenacity"),
    "chroma": ("httpx",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "lightning"),
    "wandb": ("wandb", "lightning"),
    "tsne": ("sklearn",),
    "umap": ("umap",),
    "fast": ("numba",),
    "triplet": ("pytorch_metric_learning",),
    "progress": ("tqdm",),
    "ray": ("ray",),
}
"""Imported packages by extra; the first extra that has a package is the one to install."""

_CALLED = {"PIL": "pillow", "lance": "pylance", "lightning_fabric": "lightning-fabric", "sklearn": "scikit-learn",
           "umap": "umap-learn", "jinja2": "Jinja2", "vl_convert": "vl-convert-python",
           "qdrant_client": "qdrant-client", "milvus_lite": "milvus-lite"}  # fmt: skip


def extra_of(package: str | None) -> str | None:
    """Return the extra that installs a package, by its import name or that of a module in it; None if none does.

    >>> extra_of("torch.nn"), extra_of("numpy")
    ('train', None)
    """
    root = (package or "").partition(".")[0]
    return next((extra for extra, packages in EXTRAS.items() if root in packages), None)


def installing(*extras: str) -> str:
    """Return the command that installs extras from the checkout of limpet, which is on no package index.

    >>> installing("train", "report")
    "pip install '.[train,report]'"
    """
    return f"pip install '.[{','.join(extras)}]'"


def installed(*extras: str) -> bool:
    """Return whether all packages of extras are installed, without importing them."""
    return not any(_absent(extra) for extra in extras)


def missing(subject: str, *packages: str, or_else: str = "") -> MissingExtraError:
    """Return the error for missing packages of extras.

    Args:
        subject: Feature that needs them, as the beginning of a sentence.
        packages: Import names of the packages, or of modules in them.
        or_else: Alternative without them, after "or".
    """
    extras = list(dict.fromkeys(str(extra_of(package)) for package in packages))
    called = [_CALLED.get(root, root) for root in (package.partition(".")[0] for package in packages)]
    return MissingExtraError(
        f"{subject} needs {' and '.join(called)}, which {'is' if len(called) == 1 else 'are'} not installed.",
        to_do=f"{installing(*extras)} in the checkout of limpet" + (f", or {or_else}" if or_else else "") + ".",
        packages=called,
    )


def require(subject: str, *extras: str | None, or_else: str = "") -> None:
    """Refuse missing extras before anything is computed; None counts as installed.

    Raises:
        MissingExtraError: An extra is missing; the message gives one command for all of them.
    """
    absent = [_absent(extra)[0] for extra in extras if extra is not None and _absent(extra)]
    if absent:
        raise missing(subject, *absent, or_else=or_else)


@contextmanager
def needing(subject: str, or_else: str = "") -> Iterator[None]:
    """Raise an error that names the extra if the ``with`` block imports a missing package of it; see `missing`.

    Raises:
        MissingExtraError: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if extra_of(error.name) is None:
            raise
        raise missing(subject, str(error.name), or_else=or_else) from error


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Name the extra where a module of limpet imports a package of one, in the ``with`` block, that is absent.

    An outer `needing` block replaces the message.

    Args:
        module: Name of the module of limpet.

    Raises:
        MissingExtraError: The package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if extra_of(error.name) is None:
            raise
        told = missing(module, str(error.name))
        raise MissingExtraError(told.given, to_do=told.to_do, packages=told.packages, name=error.name) from error


def _absent(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if find_spec(package) is None]
