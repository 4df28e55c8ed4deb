"""Packages with plug-ins, installed as pip would install them: a module and its metadata in a folder on the path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

Install = Callable[..., Path]
"""`install(package, {kind or group: {name: target}}, source, version=...)` returns the package's metadata folder."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package whose module has its name; the entry points are those of plug-in points or of whole groups.

    A `site` is another folder, which comes first on the path.
    """
    sites: dict[str, Path] = {}

    def on_the_path(site: str) -> Path:
        if site not in sites:
            sites[site] = tmp_path / site
            sites[site].mkdir()
            monkeypatch.syspath_prepend(sites[site])  # pyright: ignore[reportUnknownMemberType]  # pytest leaves it untyped
        return sites[site]

    def put(
        package: str,
        points: Mapping[str, Mapping[str, str]],
        source: str | None = None,
        version: str = "1.0",
        site: str = "site",
    ) -> Path:
        folder = on_the_path(site)
        if source is not None:
            (folder / f"{package.replace('-', '_')}.py").write_text(source, encoding="utf-8")
        info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        lines: list[str] = []
        for kind, named in points.items():
            group = kind if "." in kind else f"kairo_team.{kind.replace('-', '_')}s"
            lines += [f"[{group}]", *(f"{name} = {target}" for name, target in named.items())]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        importlib.invalidate_caches()
        return info

    before = set(sys.modules)
    yield put
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
