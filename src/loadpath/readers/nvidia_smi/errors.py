"""nvidia-smi that did not answer at all: said by the shell or by the tool itself, wherever it stands in a paste.

The messages that are findings by themselves have rows in the findings tables; here are those that rules join with
other facts (a GPU in lspci, the rows of other GPUs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from loadpath.core.facts.base import at
from loadpath.core.facts.gpu import SmiFailed
from loadpath.core.text import Capture


@cache
def _messages() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(text, re.IGNORECASE), how)
        for text, how in (
            (r"nvidia-smi: (?:command )?not found", "command-not-found"),
            (r"command not found: nvidia-smi", "command-not-found"),
            (r"Command 'nvidia-smi' not found", "command-not-found"),
            (r"exec: \"nvidia-smi\": executable file not found", "command-not-found"),
            (r"(?:'nvidia-smi' is not recognized|The term 'nvidia-smi' is not recognized)", "command-not-found"),
            (r"No such file or directory: '?nvidia-smi", "command-not-found"),
            (r"nvidia-smi: No such file or directory", "command-not-found"),
            (r"couldn't communicate with the NVIDIA driver", "no-driver"),
            (r"Failed to initialize NVML: Driver Not Loaded", "no-driver"),
            (r"^No devices were found", "no-devices"),
        )
    )


def read(capture: Capture) -> Iterator[SmiFailed]:
    for line in capture.lines:
        low = line.text.lower()
        if "nvidia" not in low and "no devices" not in low:
            continue
        how = next((how for pattern, how in _messages() if pattern.search(line.text)), None)
        if how is not None and not line.prose:
            yield SmiFailed(**at(capture, line), how=how)  # type: ignore[arg-type]
