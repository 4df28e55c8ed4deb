"""Views of a run for people: subscribers that show its events. They need the extra `cli`."""

from kairo_team.views.live import LiveView as LiveView
from kairo_team.views.plain import PlainView as PlainView
from kairo_team.views.progress import RowState as RowState
from kairo_team.views.progress import RunProgress as RunProgress
from kairo_team.views.progress import TaskRow as TaskRow

__all__ = ["LiveView", "PlainView", "RowState", "RunProgress", "TaskRow"]
