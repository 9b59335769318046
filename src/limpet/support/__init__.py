"""Helpers that know nothing of embeddings: files, options, optional packages, devices, wording."""
