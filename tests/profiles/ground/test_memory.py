"""The memory that new processes may use, in a container and outside."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from profiles.ground.memory import available_bytes

GIB = 1 << 30
VERSION_2 = {
    "memory.max": f"{4 * GIB}\n",
    "memory.current": f"{3 * GIB}\n",
    "memory.stat": f"anon {GIB}\nfile {2 * GIB}\ninactive_anon 7\ninactive_file {GIB}\nactive_file {GIB}\n",
}
VERSION_1 = {
    "memory/memory.limit_in_bytes": f"{4 * GIB}\n",
    "memory/memory.usage_in_bytes": f"{3 * GIB}\n",
    "memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    free = psutil.virtual_memory()._replace(available=64 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)


def group(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1])
def test_in_a_container_its_limit_counts_less_what_it_uses_and_cannot_free(
    files: dict[str, str], tmp_path: Path
) -> None:
    assert available_bytes(group(tmp_path, files)) == 2 * GIB


def test_without_a_limit_the_hosts_memory_counts(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == 64 * GIB
    assert available_bytes(group(tmp_path, VERSION_2 | {"memory.max": "max\n"})) == 64 * GIB


def test_a_container_above_its_limit_has_nothing_left(tmp_path: Path) -> None:
    over = {"memory.current": f"{6 * GIB}\n"}
    assert available_bytes(group(tmp_path, VERSION_2 | over)) == 0
