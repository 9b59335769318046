"""``limpet upgrade``: migrate a live index to a new embedding model, whoever owns its rows."""
