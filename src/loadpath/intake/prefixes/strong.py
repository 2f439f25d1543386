"""What only a program's output begins with: the evidence that what stands before it is a prefix."""

from __future__ import annotations

import re

STRONG = re.compile(
    r"\s*(?:(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\s+\d\d-\d\d \d\d:\d\d:\d\d"
    r"|\(?\w[\w .]*\bpid=\d+"
    r"|Traceback \(most recent call last\)"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
    r"|\[rank\d+\]:"
    r"|  File \"[^\"]+\", line \d+"
    r"|(?:[\w]+\.)*\w+(?:Error|Exception|Interrupt): "
    r"|(?:INFO|WARNING|ERROR): {2,}\S)"
)
