"""Readers of official data sets in their published layouts, registered in `limpet.data.DATASETS`."""
