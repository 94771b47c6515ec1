"""What may be sharded, and how the parts of three ranks make up the weights and the optimizer's state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profiles.ground.errors import RingscopeError

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.gradients.zero import parts, sharded  # noqa: E402

RANKS, SHAPES = 3, [(3, 4), (5,), (2,)]
NUMBERS = np.arange(19, dtype="float32")  # one for each number of the weights


def weights(dtype: str = "float32") -> list[Any]:
    return [keras.Variable(np.zeros(shape), dtype=dtype, name=f"weight{i}") for i, shape in enumerate(SHAPES)]


def assign(variables: list[Any], numbers: Any) -> None:
    """Each variable takes as many of the numbers as it has, in their order."""
    ends = np.cumsum([int(np.prod(variable.shape)) for variable in variables])
    for variable, values in zip(variables, np.split(numbers, ends[:-1]), strict=True):
        variable.assign(values.reshape(variable.shape))


@pytest.fixture
def every_rank(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a function once as each rank, and returns what it returned on each. Before that, this is rank 0."""
    monkeypatch.setattr(parts.hvd, "size", lambda: RANKS)
    monkeypatch.setattr(parts.hvd, "rank", lambda: 0)

    def call(function: Any) -> list[Any]:
        found = []
        for rank in range(RANKS):
            monkeypatch.setattr(parts.hvd, "rank", lambda rank=rank: rank)
            found.append(function())
        return found

    return call


def test_the_parts_of_all_ranks_are_the_weights_and_are_of_one_length(every_rank: Any) -> None:
    def part() -> tuple[Any, Any]:
        own, variables = parts.Parts(keras.optimizers.SGD()), weights()
        assign(variables, NUMBERS)
        own.cut(variables)
        own.read()
        vector = own.joined([segment.value for segment in own.segments])
        assert [len(piece) for piece in own.split(vector)] == [segment.shape[0] for segment in own.segments]
        return own, vector

    found = every_rank(part)
    vectors = np.stack([vector for _, vector in found])
    assert vectors.shape == (RANKS, 7)
    assert vectors.ravel().tolist() == [*NUMBERS, 0, 0]
    for own, _ in found:
        back = [np.ravel(value) for value in own.whole(tf.constant(vectors.ravel()))]
        assert np.concatenate(back).tolist() == NUMBERS.tolist()


def state(own: Any) -> Any:
    """The rank's part of the momenta, padded."""
    return own.joined([variable.value for variable in own.state()])


def built(variables: list[Any]) -> tuple[Any, Any]:
    optimizer = keras.optimizers.SGD(momentum=0.9)
    own = parts.Parts(optimizer)
    optimizer.build(variables)
    return optimizer, own


def test_state_that_an_optimizer_has_is_cut_like_its_weights(every_rank: Any) -> None:
    def part() -> Any:
        variables = weights()
        optimizer, own = built(variables)
        assign(optimizer.momentums, NUMBERS)
        own.cut(variables)
        return state(own)

    assert np.concatenate(every_rank(part)).tolist() == [*NUMBERS, 0, 0]


def test_each_rank_loads_its_part_and_what_all_have(every_rank: Any) -> None:
    whole = keras.optimizers.SGD(0.25, momentum=0.9)
    whole.build(weights())
    assign(whole.momentums, NUMBERS)
    whole.iterations.assign(5)
    store: dict[str, Any] = {}
    whole.save_own_variables(store)

    def part() -> Any:
        variables = weights()
        optimizer, own = built(variables)
        own.cut(variables)
        optimizer.load_own_variables(store)
        assert (int(optimizer.iterations), float(optimizer.learning_rate)) == (5, 0.25)
        with pytest.raises(RingscopeError, match=r"call ring.gather\(model\) on all ranks before it is saved"):
            optimizer.save_own_variables({})
        return state(own)

    assert np.concatenate(every_rank(part)).tolist() == [*NUMBERS, 0, 0]


def test_an_optimizer_that_has_no_parts_yet_is_saved_as_any_other(every_rank: Any) -> None:
    optimizer, _ = built(weights())
    store: dict[str, Any] = {}
    optimizer.save_own_variables(store)
    assert len(store) == len(optimizer.variables)


def test_weights_that_cannot_be_cut_are_refused(every_rank: Any) -> None:
    bound = keras.layers.Dense(2, kernel_constraint="non_neg", name="bound")
    bound.build((None, 3))
    known = (weights("float16"), "the weights here are float16"), (bound.weights, "bound/kernel has a constraint")
    for variables, why in known:
        with pytest.raises(RingscopeError, match=why):
            parts.Parts(keras.optimizers.SGD()).cut(variables)
    own, once = parts.Parts(keras.optimizers.SGD()), weights()
    own.cut(once)
    own.cut(once)
    with pytest.raises(RingscopeError, match="must update the same weights in each step"):
        own.cut(once[1:])


@pytest.mark.parametrize("name", sharded.ONE_BY_ONE)
def test_optimizers_that_update_each_number_by_itself_may_be_sharded(name: str) -> None:
    sharded.check_sharded([getattr(keras.optimizers, name)()], "none", op=("average", "average"))


@pytest.mark.parametrize(
    ("optimizers", "compression", "others", "why"),
    [
        (["SGD", "Adam"], "none", {}, "needs one optimizer, and this model has 2"),
        (["SGD"], "none", {"op": ("adasum", "average")}, "works only with op=average, not with op=adasum"),
        (["SGD"], "bf16", {}, "works only with compression=none or fp32 or fp16, not with compression=bf16"),
        (["Adafactor"], "none", {}, "Adafactor would train something else on parts of a weight"),
        (["Lamb"], "none", {}, "Lamb would train something else on parts of a weight"),
    ],
)
def test_what_cannot_be_sharded_is_refused(
    optimizers: list[str], compression: str, others: dict[str, Any], why: str
) -> None:
    with pytest.raises(RingscopeError, match=why):
        sharded.check_sharded([getattr(keras.optimizers, name)() for name in optimizers], compression, **others)


@pytest.mark.parametrize("options", [{"use_ema": True}, {"gradient_accumulation_steps": 2}])
def test_averages_and_sums_over_steps_that_keras_keeps_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RingscopeError, match="supports neither use_ema nor gradient_accumulation_steps"):
        sharded.check_sharded([keras.optimizers.Adam(**options)], "none")
