"""A look into a container, or into one started from an image for a moment: which of the GPU's parts arrived there.

One shell script that only reads: it needs nothing but /bin/sh in the image. It is announced before it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import msgspec

from loadpath.collect.probe import Machine, Sample
from loadpath.collect.programs import find_program
from loadpath.core.masking import mask

SECONDS = 90.0
"""An image's first start unpacks it; nvidia-smi inside may take its time."""
Announce = Callable[[str], None]
_PACKAGES = "torch vllm sglang sgl-kernel flashinfer-python flash-attn xformers triton tensorrt-llm lmdeploy transformers nvidia-cuda-runtime-cu12 nvidia-cuda-runtime nvidia-nccl-cu12 nvidia-nccl-cu13 nvidia-cudnn-cu12 nvidia-cudnn-cu13"  # noqa: E501
SCRIPT = r"""
T=; command -v timeout >/dev/null 2>&1 && T='timeout 15'
[ -r /etc/os-release ] && (. /etc/os-release; echo "os: $PRETTY_NAME")
for f in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-modeset /dev/dxg; do
  [ -e "$f" ] || continue
  if (exec 3<>"$f") 2>/dev/null; then echo "device: $f opened"; else echo "device: $f refused"; fi
done
D=$(echo "$LD_LIBRARY_PATH" | tr ':' ' ')
for d in $D /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/lib /lib64 /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
  for f in "$d"/libcuda.so.1 "$d"/libnvidia-ml.so.1; do [ -e "$f" ] && echo "library: $f $(readlink -f "$f")"; done
done
for f in /usr/local/cuda*/compat/libcuda.so.*.*; do [ -e "$f" ] && echo "compat: $f"; done
env | grep -E '^(NVIDIA_|CUDA_|NCCL_|LD_LIBRARY_PATH=|LD_PRELOAD=|PYTORCH_|TORCH_|HF_HOME=|VLLM_[A-Z_]*=)' |
  grep -vE '^[A-Z_]*(TOKEN|SECRET|PASSW|API_?KEY|AUTH)' | sed 's/^/env: /'
echo "shm: $(df -kP /dev/shm 2>/dev/null | tail -n 1)"
grep -E '^Max (locked memory|open files|stack size)' /proc/self/limits | sed 's/^/limit: /'
for f in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do [ -r "$f" ] && echo "memory: $(cat "$f")"; done
if command -v nvidia-smi >/dev/null 2>&1; then
  echo "smi-there: $(command -v nvidia-smi)"; $T nvidia-smi -L 2>&1 | head -n 20 | sed 's/^/smi: /'
fi
for p in python3 python /opt/venv/bin/python3 /opt/conda/bin/python3; do
  command -v "$p" >/dev/null 2>&1 || continue
  $T "$p" -c '
import importlib.metadata as m, sys
print("python:", sys.executable)
for n in sys.argv[1:]:
    try: print("package:", n, m.version(n))
    except Exception: pass
' PACKAGES 2>/dev/null && break
done
:
"""
_ASK = {"docker": ("--gpus", "all"), "podman": ("--device", "nvidia.com/gpu=all")}


def look(machine: Machine, image: str, container: str, announce: Announce) -> Iterator[Sample]:
    """Samples from inside `container`, and from a container of `image`, whichever are named."""
    if container:
        yield from _into(machine, container, announce)
    if image:
        yield from _from_image(machine, image, announce)


def _into(machine: Machine, name: str, announce: Announce) -> Iterator[Sample]:
    tool = _knows(machine, ("container", "inspect", name))
    if tool is None:
        yield _unknown(machine, f"container {name}", "inside-container")
        return
    settings = machine.run(
        [tool, "inspect", "--type", "container", name], name="inside-container-settings", kind="text"
    )
    yield msgspec.structs.replace(settings, data=mask(settings.data.decode("utf-8", "replace")).encode())
    yield _look(
        machine, [tool, "exec", name, "/bin/sh", "-c"], f"container {name}", tool, "", "inside-container", announce
    )


def _from_image(machine: Machine, image: str, announce: Announce) -> Iterator[Sample]:
    tool = _knows(machine, ("image", "inspect", image))
    if tool is None:
        yield _unknown(machine, f"image {image}", "inside-image")
        return
    ask = _ASK[tool.rpartition("/")[2]]
    name = f"loadpath-look-{os.getpid()}"
    begin = [tool, "run", "--rm", f"--name={name}", "--pull=never", "--network=none"]
    end = ["--entrypoint", "/bin/sh", image, "-c"]
    tried = _look(machine, [*begin, *ask, *end], f"image {image}", tool, " ".join(ask), "inside-image", announce)
    yield tried
    if tried.outcome == "timed-out":  # the client was ended, its container was not: it is ours, nobody else removes it
        machine.run([tool, "rm", "--force", name])
    elif tried.kind == "log":  # no GPU could be given: what the image holds is worth a look all the same
        yield _look(machine, [*begin, *end], f"image {image}", tool, "", "inside-image", announce)


def _knows(machine: Machine, asked: Sequence[str]) -> str | None:
    """The container engine that has this container or image."""
    for name in ("docker", "podman"):
        if (tool := find_program(machine, name)) and machine.run([tool, *asked]).outcome == "ok":
            return tool
    return None


def _unknown(machine: Machine, place: str, name: str) -> Sample:
    tools = [tool for tool in ("docker", "podman") if find_program(machine, tool)]
    note = (
        f"{' and '.join(tools)} {'have' if len(tools) > 1 else 'has'} no {place} here"
        if tools
        else "neither docker nor podman is here"
    )
    return Sample(name, "inside", f"docker|podman inspect {place.partition(' ')[2]}", outcome="missing", note=note)


def _look(
    machine: Machine, argv: Sequence[str], place: str, tool: str, asked: str, name: str, announce: Announce
) -> Sample:
    """Run the script, announced first. What the container engine says instead of starting it is kept as a log."""
    shown = f"{' '.join(argv)} '{_TITLE}'"
    announce(f"running: {shown}")
    said = machine.run(
        [*argv, SCRIPT.replace("PACKAGES", _PACKAGES)], max(SECONDS, machine.timeout_s), name=name, kind="inside"
    )
    said = msgspec.structs.replace(said, command=shown)
    if said.outcome == "ok" or b"shm: " in said.data:
        head = f"place: {place}\ntool: {tool.rpartition('/')[2]}\nasked: {asked}\n".encode()
        return msgspec.structs.replace(said, data=head + said.data)
    return msgspec.structs.replace(said, kind="log", note=said.note or f"no look into {place}")


_TITLE = "… ls /dev/nvidia*; env; df /dev/shm; nvidia-smi -L; python3 -c 'importlib.metadata …'"
