"""The site of docs/ (mkdocs.yml), built strictly: no broken link, every name of the API reference
readable."""

from __future__ import annotations

import html
import os
import re
import subprocess
from pathlib import Path

import pytest
from other_venv import CACHE

ROOT = Path(__file__).resolve().parents[2]
MKDOCS = CACHE / "docs" / "bin" / "mkdocs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MKDOCS.exists():
        pytest.skip("tools/setup docs installs mkdocs in the cache")
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [MKDOCS, "build", "--site-dir", target],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return target


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_options_come_with_their_types(site: Path) -> None:
    text = re.sub(r"\s+", " ", text_of(site / "api" / "loading.html"))
    for said in (
        "**options: Unpack[LoaderOptions]",
        "memory (int | str)",
        "decode (Mapping[str, Decoding] | str | None)",
        "block_bytes (int | str | None)",
        "labels: str",  # An attribute of DatasetOptions.
    ):
        assert said in text, said


def test_references_are_links(site: Path) -> None:
    page = (site / "api" / "stores.html").read_text()
    assert ":class:" not in page
    assert ":meth:" not in page
    assert re.search(r'href="#headrace.StoreOptions"[^>]*>\s*<code>StoreOptions</code>', page)


def test_lists_are_lists(site: Path) -> None:
    page = (site / "order.html").read_text()
    assert re.search(r"<ol>.*<li>.*<ul>\s*<li>(<p>)?epoch:", page, re.S)
    assert "<p>- " not in page


def test_files_beside_the_docs_are_pages(site: Path) -> None:
    for name in ("examples/index.html", "CHANGELOG.html", "include/headrace/store.h.html"):
        assert (site / "files" / name).exists(), name
    assert "files/examples/index.html" in (site / "frameworks.html").read_text()


def test_search_finds_pages_and_names(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert "api/loading.html#headrace.Loader" in index
