"""Upgrades of collections of Qdrant and Milvus, which have no triggers: by comparing, pass by pass."""
