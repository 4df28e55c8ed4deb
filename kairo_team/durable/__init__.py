"""The journal on disk: runs that can be resumed after their process has died, and the codec of their values."""

from kairo_team.durable.codec import CorruptRecord, LongText, NotRecordable, decode, encode, encode_apart, fetching
from kairo_team.durable.kept_files import encode_request

__all__ = [
    "CorruptRecord", "LongText", "NotRecordable", "decode", "encode", "encode_apart", "encode_request", "fetching",
]  # fmt: skip
