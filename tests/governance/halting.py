"""What guards raise, for tests that look at it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kairo_team.errors import HaltError


def halt_of(call: Callable[[], object]) -> HaltError:
    with pytest.raises(HaltError) as caught:
        call()
    return caught.value
