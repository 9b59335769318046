"""``limpet upgrade``: migrate a live index, ours or yours, to a new embedding model."""
