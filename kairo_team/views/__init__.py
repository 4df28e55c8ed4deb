"""Views of a run for people: subscribers that show its events. They need the extra `cli`."""

from kairo_team.views.live import LiveView
from kairo_team.views.plain import PlainView
from kairo_team.views.progress import RowState, RunProgress, TaskRow

__all__ = ["LiveView", "PlainView", "RowState", "RunProgress", "TaskRow"]
