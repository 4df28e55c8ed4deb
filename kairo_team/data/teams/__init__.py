"""Teams as data: YAML, TOML, JSON or a dict, with all mistakes of a file at once."""

from typing import TYPE_CHECKING

from kairo_team._util.lazy_imports import lazy_names

if TYPE_CHECKING:
    from kairo_team.data.teams.loading import TeamJob, load_job, load_team, team_schema

__all__ = ["TeamJob", "load_job", "load_team", "team_schema"]

if not TYPE_CHECKING:  # a type checker would accept any name
    _HOMES = {"loading": "TeamJob load_job load_team team_schema"}
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
