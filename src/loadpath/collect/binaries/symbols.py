"""Does a library define a function? Look-ups in the GNU hash table of its dynamic symbols, as the loader makes them.

torch's libraries export 200,000 names: a look-up costs microseconds, a walk through the table a second.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadpath.collect.binaries.elf import BadElf, Elf

_SYMBOL_SIZE = 24  # an ELF64 symbol: name, info, other, section, value, size
_WEAK = 2
_MOST = 1 << 20


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


class Exports:
    """The dynamic symbols that one library defines."""

    def __init__(self, elf: Elf) -> None:
        """Raises BadElf for a library without a GNU hash table (none has been built without one for fifteen years)."""
        if elf.bits != 64 or elf.gnu_hash is None or elf.symbols is None or elf.strings is None:
            raise BadElf("it has no table of exported symbols")
        self._elf, self._symbols, self._strings = elf, elf.symbols, elf.strings
        self._buckets, self._first, self._words, self._shift = elf.unpack("IIII", elf.gnu_hash)
        if not self._buckets or not self._words:
            raise BadElf("its table of exported symbols is damaged")
        self._bloom = elf.gnu_hash + 16
        self._table = self._bloom + 8 * self._words
        self._chain = self._table + 4 * self._buckets

    def __contains__(self, name: str) -> bool:
        elf, wanted = self._elf, gnu_hash(name)
        (word,) = elf.unpack("Q", self._bloom + 8 * (wanted // 64 % self._words))
        if not (word >> wanted % 64 & 1 and word >> (wanted >> self._shift) % 64 & 1):
            return False
        (index,) = elf.unpack("I", self._table + 4 * (wanted % self._buckets))
        if index < self._first:
            return False
        for n in range(index, index + _MOST):
            (found,) = elf.unpack("I", self._chain + 4 * (n - self._first))
            if found | 1 == wanted | 1 and self._name(n) == name:
                return True
            if found & 1:
                return False
        return False

    def _name(self, index: int) -> str:
        (offset,) = self._elf.unpack("I", self._symbols + _SYMBOL_SIZE * index)
        return self._elf.text(self._strings + offset)


def undefined(elf: Elf) -> Iterator[str]:
    """The names that a library needs from others, without those that it can do without (weak ones).

    They stand at the head of the symbol table, before the first name of the hash table.
    """
    if elf.bits != 64 or elf.gnu_hash is None or elf.symbols is None or elf.strings is None:
        return
    _, first, _, _ = elf.unpack("IIII", elf.gnu_hash)
    for n in range(1, min(first, _MOST)):
        name, info, _, section = elf.unpack("IBBH", elf.symbols + _SYMBOL_SIZE * n)
        if section == 0 and name and info >> 4 != _WEAK:
            yield elf.text(elf.strings + name)
