"""The site is built strictly, without a network; every link in it and in the repository's pages leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from scripts import site_links
from tests.recordings import ROOT

pytest.importorskip("material")

# What loads something when a page is opened. A link that a reader may follow is none.
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
NAMES_NO_FILE = {"canonical", "prev", "next"}  # of <link rel=...>
# Not the reports under docs/results: they say what a command printed at the time.
PAGES = [
    *ROOT.glob("*.md"),
    *(page for page in (ROOT / "docs").rglob("*.md") if not re.match(r"20\d\d-", page.parent.name)),
    ROOT / "tests/data/README.md",
]
# Files that a page names in backticks or in a path, such as `profiles/ledger/ownership.py`.
NAMED_FILE = re.compile(
    r"(?<![\w./-])((?:profiles|harness|ringscope|tests|benchmarks|scripts|examples|docs)/[\w./*-]+)"
)
NAMED_MODULE = re.compile(r"python3? -m ((?:benchmarks|harness|profiles|tests|ringscope)[\w.]*)")


class Parsed(HTMLParser):
    """A page's anchors, the links in it, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])
        for name, value in values.items():
            if (tag, name) in LOADS and values.get("rel") not in NAMES_NO_FILE:
                self.loaded.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)]
    # An address that answers nobody: what wanted the network would fail.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return made


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Parsed]:
    ours = [page for page in site.rglob("index.html")] + [site / "404.html"]
    return {page: Parsed(page) for page in ours}


@pytest.mark.exhaustive  # the pages' own links are looked up below
def test_every_link_of_the_site_leads_to_a_page_and_an_anchor_that_are_there(
    site: Path, parsed: dict[Path, Parsed]
) -> None:
    dead = []
    for page, content in parsed.items():
        for link in content.links | content.loaded:
            if urlsplit(link).scheme:
                continue
            target, anchor = urldefrag(unquote(link))
            file = page if not target else _file_of(site, page, target)
            if not file.is_file():
                dead.append(f"{page.relative_to(site)}: {link}: no such page")
            elif anchor and file in parsed and anchor not in parsed[file].anchors:
                dead.append(f"{page.relative_to(site)}: {link}: no such anchor")
    assert not dead, "\n".join(dead)


def _file_of(site: Path, page: Path, target: str) -> Path:
    found = (site / target.lstrip("/")) if target.startswith("/") else page.parent / target
    found = Path(os.path.normpath(found))
    return found / "index.html" if found.is_dir() else found


@pytest.mark.exhaustive
def test_opening_a_page_loads_nothing_from_elsewhere(site: Path, parsed: dict[Path, Parsed]) -> None:
    elsewhere = [(page, link) for page, one in parsed.items() for link in one.loaded if urlsplit(link).netloc]
    far = re.compile(r"(url\(|@import) *['\"]?(https?:)?//")
    sheets = [sheet for sheet in site.rglob("*.css") if far.search(sheet.read_text())]
    assert not elsewhere
    assert not sheets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_every_file_that_a_page_of_the_repository_names_is_there(page: Path) -> None:
    here = os.path.relpath(page, ROOT / "docs")
    text = page.read_text()
    missing = [target for _, target, _ in site_links.links(text, here) if not (ROOT / "docs" / target).exists()]
    named = {name.rstrip("./") for name in NAMED_FILE.findall(text)}
    missing += [name for name in named if not list(ROOT.glob(name))]
    modules = [ROOT.joinpath(*name.rstrip(".").split(".")) for name in NAMED_MODULE.findall(text)]
    missing += [str(module) for module in modules if not (module.is_dir() or module.with_suffix(".py").exists())]
    assert not missing


def test_a_link_to_a_function_leads_to_the_line_that_defines_it() -> None:
    line = site_links.line_of("profiles/ledger/ownership.py", "`parted`")
    assert line is not None
    assert (ROOT / "profiles/ledger/ownership.py").read_text().splitlines()[line - 1].startswith("def parted(")
    with pytest.raises(site_links.DeadLink, match="defines no apportioned"):
        site_links.line_of("profiles/ledger/ownership.py", "`apportioned`")


def test_every_page_and_section_that_the_code_names_is_there() -> None:
    named = re.compile(r'(docs/[\w/-]+\.md)(?:,\s+"([^"]+)")?')
    missing = []
    for top in ("harness", "profiles", "ringscope", "benchmarks", "scripts", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            for page, section in named.findall(path.read_text()):
                heading = re.compile(rf"^#+ {re.escape(section)}$", re.MULTILINE)
                if not (ROOT / page).is_file() or (section and not heading.search((ROOT / page).read_text())):
                    missing.append(f"{path.relative_to(ROOT)}: {page} {section}")
    assert not missing
