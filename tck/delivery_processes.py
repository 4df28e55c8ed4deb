"""Several processes share a queue, and one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import pytest

from kairo_team.tck.delivery_stage import Deliveries, DeliveryStage, Pair, Scene, blocking_clause

MANY: Final = 12


class ProcessTests(DeliveryStage):
    """C9, C11, C12, C14."""

    @blocking_clause("C9")
    def test_c09_processes_share_a_queue(self) -> None:
        """Each delivery goes to one process; if one is full, the other gets the rest."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene, scene.receiving(deliveries, concurrency=1):
            deliveries.wait(scene.send(scene.unit("first")))
            with another_process(scene, hold=False) as other:
                sent = {scene.send(scene.unit(f"{number}")) for number in range(MANY)}
                scene.wait_until("all went to the process that has room", lambda: {*other.given} >= sent)
                assert len(deliveries.given) == 1, f"a full receiver was given {deliveries.given}"
                assert {*other.given} == sent, f"two processes have { ({*other.given} - sent) }"
                assert len(other.given) == MANY, f"the other one was given some twice: {other.given}"

    @blocking_clause("C11", "C12", "C14")
    def test_c11_a_dead_process_is_in_nobodys_way(self) -> None:
        """The deliveries of the dead process soon end, take no room, and can be sent again or forgotten."""
        deliveries = Deliveries()
        with self.scene() as scene:
            with another_process(scene, hold=True) as other:
                had = [scene.send(scene.unit("one")), scene.send(scene.unit("two"))]
                scene.wait_until("the other process has both", lambda: {*other.given} >= {*had})
                assert scene.under_way(*had) == {*had}, "a living process works on both"
                other.kill()
            with scene.receiving(deliveries, concurrency=1):
                deliveries.wait(scene.send(scene.unit("new")))
                scene.wait_for_ends(*had)
                deliveries.wait(scene.send(had[0][0], 2))
                scene.delivery.forget(scene.connection, [unit for unit, _ in had])
                scene.connection.commit()
                deliveries.wait(scene.send(scene.unit("newer")))

    @blocking_clause("C12")
    def test_c12_what_a_stopped_process_had_is_not_under_way(self) -> None:
        """The connections of such a process stay open."""
        if sys.platform == "win32":
            pytest.skip("Windows stops no process")
        with self.scene() as scene, another_process(scene, hold=True) as other:
            try:
                had = scene.send(scene.unit("had"))
                scene.wait_until("the other process has it", lambda: had in other.given)
                other.stop()
                scene.wait_for_ends(had)
            finally:
                other.kill()


class OtherProcess:
    """A process that receives from a queue, and prints its deliveries."""

    def __init__(self, scene: Scene, process: subprocess.Popen[str]) -> None:
        self._scene, self._process = scene, process
        self.given: list[Pair] = []
        self._ready = threading.Event()
        assert process.stdout is not None
        self._reading = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reading.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "ready":
                self._ready.set()
            elif kind == "given":
                fence, _, unit = rest.partition(" ")
                self.given.append((unit, int(fence)))

    def wait_until_ready(self) -> None:
        """Wait until it receives."""
        self._scene.wait_until(
            "another process receives", lambda: self._ready.is_set() or self._process.poll() is not None
        )
        assert self._ready.is_set(), f"another process ended with {self._process.returncode} before it received"

    def stop(self) -> None:
        """Stop the process, so that it does nothing and its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Kill the process, so that it finishes nothing."""
        self._process.kill()
        self._process.wait()


@contextmanager
def another_process(scene: Scene, *, hold: bool) -> Generator[OtherProcess]:
    """Receive in another process, which ends each delivery at once or, with `hold`, never."""
    kit = scene.kit
    program = "import sys; from kairo_team.tck.delivery_child import receive; receive(*sys.argv[1:])"
    arguments = [kit.__module__, kit.__qualname__, scene.unit("other"), scene.queue, "hold" if hold else ""]
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    with subprocess.Popen(  # noqa: S603 - this Python, with the name of a kit
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "KAIRO_KIT_URL": scene.url},
    ) as process:
        other = OtherProcess(scene, process)
        try:
            other.wait_until_ready()
            yield other
        finally:
            assert process.stdin is not None
            if process.poll() is None:
                process.stdin.close()  # the process ends
            process.wait()
