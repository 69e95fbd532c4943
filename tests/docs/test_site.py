"""The site's two checks can fail: the build on what leads nowhere, the browser on what is seen."""

import asyncio
import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".rig" / "docs" / "bin" / "mkdocs"
CHROMIUM = shutil.which("chromium")
GOOD = "<h1>Well</h1><p>Words, and <a href='/'>a link</a>.</p>"
BAD = {
    "wide": ("<div class='md-content'><pre>" + "x" * 900 + "</pre></div>", "it scrolls sideways"),
    "picture": ("<img src='/gone.png'>", "a picture is not there"),
    "console": ("<script>console.error('oh')</script>", "console: "),
    "thrown": ("<script>nothing.there()</script>", "console: "),
    "elsewhere": ("<script src='http://elsewhere.invalid/a.js'></script>", "asks another host"),
}


@pytest.mark.real
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_browser_sees_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    shots = importlib.import_module("site_shots")
    site, pictures = tmp_path / "site", tmp_path / "pictures"
    pictures.mkdir()
    frame = "<!doctype html><link rel='icon' href='data:,'><title>x</title>"
    view = "<meta name='viewport' content='width=device-width'>"
    for name, (body, _) in {"index": (GOOD, ""), **BAD}.items():
        place = site if name == "index" else site / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.html").write_text(frame + view + body)
    monkeypatch.setattr(shots, "SITE", site)
    assert asyncio.run(shots.main(pictures, "", CHROMIUM)) == 1
    said = capsys.readouterr().out
    for name, (_, words) in BAD.items():
        assert f"/{name}/ at phone: {words}" in said
    assert not [line for line in said.splitlines() if line.startswith("/ at ")]
    assert len([*pictures.glob("*.png")]) == 2 * (len(BAD) + 1) + 2  # home in the dark, too
    shutil.rmtree(pictures)
    for name in BAD:
        shutil.rmtree(site / name)
    pictures.mkdir()
    assert asyncio.run(shots.main(pictures, "", CHROMIUM)) == 0


@pytest.mark.real
@pytest.mark.skipif(not MKDOCS.exists(), reason="no environment of the site: `just docs`")
def test_the_build_fails_on_what_leads_nowhere(tmp_path):
    for folder in ("docs", "scripts"):
        (tmp_path / folder).mkdir()
    shutil.copytree(ROOT / "docs" / "assets", tmp_path / "docs" / "assets")
    for name in ("site_hooks.py", "make_llms.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    kept = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{kept}\nnav:\n  - Home: index.md\n")
    links = [f"[x]({one})" for one in ("gone.md", "index.md#away", "../lost.py", "missing.png")]
    for words, code in (("", 0), ("\n".join(links), 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{words}\n")
        done = subprocess.run(
            [MKDOCS, "build", "--strict"],
            cwd=tmp_path,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
    warned = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    for one in ("gone.md", "away", "lost.py", "missing.png"):
        assert any(one in line for line in warned), done.stderr
    recipes = (ROOT / "justfile").read_text()
    assert recipes.count("mkdocs build --strict") == recipes.count("mkdocs build") == 2


def test_the_site_asks_no_other_host():
    """Neither fonts nor scripts nor pictures of others, in what we write ourselves."""
    config = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in config
    for text in (config, (ROOT / "docs" / "assets" / "site.css").read_text()):
        assert "http://" not in text
        assert "https://" not in text
