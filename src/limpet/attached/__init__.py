"""Upgrades carried out in the place where an application keeps its vectors, step by step, each with a way back."""
