"""How late the event loop wakes: what the client itself adds to every latency."""

from __future__ import annotations

import asyncio
import os
import time

from loadpath.core.traffic import ClientLoad, Spread
from loadpath.traffic.connections import clock
from loadpath.traffic.statistics import spread

EVERY = 0.01
LATE = 0.002
"""Later than this counts as late: timers of the loop are rounded up to a millisecond by themselves."""


class LagProbe:
    """A timer that notes how late it came; and the CPU time of the process."""

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self._handle: asyncio.TimerHandle | None = None
        self.late: list[tuple[float, float]] = []
        """(seconds from the epoch, lateness) of the wake-ups later than LATE."""
        self._all: list[float] = []
        self._began = self._cpu = 0.0
        self._cpu_end = self._ended = 0.0

    def start(self) -> None:
        self._began, self._cpu = clock(), time.process_time()
        self._schedule()

    def stop(self) -> None:
        if self._handle:
            self._handle.cancel()
        self._ended, self._cpu_end = clock(), time.process_time()

    def _schedule(self) -> None:
        self._due = clock() + EVERY
        self._handle = asyncio.get_running_loop().call_later(EVERY, self._wake)

    def _wake(self) -> None:
        now = clock()
        lateness = max(0.0, now - self._due)
        self._all.append(lateness)
        if lateness > LATE:
            self.late.append((now - self._epoch, lateness))
        self._schedule()

    def load(self, opened: int, reused: int) -> ClientLoad:
        """What was seen, after `stop`."""
        seconds = max(1e-9, self._ended - self._began)
        return ClientLoad(
            cpu_share=(self._cpu_end - self._cpu) / seconds,
            lag=spread(self._all) or Spread(0, 0, 0, 0, 0, 0, 0, 0),
            probe_seconds=EVERY,
            late_share=min(1.0, sum(late for _, late in self.late) / seconds),
            loop=type(asyncio.get_running_loop()).__module__.partition(".")[0],
            cores=os.cpu_count(),
            opened=opened,
            reused=reused,
        )
