"""The kit of `GuardrailPolicy`: its decisions, and their effect at each boundary of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kairo_team.budget import Usage
from kairo_team.contracts import GuardrailPolicy, MemberContext
from kairo_team.errors import GuardrailDenied
from kairo_team.events import GuardrailDecided, ModelDelta
from kairo_team.governance.policies import McpPolicy, McpSecurityPolicy
from kairo_team.guardrails import (
    GuardrailPayload,
    ModelInput,
    ModelOutput,
    ToolInput,
    ToolOutput,
)
from kairo_team.messages import Message, ModelRequest, ModelResponse
from kairo_team.tasks import Assignment
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.guardrail_decisions import MODIFY, GuardrailDecisions
from kairo_team.tck.kit import clause
from kairo_team.tck.one_attempt import Played, play
from kairo_team.testing.scripted import FunctionModel
from kairo_team.tools.permissions import ToolPermissions
from kairo_team.tools.result import ToolResult
from kairo_team.tools.tool import Tool

P = TypeVar("P", ModelInput, ModelOutput, ToolInput, ToolOutput)
_CHARGED: Final = Usage(5, 5)
_ASKED: Final = ModelInput([Message.user("Say something.")])
_SAID: Final = ModelOutput(ModelResponse("fine"))


@dataclass(slots=True)
class Trip:
    """One payload on its way through a run."""

    payload: GuardrailPayload
    metadata: Mapping[str, Any]
    times: int = 1
    """How often it is sent."""
    streams: bool = False
    harmless: Sequence[GuardrailPayload] = ()
    """Replies that may be given on the way."""
    model_calls: int = 0
    tool_calls: int = 0
    arrived: list[GuardrailPayload] = field(default_factory=list[GuardrailPayload])
    """The payloads that arrived on the other side."""
    refused: str | None = None
    """The text that the member got at the last refusal."""

    async def make(self, assignment: Assignment, context: MemberContext) -> str:
        """Send it."""
        try:
            for _ in range(self.times):
                self.refused = None
                await self._send(context)
        except GuardrailDenied as denied:
            self.refused = denied.reason
            raise
        return "done"

    async def _send(self, context: MemberContext) -> None:
        match self.payload:
            case ModelInput() as asked:
                request = ModelRequest(asked.messages, settings=asked.settings)
                await context.model(FunctionModel(self._reply)).complete(request)
            case ModelOutput():
                request = ModelRequest(self._other(_ASKED).messages)
                model = context.model(FunctionModel(self._reply))
                response = await (model.stream(request) if self.streams else model.complete(request))
                self.arrived.append(ModelOutput(replace(response, usage=None)))
            case ToolInput() as call:
                self._note(await context.tool(self._tool(call.name)).call(call.arguments))
            case ToolOutput() as returned:
                arguments = self._other(ToolInput(returned.name)).arguments
                result = await context.tool(self._tool(returned.name)).call(arguments)
                self._note(result)
                self.arrived.append(ToolOutput(returned.name, result.text))

    def _other(self, default: P) -> P:
        """Return the replies of the phases other than the payload's."""
        return next((one for one in self.harmless if isinstance(one, type(default))), default)

    def _note(self, result: ToolResult) -> None:
        self.refused = result.text if result.refused_by is not None else None

    def _reply(self, request: ModelRequest) -> ModelResponse:
        self.model_calls += 1
        if isinstance(self.payload, ModelOutput):
            return replace(self.payload.response, usage=_CHARGED)
        self.arrived.append(ModelInput(request.messages, request.settings))
        return replace(self._other(_SAID).response, usage=_CHARGED)

    def _tool(self, name: str) -> Tool:
        async def call(arguments: Mapping[str, Any]) -> Any:
            self.tool_calls += 1
            if isinstance(self.payload, ToolOutput):
                return self.payload.text
            self.arrived.append(ToolInput(name, arguments))
            return self._other(ToolOutput(name, "fine")).text

        server, own = self.metadata.get("server"), self.metadata.get("tool")
        return Tool(name, call, side_effect="read", server=server, server_tool=own if server else None)


class GuardrailPolicyTCK(GuardrailDecisions):
    """The contract kit of guardrails.

    Override `make_policy` and give `allowed_payloads`. Also give `denied_payloads`, `modified_payloads` and
    `warned_payloads` if the policy makes such decisions.
    """

    @clause("C6")
    async def test_c06_its_failure_is_a_denial_in_a_run(self) -> None:
        """An allowed payload does not pass if the policy cannot decide."""
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        for payload in self.allowed_payloads:
            trip, _ = await self._play(payload, self.make_crashing_policy())
            assert trip.refused is not None, f"{payload} passed a policy that could not decide"

    @clause("C9", needs="denied_payloads")
    async def test_c09_what_it_denies_goes_no_further(self) -> None:
        """A denied request is not sent, a denied reply not used, a denied tool not run, a denied result replaced."""
        for payload in self.denied_payloads:
            for where in ("member", "team"):
                trip, played = await self._play(payload, self.make_policy(), where, self.denies_at)
                assert trip.refused, f"as a {where}'s guardrail it let pass what it denies: {payload}"
                assert self._events(played, "deny"), "no event of its denial was emitted"
                _check_denied(trip, played)

    @clause("C9", needs="denied_payloads")
    async def test_c09_a_denied_reply_is_not_streamed(self) -> None:
        """No piece of it is emitted while it arrives."""
        replies = [payload for payload in self.denied_payloads if isinstance(payload, ModelOutput) and payload.text]
        skip_unless(replies, "none of denied_payloads is a reply with text")
        for payload in replies:
            trip, played = await self._play(payload, self.make_policy(), times=self.denies_at, streams=True)
            emitted = "".join(event.text for event in played.seen.of(ModelDelta))
            assert trip.refused, f"streamed, it let pass what it denies: {payload}"
            assert emitted == payload.text * (self.denies_at - 1), (
                f"of the text that it denied, this was emitted: {emitted!r}"
            )

    @clause("C10")
    async def test_c10_what_it_allows_arrives_as_it_was(self) -> None:
        """An allowed payload arrives unchanged, without an event."""
        for payload in self.allowed_payloads:
            trip, played = await self._play(payload, self.make_policy())
            assert trip.refused is None, f"{payload} was refused: {trip.refused}"
            assert trip.arrived == [as_in_a_run(payload)], f"{payload} arrived as {trip.arrived}"
            assert not played.seen.of(GuardrailDecided), "a GuardrailDecided event was emitted for an allowance"

    @clause("C10", needs="modified_payloads")
    async def test_c10_what_it_modifies_is_all_that_is_seen(self) -> None:
        """Only the modified payload arrives."""
        for payload in self.modified_payloads:
            made = (await self.decided(as_in_a_run(payload), MODIFY)).payload
            trip, played = await self._play(payload, self.make_policy())
            assert trip.arrived == [made], f"{trip.arrived} arrived in place of {made}"
            assert self._events(played, "modify"), "no event of its modification was emitted"

    @clause("C10", needs="warned_payloads")
    async def test_c10_what_it_warns_of_passes_and_is_told(self) -> None:
        """The payload arrives unchanged, and an event has the warning."""
        for payload in self.warned_payloads:
            trip, played = await self._play(payload, self.make_policy())
            assert trip.arrived == [as_in_a_run(payload)], f"{payload} arrived as {trip.arrived}"
            assert self._events(played, "warn"), "no event of its warning was emitted"

    async def _play(
        self,
        payload: GuardrailPayload,
        policy: GuardrailPolicy,
        where: str = "member",
        times: int = 1,
        *,
        streams: bool = False,
    ) -> tuple[Trip, Played]:
        """Send a payload through a run whose only guardrail is this one."""
        trip = Trip(payload, self.about(payload).metadata, times, streams, self.allowed_payloads)
        permissions = ToolPermissions(mcp=McpPolicy(McpSecurityPolicy.ALLOW_ALL))  # only the tested policy decides
        if where == "member":
            return trip, await play(trip.make, member={"guardrails": [policy]}, permissions=permissions)
        return trip, await play(trip.make, guardrails=[policy], permissions=permissions)

    def _events(self, played: Played, action: str) -> list[GuardrailDecided]:
        return [event for event in played.seen.of(GuardrailDecided) if event.action == action and event.reason]


def _check_denied(trip: Trip, played: Played) -> None:
    """Fail unless a denial had the effect of its phase."""
    charged = played.result.usage.tokens
    match trip.payload:
        case ModelInput():
            assert trip.model_calls == trip.times - 1, "the model was called"
            assert charged == _CHARGED.tokens * (trip.times - 1), f"{charged} tokens were charged"
            assert not played.accepted, "the attempt was accepted"
        case ModelOutput():
            assert len(trip.arrived) == trip.times - 1, f"the member got the reply: {trip.arrived}"
            assert charged == _CHARGED.tokens * trip.times, f"{charged} tokens were charged for {trip.times} replies"
        case ToolInput():
            assert trip.tool_calls == trip.times - 1, "the tool ran"
        case ToolOutput() as returned:
            assert trip.arrived[-1].text == trip.refused, "the result was not replaced by the reason"
            assert trip.arrived[-1].text != returned.text, "the member read the result"


def as_in_a_run(payload: GuardrailPayload) -> GuardrailPayload:
    """Return a payload as a run shows it: results of tools are text there."""
    return ToolOutput(payload.name, payload.text) if isinstance(payload, ToolOutput) else payload
