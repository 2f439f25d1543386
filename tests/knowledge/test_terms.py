"""What `loadpath explain` can explain."""

from __future__ import annotations

import pytest

from loadpath.core.vocabulary import BOUNDARIES, STEPS
from loadpath.knowledge.tables import findings
from loadpath.knowledge.terms import find_term, normal, similar, terms


@pytest.mark.parametrize("name", [*STEPS, *BOUNDARIES])
def test_every_step_and_boundary_is_explained(name: str) -> None:
    term = find_term(name)
    assert term is not None and term.is_


def test_no_name_means_two_things() -> None:
    owners: dict[str, str] = {}
    for term in terms().values():
        for name in {normal(n) for n in (term.id, *term.names)}:
            assert owners.setdefault(name, term.id) == term.id, f"{name} is a name of {owners[name]} and of {term.id}"
    assert not set(terms()) & set(findings()), "a term and a finding share an id"


@pytest.mark.parametrize("asked", ["GPU-Util", "gpu util", "CUDA Version", "cuda_version", "mem-fraction-static"])
def test_found_however_it_is_spelled(asked: str) -> None:
    assert find_term(asked) is not None


def test_a_near_miss_gets_suggestions() -> None:
    assert "kv-cache" in similar("kvcache")
