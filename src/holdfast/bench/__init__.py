"""Methods compared over data sets, scenarios and seeds: what a comparison comes to, and which leads are no chance.

Only the command line imports this package: pages and tables read the document that `board` gathers.
"""
