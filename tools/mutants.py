"""Where C++ can be broken: the places of one file and what tools/mutate.py writes there.

A place is one of

* `negate`    if (c)            -> if (!c)
* `compare`   a < b             -> a <= b; a == b -> a != b; and their like
* `logic`     a && b            -> a || b, and the other way
* `sign`      a + b             -> a - b, and the other way
* `extreme`   std::min(a, b)    -> std::max(a, b), and the other way
* `number`    7                 -> 8 (1 -> 0, 0.5 -> 1)
* `truth`     true              -> false, and the other way
* `delete`    f(x); x = y; ++x; return; break; continue;   -> nothing

in the body of a function. Left out, since no test could or should notice them:

* what is no function's body, and constexpr functions: constants there are fixed when the file is compiled
* arguments of the calls in TEXT: words of messages
* calls in SILENT: capacity, and checks of our own bugs
* `sign` beside text, `case` labels, statements with constexpr
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

TEXT = {"format", "annotate", "Status", "runtime_error", "value_error", "type_error", "join", "log", "log_"}
SILENT = {
    "reserve",
    "shrink_to_fit",
    "HEADRACE_CHECK",
    "HEADRACE_DCHECK",
    "HEADRACE_TRY_ASSIGN",
    "static_assert",
}

CONSTANT = {"case", "constexpr", "static_assert"}

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"
    r'|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    r"|[A-Za-z_]\w*|\d(?:[\w.]|'\d)*"
    r"|<=>|<<=|>>=|->|[-+*/%&|^=!<>]=|&&|\|\||<<|>>|\+\+|--|::|\S",
    re.S | re.M,
)
PRECEDENCE = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6} | dict.fromkeys(
    ["<", ">", "<=", ">="], 7
)
PRECEDENCE |= {"<=>": 8, "<<": 9, ">>": 9, "+": 10, "-": 10, "*": 11, "/": 11, "%": 11}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
SWAP = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
KIND = dict.fromkeys(["<", "<=", ">", ">=", "==", "!="], "compare") | {"&&": "logic", "||": "logic"}
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}
END = {",", ";", "{", "}", "?", ":", "return", "else", "case", "do", "throw", *ASSIGN}
NO_CALL = {
    "return",
    "if",
    "for",
    "while",
    "switch",
    "case",
    "throw",
    "using",
    "static",
    "const",
    "auto",
    "delete",
    "goto",
}


@dataclass(frozen=True)
class Place:
    """What to write in place of text[begin:end]; `{m}` in it is true when the mutant is on."""

    line: int
    begin: int
    end: int
    kind: str
    template: str

    def text(self, number: int) -> str:
        return self.template.replace("{m}", f"::headrace_mutant({number})")


class Source:
    """The tokens of a file, and the places where it can be broken."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = [m for m in TOKEN.finditer(text) if not m[0].lstrip().startswith(("//", "/*", "#"))]
        self.tokens = [m[0] for m in found]
        self.begins = [m.start() for m in found]
        self.ends = [m.end() for m in found]
        self.partner = self._partners()
        self.bodies = self._bodies()

    def places(self) -> list[Place]:
        """All, in the order of the file."""
        found: list[Place] = []
        for begin, end in self.bodies:
            for i in range(begin, end):
                for place in self._at(i):
                    if "//" not in self.text[place.begin : place.end]:
                        found.append(place)
        return found

    def _partners(self) -> dict[int, int]:
        partner: dict[int, int] = {}
        stack: list[int] = []
        for i, token in enumerate(self.tokens):
            if token in OPEN:
                stack.append(i)
            elif token in CLOSE and stack and self.tokens[stack[-1]] == CLOSE[token]:
                partner[i] = stack.pop()
                partner[partner[i]] = i
        return partner

    def _bodies(self) -> list[tuple[int, int]]:
        """Token ranges within the braces of functions."""
        bodies: list[tuple[int, int]] = []
        i = head = 0
        while i < len(self.tokens):
            token = self.tokens[i]
            if token == "(" and i in self.partner:
                i = self.partner[i]
            elif token in ";}":
                head = i + 1
            elif token == "{" and i in self.partner:
                before = self.tokens[head:i]
                is_scope = "namespace" in before or (
                    "(" not in before and not {"class", "struct", "union"}.isdisjoint(before)
                )
                if not is_scope:
                    if "(" in before and "constexpr" not in before and "consteval" not in before:
                        bodies.append((i + 1, self.partner[i]))
                    i = self.partner[i]
                head = i + 1
            i += 1
        return bodies

    def _at(self, i: int) -> Iterator[Place]:
        """The places whose operator, literal or statement begins at token i."""
        token = self.tokens[i]
        if self._is_left_out(i):
            return
        if token in KIND and self._is_binary(i):
            yield from self._swapped(i)
        elif token in "+-" and self._is_binary(i):
            right = self._right(i)
            words = self.tokens[self._left(i) : right + 1]
            if not any(word[0] in "\"'" or word == "to_string" for word in words):
                term = self._span(i + 1, right)
                yield self._place(i, i + 1, right, "sign", f"({{m}} ? -({flat(term)}) : ({term}))")
        elif token == "if" and self.tokens[i + 1] == "(" and (close := self.partner.get(i + 1)):
            if not {";", "="} & set(self._top(i + 2, close)):
                condition = self._span(i + 2, close - 1)
                yield self._place(i, i + 2, close - 1, "negate", f"{{m}} != static_cast<bool>({condition})")
        elif (
            token in ("min", "max") and self.tokens[i - 2 : i] == ["std", "::"] and self.tokens[i + 1] == "("
        ):
            close = self.partner[i + 1]
            other = {"min": "max", "max": "min"}[token]
            arguments = self._span(i + 1, close)
            swapped = f"({{m}} ? std::{other}{flat(arguments)} : std::{token}{arguments})"
            yield self._place(i, i - 2, close, "extreme", swapped)
        elif token in ("true", "false"):
            yield self._place(i, i, i, "truth", f"({{m}} != {token})")
        elif token[0].isdigit() and not any(c in token for c in "eEpP"[: 4 * (token[:2] != "0x")]):
            other = f"2 * {token}" if "." in token else "0" if token == "1" else f"{token} + 1"
            yield self._place(i, i, i, "number", f"({{m}} ? {other} : {token})")
        if self._begins_statement(i):
            yield from self._deleted(i)

    def _swapped(self, i: int) -> Iterator[Place]:
        begin, end, token = self._left(i), self._right(i), self.tokens[i]
        if begin >= i or end <= i:
            return
        a, b = self._span(begin, i - 1), self._span(i + 1, end)
        swapped = f"({{m}} ? ({flat(a)}) {SWAP[token]} ({flat(b)}) : ({a}) {token} ({b}))"
        yield self._place(i, begin, end, KIND[token], swapped)

    def _deleted(self, i: int) -> Iterator[Place]:
        end = i
        while end < len(self.tokens) and self.tokens[end] != ";":
            if self.tokens[end] == "{" and self.tokens[end - 1] not in (",", "(", "="):
                return
            end = self.partner.get(end, end) + 1 if self.tokens[end] in OPEN else end + 1
        top = self._top(i, end)
        assign = next((at for at, token in enumerate(top) if token in ASSIGN), None)
        names = top[:assign]
        is_call = assign is None and bool(top) and top[-1] == ")"
        is_jump = top in (["return"], ["break"], ["continue"])
        is_step = top[:1] in (["++"], ["--"]) and len(top) > 1
        if not (is_jump or is_step):
            words = [token == "this" or token[0].isalpha() or token[0] == "_" for token in names]
            is_name = all(
                w or t in (".", "->", "::", "(", ")", "[", "]") for w, t in zip(words, names, strict=True)
            )
            is_two = any(a and b for a, b in itertools.pairwise(words))
            if not (is_call or assign) or not is_name or is_two or names[0] in NO_CALL:
                return
            if not SILENT.isdisjoint(names):
                return
        statement = self._span(i, end)
        yield self._place(i, i, end, "delete", f"{{ if (!{{m}}) {{ {statement} }} }}")

    def _begins_statement(self, i: int) -> bool:
        before = self.tokens[i - 1]
        if before == ")":
            return self.tokens[self.partner.get(i - 1, 0) - 1] in ("if", "for", "while")
        is_word = self.tokens[i][0].isalpha() or self.tokens[i][0] == "_"
        return before in (";", "{", "}", "else") and (is_word or self.tokens[i] in ("++", "--"))

    def _is_left_out(self, i: int) -> bool:
        """In the words of a message, a label, or a constant."""
        at = i
        while at > 0:
            at -= 1
            token = self.tokens[at]
            if token in ")]" or (
                token == "}" and self.tokens[self.partner.get(at, 0) - 1] in (",", "(", "=")
            ):
                at = self.partner.get(at, at)
            elif token in CONSTANT or (token == "(" and self.tokens[at - 1] in TEXT | SILENT):
                return True
            elif token in ";{}":
                return False
        return False

    def _is_binary(self, i: int) -> bool:
        """Clang-format sets binary operators, and them alone, between blanks."""
        return self.ends[i - 1] < self.begins[i] and self.ends[i] < self.begins[i + 1]

    def _is_end(self, i: int, limit: int) -> bool:
        token = self.tokens[i]
        return token in END or (PRECEDENCE.get(token, 99) <= limit and self._is_binary(i))

    def _left(self, i: int) -> int:
        """The first token of the operand on the left."""
        at = i - 1
        while not self._is_end(at, PRECEDENCE[self.tokens[i]]) and self.tokens[at] not in OPEN:
            at = self.partner.get(at, at) - 1 if self.tokens[at] in CLOSE else at - 1
        return at + 1

    def _right(self, i: int) -> int:
        """The last token of the operand on the right."""
        at = i + 1
        while self.tokens[at] not in CLOSE and (
            self.tokens[at] == "{" or not self._is_end(at, PRECEDENCE[self.tokens[i]])
        ):
            at = self.partner.get(at, at) + 1 if self.tokens[at] in OPEN else at + 1
        return at - 1

    def _top(self, begin: int, end: int) -> list[str]:
        """The tokens of [begin, end) that no bracket within it encloses."""
        top: list[str] = []
        at = begin
        while at < end:
            top.append(self.tokens[at])
            if self.tokens[at] in OPEN and at in self.partner:
                at = self.partner[at]
                top.append(self.tokens[at])
            at += 1
        return top

    def _span(self, first: int, last: int) -> str:
        return self.text[self.begins[first] : self.ends[last]]

    def _place(self, at: int, first: int, last: int, kind: str, template: str) -> Place:
        line = self.text.count("\n", 0, self.begins[at]) + 1
        return Place(line, self.begins[first], self.ends[last], kind, template)


def flat(text: str) -> str:
    """On one line, so that the lines of the file keep their numbers."""
    return re.sub(r"\s+", " ", text)
