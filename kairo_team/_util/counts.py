"""Write numbers with their nouns and verbs."""


def count(number: int, noun: str) -> str:
    """Return a count: `1 task`, `2,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counted(number: int) -> str:
    """Return a number with its verb, for a noun that was named before: `1 is`, `2 are`."""
    return f"{number:,} {'is' if number == 1 else 'are'}"


def in_seconds(number: float) -> str:
    """Return a duration: `1 second`, `0.5 seconds`."""
    return f"{number:g} second{'' if number == 1 else 's'}"
