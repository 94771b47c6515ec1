"""Start a rank: Horovod, its GPU, its cores, its seed and its connection to the other ranks."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from profiles.ground.errors import RingscopeError
from ringscope.places import of_keras, of_tensorflow

from . import say
from .alike import ending, horovod_names, undistributed
from .data import seeds, shuffles
from .internals import cudnn_recurrent, garbage, own_gradients, seams, xla_cache, xla_options
from .internals.frameworks import hvd, keras, tf
from .lost import launcher, restart
from .ranks import alone, files
from .ranks.channel import CONNECT_LIMIT_S, Channel, launcher_share, meet_server

OF_PARENT = "RINGSCOPE_RANK_OF_PARENT"  # environment variable for child processes: "rank size local_rank" of this rank
STARTS = 5  # failed starts of Horovod in a row that are allowed in elastic training

_channel: Channel | None = None


def init(*, pin: bool = True, seed: int | bool | None = None, process_sets: Any = None) -> None:
    """Start Horovod, and give this process one GPU and its share of the host's cores, before TensorFlow is used.

    pin: False leaves all GPUs to this process.
    seed: for Python's, NumPy's and TensorFlow's generators, so that all ranks prepare the same data. None: rank 0
        draws it and prints it; False: the generators are left alone.
    process_sets: Horovod's, for `average_gradients(..., process_set=...)`: a list of them, or "dynamic" for sets
        that are added later with hvd.add_process_set.

    Under elastic Horovod the script restarts whenever ranks are lost or added (docs/guides/train.md), and this call may
    end the process if it is no longer a rank. Raises RingscopeError if there are fewer GPUs than local ranks, if
    TensorFlow has already taken all of them, or if Keras uses another backend than TensorFlow.
    """
    if hvd.is_initialized() or _parents() is not None:
        return
    undistributed.check_backend()
    told = seams.check()
    garbage.set_apart()
    _tell_profilers()
    own_gradients.let_go_with_their_graphs()
    cudnn_recurrent.compute_in_float32()
    set_up_compiler()
    # Without this the host launches the update only after it has seen the all-reduce end on the GPU: some 4 ms a step.
    os.environ.setdefault("HOROVOD_ENABLE_ASYNC_COMPLETION", "1")
    if process_sets is not None:
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"  # Horovod reads the variable when it starts
    if launcher.is_elastic():
        _init_elastic(process_sets)
    elif process_sets is not None:
        hvd.init(process_sets=process_sets)
    else:
        with alone.alone():
            hvd.init()
    for line in told:
        say.once(line)
    if seams.has("lines of their own beside a progress bar"):
        say.beside_bars()
    if seams.has("warnings about Horovod's calls that a script no longer needs"):
        horovod_names.refuse_left_over()
    os.environ[OF_PARENT] = f"{hvd.rank()} {hvd.size()} {hvd.local_rank()}"
    try:
        _take_gpu(pin=pin)
        # Otherwise each of N local ranks starts a thread for every core (horovod#2295).
        tf.config.threading.set_intra_op_parallelism_threads(threads())
        tf.config.threading.set_inter_op_parallelism_threads(max(2, threads()))
    except RuntimeError as error:
        raise RingscopeError(
            "TensorFlow was used before ring.init(); make ring.init() the script's first line"
        ) from error
    _meet(seed)


def _tell_profilers() -> None:
    """Put ranges around the script's functions that Keras and TensorFlow call. They cost almost nothing unless a
    profiler records."""
    of_keras.lay(keras)
    of_tensorflow.lay()


def set_up_compiler() -> None:
    """Set XLA's options and cache directories in the environment, before TensorFlow first looks at devices."""
    version = tf.version.VERSION
    xla_options.set_options(capability=xla_cache.capability(), tensorflow=version)
    if (kept := xla_cache.turn_on()) is not None:  # the folder's name depends on the options that were just set
        xla_options.keep_choices(kept / "choices", tensorflow=version)


def _init_elastic(process_sets: Any) -> None:
    if restart.before().times:
        launcher.ask_for_rank()
    launcher.listen()
    try:
        hvd.init(process_sets=process_sets)
    except ValueError:  # another rank has ended while this one started
        failed = restart.before().failed + 1
        if failed > STARTS:
            raise
        restart.carry(failed=failed)
        restart.begin("a rank ended before all had begun")


def _meet(seed: int | bool | None) -> None:
    """Connect the ranks, and seed them."""
    global _channel
    before = restart.before().seed
    restart.carry(ranks=hvd.size())
    if hvd.size() == 1:
        restart.carry(seed=seeds.sow(seed, 0, lambda value: value, before))
        return
    share = launcher_share(hvd.rank())
    _channel = meet_server(hvd.rank(), hvd.size(), share, restart.left if launcher.is_elastic() else None)
    if _channel is None:
        raise RingscopeError(f"rank {hvd.rank()} cannot reach rank 0's host by TCP; open the ports between the hosts")
    restart.carry(seed=seeds.sow(seed, hvd.rank(), share, before))
    # A rank that ends stops Horovod and MPI on all ranks, and rank 0 runs the server. So no rank may end before all are
    # here.
    _channel.meet("start", limit_s=CONNECT_LIMIT_S)
    ending.at_exit(_channel)
    shuffles.count_beginnings()
    if seams.has("a warning about models that ring.distribute was not given"):
        undistributed.watch_models()
    if seams.has("undamaged files when all ranks save to one path"):
        files.write_whole_files()


def _take_gpu(*, pin: bool) -> None:
    """Let GPU memory grow as it is used. pin: make only this rank's GPU visible."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if not gpus and hvd.local_rank() == 0:
        _tell_unseen()
    if not gpus or not pin:
        return
    # If the launcher already shows each process one GPU, there is nothing to choose.
    mine = 0 if len(gpus) == 1 and _one_gpu_each() else hvd.local_rank()
    if mine >= len(gpus):
        raise RingscopeError(
            f"ranks on this host: {hvd.local_size()}, GPUs: {len(gpus)}; start no more ranks here than GPUs"
        )
    tf.config.set_visible_devices(gpus[mine], "GPU")


def _tell_unseen() -> None:
    """Say that this host's ranks train on the CPU, if the driver shows a GPU that TensorFlow has not found."""
    if (name := xla_cache.gpu_name()) is None:
        return
    why = "it is built for the CPU; pip install 'tensorflow[and-cuda]' in its place"
    if tf.test.is_built_with_cuda():
        why = "CUDA's libraries are missing, or the GPU is too old for it; `ringscope doctor` says what it finds"
    say.line(f"TensorFlow does not see this host's {name}, and trains on the CPU: {why}")


def _one_gpu_each() -> bool:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return bool(visible) and "," not in visible


def threads() -> int:
    """The number of cores for this process: those that it is bound to, or its share if all ranks of the host use the
    same cores."""
    mine, everybodys = len(os.sched_getaffinity(0)), len(os.sched_getaffinity(1))
    ranks = int(hvd.local_size())
    return mine if mine * ranks <= everybodys else max(1, mine // ranks)


def _parents() -> tuple[int, int, int] | None:
    """(rank, size, local rank) of the rank that started this process by `multiprocessing`; None if no rank did.

    A spawned process runs the script's lines above `if __name__ == "__main__"` again, including `ring.init()`. It must
    not become a rank: it would take its parent's place among the ranks, and give up the place when it ends.
    """
    # While a spawned process runs those lines, multiprocessing does not know its parent yet.
    begins = getattr(multiprocessing.current_process(), "_inheriting", False)
    if OF_PARENT not in os.environ or hvd.is_initialized():
        return None
    if not begins and multiprocessing.parent_process() is None:
        return None
    mine, ranks, local = map(int, os.environ[OF_PARENT].split())
    return mine, ranks, local


def rank() -> int:
    """This process's rank. A process that a rank has started by `multiprocessing` has its parent's rank."""
    return int(hvd.rank()) if (of_parent := _parents()) is None else of_parent[0]


def size() -> int:
    return int(hvd.size()) if (of_parent := _parents()) is None else of_parent[1]


def local_rank() -> int:
    return int(hvd.local_rank()) if (of_parent := _parents()) is None else of_parent[2]


def by_mpi() -> bool:
    """True if the ranks exchange gradients by MPI instead of Gloo."""
    return bool(hvd.mpi_enabled())


def meet(kind: str, payload: Any) -> list[Any] | None:
    """The payloads of all ranks at a meeting of this kind, by rank; None if a rank has ended. Works without
    TensorFlow."""
    return [payload] if _channel is None else _channel.meet(kind, payload)


def channel() -> Channel | None:
    """The connection of this rank to the others; None if there is only one rank."""
    return _channel
