"""The suites that come with limpet, read once for all tests; nothing changes them."""

from limpet_bench.suites import SUITES, suite_named

EVERY = {name: suite_named(name) for name in SUITES}
