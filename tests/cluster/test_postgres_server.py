"""The server of the tests has a port of its own, however many start at once."""

from __future__ import annotations

import pytest

from kairo_team.testing import postgres_server as module
from tests.cluster.server import own_server, server


def test_a_port_that_another_server_was_faster_to_take_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there, right = server().port, module._free_port
    ports = iter([there])
    monkeypatch.setattr(module, "_free_port", lambda: next(ports, None) or right())
    with own_server() as made:
        assert made.port != there
        made.new_database()
        made.stop()
        made.start()
        assert made.url != server().url


def test_a_port_that_was_asked_for_and_is_taken_is_an_error_in_the_servers_own_words() -> None:
    with pytest.raises(RuntimeError, match="Address already in use"), own_server(port=server().port):
        pass
