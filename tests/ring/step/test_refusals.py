"""What is said of a step that XLA refuses: TensorFlow's own words for why, wherever it puts them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from profiles.ground.errors import RingscopeError

tf = pytest.importorskip("tensorflow")
choose = pytest.importorskip("ringscope.ring.step.choose")


def _strings(x: Any) -> Any:
    return tf.strings.as_string(x)


def _computed_shape(x: Any) -> Any:
    return tf.reshape(x, tf.cast(x[:1], tf.int32))


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an operation": (_strings, "XLA has no kernel for AsString)"),
    "a shape": (_computed_shape, "Input to reshape is a tensor with 3 values, but the requested shape has 1)"),
}


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("why", REFUSED)
def test_the_reason_is_said_however_deep_it_lies(why: str, depth: int) -> None:
    take, words = REFUSED[why]
    function = tf.function(take, jit_compile=True, autograph=False)
    for _ in range(depth):
        function = tf.function(lambda x, inner=function: inner(x), autograph=False)
    x = tf.ones([3])
    with pytest.raises(RingscopeError, match=r"^XLA does not compile this step \(") as refused:
        choose.Chooser(falls_back=False).run(lambda compiled: function(x), x)
    said = str(refused.value).partition("(")[2]
    assert said.startswith(words)
    assert "_Xla" not in said and said.endswith("); use step='auto' or step='fit'")


@pytest.mark.parametrize("kind", [kind for kind in choose.REFUSALS if issubclass(kind, RingscopeError)])
def test_what_ring_itself_refuses_is_said_alike(kind: type[RingscopeError]) -> None:
    def take(compiled: bool) -> Any:
        raise kind("the step draws\n{{node a/b}}")

    with pytest.raises(RingscopeError) as refused:
        choose.Chooser(falls_back=False).run(take, [])
    assert re.fullmatch(
        r"XLA does not compile this step \(.*the step draws\); use step='auto' or step='fit'", str(refused.value)
    )


def test_an_option_by_which_steps_train_wrongly_is_refused_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in ("", "--xla_gpu_command_buffer_scheduling_mode=LHS --xla_gpu_enable_triton_gemm=false"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        choose.check_options()
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x --xla_gpu_command_buffer_scheduling_mode=CONCURRENT")
    with pytest.raises(RingscopeError, match="train wrongly; remove it, or use step='fit'$"):
        choose.check_options()


def test_auto_names_the_option_for_which_it_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "has_gpu", lambda: True)
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert choose.resolved(model, 1, 1)[0] == "compiled"
    step, why = choose.resolved(model, 1, 4)
    assert step == "fit" and "groups=" in why
