"""Sending: in a transaction, to a queue, unchanged, and the state of sent deliveries."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from kairo_team.tck.delivery_stage import Deliveries, DeliveryStage, blocking_clause

ODD: Final = ("späť ☃", "a:b:1", "a%s'\"{}\\", "run/1#attempt?x=y", "u" * 200)
DELAY: Final = 0.6


class SendingTests(DeliveryStage):
    """C1 to C5, C12, C14, C15."""

    @blocking_clause("C1")
    def test_c01_it_is_installed_by_several_at_once_and_again(self) -> None:
        url = self.database_url()
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(self.make_delivery(url).install) for _ in range(3)]:
                done.result()
        delivery = self.make_delivery(url)
        delivery.install()
        with psycopg.connect(url) as connection:
            delivery.send(connection, "queue", "unit", 1)
            connection.commit()
            delivery.install()
            found = delivery.under_way(connection, [("unit", 1)])
            assert found == {("unit", 1)}, "to install it again lost what was sent"

    @blocking_clause("C2")
    def test_c02_what_is_not_committed_is_not_delivered(self) -> None:
        deliveries = Deliveries()
        with self.scene() as scene, scene.receiving(deliveries), psycopg.connect(scene.url) as mine:
            early, never = scene.unit("early"), scene.unit("never")
            scene.delivery.send(mine, scene.queue, early, 1)
            status = mine.info.transaction_status
            assert status is TransactionStatus.INTRANS, f"send left the transaction {status.name}"
            scene.let_pass(deliveries)
            assert (early, 1) not in deliveries.given, "it was delivered before the commit"
            mine.commit()
            deliveries.wait((early, 1))
            scene.delivery.send(mine, scene.queue, never, 1)
            mine.rollback()
            scene.let_pass(deliveries)
            assert (never, 1) not in deliveries.given, "it was delivered although it was rolled back"

    @blocking_clause("C3")
    def test_c03_all_that_was_sent_is_delivered(self) -> None:
        """Messages sent before a receiver started are delivered too."""
        deliveries = Deliveries()
        with self.scene() as scene:
            before = [scene.send(scene.unit(f"before-{number}")) for number in range(10)]
            with scene.receiving(deliveries):
                after = [scene.send(scene.unit(f"after-{number}")) for number in range(10)]
                deliveries.wait(*before, *after)

    @blocking_clause("C3")
    def test_c03_a_delay_holds_it_back(self) -> None:
        deliveries = Deliveries()
        with self.scene() as scene, scene.receiving(deliveries):
            began = time.monotonic()
            pair = scene.send(scene.unit("late"), delay=DELAY)
            assert scene.under_way(pair) == {pair}, "a delayed message must be under way"
            deliveries.wait(pair)
            waited = deliveries.times[deliveries.given.index(pair)] - began
            assert waited >= 0.9 * DELAY, f"a delay of {DELAY:g} seconds was over after {waited:.2f}"

    @blocking_clause("C4")
    def test_c04_unit_and_fence_arrive_as_they_were_sent(self) -> None:
        deliveries = Deliveries()
        with self.scene() as scene, scene.receiving(deliveries):
            # The last is the largest fence that the journal's column holds.
            sent = [scene.send(scene.unit(name), fence) for name in ODD for fence in (1, 2**31 - 1)]
            deliveries.wait(*sent)
            assert {*deliveries.given} == {*sent}, f"something else arrived: { ({*deliveries.given} - {*sent}) }"

    @blocking_clause("C4")
    def test_c04_the_same_pair_is_delivered_again_when_it_is_sent_again(self) -> None:
        deliveries = Deliveries()
        with self.scene() as scene, scene.receiving(deliveries):
            pair = scene.send(scene.unit("twice"))
            deliveries.wait(pair)
            scene.wait_for_ends(pair)
            scene.send(*pair)
            deliveries.wait(pair, times=2)

    @blocking_clause("C5")
    def test_c05_a_receiver_gets_what_was_sent_to_its_queues(self) -> None:
        """For any names of queues, also long ones with the same beginning."""
        with self.scene() as scene:
            # Longer than the 63 bytes that PostgreSQL keeps of a name.
            alike = "queue of a team with a long name and members " * 3 + scene.queue
            one, two, other = f"{scene.queue}/ä", alike + "1", alike + "2"
            deliveries, others = Deliveries(), Deliveries()
            with scene.receiving(deliveries, queues=[one, two]):
                far = scene.send(scene.unit("other"), queue=other)
                near = [scene.send(scene.unit(queue[-1]), queue=queue) for queue in (one, two)]
                deliveries.wait(*near)
                scene.let_pass(deliveries, queue=one)
                assert far not in deliveries.given, "it was delivered from a queue that is not received"
            with scene.receiving(others, queues=[other]):
                others.wait(far)
                assert others.given == [far], f"{others.given} were delivered, of which only {far} was sent there"

    @blocking_clause("C12")
    def test_c12_what_is_under_way(self) -> None:
        """Waiting messages and work in progress; not ended or unsent messages, or other fences."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene:
            waits = scene.send(scene.unit("waits"), 2)
            never = [(waits[0], 1), (waits[0], 3), (scene.unit("never"), 2)]
            assert scene.under_way(waits, *never) == {waits}, "of what waits"
            with scene.receiving(deliveries):
                deliveries.wait(waits)
                assert scene.under_way(waits, *never) == {waits}, "of what is worked on"
                deliveries.finish(waits)
                scene.wait_for_ends(waits)
        assert deliveries.given == [waits], f"it was delivered {len(deliveries.given)} times"

    @blocking_clause("C14")
    def test_c14_what_is_forgotten_is_not_delivered(self) -> None:
        """Work in progress continues."""
        deliveries = Deliveries(hold=True)
        with self.scene() as scene:
            gone, kept = scene.send(scene.unit("gone")), scene.send(scene.unit("kept"))
            scene.send(gone[0], 2, delay=0.1)
            scene.delivery.forget(scene.connection, [gone[0]])
            scene.connection.rollback()
            assert scene.under_way(gone) == {gone}, "forget is not part of the transaction"
            scene.delivery.forget(scene.connection, [gone[0]])
            scene.connection.commit()
            assert scene.under_way(gone, kept) == {kept}, "only the message that was not forgotten is under way"
            with scene.receiving(deliveries):
                deliveries.wait(kept)
                scene.delivery.forget(scene.connection, [kept[0]])
                scene.connection.commit()
                assert scene.under_way(kept) == {kept}, "work in progress was forgotten"
                deliveries.finish(kept)
                scene.let_pass(deliveries)
                scene.wait_for_ends(kept)
            assert gone[0] not in {unit for unit, _ in deliveries.given}, "a forgotten message was delivered"

    @blocking_clause("C15")
    def test_c15_the_password_is_shown_nowhere(self) -> None:
        secret = "pass-w0rd"
        # Nothing listens at port 1, so an engine fails with this URL in its hand.
        url = f"postgresql://kit:{secret}@127.0.0.1:1/none"
        delivery = self.make_delivery(url)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - an engine raises what its driver raises
            delivery.install()
        shown = [repr(delivery), str(delivery), str(caught.value), repr(caught.value)]
        assert not [text for text in shown if secret in text], "the password is in the repr or in an error"
