"""The version of the package, for everything that names it."""

__version__ = "0.1.0"
