"""The version of this library, found without `importlib.metadata`, whose import takes as long as a command's help."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Final

_BEGIN: Final = "kairo_team-"
_END: Final = ".dist-info"


@cache
def version_of_library() -> str:
    """Return the version of this library; "" if it is not installed."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208 - pathlib would have to be imported
        except OSError:  # an archive, or a folder that is gone
            continue
        for name in names:
            if name.startswith(_BEGIN) and name.endswith(_END):
                return name.removeprefix(_BEGIN).removesuffix(_END)
    from importlib.metadata import PackageNotFoundError, version  # knows other ways to be installed

    try:
        return version("kairo-team")
    except PackageNotFoundError:
        return ""
