"""Database URLs, which may contain a password."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit, urlunsplit


def has_password(url: str) -> bool:
    """Return whether a database URL has a password; True also for an address that cannot be parsed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "://" in url
    named = any(name.lower().endswith("password") for name in parse_qs(parts.query, keep_blank_values=True))
    return bool(parts.password) or named


def shown_url(url: str) -> str:
    """Return a database URL without its password, as a command line may show it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "URL"
    before, at, host = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    query = "&".join(one for one in parts.query.split("&") if "password" not in one.partition("=")[0].lower())
    return urlunsplit((parts.scheme, f"{user}{at if user else ''}{host}", parts.path, query, ""))
