"""What pictures of embeddings show, as plain numbers: `limpet.reports.charts` draws them."""
