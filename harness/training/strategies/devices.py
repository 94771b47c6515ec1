"""The devices of a process that drives several: its share of the host's GPUs, or as many logical CPUs."""

from __future__ import annotations

import tensorflow as tf

from profiles.ground.errors import RingscopeError


def take(device: str, count: int, *, local_rank: int = 0) -> list[str]:
    """Names of `count` devices of the same kind as `device`. GPUs come after those of lower local ranks.

    Without GPUs the devices are logical parts of the CPU, which TensorFlow must not have used before. Raises
    RingscopeError if there are too few GPUs.
    """
    kind = device.strip("/").split(":")[0]
    physical = tf.config.list_physical_devices(kind)
    if kind == "CPU":
        made = tf.config.get_logical_device_configuration(physical[0]) or ()
        if len(made) < count:
            tf.config.set_logical_device_configuration(
                physical[0], [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
            )
    else:
        first = local_rank * count
        if len(physical) < first + count:
            raise RingscopeError(
                f"the ranks need {first + count} GPUs, and {len(physical)} can be seen; ask for fewer ranks"
            )
        tf.config.set_visible_devices(physical[first : first + count], kind)
    return [f"/{kind}:{i}" for i in range(count)]
