"""The kit of `Delivery`: what is sent in a transaction and received in this process and in others, which may die."""

from __future__ import annotations

from kairo_team.tck.delivery_processes import ProcessTests
from kairo_team.tck.delivery_receiving import ReceivingTests
from kairo_team.tck.delivery_sending import SendingTests


class DeliveryTCK(ProcessTests, ReceivingTests, SendingTests):
    """The contract kit of delivery engines: override `database_url` and `make_delivery`.

    It runs in real time and in threads, and starts processes that import the module of the kit's class.
    """
