"""What pictures of embeddings show, as plain numbers: `limpet_bench.reports.charts` draws them."""
