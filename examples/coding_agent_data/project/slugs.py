"""Names of pages for addresses."""


def slug(title: str) -> str:
    """Return a title in lower case, with one dash for each run of signs other than a-z and 0-9."""
    raise NotImplementedError
