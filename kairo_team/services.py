"""What every piece of work of one run shares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anyio import from_thread
from anyio.lowlevel import current_token

from kairo_team.governance.guardrails import GuardrailChain
from kairo_team.models.admission import RULES, CallRules
from kairo_team.overshoots import Overshoots
from kairo_team.tools.circuit import CircuitBreakers
from kairo_team.tools.connections import Connections
from kairo_team.tools.permissions import ToolPermissions, joint_permissions
from kairo_team.tracebacks import Tracebacks

if TYPE_CHECKING:
    from kairo_team.budget import Usage
    from kairo_team.contracts import GuardrailPolicy, Journal, Models
    from kairo_team.governance.pricing import PriceBook
    from kairo_team.human import HumanRequest
    from kairo_team.prompts import Prompts
    from kairo_team.questions import Questions
    from kairo_team.run_constraints import RunConstraints
    from kairo_team.runtime import Runtime
    from kairo_team.steering import Steering
    from kairo_team.work_context import WorkContext

Emit = Callable[..., None]


class Services:
    """Models, prices, prompts, tools and guardrails of one run, and the way to its bus from any thread."""

    __slots__ = (
        "_breakers", "_chains", "_connections", "_emit", "_policies", "_thread", "_token", "allowed", "around", "clock",
        "constraints", "journal", "models", "nest", "overshoots", "permissions", "prices", "prompts", "questions",
        "rules", "run_id", "secrets", "steering", "tracebacks", "withheld",
    )  # fmt: skip

    def __init__(
        self,
        run_id: str,
        *,
        models: Models,
        prices: PriceBook,
        prompts: Prompts,
        journal: Journal,
        clock: Callable[[], float],
        emit: Emit,
        rules: CallRules = RULES,
        permissions: ToolPermissions | None = None,
        secrets: Sequence[str] = (),
        nest: Callable[[WorkContext], Runtime] | None = None,
        around: WorkContext | None = None,
        guardrails: Sequence[GuardrailPolicy] = (),
        guardrails_of: Mapping[str, Sequence[GuardrailPolicy]] | None = None,
        questions: Questions | None = None,
        steering: Steering | None = None,
    ) -> None:
        """Take what the run has; `guardrails` are everybody's, `guardrails_of` those of single members, by name.

        `around` is the attempt that the run is a part of: what its models and tools are held to holds here too, and
        goes first.
        """
        self.run_id = run_id
        self.models = models
        self.prices = prices
        self.rules = rules
        self.prompts = prompts
        self.journal = journal
        self.clock = clock
        self.around = around
        outer: Services | None = None if around is None else around.services
        self.permissions: ToolPermissions | None = (
            permissions if outer is None else joint_permissions(outer.permissions, permissions)
        )
        self.allowed: Sequence[Iterable[str]] = () if around is None else around.allowed_tools
        """Names of tools, of which a tool must be in each list, whatever the roles of the run allow."""
        self.secrets = secrets
        self.nest = nest
        """Makes the runtime of a team inside a task; None where there is no run around."""
        self.questions = questions
        """Asks people; None where there is no run around."""
        self.steering: Steering | None = steering
        """Knows the directives given to the run; None where there is no run around."""
        self.constraints: RunConstraints | None = None
        """None where neither the team nor a member has any: then they cost nothing."""
        self.tracebacks = Tracebacks()
        self.withheld: set[tuple[str, str | None]] = set()
        """Tool sources, and the members that were told that they get nothing of them."""
        self.overshoots = Overshoots(journal)
        """Calls that used more than was held for them."""
        self._emit = emit
        self._policies = (() if around is None else around.policies, guardrails, guardrails_of or {})
        self._chains: tuple[GuardrailChain | None, Mapping[str, GuardrailChain]] | None = None
        self._breakers: CircuitBreakers | None = None
        self._connections: Connections | None = None
        self._thread = threading.get_ident()
        self._token = current_token()

    def emit(self, *event: Any) -> None:
        """Emit an event, from the run's event loop or from a worker thread."""
        self.call(self._emit, *event)

    def note_overshoot(self, model: str, held: Usage, used: Usage) -> None:
        """Take note, from any thread, of a call that used more than was held; whatever is around this run does too."""
        self.call(self.overshoots.note, model, held, used)
        if self.around is not None:
            self.around.services.note_overshoot(model, held, used)

    def warn_of_budget(self) -> None:
        """Tell, from any thread, if most of one of the run's limits is spent."""
        if self.steering is not None:
            self.call(self.steering.warn_of_budget)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the run's event loop, from there or from any other thread, and wait until it is done."""
        if threading.get_ident() == self._thread:
            function(*args)
        else:
            from_thread.run_sync(function, *args, token=self._token)

    def is_answered(self, question: HumanRequest) -> bool:
        """Say whether a question that was put off may have its answer now; the run inside that asked it knows."""
        if question.run_id != self.run_id:
            return True
        return self.questions is not None and self.questions.inbox.is_answered(question)

    def guardrails_of(self, member: str | None) -> GuardrailChain | None:
        """Return the guardrails of a member, or of work that is nobody's; None where there are none."""
        if self._chains is None:
            self._chains = _build_chains(*self._policies)
        shared, own = self._chains
        return shared if member is None else own.get(member, shared)

    @property
    def watches(self) -> Sequence[Callable[[], Coroutine[Any, Any, object]]]:
        """What is to run beside the run."""
        return (self.connections.serve, *(self.constraints.watches if self.constraints is not None else ()))

    @property
    def breakers(self) -> CircuitBreakers:
        """The circuit breakers of the run's tools."""
        if self._breakers is None:
            self._breakers = CircuitBreakers((self.permissions or ToolPermissions()).breaker, self.clock)
        return self._breakers

    @property
    def connections(self) -> Connections:
        """The run's tool sources, such as MCP servers."""
        if self._connections is None:
            self._connections = Connections()
        return self._connections


def _build_chains(
    around: Sequence[GuardrailPolicy],
    everybody: Sequence[GuardrailPolicy],
    members: Mapping[str, Sequence[GuardrailPolicy]],
) -> tuple[GuardrailChain | None, dict[str, GuardrailChain]]:
    """Return the chain of all, and those of members with policies of their own; state is fresh, and shared as meant.

    Policies of the attempt `around` keep their state: it is one with that attempt's.
    """
    shared = GuardrailChain(everybody).for_run() if everybody else None
    if around:
        shared = GuardrailChain([*around, *(shared.policies if shared is not None else ())])
    common = shared.policies if shared is not None else ()
    own = {
        member: GuardrailChain([*common, *GuardrailChain(policies).for_run().policies])
        for member, policies in members.items()
        if policies
    }
    return shared, own
