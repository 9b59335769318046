"""The version of the installed package, which is that of its tag; see ``tool.setuptools_scm`` in pyproject.toml."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("limpet")
except PackageNotFoundError:  # sources that are on the path but not installed
    __version__ = "0+unknown"
