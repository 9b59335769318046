"""Numbers behind pictures of embeddings; `limpet_bench.reports.charts` draws them."""
