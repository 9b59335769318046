"""`limpet serve`: a live index over HTTP, and the steps of its upgrade as jobs."""
