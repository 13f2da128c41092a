import pytest
from hypothesis import given
from hypothesis import strategies as st

from madamoo.bench.runs._spec import canonical, parse, write


@pytest.mark.parametrize(
    ("spec", "name", "options"),
    [
        ("ls", "ls", {}),
        (" CAGrad:c=0.4", "cagrad", {"c": 0.4}),
        ("madam:rampup=100:ramp=paper", "madam", {"rampup": 100, "ramp": "paper"}),
        ("x:a=true:b=False:c=none:d=1e-3:e=-2", "x", {"a": True, "b": False, "c": None, "d": 0.001, "e": -2}),
        ("x:w=(1, 2)", "x", {"w": (1, 2)}),
        ("x:a=b=c", "x", {"a": "b=c"}),
        ("x:a=", "x", {"a": ""}),
    ],
)
def test_name_and_options(spec, name, options):
    assert parse(spec) == (name, options)
    assert [type(v) for v in parse(spec)[1].values()] == [type(v) for v in options.values()]


@pytest.mark.parametrize("spec", ["x:", "x:c", "x:=1", "x:c=1:c=2", "x:a b=1", "::", "x:1=2"])
def test_what_is_no_spec_is_refused_by_name(spec):
    with pytest.raises(ValueError, match=r"is not of the form name:option=value"):
        parse(spec)


@pytest.mark.parametrize(
    ("one", "other"),
    [("m:a=1:b=2", "M:b=2:a=1"), ("m:a=1e-3", "m:a=0.001"), ("m:a=true", "m:a=True"), ("m:w=(1,2)", "m:w=(1, 2)")],
)
def test_equal_things_have_equal_names(one, other):
    assert canonical(one) == canonical(other)


VALUES = st.one_of(st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES, max_size=4))
def test_what_is_written_is_read_back(options):
    text = write("name", options)
    assert parse(text) == ("name", options)
    assert canonical(text) == text
