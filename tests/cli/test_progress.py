from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from kairo_team import events
from kairo_team.views import RowState, RunProgress

_spec = util.spec_from_file_location("story", Path(__file__).with_name("story.py"))
