"""Which lines are a person's own words: headings, greetings, questions, the story around the output.

Unsure means output: a sentence that is taken for prose is never read for errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from loadpath.core.text import NO_ORIGIN, Line
from loadpath.intake.markup import FENCE

_FORM = re.compile(
    r"\s*(?:#{2,6}\s+\S|</?(?:details|summary|br|p|img|b|sub|h\d)\b[^>]*>|!\[|\[x\]|[-*] \[[ xX]\]"
    r"|_No response_|\*\*[^*]+\*\*:?\s*$)"
)
_PERSON = re.compile(
    r"\b(?:I|I'm|I've|I'd|I'll|Im|Ive)\b(?=[ ']\w|$)"
    r"|^(?:Hi|Hello|Hey|Dear|Greetings|Thanks|Thank you|Thx|Cheers|Regards)\b(?!<)"
    r"|(?i:\b(?:thanks in advance|any (?:help|ideas?|suggestions?|advice)|(?:does|has) (?:anyone|anybody)"
    r"|(?:can|could) (?:someone|somebody|anyone|anybody|you)|in my case|(?:same|similar) (?:issue|problem|error) here"
    r"|my (?:machine|server|setup|config|log|case|code|model|gpu|environment|docker|command|issue|problem)"
    r"|our (?:setup|cluster|server))\b)"
)
_ASKS = re.compile(
    r"\s*(?:How (?:do|can|to|come|should)|Why (?:does|is|do|are)|What (?:is|am|are|should|could|does)"
    r"|Is (?:there|this|it)|Are there|Am I|Any (?:idea|help)|Should I|Do I|Where)\b[^?]*\?\s*$"
)
_LEAD = re.compile(
    r"\s*(?:(?:And |But |Then |So )?(?:here(?:'s| is| are)|this is|below (?:is|are)|see (?:the )?(?:log|below)"
    r"|the (?:full |complete )?(?:log|output|error|command|stack ?trace|traceback|environment)s?(?: \w+)?"
    r" (?:is|are|was|looks?)|when (?:running|using|starting|trying)|after (?:upgrading|updating|running|installing)"
    r"|steps to reproduce|expected behaviou?r|actual behaviou?r|describe the bug|relevant log output)\b[^`]{0,80}:?"
    r"|(?:(?:your |my )?(?:current )?environment|(?:full |server )?logs?|output|command(?: line)?"
    r"|additional (?:info|context)\w*):?)\s*$",
    re.IGNORECASE,
)
_OUTPUT = re.compile(
    r"`[^`]*(?:[Ee]rror|[Ee]xception|failed|[Ff]ault|memory|Xid|Killed|[Nn]o such|cannot|not found)[^`]*`"
    r"|\"[^\"]*(?:[Ee]rror: |Exception: |Xid)[^\"]*\"|\b\w+(?:Error|Exception)\b:|\bXid\b.*\d"
    r"|^\s*(?:[-+|]|\d+[%:])|\|.*\|"
)
_COMMAND = re.compile(
    r"\s*(?:[$#%>»❯]\s|\(?[\w.-]*\)?\s?[\w.-]+@[\w.-]+[:~ ]|[A-Z_][A-Z0-9_]*=\S+ \S"
    r"|(?:sudo|docker|podman|vllm|python3?|pip3?|nvidia-smi|kubectl|helm|export|ollama|llama-server|llama-cli|\./\S+"
    r"|sglang|trtllm-serve|text-generation-launcher|lmdeploy|torchrun|deepspeed|accelerate|ray|srun|sbatch|mpirun"
    r"|apt(?:-get)?|curl|git|conda|uv|cd|ls|cat|lspci|dmesg|journalctl|systemctl|modprobe|lsmod)\s+\S)"
    r"|.*\s--?[a-z][\w-]+"
)
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*[,.;:!?]?$|[A-Za-z]+/[A-Za-z]+$|&$|-$|–$")


_KEY = re.compile(r"\s+[\w-]+:\s*$")
"""An indented `command:` or `environment:` is a key of a YAML file, no heading."""
LONGEST = 1500  # characters: people write shorter lines than programs


def mark(lines: Sequence[Line]) -> list[Line]:
    """`lines` with `prose` set where a person speaks."""
    fenced = sum(1 for line in lines if FENCE.match(line.raw)) > 1
    out: list[Line] = []
    inside = speaking = False
    for line in lines:
        if fenced and FENCE.match(line.raw):
            inside, speaking = not inside, False
            out.append(msgspec.structs.replace(line, prose=True))
            continue
        bare = not inside and 0 < len(line.text) <= LONGEST and line.origin is NO_ORIGIN
        spoken = bare and _spoken(line.text, fenced=fenced, speaking=speaking)
        # Only a sentence goes on in the next line; a heading or a tag does not.
        speaking = spoken and not _FORM.match(line.text)
        out.append(msgspec.structs.replace(line, prose=True) if spoken else line)
    return out


def _spoken(text: str, *, fenced: bool, speaking: bool) -> bool:
    if _FORM.match(text):
        return True
    if _OUTPUT.search(text) or _COMMAND.match(text):
        return False
    words = text.split()
    if _PERSON.search(text) or _ASKS.match(text) or (_LEAD.match(text) and len(words) < 16 and not _KEY.match(text)):
        return True
    if len(words) < 4 or text[0].isspace():
        return False
    plain = sum(1 for word in words if _PLAIN_WORD.match(word))
    if speaking and text[0].islower() and ":" not in words[0]:
        return plain >= 0.85 * len(words)
    return fenced and len(words) > 5 and text[0].isupper() and plain >= 0.85 * len(words) and text[-1] in ".:!?,"
