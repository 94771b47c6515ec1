"""A batch script for PBS Pro and OpenPBS. Inside the job mpirun starts the ranks on the nodes of PBS_NODEFILE."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import replace

from . import batch


def script(request: batch.Request) -> str:
    """The batch script for PBS. The shell redirects its output to the log, so that no directive contains a path."""
    chunks = [
        ":".join(
            [
                f"{len(list(nodes))}",
                f"ncpus={(request.cpus_per_rank or 1) * ranks}",
                f"mpiprocs={ranks}",
                *([f"ngpus={ranks}"] if request.gpus else []),
            ]
        )
        for ranks, nodes in itertools.groupby(request.nodes())
    ]
    hours, minutes = divmod(request.minutes, 60)
    directives = [
        "-N ringscope",
        f"-l select={'+'.join(chunks)}",
        f"-l walltime={hours:02}:{minutes:02}:00",
        "-j oe",
        "-o /dev/null",
        *([shlex.join(request.args)] if request.args else []),
    ]
    inside = replace(request, argv=(*request.argv, "--launcher", "mpirun", "--hostfile", "$PBS_NODEFILE"))
    return batch.script("#PBS", directives, inside, without="PBS_", before=[batch.to_log(request)])
