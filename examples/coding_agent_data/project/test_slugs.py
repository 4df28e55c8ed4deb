"""The project's own tests: `python -m unittest`."""

# The module is found in the folder that the tests run in.
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import unittest

from slugs import slug


class SlugTest(unittest.TestCase):
    """What `slug` promises."""

    def test_words(self) -> None:
        """Words are joined by dashes."""
        assert (found := slug("Spring Tides")) == "spring-tides", found

    def test_several_signs_are_one_dash(self) -> None:
        """Signs in a row are one dash."""
        assert (found := slug("Tides, and why")) == "tides-and-why", found

    def test_no_dash_at_the_ends(self) -> None:
        """A slug neither begins nor ends with a dash."""
        assert (found := slug("Why tides?")) == "why-tides", found
