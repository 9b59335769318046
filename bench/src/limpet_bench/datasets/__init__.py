"""Readers of official data sets in their published layouts; `limpet.data.DATASETS` finds them by name."""
