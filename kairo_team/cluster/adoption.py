"""Take over runs of workers that had an earlier version of this library: the same team has another version there."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team.cluster.units import COLUMNS, Unit
from kairo_team.durable.connection import NOW
from kairo_team.engine.records.digests import check_unchanged, has_earlier_parts
from kairo_team.errors import PlanMismatch

if TYPE_CHECKING:
    from kairo_team.cluster.delivery import Delivery

_logger = logging.getLogger("kairo_team")

_UNSERVED: Final = f"""
SELECT {COLUMNS}, (SELECT digests FROM run WHERE run.run_id = unit.run_id) FROM unit
WHERE kind = 'run' AND state = 'sent' AND queue <> ?
 AND EXISTS (SELECT FROM run WHERE run.run_id = unit.run_id AND run.team = ?)
 AND NOT EXISTS (SELECT FROM process WHERE process.kind = 'worker' AND process.state <> 'dead'
  AND process.digest = split_part(unit.queue, ':', 1))
FOR UPDATE SKIP LOCKED"""


def adopt(connection: Any, delivery: Delivery, team: str, digests: Mapping[str, str], queue: str) -> None:
    """Send waiting runs of a team to `queue` that an earlier version of this library began, if no worker serves them.

    The version of a team depends on how the library lists its parts. Only runs whose list is an earlier one are sent,
    and only if all parts that both lists name are equal in `digests`.
    """
    for *row, written in connection.execute(_UNSERVED, (queue, team)).fetchall():
        unit, was = Unit(*row), json.loads(written)
        if not has_earlier_parts(was):
            continue
        try:
            check_unchanged(unit.run_id, was, digests)
        except PlanMismatch as error:
            _logger.info("run %s of an earlier version waits: %s", unit.run_id, error)
            continue
        delivery.forget(connection.raw, [unit.id])
        ours = replace(unit.next(), queue=queue)
        sql = f"UPDATE unit SET queue = ?, fence = ?, sent_at = {NOW} WHERE id = ?"
        connection.execute(sql, (ours.queue, ours.fence, ours.id))
        ours.deliver(delivery, connection)
        _logger.warning("run %s of an earlier version of kairo-team is sent to workers of this one", unit.run_id)
