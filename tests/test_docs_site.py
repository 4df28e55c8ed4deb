"""The pages of docs/ are all in the list of pages, their links lead somewhere, and all that is public is in them."""

from __future__ import annotations

import inspect
import posixpath
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team import errors
from kairo_team.events import EVENT_TYPES

pytest.importorskip("scripts.docs_site", reason="the site is no part of the wheel")

from scripts.docs_site import (
    api_pages,
    commands_page,
    configuration_page,
    errors_page,
    llms,
    navigation,
    public_names,
)
from scripts.docs_site.docstrings import as_markdown
from scripts.docs_site.links import Links
from scripts.docs_site.pages import Page

ROOT = Path(__file__).resolve().parent.parent

TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [*TOP, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```.*?^```$|``.+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page: str) -> set[str]:
    """The headings of a page as they are written in a link."""
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_to_a_heading_of_it(page: str) -> None:
    broken: list[str] = []
    for target in LINK.findall(CODE.sub("", read(page))):
        path, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if "://" in target:
            continue
        if not (ROOT / there).exists() or (anchor and there.endswith(".md") and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_the_list_of_pages_names_each_page_once() -> None:
    listed = Counter(path for section in navigation.sections(generated=False) for _, path, _ in section.entries)
    there = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} - {"index.md", navigation.LIST}
    assert set(listed) == there
    assert [path for path, times in listed.items() if times > 1] == []


def test_the_pages_are_of_four_kinds_and_the_reasons_for_the_design() -> None:
    kinds = [section.heading.partition(":")[0] for section in navigation.sections(generated=False)]
    assert list(dict.fromkeys(kinds)) == ["Tutorial", "How-to", "Reference", "Explanation", "Decisions"]


def test_every_public_name_appears_in_a_page_that_somebody_wrote() -> None:
    text = "\n".join(read(page) for page in PAGES if page not in {"CHANGELOG.md", "docs/events.md"})
    names = [name for name in kt.__all__ if name != "__version__"]
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def test_every_event_type_appears_in_the_table_and_in_a_page_about_something_else() -> None:
    table = read("docs/events.md")
    text = "\n".join(read(page) for page in PAGES if page not in {"CHANGELOG.md", "docs/events.md"})
    assert [one for one in EVENT_TYPES if f"### {one}\n" not in table] == []
    assert [one for one in EVENT_TYPES if one not in text] == []


@pytest.fixture(scope="module")
def api() -> dict[str, Page]:
    return {page.path: page for page in api_pages.pages()}


@pytest.mark.parametrize("module", public_names.MODULES)
def test_every_public_name_of_a_module_has_an_entry_in_the_reference(module: str, api: dict[str, Page]) -> None:
    for name in public_names.public_names(import_module(module)):
        found = getattr(import_module(module), name)
        if inspect.ismodule(found) and found.__name__ in {*public_names.MODULES, *public_names.ELSEWHERE}:
            continue
        place = public_names.link(name)
        assert place is not None, f"{module}.{name}"
        assert f"\n## {name}\n" in api[place.partition("#")[0]].text, f"{module}.{name}"


def test_every_name_that_an_example_imports_has_an_entry_in_the_reference() -> None:
    text = "\n".join(read(page) for page in PAGES)
    found = re.findall(r"^\s*from kairo_team[\w.]* import ([\w, ]+)$", text, re.MULTILINE)
    names = {name.strip().partition(" as ")[0] for line in found for name in line.split(",")}
    modules = {module.rpartition(".")[2] for module in {*public_names.MODULES, *public_names.ELSEWHERE}}
    assert {name for name in names if public_names.link(name) is None} - modules == set()


def test_an_entry_shows_signature_types_units_errors_and_example(api: dict[str, Page]) -> None:
    budget = api["api/kairo_team/budget.md"].text
    assert ":::::{py:class} Budget(tokens: int | None = None, dollars: Money | None = None" in budget
    assert "::::{py:attribute} seconds\n:type: float | None\n\nSeconds of wall clock" in budget
    assert "Raises `ValueError` for a negative number" in budget
    assert '```pycon\n>>> print(kt.Budget(tokens=20_000, dollars="0.50", seconds=60))' in budget
    run = api["api/kairo_team/api.md"].text
    assert (
        ":::::{py:function} run(team: kairo_team.Team, request: kairo_team.TeamExecutionRequest | str, *, plan:" in run
    )
    assert "-> kairo_team.TeamResult\n:module: kairo_team\n:async:" in run


def test_clauses_become_a_list_and_trees_and_examples_code() -> None:
    said = "Does a task.\n\nC1. It works\n    well.\nC2. See `Team`.\n\n>>> 1\n1\n\nA\n+- B"
    shown = as_markdown(said, {"Team": "api/t.md#team"}.get, "../")
    assert shown == (
        "Does a task.\n\n- **C1.** It works\n  well.\n- **C2.** See [`Team`](../api/t.md#team).\n\n"
        "```pycon\n>>> 1\n1\n```\n\n```text\nA\n+- B\n```"
    )


def test_links_out_of_docs_lead_to_pages_of_the_site() -> None:
    links = Links(public_names.link)
    text = (
        "# `kt.Team`\n\n[a](../tests/conftest.py) `examples/survives.py` `kt.Team` `kt.Team`\n\n```\n`kt.Team`\n```\n"
    )
    assert links.rewritten(text, "docs/x.md", "x.md") == (
        "# `kt.Team`\n\n[a](source/tests/conftest.py.md) [`examples/survives.py`](source/examples/survives.py.md) "
        "[`kt.Team`](api/kairo_team/team.md#team) `kt.Team`\n\n```\n`kt.Team`\n```\n"
    )
    assert links.sources == {"tests/conftest.py", "examples/survives.py"}


def test_the_page_of_commands_has_every_command_and_option() -> None:
    text = commands_page.page().text
    for command in ("run", "check", "judge try", "schema team", "console", "resume"):
        assert f"\n## kairo {command}\n" in text
    assert "| `--budget LIMITS` | Limits such as tokens=20000" in text


def test_the_page_of_errors_has_every_error_and_what_it_says() -> None:
    text = errors_page.page().text
    assert [kind.__name__ for kind in errors_page.kinds() if f"\n## {kind.__name__}\n" not in text] == []
    assert errors.KairoError in errors_page.kinds()
    assert "`<what> needs the extra <extra>: pip install 'kairo-team[<extra>]'`" in text
    assert "`llama.cpp cannot load <file>: is it a GGUF file?`" in text


def test_the_page_of_data_has_every_key_of_a_team_and_a_rubric() -> None:
    text = configuration_page.page().text
    for make in configuration_page.SCHEMAS.values():
        assert [key for key in make()["properties"] if f"| `{key}`" not in text] == []
    assert "| `seconds` | number or null | Seconds of wall clock" in text


def test_the_files_for_language_models_have_every_page() -> None:
    front = Page("index.md", read("docs/index.md"))
    listed = llms.contents(front)
    assert listed.startswith("# kairo-team\n\n> Run a team of agents")
    assert all(f"]({path})" in listed for section in navigation.sections() for _, path, _ in section.entries)
    whole = llms.full([front, Page("a.md", "# A\n\n:::::{py:class} B(c: int)\n:module: m\n\nWhat.\n:::::")])
    assert whole.endswith("<!-- a.md -->\n\n# A\n\n## class `B(c: int)`\n\nWhat.\n")


def test_the_first_page_and_the_ends_of_pages_have_boxes_that_other_readers_do_not_see() -> None:
    front = Page("index.md", read("docs/index.md"))
    assert front.source().count("::::{container} ") == 3 == len(re.findall(r"^::::$", front.source(), re.MULTILINE))
    assert "container" not in llms.plain(front.text)
    assert "<!--" not in llms.plain(front.text)
    measured = Page("machines-measured.md", read("docs/machines-measured.md"))
    assert "<!-- end -->" in measured.text
    assert "::::" not in measured.source()


def test_a_page_ends_with_cards_of_the_next_pages_of_its_section() -> None:
    files = {path for section in navigation.sections(generated=False) for _, path, _ in section.entries}
    page = navigation.with_next(Page("mini-agent.md", "# MiniAgent\n"), files)
    assert page.text == (
        "# MiniAgent\n\n<!-- cards -->\n\n"
        "- **[Agents of other libraries](wrappers.md)**: pydantic-ai, LangGraph, the OpenAI Agents SDK\n"
        "- **[A governed address](address.md)**: any library's agent, or a program, inside the budget\n\n"
        "<!-- /cards -->\n"
    )
    nested = navigation.with_next(Page("coming-from/crewai.md", "# C\n"), files)
    assert "- **[Coming from pydantic-ai](pydantic-ai.md)**: agents that stay as they are\n" in nested.text
    last = Page("ecosystem.md", "# Publish a plug-in\n")
    tutorial = Page("tutorial/budget.md", "# 2\n\nNext: [3. A review](review.md).\n")
    assert [navigation.with_next(one, files) for one in (last, tutorial)] == [last, tutorial]
