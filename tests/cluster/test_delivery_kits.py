"""Both delivery engines, and a plain one, pass the kit."""

from __future__ import annotations

import pytest

from kairo_team.cluster.cluster import delivery_of
from kairo_team.cluster.delivery import Delivery
from kairo_team.tck import DeliveryTCK
from tests.cluster.plain_delivery import PlainDelivery
from tests.cluster.server import server


class OnTheServer(DeliveryTCK):
    """On databases of the tests' server."""

    __test__ = False

    @classmethod
    def database_url(cls) -> str:
        return server().new_database()


class TestProcrastinate(OnTheServer):
    __test__ = True

    @classmethod
    def make_delivery(cls, url: str) -> Delivery:
        return delivery_of("procrastinate", url, intervals=cls.beats)


class TestDBOS(OnTheServer):
    __test__ = True

    @classmethod
    def make_delivery(cls, url: str) -> Delivery:
        return delivery_of("dbos", url, intervals=cls.beats)


@pytest.mark.exhaustive
class TestPlain(OnTheServer):
    """The engine from which the mutants of the kit are made."""

    __test__ = True

    @classmethod
    def make_delivery(cls, url: str) -> Delivery:
        return PlainDelivery(url, cls.beats)
