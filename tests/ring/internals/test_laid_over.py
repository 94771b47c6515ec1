"""Functions that ring lays over others: while it lasts, lifted meanwhile, and without a trace afterwards."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

import keras  # noqa: E402

from ringscope.ring.forms import forms  # noqa: E402
from ringscope.ring.global_batch import losses, normalization  # noqa: E402
from ringscope.ring.internals.laid_over import laid_for_good, laid_over, lifted  # noqa: E402


class Base:
    def inherited(self) -> str:
        return "own"

    @staticmethod
    def without_self() -> str:
        return "own"


class Owner(Base):
    pass


def ours(*_: Any) -> str:
    return "ring's"


def of_module() -> types.ModuleType:
    module = types.ModuleType("owner")
    module.inherited = lambda: "own"  # type: ignore[attr-defined]
    return module


def of_instance() -> Base:
    owner = Owner()
    owner.inherited = lambda: "own"  # type: ignore[method-assign]
    return owner


@pytest.mark.parametrize("made", [Owner, of_instance, of_module, lambda: type("Sub", (Base,), {}), lambda: Base])
def test_an_owner_is_as_it_was_afterwards_also_where_names_were_not_its_own(made: Callable[[], Any]) -> None:
    owner = made()
    before = dict(vars(owner))
    with pytest.raises(ZeroDivisionError), laid_over(owner, inherited=ours):
        assert owner.inherited() == "ring's"
        with laid_over(owner, inherited=lambda *_: "inner"):
            assert owner.inherited() == "inner"
        assert owner.inherited() == "ring's"
        raise ZeroDivisionError
    assert dict(vars(owner)) == before


def test_a_static_method_stays_one() -> None:
    with laid_over(Base, without_self=staticmethod(ours)):
        assert Base().without_self() == "ring's"
    assert Base().without_self() == "own"


@pytest.mark.parametrize("stays", [False, True])
def test_what_does_not_stay_is_lifted_and_laid_again(stays: bool) -> None:
    owner = Owner()
    with laid_over(owner, stays, inherited=ours):
        with lifted():
            assert owner.inherited() == ("ring's" if stays else "own")
            with laid_over(owner, inherited=lambda: "inner"):
                assert owner.inherited() == "inner"
        assert owner.inherited() == "ring's"
    assert not vars(owner)


def test_a_name_that_is_not_there_is_refused_and_nothing_laid() -> None:
    owner = Owner()
    with pytest.raises(AttributeError, match="lacking"), laid_over(owner, inherited=ours, lacking=ours):
        pass
    assert owner.inherited() == "own"


def test_what_is_laid_for_good_is_laid_once() -> None:
    owner = Owner()
    for _ in range(2):
        laid_for_good(owner, "inherited", lambda own: lambda: f"after {own()}")
    assert owner.inherited() == "after own" and owner.inherited.__name__ == "inherited"


def trained() -> keras.Model:
    kinds = keras.layers
    parts = [kinds.Conv2D(2, 3, strides=2), kinds.BatchNormalization(), kinds.MaxPooling2D(2), kinds.Flatten()]
    model = keras.Sequential([keras.Input((8, 8, 3)), *parts, kinds.Dense(1)])
    model.compile(keras.optimizers.Adam(), keras.losses.MeanSquaredError(), metrics=[Counted()])
    model.train_step((tf.ones((2, 8, 8, 3)), tf.ones((2, 1))))
    return model


class Counted(keras.metrics.Mean):
    def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        super().update_state(y_pred, sample_weight)


def test_methods_that_a_script_has_given_single_objects_are_there_after_a_traced_step() -> None:
    """They were deleted with what ring had laid over them."""
    model = trained()
    metric = model._compile_metrics.metrics[0]
    pool = model.layers[2]
    owners = {"compute_loss": model, "update_state": metric, "call": model._compile_loss}
    given = {name: getattr(owner, name) for name, owner in owners.items()} | {"pool": pool.call}
    for name, owner in owners.items():
        vars(owner)[name] = given[name]
    vars(pool)["call"] = given["pool"]
    tracked = vars(model._loss_tracker)["update_state"] = model._loss_tracker.update_state
    batch = tf.ones((2, 8, 8, 3)), tf.ones((2, 1))
    joined = losses.joined(model, 2, lambda own: own, model.train_step, batch, uneven=True)
    with joined, forms(model):
        assert vars(model)["compute_loss"] != given["compute_loss"]
        model.train_step(batch)
    assert {name: vars(owner)[name] for name, owner in owners.items()} | {"pool": vars(pool)["call"]} == given
    assert vars(model._loss_tracker)["update_state"] == tracked


def test_nothing_is_left_on_a_model_by_a_traced_step() -> None:
    model = trained()
    objects = [model, *model._flatten_layers(), *model.metrics, model._compile_loss, model.optimizer]

    def names() -> list[set[str]]:
        return [{name for name, value in vars(each).items() if callable(value)} for each in objects]

    before = names()
    batch = tf.ones((2, 8, 8, 3)), tf.ones((2, 1))
    with losses.joined(model, 2, lambda own: own, model.train_step, batch, uneven=True), forms(model):
        assert names() != before
        model.train_step(batch)
    assert names() == before


def test_normalisation_is_a_ranks_own_while_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = keras.layers.BatchNormalization(synchronized=True)
    model = keras.Sequential([keras.Input((2,)), layer])
    asked: list[str] = []
    monkeypatch.setattr(normalization, "sum_over_ranks", lambda values, name: asked.append(name) or values)
    normalization.synchronise(model)
    laid = dict(vars(layer))
    with normalization.alone(model):
        with lifted():
            model(tf.ones((4, 2)), training=True)
        assert not asked
    assert {name: vars(layer)[name] for name in ("_moments", "call")} == {n: laid[n] for n in ("_moments", "call")}
    model(tf.ones((4, 2)), training=True)
    assert len(asked) == 1
