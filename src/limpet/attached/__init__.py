"""Upgrades in the place where an application keeps its vectors, in steps that can be rolled back."""
