"""Names of pages for addresses."""


def slug(title: str) -> str:
    """Return a title in lower case, with one dash in place of everything that is not a letter or a digit."""
    raise NotImplementedError
