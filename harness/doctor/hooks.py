"""The private names of Keras, TensorFlow and PyTorch that doctor's hooks need, and what doctor cannot see without them.

They do not stand in ring's own table (ringscope/ring/internals/seam_table.py), because ranks of PyTorch and JAX may
have no TensorFlow and then cannot import ring.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from importlib import import_module

from .observations import Told

# What a hook sees -> the names that it needs, as module:name.
TABLE = {
    "steps of Keras on TensorFlow": (
        "keras.src.backend.tensorflow.trainer:TFEpochIterator",
        "keras.src.optimizers.base_optimizer:BaseOptimizer.apply",
        "keras.src.trainers.data_adapters.py_dataset_adapter:PyDatasetAdapter",
        "tensorflow.python.data.ops.iterator_ops:OwnedIterator.__next__",
    ),
    "steps of Keras on PyTorch": (
        "keras.src.callbacks.callback_list:CallbackList.on_train_batch_end",
        "keras.src.optimizers.base_optimizer:BaseOptimizer.apply",
    ),
    "steps of Keras on JAX": ("keras.src.models.model:Model.make_train_function",),
    "calls of DistributedDataParallel": ("torch.nn.parallel.distributed:DistributedDataParallel._pre_forward",),
    "steps of DeepSpeed": ("deepspeed.runtime.engine:DeepSpeedEngine._take_model_step",),
    "samples of a DataLoader": ("torch.utils.data.dataloader:_BaseDataLoaderIter.__next__",),
}


def lay(told: Told, seen: str, hook: Callable[[], None]) -> None:
    """Call `hook` if all names that it needs exist; else record the missing ones in `told`."""
    absent = [name for name in TABLE[seen] if not _is_there(name)]
    if absent:
        told.write({"kind": "unseen", "what": seen, "absent": absent})
    else:
        hook()


def _is_there(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError):
        return False
    return True
