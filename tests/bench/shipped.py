"""The suites that come with holdfast, read once for all tests; nothing changes them."""

from holdfast.bench.suite import RECIPES, recipe_named

EVERY = {name: recipe_named(name) for name in RECIPES}
