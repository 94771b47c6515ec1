"""A launch on hosts that do not see the sweep's disk: make the launch's directory there, and fetch the files
afterwards."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from profiles.ground.files import whole

from .. import launch
from ..launch.environment import allowed
from ..launch.hosts import Host, is_local
from .lifeline import Lifeline

SEES_IT = 3  # exit code of a host that sees the sweep's disk
# A host that sees the sweep's disk is left alone. Files of an earlier try are moved aside, so that they are not taken
# for this one's.
LAY_OUT = f"""[ -e "$1" ] && exit {SEES_IT}
[ ! -e "$2" ] || mv "$2" "$2.earlier-$(date +%s)" || exit
mkdir -p "$2" && {{ [ -z "$3" ] || printf %s "$3" >"$2/cell.json"; }}"""
FETCH = 'tar -cf - -C "$1" .'
CLEAR = 'rm -rf "$1"; rmdir "$(dirname "$1")" 2>/dev/null; true'
LAY_OUT_S, FETCH_S = 60, 900  # time limits in seconds; a rank's recording may have 300 MB


@contextlib.contextmanager
def copied(directory: Path, hosts: Sequence[Host], ssh: Sequence[str]) -> Iterator[dict[str, str]]:
    """Wrap a launch in `directory`, two levels below the run directory.

    Hosts that do not see the directory get one of their own with the cell in it. Afterwards the ranks' files are
    fetched from there, unless the launch is interrupted. Yields a dict, filled at the end: host -> why its files are
    not here. ssh: the words of the ssh command before the host's name.
    """
    lost: dict[str, str] = {}
    away: list[str] = []
    with contextlib.ExitStack() as files:
        shells = _Shells(ssh, directory, files)
        if ssh and (names := [host.name for host in hosts if not is_local(host.name)]):
            away = _lay_out(directory, names, shells)
        yield lost
        for host, answer in shells.run(FETCH, [str(directory)], away, FETCH_S).items():
            if why := _unpack(answer, directory):
                lost[host] = why
        shells.run(CLEAR, [str(directory)], [host for host in away if host not in lost], LAY_OUT_S)


def _lay_out(directory: Path, names: Sequence[str], shells: _Shells) -> list[str]:
    """Make the directory on each host that does not see this machine's; returns the names of these hosts. A host
    sees this directory if it sees a marker file, whose new name no file system's cache can hold yet."""
    sign = directory.parents[1] / f".seen-{uuid.uuid4().hex}"
    cell = directory / "cell.json"
    sign.touch()
    try:
        arguments = [str(sign), str(directory), cell.read_text() if cell.exists() else ""]
        answers = shells.run(LAY_OUT, arguments, names, LAY_OUT_S)
    finally:
        sign.unlink()
    # A host that gives no answer here may still answer the launcher, whose output is then judged.
    return [host for host, answer in answers.items() if answer.code == 0]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a script on a host: its exit code, its output, and the last line of stderr."""

    code: int
    output: IO[bytes]
    said: str


@dataclass(frozen=True, slots=True)
class _Shells:
    """Runs scripts on other hosts. files: keeps the scripts' outputs open, as unnamed files on the disk of
    `directory`."""

    ssh: Sequence[str]
    directory: Path
    files: contextlib.ExitStack

    def run(self, script: str, arguments: Sequence[str], names: Sequence[str], limit_s: float) -> dict[str, _Answer]:
        """Run a script on all named hosts at once. No ssh process outlives this process."""
        with Lifeline(lines=len(names)) as lifeline:
            started = {name: self._start(name, script, arguments, lifeline) for name in names}
            deadline = time.monotonic() + limit_s
            for process, _, errors in started.values():
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    errors.write(f"\nno end within {limit_s:g} s".encode())
        return {name: _answer(*parts) for name, parts in started.items()}

    def _start(
        self, name: str, script: str, arguments: Sequence[str], lifeline: Lifeline
    ) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
        output, errors = (tempfile.TemporaryFile(dir=self.directory) for _ in range(2))  # noqa: SIM115 (closed by `files`)
        self.files.enter_context(output)
        self.files.enter_context(errors)
        argv = [*self.ssh, name, shlex.join(["sh", "-c", script, "sh", *arguments])]
        kept = launch.keeper(argv, lifeline=lifeline.address)
        env = allowed(os.environ)
        process = subprocess.Popen(kept, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        return process, output, errors


def _answer(process: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes]) -> _Answer:
    """Wait for the ssh process and read its output. The lifeline must be closed before, because that ends the ssh
    process."""
    code = process.wait()
    output.seek(0)
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip().splitlines()
    return _Answer(code, output, said[-1] if said else f"exit code {code}")


def _unpack(answer: _Answer, directory: Path) -> str | None:
    """Unpack the files that are not here yet, each completely or not at all. Returns the reason if that fails, else
    None."""
    if answer.code:
        return answer.said
    try:
        with tarfile.open(fileobj=answer.output, mode="r|") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                strange = name.is_absolute() or ".." in name.parts or not member.isfile()
                if not strange and not (directory / name).exists() and (content := archive.extractfile(member)):
                    _write(directory / name, content)
    except (tarfile.TarError, EOFError) as error:
        return f"the host sent no archive ({error}); does a login shell there print a greeting?"
    except OSError as error:
        return f"cannot be written here: {error.strerror}"
    return None


def _write(path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as beside, beside.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
