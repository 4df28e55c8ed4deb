"""The journal on disk: runs that go on after their process has died, and how values are written for that."""

from kairo_team.durable.codec import CorruptRecord, NotRecordable, decode, encode
from kairo_team.durable.requests import encode_request

__all__ = ["CorruptRecord", "NotRecordable", "decode", "encode", "encode_request"]
