"""The contract kit on the tools of a service: a real server of the standard library, on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar, Final

import pytest

pytest.importorskip("openapi_tools", reason="tests/third_party/openapi_tools is not installed")

from openapi_tools import OpenApi

import kairo_team as kt
from kairo_team.contracts import ToolSource
from kairo_team.messages import ToolCall
from kairo_team.tck import ToolCallExample, ToolSourceTCK
from kairo_team.testing import ScriptedModel

HARBOUR: Final = {"name": "harbour", "in": "path", "required": True, "schema": {"type": "string"}}
DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "paths": {
        "/tides/{harbour}": {
            "parameters": [{"$ref": "#/components/parameters/Harbour"}],
            "get": {"operationId": "read", "summary": "Return the tides of a harbour."},
            "put": {
                "operationId": "note",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tide"}}}},
            },
        },
    },
    "components": {
        "parameters": {"Harbour": HARBOUR},
        "schemas": {
            "Tide": {"type": "object", "properties": {"metres": {"type": "number"}}, "required": ["metres"]},
        },
    },
}


class Tides(BaseHTTPRequestHandler):
    heights: ClassVar[dict[str, float]] = {"Brest": 7.8}

    def do_HEAD(self) -> None:
        self.answer(200, "")

    def do_GET(self) -> None:
        harbour = self.path.rpartition("/")[2]
        if harbour in self.heights:
            self.answer(200, json.dumps({"harbour": harbour, "metres": self.heights[harbour]}))
        else:
            self.answer(404, f"there is no harbour {harbour}")

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer(200, f"noted {body['metres']} m")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tides)
    Thread(target=server.serve_forever, daemon=True).start()
    TestOpenApi.address = f"http://127.0.0.1:{server.server_port}"
    yield TestOpenApi.address
    server.shutdown()
    server.server_close()


class TestOpenApi(ToolSourceTCK):
    virtual_time = False
    examples = (
        ToolCallExample("tides_read", {"harbour": "Brest"}, '"metres": 7.8'),
        ToolCallExample("tides_note", {"harbour": "Brest", "metres": 7.9}, "noted 7.9 m"),
    )
    failing_calls = (("tides_read", {"harbour": "nowhere"}),)
    address: ClassVar[str]

    @classmethod
    def make_source(cls) -> ToolSource:
        return OpenApi("tides", DOCUMENT, cls.address)

    @classmethod
    def make_failing_source(cls) -> ToolSource:
        return OpenApi("tides", DOCUMENT, "http://127.0.0.1:9")


@pytest.mark.real_time
async def test_a_member_reads_the_tides(address: str) -> None:
    asks = kt.ModelResponse("", [ToolCall("1", "tides_read", {"harbour": "Brest"})], kt.Usage(9, 1))
    model = ScriptedModel([asks, "It is 7.8 m."])
    agent = kt.MiniAgent("test:pilot", tools=[OpenApi("tides", DOCUMENT, address)])
    team = kt.Team("port", [kt.Member("pilot", agent)], runtime=kt.Runtime(models={"test:pilot": model}))
    result = await kt.run(team, "How high is the water in Brest?")
    assert result.output == "It is 7.8 m."
    assert ["7.8" in message.text for message in model.calls[-1].messages if message.role == "tool"] == [True]


def test_another_document_is_not_fetched() -> None:
    elsewhere = {"paths": {"/x": {"get": {"operationId": "x", "parameters": [{"$ref": "https://evil.example/p"}]}}}}
    with pytest.raises(ValueError, match="another document"):
        OpenApi("x", elsewhere, "http://127.0.0.1:9")
