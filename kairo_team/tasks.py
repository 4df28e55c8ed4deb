"""The work: `Task`, `TaskGraph`, and the `Assignment` that a member gets for one attempt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, Protocol, cast, get_origin

from kairo_team._util.drawn import drawing
from kairo_team._util.frozen import (
    EMPTY,
    check_kind,
    checked,
    freeze_json,
    freeze_named,
    freeze_several,
    known_arguments,
    known_call,
)
from kairo_team._util.guesses import answers_guesses
from kairo_team._util.late_pydantic import AfterValidator, AsTuple, Number, PlainSerializer, omit_empty
from kairo_team.artifacts import Artifact, DoneCall, Finding
from kairo_team.budget import Budget, check_count
from kairo_team.conditions import AsCondition, Condition
from kairo_team.errors import known, repeated
from kairo_team.files import File, unique

if TYPE_CHECKING:
    import networkx as nx
    from pydantic import GetCoreSchemaHandler
    from typing_extensions import TypeVar

    class _Planned(Protocol):
        """A task of a plan, or what an event has of one."""

        @property
        def id(self) -> str:
            """Its name in the plan."""
            ...

        @property
        def part_of(self) -> str | None:
            """The map or loop that it grew from."""
            ...

    P = TypeVar("P", bound=_Planned)
    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", default=Any, covariant=True)
    OutputType = type[T] | str | None
else:
    from typing import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)

    class OutputType:
        """An output type of a task: a type that pydantic can validate, or the name of one of the team's."""

        def __class_getitem__(cls, _item: object) -> object:
            return Annotated[str | None, _AnyType()]


class _AnyType:
    """The annotation of a field that takes a name, or a type; JSON has the type's name."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema

        def check(value: Any, checked: Any) -> Any:
            if value is None or isinstance(value, str):
                return checked(value)
            if not isinstance(value, type) and get_origin(value) is None:
                raise ValueError(_NO_TYPE.format(f"{value!r:.80}") + (_A_SCHEMA if isinstance(value, Mapping) else ""))
            return value

        named = core_schema.plain_serializer_function_ser_schema(name_of_type)
        return core_schema.no_info_wrap_validator_function(check, handler(source), serialization=named)


_NO_TYPE: Final = (
    "Task.output_type must be a type, such as list[str] or a model, or the name of one of the team's output types, "
    "not {}"
)
_A_SCHEMA: Final = (
    ": a team has JSON Schemas by name, Team(..., output_types={'points': {...}}), and a task says output_type='points'"
)


def name_of_type(kind: Any) -> str | None:
    """Return the name of an output type: a name itself, else its class's, else its code."""
    return kind if kind is None or isinstance(kind, str) else getattr(kind, "__name__", str(kind))


_ID = re.compile(r"[A-Za-z0-9_.-]+")


def is_id(text: str) -> bool:
    """Return whether a text can be an id."""
    return _ID.fullmatch(text) is not None


def exact_weight(weight: float) -> int:
    """Return a weight in units of the least positive float: sums of weights are exact, however far apart they are."""
    numerator, denominator = weight.as_integer_ratio()
    return (numerator << 1_074) // denominator  # no denominator is more than 2**1074, so nothing is cut


def check_id(text: str) -> str:
    """Return `text` if it is a valid id, else raise `ValueError`."""
    if not isinstance(text, str) or not is_id(text):
        raise ValueError(f"an id is made of letters, digits, '_', '.' and '-', not {text!r:.100}")
    return text


def _in_order(names: AbstractSet[str]) -> list[str]:
    return sorted(names)


Names = Annotated[
    # A plain function: pydantic finds the parameters of the built-in `sorted` by tokenizing, which takes 15 ms.
    AbstractSet[str] | Sequence[str], AfterValidator(frozenset), PlainSerializer(_in_order, return_type=list[str])
]
"""A set of names, given as any set, list or tuple of strings; kept as a frozenset, written sorted."""


class TaskStatus(StrEnum):
    """The status of a task. SKIPPED: never started."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"


def _unique(ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))


@known_arguments
@dataclass(frozen=True, slots=True)
class TaskRef(Generic[T_co]):
    """Names a task of a plan that was made elsewhere, with the type of its answer; see `TeamResult.data`.

    >>> ref = kt.TaskRef("polish.write", Draft)
    """

    id: str
    output_type: OutputType[T_co] = None


@answers_guesses
@checked
@dataclass(frozen=True, slots=True)
class Task(Generic[T_co]):
    """One node of the task graph. It contains only values and names, so it can be written as JSON and read back.

    A member can do it that fits `role`, `member` and `requires`, as far as they are given. The task starts when all
    tasks in `depends_on` have ended and `needs` of them were accepted. `timeout` is in seconds, for one attempt;
    `weight` is its share of the budget relative to the other tasks. Raises `ValueError` for a blank description or a
    number out of range, and `TypeError` for an unknown field.

    A map (`Task.map`) and a loop (`loop=`) are tasks that no member does: they grow into tasks during the run. Their
    `budget` is a ceiling for all these tasks together, which share their `weight`.

    >>> outline = kt.Task("outline", "List three points.", role="editor", timeout=30)
    >>> draft = kt.Task("draft", "Write it.", role="writer", depends_on=["outline"], budget=kt.Budget(tokens=4_000))
    """

    id: Annotated[str, AfterValidator(check_id)]
    description: str
    role: str | None = None
    """The role that does the task."""
    member: str | None = None
    """The one member that does the task."""
    requires: Names = frozenset()
    """Capabilities the member's role must have."""
    depends_on: Annotated[Sequence[str], AfterValidator(_unique)] = ()
    """Ids of tasks whose artifacts the task works on."""
    needs: int | float | Literal["all"] = "all"
    """How many dependencies must be accepted, or which share of them, such as 0.8. The task starts when the rest have
    ended too. Each item of a map counts."""
    inputs: Annotated[Mapping[str, Any], AfterValidator(freeze_json)] = field(default=EMPTY)
    """JSON values by name."""
    weight: float = 1.0
    """Share of the budget and length on the critical path, relative to the other tasks."""
    budget: Budget | None = None
    """Ceiling for all attempts; None is bounded by member and team."""
    timeout: float | None = None
    """Seconds for one attempt; None takes `TeamConfig.task_timeout`."""
    evaluator: str | None = None
    """Name of one of the team's evaluators."""
    output_type: OutputType[T_co] = None
    """The type of the answer: the name of one of the team's output types, or a type that pydantic can validate, such as
    a model, `list[str]` or `Annotated[int, Gt(0)]`. The artifact's data is validated as it. A run gives a type its
    name, so that a plan remains values and names; `TeamResult.data` returns the answer as the type."""
    retries: Annotated[int, Number(strict=True)] | None = None
    """Tries after the first one, counted from 0 for every artifact requested; None takes the failure policy's."""
    reference: str | None = None
    """An answer known to be right. Reviews compare with it (`Criterion.reference`); members do not see it."""
    when: AsCondition = None
    """Condition for the task, which is SKIPPED if it does not hold; a mapping such as {"from": "triage", "field":
    "kind", "equals": "bug"}. The tested task becomes a dependency too."""
    over: str | None = None
    """For a map: the task whose list it works on."""
    max_items: Annotated[int, Number(strict=True)] | None = None
    """For a map: the most items that the list may have."""
    loop: Loop | None = None
    """For a loop: the tasks of each round, and when it ends."""
    part_of: str | None = None
    """The map or loop that the task grew from; the run sets it."""
    files: Annotated[Sequence[File], AsTuple()] = ()
    """Files for the member, after the request's."""

    __get_pydantic_core_schema__ = omit_empty("files")

    @classmethod
    @known_call
    def map(cls, id: str, description: str, *, over: str, max_items: int, **fields: Any) -> Task[T_co]:
        """Return a map: when the task `over` is accepted, each item of its list becomes a task.

        The list is the artifact's data, or JSON in its text; anything else, or more than `max_items`, is an error of
        the attempt that made it. The tasks have the ids `read.0001`, `read.0002` and so on for a map `read`, and all
        `fields` of the map; their `inputs` have the `item` and its `number`, from 1. A task that depends on the map
        starts when all of them have ended, and gets their artifacts upstream by these ids.

        >>> task = kt.Task.map("read", "Summarise the document `item`.", over="list", max_items=200, role="reader")
        """
        if not isinstance(over, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise ValueError(
                f"Task.map: over is the id of the task that makes the list, not {over!r:.80}; for a list that you "
                "have, let a function as a member return it"
            )
        return cls(id, description, over=over, max_items=max_items, **fields)

    def __post_init__(self) -> None:
        self._depend_on_what_is_read()  # first: `needs` counts these too
        if not self.description.strip():
            raise ValueError(f"task {self.id!r}: the description must not be blank")
        if self.reference is not None and not self.reference.strip():
            raise ValueError(f"task {self.id!r}: the reference must not be blank; without one leave it out")
        for name, number in (("weight", self.weight), ("timeout", self.timeout)):
            if number is not None and (not math.isfinite(number) or number <= 0):
                raise ValueError(f"task {self.id!r}: {name} must be > 0 and finite, not {number!r}")
        if self.retries is not None:
            check_count(f"task {self.id!r}: retries", self.retries)
        self._check_growth()
        if isinstance(self.needs, float) and not 0 < self.needs <= 1:
            raise ValueError(f"task {self.id!r}: needs as a share must be above 0 and at most 1, not {self.needs!r}")
        if self.needs != "all" and (self.needs < 0 or (self.needs and not self.depends_on)):
            raise ValueError(_needs_too_many(self))

    def _depend_on_what_is_read(self) -> None:
        """Add the tasks that the condition and the map read to the dependencies."""
        if self.over is None and self.when is None:
            return
        missing = [name for name in dict.fromkeys(self.reads) if name not in self.depends_on]
        if missing:
            object.__setattr__(self, "depends_on", (*self.depends_on, *missing))

    def _check_growth(self) -> None:
        if (self.over is None) is not (self.max_items is None):
            raise ValueError(f"task {self.id!r}: a map has both over= and max_items=; Task.map takes them")
        if self.max_items is not None and self.max_items < 1:
            raise ValueError(f"task {self.id!r}: max_items must be at least 1, not {self.max_items!r}")
        if self.loop is None:
            return
        given = [name for name in _OF_MEMBERS if getattr(self, name)]
        if given:
            raise ValueError(f"task {self.id!r}: a loop has no {given[0]}; give it to the tasks of its body")

    @property
    def condition(self) -> Condition | None:
        """`when` as a condition."""
        return cast("Condition | None", self.when)

    @property
    def reads(self) -> tuple[str, ...]:
        """Ids of the tasks whose artifacts the task's map and condition read."""
        source = None if self.condition is None else self.condition.source
        return tuple(name for name in (self.over, source) if name is not None)

    @property
    def growth(self) -> Literal["map", "loop"] | None:
        """Whether the task is a map, or a loop; None: neither."""
        return "map" if self.over is not None else None if self.loop is None else "loop"

    @property
    def grows(self) -> bool:
        """Whether the task is a map or a loop, which grows into tasks and has no member."""
        return self.over is not None or self.loop is not None

    @property
    def needed(self) -> int:
        """`needs` as a number of dependencies; a map among them counts once."""
        return min(self.needed_of(len(self.depends_on)), len(self.depends_on))

    def needed_of(self, count: int) -> int:
        """Return `needs` as a number, of so many dependencies; a share is rounded up."""
        if self.needs == "all":
            return count
        return math.ceil(self.needs * count) if isinstance(self.needs, float) else self.needs


_OF_MEMBERS: Final = (
    "role",
    "member",
    "requires",
    "timeout",
    "evaluator",
    "output_type",
    "retries",
    "reference",
    "files",
)
"""Fields that describe a member's work."""


def _needs_too_many(task: Task) -> str:
    count = len(task.depends_on)
    return f"task {task.id!r}: needs must be 'all' or from 0 to its {count} dependencies, not {task.needs!r}"


@checked
@dataclass(frozen=True, slots=True)
class Loop:
    """Tasks that are done in rounds, as `Task(..., loop=...)`, until a condition holds.

    `body` is a plan of its own: its tasks depend only on each other. Round 2 of a loop `polish` has tasks such as
    `polish.02.write`. The first tasks of a round get what the loop depends on, and the artifacts of the last round
    upstream as `last.write`. A task that depends on the loop gets the artifacts of its last round as `polish.write`.
    The `inputs` of every task have the `round`, from 1. The loop ends when `until` holds; without it, after
    `max_rounds` rounds. It fails if `until` does not hold after `max_rounds` rounds, if the task that `until` tests was
    not accepted, or if a round makes the same as an earlier one.

    >>> body = [kt.Task("write", "Write a test."), kt.Task("run", "Run it.", depends_on=["write"])]
    >>> loop = kt.Loop(body, until={"from": "run", "field": "passed", "equals": True}, max_rounds=5)
    >>> task = kt.Task("polish", "Write until the test passes.", loop=loop, budget=kt.Budget(tokens=20_000))
    """

    body: Annotated[Sequence[Task], AsTuple()]
    until: AsCondition = None
    """The condition that ends the loop; it tests a task of the body."""
    max_rounds: Annotated[int, Number(strict=True)] = 10

    def __post_init__(self) -> None:
        ids = [task.id for task in TaskGraph(self.body).tasks]
        if self.end is not None and self.end.source not in ids:
            raise ValueError(f"a loop's until tests a task of its body, {known(ids)}, not {self.end.source!r}")
        if self.max_rounds < 1:
            raise ValueError(f"a loop's max_rounds must be at least 1, not {self.max_rounds!r}")

    @property
    def end(self) -> Condition | None:
        """`until` as a condition."""
        return cast("Condition | None", self.until)


@checked
@dataclass(frozen=True)
class TaskGraph:
    """Tasks in plan order, checked to form a directed acyclic graph.

    Raises `ValueError` for an empty plan, duplicate ids, unknown or self dependencies, and cycles; it names the ids.

    >>> plan = kt.TaskGraph([kt.Task("outline", "List."), kt.Task("draft", "Write.", depends_on=["outline"])])
    >>> print(len(plan), plan["draft"].depends_on)
    2 ('outline',)
    """

    tasks: Annotated[Sequence[Task], AsTuple()]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("a plan needs at least one task")
        by_id = {task.id: task for task in self.tasks}
        if len(by_id) != len(self.tasks):
            twice = repeated(task.id for task in self.tasks)
            raise ValueError(f"task ids must be unique; given twice: {known(twice)}")
        _check_dependencies(by_id, EMPTY)
        _check_growth(by_id, EMPTY)
        _check_acyclic(self.tasks)
        self.__dict__["_held"] = _Tasks(list(self.tasks), by_id)  # fills the cached property

    @cached_property
    def _held(self) -> _Tasks:
        """The tasks by id, for a plan that was read back."""
        return _Tasks(list(self.tasks), {task.id: task for task in self.tasks})

    def grown(self, more: Iterable[Task]) -> TaskGraph:
        """Return the plan with more tasks after those it has; raises `ValueError` as for a whole plan.

        Only the new tasks are checked, and the existing ones are not copied.

        >>> print(len(plan.grown([kt.Task("check", "Check.", depends_on=["draft"])])), len(plan))
        3 2
        """
        new = tuple(more)
        self.check_more(new)
        made = object.__new__(TaskGraph)
        made.__dict__["_held"] = self._held.grown(new)
        return made

    def check_more(self, more: Sequence[Task]) -> None:
        """Raise `ValueError` if these tasks cannot be added to the plan."""
        there, new = self._held.own().by_id, {task.id: task for task in more}
        if len(new) != len(more) or any(map(there.__contains__, new)):
            twice = repeated((*filter(there.__contains__, new), *(task.id for task in more)))
            raise ValueError(f"task ids must be unique; given twice: {known(twice)}")
        _check_dependencies(new, there)
        _check_growth(new, there)
        # The other tasks cannot depend on these, and the check above has refused a task that depends on itself.
        if len(more) > 1:
            _check_acyclic(more)

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Make `tasks` of a plan that grew, at the first read."""
            if name != "tasks":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__["tasks"] = tasks = tuple(in_plan_order(self._held.own().in_order))
            return tasks

    def __getstate__(self) -> Mapping[str, Any]:
        """Return the state to pickle: the plan's own tasks, without the tasks of plans that grew from it."""
        return {**{name: held for name, held in self.__dict__.items() if name != "_held"}, "tasks": self.tasks}

    @property
    def dag(self) -> nx.DiGraph[str]:
        """The graph of task ids; an edge leads from a dependency to its dependent. Do not change it.

        It is made at the first read.
        """
        return self._dag

    @cached_property
    def _dag(self) -> nx.DiGraph[str]:
        import networkx as nx  # its import is slow, and only drawings need it

        dag: nx.DiGraph[str] = nx.DiGraph()
        dag.add_nodes_from(task.id for task in self.tasks)
        dag.add_edges_from(edges_of(self.tasks))
        return dag

    def __getitem__(self, task_id: str) -> Task:
        """Return the task of that id; `KeyError` lists the existing ids."""
        by_id = self._held.own().by_id
        if task_id not in by_id:
            raise KeyError(f"no task {task_id!r} in this plan; it has {known(by_id)}")
        return by_id[task_id]

    def __len__(self) -> int:
        return self._held.size

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: a picture of the plan, or a table of a big one."""
        return drawing("show_plan")(self)

    def _repr_svg_(self) -> str | None:
        """Return the picture for a notebook; None for a plan of more than 100 tasks, and without the extra `cli`."""
        return drawing("draw_plan")(self)


class _Tasks:
    """The tasks of a plan in plan order and by id, shared by plans that grew one from another.

    Each plan has the first `size` tasks; the last plan has all.
    """

    __slots__ = ("by_id", "in_order", "size")

    def __init__(self, in_order: list[Task], by_id: dict[str, Task]) -> None:
        self.in_order, self.by_id, self.size = in_order, by_id, len(in_order)

    def own(self) -> _Tasks:
        """Keep only the plan's own tasks, if a plan that grew from it has added some, and return itself."""
        if len(self.in_order) > self.size:
            self.in_order = self.in_order[: self.size]
            self.by_id = {task.id: task for task in self.in_order}
        return self

    def grown(self, new: Iterable[Task]) -> _Tasks:
        """Return the tasks of a plan that has these too."""
        # Another plan may have grown from this one, into the same list.
        self.own()
        for task in new:
            self.in_order.append(task)
            self.by_id[task.id] = task
        return _Tasks(self.in_order, self.by_id)


def in_plan_order(tasks: Sequence[P]) -> Sequence[P]:
    """Put the tasks of a map or a loop after it, so that a plan's order does not depend on when it grew."""
    if all(task.part_of is None for task in tasks):
        return tasks
    parts: dict[str | None, list[P]] = {}
    known_ids = {task.id for task in tasks}
    for task in tasks:
        parts.setdefault(task.part_of if task.part_of in known_ids else None, []).append(task)
    ordered: list[P] = []
    waiting = parts.get(None, [])[::-1]
    while waiting:
        task = waiting.pop()
        ordered.append(task)
        waiting += reversed(parts.get(task.id, ()))  # the last one is popped first
    return ordered


def done_by_members(tasks: Iterable[Task]) -> Iterator[Task]:
    """Yield the tasks that members do: a loop's body instead of the loop, and a map once for all its items."""
    for task in tasks:
        if task.loop is None:
            yield task
        else:
            yield from done_by_members(task.loop.body)


def _check_dependencies(new: Mapping[str, Task], there: Mapping[str, Task]) -> None:
    for task in new.values():
        if task.id in task.depends_on:
            raise ValueError(f"task {task.id!r} depends on itself")
        unknown = [name for name in task.depends_on if name not in new and name not in there]
        if unknown:
            has = known([*there, *new])
            raise ValueError(f"task {task.id!r} depends on unknown tasks {known(unknown)}; the plan has {has}")


def _check_growth(new: Mapping[str, Task], there: Mapping[str, Task]) -> None:
    """Refuse ids and needs that do not fit the maps and loops there are, and reads of their artifacts."""
    growing = False
    for task in new.values():
        if task.part_of is not None:
            if not _grows_from(task.part_of, new, there):
                raise ValueError(f"task {task.id!r}: part_of names no map or loop of the plan: {task.part_of!r}")
        elif "." in task.id:
            _check_kept(task.id, new, there)
        if task.over or task.loop or task.when:
            growing = growing or task.grows
            _check_read(task, new, there)
        if isinstance(task.needs, int) and task.needs > len(task.depends_on):
            # A map counts once for each item.
            most = sum((new.get(name) or there[name]).max_items or 1 for name in task.depends_on)
            if task.needs > most:
                raise ValueError(_needs_too_many(task))
    # Only a new map or loop reserves ids that tasks of the plan may have.
    for task in there.values() if growing else ():
        if task.part_of is None and "." in task.id:
            _check_kept(task.id, new, there)


def _check_read(task: Task, new: Mapping[str, Task], there: Mapping[str, Task]) -> None:
    for name in task.reads:
        if _grows_from(name, new, there):
            raise ValueError(
                f"task {task.id!r} reads the artifact of {name!r}, which is a map or a loop and has none: let a "
                "task join what it makes, and read that"
            )


def _grows_from(name: str, new: Mapping[str, Task], there: Mapping[str, Task]) -> bool:
    task = new.get(name) or there.get(name)
    return task is not None and task.grows


def _check_kept(task_id: str, new: Mapping[str, Task], there: Mapping[str, Task]) -> None:
    """Refuse an id that is reserved for the tasks of a map or a loop."""
    end = task_id.find(".")
    while end >= 0:
        if _grows_from(task_id[:end], new, there):
            raise ValueError(f"the id {task_id!r} is kept for what {task_id[:end]!r} grows into: take another one")
        end = task_id.find(".", end + 1)  # an id may have several dots


def edges_of(tasks: Iterable[Task]) -> Iterator[tuple[str, str]]:
    """Yield the edges of a plan, in the order of the tasks they lead to.

    Edges lead from dependencies, and from a map or a loop to the first tasks that it grew into.
    """
    for task in tasks:
        if task.part_of is not None and not task.depends_on:
            yield task.part_of, task.id
        for name in task.depends_on:
            yield name, task.id


def _check_acyclic(tasks: Sequence[Task]) -> None:
    """Refuse a cycle among these tasks; name the first one found when following them in plan order."""
    dependents: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for dependency in task.depends_on:
            if dependency in dependents:
                dependents[dependency].append(task.id)
    done: set[str] = set()
    for start, first in dependents.items():
        # A stack of its own, because a long chain of tasks is too deep for recursion.
        path = {} if start in done else {start: iter(first)}
        while path:
            last, following = next(reversed(path.items()))
            reached = next(following, None)
            if reached is None:
                done.add(last)
                del path[last]
            elif reached in path:
                ids = list(path)
                cycle = ids[ids.index(reached) :]
                raise ValueError(f"the tasks form a cycle: {' -> '.join([*cycle, reached])}")
            elif reached not in done:
                path[reached] = iter(dependents[reached])


@answers_guesses
@known_arguments
@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member gets for one attempt."""

    task: Task
    goal: str
    inputs: Mapping[str, Any]
    """The inputs of the task."""
    context: Mapping[str, Any]
    """The request's context."""
    upstream: Mapping[str, Artifact]
    """Accepted artifacts of the task's dependencies, by task id, in the order of `depends_on`."""
    attempt: int = 1
    """Number of the requested artifact of this task, from 1: it grows with every revision, not with retries."""
    previous: Artifact | None = None
    """The artifact a revision starts from."""
    findings: Sequence[Finding] = ()
    """Defects that a reviewer found in `previous` or an earlier version, blocking first; "closed" ones are resolved."""
    directives: Sequence[str] = ()
    """Instructions from `steer` calls on the run, oldest first."""
    done: Sequence[DoneCall] = ()
    """What earlier attempts at this work, which failed or were cut short, did with tools, oldest first."""
    met: Sequence[str] = ()
    """Criteria that `previous` meets, in their own words: these parts must stay as they are."""
    files: Sequence[File] = ()
    """Files of the request and of the task. Those of other tasks' artifacts are in `upstream`."""

    @property
    def all_files(self) -> tuple[File, ...]:
        """Own files, then the files of `upstream` and `previous`; each content once."""
        before = () if self.previous is None else self.previous.files
        return unique([*self.files, *(file for one in self.upstream.values() for file in one.files), *before])

    def __post_init__(self) -> None:
        check_kind("Assignment.task", self.task, Task)
        check_kind("Assignment.goal", self.goal, str)
        check_count("Assignment.attempt", self.attempt, 1)
        check_kind("Assignment.previous", self.previous, Artifact, or_none=True)
        for name, kind in (("inputs", None), ("context", None), ("upstream", Artifact)):
            object.__setattr__(self, name, freeze_named(f"Assignment.{name}", getattr(self, name), kind))
        for name, one in (
            ("findings", Finding),
            ("directives", str),
            ("done", DoneCall),
            ("met", str),
            ("files", File),
        ):
            object.__setattr__(self, name, freeze_several(f"Assignment.{name}", getattr(self, name), one))
