#!/usr/bin/env python3
"""The documentation is a site without a broken link, and a broken one is noticed.

  site.py DDPSIM

Exit code 77: mkdocs or its theme is missing.
"""
import importlib.util
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLANTED = """<a id="here"></a><a href="#here">fine</a> <a href="b.html#there">fine</a>
<a href="#nowhere">1</a> <a href="b.html#nowhere">2</a> <a href="c.html">3</a> <img src="d.svg">
<a href="https://example.org/none">fine</a> <a href="file:///etc/hostname">4</a>
"""


def notices(docs):
    """What is said of a site with five broken links, and of links between pages of the tree."""
    with tempfile.TemporaryDirectory() as top:
        (Path(top) / "a.html").write_text(PLANTED)
        (Path(top) / "b.html").write_text('<h2 id="there">b</h2>')
        found = docs.broken(Path(top))
    assert len(found) == 5 and all(f.startswith("a.html") for f in found), found
    pages = {"README.md": "index.md", "docs/a/b.md": "a/b.md", "docs/c.md": "c.md"}
    for text, source, wanted in (
        ("[x](docs/a/b.md#y)", "README.md", "[x](a/b.md#y)"),
        ("[x](../../README.md)", "docs/a/b.md", "[x](../index.md)"),
        ("[x](../c.md)", "docs/a/b.md", "[x](../c.md)"),
        ("[x](../LICENSE)", "docs/c.md", "x (`LICENSE`)"),
        ("![x](../pictures/p.svg)", "docs/a/b.md", "![x](../pictures/p.svg)"),
        ("[x](https://a.b/c) [y](#z)", "docs/c.md", "[x](https://a.b/c) [y](#z)"),
    ):
        now = docs.linked(text, source, pages)
        assert now == wanted, (text, now, wanted)
    try:
        docs.linked("[x](no_such_file.md)", "docs/c.md", pages)
    except SystemExit as end:
        assert end.code == 2
    else:
        raise AssertionError("a link to a file that is not there was not noticed")


def main():
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("yaml") is None:
        print("skipped: mkdocs is missing (Debian: mkdocs, mkdocs-material)")
        return 77
    loader = SourceFileLoader("docs", str(ROOT / "tools/docs"))
    spec = importlib.util.spec_from_loader("docs", loader)
    docs = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    loader.exec_module(docs)
    notices(docs)
    with tempfile.TemporaryDirectory() as top:
        command = [str(ROOT / "tools/docs"), "--ddpsim", sys.argv[1], "--out", top]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr)
        if "material" in done.stderr and "not installed" in done.stderr:
            print("skipped: the theme is missing (Debian: mkdocs-material)")
            return 77
        site = Path(top) / "site"
        if done.returncode == 0:
            assert (site / "systems/fsdp2.html").is_file()
            assert "<svg" in (site / "pictures/systems/horovod.svg").read_text()
            assert "INDEX" not in (site / "search/without_server.js").read_text()[:2000]
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
