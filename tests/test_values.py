"""Values: validated where they are built, read-only, comparable, and the same after a trip through JSON."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

import kairo_team as kt
from kairo_team import events
from kairo_team.engine.plan.preflight import bind
from kairo_team.errors import known
from kairo_team.evaluators import CriterionResult
from kairo_team.events import EVENT_TYPES, event_from_json
from kairo_team.governance import BudgetNode
from kairo_team.messages import ToolSpec
from kairo_team.team import _free_name
from kairo_team.verdicts import ESCALATION_CAUSES

AT = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)
FINDING = kt.Finding("f1", criterion="c", locus="line 3", observed="dull", expected="life", recheck="read it aloud")
VERDICT = kt.EvaluationVerdict.revise(
    "dull", findings=[FINDING], score=0.25, criteria=[CriterionResult("c", "not met", False, "dull", "the quote")]
)
TASK = kt.Task(
    "chart", "Plot them.", role="analyst", requires={"plots", "sums"}, depends_on=["fetch"], needs=1,
    inputs={"quarter": 3, "parts": [1, {"deep": None}]}, weight=2.5, budget=kt.Budget(tokens=10, dollars="0.5"),
    timeout=3.5, evaluator="legal", output_type="report", reference="The moon.",
)  # fmt: skip
GRAPH = kt.TaskGraph([kt.Task("fetch", "Get."), TASK])
CONFIG = kt.TeamConfig(
    budget=kt.Budget(tokens=5, seconds=1.5), risk_profile=kt.RiskProfile.LOW, review_timeout=9.0, max_parallel_tasks=2
)
ARTIFACT = kt.Artifact("text", data={"rows": [1, 2], "ok": True}, media_type="application/json", partial=True)
USAGE = kt.Usage(3, 4, Decimal("0.000001"), 1, 2, 0.5)
OUTCOME = kt.TaskOutcome(
    "chart", kt.TaskStatus.FAILED, ARTIFACT, VERDICT, 3, "ann", USAGE, ("careful",), "it did not pass"
)
NODE = BudgetNode("team", "team", kt.Budget(tokens=5), usage=USAGE, children=(BudgetNode("ann", "team/ann"),))
RESULT = kt.TeamResult(
    "r1", kt.TeamStatus.FAILED, (OUTCOME,), ARTIFACT, GRAPH, USAGE, NODE, 2.5, ("it failed",), "it failed",
    kt.HaltReason.TOKEN_BUDGET_EXCEEDED,
)  # fmt: skip
VALUES: list[Any] = [
    kt.Role("writer", instructions="Write.", capabilities={"prose", "verse"}, allowed_tools=["search"]),
    ToolSpec("search", "Searches.", {"type": "object", "required": ["query"]}),
    kt.ToolCall("c1", "search", {"query": "tides"}),
    kt.ToolCall("c2", "search", "no json"),
    kt.Message.assistant("", [kt.ToolCall("c1", "search", {"query": "tides"})]),
    kt.Message.tool("c1", "found"),
    TASK,
    GRAPH,
    CONFIG,
    kt.BudgetPolicy(reserve=0.25),
    kt.TeamExecutionRequest("goal", context={"a": [1, 2]}, plan=GRAPH, config=CONFIG, run_id="r1"),
    ARTIFACT,
    kt.AgentOutput(ARTIFACT, kt.AgentStatus.TURN_LIMIT_REACHED, 3, 4, 2, USAGE, (kt.Message.user("u"),), "why"),
    OUTCOME,
    RESULT,
    VERDICT,
    kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "look", confidence=0.5),
    FINDING,
    USAGE,
    kt.Budget(1, "0.1", 2, 3, 4.5),
    NODE,
    kt.ModelRequest([kt.Message.system("s"), kt.Message.user("u")], (), {"type": "object"}, 5, {"seed": 1}),
    kt.ModelResponse("text", [kt.ToolCall("c1", "search")], usage=USAGE, model="test:m", finish_reason="length"),
]
BY_NAME = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


@BY_NAME
def test_a_trip_through_json_changes_nothing(value: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(type(value))
    text = adapter.dump_json(value)
    again = adapter.validate_json(text)
    assert again == value
    assert adapter.dump_json(again) == text


@BY_NAME
def test_equal_values_are_equal_and_hash_alike(value: Any) -> None:
    again = dataclasses.replace(value)
    assert again == value
    assert hash(again) == hash(value)
    assert value != object()
    assert {value: 1}[again] == 1


@BY_NAME
def test_a_value_cannot_be_changed(value: Any) -> None:
    field = dataclasses.fields(value)[0].name
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        setattr(value, field, getattr(value, field))


@BY_NAME
def test_an_unknown_field_is_a_type_error_and_not_silence(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"{type(value).__name__} takes no 'colour'; it takes "):
        dataclasses.replace(value, colour="red")


@BY_NAME
def test_a_repr_names_the_type_and_what_is_in_it(value: Any) -> None:
    assert type(value).__name__ in repr(value)


@BY_NAME
def test_values_can_be_pickled(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own bytes


# ---------------------------------------------------------------- containers


@pytest.mark.parametrize(
    "container",
    [
        TASK.inputs,
        TASK.inputs["parts"][1],
        kt.TeamExecutionRequest("g", context={"a": {"b": 1}}).context["a"],
        ARTIFACT.data,
    ],
)
def test_containers_are_copied_read_only(container: Any) -> None:
    before = dict(container)
    for change in (
        lambda: container.update(x=1),
        lambda: container.setdefault("x", 1),
        lambda: container.pop(next(iter(container))),
        container.clear,
        container.popitem,
    ):
        with pytest.raises(TypeError, match="part of a frozen value"):
            change()
    with pytest.raises(TypeError):
        container["x"] = 1
    with pytest.raises(TypeError):
        del container[next(iter(container))]
    assert dict(container) == before


def test_what_was_handed_in_may_change_afterwards() -> None:
    inputs: dict[str, Any] = {"rows": [1]}
    needs, capabilities = ["a"], {"prose"}
    task = kt.Task("t", "do", inputs=inputs, depends_on=needs)
    role, artifact = kt.Role("r", capabilities=capabilities), kt.Artifact("t", data=inputs)
    inputs["rows"].append(2)
    inputs["x"] = 1
    needs.append("b")
    capabilities.add("verse")
    assert (task.inputs, task.depends_on, role.capabilities) == ({"rows": (1,)}, ("a",), {"prose"})
    assert artifact.data == {"rows": (1,)}


@pytest.mark.parametrize("given_as", [["b", "a"], ("a", "b"), {"a", "b"}, frozenset({"a", "b"})])
def test_names_may_be_given_as_any_collection_but_not_as_one_string(given_as: Any) -> None:
    assert kt.Role("r", capabilities=given_as).capabilities == frozenset({"a", "b"})
    assert kt.Task("t", "do", requires=given_as).requires == frozenset({"a", "b"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: kt.Role("r", capabilities="prose"),
        lambda: kt.Task("t", "do", requires="prose"),
        lambda: kt.Task("t", "do", depends_on="fetch"),
    ],
)
def test_one_string_is_no_list_of_names(make: Any) -> None:
    with pytest.raises(ValueError, match="strings, not the one string "):
        make()


# ---------------------------------------------------------------- refused where it is built


@pytest.mark.parametrize("bad", ["", " ", "a b", "a/b", "ä", "a\n", 'a"', "a:b"])
@pytest.mark.parametrize(
    "make",
    [
        kt.Role,
        lambda text: kt.Task(text, "do"),
        lambda text: kt.TeamExecutionRequest("g", run_id=text),
        lambda text: kt.Member("r", lambda _: "", name=text),
    ],
    ids=["role", "task", "run", "member"],
)
def test_ids_are_plain(make: Any, bad: str) -> None:
    with pytest.raises(ValueError, match="an id is made of letters, digits"):
        make(bad)


async def agent(assignment: kt.Assignment) -> str:
    return ""


MEMBER = kt.Member("a", agent)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kt.Task("t", "  "), "task 't': the description must not be blank"),
        (lambda: kt.Task("t", "do", weight=0), "task 't': weight must be > 0"),
        (lambda: kt.Task("t", "do", weight=float("inf")), "task 't': weight must be > 0 and finite"),
        (lambda: kt.Task("t", "do", timeout=-1), "task 't': timeout must be > 0"),
        (lambda: kt.Task("t", "do", needs=1), "task 't': needs must be 'all' or from 0 to its 0 dependencies, not 1"),
        (lambda: kt.Task("t", "do", depends_on=["a"], needs=-1), "not -1"),
        (lambda: kt.Task("t", "do", inputs={"x": object()}), "at 'x' must be made of JSON values"),
        (lambda: kt.Task("t", "do", inputs={"x": [float("nan")]}), "at 'x' must be made of JSON values"),
        (lambda: kt.Task("t", "do", inputs={"x": {1: 2}}), "key 1 at 'x' must be a string"),
        (lambda: kt.TaskGraph([]), "a plan needs at least one task"),
        (lambda: kt.TaskGraph([TASK, TASK]), "task ids must be unique; given twice: 'chart'"),
        (lambda: kt.TeamExecutionRequest(" \n"), "the goal must not be blank"),
        (lambda: kt.TeamExecutionRequest("g", context={"x": {1, 2}}), "at 'x' must be made of JSON values"),
        (lambda: kt.TeamConfig(review_timeout=0), "TeamConfig.review_timeout must be > 0 and finite, or None"),
        (lambda: kt.TeamConfig(task_timeout=float("nan")), "TeamConfig.task_timeout"),
        (lambda: kt.TeamConfig(review_timeout=-3), "TeamConfig.review_timeout"),
        (lambda: kt.TeamConfig(max_parallel_tasks=0), "TeamConfig.max_parallel_tasks"),
        (lambda: kt.TeamConfig(max_feedback_rounds=-1), "TeamConfig.max_feedback_rounds must be >= 0"),
        (lambda: kt.TeamConfig(cancel_grace=-0.1), "TeamConfig.cancel_grace must be a finite number >= 0"),
        (lambda: kt.Member("a", None), "member 'a': the agent must be a function or have an async"),  # type: ignore[arg-type]
        (lambda: kt.Member(5, agent), "Member.role must be a Role or a role's id, not 5"),  # type: ignore[arg-type]
        (lambda: kt.Member("a", agent, max_concurrency=0), "Member.max_concurrency must be a whole number >= 1"),
        (lambda: kt.Member("a", agent, budget=5), "Member.budget must be a Budget or None"),  # type: ignore[arg-type]
        (lambda: kt.Team("t", []), "team 't' has no members"),
        (lambda: kt.Team(" ", [MEMBER]), "Team.name must be a non-blank string"),
        (lambda: kt.Team("t", [agent]), "Team.members must be Member objects"),  # type: ignore[list-item]
        (lambda: kt.Team("t", [kt.Member("a", agent, name="x")] * 2), "must be unique in a team; given twice: 'x'"),
        (lambda: kt.Artifact(None), "Artifact.text must be a string, not None"),  # type: ignore[arg-type]
        (lambda: kt.EvaluationVerdict.passed(1.5), "EvaluationVerdict.score must be from 0 to 1 or None, not 1.5"),
        (lambda: kt.EvaluationVerdict.passed(float("nan")), "EvaluationVerdict.score"),
        (lambda: kt.EvaluationVerdict.escalate(kt.Cause.CYCLE), "cause 'cycle' does not belong to 'escalate'"),
        (lambda: kt.EvaluationVerdict.escalate("tired"), "the cause must be one of 'undecided'"),
        (lambda: kt.EvaluationVerdict.review_exceeded("tired"), "the cause must be one of 'undecided'"),
        (lambda: kt.EvaluationVerdict.review_exceeded(kt.Cause.UNDECIDED), "does not belong to 'review_exceeded'"),
        (lambda: kt.EvaluationVerdict(kt.VerdictOutcome.ESCALATE), "a cause belongs to ESCALATE and REVIEW_EXCEEDED"),
        (lambda: kt.EvaluationVerdict(kt.VerdictOutcome.PASS, cause=kt.Cause.CYCLE), "a cause belongs to"),
        (lambda: kt.EvaluationVerdict(kt.VerdictOutcome.REVISE), "REVISE needs at least one blocking finding"),
    ],
)
def test_nonsense_is_refused_in_words(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("cause", kt.Cause)
def test_every_cause_belongs_to_exactly_one_outcome(cause: kt.Cause) -> None:
    makers = [kt.EvaluationVerdict.escalate, kt.EvaluationVerdict.review_exceeded]
    right, wrong = makers if cause in ESCALATION_CAUSES else reversed(makers)
    assert right(cause).cause is right(cause.value).cause is cause
    with pytest.raises(ValueError, match="does not belong to"):
        wrong(cause)


# ---------------------------------------------------------------- what they can do


def test_members_without_a_name_are_named_by_role_and_number() -> None:
    members = [MEMBER, kt.Member("a", agent), kt.Member("a", agent, name="a-2"), kt.Member("b", agent), MEMBER]
    team = kt.Team("t", members)
    assert [member.id for member in team.members] == ["a", "a-3", "a-2", "b", "a-4"]
    assert team.member("a-3").role.id == "a"
    with pytest.raises(KeyError, match="team 't' has no member 'zoe'; it has 'a', 'a-2'"):
        team.member("zoe")


class NotReentrant:
    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return ""


class Reentrant(NotReentrant):
    reentrant = True


@pytest.mark.parametrize(
    ("made", "most", "concurrency"),
    [(agent, None, None), (agent, 3, 3), (NotReentrant(), None, 1), (NotReentrant(), 4, 4), (Reentrant(), None, None)],
)
def test_only_reentrant_agents_work_on_several_tasks_at_once_by_default(made: Any, most: Any, concurrency: Any) -> None:
    assert kt.Member("a", made, max_concurrency=most).concurrency == concurrency


def test_a_graph_knows_its_tasks() -> None:
    assert (GRAPH["chart"], len(GRAPH)) == (TASK, 2)
    assert list(GRAPH.dag.edges) == [("fetch", "chart")]
    assert GRAPH.dag is GRAPH.dag


@given(st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=7))
def test_a_cycle_is_refused_and_is_the_one_that_networkx_finds(needed: list[list[int]]) -> None:
    places = range(len(needed))
    edges = {
        place: [one for one in dict.fromkeys(found) if one in places and one != place]
        for place, found in enumerate(needed)
    }
    tasks = [kt.Task(f"t{place}", "Do it.", depends_on=[f"t{one}" for one in edges[place]]) for place in places]
    dag: nx.DiGraph[str] = nx.DiGraph()
    dag.add_nodes_from(task.id for task in tasks)
    dag.add_edges_from((one, task.id) for task in tasks for one in task.depends_on)
    if nx.is_directed_acyclic_graph(dag):
        graph = kt.TaskGraph(tasks)
        assert (list(graph.dag.nodes), list(graph.dag.edges)) == (list(dag.nodes), list(dag.edges))
        return
    cycle = [edge[0] for edge in nx.find_cycle(dag)]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # its stub
    with pytest.raises(ValueError, match=f"the tasks form a cycle: {' -> '.join([*cycle, cycle[0]])}$"):
        kt.TaskGraph(tasks)
    with pytest.raises(KeyError, match="no task 'x' in this plan; it has 'chart', 'fetch'"):
        _ = GRAPH["x"]


def test_a_result_knows_its_outcomes_and_checks_itself() -> None:
    assert (RESULT["chart"], RESULT.output) == (OUTCOME, "text")
    with pytest.raises(KeyError, match="no task 'x' in this result; it has 'chart'"):
        _ = RESULT["x"]
    with pytest.raises(kt.TeamFailed, match="run 'r1' ended failed: it failed"):
        RESULT.check()
    for status in kt.TeamStatus:
        result = dataclasses.replace(RESULT, status=status)
        if status is kt.TeamStatus.COMPLETED:
            assert result.check() is result
        else:
            with pytest.raises(kt.TeamFailed):
                result.check()


def test_time_is_outside_equality() -> None:
    """Duration of a result, time of a verdict."""
    assert dataclasses.replace(RESULT, duration=99.0) == RESULT
    assert dataclasses.replace(VERDICT, evaluated_at=AT) == VERDICT
    assert dataclasses.replace(VERDICT, score=0.5) != VERDICT


class Report(BaseModel):
    rows: list[int]
    ok: bool


def test_an_artifacts_data_is_read_as_any_type() -> None:
    report = ARTIFACT.data_as(Report)
    assert report == Report(rows=[1, 2], ok=True)
    assert kt.Artifact('{"rows": [], "ok": false}').data_as(Report) == Report(rows=[], ok=False)
    assert kt.Artifact("[1, 2]").data_as(list[int]) == [1, 2]
    with pytest.raises(ValidationError):
        kt.Artifact("not json").data_as(Report)


@given(st.text(), st.text())
def test_a_digest_stands_for_the_text(one: str, other: str) -> None:
    assert (kt.Artifact(one).digest == kt.Artifact(other).digest) is (one == other)


# ---------------------------------------------------------------- events


QUESTION = kt.HumanRequest("review", "is it good?", "the text", "t1", "ann", 2, kt.Cause.CYCLE, id="r1:q", run_id="r1")


def samples(kind: type[events.Event]) -> events.Event:
    """Build an event with a telling value in every field."""
    telling: dict[str, Any] = {
        "run_id": "r1", "seq": 7, "at": AT, "team": "t", "goal": "g", "members": ("a", "b"), "tasks": ("x", "y"),
        "within": "r0", "within_task": "t0", "ended": (("x", "completed"),),
        "status": "completed", "duration": 1.5, "usage": USAGE, "error": "why", "task_id": "t1", "member": "ann",
        "cause": kt.Cause.CYCLE, "attempts": 2, "reason": "because", "verdict": "pass", "attempt": 3, "text": "hello",
        "data": {"x": [1]}, "tokens": 5, "dollars": Decimal("0.5"), "origin": "team", "model": "test:m",
        "outcome": "ok", "held": 12, "held_picodollars": 13, "missed": 4, "picodollars": 5,
        "cached_tokens": 3, "reasoning_tokens": 2,
        "call_id": "call:x:1", "number": 2, "purpose": "plan", "side_effect": "write", "calls": 3,
        "waits_for": "retry", "seconds": 1.25, "traceparent": "00-1-2-01", "of": "prompt", "body": {"a": ["b", 1]},
        "added": (events.PlannedTask("z", ("y",), 1, ("b",), None, 0.5),),
        "graph": (events.PlannedTask("x"), events.PlannedTask("y", ("x",), 1, ("a", "b"), "editor", 2.5)),
        "constraint": "timeout", "action": "emergency_stop", "metrics": {"used": [1, 2.5]},
        "directive": "shorter", "dimension": "tokens", "share": 0.8, "question": QUESTION, "question_id": "r1:q",
        "feedback": "well done", "by": "ann",
        "tool": "search", "refused_by": "permissions", "deaths": 3, "max_tokens": 400,
        "finish_reason": "stop", "response_model": "m-7", "reply_call_id": "tc-1",
        "policy": "no-secrets", "phase": "pre_tool", "target": "test:m",
    }  # fmt: skip
    if issubclass(kind, events.TeamEnded):
        telling["status"] = kt.TeamStatus.FAILED
    if kind is events.HumanDecided:
        telling["action"] = "approve"
    if kind is events.GuardrailDecided:
        telling["action"] = "modify"
    if kind is events.EvaluationResult:
        telling["verdict"] = VERDICT
    return kind(**{field.name: telling[field.name] for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_event_goes_through_json_and_back(name: str) -> None:
    kind = EVENT_TYPES[name]
    event = samples(kind)
    line = event.to_json()
    assert "\n" not in line
    assert json.loads(line)["type"] == name == event.type
    assert event_from_json(line) == event
    assert event_from_json(line.encode()) == event


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_an_event_is_the_same_whichever_parser_reads_it(name: str) -> None:
    """A blank before the type leads around pydantic's parser."""
    line = samples(EVENT_TYPES[name]).to_json()
    quick, slow = event_from_json(line), event_from_json(line.replace('{"type":', '{ "type":', 1))
    assert (repr(quick), quick) == (repr(slow), slow)
    # A name twice, a number as a text, one that is too long, what is no number, half a surrogate pair, and depth.
    for value in ('7,"seq":8', '"7"', "1" * 30, "NaN", '"\\ud800"', '7,"more":' + "[" * 300 + "]" * 300):
        odd = re.sub('"seq":[0-9]+', lambda _: f'"seq":{value}', line, count=1)
        assert read_or_refused(odd) == read_or_refused(odd.replace('{"type":', '{ "type":', 1))


def read_or_refused(line: str) -> str:
    """Return what a line is read as, or why it is refused."""
    try:
        return repr(event_from_json(line))
    except ValueError as error:
        return str(error)


def test_half_a_surrogate_pair_is_read() -> None:
    event = samples(events.TeamStarted)
    assert isinstance(event, events.TeamStarted)
    event = dataclasses.replace(event, goal="half a pair: \ud83d")
    assert event_from_json(event.to_json()) == event


@pytest.mark.parametrize(
    "kind", [events.AttemptProgress, events.BudgetCarved, events.ConstraintViolated, events.ModelCalled]
)
def test_what_belongs_to_no_task_goes_through_json_too(kind: type[events.WorkEvent]) -> None:
    """A planner's calls, a member's budget."""
    event = samples(kind)
    assert isinstance(event, events.WorkEvent)
    event = dataclasses.replace(event, task_id=None, member=None)
    assert event_from_json(event.to_json()) == event


@pytest.mark.parametrize("text", ['{"type": "team.exploded"}', "{}", "[]", '{"type": "team.started"}', "5"])
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not an event|^TeamStarted needs 'run_id'; a TeamStarted takes run_id, "):
        event_from_json(text)


def test_events_are_frozen_and_typed_by_a_name_of_their_own() -> None:
    kinds = list(EVENT_TYPES.values())
    assert len({kind.type for kind in kinds}) == len(kinds)
    event = samples(events.TaskSkipped)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.seq = 9  # type: ignore[misc]  # the mistake is the point


def test_a_model_request_shares_nothing_with_who_made_it() -> None:
    settings, schema = {"stop": ["a"]}, {"type": "object", "required": ["a"]}
    request = kt.ModelRequest([kt.Message.user("u")], output_schema=schema, settings=settings)
    settings["stop"].append("b")
    schema["required"] = ["b"]
    assert request.settings == {"stop": ("a",)}
    assert request.output_schema == {"type": "object", "required": ("a",)}
    with pytest.raises(TypeError, match="frozen"):
        request.settings["seed"] = 1  # type: ignore[index]  # what is tried


@pytest.mark.parametrize("most", [0, -1])
def test_a_reply_of_no_tokens_cannot_be_asked_for(most: int) -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        kt.ModelRequest([kt.Message.user("u")], max_tokens=most)


# ---------------------------------------------------------------- large plans and teams


class Counted(str):
    """A name that counts how often it is compared or hashed."""

    __slots__ = ()
    looks = 0

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.looks += 1
        return str.__hash__(self)


def counted_task(id: str, **fields: Any) -> kt.Task:
    task = kt.Task(id, "do", **fields)
    object.__setattr__(task, "id", Counted(id))
    return task


def duplicates(size: int) -> None:
    tasks = [counted_task(f"t{number}") for number in range(size)]
    with pytest.raises(ValueError, match=r"given twice: 't0', 't1', .* and \d+ more"):
        kt.TaskGraph(tasks * 2)


def members_of_one_name(size: int) -> None:
    members = [kt.Member("a", agent, name=Counted("same")) for _ in range(size)]
    with pytest.raises(ValueError, match="given twice: 'same'"):
        kt.Team("t", members)


def members_of_one_role(size: int) -> None:
    role = kt.Role("a")
    object.__setattr__(role, "id", Counted("a"))
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    names = [_free_name(role.id, taken, numbers) for _ in range(size)]
    assert names[-1] == f"a-{size}"


def tasks_for_members_by_name(size: int) -> None:
    team = kt.Team("t", [kt.Member("a", agent, name=Counted(f"m{number}")) for number in range(size)])
    plan = kt.TaskGraph([kt.Task(f"t{number}", "do", member=f"m{number}") for number in range(size)])
    assert bind(plan.tasks, team)["t7"] == ("m7",)


@pytest.mark.parametrize("work", [duplicates, members_of_one_name, members_of_one_role, tasks_for_members_by_name])
def test_audit_g31_the_work_on_names_grows_with_their_number(work: Callable[[int], None]) -> None:
    """How often a name is looked at: of four times as many names four times as often, not sixteen times."""

    def looks(size: int) -> int:
        Counted.looks = 0
        work(size)
        return Counted.looks

    assert looks(1_600) < 5 * looks(400)


def test_audit_g31_members_of_one_role_are_numbered_without_trying_a_number_twice() -> None:
    team = kt.Team("t", [MEMBER] * 10_000)
    assert [member.id for member in team.members][::4_999] == ["a", "a-5000", "a-9999"]


def test_audit_g31_ten_thousand_seniors_are_found() -> None:
    team = kt.Team("t", [kt.Member("a", agent, senior=kt.Member("s", agent)) for _ in range(10_000)])
    assert (len(team.everyone), team.everyone[-1].id) == (20_000, "s-10000")


def test_audit_g31_a_long_list_in_a_message_is_cut() -> None:
    many = [f"n{number:02}" for number in range(40)]
    assert known(many[:30]).endswith("'n28', 'n29'")
    assert known(many).endswith("'n28', 'n29' and 10 more")


# ---------------------------------------------------------------- however they are made


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ANY.TaskOutcome("", "x", attempts=-3),
            (
                "TaskOutcome.task_id: an id is made of letters, digits, '_', '.' and '-', not ''; TaskOutcome.status "
                "must be 'pending', 'in_flight', 'completed', 'failed', 'skipped', 'cancelled' or 'suspended', not "
                "'x'; TaskOutcome.attempts must be greater than or equal to 0, not -3"
            ),
        ),
        (
            lambda: ANY.AgentOutput(None, "nope", -1),
            (
                "AgentOutput.artifact must be an Artifact, not None; AgentOutput.status must be 'completed', "
                "'turn_limit_reached', 'graceful_exit', 'halted' or 'blocked', not 'nope'; AgentOutput.turns_completed "
                "must be greater than or equal to 0, not -1"
            ),
        ),
        (lambda: ANY.AgentOutput(ARTIFACT, usage=5), "AgentOutput.usage must be a Usage, not 5"),
        (
            lambda: ANY.AgentOutput(ARTIFACT, transcript="said"),
            "AgentOutput.transcript must be a list of Message objects, not 'said'",
        ),
        (
            lambda: ANY.AgentOutput(ARTIFACT, error=OSError()),
            "AgentOutput.error must be a string or None, not OSError()",
        ),
        (lambda: ANY.EvaluationContext(None, None, -1), "EvaluationContext.task must be a Task, not None"),
        (lambda: ANY.EvaluationContext(TASK, None, 1), "EvaluationContext.artifact must be an Artifact, not None"),
        (
            lambda: ANY.EvaluationContext(TASK, ARTIFACT, 0),
            "EvaluationContext.attempt must be a whole number >= 1, not 0",
        ),
        (
            lambda: ANY.EvaluationContext(TASK, ARTIFACT, 1, ["pass"]),
            "EvaluationContext.prior_verdicts[0] must be an EvaluationVerdict, not 'pass'",
        ),
        (
            lambda: ANY.EvaluationContext(TASK, ARTIFACT, 1, upstream={"a": "text"}),
            "EvaluationContext.upstream['a'] must be an Artifact, not 'text'",
        ),
        (
            lambda: ANY.EvaluationContext(TASK, ARTIFACT, 1, config={}),
            "EvaluationContext.config must be a TeamConfig or None, not {}",
        ),
        (lambda: ANY.Assignment("t", "g", {}, {}, {}), "Assignment.task must be a Task, not 't'"),
        (lambda: ANY.Assignment(TASK, None, {}, {}, {}), "Assignment.goal must be a string, not None"),
        (lambda: ANY.Assignment(TASK, "g", 5, {}, {}), "Assignment.inputs must be a dict, not 5"),
        (lambda: ANY.Assignment(TASK, "g", {}, {}, ["a"]), "Assignment.upstream must be a dict, not ['a']"),
        (lambda: ANY.Assignment(TASK, "g", {}, {1: 2}, {}), "Assignment.context: a key must be a string, not 1"),
        (
            lambda: ANY.Assignment(TASK, "g", {}, {}, {}, attempt=True),
            "Assignment.attempt must be a whole number >= 1, not True",
        ),
        (
            lambda: ANY.Assignment(TASK, "g", {}, {}, {}, directives="shorter"),
            "Assignment.directives must be a list, not 'shorter'",
        ),
        (lambda: ANY.TeamResult("r 1", "completed"), "TeamResult.run_id: an id is made of letters, digits, "),
        (lambda: ANY.TeamResult("r", "done"), "TeamResult.status must be 'completed', 'degraded', 'failed', "),
        (
            lambda: ANY.TeamResult("r", "completed", outcomes=["x"]),
            "TeamResult.outcomes[0] must be a TaskOutcome, not 'x'",
        ),
        (lambda: ANY.ModelResponse(None), "ModelResponse.text must be a string, not None"),
        (lambda: ANY.ModelResponse("", tool_calls=["search"]), "ModelResponse.tool_calls[0] must be a ToolCall, not "),
        (lambda: ANY.Artifact("", media_type=None), "Artifact.media_type must be a string, not None"),
        (lambda: ANY.Artifact("", partial="no"), "Artifact.partial must be True or False, not 'no'"),
    ],
)
def test_audit_g17_values_refuse_nonsense(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        make()
    said = str(caught.value)
    assert said.startswith(message) if message.endswith((" ", "not ")) else said == message


ANY: Any = kt


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (kt.TaskOutcome, {"task_id": "", "status": "x", "attempts": -3}),
        (kt.AgentOutput, {"artifact": None, "status": "nope", "turns_completed": -1}),
        (kt.TeamResult, {"run_id": "", "status": "done"}),
        (kt.ModelResponse, {"text": None}),
    ],
)
def test_audit_g17_they_refuse_it_from_json_and_as_a_changed_copy_too(kind: Any, fields: dict[str, Any]) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    with pytest.raises(ValidationError):
        adapter.validate_json(json.dumps(fields))
    good = next(value for value in VALUES if type(value) is kind)
    for name, nonsense in fields.items():
        with pytest.raises(ValueError, match=f"{kind.__name__}.{name}"):
            dataclasses.replace(good, **{name: nonsense})


def test_audit_g17_values_stay_as_they_are() -> None:
    """What was handed in may change afterwards, and nothing in a value can."""
    outcomes, transcript, upstream = [OUTCOME], [kt.Message.user("u")], {"fetch": ARTIFACT}
    result = ANY.TeamResult("r", kt.TeamStatus.FAILED, outcomes=outcomes, warnings=["careful"])
    output = kt.AgentOutput(ARTIFACT, transcript=transcript)
    inputs: dict[str, Any] = {"rows": [1]}
    assignment = kt.Assignment(TASK, "g", inputs, {}, upstream, findings=[FINDING], directives=["shorter"])
    seen = kt.EvaluationContext(TASK, ARTIFACT, 1, [VERDICT], upstream=upstream)
    for mutable in (outcomes, transcript, upstream, inputs["rows"]):
        mutable.clear()
    assert (result.outcomes, result.warnings, output.transcript) == ((OUTCOME,), ("careful",), (kt.Message.user("u"),))
    assert assignment.upstream == seen.upstream == {"fetch": ARTIFACT}
    assert (assignment.inputs, assignment.findings, assignment.directives) == ({"rows": (1,)}, (FINDING,), ("shorter",))
    assert seen.prior_verdicts == (VERDICT,)
    frozen: list[Any] = [
        assignment.upstream,
        assignment.inputs,
        seen.upstream,
        kt.EvaluationContext(TASK, ARTIFACT, 1).upstream,
    ]
    for mapping in frozen:
        with pytest.raises(TypeError, match="part of a frozen value"):
            mapping["x"] = ARTIFACT


async def test_audit_g17_what_a_run_hands_out_stays_as_it_is_too() -> None:
    handed: list[Any] = []

    async def work(assignment: kt.Assignment) -> str:
        handed.append(assignment)
        return "made"

    class Reviewer:
        async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
            handed.append(context)
            return kt.EvaluationVerdict.passed()

    team = kt.Team("t", [kt.Member("a", work)], evaluators={"r": Reviewer()})
    plan = kt.TaskGraph([kt.Task("one", "do"), kt.Task("two", "do", depends_on=["one"], evaluator="r")])
    result = await kt.run(team, kt.TeamExecutionRequest("g", plan=plan))
    assert [list(one.upstream) for one in handed] == [[], ["one"], ["one"]]
    for one in handed:
        with pytest.raises(TypeError, match="part of a frozen value"):
            one.upstream["x"] = ARTIFACT
        assert dataclasses.replace(one) == one, "what the library fills unchecked would pass the checks"
    made: list[Any] = [result, *result.outcomes]
    for value in made:
        assert dataclasses.replace(value) == value
        assert type(value.warnings) is tuple
