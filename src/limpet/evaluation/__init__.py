"""Measuring retrieval and compatibility; importable without torch, each subject from its own module."""
