"""`loadpath check` on a saved machine's software: the exit status, the environment that is named, what --json gives."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from fake_python import FakePython
from loadpath.cli.main import main
from tiny_elf import library

SOFTWARE = ("--layer", "library-set", "--layer", "framework", "--layer", "compiled-kernels", "--layer", "cuda-runtime")


def test_a_broken_extension_is_the_cause(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.torch()
    made.package("vllm", "0.10.2", {"vllm/_C.abi3.so": library(needed=["libc10.so"], asks=["_ZN3c103oldEv"])})
    result = CliRunner().invoke(main, ["check", "--root", str(tmp_path), *SOFTWARE, "--json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["root_cause"]) == (1, "torch-abi-mismatch")
    assert {row["layer"]: row["state"] for row in report["layers"]}["library-set"] == "broken"


def test_the_environment_that_is_named_is_meant(tmp_path: Path) -> None:
    made = FakePython(tmp_path)
    made.torch()
    made.put(
        "/srv/llm/env/lib/python3.11/site-packages/torch/version.py", "__version__ = '2.8.0+cu126'\ncuda = '12.6'\n"
    )
    result = CliRunner().invoke(
        main, ["check", "--root", str(tmp_path), "--python", "/srv/llm/env/bin/python", *SOFTWARE, "--json"]
    )
    (torch,) = [
        fact for fact in json.loads(result.stdout)["facts"] if fact["type"] == "TorchInstalled" and fact["chosen"]
    ]
    assert torch["version"] == "2.8.0+cu126"
