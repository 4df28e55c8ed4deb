"""The pages for those who come from another library: same sections, and the versions that were run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are no part of the wheel")

from benchmarks.side_by_side.libraries import LIBRARIES

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "coming-from").glob("*.md")}
NAMES = {
    "langgraph": "LangGraph",
    "crewai": "CrewAI",
    "pydantic-ai": "pydantic-ai",
    "agent-framework": "Agent Framework",
    "openai-agents": "the OpenAI Agents SDK",
}


def test_there_is_a_page_for_each_library() -> None:
    assert PAGES.keys() == NAMES.keys()


@pytest.mark.parametrize("page", NAMES)
def test_a_page_has_the_same_job_the_words_and_when_not_to_choose_this_library(page: str) -> None:
    assert re.findall(r"^## (.*)$", PAGES[page], re.MULTILINE) == [
        "The same job",
        "Words",
        "What is different",
        f"What {NAMES[page]} does better",
        "When not to choose this library",
    ]


@pytest.mark.parametrize(
    ("page", "package"),
    [("langgraph", "langgraph"), ("pydantic-ai", "pydantic-ai-slim"), ("openai-agents", "openai-agents")],
)
def test_a_page_names_the_version_that_the_tests_run(page: str, package: str) -> None:
    assert f" {_pinned(package)} " in PAGES[page].partition("## ")[0]


def _pinned(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize(
    ("page", "library", "packages"),
    [
        ("crewai", "crewai", {"crewai"}),
        ("agent-framework", "agent_framework", {"agent-framework-core", "agent-framework-orchestrations"}),
    ],
)
def test_a_page_of_a_library_that_is_not_installed_names_the_versions_of_the_comparison(
    page: str, library: str, packages: set[str]
) -> None:
    """Its program is no block that the tests run, and the versions are those that the comparison was measured with."""
    versions = dict(one.split("==") for one in LIBRARIES[library].requirements)
    for package in packages:
        assert f"{package} {versions[package]}" in " ".join(PAGES[page].split())
    assert "so the tests run only the other program" in " ".join(PAGES[page].split())
    assert "```py\n" in PAGES[page]


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for name, text in PAGES.items():
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert (ROOT / "docs" / "coming-from" / link).exists(), f"{name}: {link}"
