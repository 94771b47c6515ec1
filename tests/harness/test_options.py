"""No option without an effect: what would be ignored is refused in one line, before anything is written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.jobs import bench, sweep
from harness.jobs.grid import Choices
from harness.jobs.options import Bench, Launch
from harness.launch.hosts import Host
from harness.processes.supervise import Limits
from harness.verbs import bench as verb_bench
from harness.verbs import doctor, fits, infer, options, record, rules, train
from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.runs.records import Cell, SweepRecord

ROOT = Path(__file__).parents[2]
COMMAND = ["--", "python", "x.py"]
IGNORED: list[tuple[click.Command, list[str], str]] = [
    (verb_bench.command, ["--retry-failed"], "--retry-failed works only with --resume"),
    (verb_bench.command, ["--of", "x"], "--of works only with --apply FINDING"),
    (verb_bench.command, ["--apply", "no-prefetch"], "--apply needs --of LAUNCH"),
    *(
        (verb_bench.command, ["--apply", "no-prefetch", "--of", "x", *words], f"{words[0]} has no effect with --apply")
        for words in (
            ["--ranks", "1"],
            ["--models", "mlp"],
            ["--per-rank-batch", "8"],
            ["--feeds", "host"],
            ["--strategy", "independent"],
            ["--scaling", "strong"],
            ["--seed", "1"],
            ["--data", "/"],
            ["--explain"],
            ["--minutes", "1"],
            ["--resume"],
        )
    ),
    (verb_bench.command, ["--max-epochs", "3"], "--max-epochs works only with --until"),
    (train.command, ["--model", "mlp", "--epoch-samples", "64"], "--epoch-samples is for generated data"),
    (verb_bench.command, ["--launches", "2", "--minutes", "1"], "--minutes has no effect with --launches"),
    (verb_bench.command, ["--resume", "--dry-run"], "--dry-run shows a new grid"),
    *(
        (verb, ["--launcher", "single", *more, *words], f"{more[0]} is not for --launcher single")
        for verb, words in ((verb_bench.command, []), (train.command, ["--model", "mlp"]), (record.command, COMMAND))
        for more in (["--hosts", "a:1"], ["--launcher-args", "-v"])
    ),
    *(
        (verb, ["--hosts", "a:1", "--hostfile", "hosts", *words], "--hosts and --hostfile both name the hosts")
        for verb, words in ((verb_bench.command, []), (train.command, ["--model", "mlp"]), (record.command, COMMAND))
    ),
    *(
        (record.command, [*words, *COMMAND], f"{words[0]} is a setting of a cell")
        for words in (
            ["--per-rank-batch", "8"],
            ["--feed", "host"],
            ["--input-dtype", "uint8"],
            ["--step", "fit"],
            ["--precision", "float32"],
            ["--strategy", "independent"],
            ["--compression", "fp16"],
            ["--aggregate", "2"],
            ["--op", "adasum"],
            ["--fusion-mb", "64"],
            ["--cycle-us", "500"],
            ["--autotune", "on"],
            ["--micro-batches", "2"],
            ["--stages", "2"],
            ["--memory-limit-mb", "100"],
            ["--warmup", "9"],
            ["--data", "synthetic"],
            ["--seed", "0"],
        )
    ),
    *(
        (verb_bench.command, [*words, "--launcher", "mpirun"], f"{words[0]} is for a batch system")
        for words in (["--ranks-per-node", "2"], ["--cpus-per-rank", "2"], ["--prologue", "x"])
    ),
    (verb_bench.command, ["--volume", "x", "--launcher", "slurm"], "--volume is for --launcher kubeflow"),
    *(
        (verb_bench.command, ["--hosts", "a:1", "--launcher", launcher], "--hosts is not for a batch system")
        for launcher in ("pbs", "lsf", "kubeflow")
    ),
    (verb_bench.command, ["--launcher-args", "-n x", "--launcher", "kubeflow"], "--launcher-args is not for kubeflow"),
    (
        verb_bench.command,
        ["--launcher-args", "'a"],
        "--launcher-args 'a: No closing quotation; quote it",
    ),
    (verb_bench.command, ["--launcher", "slurm", "--prologue", "none"], "--prologue none: cannot be read"),
    (verb_bench.command, ["--launcher", "kubeflow"], "--launcher kubeflow starts pods; give their image"),
    (verb_bench.command, ["--launcher", "pbs", "--launcher-args", "'a\nb'"], "\"'a\\nb'\" has a line break"),
    (record.command, ["--time-limit", "9", *COMMAND], "--time-limit has no effect on a command"),
    (record.command, ["--stall-limit", "9", *COMMAND], "--stall-limit has no effect on a command"),
    (record.command, ["--model", "mlp", "--delay", "9"], "--delay is for a command"),
    (record.command, ["--model", "mlp", "--duration", "9"], "--duration is for a command"),
    (record.command, ["--model", "mlp", *COMMAND], "give a cell (--model resnet50 ...) or a command"),
    (record.command, [], "nothing to record; give a cell (--model resnet50 ...) or a command"),
    (fits.command, ["--model", "mlp", "--of", "x"], "--model has no effect with --of"),
    (fits.command, ["--of", "x", "--time-limit", "9"], "--time-limit has no effect with --of"),
    (fits.command, ["--resume", "--within", "5"], "--within is fixed by the search"),
    (fits.command, [], "no model to try; name one, as --model resnet50"),
    (fits.command, ["--model", "mlp", "--up-to", "4", "--multiple-of", "8"], "--up-to 4 is less than --multiple-of 8"),
    (doctor.command, ["--quick", "-np", "2"], "--ranks has no effect with --quick"),
    (doctor.command, ["--quick", "--launcher", "mpirun"], "--launcher has no effect with --quick"),
]


@pytest.mark.parametrize(
    ("verb", "words", "says"), IGNORED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_an_option_that_would_be_ignored_is_refused(
    verb: click.Command, words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Those of a command come last.
    split = words.index("--") if "--" in words else len(words)
    out = [] if verb is doctor.command else ["--out", "out"]
    with pytest.raises(RingscopeError) as refused:
        verb.main([*words[:split], *out, *words[split:]], standalone_mode=False)
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value) and refused.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["0", "two", ""])
@pytest.mark.parametrize(
    ("verb", "form"),
    [
        (train.command, "a whole number from 1 on; write it as 4"),
        (verb_bench.command, "a list of whole numbers from 1 on; write it as 1,2,4"),
    ],
)
def test_a_number_alone_is_asked_for_as_one(verb: click.Command, form: str, given: str) -> None:
    with pytest.raises(RingscopeError, match=f"'{given}' is not {form}$"):
        verb.make_context("", ["--ranks", given])


def test_a_refusal_is_one_line_and_code_2() -> None:
    argv = [sys.executable, "-m", "harness", "bench", "--retry-failed"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ringscope: --retry-failed works only with --resume; add that, or leave it out\n"


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A sweep that began under mpirun on two hosts."""
    options = {"launcher": "mpirun", "launcher_args": "--tag-output", "hosts": "a:1,b:1", "time_limit": 9}
    sweep = SweepRecord([Cell("mlp", 2, 8)], 1, "mpirun", options=options)
    write_whole(tmp_path / "sweep.json", json.dumps(sweep.to_json()))
    return tmp_path


def resumed(launch: Launch) -> Launch:
    return bench.remembered(Bench(Choices(), launch, resume=True)).launch


def test_a_resumed_sweep_is_launched_as_it_began(begun: Path) -> None:
    found = resumed(Launch(out=begun))
    assert (found.launcher, found.launcher_args, found.limits) == ("mpirun", "--tag-output", Limits(9, 180))
    assert found.hosts == (Host("a", 1), Host("b", 1))


def test_what_the_command_line_names_goes_before_what_a_sweep_remembers(begun: Path) -> None:
    named = Launch(out=begun, hosts=(Host("c", 2),), limits=Limits(5, 6), given=frozenset({"hosts", "stall_limit"}))
    found = resumed(named)
    assert (found.hosts, found.limits) == ((Host("c", 2),), Limits(9, 6))


def test_another_launcher_does_not_get_the_words_of_the_first(begun: Path) -> None:
    found = resumed(Launch(out=begun, launcher="horovodrun", given=frozenset({"launcher"})))
    assert (found.launcher, found.launcher_args) == ("horovodrun", "")


def test_a_variable_that_is_named_reaches_the_ranks_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "1")
    words = ["--models", "mlp", "--ranks", "1", "--env", "MINE", "--env", "ABSENT", "--launcher", "pbs"]
    verb_bench.command.main([*words, "--out", str(tmp_path / "out")], standalone_mode=False)
    assert "export MINE=1" in (tmp_path / "out" / "job.pbs").read_text().splitlines()
    resumed_ = resumed(Launch(out=tmp_path / "out"))
    how = bench.how_to_launch(replace(resumed_, launcher="mpirun", hosts=(Host("a", 1), Host("b", 1))))
    job = sweep.command(tmp_path, Cell("mlp", 2, 8), how, {"MINE": "1", "OTHER": "1"})("LINE")
    assert "MINE" in job.argv and "OTHER" not in job.argv


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until", "loss=0.1"], "--until loss=0.1: write it as accuracy=0.95"),
        (["--until", "accuracy=95"], "--until accuracy=95: write it as accuracy=0.95"),
        (["--until", "0.9"], "--until 0.9: write it as accuracy=0.95"),
        (["--until", "accuracy=0.9", "--data", "/"], "--until has no validation data in /"),
    ],
)
def test_what_cannot_be_learnt_is_refused(words: list[str], said: str) -> None:
    chosen = verb_bench.command.make_context("bench", words).params
    with pytest.raises(RingscopeError, match=re.escape(said)):
        options.choices(chosen)


def test_an_accuracy_is_learnt_on_generated_samples() -> None:
    chosen = verb_bench.command.make_context("bench", ["--until", "accuracy=0.9", "--ranks", "1"]).params
    values = options.choices(chosen).values
    assert (values["data"], values["until"]) == (("generated",), ("accuracy=0.9",))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_an_option_that_takes_a_number_takes_no_other(value: str) -> None:
    """`--time-limit inf` would write a sweep.json that nobody can read."""
    found = 0
    for command in (verb_bench, doctor, fits, infer, record, rules, train):
        for option in command.command.params:
            if isinstance(option.type, click.FloatRange):
                found += 1
                result = CliRunner().invoke(command.command, [option.opts[0], value])
                assert result.exit_code == 2 and f"Invalid value for '{option.opts[0]}'" in result.output
    assert found >= 10


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (verb_bench.command, ["--ranks", "99999999999999999999"]),
        (verb_bench.command, ["--models", "mlp", "--per-rank-batch", str(10**30)]),
        (verb_bench.command, ["--models", "mlp", "--launches", str(10**9)]),
        (fits.command, ["--model", "mlp", "--up-to", str(10**30)]),
        (verb_bench.command, ["--models", "mlp", "--env", "A=B"]),
        (verb_bench.command, ["--models", "mlp", "--env", ""]),
    ],
    ids=str,
)
def test_what_could_not_be_read_again_or_means_nothing_is_refused_before_anything_is_written(
    command: click.Command, words: list[str], tmp_path: Path
) -> None:
    result = CliRunner().invoke(command, [*words, "--out", str(tmp_path / "out")])
    said = f"{result.output}{result.exception}"
    assert result.exit_code and words[-2] in said and len(said) < 400 and not (tmp_path / "out").exists()
