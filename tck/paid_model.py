"""A model that counts its cost, to compare it with the spending that a run books."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kairo_team.budget import Usage
from kairo_team.messages import ModelRequest, ModelResponse
from kairo_team.testing.scripted import FunctionModel


class PaidModel(FunctionModel):
    """A model that answers by a function, and counts the tokens of its replies."""

    def __init__(self, answers: Callable[[ModelRequest], Any], *, dollars_per_token: Decimal = Decimal(0)) -> None:
        super().__init__(answers, name="kit:paid", dollars_per_token=dollars_per_token)
        self.paid = Usage()

    @property
    def spent(self) -> int:
        """The tokens of all replies."""
        return self.paid.tokens

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer, and keep count."""
        response = await super().complete(request)
        self.paid += response.usage or Usage()
        return response
