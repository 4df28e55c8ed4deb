"""The rows of a list of tasks: each task has one, in windows that meet, whatever is folded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kairo_team.events import PlannedTask
from kairo_team.views.run_story import TaskStory
from kairo_team.web_console.task_tree import MOST_TASKS, Window, tree


def stories(alone: int, maps: list[int]) -> dict[str, TaskStory]:
    """Make tasks: some alone, and maps with so many items."""
    planned = [PlannedTask(f"alone-{number}") for number in range(alone)]
    for at, items in enumerate(maps):
        planned.append(PlannedTask(f"map-{at}"))
        planned += [PlannedTask(f"map-{at}.{item:04}", part_of=f"map-{at}") for item in range(items)]
    return {task.id: TaskStory(task.id, task, 0.0) for task in planned}


def names(window: Window) -> list[str]:
    return [one.task.id for one in window.rows]


@given(alone=st.integers(0, 450), maps=st.lists(st.integers(1, 300), max_size=3), data=st.data())
def test_windows_meet_and_have_each_task_once(alone: int, maps: list[int], data: st.DataObject) -> None:
    tasks = stories(alone, maps)
    holders = [one for one in tasks if one.startswith("map-") and "." not in one]
    opened = data.draw(st.lists(st.sampled_from(holders), unique=True)) if holders else []
    first = tree(tasks, opened=opened)
    found = names(first)
    while len(found) < first.total:
        found += names(tree(tasks, start=len(found), opened=opened))[-(first.total - len(found)) :]
    assert len(found) == len(set(found)) == first.total
    many = len(tasks) > MOST_TASKS
    folded = {one for at, one in enumerate(holders) if many and one not in opened and maps[at] > 8}
    assert set(found) == {one for one in tasks if one in holders or one.partition(".")[0] not in folded}
    assert first.is_whole is not many
    if first.is_whole:
        assert len(found) == len(tasks)


@given(alone=st.integers(0, 450), start=st.integers(-1_000, 1_000))
def test_a_window_is_full_wherever_it_begins(alone: int, start: int) -> None:
    window = tree(stories(alone, []), start=start)
    assert len(window.rows) == min(alone, MOST_TASKS)
    assert window.start + len(window.rows) + window.below == window.total == alone
    if -alone <= start < 0:
        assert window.start == max(min(alone + start, alone - MOST_TASKS), 0), "from the end"


def test_words_find_tasks_in_what_is_folded() -> None:
    tasks = stories(5, [300])
    found = tree(tasks, "map-0.0299")
    assert names(found) == ["map-0", "map-0.0299"]
    assert not found.is_whole, "the server found them: without the words it has to be asked again"
