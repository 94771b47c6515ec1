"""Steps that XLA would compile again each time: found before it compiles them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import keras
import pytest
import tensorflow as tf

from ringscope.ring.step import checks

IMAGE, NUMBER, KEPT = tf.ones((1, 8, 8, 3)), tf.Variable(2), tf.Variable(tf.zeros(12))
OTHER, SEVERAL = tf.Variable(2), tf.Variable([2, 3])


def _assigned(k: Any) -> Any:
    tf.raw_ops.ResourceStridedSliceAssign(ref=KEPT.handle, begin=[k], end=[k + 1], strides=[1], value=[1.0])
    return KEPT.read_value()


TAKES: dict[str, Any] = {  # operations, with a number k of 2 to 4
    "BatchToSpaceND": lambda k: tf.raw_ops.BatchToSpaceND(
        input=tf.ones((4, 4, 4)), block_shape=[2, 2], crops=[[k, 0], [0, 0]]
    ),
    "BroadcastTo": lambda k: tf.broadcast_to(1.0, [k]),
    "Conv2DBackpropInput": lambda k: tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[1, 8, 8, 3 * k // k],
        filter=tf.ones((1, 1, 3, 3)),
        out_backprop=IMAGE,
        strides=[1, 1, 1, 1],
        padding="SAME",
    ),
    "DenseBincount": lambda k: tf.raw_ops.DenseBincount(
        input=[0, 1], size=k, weights=tf.zeros([0]), binary_output=False
    ),
    "Fill": lambda k: tf.fill([k], 1.0),
    "LinSpace": lambda k: tf.raw_ops.LinSpace(start=0.0, stop=1.0, num=k),
    "ListDiff": lambda k: tf.raw_ops.ListDiff(x=[1, 2, 3], y=[k])[0],
    "MatrixDiagPartV3": lambda k: tf.linalg.diag_part(IMAGE[0, :, :, 0], k=k),
    "MatrixDiagV3": lambda k: tf.raw_ops.MatrixDiagV3(
        diagonal=[1.0, 2.0], k=k, num_rows=-1, num_cols=-1, padding_value=0.0
    ),
    "MatrixSetDiagV3": lambda k: tf.linalg.set_diag(IMAGE[0, :, :, 0], tf.ones(8), k=k * 0),
    "MirrorPad": lambda k: tf.pad(IMAGE, [[0, 0], [k, 0], [0, 0], [0, 0]], "REFLECT"),
    "OneHot": lambda k: tf.one_hot([0, 1], k),
    "Pad": lambda k: tf.pad(IMAGE, [[0, 0], [k, 0], [0, 0], [0, 0]]),
    "PadV2": lambda k: tf.pad(IMAGE, [[0, 0], [k, 0], [0, 0], [0, 0]], constant_values=1.0),
    "Range": tf.range,
    "Reshape": lambda k: tf.reshape(tf.zeros(120), [k, -1]),
    "ResizeBilinear": lambda k: tf.raw_ops.ResizeBilinear(images=IMAGE, size=[k, k], half_pixel_centers=True),
    "ResizeNearestNeighbor": lambda k: tf.raw_ops.ResizeNearestNeighbor(
        images=IMAGE, size=[k, k], half_pixel_centers=True
    ),
    "ResourceStridedSliceAssign": _assigned,
    "ReverseV2": lambda k: tf.reverse(IMAGE, [k - 1]),
    "Roll": lambda k: tf.roll(IMAGE, 1, k - 1),
    "ScatterNd": lambda k: tf.scatter_nd([[0]], [1.0], [k]),
    "Slice": lambda k: tf.slice(IMAGE, [0, 0, 0, 0], [1, k, 8, 3]),
    "SpaceToBatchND": lambda k: tf.raw_ops.SpaceToBatchND(
        input=IMAGE, block_shape=[2, 2], paddings=[[k - k % 2, 0], [0, 0]]
    ),
    "SplitV": lambda k: tf.split(IMAGE[0], [k, 8 - k]),
    "StatelessMultinomial": lambda k: tf.random.stateless_categorical([[0.5, 0.5]], k, [1, 2]),
    "StatelessRandomNormalV2": lambda k: tf.random.stateless_normal([k], [1, 2]),
    "StatelessRandomUniformIntV2": lambda k: tf.random.stateless_uniform([k], [1, 2], 0, 9, tf.int32),
    "StatelessRandomUniformV2": lambda k: tf.random.stateless_uniform([k], [1, 2]),
    "StatelessTruncatedNormalV2": lambda k: tf.random.stateless_truncated_normal([k], [1, 2]),
    "StridedSlice": lambda k: IMAGE[:, k],
    "TensorListReserve": lambda k: tf.TensorArray(tf.float32, k).write(0, 1.0).stack(),
    "TensorStridedSliceUpdate": lambda k: tf.raw_ops.TensorStridedSliceUpdate(
        input=KEPT + 0.0, begin=[k], end=[k + 1], strides=[1], value=[1.0]
    ),
    "Tile": lambda k: tf.tile([1.0, 2.0], [k]),
    "TopKV2": lambda k: tf.raw_ops.TopKV2(input=tf.ones(8), k=k)[0],
    "Transpose": lambda k: tf.transpose(IMAGE[0, :, :, 0], [k % 2, 1 - k % 2]),
    "UnsortedSegmentMax": lambda k: tf.math.unsorted_segment_max(IMAGE[0, 0], [0] * 8, k),
    "UnsortedSegmentMin": lambda k: tf.math.unsorted_segment_min(IMAGE[0, 0], [0] * 8, k),
    "UnsortedSegmentProd": lambda k: tf.math.unsorted_segment_prod(IMAGE[0, 0], [0] * 8, k),
    "UnsortedSegmentSum": lambda k: tf.math.unsorted_segment_sum(IMAGE[0, 0], [0] * 8, k),
}


def _added(k: Any, at: Any) -> Any:
    """The sum over a loop of three rounds; at: the round, and k -> a place."""
    taken = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, total: (i + 1, total + tf.reduce_sum(tf.slice(IMAGE, [0, at(i, k), 0, 0], [1, 2, 8, 3]))),
        [0, 0.0],
    )
    return taken[1]


def _other_assigned(_: Any) -> Any:
    tf.cond(NUMBER > 0, lambda: OTHER.assign(NUMBER + 1), lambda: OTHER.read_value())
    return tf.zeros([OTHER.read_value()])


WITHIN: dict[str, Any] = {
    "branch": lambda k: tf.cond(KEPT[0] > 0, lambda: tf.reduce_sum(IMAGE[:, k:]), lambda: 0.0),
    "loop": lambda k: _added(k, lambda i, k: k),
    "loop over samples": lambda k: tf.map_fn(lambda image: tf.slice(image, [k, 0, 0], [4, 8, 3]), IMAGE),
    "function": lambda k: tf.function(lambda k: tf.reduce_sum(tf.zeros([k])), autograph=False)(k),
    "function in a branch": lambda k: tf.cond(KEPT[0] > 0, lambda: WITHIN["function"](k), lambda: 0.0),
    "assigned in a branch": _other_assigned,
}


def _step(take: Any, *, assigns: bool = True) -> Any:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def step() -> Any:
        if assigns:
            NUMBER.assign(tf.where(NUMBER > 3, 2, NUMBER + 1))
        return [tf.reduce_sum(tf.cast(each, tf.float32)) for each in tf.nest.flatten(take(NUMBER.read_value()))]

    return step


def _graph(take: Any, **options: Any) -> Any:
    return _step(take, **options).get_concrete_function().graph


@pytest.mark.parametrize("kind", TAKES)
def test_a_size_or_place_that_the_step_changes_is_found(kind: str) -> None:
    with pytest.raises(checks.CompiledAnew, match="XLA would compile the step again each time") as raised:
        checks.check_sizes(_graph(TAKES[kind]))
    assert kind in str(raised.value) and "{{node " in str(raised.value)


@pytest.mark.parametrize("where", WITHIN)
def test_within_branches_loops_and_functions_too(where: str) -> None:
    with pytest.raises(checks.CompiledAnew):
        checks.check_sizes(_graph(WITHIN[where]))


def test_a_size_from_some_numbers_of_a_variable_is_found() -> None:
    def take(k: Any) -> Any:
        SEVERAL.assign([k, k])
        return tf.zeros([tf.gather(SEVERAL, 0)])

    with pytest.raises(checks.CompiledAnew):
        checks.check_sizes(_graph(take))


def test_all_operations_of_the_table_are_tried() -> None:
    assert TAKES.keys() == checks.WHILE_COMPILING.keys()


@pytest.mark.parametrize(
    "take",
    [
        lambda k: tf.gather(IMAGE, k, axis=1),
        lambda k: tf.roll(IMAGE, k, axis=1),
        lambda k: tf.range(tf.shape(IMAGE * tf.cast(k, tf.float32))[1]),
        lambda k: _added(k, lambda i, _: i),
        lambda k: tf.cond(k > 2, lambda: IMAGE[:, :2] * tf.cast(k, tf.float32), lambda: IMAGE[:, 2:4]),
        lambda k: keras.ops.where(tf.range(8) < k, 1.0, 0.0),
    ],
)
def test_what_reads_it_while_the_step_runs_passes(take: Any) -> None:
    checks.check_sizes(_graph(take))


def test_gradients_through_a_loop_over_what_the_step_changes_pass() -> None:
    """Their lists are as long as the loop's, which TensorFlow asks of the lists themselves."""
    given = keras.Sequential([keras.Input((4, 5)), keras.layers.Dense(5), keras.layers.GRU(3, reset_after=False)])

    def take(k: Any) -> Any:
        with tf.GradientTape() as tape:
            made = tf.reduce_sum(given(tf.ones((2, 4, 5)) * tf.cast(k, tf.float32)))
        weights = [each.value for each in given.trainable_weights]
        for weight, gradient in zip(weights, tape.gradient(made, weights), strict=True):
            weight.assign_sub(gradient)
        return made

    checks.check_sizes(_graph(take))


def test_a_function_of_tensorflow_1_passes() -> None:
    """Of which a loss for unaligned labels consists."""

    def take(k: Any) -> Any:
        return keras.losses.CTC()(tf.ones((2, 3), tf.int32), tf.ones((2, 8, 5)) * tf.cast(k, tf.float32))

    checks.check_sizes(_graph(take))


def test_a_number_that_others_change_between_steps_passes() -> None:
    checks.check_sizes(_graph(TAKES["StridedSlice"], assigns=False))


def _told(take: Any) -> str:
    """What is returned for a step of a batch: images, and lengths in which a constant is added up."""
    none = tf.zeros(3, tf.int32)

    def step(images: Any, lengths: Any) -> Any:
        return take(images, tf.reduce_max(lengths), tf.reduce_max(none))

    given = tf.TensorSpec((3, 8)), tf.TensorSpec((3,), tf.int32)
    return checks.check_sizes(tf.function(step, autograph=False).get_concrete_function(*given).graph)


def test_a_size_by_the_batch_s_numbers_is_told() -> None:
    assert _told(lambda images, longest, none: images[:, :longest]) == "StridedSlice"
    assert _told(lambda images, longest, none: tf.sequence_mask(tf.cast(images[:, 0], tf.int32))) == "Range"
    assert _told(lambda images, longest, none: images[:, : none + 2]) == ""
    assert _told(lambda images, longest, none: tf.range(tf.shape(images)[0] + tf.size(longest))) == ""


@pytest.mark.exhaustive
@pytest.mark.ci
def test_xla_compiles_them_again_each_time() -> None:
    """As XLA itself logs it: the table holds no operation that it would compile once."""
    logged = {"TF_CPP_VMODULE": "device_compiler=1", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "1"}
    script = (
        "import sys\nfrom tests.ring.step.test_checks import TAKES, WITHIN, _step\n"
        "for kind, take in (TAKES | WITHIN).items():\n    step = _step(take)\n"
        "    for _ in range(3):\n        print('STEP', kind, sep='\\t', file=sys.stderr, flush=True)\n        step()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | logged, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    compiled, now = Counter[str](), ""
    for line in done.stderr.splitlines():
        now = line.split("\t")[1] if line.startswith("STEP\t") else now
        if now:
            compiled[now] += "Compilation of XLA executable" in line
    assert compiled == dict.fromkeys(TAKES | WITHIN, 3)
