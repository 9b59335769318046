"""``limpet gallery``: search, backfill, swap and roll back a gallery."""
