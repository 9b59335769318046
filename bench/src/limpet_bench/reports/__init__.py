"""Tables, charts and pages for the results of the bench."""
