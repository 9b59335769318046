"""The suites that come with limpet: one YAML file each, which `limpet_bench.suite.RECIPES` lists by name.

Those named after a table of a paper are at its full size, with its recipe; those that end in ``-small``, and
``frozen-text``, run in minutes on two cores.
"""
