"""The installed packages of the Python environments, and which of their declared requirements are not met."""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.collect.distributions import Distribution, distributions, normal
from loadpath.collect.probe import Machine, Probe, Sample
from loadpath.collect.pythons import Environment, environments
from loadpath.collect.records import record, timed
from loadpath.core.facts.binaries import PackageInstalled, RequirementUnmet


@timed
def gather(machine: Machine) -> Iterator[Sample]:
    lines: list[str] = []
    note = ""
    for environment in environments(machine):
        packages = distributions(machine, environment)
        lines += [
            record(
                PackageInstalled,
                environment=environment.prefix,
                name=package.name,
                version=package.version,
                folder=package.site,
                chosen=environment.chosen,
            )
            for package in packages
        ]
        try:
            lines += _unmet(environment, packages)
        except ImportError:
            note = "requirements were not compared: pip install 'loadpath[check]' brings what that needs"
    yield machine.told(lines, name="python-packages", kind="inventory", command="read */site-packages/*.dist-info/METADATA",
                       outcome="ok" if lines else "missing", note=note)  # fmt: skip


def _unmet(environment: Environment, packages: list[Distribution]) -> Iterator[str]:
    """As `pip check` finds them. Raises ImportError where the library that compares versions is not installed."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    if "." not in environment.python:
        return  # whether a marker applies cannot be told
    have: dict[str, str] = {}
    for package in packages:
        have.setdefault(package.name, package.version)  # the first in the path is the one that is imported
    marks = {"python_version": environment.python, "python_full_version": f"{environment.python}.0", "extra": ""}
    for package in packages:
        for text in package.requires:
            try:
                wanted = Requirement(text)
                if wanted.marker is not None and not wanted.marker.evaluate(marks):
                    continue
                has = have.get(normal(wanted.name), "")
                if has and wanted.specifier.contains(Version(has), prereleases=True):
                    continue
            except (InvalidRequirement, InvalidVersion):
                continue
            wants = f"{wanted.name}{wanted.specifier}"
            yield record(RequirementUnmet, environment=environment.prefix, package=package.name, version=package.version,
                         needs=normal(wanted.name), wants=wants, has=has)  # fmt: skip


PROBES = (Probe("python-packages", "inventory", "library-set", gather),)
