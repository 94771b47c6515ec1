"""Every verb that a file can be given to, in this process: each answers, or refuses in one line."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import click

from profiles.ground.errors import RingscopeError
from profiles.verbs import check, compare, cut, gate, predict, report, timeline

# What `timeline` writes beside its terminal page.
VIEWS = ("json", "html", "perfetto", "markdown", "partial")
MAX_BYTES = str(1 << 30)


def put_through(path: Path, folder: Path, *beside: Path) -> dict[str, str]:
    """The file, with those beside it, through `timeline` with every view, `compare`, `gate`, `check` and `cut`, whose
    outputs go to `folder`, and are gone afterwards.

    What each verb said where it refused; "" where it answered. Raises whatever a verb raises but RingscopeError.
    """
    try:
        return _put_through(path, [str(path), *map(str, beside)], folder)
    finally:
        for made in folder.glob("*"):
            if made != path:
                made.unlink()


def _put_through(path: Path, names: list[str], folder: Path) -> dict[str, str]:
    written = {view: folder / f"out.{view}" for view in VIEWS}
    views = [word for view, to in written.items() for word in (f"--{view}", str(to))]
    name = str(path)
    held = ["--max", "feed_gap_share=0.5", "--write-baseline", str(folder / "base.json")]
    private = ["--strip-private", "--shrink", "-o", str(folder / "out.sqlite")]
    said = {
        "timeline": run(timeline.command, [*names, *views, "--per-step", "--max-size", MAX_BYTES, "--processes", "1"]),
        "compare": run(compare.command, [name, names[-1], "--json", str(folder / "compared.json")]),
        "gate": run(gate.command, [*names, *held]),
        "check": run(check.command, names),
        "cut": run(cut.command, [name, *private, "--max-size", MAX_BYTES]),
    }
    there = {view for view, to in written.items() if to.exists()}
    assert there == (set() if said["timeline"] else set(VIEWS)), f"{said['timeline']} and {there}"
    if not said["timeline"]:
        said["partial"] = run(timeline.command, [str(written["partial"]), "--json", str(folder / "again.json")])
        said["measures"] = run(gate.command, [str(written["json"]), "--max", "feed_gap_share=0.5"])
        assert not said["partial"] and not said["measures"], said
    return said


def read_as(path: Path) -> dict[str, str]:
    """The same of a file that is no recording: partial files and measures, which cannot be cut."""
    name = str(path)
    return {
        "timeline": run(timeline.command, [name]),
        "compare": run(compare.command, [name, name]),
        "gate": run(gate.command, [name, "--max", "feed_gap_share=0.5"]),
        "check": run(check.command, [name]),
    }


def as_baseline(measures: Path, path: Path) -> dict[str, str]:
    """The same of a baseline that measures are held against."""
    return {"gate": run(gate.command, [str(measures), "--baseline", str(path)])}


def as_history(measures: Path, path: Path, folder: Path) -> dict[str, str]:
    """The same of a history: a copy of it in `folder` gets the measures' run, and is left alone where it is refused."""
    kept = folder / "kept.jsonl"
    kept.write_bytes(path.read_bytes())
    out = ["--markdown", str(folder / "gate.md"), "--junit", str(folder / "gate.xml")]
    said = {"gate": run(gate.command, [str(measures), "--history", str(kept), *out])}
    assert (kept.read_bytes() == path.read_bytes()) == bool(said["gate"]), said
    return said


def of_run(path: Path) -> dict[str, str]:
    """The same of a run directory."""
    name = str(path)
    return {
        "report": run(report.command, [name]),
        "compare": run(compare.command, [name, name]),
        "gate": run(gate.command, [name, "--min", "efficiency=0.5", "--max", "feed_gap_share=0.5"]),
        "predict": run(predict.command, [name]),
        "timeline": run(timeline.command, [name]),
    }


def run(command: click.Command, words: list[str]) -> str:
    main: Callable[..., object] = command.main
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(words, prog_name="ringscope", standalone_mode=False)
        except RingscopeError as error:
            assert "\n" not in str(error) and "; " in str(error), f"a refusal is one line that says what to do: {error}"
            assert error.exit_code == 2
            return str(error)
        except SystemExit as end:
            assert end.code in (0, 1, 2), end.code
    assert "Warning" not in err.getvalue(), err.getvalue()
    return ""
