"""A served team on a database: the budget of a key is an account."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
httpx2 = pytest.importorskip("httpx2", reason="what the test asks with")

import kairo_team as kt  # noqa: E402 - skipped where the extra is not installed
from kairo_team.durable.postgres import PostgresJournal  # noqa: E402
from tests.cluster.stage import BEAT  # noqa: E402
from tests.serve.stage import KEYS, talking  # noqa: E402

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


async def test_the_budget_of_a_key_is_an_account_that_the_next_server_has_too(database: str) -> None:
    body = {"model": "school", "messages": [{"role": "user", "content": "tides"}]}
    statuses: list[int] = []
    used: dict[str, int] = {}
    for _ in range(2):
        journal = PostgresJournal(database, beat=BEAT)
        app: Any = kt.asgi(
            talking(tokens=400),
            keys=KEYS,
            budget=kt.Budget(tokens=500),
            key_budget=kt.Budget(tokens=900),
            runtime=kt.Runtime(journal=journal),
        )
        transport = httpx2.ASGITransport(app=app)
        headers = {"authorization": f"Bearer {KEYS['ada']}"}
        async with (
            app.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://team", headers=headers) as ada,
        ):
            statuses += [(await ada.post("/v1/chat/completions", json=body)).status_code for _ in range(2)]
        used = {one.name: one.used.tokens for one in journal.accounts()}
        journal.close()
    assert statuses == [200, 200, 402, 402]
    assert used == {"serve/ada": 800, "serve/bob": 0}
