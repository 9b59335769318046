"""Upgrades of collections of vector databases, which have no triggers: repeated passes compare both sides."""
