"""Both ways of counting what a model in a graph uses, and what tests of them look at."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from kairo_team import events
from kairo_team.agents.langgraph import governed
from tests.agents.langgraph_double import Witness

WAYS = pytest.mark.parametrize("wrap", [governed, lambda model: model], ids=["governed", "followed"])


class Dose(BaseModel):
    mg: int


def calls(witness: Witness) -> list[events.ModelCalled]:
    return witness.recorder.of(events.ModelCalled)
