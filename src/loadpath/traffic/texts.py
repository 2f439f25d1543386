"""Text of a wanted number of tokens, each time another: so that no prefix cache answers for the model."""

from __future__ import annotations

from random import Random

import msgspec

# Common words that most vocabularies hold as one token with the blank before them.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand part "
    "place case week company system program question work government number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father power "
    "hour game line end member law car city community name president team minute idea body information back parent face "
    "others level office door health person art war history party result change morning reason research girl guy moment "
    "air teacher force education foot boy age policy music market sense nation plan college interest death experience "
    "effect use class control care field development role effort rate heart drug show leader light voice wife police mind "
    "price report decision son view relationship town road arm difference value building action season society tax "
    "director position player record paper space ground form event official matter center couple site project activity "
    "star table need court oil situation cost industry figure street image phone data picture practice piece land product "
    "doctor wall patient worker news test movie north love support technology step baby computer type attention film tree"
)
WORDS = _TEXT.split()
UNIQUE = 6
"""Random words at the head of every text: 190^6 beginnings."""
_POOL = 8192


class Rate(msgspec.Struct, frozen=True):
    """How many tokens a text takes on this server: `words * per_word + overhead` (template, special tokens)."""

    per_word: float = 1.0
    overhead: float = 0.0

    def words(self, tokens: int) -> int:
        return max(1, round((tokens - self.overhead) / self.per_word))


class TextMaker:
    """Seeded: the same seed makes the same texts in the same order."""

    def __init__(self, seed: int, rate: Rate) -> None:
        self.rate = rate
        self._random = Random(seed)
        self._pool = self._random.choices(WORDS, k=_POOL)

    def words(self, count: int) -> str:
        """`count` words whose beginning is in no other text."""
        head = self._random.choices(WORDS, k=min(UNIQUE, count))
        left = count - len(head)
        body: list[str] = []
        while left > 0:
            begin = self._random.randrange(_POOL)
            taken = self._pool[begin : begin + left]
            body += taken
            left -= len(taken)
        return " ".join(head + body)

    def prompt(self, tokens: int) -> str:
        """A text that makes a prompt of about `tokens` tokens, template included."""
        return self.words(self.rate.words(tokens))

    def piece(self, tokens: int) -> str:
        """A text of about `tokens` tokens, without a template."""
        return self.words(max(1, round(tokens / self.rate.per_word)))
