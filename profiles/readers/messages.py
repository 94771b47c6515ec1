"""Make classes of protobuf messages from the compiled descriptor files (*.desc) in this folder."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any


@functools.cache
def message(description: str, name: str) -> type[Any]:
    """The class of a protobuf message. `description`: a descriptor file in this folder, such as xplane.desc. It gets
    its own descriptor pool, since TensorFlow registers the same names in the default pool."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    compiled = Path(__file__).with_name(description).read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.AddSerializedFile(file.SerializeToString())
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found
