"""Values of a kind pass, and of the others the first flaw is named."""

import pytest

from madamoo.kinds import COUNT, FLAG, LARGEST, MOST, NAME, NUMBER, TEXT, Maybe, Optional, flaw

GOOD = {
    NUMBER: [0, -1.5, LARGEST],
    COUNT: [0, 2**53 - 1],
    NAME: ["a", "ä b", "<b>"],
    TEXT: ["", "\n", "\ud800"],
    FLAG: [True, False],
}
BAD = {
    NUMBER: [True, "1", None, 10**400, -2 * LARGEST, float("nan"), float("inf")],
    COUNT: [True, -1, 1.0, 2**53],
    NAME: ["", "\x1b[2J", "\ud800", "x" * 5000, 3],
    TEXT: [None, 1],
    FLAG: [0, None, "true"],
}


def test_each_kind_takes_its_own_and_refuses_the_rest_in_printable_words():
    for kind in GOOD:
        for value in GOOD[kind]:
            assert flaw(value, kind, "it") == "" == flaw([value, value], [kind], "it") == flaw(None, Maybe(kind), "it")
        for value in BAD[kind]:
            found = flaw({"a": [value]}, {"a": [kind]}, "it")
            assert found.startswith("it.a[0] is ") and found.endswith(f"not {kind.name}")
            assert found.isascii() and found.isprintable() and len(found) < 100


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ({}, {"a": NUMBER}, "it has no a"),
        ({}, {"a": Maybe(NUMBER)}, "it has no a"),
        ({}, {"a": Optional(NUMBER)}, ""),
        ({"a": None, "b": object()}, {"a": Optional(NUMBER)}, ""),
        ({"a": "x"}, {"a": Optional(NUMBER)}, "it.a is 'x', not a number"),
        ([], {"a": NUMBER}, "it is [], not a dictionary"),
        ({}, [NUMBER], "it is {}, not a list"),
        ("ab", [TEXT], "it is 'ab', not a list"),
        ([1, 2, 3], (NUMBER, NUMBER), "it has 3 entries, not 2"),
        ([1, None], (NUMBER, Maybe(NUMBER)), ""),
        ({"": 1}, {NAME: NUMBER}, "a key of it is '', not a name"),
        ({"x": "y"}, {NAME: NUMBER}, "it['x'] is 'y', not a number"),
        ([0] * (MOST + 1), [NUMBER], f"it has {MOST + 1} entries, more than {MOST}"),
    ],
)
def test_what_is_made_of_kinds(value, kind, words):
    assert flaw(value, kind, "it") == words
