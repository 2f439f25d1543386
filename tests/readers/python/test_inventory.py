"""Records of what lies on a machine → facts, with a line for a person; other lines are passed over."""

from __future__ import annotations

from typing import Any

import pytest

from loadpath.collect.records import record
from loadpath.core.facts import binaries
from loadpath.core.facts.base import Fact
from loadpath.core.facts.stack import ComponentVersion
from loadpath.core.text import Capture, Line
from loadpath.readers.python.inventory import read


def facts(*lines: str) -> list[Fact]:
    return list(
        read(Capture("inventory", "gpu-code.txt", tuple(Line(n, text, text) for n, text in enumerate(lines, 2))))
    )


def test_a_record_comes_back_as_it_was_written() -> None:
    line = record(
        binaries.GpuCodeFound, library="/v/libx.so", package="x", version="1", native={"sm_90a": 3}, ptx={}, parts=3
    )
    (fact,) = facts(line)
    assert isinstance(fact, binaries.GpuCodeFound)
    assert (fact.library, fact.native, fact.ptx, fact.parts) == ("/v/libx.so", {"sm_90a": 3}, {}, 3)
    assert fact.text == "/v/libx.so (x 1): sm_90a ×3"
    assert fact.span.first_line == 2


def test_packages_of_the_environment_that_is_meant_are_versions() -> None:
    found = facts(
        record(binaries.PackageInstalled, environment="/v", name="vllm", version="0.11.0", chosen=True),
        record(binaries.PackageInstalled, environment="/w", name="torch", version="2.1.0"),
        record(binaries.TorchInstalled, environment="/v", version="2.9.0+cu128", cuda="12.8", chosen=True),
    )
    versions = [(f.name, f.version) for f in found if isinstance(f, ComponentVersion)]
    assert versions == [("vllm", "0.11.0"), ("torch-cuda", "12.8")]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"type":"NoSuchFact"}',
        '{"type":"GpuCodeFound"}',
        '{"type":"GpuCodeFound","library":3}',
        "words",
        "[1]",
    ],
)
def test_what_is_no_record_is_passed_over(line: str) -> None:
    assert facts(line) == []


def test_a_record_cannot_name_what_its_fact_does_not_have() -> None:
    with pytest.raises(TypeError, match="colour"):
        record(binaries.GpuCodeFound, library="x", colour="red")


def test_every_record_has_words_for_a_person() -> None:
    made: dict[type[Fact], dict[str, Any]] = {
        binaries.RequirementUnmet: {
            "environment": "/v",
            "package": "vllm",
            "version": "1",
            "needs": "torch",
            "wants": "torch==2",
        },
        binaries.LibraryUnfound: {"library": "/v/a.so", "needed": "libcudart.so.13"},
        binaries.SymbolsUnfound: {"library": "/v/a.so", "count": 1, "names": ["_ZN2at1xEv"], "torch": "2.9"},
        binaries.FrameworkStarted: {"version": "2.9.0", "devices": [["NVIDIA H100", "9.0"]]},
    }
    words = [fact.text for kind, fields in made.items() for fact in facts(record(kind, **fields))[:1]]
    assert "torch is not installed" in words[0] and "libcudart.so.13" in words[1] and "_ZN2at1xEv" in words[2]
    assert "NVIDIA H100 (9.0)" in words[3]
