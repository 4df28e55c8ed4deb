"""Who asks a model in tests of what events say: a request, and a judge."""

from __future__ import annotations

import kairo_team as kt


def ask(text: str) -> kt.ModelRequest:
    """Make a request of one message."""
    return kt.ModelRequest([kt.Message.user(text)], max_tokens=20)


class Judge:
    """Asks the model `m:x`, and sends each first artifact back."""

    models = ("m:x",)

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        assert context.context is not None
        await context.context.model("m:x").complete(ask(f"judge {context.attempt}"))
        return kt.EvaluationVerdict.revise("again") if context.attempt == 1 else kt.EvaluationVerdict.passed()
