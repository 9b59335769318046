"""Charts of leaderboards, sessions and figures of suites."""
