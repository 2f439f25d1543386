"""What is asked: synthetic prompts of wanted lengths, or those of a file. Conversations keep their history."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import msgspec

from loadpath.traffic.lengths import Lengths
from loadpath.traffic.texts import TextMaker

Message = dict[str, str]


class Prompt(msgspec.Struct, frozen=True):
    """One request to be made. `tokens`: wanted prompt tokens, None for texts of a file."""

    messages: tuple[Message, ...]
    output: int | None
    tokens: int | None = None
    at: float | None = None
    """Seconds from the trace's start, where the prompt comes from one."""

    @property
    def text(self) -> str:
        """As one text, for completions and embeddings."""
        if len(self.messages) == 1:
            return self.messages[0]["content"]
        return "\n\n".join(f"{m['role']}: {m['content']}" for m in self.messages)


class Talk(msgspec.Struct, frozen=True):
    """A conversation: its turns are asked one after the other, each with the history before it."""

    turns: tuple[Prompt, ...]


class Synthetic(msgspec.Struct, frozen=True):
    """Prompts by length. `prefix`: tokens that all prompts share at their beginning. `same`: one prompt for all."""

    inputs: Lengths
    outputs: Lengths
    prefix: int = 0
    turns: int = 1
    same: bool = False
    seed: int = 0

    def talks(self, maker: TextMaker) -> Iterator[Talk]:
        """Endless."""
        random = Random(self.seed)
        prefix = maker.piece(self.prefix) if self.prefix else ""
        if self.same:
            only = self._talk(maker, random, prefix)
            while True:
                yield only
        for _ in count():
            yield self._talk(maker, random, prefix)

    def _talk(self, maker: TextMaker, random: Random, prefix: str) -> Talk:
        made = []
        for turn in range(self.turns):
            tokens = self.inputs.draw(random)
            own = max(1, tokens - self.prefix) if prefix and not turn else tokens
            text = maker.prompt(own) if not turn else maker.piece(own)
            content = f"{prefix} {text}" if prefix and not turn else text
            made.append(Prompt(({"role": "user", "content": content},), self.outputs.draw(random), tokens))
        return Talk(tuple(made))


class Listed(msgspec.Struct, frozen=True):
    """Conversations of a file, from the first again when they run out."""

    all: tuple[Talk, ...]

    def talks(self, maker: TextMaker) -> Iterator[Talk]:
        while True:
            yield from self.all


class Replayed(msgspec.Struct, frozen=True):
    """A trace: lengths and arrival times. Ends when the trace does."""

    calls: tuple[tuple[float, int, int], ...]
    """Seconds from the first, prompt tokens, output tokens."""

    def talks(self, maker: TextMaker) -> Iterator[Talk]:
        for at, tokens, output in self.calls:
            message = {"role": "user", "content": maker.prompt(tokens)}
            yield Talk((Prompt((message,), output, tokens, at),))


Dataset = Synthetic | Listed | Replayed
