"""The GitHub Action: its schema, and its own shell step on stored measures, good and worse."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from profiles.model import measures_json as view
from tests.made.hand import gpu, measures
from tests.recordings import ROOT

MS = 1_000_000


def environment(folder: Path, **inputs: str) -> dict[str, str]:
    """What GitHub gives the step: the inputs, a summary file, and `ringscope` on the path."""
    command = folder / "bin" / "ringscope"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m profiles "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    blank = dict.fromkeys(("BASELINE", "HISTORY", "AT_MOST", "AT_LEAST"), "")
    files = {"JUNIT": "gate.xml", "MARKDOWN": "gate.md", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", **blank, **files, **inputs}


def shell_of(step: str) -> list[str]:
    """The command by which GitHub runs a step of the action."""
    steps = {step["name"]: step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]}
    return ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[step]["run"]]


def _run(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        shell_of("gate"), cwd=folder, env=environment(folder, **inputs), capture_output=True, text=True, timeout=900
    )


def test_the_action_is_valid_by_githubs_schema() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml"]
    result = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("feed_ns", "code"), [(MS // 100, 0), (2 * MS, 1)])
def test_a_worse_recording_fails_the_step_and_says_so_on_the_jobs_page(tmp_path: Path, feed_ns: int, code: int) -> None:
    stored = tmp_path / "rank 0.json"  # a path with a blank in it
    stored.write_text(view.dumps(measures([gpu(ledger={"idle_feed": feed_ns})])))
    result = _run(tmp_path, PATHS="rank 0.json", AT_MOST="feed_gap_share=0.02\nexposed_h2d_share=0.01\n")
    assert result.returncode == code, result.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert ("broken" in summary) == bool(code) and "feed_gap_share" in summary
    assert (tmp_path / "gate.xml").is_file()


def test_a_history_is_kept_and_a_slower_run_fails_the_step(tmp_path: Path) -> None:
    for step_ns, code in ((10 * MS, 0), (12 * MS, 0), (12 * MS + 1, 1)):
        (tmp_path / "a.json").write_text(view.dumps(measures([gpu(step_ns=step_ns)])))
        assert _run(tmp_path, PATHS="a.json", HISTORY="h.jsonl").returncode == code
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 3


def test_without_a_budget_the_step_fails_with_the_usage(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(view.dumps(measures([gpu()])))
    result = _run(tmp_path, PATHS="a.json")
    assert result.returncode == 2 and "nothing to check" in result.stderr
