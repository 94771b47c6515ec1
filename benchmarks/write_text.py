"""A generated run as the text files of nvprof and PyTorch's profiler, exact to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from . import schemas
from .tables import EPOCH_NS, Tables, chunks
from .training import Shape, one_process


def write_nvprof_csv(shape: Shape, path: Path, gpus: range | None = None) -> None:
    """What `nvprof --print-gpu-trace --csv` prints: start in ms, duration in us, both to the nanosecond; no calls."""
    gpus = gpus if gpus is not None else range(shape.gpus)
    one_process(shape, gpus)
    pid = shape.pid(gpus[0])
    with path.open("wb") as file:
        for line in (
            "NVPROF is profiling process {}, command: python train.py",
            "Profiling application: python train.py",
        ):
            file.write(f"=={pid}== {line.format(pid)}\n".encode())
        file.write(f"=={pid}== Profiling result:\n".encode())
        file.write((",".join(f'"{column}"' for column in schemas.NVPROF_CSV) + "\n").encode())
        file.write((",".join(schemas.NVPROF_CSV.values()) + "\n").encode())
        for tables in chunks(shape, gpus):
            operations = _operations(tables)
            device = pc.binary_join_element_wise("NVIDIA Generated (", _str(operations["device"]), ")", "")
            kind = operations["what"]
            grid = np.where(kind == "kernel", "128,1,1,256,1,1,32,0,0", ",,,,,,,,")
            size = np.where(kind == "kernel", "", _kilobytes(operations["bytes"]))
            peers = [_peer(operations[f"{end}_device"]) for end in ("src", "dst")]
            memory = [operations[f"{end}_kind"].astype(object).fillna("").str.capitalize() for end in ("src", "dst")]
            cells = [
                _decimal(operations["start_ns"], 6), _decimal(operations["duration_ns"], 3), grid, size,
                np.where(size == "", "", "1.000000"), *map(_quoted, memory), _quoted(device),
                _quoted(_str(operations["context"])), _quoted(_str(operations["stream"])),
                peers[0], np.where(peers[0] == "", "", '"1"'), peers[1], np.where(peers[1] == "", "", '"1"'),
                _quoted(operations["printed"]), _str(operations["correlation"]),
            ]  # fmt: skip
            _lines(file, pc.binary_join_element_wise(*(_text(cell) for cell in cells), ","))


def write_kineto(shape: Shape, path: Path, gpus: range | None = None) -> None:
    """What PyTorch's profiler writes of one process: JSON, microseconds of the epoch with three decimals."""
    gpus = gpus if gpus is not None else range(shape.gpus)
    one_process(shape, gpus)
    rank = gpus[0] * shape.processes // shape.gpus
    listed = ",".join(f'{{"id":{gpu},"name":"NVIDIA Generated"}}' for gpu in gpus)
    with path.open("wb") as file:
        ranks = f'{{"backend":"nccl","rank":{rank},"world_size":{shape.processes}}}'
        head = f'{{"schemaVersion":1,"deviceProperties":[{listed}],"distributedInfo":{ranks},"traceEvents":[\n'
        file.write(head.encode())
        for tables in chunks(shape, gpus):
            operations, api, marks = _operations(tables), tables["api"], tables["marks"]
            category = operations["what"].map({"kernel": "kernel", "copy": "gpu_memcpy", "memset": "gpu_memset"})
            device, stream = _str(operations["device"]), _str(operations["stream"])
            peer = operations["src_device"] >= 0
            ends = [_str(operations[f"{end}_device"]) for end in ("src", "dst")]
            ends = pc.binary_join_element_wise('"fromDevice":', ends[0], ',"toDevice":', ends[1], ',"inDevice":', "")
            kernel = operations["what"] == "kernel"
            args = [
                ',"args":{', pc.if_else(pa.array(peer), ends, '"device":'), device, ',"context":1,"stream":', stream,
                ',"correlation":', _str(operations["correlation"]),
                np.where(kernel, "", ',"bytes":'), np.where(kernel, "", operations["bytes"].astype(str)), "}},",
            ]  # fmt: skip
            event = ['{"ph":"X","cat":"', category, '","name":"', operations["kineto"], '","pid":', device, ',"tid":']
            _lines(file, _joined([*event, stream, *_kineto_times(operations), *args]))
            event = ['{"ph":"X","cat":"cuda_runtime","name":"', api["name"], '","pid":', _str(api["pid"])]
            args = [',"args":{"correlation":', _str(api["correlation"]), "}},"]
            _lines(file, _joined([*event, ',"tid":', _str(api["tid"]), *_kineto_times(api), *args]))
            event = ['{"ph":"X","cat":"user_annotation","name":"', marks["name"], '","pid":', _str(marks["pid"])]
            _lines(file, _joined([*event, ',"tid":', _str(marks["tid"]), *_kineto_times(marks), "},"]))
        file.write(b'{"ph":"i","s":"g","name":"Record Window End","pid":"","tid":"","ts":1}]}\n')


def _operations(tables: Tables) -> pd.DataFrame:
    """All operations of a chunk by start, with `what` they are and their names as nvprof and Kineto print them."""
    kernels = tables["kernels"].assign(what="kernel", printed=lambda t: t["name"].astype(str))
    copies = tables["copies"].assign(what="copy")
    ways = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "p2p": "PtoP"}
    way = copies["kind"].astype(str).map(ways)
    kinds = [copies[f"{end}_kind"].astype(str).str.capitalize() for end in ("src", "dst")]
    copies = copies.assign(printed="[CUDA memcpy " + way + "]")
    copies = copies.assign(kineto="Memcpy " + way + " (" + kinds[0] + " -> " + kinds[1] + ")")
    memsets = tables["memsets"].assign(what="memset", printed="[CUDA memset]", kineto="Memset (Device)")
    whole = pd.concat([kernels.assign(kineto=kernels["printed"]), copies, memsets], ignore_index=True)
    peers = whole[["src_device", "dst_device"]].fillna(-1).astype(np.int64)
    whole = whole.assign(duration_ns=whole["end_ns"] - whole["start_ns"], src_device=peers["src_device"])
    whole = whole.assign(dst_device=peers["dst_device"], bytes=whole["bytes"].fillna(0).astype(np.int64))
    return whole.sort_values("start_ns", kind="stable", ignore_index=True)


def _kineto_times(rows: pd.DataFrame) -> list[Any]:
    start = rows["start_ns"].to_numpy() + EPOCH_NS
    return [',"ts":', _decimal(start, 3), ',"dur":', _decimal(rows["end_ns"] - rows["start_ns"], 3)]


def _decimal(numbers: Any, places: int) -> pa.Array:
    """Non-negative integers divided by 10**places, exactly."""
    whole, rest = np.divmod(np.asarray(numbers), 10**places)
    return pc.binary_join_element_wise(_str(whole), pc.utf8_lpad(_str(rest), places, "0"), ".")


def _kilobytes(sizes: pd.Series) -> np.ndarray:
    """Kilobytes as nvprof prints them: six decimals."""
    return (sizes / 1024).map("{:.6f}".format).to_numpy(dtype=object)


def _peer(devices: pd.Series) -> np.ndarray:
    return np.where(devices < 0, "", '"NVIDIA Generated (' + devices.astype(str) + ')"')


def _quoted(cells: Any) -> pa.Array:
    texts = _text(cells)
    return pc.if_else(pc.equal(texts, ""), "", pc.binary_join_element_wise('"', texts, '"', ""))


def _str(numbers: Any) -> pa.Array:
    return pc.cast(pa.array(np.asarray(numbers)), pa.string())


def _text(cells: Any) -> pa.Array:
    if isinstance(cells, pd.Series):
        cells = cells.astype(object).to_numpy()
    return cells if isinstance(cells, pa.Array) else pa.array(cells, pa.string())


def _joined(parts: Sequence[Any]) -> pa.Array:
    return pc.binary_join_element_wise(*(part if isinstance(part, str) else _text(part) for part in parts), "")


def _lines(file: Any, lines: pa.Array) -> None:
    """The bytes of the lines as Arrow holds them, each with its line end."""
    whole = pc.binary_join_element_wise(lines, "", "\n")
    offsets = np.frombuffer(whole.buffers()[1], dtype=np.int32)[whole.offset : whole.offset + len(whole) + 1]
    if len(whole):
        file.write(memoryview(whole.buffers()[2])[int(offsets[0]) : int(offsets[-1])])
