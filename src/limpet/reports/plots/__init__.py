"""Charts of results, by kind: each function returns an Altair chart; `rendering` writes charts for pages and files."""
