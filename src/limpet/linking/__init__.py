"""Linking two frozen models: adapters and heads are fitted, compared on held-out items, and kept."""
