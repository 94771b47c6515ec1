"""Names of operators, without the parts that differ from call to call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..model.marks import DOMAIN, WAIT_INPUT
from ..model.xla_names import COMMAND_BUFFER, compiled
from ..steps.marks import STEPS

# Ranges that name no operator: ranges of libraries that move data, and names of edges of TensorFlow's graph.
_OTHER_DOMAINS: Final = frozenset({"NCCL", "HorovodOps", "MPI", "UCX"})
_NO_OPERATOR: Final = re.compile(r"#edge_name=.*|\{'traceMarker'.*|PyTorch Profiler.*|nccl[A-Z]\w*|MPI_\w+", re.DOTALL)
_STEP: Final = re.compile("|".join(f"(?:{one})" for one in STEPS))
# The end of a name that PyTorch's emit_nvtx writes: ", seq = 3, op_id = 7, sizes = [[2, 3]]".
_PYTORCH: Final = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
_TSL: Final = re.compile(r"(\w*):?#(.*)#", re.DOTALL)
_NUMBER: Final = re.compile(r"[._]\d+$")


class Texts(dict[str, int]):
    """Gives each text a number, from 0 on, at its first look-up."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


@dataclass(frozen=True, slots=True)
class Thunk:
    """A range of XLA's executor: its operator, and the name of the kernel that XLA compiled for it."""

    operator: str
    kernel: str  # the name that `compiled` returns; "" if XLA compiles no kernel for the operator

    @property
    def launches_graph(self) -> bool:
        return self.operator == COMMAND_BUFFER


def thunk(name: str) -> Thunk | None:
    """The operator and kernel of a range of XLA's executor; None for other ranges."""
    told = _TSL.fullmatch(name)
    operator = of_range(name, "") if told else None
    return Thunk(operator, compiled(_said(told[2]).get("hlo_op", ""))) if told and operator else None


def of_range(name: str, domain: str) -> str | None:
    """The operator that a range names, without parts that differ from call to call; None if the range names none."""
    if domain in _OTHER_DOMAINS or domain == DOMAIN or name == WAIT_INPUT:
        return None
    if _NO_OPERATOR.fullmatch(name) or _STEP.fullmatch(name):
        return None
    if told := _TSL.fullmatch(name):
        said = _said(told[2])
        instruction = of_kernel(said.get("hlo_op", ""))
        if instruction == COMMAND_BUFFER:
            return COMMAND_BUFFER
        program = "hlo_module" in said  # a whole compiled program, not an operator
        return said.get("name") or instruction or (None if program else told[1]) or None
    return _PYTORCH.sub("", name) or None


def _said(told: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in told.split(","))


def of_kernel(told: str) -> str:
    """The operator of a kernel from the recorded text: a path such as `model/conv_1/Conv2D`, or an XLA instruction.

    The number of an instruction is cut off, because it differs between compilations."""
    return told if "/" in told else _NUMBER.sub("", told)
