"""`SkillFolder`: skills are listed by name, read one at a time, and hostile folders are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml", reason="the extra `yaml` is not installed")

import kairo_team as kt
from kairo_team.testing import ScriptedModel
from kairo_team.tools import SkillFolder

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

PDF = """---
name: pdf
description: Fill in PDF forms. Use it
  for any form.
license: Apache-2.0
metadata: {version: "1"}
---

# Forms
Read references/fields.md first.
"""


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def skill(folder: Path, name: str, front: str | None = None, body: str = "Do it.") -> Path:
    front = f"name: {name}\ndescription: Does {name}." if front is None else front
    return write(folder / name / "SKILL.md", f"---\n{front}\n---\n{body}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skills = tmp_path / "skills"
    write(skills / "pdf/SKILL.md", PDF)
    write(skills / "pdf/references/fields.md", "Fields have names.")
    write(skills / "pdf/scripts/fill.py", "print('filled')")
    skill(skills, "mail")
    write(skills / "README.md", "Not a skill.")
    return skills


async def test_a_model_sees_names_reads_one_skill_and_then_its_files(folder: Path) -> None:
    calls = [
        kt.ToolCall("1", "skills_read", {"skill": "pdf"}),
        kt.ToolCall("2", "skills_read", {"skill": "pdf", "file": "references/fields.md"}),
        kt.ToolCall("3", "skills_read", {"skill": "word"}),
        kt.ToolCall("4", "skills_read", {"skill": "pdf", "file": "forms.md"}),
    ]
    model = ScriptedModel([kt.ModelResponse("", tool_calls=calls), "Done."])
    skills = SkillFolder(folder)
    assert repr(skills) == "<SkillFolder 'skills' with 'mail', 'pdf'>"
    permissions = kt.ToolPermissions(plan_mode=True)
    team = kt.Team("t", [kt.Member("m", kt.MiniAgent(model, tools=[skills]))], permissions=permissions)
    assert (await kt.run(team, "Fill in the form.")).output == "Done."
    (tool,) = model.calls[0].tools
    assert tool.description.endswith("\n- mail: Does mail.\n- pdf: Fill in PDF forms. Use it for any form.")
    assert "# Forms" not in str(model.calls[0].messages)
    answers = [message.text for message in model.calls[1].messages if message.role == "tool"]
    assert answers[0].startswith("# Forms\nRead references/fields.md first.\n\nFiles in ")
    assert answers[0].endswith("skills/pdf: references/fields.md, scripts/fill.py")
    assert answers[1:3] == ["Fields have names.", "ValueError: there is no skill 'word': the skills are 'mail', 'pdf'"]
    why = "ValueError: 'forms.md' of the skill 'pdf' cannot be read: No such file or directory; "
    assert answers[3] == f"{why}it has 'references/fields.md', 'scripts/fill.py'"


@pytest.mark.parametrize(
    "file", ["../mail/SKILL.md", "/etc/passwd", "a/../../mail/SKILL.md", "\0", "out", "scripts", "big"]
)
async def test_a_file_that_leads_out_or_is_not_a_text_is_not_read(folder: Path, file: str) -> None:
    secret = write(folder.parent / "secret", "sesame")
    (folder / "pdf/out").symlink_to(secret)
    write(folder / "pdf/big", "x" * 1_000_001)
    async with SkillFolder(folder).connect() as (tool,):
        with pytest.raises(ValueError, match="of the skill 'pdf' cannot be read: ") as caught:
            await tool.call({"skill": "pdf", "file": file})
    assert "sesame" not in str(caught.value)
    assert "out'" not in str(caught.value).partition("it has")[2], "a link is not listed"


async def test_a_named_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pdf/pipe")
    async with SkillFolder(folder).connect() as (tool,):
        with pytest.raises(ValueError, match="it is not a regular file"):
            await tool.call({"skill": "pdf", "file": "pipe"})


MISTAKES: list[tuple[str, str]] = [
    ("name: other\ndescription: D.", "its name must be the folder's, 'one', not 'other'"),
    ("name: One\ndescription: D.", "its name must be 1 to 64 lower-case letters, digits and single hyphens, not 'One'"),
    ("description: D.", "hyphens, not None"),
    ("name: one", "its description must be a text on what it does and when to use it, not None"),
    ("name: one\ndescription: ' '", "its description must be a text"),
    (f"name: one\ndescription: {'x' * 1025}", "its description has 1,025 characters, and at most 1,024 are allowed"),
    ("name: one\ndescription: Reads: it", "line 3: it is not valid YAML"),
    ("name: &a one\ndescription: *a", "line 2: anchors (&) and aliases (*) are not taken"),
    ("- name", "its front matter must have the keys name and description"),
]


@pytest.mark.parametrize(("front", "sentence"), MISTAKES, ids=[sentence[:30] for _, sentence in MISTAKES])
def test_bad_front_matter_is_said_with_its_place(tmp_path: Path, front: str, sentence: str) -> None:
    file = skill(tmp_path, "one", front)
    with pytest.raises(ValueError, match="SKILL") as caught:
        SkillFolder(tmp_path)
    assert str(caught.value).startswith(f"{file.resolve()}: ")
    assert sentence in str(caught.value)


def refused(folder: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        SkillFolder(folder)
    return str(caught.value)


def test_hostile_folders_are_refused(tmp_path: Path) -> None:
    outside = skill(tmp_path / "outside", "evil")
    links = tmp_path / "links"
    links.mkdir()
    (links / "evil").symlink_to(outside.parent)
    assert "its folder is a link, which is not followed" in refused(links)
    (tmp_path / "file/evil").mkdir(parents=True)
    (tmp_path / "file/evil/SKILL.md").symlink_to(outside)
    assert "it is a link that leads out of the skill" in refused(tmp_path / "file")
    skill(tmp_path / "huge", "big", body="x" * 100_001)
    assert "it has more than 100,000 bytes" in refused(tmp_path / "huge")
    write(tmp_path / "bare/plain/SKILL.md", "# No front matter")
    assert "it must begin with front matter" in refused(tmp_path / "bare")
    (tmp_path / "bytes/raw").mkdir(parents=True)
    (tmp_path / "bytes/raw/SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    assert "it is not UTF-8 text" in refused(tmp_path / "bytes")
    for number in range(101):
        skill(tmp_path / "many", f"s{number}")
    assert "has 101 skills, and at most 100 are allowed" in refused(tmp_path / "many")
    for number in range(10):
        skill(tmp_path / "long", f"s{number}", f"name: s{number}\ndescription: {'x' * 1000}")
    assert "the names and descriptions of its 10 skills have 10,020 characters" in refused(tmp_path / "long")


def test_a_folder_without_skills_and_a_missing_one_are_named(tmp_path: Path) -> None:
    assert "has no skills: a skill is a folder in it with a SKILL.md" in refused(tmp_path)
    assert "there is no folder" in refused(tmp_path / "nowhere")
