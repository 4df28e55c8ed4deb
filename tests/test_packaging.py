"""One name is installed, with everything in it; the repository's other folders are never imported by theirs."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import metadata, version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKS = ("coordinators", "evaluators", "examples", "tck")

needs_repository = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="runs in the repository only")
needs_build = pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")


def build(target: str, source: Path, destination: Path) -> Path:
    """Build an sdist or a wheel of `source` and return the file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(destination)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (built,) = destination.iterdir()
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return contents(build("wheel", ROOT, tmp_path_factory.mktemp("wheel")))


@needs_repository
@needs_build
def test_the_wheel_from_the_sdist_is_the_wheel_from_the_repository(
    sdist: Path, wheel: dict[str, bytes], tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert contents(build("wheel", unpacked, tmp_path / "dist")) == wheel


@needs_repository
@needs_build
def test_only_one_name_is_installed(wheel: dict[str, bytes]) -> None:
    assert {name.partition("/")[0] for name in wheel} == {"kairo_team", f"kairo_team-{version('kairo-team')}.dist-info"}


@needs_repository
@needs_build
def test_the_wheel_holds_every_source_file_under_its_shipped_name(wheel: dict[str, bytes]) -> None:
    rooms = {"kairo_team": "kairo_team"} | {name: f"kairo_team/{name}" for name in LINKS}
    sources = {
        f"{name}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, name in rooms.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in wheel if name.startswith("kairo_team/")} == sources
    assert {"kairo_team/py.typed", "kairo_team/examples/release_notes.py"} <= sources


@needs_repository
@needs_build
def test_the_sdist_holds_the_folders_and_no_links(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert not [member.name for member in archive.getmembers() if member.issym() or member.islnk()]
    assert not [name for name in names if name.startswith(tuple(f"kairo_team/{link}" for link in LINKS))]
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names


@needs_repository
@pytest.mark.parametrize("name", LINKS)
def test_a_development_link_leads_to_its_folder(name: str) -> None:
    assert (ROOT / "kairo_team" / name).is_symlink(), "check the repository out with core.symlinks=true"
    assert (ROOT / "kairo_team" / name).resolve() == ROOT / name


@needs_repository
def test_the_tools_that_follow_no_link_are_told_of_each() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert {f"kairo_team/{name}" for name in LINKS} <= set(tools["pyright"]["include"])
    assert {f"kairo_team.{name}" for name in LINKS} <= set(tools["coverage"]["run"]["source_pkgs"])
    assert {f"/kairo_team/{name}" for name in LINKS} <= set(tools["hatch"]["build"]["exclude"])


@needs_repository
def test_kf_g16_every_dependency_is_bounded_on_both_sides() -> None:
    """Unpinned dependencies break a released package later: each has a lower and an upper bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    loose = [each for each in listed if not each.startswith("kairo-team[") and not re.search(r">=[^,]+,<", each)]
    assert loose == []


@needs_repository
def test_the_pins_carry_hashes_and_name_no_address() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^[a-z0-9].*", text, flags=re.MULTILINE)
    assert pins
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ (; .+ )?\\", pin) for pin in pins)
    assert len(re.findall(r"\\\n    --hash=", text)) >= len(pins)
    assert "://" not in text
    assert not re.search(r"(^|\s)/|file:|index", re.sub(r"pyproject\.toml", "", text))


@needs_repository
@pytest.mark.parametrize("wanted", [[], ["cli", "local", "build", "model"], ["all", "dev", "model"]])
def test_every_set_of_extras_is_pinned(wanted: list[str]) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "pins.py"), *wanted]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    pinned = set(re.findall(r"^([a-z0-9-]+)==", done.stdout, flags=re.MULTILINE))
    assert {
        "anyio",
        "docstring-parser",
        "jinja2",
        "networkx",
        "pydantic",
        "pydantic-core",
        "typing-extensions",
    } <= pinned
    assert ("pydantic-ai-slim" in pinned) is ("all" in wanted)
    assert ("typer" in pinned) is bool(wanted)


@pytest.mark.smoke
def test_the_installed_metadata_names_the_extras() -> None:
    assert {"all", "cli", "local", "models"} <= set(metadata("kairo-team").get_all("Provides-Extra") or [])


IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import kairo_team

for found in pkgutil.walk_packages(kairo_team.__path__, "kairo_team."):
    if not found.name.startswith("kairo_team.examples") and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if "kairo-team[" not in str(error):  # the sentence that names a missing extra
                raise
for name in kairo_team.__all__:
    getattr(kairo_team, name)
print(*sys.modules)
"""


@pytest.mark.smoke
@pytest.mark.exhaustive
def test_a_users_own_folders_are_left_alone(tmp_path: Path) -> None:
    """Import every module beside foreign packages of the folders' names, which would raise if they were touched."""
    for name in LINKS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a foreign package was imported')\n")
    command = [sys.executable, "-c", IMPORT_EVERYTHING]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"kairo_team.coordinators", "kairo_team.evaluators"} <= loaded
    assert loaded.isdisjoint(LINKS)
