"""Planes of an XPlane, written event by event."""

from __future__ import annotations

from typing import Any


class Plane:
    """Adds events with statistics by name, as TensorFlow writes them."""

    def __init__(self, space: Any, name: str, **stats: Any) -> None:
        self.plane = space.planes.add(name=name)
        self.numbers: dict[tuple[str, str], int] = {}
        self._put(self.plane.stats, stats)

    def _number(self, table: str, name: str) -> int:
        number = self.numbers.setdefault((table, name), len(self.numbers) + 1)
        getattr(self.plane, table)[number].name = name
        getattr(self.plane, table)[number].id = number
        return number

    def _put(self, target: Any, stats: dict[str, Any]) -> None:
        for key, value in stats.items():
            stat = target.add(metadata_id=self._number("stat_metadata", key))
            if isinstance(value, int):
                stat.uint64_value = value
            elif key.endswith("details"):
                stat.ref_value = self._number("stat_metadata", value)
            else:
                stat.str_value = value

    def line(self, number: int, name: str, timestamp_ns: int, *events: tuple[str, int, int, dict[str, Any]]) -> None:
        line = self.plane.lines.add(id=number, name=name, timestamp_ns=timestamp_ns)
        for title, offset_ps, duration_ps, stats in events:
            event = line.events.add(offset_ps=offset_ps, duration_ps=duration_ps)
            event.metadata_id = self._number("event_metadata", title)
            self._put(event.stats, stats)
