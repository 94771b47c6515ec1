"""Tables and columns of the recordings that are written here, with the default of each column."""

from __future__ import annotations

from typing import Any

TYPES = {int: "INTEGER NOT NULL", str: "TEXT", bytes: "BLOB NOT NULL", type(None): "INTEGER"}

_NSYS_OPERATION: dict[str, Any] = {
    "start": 0, "end": 0, "deviceId": 0, "contextId": 0, "greenContextId": None, "streamId": 0, "correlationId": None,
    "globalPid": None,
}  # fmt: skip
# What a kernel has beside its times and names.
NSYS_KERNEL: dict[str, Any] = {
    "launchType": 1, "cacheConfig": 1, "registersPerThread": 32, "gridX": 128, "gridY": 1, "gridZ": 1, "blockX": 256,
    "blockY": 1, "blockZ": 1, "staticSharedMemory": 0, "dynamicSharedMemory": 0, "localMemoryPerThread": 0,
    "localMemoryTotal": 250871808, "gridId": 40995, "sharedMemoryExecuted": 8192, "graphNodeId": None,
    "sharedMemoryLimitConfig": 0,
}  # fmt: skip
NSYS: dict[str, dict[str, Any]] = {
    "StringIds": {"id": 0, "value": ""},
    "META_DATA_EXPORT": {"name": "", "value": ""},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": 0, "utcTime": "", "localTime": ""},
    "TARGET_INFO_GPU": {"vmId": 0, "id": 0, "name": "", "busLocation": "", "uuid": "", "cuDevice": 0,
        "smCount": None},
    "NVTX_EVENTS": {
        "start": 0, "end": None, "eventType": 0, "rangeId": None, "category": None, "color": None, "text": "",
        "globalTid": None, "endGlobalTid": None, "textId": None, "domainId": None,
    },
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        **_NSYS_OPERATION, "demangledName": 0, "shortName": 0, "mangledName": None, **NSYS_KERNEL,
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {
        **_NSYS_OPERATION, "bytes": 0, "copyKind": 0, "deprecatedSrcId": None, "srcKind": None, "dstKind": None,
        "srcDeviceId": None, "srcContextId": None, "dstDeviceId": None, "dstContextId": None, "migrationCause": None,
        "graphNodeId": None, "virtualAddress": None, "copyCount": None,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {**_NSYS_OPERATION, "value": 0, "bytes": 0, "graphNodeId": None, "memKind": None},
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        "start": 0, "end": 0, "eventClass": 0, "globalTid": None, "correlationId": None, "nameId": 0, "returnValue": 0,
        "callchainId": None,
    },
}  # fmt: skip
NSYS_META = [
    ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
    ("EXPORT_PRODUCT_VERSION", "2025.3.2.0"),
    ("EXPORT_SCHEMA_VERSION", "3.20.3"),
]

_NVPROF_WHERE: dict[str, Any] = {"start": 0, "end": 0, "deviceId": 0, "contextId": 0, "streamId": 0}
_NVPROF_KERNEL: dict[str, Any] = {
    "_id_": 0, "cacheConfig": b"0", "sharedMemoryConfig": 0, "registersPerThread": 32,
    "partitionedGlobalCacheRequested": 1, "partitionedGlobalCacheExecuted": 1, "start": 0, "end": 0, "completed": 0,
    "deviceId": 0, "contextId": 0, "streamId": 0, "gridX": 128, "gridY": 1, "gridZ": 1, "blockX": 256, "blockY": 1,
    "blockZ": 1, "staticSharedMemory": 0, "dynamicSharedMemory": 0, "localMemoryPerThread": 0,
    "localMemoryTotal": 193986560, "correlationId": 0, "gridId": 5, "name": 0, "queued": 0, "submitted": 0,
    "launchType": 0, "isSharedMemoryCarveoutRequested": 0, "sharedMemoryCarveoutRequested": 0,
    "sharedMemoryExecuted": 8192, "graphNodeId": 0, "shmemLimitConfig": 0,
}  # fmt: skip
_NVPROF_COPY: dict[str, Any] = {
    "_id_": 0, "copyKind": 0, "srcKind": 0, "dstKind": 0, "flags": 0, "bytes": 0, **_NVPROF_WHERE,
}  # fmt: skip
_NVPROF_CALL: dict[str, Any] = {
    "_id_": 0, "cbid": 0, "start": 0, "end": 0, "processId": 0, "threadId": 0, "correlationId": 0, "returnValue": 0,
}  # fmt: skip
NVPROF: dict[str, dict[str, Any]] = {
    "StringTable": {"_id_": 0, "value": ""},
    "Version": {"version": 0},
    "CUPTI_ACTIVITY_KIND_KERNEL": _NVPROF_KERNEL,
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": _NVPROF_KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": {**_NVPROF_COPY, "correlationId": 0, "runtimeCorrelationId": 0, "graphNodeId": 0},
    "CUPTI_ACTIVITY_KIND_MEMCPY2": {
        **_NVPROF_COPY, "srcDeviceId": 0, "srcContextId": 1, "dstDeviceId": 0, "dstContextId": 1, "correlationId": 0,
        "graphNodeId": 0,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {
        "_id_": 0, "value": 0, "bytes": 0, **_NVPROF_WHERE, "correlationId": 0, "flags": 0, "memoryKind": 0,
        "graphNodeId": 0,
    },
    "CUPTI_ACTIVITY_KIND_RUNTIME": _NVPROF_CALL,
    "CUPTI_ACTIVITY_KIND_DRIVER": _NVPROF_CALL,
    "CUPTI_ACTIVITY_KIND_MARKER": {
        "_id_": 0, "flags": 0, "timestamp": 0, "id": 0, "objectKind": 0, "objectId": b"", "name": 0, "domain": 0,
    },
    "CUPTI_ACTIVITY_KIND_DEVICE": {"_id_": 0, "id": 0, "uuid": b"", "name": 0},
}  # fmt: skip

# Columns of a trace with peer copies, and the unit of each.
NVPROF_CSV = {
    "Start": "ms", "Duration": "us", "Grid X": "", "Grid Y": "", "Grid Z": "", "Block X": "", "Block Y": "",
    "Block Z": "", "Registers Per Thread": "", "Static SMem": "B", "Dynamic SMem": "B", "Size": "KB",
    "Throughput": "GB/s", "SrcMemType": "", "DstMemType": "", "Device": "", "Context": "", "Stream": "", "Src Dev": "",
    "Src Ctx": "", "Dst Dev": "", "Dst Ctx": "", "Name": "", "Correlation_ID": "",
}  # fmt: skip
