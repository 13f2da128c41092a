from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madamoo.bench.runs._spec import canonical, parse, write


def test_name_and_options():
    for spec, name, options in (
        ("ls", "ls", {}),
        (" CAGrad:c=0.4", "cagrad", {"c": 0.4}),
        ("madam:rampup=100:ramp=paper", "madam", {"rampup": 100, "ramp": "paper"}),
        ("x:a=true:b=False:c=none:d=1e-3:e=-2", "x", {"a": True, "b": False, "c": None, "d": 0.001, "e": -2}),
        ("x:w=(1, 2)", "x", {"w": (1, 2)}),
        ("x:a=b=c", "x", {"a": "b=c"}),
        ("x:a=", "x", {"a": ""}),
    ):
        assert parse(spec) == (name, options)
        assert [type(v) for v in parse(spec)[1].values()] == [type(v) for v in options.values()]


def test_what_is_no_spec_is_refused_by_name():
    for spec in ("x:", "x:c", "x:=1", "x:c=1:c=2", "x:a b=1", "::", "x:1=2"):
        with pytest.raises(ValueError, match=r"is not of the form name:option=value"):
            parse(spec)


@given(st.text(alphabet="a:='\"([{\\\n0e,-", max_size=30))
def test_any_text_is_a_spec_or_refused(text):
    with suppress(ValueError):
        canonical(text)


def test_nested_brackets_are_text():
    assert parse("x:a=" + "(" * 9999)[1]["a"] == "(" * 9999


def test_equal_things_have_equal_names():
    for one, other in (
        ("m:a=1:b=2", "M:b=2:a=1"),
        ("m:a=1e-3", "m:a=0.001"),
        ("m:a=true", "m:a=True"),
        ("m:w=(1,2)", "m:w=(1, 2)"),
    ):
        assert canonical(one) == canonical(other)


VALUES = st.one_of(st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES, max_size=4))
def test_what_is_written_is_read_back(options):
    text = write("name", options)
    assert parse(text) == ("name", options)
    assert canonical(text) == text
