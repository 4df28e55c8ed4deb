"""What each process imports; the server that forks them has it already."""

from benchmarks.chaos import processes
from kairo_team.cluster import dbos_delivery, procrastinate_delivery

__all__ = ["dbos_delivery", "processes", "procrastinate_delivery"]
