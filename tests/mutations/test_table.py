"""The mutations fit the tree, and the program changes none but its copy."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import __main__ as program
from tests.mutations.table import ALL, Mutation
from tests.mutations.tree import Tree, misplaced
from tests.recordings import ROOT


@pytest.mark.parametrize("mutation", ALL, ids=lambda one: one.name)
def test_a_mutation_changes_one_place_that_is_there_to_what_is_python(mutation: Mutation) -> None:
    assert misplaced(mutation, ROOT) is None
    text = (ROOT / mutation.file).read_text()
    changed = text.replace(mutation.old, mutation.new)
    assert changed != text
    compile(changed, mutation.file, "exec")
    assert all((ROOT / test.split("::")[0]).exists() for test in mutation.tests)


def test_there_are_sixty_of_nine_subjects_and_no_two_of_one_name() -> None:
    assert len({one.name for one in ALL}) == len(ALL) == 60
    of = Counter(one.name.split("-")[0] for one in ALL)
    assert len(of) == 9 and min(of.values()) >= 6, of


@pytest.mark.parametrize("old", ["no such text", "import"])  # none of it, and several
def test_a_mutation_without_its_one_place_is_refused_in_one_line(
    old: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "ALL", [replace(ALL[0], name="gone", old=old)])
    assert program.main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gone: ") and said.count("\n") == 1


def test_the_copy_says_something_else_while_it_lasts_and_the_tree_never(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    subprocess.run(["git", "init", "-q", tree], check=True)
    (tree / ".gitignore").write_text("built\n")
    for name in ("a.py", "built"):
        (tree / name).write_text("x = 1\n")
    copy = Tree(tree, tmp_path / "below")
    one = Mutation("a", "a.py", "x = 1", "x = 2", ())
    with copy.mutated(one):
        assert (copy.root / "a.py").read_text() == "x = 2\n" and (tree / "a.py").read_text() == "x = 1\n"
        changed = (copy.root / "a.py").stat().st_mtime
    assert (copy.root / "a.py").read_text() == "x = 1\n"
    assert (copy.root / "a.py").stat().st_mtime > changed  # or Python would take what it compiled of the other text
    assert not (copy.root / "built").exists()
    assert misplaced(replace(one, file="b.py"), tree) and not misplaced(one, tree)
