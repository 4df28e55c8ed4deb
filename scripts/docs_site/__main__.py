"""Build the site: `python -m scripts.docs_site [FOLDER]`, by default `site/`. A broken link ends it with an error."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from scripts.docs_site import llms
from scripts.docs_site.staging import stage

_HERE = Path(__file__).parent


def main(target: Path) -> int:
    """Build the site into a folder, from nothing, and return the exit code."""
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / "pages"
        pages = stage(source)
        shutil.copy(_HERE / "conf.py", source)
        shutil.copytree(_HERE / "theme", source / "_theme")
        extra = source / "_extra"
        extra.mkdir()
        (extra / "llms.txt").write_text(llms.contents(pages[0]), encoding="utf-8")
        (extra / "llms-full.txt").write_text(llms.full(pages), encoding="utf-8")
        for page in pages:
            (extra / page.path).parent.mkdir(parents=True, exist_ok=True)
            (extra / page.path).write_text(llms.plain(page.text), encoding="utf-8")
        options = ["-q", "-W", "--keep-going", "-E", "-j", "auto", "-b", "html"]
        return build_main([*options, "-d", str(Path(made) / "doctrees"), str(source), str(target)])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "site")))
