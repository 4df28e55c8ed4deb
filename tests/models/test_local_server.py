"""The embedded model's address: closed to others, the same engine, and refused where there is none."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from kairo_team.errors import ModelUnavailable
from kairo_team.models import local
from kairo_team.models.local_server import LocalAddress, local_address

BODY = {"model": "any", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 2, "temperature": 0}


def ask(address: LocalAddress, key: str) -> tuple[int, dict[str, object]]:
    url = urlsplit(address.base_url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request("POST", f"{url.path}/chat/completions", json.dumps(BODY), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


@pytest.mark.local_model
def test_it_answers_on_loopback_with_its_key_alone() -> None:
    address = local_address()
    assert urlsplit(address.base_url).hostname == "127.0.0.1"
    assert urlsplit(address.base_url).path == "/v1"
    status, reply = ask(address, address.api_key)
    assert (status, "choices" in reply) == (200, True)
    status, reply = ask(address, "another key")
    assert (status, "choices" in reply) == (401, False)


@pytest.mark.local_model
def test_it_is_the_engine_that_serves_the_name() -> None:
    assert local_address() == local_address("local:smollm2")
    assert local_address().api_key == local._engine("local:smollm2")._key


def test_the_key_is_not_shown() -> None:
    assert repr(LocalAddress("http://127.0.0.1:1/v1", "key")) == "LocalAddress(base_url='http://127.0.0.1:1/v1')"


def test_another_model_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="'local:smollm2'"):
        local_address("local:other")


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    monkeypatch.setenv(local.FILE_VARIABLE, "no/such.gguf")
    with pytest.raises(ModelUnavailable, match=r"no/such\.gguf"):
        local_address()


ENDING = """
import anyio, json
from urllib.parse import urlsplit
from kairo_team.models.local_server import local_address

address = local_address()
url = urlsplit(address.base_url)
body = json.dumps({"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 4000})
head = f"POST {url.path}/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {address.api_key}\\r\\n"
head += f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"

async def main():
    async with await anyio.connect_tcp(url.hostname, url.port) as stream:
        await stream.send(f"{head}{body}".encode())
        with anyio.move_on_after(0.5):
            await stream.receive()

anyio.run(main)
print("over")
"""


@pytest.mark.local_model
@pytest.mark.skipif(sys.platform == "win32", reason="how a process ended is told otherwise there")
def test_a_process_ends_soon_when_its_client_has_left() -> None:
    """A reply of 4000 tokens would take minutes."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
