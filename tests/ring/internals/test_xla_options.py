"""The options of XLA that ring sets, and Python's garbage collector while steps are traced."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringscope.ring import start
from ringscope.ring.internals import garbage, xla_cache, xla_options

COMPILES = """
import gc, json, os, sys
from pathlib import Path
from ringscope.ring.internals import xla_options
from ringscope.ring.internals import garbage
from ringscope.ring.internals.frameworks import tf
before = gc.get_freeze_count()
xla_options.set_options(capability=9, tensorflow=tf.version.VERSION)
xla_options.keep_choices(Path(sys.argv[1]), tensorflow=tf.version.VERSION)
garbage.set_apart()
x = tf.ones((3, 5))
product = tf.function(lambda: x @ tf.transpose(x), jit_compile=True)()
apart = gc.get_freeze_count() - before
print(json.dumps({"flags": os.environ["XLA_FLAGS"], "sum": float(tf.reduce_sum(product)), "apart": apart}))
"""


SET = f"{xla_options.WITHOUT_TRITON} {xla_options.WITHOUT_FUSIONS}"


def _set(monkeypatch: pytest.MonkeyPatch, flags: str | None, *, capability: int = 8) -> str | None:
    if flags is None:
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    else:
        monkeypatch.setenv("XLA_FLAGS", flags)
    xla_options.set_options(capability=capability, tensorflow="2.21.0")
    return os.environ.get("XLA_FLAGS")


def test_where_there_is_a_gpu_neither_triton_nor_fusions_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _set(monkeypatch, None) == SET
    assert _set(monkeypatch, "--xla_dump_to=/tmp/x") == f"--xla_dump_to=/tmp/x {SET}"
    assert _set(monkeypatch, None, capability=9) == f"{SET} {xla_options.CHANNELS_LAST}"
    own = "--xla_gpu_force_conv_nhwc=false"
    assert _set(monkeypatch, own, capability=9) == f"{own} {SET}"


def test_the_users_own_choices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    backends, fusions = f"{xla_options.BACKENDS}=triton,cublas", f"{xla_options.FUSIONS}=true"
    assert _set(monkeypatch, backends) == f"{backends} {xla_options.WITHOUT_FUSIONS}"
    assert _set(monkeypatch, fusions) == f"{fusions} {xla_options.WITHOUT_TRITON}"
    assert _set(monkeypatch, f"{fusions} {backends}") == f"{fusions} {backends}"


@pytest.mark.parametrize("file", ["flags.txt", " flags.txt"])
def test_a_file_of_options_stays(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    assert _set(monkeypatch, file) == file


def test_without_a_gpu_and_with_other_versions_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _set(monkeypatch, None, capability=0) is None
    monkeypatch.setattr(xla_options, "KNOWN_BY", "1.0.")
    assert _set(monkeypatch, None) is None


def test_what_xla_has_chosen_is_kept_unless_the_user_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    for _ in range(2):  # a process that begins again has its own in the environment
        xla_options.keep_choices(tmp_path / "choices", tensorflow="2.21.0")
        assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=/tmp/x {xla_options.CHOICES}={tmp_path}/choices"
    monkeypatch.setenv("XLA_FLAGS", f"{xla_options.CHOICES}=/mine")
    xla_options.keep_choices(tmp_path / "choices", tensorflow="2.21.0")
    assert os.environ["XLA_FLAGS"] == f"{xla_options.CHOICES}=/mine"
    monkeypatch.delenv("XLA_FLAGS")
    xla_options.keep_choices(tmp_path / "choices", tensorflow="2.22.0")
    assert "XLA_FLAGS" not in os.environ


def test_nothing_is_kept_where_no_file_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XLA would end the process there."""
    monkeypatch.setenv("XLA_FLAGS", "")
    xla_options.keep_choices(tmp_path / "is" / "missing", tensorflow="2.21.0")
    (tmp_path / "file").write_text("")
    xla_options.keep_choices(tmp_path / "file", tensorflow="2.21.0")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (xla_options.ROOM // 2, limits[1]))  # as a quota that is used up
    try:
        xla_options.keep_choices(tmp_path, tensorflow="2.21.0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.environ["XLA_FLAGS"] == "" and [each.name for each in tmp_path.iterdir()] == ["file"]


def test_ring_keeps_choices_beside_the_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(xla_cache, "_gpu", lambda: {"gpu": "one", "capability": 8})
    monkeypatch.setenv("RINGSCOPE_XLA_CACHE", str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", "")
    start.set_up_compiler()
    (programs,) = tmp_path.iterdir()
    assert os.environ["TF_XLA_FLAGS"] == f"{xla_cache.FLAG}={programs}"
    assert os.environ["XLA_FLAGS"] == f"{SET} {xla_options.CHOICES}={programs}/choices"
    assert (programs / "choices").is_dir()
    start.set_up_compiler()  # as in a process that this one has started
    assert list(tmp_path.iterdir()) == [programs]
    assert os.environ["XLA_FLAGS"] == f"{SET} {xla_options.CHOICES}={programs}/choices"


def _folder(monkeypatch: pytest.MonkeyPatch, where: Path) -> str:
    monkeypatch.setattr(xla_cache, "_gpu", lambda: {"gpu": "one"})
    monkeypatch.setenv("RINGSCOPE_XLA_CACHE", str(where))
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    kept = xla_cache.turn_on()
    assert kept is not None and kept.is_dir()
    return kept.name


def test_programs_are_kept_apart_by_the_engines_of_cudnn_that_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """XLA and TensorFlow find what is kept without a look at them."""
    errata = tmp_path / "errata.json"
    monkeypatch.delenv(xla_cache.ERRATA, raising=False)
    without = _folder(monkeypatch, tmp_path)
    monkeypatch.setenv(xla_cache.ERRATA, str(errata))
    folders = []
    for rules in ("[]", "[1]", "[]"):
        errata.write_text(rules)
        folders.append(_folder(monkeypatch, tmp_path))
    assert folders[0] == folders[2] and len({without, *folders}) == 3
    monkeypatch.delenv(xla_cache.ERRATA)
    monkeypatch.setenv("TF_USE_DEFAULT_CONV_ALGO", "1")
    assert _folder(monkeypatch, tmp_path) not in {without, *folders}


def test_programs_of_deterministic_trainings_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tensorflow.python.framework.config import disable_op_determinism, enable_op_determinism

    without = _folder(monkeypatch, tmp_path)
    assert not xla_cache.may_lack_determinism()
    try:
        enable_op_determinism()
        assert xla_cache.may_lack_determinism()  # the folder is named already
        monkeypatch.setenv("TF_XLA_FLAGS", f"{xla_cache.FLAG}={tmp_path}/mine")
        assert not xla_cache.may_lack_determinism()
        assert _folder(monkeypatch, tmp_path) == without + xla_cache.DETERMINISTIC
        assert not xla_cache.may_lack_determinism()
    finally:
        disable_op_determinism()


@pytest.mark.ci
def test_xla_takes_the_options(tmp_path: Path) -> None:
    """At one that it does not know, or a value, it would end the process."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, "-c", COMPILES, str(tmp_path)], env=env, capture_output=True, text=True, timeout=900
    )
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert (
        told["flags"] == f"{SET} {xla_options.CHANNELS_LAST} {xla_options.CHOICES}={tmp_path}" and told["sum"] == 45.0
    )
    assert told["apart"] > 100_000  # TensorFlow's and Keras's modules


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_as_it_was_after_an_import(collects: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if collects else gc.disable()
        with pytest.raises(ImportError), garbage.uncollected():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is collects
    finally:
        gc.enable() if before else gc.disable()
