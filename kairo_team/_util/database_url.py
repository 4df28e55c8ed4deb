"""Database URLs, which may contain a password and the schema of our tables."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

SCHEMA: Final = "kairo"
"""The schema of the tables, unless the URL names another one."""
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_PARAMETER: Final = "schema="


def split_schema(url: str) -> tuple[str, str]:
    """Return a URL as PostgreSQL understands it, and the schema that its parameter `schema` names.

    Raises `ValueError`, which does not show the URL, for a name that is not a plain one.
    """
    before, mark, query = url.partition("?")
    if not mark or "://" not in before:
        return url, SCHEMA
    named = [one.removeprefix(_PARAMETER) for one in query.split("&") if one.startswith(_PARAMETER)]
    schema = named[-1] if named else SCHEMA
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ValueError(
            f"schema={schema!r} in a database URL: a schema's name has up to 40 characters of a-z, 0-9 and _, such as "
            "team_a, and does not begin with a digit or pg_"
        )
    rest = "&".join(one for one in query.split("&") if not one.startswith(_PARAMETER))
    return f"{before}?{rest}" if rest else before, schema


def lock_in(schema: str, lock: int) -> int:
    """Return the number of an advisory lock for one schema: the locks of a database are common to its schemas."""
    if schema == SCHEMA:
        return lock
    return int.from_bytes(hashlib.sha256(f"{schema}:{lock:x}".encode()).digest()[:8], signed=True)


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
