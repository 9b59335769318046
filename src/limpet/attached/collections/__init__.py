"""Upgrades of collections of vector databases, which have no triggers: by comparing, pass by pass."""
