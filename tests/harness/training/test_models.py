"""The models are what their names say."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("tensorflow")

from benchmarks import horovod_512
from harness.training import facts
from harness.training.models import MODELS, build
from harness.training.strategies import multiworker
from profiles.ground.errors import RingscopeError
from ringscope import ring
from tests.tiers import few

pytestmark = [pytest.mark.train, pytest.mark.beside]
# The paper's or keras.applications' own counts, with 1000 classes.
PUBLISHED = {"dense41m": 41_157_101, "resnet50": 25_636_712, "inception3": 23_851_784, "vgg16": 138_357_544}


@pytest.mark.parametrize("name", few(PUBLISHED, 4))
def test_parameters_are_as_published(name: str) -> None:
    assert build(name).count_params() == PUBLISHED[name]


@pytest.mark.parametrize("name", few(horovod_512.PUBLISHED))
def test_the_gradients_of_horovods_512_gpus_are_those_of_the_models(name: str) -> None:
    import keras

    keras_name = {"Inception V3": "InceptionV3", "ResNet-101": "ResNet101", "VGG-16": "VGG16"}[name]
    model = getattr(keras.applications, keras_name)(weights=None)
    trainable = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    assert horovod_512.PUBLISHED[name].step_bytes == 4 * trainable


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (build("mlp", seed=seed).get_weights() for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["mlp", "cnn_cifar", "gru_generic", "lstm"])
def test_weights_and_logits_are_float32_in_every_precision(name: str, precision: str) -> None:
    import keras

    model = build(name, input_dtype="uint8", precision=precision)
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}
    assert model.outputs[0].dtype == "float32"
    assert model.outputs[0].shape == (None, MODELS[name].classes)
    assert model.inputs[0].dtype == "uint8"
    assert keras.mixed_precision.dtype_policy().name == precision


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_generic_cell_computes_what_the_cudnn_capable_one_does(kind: str) -> None:
    import numpy as np

    capable, generic = build(kind), build(f"{kind}_generic")
    generic.set_weights(capable.get_weights())
    x = np.random.default_rng(0).normal(size=(2, 128, 64)).astype("float32")
    np.testing.assert_allclose(generic(x), capable(x), atol=1e-5)


def test_weights_that_are_not_on_the_gpu_that_is_there_are_no_measurement() -> None:
    with pytest.raises(RingscopeError, match="is placed on .*CPU:0, not on a GPU"):
        facts.check_on_gpu(build("dense2"))


@pytest.mark.parametrize("gpus", [0, 1])
def test_multiworker_is_told_of_the_gpu_of_each_rank(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    """Nobody else tells it, and a host without GPUs cannot run it: what it is given is looked at."""
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"] * gpus)
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda resolver, options: (resolver, options))
    monkeypatch.setattr(ring, "rank", lambda: 1)
    resolver, options = multiworker._over([("one", 5), ("other", 6)])
    assert resolver.num_accelerators() == {"GPU": gpus} and resolver.task_id == 1
    assert resolver.cluster_spec().as_dict() == {"worker": ["one:5", "other:6"]}
    assert options.implementation.name == ("NCCL" if gpus else "RING")
