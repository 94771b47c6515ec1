"""Launchers of the user's own: each rank that they start is recorded by itself, and nothing else is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.jobs import command_ranks, measuring
from harness.jobs import record as jobs_record
from harness.launch import users_launcher
from harness.launch.profilers import Profiler, Span
from harness.machine import describe, ranks
from harness.verbs import record
from profiles.ground.errors import RingscopeError
from profiles.model import marks
from profiles.readers import read
from tests.harness.running import LAUNCHERS, environment

# It stands for nsys: what it was told, and then the command.
NSYS = r"""#!/bin/sh
words=$*
while [ "$1" != -o ]; do shift; done; echo "$words" >>"${2%\%q*}$RINGSCOPE_RANK.words"; shift 2
exec "$@"
"""
# The same, whose recordings hold nothing and whose second rank leaves none.
ENDS = r"""#!/bin/sh
if [ "$1" = export ]; then while [ "$1" != --output ]; do shift; done; exec touch "$2"; fi
while [ "$1" != -o ]; do shift; done; stem=${2%\%q*}$RINGSCOPE_RANK; shift 2
[ "$NONE" ] || echo recorded >"$stem.nsys-rep"
[ "$HALF" ] && echo events >"$stem.qdstrm"
exec "$@"
"""
RANK = """
import json, os, subprocess, sys
below = "import os, sys; print('RINGSCOPE_OWN' in os.environ or any('hook' in one for one in sys.path))"
child = subprocess.run([sys.executable, "-c", below], capture_output=True, text=True).stdout.strip()
told = {name: os.environ.get(name) for name in ("RINGSCOPE_RANK", "RINGSCOPE_SIZE", "RINGSCOPE_RECORDED", "DATA")}
told |= {"argv": sys.argv, "child": child, "unbuffered": sys.flags.dont_write_bytecode}
os.write(1, f"{json.dumps(told)}\\n".encode())  # print may write the end of the line apart, behind another rank's line
"""
# As deepspeed's launcher and torchrun tell their ranks, with a Python beside them that is none.
BY_TORCH = """
python -c 'print("no rank")'
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 python -B rank.py one "two words" & done; wait
"""
ONE_OF_FOUR = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
WORDS = ("python", "-B", "rank.py", "one", "two words")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *(("mpirun", "all"), ("torch", "all"), ("torch", "1")),
        pytest.param("gloo", "1", marks=pytest.mark.ci),  # a plain horovodrun imports TensorFlow
    ],
)
def test_each_rank_becomes_its_recorded_form_and_what_it_starts_does_not(
    tmp_path: Path, name: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "mpirun" and describe.which("mpirun") is None:
        pytest.skip("no mpirun: pip install '.[train-cpu]'")
    if name == "gloo":
        pytest.importorskip("horovod")
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "nsys").write_text(NSYS)
    (tmp_path / "nsys").chmod(0o755)
    # Those of a launcher around are not those of the ranks.
    around = {"SLURM_PROCID": "0", "PMI_RANK": "5", "DATA": "/x"}
    profiler, folder = Profiler("nsys", str(tmp_path / "nsys")), tmp_path / "out"
    folder.mkdir()
    env = users_launcher.environment({**environment(), **around}, profiler, folder, Span(5, 1), asked)
    argv = ["sh", "-c", BY_TORCH] if name == "torch" else [*LAUNCHERS[name], *WORDS]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in re.findall(r"\{.*\}", done.stdout)]
    recorded = {"all": {"0", "1"}, "1": {"1"}}[asked]
    assert {one["RINGSCOPE_RANK"] for one in told} == {"0", "1"}
    for one in told:
        assert one["argv"] == ["rank.py", "one", "two words"] and one["unbuffered"] == 1 and one["child"] == "False"
        assert (one["RINGSCOPE_SIZE"], one["DATA"]) == ("2", "/x")
        assert (one["RINGSCOPE_RECORDED"] == "0") == (one["RINGSCOPE_RANK"] not in recorded)
    words = {path.stem.removeprefix("rank"): path.read_text() for path in folder.glob("*.words")}
    assert words.keys() == recorded
    assert all(text.count("profile") == 1 and "--delay=5" in text for text in words.values())
    assert users_launcher.count(folder, "mpirun") == len(recorded)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc_per_node 2 train.py", "torchrun"),
        ("/opt/env/bin/torchrun train.py", "torchrun"),
        ("python -u -m torch.distributed.run train.py", "torch.distributed.run"),
        ("python -m torch.distributed.launch train.py", "torch.distributed.launch"),
        ("python /opt/env/bin/accelerate launch train.py", "accelerate"),
        ("accelerate launch train.py", "accelerate"),
        ("python -m accelerate.commands.launch train.py", "accelerate.commands.launch"),
        ("deepspeed --num_gpus 2 train.py", "deepspeed"),
        ("env A=1 uv run torchrun train.py", "torchrun"),
        ("srun -N 2 python train.py", "srun"),
        ("timeout 60 mpiexec -n 2 python train.py", "mpiexec"),
        ("horovodrun -np 2 python train.py", "horovodrun"),
        ("bash -x run.sh", "torchrun"),
        ("./run.sh", "torchrun"),
        ("bash module.sh", "torch.distributed.run"),
        ("bash plain.sh", None),
        ("python train.py --launcher torchrun", None),
        ("uv run python train.py --with srun", None),
        ("python -W ignore -X dev train.py", None),
        ("python -m train", None),
        ("./a.out 2", None),
    ],
)
def test_a_launcher_is_known_wherever_the_command_has_it(
    tmp_path: Path, command: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text("#!/bin/bash\nset -e\nexport A=1\nexec $HOME/env/bin/torchrun \\\n  train.py\n")
    (tmp_path / "module.sh").write_text("python -m torch.distributed.run train.py\n")
    (tmp_path / "plain.sh").write_text("#!/bin/sh\n# not by torchrun any more\npython train.py mpirun.log\n")
    (tmp_path / "a.out").write_bytes(b"\x7fELF mpirun ")
    assert users_launcher.launcher(command.split()) == name


@pytest.mark.parametrize(
    ("told", "rank", "local", "size"),
    [
        ({**ONE_OF_FOUR, "SLURM_PROCID": "0"}, 3, 1, 4),
        # One torchrun a host, started by mpirun, whose tasks are the hosts.
        ({**ONE_OF_FOUR, "TORCHELASTIC_RUN_ID": "x", "OMPI_COMM_WORLD_RANK": "1"}, 3, 1, 4),
        ({"RANK": "8", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 0, 2),  # a RANK of the script's
        ({"RANK": "8"}, 0, 0, 1),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8"}, 5, 1, 8),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, 1, 1, 2),
        ({"PMIX_RANK": "2"}, 2, 0, 1),
    ],
)
def test_a_rank_is_told_by_the_variables_of_its_launcher(
    told: dict[str, str], rank: int, local: int, size: int
) -> None:
    assert (ranks.rank(told), ranks.local_rank(told), ranks.size(told)) == (rank, local, size)
    assert ranks.is_told(told) == (told != {"RANK": "8"})


@pytest.mark.parametrize("option", [["--hosts", "a:2"], ["--launcher", "mpirun"], ["--env", "DATA"]])
def test_options_that_are_the_launchers_are_refused(tmp_path: Path, option: list[str]) -> None:
    words = ["--out", str(tmp_path / "out"), *option, "--", "torchrun", "train.py"]
    with pytest.raises(RingscopeError, match=f"torchrun starts the ranks, so {option[0]} has no effect"):
        record.command.main(words, standalone_mode=False)
    assert not (tmp_path / "out").exists()


def test_a_launcher_that_starts_no_rank_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said while the launcher runs, and at its end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs_record, "STARTED_S", 0.0)
    missing = users_launcher.missing
    monkeypatch.setattr(users_launcher, "missing", lambda *given: ((tmp_path / "asked").touch(), missing(*given))[1])
    waits = "for _ in $(seq 1200); do [ -e asked ] && break; sleep 0.1; done"
    (tmp_path / "run.sh").write_text(f"echo mpirun is away; {waits}; exit 0; mpirun python train.py\n")
    words = ["--profiler", "framework", "--out", str(tmp_path / "out"), "--", "sh", "run.sh"]
    with pytest.raises(RingscopeError, match="mpirun has started no Python process that is a rank"):
        record.command.main(words, standalone_mode=False)
    said = capsys.readouterr().out
    assert said.count("after 0 s: mpirun has started no Python process that is a rank") == 1, said


@pytest.mark.parametrize(
    ("name", "elastic", "told", "missing"),
    [
        ("mpirun", False, (0, 1, 2, 3), None),
        ("mpirun", False, (0, 2), "1, 3"),
        ("srun", True, (2, 3), "0, 1"),  # srun hands the environment to the torchrun of each host
        ("torchrun", True, (2, 3), None),  # another `ringscope record` records the other host's
        ("torch.distributed.run", True, (3,), "2"),
        ("deepspeed", False, (2, 3), "0, 1"),
    ],
)
def test_ranks_that_do_not_tell_of_their_start_are_named(
    tmp_path: Path,
    name: str,
    elastic: bool,
    told: tuple[int, ...],
    missing: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two ranks on each of two hosts; a rank whose launcher drops its environment tells nothing."""
    if elastic:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert f"{name} has started no Python process that is a rank" in users_launcher.missing(tmp_path, name)
    for rank in told:
        for variable, number in (("RANK", rank), ("LOCAL_RANK", rank % 2), ("LOCAL_WORLD_SIZE", 2), ("WORLD_SIZE", 4)):
            monkeypatch.setenv(variable, str(number))
        users_launcher.say_started(tmp_path, rank, 4, recorded=rank > 0)
    said = users_launcher.missing(tmp_path, name)
    assert said == "" if missing is None else said.startswith(f"not recorded: rank {missing}; keep PYTHONPATH and")
    assert users_launcher.count(tmp_path, name) == (None if missing else sum(rank > 0 for rank in told))


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("env -u RINGSCOPE_OWN", "not recorded: rank 1; keep PYTHONPATH and RINGSCOPE_OWN"),
        ("env NONE=1", "1 of 2 ranks left no recording"),
        ("env HALF=1", "rank1.qdstrm: nsys could not process all that it recorded"),
    ],
)
def test_a_rank_without_its_recording_is_no_success(tmp_path: Path, second: str, says: str) -> None:
    """Of two ranks one loses ringscope's variables, ends without a recording, or with one that lacks events; the other
    one is reported."""
    (tmp_path / "nsys").write_text(ENDS)
    (tmp_path / "nsys").chmod(0o755)
    launches = f"export WORLD_SIZE=2; RANK=0 LOCAL_RANK=0 python rank.py; RANK=1 LOCAL_RANK=1 {second} python rank.py"
    (tmp_path / "run.sh").write_text(f"# deepspeed\n: deepspeed train.py; {launches}\n")
    (tmp_path / "rank.py").write_text("print('trained')\n")
    env = environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    words = ["record", "--profiler", "nsys", "--delay", "0", "--duration", "1", "--out", "out", "--", "sh", "run.sh"]
    argv = [sys.executable, "-m", "harness", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "recorded by nsys: " in done.stdout and "rank0.sqlite" in done.stdout
    assert done.stdout.count("trained") == 2
    assert says in done.stdout.replace("\n", ""), done.stdout


DDP = """
import os, sys, time
import torch
import torch.distributed as dist
rank, size = 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2000  # 250 steps: the recording begins at step 200 at the latest
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.randn(64)
model = torch.nn.Linear(64, 64)
if size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
if rank == 1:
    time.sleep(float(os.environ.get("LATE_S", "0")))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=8)):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
print(f"rank {rank} of {size} took {number + 1} steps with {sys.argv[1:]}\\n", end="")
if size > 1:
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("module", "count"),
    [
        ("torch.distributed.run --nproc_per_node", 2),
        ("accelerate.commands.launch --cpu --num_processes", 1),  # without a GPU it starts more by mpirun alone
    ],
)
def test_ranks_of_pytorchs_launchers_are_recorded_by_its_own_profiler(tmp_path: Path, module: str, count: int) -> None:
    """Real ranks: five steps of each by the optimizer's hook, and the line that the time goes to."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip(module.partition(".")[0], reason="accelerate is not installed")
    (tmp_path / "train.py").write_text(DDP)
    words = ["record", "--profiler", "framework", "--out", "out", "--steps", "5", "--"]
    argv = [sys.executable, "-m", "harness", *words, sys.executable, "-m", *module.split(), str(count), "train.py", "a"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} of {count} took 250 steps with ['a']" in done.stdout for rank in range(count)), done.stdout
    found = sorted((tmp_path / "out" / "command" / "0").glob("rank*.pt.trace.json"))
    assert [path.name for path in found] == [f"rank{rank}.pt.trace.json" for rank in range(count)]
    for path in found:
        timeline = read(path)
        names = [name for name in timeline.marks["name"].astype(str) if re.fullmatch(marks.STEP, name)]
        assert len(names) == 5 and timeline.marks["pid"].nunique() == 1
    assert all("Data.__getitem__ (train.py:11)" in line for line in measuring.of_the_host(found))
    assert len(measuring.of_the_host(found)) == count
    assert "Data.__getitem__ (train.py:11)" in done.stderr


# How scripts start their ranks themselves. Lightning starts all but rank 0, by the script's own command.
BY_SCRIPT = {
    "lightning": """
import os, subprocess, sys, time
own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531", "WORLD_SIZE": "2"}
import torch
if "RANK" not in os.environ:
    time.sleep(float(sys.argv[1]))
    subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own, "RANK": "1"})
    os.environ.update(own, RANK="0")
exec(open("ddp.py").read())
""",
    "spawn": """
import os, sys
import torch.multiprocessing as mp
def train(rank, size):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT="29532")
    exec(open("ddp.py").read(), {})
if __name__ == "__main__":
    mp.start_processes(train, (2,), nprocs=2, start_method=sys.argv[1])
""",
}


@pytest.mark.parametrize(
    ("how", "word"), [("lightning", "0"), ("lightning", "6"), ("spawn", "spawn"), ("spawn", "fork")]
)
def test_each_rank_that_the_script_starts_itself_is_recorded(tmp_path: Path, how: str, word: str) -> None:
    """With a pause of 6 s one process is first recorded by time, before it is known to be a rank; and rank 1 takes
    longer than the delay from the group to its optimizer."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "ddp.py").write_text(DDP)
    (tmp_path / "train.py").write_text(BY_SCRIPT[how])
    words = ["record", "--profiler", "framework", "--out", "out", "--steps", "5", "--duration", "1"]
    words += ["--delay", "1" if word == "6" else "30", "--", sys.executable, "train.py", word]
    argv = [sys.executable, "-m", "harness", *words]
    env = environment() | {"LATE_S": "3" if word == "6" else "0"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("took 250 steps") == 2
    assert "rank0.pt.trace.json to rank1.pt.trace.json" in done.stdout.replace("\n", "")
    steps = []
    for rank in range(2):
        timeline = read(tmp_path / "out" / "command" / "0" / f"rank{rank}.pt.trace.json")
        steps.append([name for name in timeline.marks["name"].astype(str) if re.fullmatch(marks.STEP, name)])
        assert timeline.recording.rank == rank and timeline.marks["pid"].nunique() == 1
    assert steps[0] == steps[1] and len(steps[0]) == 5


def test_all_ranks_that_the_script_starts_itself_are_recorded_and_record_ranks_is_said_to_have_no_effect(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "ddp.py").write_text(DDP)
    (tmp_path / "train.py").write_text(BY_SCRIPT["spawn"])
    words = ["record", "--profiler", "framework", "--out", "out", "--steps", "5", "--record-ranks", "first-per-host"]
    argv = [sys.executable, "-m", "harness", *words, "--", sys.executable, "train.py", "spawn"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "out" / "command" / "0").glob("*.trace.json"))) == 2
    assert done.stderr.count("--record-ranks has no effect on ranks that the script starts itself") == 1


def test_nsys_records_the_ranks_of_a_script_into_one_file_and_nvprof_does_not(tmp_path: Path) -> None:
    nsys, nvprof, inside = Profiler("nsys"), Profiler("nvprof"), Profiler("framework")
    for profiler in (nsys, nvprof, inside):
        assert command_ranks.count_of_ours(profiler, tmp_path, 1) == 1
        assert command_ranks.missing_of_ours(profiler, tmp_path) == ""
    users_launcher.say_started(tmp_path, 0, 2)
    assert command_ranks.count_of_ours(inside, tmp_path, 1) is None
    assert "rank 1; keep PYTHONPATH and RINGSCOPE_JOINED" in command_ranks.missing_of_ours(inside, tmp_path)
    users_launcher.say_started(tmp_path, 1, 2)
    assert [command_ranks.count_of_ours(each, tmp_path, 1) for each in (nsys, inside)] == [1, 2]
    assert [command_ranks.missing_of_ours(each, tmp_path) for each in (nsys, inside)] == ["", ""]
    assert command_ranks.missing_of_ours(nvprof, tmp_path).startswith("nvprof does not record the ranks")


@pytest.mark.ci
@pytest.mark.train
def test_ranks_of_mpirun_are_recorded_by_tensorflows_profiler(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    if describe.which("mpirun") is None:
        pytest.skip("no mpirun: pip install '.[train-cpu]'")
    (tmp_path / "train.py").write_text("""
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
# The recording begins at step 200 at the latest, where the machine lets no two steps take as long.
model.fit(np.zeros((2000, 8)), np.zeros((2000, 4)), batch_size=8, verbose=0)
print("took", int(model.optimizer.iterations))
""")
    words = ["record", "--profiler", "framework", "--out", "out", "--steps", "5", "--"]
    argv = [sys.executable, "-m", "harness", *words, *LAUNCHERS["mpirun"], "python", "train.py"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("took 250") == 2
    found = sorted((tmp_path / "out" / "command" / "0").glob("rank*.xplane.pb"))
    assert [path.name for path in found] == ["rank0.xplane.pb", "rank1.xplane.pb"]
    for path in found:
        steps = [name for name in read(path).marks["name"].astype(str) if re.fullmatch(marks.STEP, name)]
        assert len(steps) in (4, 5)  # the last one may be open when the recording ends
