"""A loop over the steps of a sequence in a compiled step, and the stacks: tensors with an entry for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...internals.frameworks import has_gpu, tf
from ...internals.stablehlo import call_module, tensor_type

# Steps in one turn of the loop: XLA launches the kernels of a turn as one CUDA graph. With 4 steps an LSTM of 512 cells
# takes 2 % longer on an H200, with 16 a third longer.
CHUNK = 8

State = tuple[Sequence[Any], Sequence[Any]]
"""(state for the next time step, the outputs of the time steps)."""
Step = Callable[..., State]
"""(t, *carried) -> (the state for the next step, the entry at t of each stack)."""


def loop(step: Step, times: range, carried: Sequence[Any], stacks: Sequence[Any]) -> State:
    """Run `step` for each t in `times`; returns the last state and the filled stacks. XLA can see the number of turns,
    so the host does not ask the GPU after each."""
    turns, rest = divmod(len(times), CHUNK)

    def several(t: Any, count: int, carried: Sequence[Any], stacks: Sequence[Any]) -> State:
        """Run `count` steps from t on, and write their outputs as one block: XLA would write single outputs by copies
        that the host launches between CUDA graphs."""
        every = []
        for i in range(count):
            carried, values = step(t + times.step * i, *carried)
            every.append(values)
        lowest = t
        if times.step < 0:
            every.reverse()
            lowest = t + times.step * (count - 1)
        blocks = [tf.stack(values) for values in zip(*every, strict=True)]
        return carried, [put(stack, lowest, block) for stack, block in zip(stacks, blocks, strict=True)]

    def turn(i: Any, carried: Sequence[Any], stacks: Sequence[Any]) -> tuple[Any, ...]:
        return (i + 1, *several(times.start + times.step * CHUNK * i, CHUNK, carried, stacks))

    if turns:
        _, carried, stacks = tf.while_loop(lambda i, *_: i < turns, turn, (tf.constant(0), list(carried), list(stacks)))
    if rest:
        carried, stacks = several(tf.constant(times[len(times) - rest]), rest, carried, stacks)
    return carried, stacks


def steps_first(sequences: Any) -> Any:
    """(batch, steps, ...) as (steps, batch, ...), or the reverse."""
    return tf.transpose(sequences, [1, 0, *range(2, sequences.shape.rank)])


def at(stack: Any, t: Any) -> Any:
    """The entry `stack[t]`, which XLA reads without a copy."""
    from tensorflow.compiler.tf2xla.python import xla

    begin = tf.stack([t, *[0] * (stack.shape.rank - 1)])
    return tf.squeeze(xla.dynamic_slice(stack, begin, [1, *stack.shape[1:]]), axis=0)


def put(stack: Any, t: Any, block: Any) -> Any:
    """The stack with a block of entries written from t on, which XLA does in place."""
    from tensorflow.compiler.tf2xla.python import xla

    return xla.dynamic_update_slice(stack, block, tf.stack([t, *[0] * (stack.shape.rank - 1)]))


def room(shape: Sequence[int], kind: Any) -> Any:
    """A new stack, all of whose entries the loop will write. On a GPU it is left uninitialised, because zeros take
    memory and a twentieth of the step of an LSTM of 512 cells on an H100. On a CPU XLA cannot leave it
    uninitialised."""
    if not has_gpu():
        return tf.zeros(shape, kind)
    made = tensor_type(shape, kind)
    # Each call needs its own name: XLA merges equal calls and would have to copy their buffer. The names repeat from
    # trace to trace.
    name = tf.compat.v1.get_default_graph().unique_name("room")
    call = f'stablehlo.custom_call @AllocateBuffer() {{ api_version = 2 : i32, backend_config = "{name}" }}'
    main = f"func.func public @main() -> {made} {{ %room = {call} : () -> {made} return %room : {made} }}"
    return call_module(f"module {{ {main} }}", [], [(shape, kind)])[0]


def where(counts: Any, t: Any, new: Any, old: Any) -> Any:
    """`new` where the mask `counts` holds step t, else `old`; without a mask, `new`."""
    return new if counts is None else tf.where(at(counts, t), new, old)


def gradients(function: Callable[..., Any], given: Sequence[Any], upstream: Any) -> list[Any]:
    """The gradients of `function(*given)` with respect to each argument."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(given)
        result = function(*given)
    return list(tape.gradient(result, given, output_gradients=upstream))
