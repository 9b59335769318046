"""What pictures of embeddings show, as plain numbers: `holdfast.reports.charts` draws them."""
