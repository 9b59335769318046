"""The suites that come with limpet, read once for all tests; nothing changes them."""

from limpet_bench.suite import RECIPES, recipe_named

EVERY = {name: recipe_named(name) for name in RECIPES}
