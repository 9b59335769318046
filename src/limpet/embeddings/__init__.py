"""Embeddings of items by a model, in memory and in files; importable without torch."""

from limpet.embeddings.embedding_set import EmbeddingSet, as_points, joined
from limpet.embeddings.forms import Form, Role
from limpet.embeddings.same_items import labels_as_in
from limpet.embeddings.string_array import StringArray

__all__ = ["EmbeddingSet", "Form", "Role", "StringArray", "as_points", "joined", "labels_as_in"]
