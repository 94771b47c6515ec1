"""What people expect beside the code: hooks that run the project's own tools, a changelog, issue forms."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from profiles.ground.version import VERSION
from tests.recordings import ROOT

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
HOOKS = ROOT / ".pre-commit-config.yaml"
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}  # of Keep a Changelog 1.1.0


def test_the_hooks_run_what_make_lint_runs() -> None:
    dry = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, check=True)
    lint = [line for line in dry.stdout.splitlines() if "environment.py" not in line and not line.startswith("make")]
    (repository,) = yaml.safe_load(HOOKS.read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == lint
    assert len(lint) >= 3


def test_a_badly_formatted_file_is_not_committed(tmp_path: Path) -> None:
    pytest.importorskip("pre_commit")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / HOOKS.name).write_text(HOOKS.read_text())
    (tmp_path / "made.py").write_text("made = {  'badly':1 }\n")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache"), "SKIP": "types,words"}
    environment |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment |= {"GIT_CONFIG_GLOBAL": str(tmp_path / "none")}

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )

    git("init", "-q")
    install = [sys.executable, "-m", "pre_commit", "install"]
    done = subprocess.run(install, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    git("add", "made.py", HOOKS.name)
    refused = git("commit", "-m", "badly")
    assert refused.returncode != 0 and "1 file would be reformatted" in refused.stderr
    (tmp_path / "made.py").write_text('made = {"well": 1}\n')
    git("add", "made.py")
    taken = git("commit", "-m", "well")
    assert taken.returncode == 0, taken.stderr


def test_the_changelog_is_one_that_tools_can_read() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.*)$", text, re.M)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", release) for release in releases[1:])
    assert set(re.findall(r"^### (.*)$", text, re.M)) <= KINDS
    links = re.findall(r"^\[(.+)\]: https://", text, re.M)
    assert links == [re.match(r"\[(.*?)\]", release)[1] for release in releases]  # type: ignore[index]


def test_the_version_is_written_in_one_file() -> None:
    said = subprocess.run(["git", "ls-files", "*.py", "*.cfg", "*.toml"], cwd=ROOT, capture_output=True, text=True)
    tracked = [ROOT / name for name in said.stdout.split()]
    naming = [
        path for path in tracked if re.search(rf"version\w* *= *.?{re.escape(VERSION)}\b", path.read_text(), re.I)
    ]
    assert naming == [ROOT / "profiles" / "ground" / "version.py"]


@pytest.mark.parametrize("file", [*FORMS, *WORKFLOWS], ids=lambda path: path.name)
def test_a_form_or_a_workflow_is_valid_by_githubs_schema(file: Path) -> None:
    pytest.importorskip("check_jsonschema")
    of = {WORKFLOWS[0].parent: "workflows", FORMS[0].parent: "issue-forms"}[file.parent]
    schema = f"vendor.github-{'issue-config' if file.name == 'config.yml' else of}"
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run(check, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_bug_report_asks_for_what_the_doctor_says_in_json() -> None:
    (form,) = (yaml.safe_load(path.read_text()) for path in FORMS if path.name == "bug.yml")
    (asked,) = (field for field in form["body"] if field["id"] == "doctor")
    assert "`ringscope doctor --json -`" in asked["attributes"]["description"]
    assert asked["validations"]["required"] is True
