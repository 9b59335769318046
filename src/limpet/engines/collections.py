"""Engines of collections, by the scheme of their URLs."""

from __future__ import annotations

from limpet.engines.collection import Engine
from limpet.registry import Registry

ENGINES: Registry[type[Engine]] = Registry(
    "engine of collections",
    "engines",
    {
        "qdrant": "limpet.engines.qdrant.collection:QdrantEngine",
        "milvus": "limpet.engines.milvus.collection:MilvusEngine",
        "chroma": "limpet.engines.chroma.collection:ChromaEngine",
    },
    fits=lambda thing: (
        isinstance(thing, type) and all(hasattr(thing, name) for name in ("beside", "scopes", "port", "sides", "scan"))
    ),
    expected="a class that is a limpet.engines.collection.Engine",
)
"""Classes that upgrade collections, by the scheme of their URLs."""
