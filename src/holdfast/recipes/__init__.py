"""The suites that come with holdfast: one YAML file each, which `holdfast.bench.suite.RECIPES` lists by name.

Those named after a table of a paper are at its full size, with its recipe; those that end in ``-small``, and
``frozen-text``, run in minutes on two cores.
"""
