"""The options of `ring.distribute`, and the errors in them that need no model."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.ground.errors import RingscopeError

from .gradients.average import COMPRESSIONS, OPS
from .internals.frameworks import hvd

STEPS = ("auto", "fit", "compiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of `ring.distribute`, whose docstring says what each does."""

    step: str
    compression: str
    aggregate: int
    groups: int
    overlap: bool | None
    scale_learning_rate: bool
    warmup_steps: int
    warmup_epochs: int
    op: str
    predivide_factor: float
    sparse_as_dense: bool
    reduce: bool
    sharded: bool
    commit_steps: int

    @property
    def is_plain(self) -> bool:
        """True if ranks exchange plain sums of one step's gradients, which is the only exchange inside a compiled
        step."""
        return self.op != "adasum" and self.predivide_factor == 1.0 and self.aggregate == 1 and not self.sharded

    def check(self) -> None:
        """Raise RingscopeError for options that cannot be combined."""
        for name, known in (("step", STEPS), ("compression", COMPRESSIONS), ("op", OPS)):
            if getattr(self, name) not in known:
                raise RingscopeError(f"there is no {name} {getattr(self, name)!r}; choose one of {', '.join(known)}")
        if self.compression == "bf16" and self.op != "average":
            raise RingscopeError(f"bf16 is for averages, not for {self.op}; use compression='fp16' or 'none'")
        if self.op == "adasum" and hvd.size() > 1 and not hvd.mpi_enabled():
            raise RingscopeError("Gloo has no Adasum; start the ranks with MPI: mpirun -np N, or horovodrun --mpi")
        if self.step == "compiled" and self.groups > 1:
            raise RingscopeError(
                "groups=k works only with step='fit'; a compiled step sends gradients during its backward pass where "
                "that is faster (with overlap=True: always)"
            )
        if self.overlap and self.step == "fit":
            raise RingscopeError(
                "overlap=True needs step='compiled'; with step='fit' use groups=k, which sends gradients in k parts"
            )
        if self.warmup_epochs and (self.warmup_steps or not self.scale_learning_rate):
            raise RingscopeError(
                "warmup_epochs works with scale_learning_rate=True and without warmup_steps;"
                " change these, or leave it out"
            )
        if self.commit_steps < 0 or self.commit_steps % self.aggregate:
            raise RingscopeError(
                f"commit_steps={self.commit_steps} is no multiple of"
                f" aggregate={self.aggregate}; choose a multiple of it"
            )
