"""Run as a child: open each device file that is named, and say how that went.

open /dev/nvidiactl: ok
open /dev/nvidia0: EPERM (Operation not permitted)
"""

from __future__ import annotations

import errno
import os
import sys


def main(paths: list[str]) -> None:
    for path in paths:
        print(f"open {path}: ", end="", flush=True)  # the path is known even where the open never comes back
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            print(f"{errno.errorcode.get(error.errno or 0, error.errno)} ({os.strerror(error.errno or 0)})", flush=True)
        else:
            print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
