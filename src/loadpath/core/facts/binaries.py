"""Facts about the software that lies on a machine: Python environments, their packages, the GPU code and the needs of
their libraries. All are read from files; nothing was loaded or run. Paths are as the machine names them.

`environment` is the prefix of a Python environment (`/opt/venv`), "" for what belongs to none.
"""

from __future__ import annotations

from typing import Literal

from loadpath.core.facts.base import Fact

LibraryPlace = Literal["pip", "conda", "toolkit", "system", "bundled", "compat"]


class PythonEnvironment(Fact, frozen=True, kw_only=True):
    """A Python environment with packages for GPUs. `how`: how it was found; `chosen`: the one that is meant where a
    report speaks of "the" environment (that of a running engine, else the active one, else the first)."""

    environment: str
    python: str = ""
    how: str = ""
    chosen: bool = False
    packages: int = 0


class PackageInstalled(Fact, frozen=True, kw_only=True):
    """One installed package; `folder`: the site-packages that its metadata lies in."""

    environment: str
    name: str
    version: str
    folder: str = ""
    chosen: bool = False


class RequirementUnmet(Fact, frozen=True, kw_only=True):
    """`package` declares that it needs `wants` (`torch==2.8.0`), and `has` is installed ("" for not at all)."""

    environment: str
    package: str
    version: str
    needs: str
    wants: str
    has: str = ""


class TorchInstalled(Fact, frozen=True, kw_only=True):
    """PyTorch as its own files state it. `cuda`: what it was built with, "" for a build without; `cxx11_abi`: which
    C++ string ABI its libraries export."""

    environment: str
    version: str
    cuda: str = ""
    hip: str = ""
    cxx11_abi: bool | None = None
    chosen: bool = False


class GpuCodeFound(Fact, frozen=True, kw_only=True):
    """The GPU code in one library (or, `files` > 1, in a folder of cubins): kernel files by architecture.

    `native`: machine code, `{"sm_90a": 64}`; `ptx`: code that the driver compiles, `{"compute_80": 12}`; `isa` the newest
    PTX version among it; `parts` how many kernel files (translation units) there are in all.
    """

    library: str
    environment: str = ""
    package: str = ""
    version: str = ""
    files: int = 1
    bytes: int = 0
    parts: int = 0
    native: dict[str, int] = {}
    ptx: dict[str, int] = {}
    isa: str = ""
    problem: str = ""
    chosen: bool = False


class CudaLibraryFound(Fact, frozen=True, kw_only=True):
    """A library of CUDA's on disk: `name` `libcudart`, `soname` `libcudart.so.12`, `version` as its file name or its
    package says (`12.8.90`)."""

    name: str
    soname: str
    path: str
    version: str = ""
    place: LibraryPlace = "system"
    package: str = ""
    environment: str = ""
    chosen: bool = False


class LibrariesResolved(Fact, frozen=True, kw_only=True):
    """How many libraries of an environment were followed, with how many needs, and how many of those stayed open."""

    environment: str
    libraries: int
    needs: int
    unfound: int = 0
    symbols: int = 0
    """Functions of torch that extensions ask for and that were looked up."""


class LibraryUnfound(Fact, frozen=True, kw_only=True):
    """`library` needs `needed`, and no such file is where the loader looks, nor in the environment."""

    library: str
    needed: str
    environment: str = ""
    package: str = ""
    version: str = ""
    askers: int = 1
    modules: int = 0
    """How many compiled modules the package has, the askers among them: a minority may be optional."""
    elsewhere: str = ""
    """A file of that name that lies where the loader does not look."""


class LibraryShadowed(Fact, frozen=True, kw_only=True):
    """`library` needs `needed`; the loader would take `taken`, before the copy `own` that the environment brings."""

    library: str
    needed: str
    taken: str
    own: str
    how: str
    environment: str = ""
    package: str = ""
    taken_version: str = ""
    own_version: str = ""


class SymbolsUnfound(Fact, frozen=True, kw_only=True):
    """`library` asks torch for functions that the installed torch does not define; `names` the first few, mangled."""

    library: str
    count: int
    names: tuple[str, ...] = ()
    environment: str = ""
    package: str = ""
    version: str = ""
    torch: str = ""
    old_abi: bool = False
    """The names are of the old C++ string ABI, the torch here exports the new one."""


class SystemVersionUnmet(Fact, frozen=True, kw_only=True):
    """`library` asks for `wants` (`GLIBC_2.38`) of the C or C++ library at `path`, whose newest is `has` (`2.35`)."""

    library: str
    wants: str
    has: str
    path: str
    environment: str = ""
    package: str = ""
    version: str = ""


class FileOwnedTwice(Fact, frozen=True, kw_only=True):
    """Two packages that both installed the same library: the later one's copy is there, and removing either takes it away."""

    file: str
    packages: tuple[str, ...]
    environment: str = ""
    files: int = 1


class BuiltForOther(Fact, frozen=True, kw_only=True):
    """All compiled modules of a package are for another Python or another machine: `what` `Python 3.10`, `aarch64`."""

    package: str
    version: str
    library: str
    what: str
    here: str
    environment: str = ""


class FrameworkStarted(Fact, frozen=True, kw_only=True):
    """What PyTorch said of itself when it was imported and asked, in a process of its own."""

    version: str
    cuda: str = ""
    available: bool = False
    archs: tuple[str, ...] = ()
    devices: tuple[tuple[str, str], ...] = ()
    """(name, compute capability) of each GPU that it sees."""
    cudnn: str = ""
    nccl: str = ""
    driver_cuda: str = ""
