"""The kit of `Delivery`: messages sent in a transaction, and received in this and other processes, which may die."""

from __future__ import annotations

from kairo_team.tck.delivery_processes import ProcessTests
from kairo_team.tck.delivery_receiving import ReceivingTests
from kairo_team.tck.delivery_sending import SendingTests


class DeliveryTCK(ProcessTests, ReceivingTests, SendingTests):
    """The contract kit of delivery engines: override `database_url` and `make_delivery`.

    The kit runs in real time and in threads, and starts processes that import the module of its class.
    """
