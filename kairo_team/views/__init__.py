"""Views of a run for people: subscribers that show its events. Views for a terminal need the extra `cli`."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.views.live import LiveView
    from kairo_team.views.live_notebook import NotebookView
    from kairo_team.views.plain import PlainView
    from kairo_team.views.progress import RowState, RunProgress, TaskRow

__all__ = ["LiveView", "NotebookView", "PlainView", "RowState", "RunProgress", "TaskRow"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "live": "LiveView",
            "live_notebook": "NotebookView",
            "plain": "PlainView",
            "progress": "RowState RunProgress TaskRow",
        },
    )
