"""Tables, charts and pages of what the bench measures."""
