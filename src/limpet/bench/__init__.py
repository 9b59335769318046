"""Methods compared over data sets, scenarios and seeds: what a comparison comes to, and which leads are no chance.

Only the command line imports this package, but for `leaderboard`, what a comparison comes to: pages and tables read it.
"""
