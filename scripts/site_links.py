"""A hook of mkdocs (mkdocs.yml): links from docs/ to other files of the repository lead to pages of the site.

A link such as [`parted`](../../profiles/ledger/ownership.py) works in the repository. On the site it leads to a page
that shows the file, at the line that defines the function, class or constant of that name. CONTRIBUTING.md and
CHANGELOG.md become pages of their own.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OWN_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# A link, or else a piece of code, in which nothing is a link.
_LINK = r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)"
_CODE = r"^ *(?P<fence>```+|~~~+).*?^ *(?P=fence) *$|`[^`\n]+`"
LINK_OR_CODE = re.compile(f"{_LINK}|{_CODE}", re.MULTILINE | re.DOTALL)


class DeadLink(ValueError):
    """A page links to something that is not there."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file outside of docs/ that a page links to, and those of OWN_PAGES."""
    from mkdocs.structure.files import File

    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, page in OWN_PAGES.items():
        if (ROOT / path).exists():
            pages[page] = (ROOT / path).read_text()
            files.append(File.generated(config, page, content=pages[page]))
    outside = {target for page, text in pages.items() for _, target, _ in links(text, page) if is_outside(target)}
    for target in sorted(outside):
        path = target.removeprefix("../")
        if path not in OWN_PAGES:
            files.append(File.generated(config, source_page(path), content=shown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links that leave docs/."""
    from mkdocs.utils import get_relative_url

    here = page.file.src_uri

    def rewritten(match: re.Match[str]) -> str:
        target = resolved(match["target"], here) if match["target"] else None
        if target is None:
            return match[0]
        path = target.removeprefix("../")
        if not is_outside(target) or path in OWN_PAGES:
            return f"[{match['text']}]({relative(OWN_PAGES.get(path, target), here)}{match['anchor'] or ''})"
        file = files.get_file_from_path(source_page(path))
        if file is None:
            raise DeadLink(f"{here}: {target} has no page")
        line = line_of(path, match["text"])
        url = get_relative_url(file.url, page.url) + (f"#__codelineno-0-{line}" if line else "")
        text = re.sub(r"`([^`]+)`", lambda code: f"<code>{escape(code[1])}</code>", match["text"])
        return f'<a href="{url}">{text}</a>'

    return LINK_OR_CODE.sub(rewritten, markdown)


def links(text: str, page: str) -> Iterator[tuple[str, str, str]]:
    """(text, target from docs/, anchor) of each relative link of a page; `page` is its path from docs/."""
    for match in LINK_OR_CODE.finditer(text):
        target = resolved(match["target"], page) if match["target"] else None
        if target is not None:
            yield match["text"], target, (match["anchor"] or "").removeprefix("#")


def resolved(target: str, page: str) -> str | None:
    """The target's path from docs/, `../...` where it lies outside; None for an address."""
    if re.match(r"[a-z]+:", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin(page)), target))
    return path.removeprefix("../docs/")


def origin(page: str) -> str:
    """Where the text of a page of the site lies, from docs/."""
    made = {made: path for path, made in OWN_PAGES.items()}
    if page in made:
        return "../" + made[page]
    return "../" + page.removeprefix("source/") if page.startswith("source/") else page


def is_outside(target: str) -> bool:
    return target.startswith("../")


def relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def source_page(path: str) -> str:
    """Where the site shows a file of the repository, given by its path from the root."""
    return f"source/{path}.md" if not path.endswith(".md") else f"source/{path}"


def shown(path: str) -> str:
    """The page that shows a file: Markdown as it is, all else as code with numbered lines."""
    file = ROOT / path
    if not file.is_file():
        raise DeadLink(f"a page links to {path}: there is no such file")
    head = f"---\ntitle: {path}\nhide: [toc]\nsearch:\n  exclude: true\n---\n\n"
    if path.endswith(".md"):
        return head + file.read_text()
    language = {".py": "python", ".sh": "bash", ".yml": "yaml", ".cfg": "ini", ".toml": "toml"}.get(file.suffix, "text")
    return f'{head}# {path}\n\n~~~~~~~~ {{.{language} linenums="1"}}\n{file.read_text().rstrip()}\n~~~~~~~~\n'


def line_of(path: str, text: str) -> int | None:
    """The line that defines what `text` names in a Python file: `parted`, `profiles.read` or `f(x)` in backticks."""
    named = re.fullmatch(r"`(?:[\w.]+\.)?(\w+)(?:\(.*\))?`", text)
    if not path.endswith(".py") or not named or named[1] == "py":
        return None
    defined = definitions(path)
    if named[1] not in defined:
        raise DeadLink(f"{path} defines no {named[1]}")
    return defined[named[1]]


@cache
def definitions(path: str) -> dict[str, int]:
    """Functions, classes and constants of a module, methods included, with the line of each."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, node.lineno)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update({name.id: node.lineno for name in targets if isinstance(name, ast.Name)} | found)
    return found
