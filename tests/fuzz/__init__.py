"""Altered files for every reader: mutations.py alters, formats.py makes and reads, trials.py counts what happens."""
