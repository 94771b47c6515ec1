"""Launchers as pure functions: what is executed, and what of the environment reaches a rank."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import synchronize
from pathlib import Path
from typing import Any

import pytest

from harness import launch
from harness.jobs import bench, sweep
from harness.jobs.options import Launch
from harness.launch import hosts, mpirun, slurm, ssh
from harness.launch.environment import allowed
from harness.launch.hosts import Host
from harness.machine import describe
from profiles.ground import threads
from profiles.ground.errors import RingscopeError
from tests.harness.running import DRIVE, ROOT

RANK = ["python", "train.py"]


def after(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def rank_part(argv: list[str]) -> list[str]:
    return argv[argv.index("--", argv.index("harness.processes.keeper")) + 1 :]


def test_horovodrun_starts_every_rank_here_when_no_host_is_named() -> None:
    job = launch.command(RANK, ranks=2, launcher="horovodrun", environ={})
    assert "--gloo" in job.argv
    assert (after(job.argv, "-np"), after(job.argv, "-H")) == ("2", "localhost:2")
    assert rank_part(job.argv) == RANK


def test_horovodrun_without_shared_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(synchronize.SemLock, "__init__", none)
    with pytest.raises(RingscopeError, match="/dev/shm"):
        launch.command(RANK, ranks=2, launcher="horovodrun", environ={})


@pytest.mark.parametrize(
    ("installed", "words"), [(True, [sys.executable, "-m", "harness.launch.gloo"]), (False, ["horovodrun"])]
)
def test_horovodrun_of_another_python_is_the_paths(
    installed: bool, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed or None)
    argv = launch.command(RANK, ranks=2, launcher="horovodrun", environ={}, hosts=[Host("elsewhere", 2)]).argv
    assert argv[: argv.index("--gloo")] == words


def test_hosts_are_filled_in_order_and_no_further_host_is_touched() -> None:
    named = hosts.parse("a:4,b:4,c:4")
    job = launch.command(RANK, ranks=6, launcher="horovodrun", environ={}, hosts=named)
    assert after(job.argv, "-H") == "a:4,b:2"


def test_too_few_slots_is_said_with_both_numbers() -> None:
    with pytest.raises(RingscopeError, match="8 ranks, but the hosts have 6 slots"):
        launch.command(RANK, ranks=8, launcher="mpirun", environ={}, hosts=hosts.parse("a:4,b:2"))


def test_mpirun_names_each_variable_but_slurms_own() -> None:
    job = launch.command(RANK, ranks=2, launcher="slurm", environ={"HOME": "/h", "SLURM_JOB_ID": "7", "SLURM_JWT": "x"})
    passed = {job.argv[i + 1] for i, part in enumerate(job.argv) if part == "-x"}
    assert "HOME" in passed and "SLURM_JOB_ID" not in passed
    assert job.env["SLURM_JOB_ID"] == "7" and "SLURM_JWT" not in job.env
    assert passed == {name for name in job.env if not name.startswith("SLURM_")}


def words_of(major: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of an mpirun of this version, between its name and the first variable."""
    monkeypatch.setattr(mpirun, "installed_major", lambda: major)
    options: dict[str, Any] = {"ranks": 2, "hosts": hosts.parse("a:1,b:1"), "env": {"HOME": "/h"}}
    argv = mpirun.argv(RANK, **options, launcher_args=["--tag-output"])
    assert argv[-5:] == ["-x", "HOME", "--tag-output", *RANK]
    return argv[:-5]


def test_open_mpi_5_takes_its_daemons_options_as_prrtes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert words_of(5, monkeypatch) == [
        *("mpirun", "-np", "2", "-H", "a:1,b:1", "--map-by", "slot", "--bind-to", "none"),
        *("--prtemca", "plm_ssh_args", ssh.OPTIONS),
        *("--prtemca", "oob_tcp_keepalive_time", "15", "--prtemca", "oob_tcp_keepalive_intvl", "5"),
        *("--prtemca", "oob_tcp_keepalive_probes", "4"),
    ]


def test_open_mpi_4_takes_them_as_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert words_of(4, monkeypatch) == [
        *("mpirun", "-np", "2", "-H", "a:1,b:1", "--map-by", "slot", "--bind-to", "none"),
        *("--mca", "plm_rsh_args", ssh.OPTIONS),
        *("--mca", "oob_tcp_keepalive_time", "15", "--mca", "oob_tcp_keepalive_intvl", "5"),
        *("--mca", "oob_tcp_keepalive_probes", "4", "--mca", "orte_keep_fqdn_hostnames", "1"),
    ]


@pytest.mark.parametrize(("more", "yields"), [(0, False), (1, True)])
def test_ranks_that_outnumber_the_cores_give_theirs_up_while_they_wait(more: int, yields: bool) -> None:
    job = launch.command(RANK, ranks=threads.usable_cpus() + more, launcher="mpirun", environ={})
    assert (("mpi_yield_when_idle", "1") in itertools.pairwise(job.argv)) is yields
    hosts_ = [Host("a", 1), Host("b", threads.usable_cpus() + more)]
    job = launch.command(RANK, ranks=threads.usable_cpus() + more + 1, launcher="mpirun", environ={}, hosts=hosts_)
    assert ("mpi_yield_when_idle" in job.argv) is yields


@pytest.mark.skipif(describe.which("mpirun") is None, reason="no mpirun: pip install '.[train-cpu]'")
def test_the_installed_mpirun_is_told_so(tmp_path: Path) -> None:
    rank = [sys.executable, "-c", "import os; print(os.environ['OMPI_MCA_mpi_yield_when_idle'])"]
    ranks = threads.usable_cpus() + 1
    if ranks > 9:
        pytest.skip(f"{ranks} processes for a look at a variable")
    job = launch.command(rank, ranks=ranks, launcher="mpirun", environ=os.environ)
    done = subprocess.run(job.argv, env=job.env, capture_output=True, text=True, timeout=900)
    assert done.stdout.split() == ["1"] * ranks, done.stderr


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ("mpirun (Open MPI) 4.1.6", 4),
        ("mpirun (Open MPI) 4.0.5rc1", 4),
        ("mpirun (Open MPI) 5.0.11", 5),
        ("mpirun (Open MPI) 10.0.1", 10),
    ],
)
def test_an_open_mpi_is_known_by_what_its_mpirun_says(said: str, major: int) -> None:
    assert mpirun.major(said) == major


@pytest.mark.parametrize(
    "said",
    ["HYDRA build details:", "Intel(R) MPI Library for Linux* OS, Version 2021.11", None, "mpirun (Open MPI) 3.1.3"],
)
def test_an_mpirun_that_cannot_be_used_is_said_with_a_way_out(said: str | None) -> None:
    with pytest.raises(RingscopeError, match="--launcher horovodrun"):
        mpirun.major(said)


def test_a_sweep_asks_for_the_installed_mpirun_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "mpi_version", lambda: "HYDRA build details:")
    with pytest.raises(RingscopeError, match="'HYDRA build details:'"):
        sweep.check_launcher(sweep.How(launcher="mpirun"))


@pytest.mark.parametrize(
    ("ranks", "given", "launcher"),
    [
        (1, {"out", "steps"}, "single"),
        (2, {"out"}, "horovodrun"),
        (1, {"launcher"}, "horovodrun"),
        (1, {"hosts"}, "horovodrun"),
    ],
)
def test_one_rank_of_a_command_needs_no_launcher(
    ranks: int, given: set[str], launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = sweep.of_command(sweep.How(launcher="horovodrun"), ranks, given)
    assert how.launcher == launcher
    monkeypatch.setattr(sweep.shutil, "which", lambda program: None)  # as where PyTorch alone is installed
    if launcher == "single":
        sweep.check_launcher(how)
    else:
        with pytest.raises(RingscopeError, match="horovodrun is not installed; .*`ringscope record -- torchrun"):
            sweep.check_launcher(how)


@pytest.mark.skipif(describe.which("mpirun") is None, reason="no mpirun: pip install '.[train-cpu]'")
def test_the_installed_mpirun_takes_these_words() -> None:
    rank = [sys.executable, "-c", "import os; print(os.environ['RINGSCOPE_RANK'], os.environ['RINGSCOPE_SIZE'])"]
    job = launch.command(rank, ranks=2, launcher="mpirun", environ=os.environ)
    done = subprocess.run(job.argv, env=job.env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2", "1 2"]
    assert "deprecated" not in done.stderr.lower()


@pytest.mark.parametrize(
    ("launcher", "given", "told"),
    [
        ("horovodrun", "", []),
        ("horovodrun", "--ssh-port 2222 --ssh-identity-file=/k --verbose", ["-p", "2222", "-i", "/k"]),
        ("horovodrun", "-p 22 -i k", ["-p", "22", "-i", "k"]),
        ("mpirun", "--prtemca plm_ssh_args '-p 2222 -l me' --tag-output", ["-p", "2222", "-l", "me"]),
        ("mpirun", "--mca plm_rsh_args '-p 2222'", ["-p", "2222"]),
        ("mpirun", "-p 2222", []),
    ],
)
def test_other_hosts_are_reached_as_the_launcher_reaches_them(launcher: str, given: str, told: list[str]) -> None:
    plain = ["ssh", *ssh.OPTIONS.split(), *ssh.KEEP_ALIVE.split()]
    assert ssh.words(launcher, shlex.split(given)) == [*plain, *told]


def test_slurm_and_a_single_process_go_by_no_ssh() -> None:
    assert ssh.words("slurm", []) == ssh.words("single", []) == []


def test_a_single_process_has_no_launcher() -> None:
    job = launch.command(RANK, ranks=1, launcher="single", environ={})
    assert job.argv[:3] == [sys.executable, "-m", "harness.processes.keeper"]


def test_a_profiler_stands_between_the_keeper_and_the_rank() -> None:
    prefix = ["nsys", "profile", "-o", "out.%q{RINGSCOPE_RANK}"]
    job = launch.command(RANK, ranks=1, launcher="single", environ={}, prefix=prefix)
    assert rank_part(job.argv) == [*prefix, *RANK]


def test_an_unknown_launcher_names_those_there_are() -> None:
    with pytest.raises(RingscopeError, match="horovodrun, mpirun, slurm, srun, single"):
        launch.command(RANK, ranks=1, launcher="pdsh", environ={})


def test_no_secret_and_no_stranger_reaches_a_rank() -> None:
    environ = {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "HOROVOD_FUSION_THRESHOLD": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "AWS_SECRET_ACCESS_KEY": "x",
        "SLURM_JWT": "x",
        "SLURM_JOB_ID": "x",
        "CUDA_AUTH": "x",
        "HOROVOD_AUTH_KEY": "x",
        "NCCL_PASS": "x",
        "OMPI_MCA_jwt": "x",
        "NVIDIA_API_KEY": "x",
        "CONDA_TOKEN": "x",
        "GITHUB_TOKEN": "x",
        "TF_API_KEY": "x",
        "TF_VAR_database": "x",
        "SOMETHING_ELSE": "x",
    }
    env = allowed(environ)
    passed = {"PATH", "NCCL_DEBUG", "HOROVOD_FUSION_THRESHOLD", "CUDA_VISIBLE_DEVICES", "SSH_AUTH_SOCK"}
    assert passed <= env.keys()
    assert "x" not in env.values()
    assert allowed(environ, ["SOMETHING_ELSE"])["SOMETHING_ELSE"] == "x"


@pytest.mark.parametrize(("where", "here"), [((), True), (("localhost",), True), (("localhost", "elsewhere"), False)])
def test_ranks_on_this_host_get_all_variables_but_those_of_a_launcher_around(where: Sequence[str], here: bool) -> None:
    mine = {"DATA": "/x", "WANDB_API_KEY": "k", "SLURM_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "RANK_OF_LORA": "8"}
    around = {
        *("SLURM_PROCID", "SLURM_JOBID", "SLURM_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_JOB_NODELIST"),
        *("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_RANK", "OMPI_UNIVERSE_SIZE"),
        *("HOROVOD_RANK", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "RINGSCOPE_RANK", "TORCHELASTIC_RUN_ID"),
    }
    environ = mine | dict.fromkeys(around, "1")
    named = [Host(name, 2) for name in where]
    for launcher in ("horovodrun", "mpirun"):
        env = launch.command(RANK, ranks=2 * max(1, len(where)), launcher=launcher, environ=environ, hosts=named).env
        assert mine.keys() & env.keys() == (mine.keys() if here else set())
        assert not env.keys() & around


@pytest.mark.parametrize("launcher", ["single", "mpirun", "horovodrun"])
def test_a_scripts_own_variable_reaches_the_rank_and_no_command_line(launcher: str) -> None:
    if launcher == "mpirun" and describe.which("mpirun") is None:
        pytest.skip("no mpirun: pip install '.[train-cpu]'")
    if launcher == "horovodrun":
        pytest.importorskip("horovod")
    shown = "any('ses' + 'ame' in str(one.info) for one in psutil.process_iter(['cmdline']))"
    rank = [sys.executable, "-c", f"import os, psutil; print(':', len(os.environ['MY_DATA']), {shown})"]
    environ = {**os.environ, "MY_DATA": "open " + "sesame" * 20_000}  # no single word of a command may be as long
    job = launch.command(rank, ranks=1, launcher=launcher, environ=environ)
    done = subprocess.run(job.argv, env=job.env, capture_output=True, text=True, timeout=900)
    assert done.stdout.split()[-2:] == ["120005", "False"], done.stdout + done.stderr


@pytest.mark.parametrize("path", [None, "", ":/bin", "/bin::/usr/bin:"])
def test_the_current_directory_is_no_place_for_programs(path: str | None) -> None:
    folders = allowed({} if path is None else {"PATH": path})["PATH"].split(":")
    assert "" not in folders and "/bin" in folders and folders[0] == str(Path(sys.executable).parent)


@pytest.mark.skipif(not shutil.which("mpirun", path=str(Path(sys.executable).parent)), reason="no mpirun here")
def test_open_mpi_starts_ranks_where_the_environment_is_empty(tmp_path: Path) -> None:
    """It starts nothing without HOME."""
    words = shlex.split("ok --models mlp --ranks 2 --steps 5 --launches 1 --no-explain --launcher mpirun --out")
    argv = [sys.executable, str(DRIVE), *words, str(tmp_path / "out")]
    done = subprocess.run(argv, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert allowed({"HOME": "/else"})["HOME"] == "/else"


def test_a_launch_under_a_launcher_does_not_inherit_its_rank() -> None:
    env = allowed(
        {"HOROVOD_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "HOROVOD_GLOO_IFACE": "lo", "HOROVOD_LOG_LEVEL": "info"}
    )
    assert "HOROVOD_LOG_LEVEL" in env
    assert not {"HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "HOROVOD_GLOO_IFACE"} & env.keys()


def test_ranks_find_this_package() -> None:
    root = str(Path(launch.__file__).parents[2])
    assert root in allowed({"PYTHONPATH": "/mine"})["PYTHONPATH"].split(":")
    assert "/mine" in allowed({"PYTHONPATH": "/mine"})["PYTHONPATH"].split(":")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:4,b:2", (Host("a", 4), Host("b", 2))),
        ("a", (Host("a", 1),)),
        (" a:1 , 10.0.0.2:8 ", (Host("a", 1), Host("10.0.0.2", 8))),
    ],
)
def test_hosts_are_read_from_the_command_line(text: str, expected: tuple[Host, ...]) -> None:
    assert hosts.parse(text) == expected


@pytest.mark.parametrize("text", ["a:x", "a:0", "-oProxyCommand=sh:1", "a b:1", ":4"])
def test_a_host_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RingscopeError, match="hosts:"):
        hosts.parse(text)


def test_a_host_file_may_be_open_mpis_or_horovods(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\na slots=4 max_slots=8\nb:2  # with a word\n\nc\n")
    assert hosts.read(path) == (Host("a", 4), Host("b", 2), Host("c", 1))


def test_a_host_file_of_windows_powershell_is_read_and_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes("a slots=4\r\nb:2\r\n".encode("utf-16"))
    assert hosts.read(path) == (Host("a", 4), Host("b", 2))
    path.write_bytes(b"n\xf6de\n")
    with pytest.raises(RingscopeError, match="its text is not UTF-8; name a file with one host per line"):
        hosts.read(path)


def test_a_missing_host_file_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(RingscopeError, match="node1 slots=4"):
        hosts.read(tmp_path / "nowhere")


def test_slurms_tasks_per_node_are_unfolded() -> None:
    assert slurm.slots({"SLURM_TASKS_PER_NODE": "4(x2),3"}) == [4, 4, 3]


def test_slurms_arguments_are_not_mpiruns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    options = Launch(launcher="slurm", launcher_args="--partition=gpu")
    assert bench.how_to_launch(options).launcher_args == ("--partition=gpu",)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "hosts", lambda environ: (Host("n1", 4),))
    inside = bench.how_to_launch(options)
    assert (inside.launcher_args, inside.hosts) == ((), (Host("n1", 4),))
    named = bench.how_to_launch(replace(options, launcher_args="--tag-output", given=frozenset({"launcher_args"})))
    assert named.launcher_args == ("--tag-output",)
