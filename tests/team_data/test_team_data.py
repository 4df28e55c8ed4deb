"""A team as data is the same team as in Python; every mistake is one sentence, all at once, with its line."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.conditions import Condition
from kairo_team.coordinators import AgentPlanner, BestOf, ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.data.teams import TeamJob
from kairo_team.engine.records.digests import digests_of
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Rubric, checks
from kairo_team.governance import CostLimit, Timeout, WarnAt
from kairo_team.governance.policies import McpPolicy, PiiRedactor
from kairo_team.testing import ScriptedModel
from kairo_team.tools import CircuitBreaker, McpServer, RuleGuard, SideEffectGuard

Write = Callable[..., Path]
WRITER: Any = {"role": "writer", "agent": {"mini": "local:smollm2"}}
SHORT: Any = {"criteria": [{"id": "short", "text": "at most 60 words", "check": {"max_words": 60}}]}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of data."""

    def put(text: str | dict[str, Any], name: str = "team.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return file

    return put


def team_of(**more: Any) -> Any:
    return {"name": "desk", "members": [WRITER], **more}


def mistakes(source: Any, *, trusted: bool = False) -> list[str]:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the callers look at what it says
        kt.load_team(source, trusted=trusted)
    return str(caught.value).split("\n")


# ---------------------------------------------------------------- what it says

WHOLE = """
name: newsdesk
members:
  - role:
      id: writer
      instructions: Write plainly.
      capabilities: [prose]
      allowed_tools: [files__read]
    name: anna
    agent:
      mini:
        model: local:smollm2
        max_turns: 3
        settings: {temperature: 0}
        stream: true
        templates: {after_tools: Go on.}
        tools:
          - mcp-stdio:
              name: files
              command: npx
              args: [server-files, .]
              env: {LEVEL: high}
              request_timeout: 5
    budget: {tokens: 4000, dollars: 0.05}
    max_concurrency: 2
    constraints: [{timeout: 30}]
    guardrails:
      - pii-redactor: {kinds: [EMAIL], id: addresses, order: 3}
    senior:
      role: editor
      agent: {mini: local:smollm2}
coordinator:
  expert:
    planner: {agent: {model: local:smollm2, max_tasks: 4}}
    evaluator: house
    judge: local:smollm2
    planner_failure_mode: single_task_fallback
    failure_policy: {retries: 1, backoff: 0}
    replan: true
evaluators:
  house:
    threshold: 0.5
    criteria:
      - {id: short, text: at most 60 words, check: {max_words: 60}}
  beside: rubric.toml
  judged:
    judge:
      judge: local:smollm2
      rubric: {criteria: [{id: kind, text: it is kind, by: judge}]}
      timeout: 20
output_types:
  names: {type: array, items: {type: string}}
constraints:
  - {cost-limit: 0.5}
  - warn-at: {constraint: {timeout: 60}, share: 0.5}
guardrails: [tool-loop]
permissions:
  guard:
    rules:
      rules: [{action: allow, pattern: "files__read(texts/**)"}]
      root: texts
  plan_mode: false
  mcp: {policy: deny_safe, servers: [files]}
  breaker: {failures: 2}
runtime:
  journal: {sqlite: {path: runs.db, sync: normal}}
  prices: {"local:*": {input: 0.25, output: 2}}
  model_limits: {"local:*": {concurrency: 2}}
  model_retry: {retries: 1}
  models: {"house:*": local:smollm2}
  secrets: ["${TEAM_TOKEN}"]
  budget: {tokens: 90000}
  gate: defer
  content: journal
request:
  goal: Explain tides.
  context: {audience: children}
  plan:
    tasks:
      - {id: draft, description: Write it., role: writer, evaluator: house, weight: 2, timeout: 60}
      - {id: check, description: Check it., member: anna, depends_on: [draft], needs: 0, inputs: {n: 1}}
  config:
    budget: {tokens: 20000, seconds: 110}
    budget_policy: {plan: 0.1, expect: {tokens: 500}}
    risk_profile: low
    task_timeout: null
    deadline_at: "2030-01-01T00:00:00Z"
"""
RUBRIC = """
[[criteria]]
id = "calm"
text = "it does not shout"
check = { forbidden = "!" }
"""


@pytest.fixture
def job(write: Write, monkeypatch: pytest.MonkeyPatch) -> TeamJob:
    monkeypatch.setenv("TEAM_TOKEN", "token-of-the-team")
    write(RUBRIC, "rubric.toml")
    return kt.load_job(write(WHOLE), trusted=True)


def test_every_field_of_a_member_can_be_said(job: TeamJob) -> None:
    (anna,) = job.team.members
    assert anna.role == kt.Role("writer", "Write plainly.", capabilities={"prose"}, allowed_tools={"files__read"})
    assert (anna.name, anna.max_concurrency) == ("anna", 2)
    assert anna.budget == kt.Budget(tokens=4000, dollars="0.05")
    assert isinstance(anna.agent, kt.MiniAgent)
    assert (anna.agent.model, anna.agent.max_turns, anna.agent.stream) == ("local:smollm2", 3, True)
    assert anna.agent.templates == {"after_tools": "Go on."}
    assert anna.agent.tools == (
        McpServer.stdio("files", "npx", "server-files", ".", env={"LEVEL": "high"}, request_timeout=5),
    )
    assert anna.constraints == (Timeout(30),)
    assert [(getattr(one, "name", ""), getattr(one, "order", 0)) for one in anna.guardrails] == [("addresses", 3)]
    assert anna.senior is not None
    assert anna.senior.role.id == "editor"


def test_the_coordinator_is_made_with_its_arguments(job: TeamJob) -> None:
    coordinator = job.team.coordinator
    assert isinstance(coordinator, ExpertTeamCoordinator)
    assert isinstance(coordinator.planner, AgentPlanner)
    assert (coordinator.planner.max_tasks, coordinator.evaluator, coordinator.judge) == (4, "house", "local:smollm2")
    assert coordinator.planner_failure_mode is kt.PlannerFailureMode.SINGLE_TASK_FALLBACK
    assert coordinator.failure_policy == FailurePolicy(retries=1, backoff=0)
    assert coordinator.replan


def test_every_field_of_a_team_can_be_said(job: TeamJob, tmp_path: Path) -> None:
    team = job.team
    house, beside, judged = team.evaluators.values()
    assert isinstance(house, Rubric)
    assert house.threshold == 0.5
    assert isinstance(beside, Rubric)
    assert beside.criteria[0].id == "calm"
    assert isinstance(judged, AgentEvaluationStrategy)
    assert team.output_types["names"]["type"] == "array"
    assert team.constraints == (CostLimit(Decimal("0.5")), WarnAt(Timeout(60), 0.5))
    assert team.permissions is not None
    assert isinstance(team.permissions.guard, RuleGuard)
    assert team.permissions.guard.root == str(tmp_path / "texts")
    assert isinstance(team.permissions.mcp, McpPolicy)
    assert team.permissions.breaker == CircuitBreaker(failures=2)


def test_the_runtime_is_made_and_bound(job: TeamJob) -> None:
    runtime: kt.Runtime = job.team.runtime
    assert isinstance(runtime.store, kt.SqliteJournal)
    assert isinstance(runtime.gate, kt.DeferGate)
    assert (runtime.secrets, runtime.content) == (("token-of-the-team",), "journal")
    assert runtime.store.path.name == "runs.db"


def test_a_request_is_made_of_what_the_data_says(job: TeamJob) -> None:
    request = job.request()
    assert (request.goal, dict(request.context)) == ("Explain tides.", {"audience": "children"})
    assert job.request("Explain rain.").goal == "Explain rain."
    assert request.run_id != job.request().run_id
    assert request.plan is not None
    assert request.plan["check"].inputs == {"n": 1}
    assert request.config.budget == kt.Budget(tokens=20_000, seconds=110)
    assert request.config.task_timeout is None
    assert request.config.budget_policy.expect == kt.Budget(tokens=500)
    assert request.config.risk_profile is kt.RiskProfile.LOW


def test_yaml_toml_json_and_a_dict_say_the_same(write: Write) -> None:
    data = team_of(coordinator="board", evaluators={"house": SHORT})
    toml = """
name = "desk"
coordinator = "board"
members = [{ role = "writer", agent = { mini = "local:smollm2" } }]
[[evaluators.house.criteria]]
id = "short"
text = "at most 60 words"
check = { max_words = 60 }
"""
    sources = [data, write(data, "team.json"), str(write(data, "team.yml")), write(toml, "team.toml")]
    teams = [kt.load_team(source) for source in sources]
    assert len({json.dumps(dict(digests_of(team, {}))) for team in teams}) == 1
    assert all(isinstance(team.coordinator, TaskDispatchCoordinator) for team in teams)


def test_code_of_ones_own_is_named_by_module_and_name(write: Write, tmp_path: Path) -> None:
    code = '''
import kairo_team as kt
from kairo_team.evaluators import SimpleEvaluationStrategy

async def write(assignment): return "moon"
def is_good(artifact): return True
def search(query: str) -> str:
    """Search."""
    return query

class Calm:
    def __init__(self, limit: int = 3): self.limit = limit
    async def validate(self, context): return None
    def on_violation(self, validation): return None

calm = Calm(7)
class Report: ...
'''
    (tmp_path / "team_code_beside.py").write_text(code, encoding="utf-8")
    data = {
        "name": "desk",
        "members": [
            {"role": "a", "agent": "team_code_beside:write"},
            {"role": "b", "agent": {"mini": {"model": "local:smollm2", "tools": ["team_code_beside:search"]}}},
        ],
        "constraints": [
            "team_code_beside:calm",
            "team_code_beside:Calm",
            {"team_code_beside:Calm": {"limit": 5}},
            {"team_code_beside:Calm": 6},
        ],
        "output_types": {"number": "builtins:int"},
    }
    team = kt.load_team(write(data, "team.json"), trusted=True)
    first, second = team.members
    assert first.agent.__name__ == "write"
    assert [tool.name for tool in second.agent.tools] == ["search"]
    assert [getattr(one, "limit", None) for one in team.constraints] == [7, 3, 5, 6]
    assert team.output_types == {"number": int}


async def test_a_team_from_data_runs() -> None:
    model = ScriptedModel(["The moon pulls the sea."])
    team = kt.load_team(team_of(evaluators={"house": SHORT}, coordinator={"expert": {"evaluator": "house"}}))
    result = await kt.run(team, "Explain tides.", runtime=kt.Runtime(models={"*": model}))
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "The moon pulls the sea.")


async def test_a_job_without_a_goal_carries_out_its_plan_or_needs_one() -> None:
    model = ScriptedModel(["The moon."])
    job = kt.load_job(team_of(request={"plan": {"tasks": [{"id": "a", "description": "Explain."}]}}))
    result = await kt.run(job.team, job.request(), runtime=kt.Runtime(models={"*": model}))
    assert result["a"].artifact is not None
    with pytest.raises(kt.KairoError, match=r"team 'desk' has no goal: give one, or write request\.goal"):
        kt.load_job(team_of()).request()


def test_what_a_rule_makes_of_data_is_what_python_makes(write: Write) -> None:
    """The same team in both: its digests are the same, and so are its plan and its configuration."""
    write(RUBRIC, "rubric.toml")
    data = team_of(
        evaluators={"house": SHORT, "beside": "rubric.toml"},
        output_types={"names": {"type": "array"}},
        request={
            "goal": "g",
            "config": {"budget": {"dollars": 0.1}},
            "plan": {"tasks": [{"id": "a", "description": "b"}]},
        },
    )
    job = kt.load_job(write(data, "team.json"))
    short = Rubric([Criterion("short", "at most 60 words", checks.max_words(60))])
    calm = Rubric([Criterion("calm", "it does not shout", checks.forbidden("!"))])
    team = kt.Team(
        "desk",
        [kt.Member("writer", kt.MiniAgent("local:smollm2"))],
        evaluators={"house": short, "beside": calm},
        output_types={"names": {"type": "array"}},
    )
    assert digests_of(job.team, {}) == digests_of(team, {})
    assert job.plan == kt.TaskGraph([kt.Task("a", "b")])
    assert job.config == kt.TeamConfig(budget=kt.Budget(dollars="0.1"))


def test_short_forms() -> None:
    team = kt.load_team(
        team_of(
            guardrails=[{"pii-redactor": {"kinds": ["EMAIL"]}}, {"tool-loop": None}],
            permissions={"guard": {"side-effects": "strict"}},
        )
    )
    assert isinstance(team.guardrails[0], PiiRedactor)
    assert team.permissions is not None
    assert isinstance(team.permissions.guard, SideEffectGuard)
    assert team.permissions.guard.mode == "strict"


# ---------------------------------------------------------------- mistakes

WRONG = """\
name: ''
membres: []
members:
  - role: {id: "two words", instructions: 3}
    agent:
      mini:
        model: 7
        max_turn: 4
    max_concurrency: 0
  - agent: {mini: {}}
    role: writer
    budget: {tokens: many, dollars: -1}
coordinator: {expret: {}}
evaluators:
  house: {criteria: [{id: a, text: b, check: max_word}]}
  other: no_such.yaml
constraints: [{timeout: {second: 3}}, 5]
guardrails: [{pii-redactor: {kinds: EMAIL}}]
request:
  config: {risk_profile: none, task_timeout: soon}
  plan: {tasks: [{id: a, description: b, wait: 3}]}
  run_id: mine
"""


def test_all_mistakes_come_at_once_with_their_lines(write: Write) -> None:
    file = write(WRONG)
    said = [one.removeprefix(f"{file}, ") for one in mistakes(file)]
    starts = [
        "line 2: takes no 'membres'; did you mean 'members'? it takes name, members, coordinator, evaluators",
        "line 4: members[0].role.id is refused: an id is made of letters, digits",
        "line 4: members[0].role.instructions must be a string, not 3: put it in quotes",
        "line 7: members[0].agent.mini.model must be a string, not 7: put it in quotes",
        "line 8: members[0].agent.mini takes no 'max_turn'; did you mean 'max_turns'? it takes model, tools",
        "line 10: members[1].agent.mini needs 'model'; it takes model, tools",
        "line 12: members[1].budget.dollars must be a finite amount >= 0, not -1",
        'line 12: members[1].budget.tokens must be a whole number or null, not "many"',
        "line 13: coordinator is refused: there is no coordinator 'expret'; did you mean 'expert'?",
        "line 15: evaluators.house.criteria[0].check names 'max_word', which is not a check; did you mean",
        "line 16: evaluators.other names 'no_such.yaml', which cannot be read: No such file",
        "line 17: constraints[0].timeout takes no 'second'; did you mean 'seconds'? it takes seconds",
        "line 17: constraints[1] must be the name of a constraint, or one name with its arguments",
        'line 18: guardrails[0].pii-redactor.kinds must be a list, not "EMAIL"',
        "line 20: request.config.risk_profile must be 'low', 'medium' or 'high', not \"none\"",
        'line 20: request.config.task_timeout must be a number or null, not "soon"',
        "line 21: request.plan.tasks[0] takes no 'wait'; did you mean 'weight'?",
        "line 22: request takes no 'run_id'; it takes goal, context, plan, config",
    ]
    for start in starts:
        assert sum(one.startswith(start) for one in said) == 1, (start, said)
    assert len(said) == len(starts), said


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "the team: needs 'name', 'members'; it takes name, members"),
        ({"name": "a", "members": []}, "the team: is refused: team 'a' has no members"),
        ({"name": "a", "members": "b"}, 'the team: members must be a list, not "b"'),
        ({"name": " ", "members": [WRITER]}, "the team: name must be a non-blank string, not ' '"),
        (team_of(coordinator=5), "the team: coordinator must be the name of a coordinator, or one name with"),
        (team_of(coordinator={"board": {}, "expert": {}}), "the team: coordinator must be the name of a coordinator"),
        (team_of(coordinator={"board": 3}), "the team: coordinator.board must be a mapping, not 3"),
        (team_of(permissions={"guard": {"side-effects": "soft"}}), "the team: permissions.guard.side-effects must be"),
        (team_of(runtime={"content": "all"}), "the team: runtime.content must be 'none', 'events' or 'journal'"),
        (team_of(output_types={"a": {"type": 3}}), "the team: output_types.a is refused: it is not a valid JSON Sch"),
        (team_of(output_types={"a": 3}), "the team: output_types.a must be a JSON Schema, or a type of yours"),
        (team_of(request={"plan": {"tasks": []}}), "the team: request.plan is refused: a plan needs at least one task"),
        (team_of(request={"goal": " "}), "the team: request.goal is refused: the goal must not be blank"),
        (
            team_of(runtime={"gate": {"callback": {"decide": "no colon"}}}),
            "the team: runtime.gate.callback.decide must",
        ),
        (team_of(constraints=[{"timeout": True}]), "the team: constraints[0].timeout must be a number, not true"),
        (team_of(request={"config": {"task_timeout": -1}}), "the team: request.config.task_timeout must be > 0"),
        (team_of(runtime={"secrets": [3]}), "the team: runtime.secrets[0] must be a string, not 3"),
        (team_of(coordinator={"expert": {"plan_approval": "yes"}}), "the team: coordinator.expert.plan_approval must"),
    ],
)
def test_a_mistake_is_one_sentence(data: dict[str, Any], says: str) -> None:
    (one,) = mistakes(data)
    assert one.startswith(says), one


def test_mistakes_of_a_rubric_beside_the_file_have_its_lines(write: Write) -> None:
    write('[[criteria]]\nid = "calm"\ntext = ""\n', "rubric.toml")
    file = write(team_of(evaluators={"house": "rubric.toml"}), "team.json")
    blank, lacks = mistakes(file)
    prefix = f"{file}, line 1: evaluators.house names a rubric that is wrong: rubric.toml"
    assert {one.removeprefix(prefix).partition(":")[0] for one in (blank, lacks)} <= {", line 3", ", line 1", ""}


# ---------------------------------------------------------------- what data may not do


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"coordinator": "os:system"}, "coordinator imports code, 'os:system'"),
        ({"constraints": [{"os:system": "true"}]}, "constraints[0] imports code"),
        ({"output_types": {"a": "builtins:int"}}, "output_types.a imports code"),
        ({"runtime": {"subscribers": ["builtins:print"]}}, "runtime.subscribers[0] imports code"),
        (
            {"members": [{"role": "a", "agent": {"mini": {"model": "m", "tools": [{"mcp-stdio": {}}]}}}]},
            "members[0].agent.mini.tools[0] starts a program, 'mcp-stdio'",
        ),
        ({"evaluators": {"a": "../rubric.yaml"}}, "evaluators.a leads out of the file's folder, '../rubric.yaml'"),
        (
            {"runtime": {"journal": {"sqlite": "/elsewhere/runs.db"}}},
            "runtime.journal.sqlite leads out of the file's folder",
        ),
        ({"runtime": {"secrets": ["${HOME}"]}}, "runtime.secrets[0] reads the environment"),
    ],
)
def test_data_that_is_not_trusted_imports_nothing_starts_nothing_and_stays_in_its_folder(more: Any, says: str) -> None:
    (one,) = mistakes(team_of(**more))
    assert one.startswith(f"the team: {says}")
    assert one.endswith("that is for trusted data (trusted=True)")


def test_a_link_does_not_lead_out_of_the_folder(write: Write, tmp_path: Path) -> None:
    outside = tmp_path / "outside.toml"
    outside.write_text(RUBRIC)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "rubric.toml").symlink_to(outside)
    (inside / "team.json").write_text(json.dumps(team_of(evaluators={"a": "rubric.toml"})))
    assert "leads out of the file's folder" in mistakes(inside / "team.json")[0]
    assert "a" in kt.load_team(inside / "team.json", trusted=True).evaluators


def test_wrong_imports_are_explained(write: Write, tmp_path: Path) -> None:
    (tmp_path / "team_code_broken.py").write_text("1 / 0\n")
    (tmp_path / "team_code_quits.py").write_text("raise SystemExit(3)\n")
    agents = ["json:dumbs", "no_such_module_at_all:x", "team_code_broken:x", "team_code_quits:x", "json:__name__"]
    data = {"name": "a", "members": [{"role": f"r{n}", "agent": agent} for n, agent in enumerate(agents)]}
    said = mistakes(write(data, "team.json"), trusted=True)
    assert "names 'json:dumbs', and 'json' has no 'dumbs'; did you mean 'dumps'?" in said[0]
    assert "'no_such_module_at_all' cannot be imported: ModuleNotFoundError" in said[1]
    assert "cannot be imported: ZeroDivisionError: division by zero" in said[2]
    assert "cannot be imported: SystemExit: 3" in said[3]
    assert "the agent must be" in said[4] or "agent 'json:__name__'" in said[4]


KEYS = ["sk-proj-abcdefgh12345678", "ghp_abcdefghij0123456789", "AKIA0123456789ABCDEF", "-----BEGIN PRIVATE KEY-----"]


@pytest.mark.parametrize("key", [*KEYS, "https://me:hunter22@example.org/"])
def test_a_key_in_the_data_is_refused_and_not_repeated(key: str) -> None:
    agent = {"mini": {"model": "m", "settings": {"extra": key}}}
    (one,) = mistakes({"name": "a", "members": [{"role": "r", "agent": agent}]})
    assert one.startswith("the team: members[0].agent.mini.settings.extra seems to hold a key: never put a key in")
    assert key not in one


def test_a_value_with_the_name_of_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def team(value: str) -> Any:
        source = {"mcp-http": {"name": "s", "url": "https://example.org/mcp", "headers": {"Authorization": value}}}
        return {"name": "a", "members": [{"role": "r", "agent": {"mini": {"model": "m", "tools": [source]}}}]}

    (one,) = mistakes(team("letmein"))
    assert "headers.Authorization seems to hold a key" in one
    assert "letmein" not in one
    (unset,) = mistakes(team("Bearer ${NO_SUCH_TOKEN}"), trusted=True)
    assert "names the environment variable 'NO_SUCH_TOKEN', which is not set" in unset
    monkeypatch.setenv("TEAM_TOKEN", "t-1")
    (member,) = kt.load_team(team("Bearer ${TEAM_TOKEN}"), trusted=True).members
    assert member.agent.tools[0].transport.headers == {"Authorization": "Bearer t-1"}


def test_plain_words_are_no_keys() -> None:
    text = "Basic understanding of risk-assessment-and-desk-work is enough; max_tokens counts. Ask at https://example.org:80/"
    team = kt.load_team({"name": "a", "members": [{"role": {"id": "r", "instructions": text}, "agent": {"mini": "m"}}]})
    assert team.members[0].role.instructions == text


# ---------------------------------------------------------------- hostile files


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("laughs.yaml", "a: &a [x]\nb: &b [*a, *a]\n", "anchors (&) and aliases (*) are not taken"),
        ("tag.yaml", "name: !!python/object/apply:os.system [true]\n", "tags such as"),
        ("double.yaml", "name: a\nname: b\n", "line 2: the key 'name' is given twice"),
        ("double.json", '{"name": "a", "name": "b"}', "the key 'name' is given twice"),
        ("deep.json", "[" * 5000, "nested more than 30 deep"),
        ("deep.yaml", "[" * 5000, "nested more than 30 deep"),
        ("huge.json", '{"name": "' + "x" * 300_000 + '"}', "more than 250,000 characters"),
        ("empty.yaml", "\n", "it is empty"),
        ("list.yaml", "- a\n", "must be a mapping"),
        ("two.yaml", "name: a\n---\nname: b\n", "it holds a second document"),
        ("team.txt", "name: a", "the suffix of data must be"),
        ("nan.json", '{"name": NaN}', "NaN is not a JSON value"),
    ],
)
def test_hostile_files_are_refused(write: Write, name: str, text: str, says: str) -> None:
    said = mistakes(write(text, name))
    assert len(said) == 1
    assert says in said[0]


def test_binary_files_and_missing_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_bytes(b"\xff\xfe\x00\x01")
    assert "not UTF-8" in mistakes(tmp_path / "team.yaml")[0]
    with pytest.raises(FileNotFoundError):
        kt.load_team(tmp_path / "none.yaml")


def test_hostile_dicts_are_refused() -> None:
    cycle: dict[str, Any] = team_of()
    cycle["request"] = {"context": cycle}
    assert "nested too deeply" in mistakes(cycle)[0]
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    assert "nested more than 30 deep" in mistakes(team_of(request={"context": {"a": deep}}))[0]
    assert "must be made of JSON values" in mistakes(team_of(coordinator=object()))[0]
    assert "must be made of JSON values" in mistakes(team_of(request={"context": {"a": math.nan}}))[0]
    assert "must be a string to go through JSON" in mistakes({1: 2})[0]
    with pytest.raises(ValueError, match="from the path of a file or from a dict, not from 3"):
        kt.load_team(3)  # type: ignore[arg-type]  # what is tried here


def test_a_senior_of_seniors_ends(write: Write) -> None:
    member: Any = dict(WRITER)
    for _ in range(12):
        member = {"role": "a", "agent": {"mini": "m"}, "senior": member}
    assert len(kt.load_team({"name": "a", "members": [member]}).everyone) == 13


def test_many_mistakes_are_cut() -> None:
    said = mistakes({"name": "a", "members": [{"role": 3} for _ in range(200)]})
    assert len(said) == 51
    assert said[-1] == "the team: and 350 more mistakes"


def test_maps_branches_and_loops_are_those_of_python() -> None:
    tasks: Any = [
        {"id": "list", "description": "List."},
        {"id": "read", "description": "Read.", "over": "list", "max_items": 20, "budget": {"tokens": 900}},
        {"id": "join", "description": "Join.", "depends_on": ["read"], "needs": 0.8},
        {"id": "fix", "description": "Fix.", "when": {"from": "list", "field": "kind", "equals": "bug"}},
        {
            "id": "polish",
            "description": "Polish.",
            "loop": {
                "body": [{"id": "write", "description": "Write."}],
                "until": {"from": "write", "contains": "done"},
                "max_rounds": 5,
            },
        },
    ]
    loop = kt.Loop([kt.Task("write", "Write.")], until=Condition("write", "contains", "done"), max_rounds=5)
    plan = kt.TaskGraph(
        [
            kt.Task("list", "List."),
            kt.Task.map("read", "Read.", over="list", max_items=20, budget=kt.Budget(tokens=900)),
            kt.Task("join", "Join.", depends_on=["read"], needs=0.8),
            kt.Task("fix", "Fix.", when=Condition("list", "equals", "bug", field="kind")),
            kt.Task("polish", "Polish.", loop=loop),
        ]
    )
    assert kt.load_job(team_of(request={"plan": {"tasks": tasks}})).plan == plan
    tasks[3]["when"] = {"from": "list", "eqals": "bug"}
    tasks[4]["loop"]["max_round"] = 3
    tasks[1]["part_of"] = "list"
    said = mistakes(team_of(request={"plan": {"tasks": tasks}}))
    assert "tasks[1] takes no 'part_of'" in said[0]
    assert "tasks[3].when is refused: a condition has no 'eqals'" in said[1]
    assert "tasks[4].loop takes no 'max_round'; did you mean 'max_rounds'?" in said[2]


def test_conditions_are_functions_of_ones_own(write: Write, tmp_path: Path) -> None:
    (tmp_path / "team_code_conditions.py").write_text("def is_good(artifact): return True\n")
    file = write(team_of(conditions={"good": "team_code_conditions:is_good"}), "team.json")
    assert kt.load_team(file, trusted=True).conditions["good"].__name__ == "is_good"


def test_a_coordinator_is_its_name_in_python_too() -> None:
    assert isinstance(kt.load_team(team_of(coordinator="board")).coordinator, TaskDispatchCoordinator)
    assert "there is no coordinator 'bord'; did you mean 'board'?" in mistakes(team_of(coordinator="bord"))[0]


# ---------------------------------------------------------------- plug-ins of packages


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a coordinator and a constraint of its own."""
    (tmp_path / "acme_desk.py").write_text(
        """
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from kairo_team import Budget
    from kairo_team.contracts import Planner

@dataclass
class Hours:
    opens: int
    closes: int = 18

class Office:
    def __init__(
        self, hours: Hours, *, planner: Planner | None = None, odd: Unheard = None, budget: Budget | None = None
    ):
        self.hours, self.planner, self.budget = hours, planner, budget
    async def execute(self, request, team): ...

class Hot:
    def __init__(self, degrees): self.degrees = degrees
    async def validate(self, context): ...
    def on_violation(self, validation): ...
"""
    )
    info = tmp_path / "acme_desk-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-desk\nVersion: 1.0\n")
    groups = "[kairo_team.coordinators]\noffice = acme_desk:Office\n[kairo_team.constraints]\nhot = acme_desk:Hot\n"
    (info / "entry_points.txt").write_text(groups)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "acme_desk", raising=False)
    return tmp_path


@pytest.mark.usefixtures("acme")
def test_a_published_plug_in_takes_what_its_constructor_takes() -> None:
    kt.load_team(team_of(coordinator="board"))
    assert "acme_desk" not in sys.modules, "what is not named is not imported"
    office = {"hours": {"opens": 8}, "planner": {"agent": "m"}, "budget": {"tokens": 5}}
    team = kt.load_team(team_of(coordinator={"office": office}, constraints=[{"hot": 30}]))
    made: Any = team.coordinator
    assert (made.hours.opens, made.hours.closes, made.budget) == (8, 18, kt.Budget(tokens=5))
    assert isinstance(made.planner, AgentPlanner)
    assert [getattr(one, "degrees", None) for one in team.constraints] == [30]
    (one,) = mistakes(team_of(coordinator={"office": {"hours": {"open": 8}}}))
    assert "coordinator.office.hours takes no 'open'; did you mean 'opens'?" in one
    (unsayable,) = mistakes(team_of(coordinator={"office": {"hours": {"opens": 1}, "odd": 3}}))
    assert "coordinator.office takes no 'odd'; it takes hours, planner, budget" in unsayable


def test_a_list_of_what_may_stand_there_is_given() -> None:
    (one,) = mistakes(team_of(constraints=[5]))
    assert "such as {name: {...}}, not 5; there are 'cost-limit', " in one


# ---------------------------------------------------------------- agents that hold others


def test_a_team_and_a_best_of_are_agents_with_their_arguments() -> None:
    inner = {"team": team_of(), "coordinator": "board", "plan": {"tasks": [{"id": "a", "description": "b"}]}}
    best = {"agent": {"mini": "m"}, "tries": 2, "judge": "m"}
    data = {
        "name": "a",
        "members": [{"role": "x", "agent": {"team": inner}}, {"role": "y", "agent": {"best-of": best}}],
    }
    first, second = kt.load_team(data).members
    assert isinstance(first.agent, TeamAgent)
    assert (first.agent.team.name, first.agent.plan) == ("desk", kt.TaskGraph([kt.Task("a", "b")]))
    assert isinstance(second.agent, BestOf)
    assert second.agent.tries == 2
    inner["team"] = {"name": "desk", "members": [{"role": "writer", "agent": "mimi"}]}
    (one,) = mistakes(data)
    assert (
        "members[0].agent.team.team.members[0].agent is refused: there is no agent 'mimi'; did you mean 'mini'" in one
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"team": 3}, "TeamJob.team must be a Team, not 3"),
        ({"goal": 3}, "TeamJob.goal must be a string or None, not 3"),
        ({"plan": []}, "TeamJob.plan must be a TaskGraph or None"),
        ({"config": None}, "TeamJob.config must be a TeamConfig, not None"),
        ({"context": [1]}, "TeamJob.context must be a Mapping"),
        ({"context": {"a": object()}}, "must be made of JSON values"),
    ],
)
def test_a_job_checks_itself(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        TeamJob(**cast("Any", {"team": kt.load_team(team_of()), **given}))
