"""Readers of official data sets in their published layouts; `limpet.data.datasets.DATASETS` finds them by name."""
