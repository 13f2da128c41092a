"""Whether what was written to ``.grad`` still stands there, and whether it is ours."""

import torch

from madamoo.gradients import Written, foreign, used_up


def test_gradients_that_somebody_has_cleared():
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    for clear_it in (lambda p: setattr(p, "grad", None), lambda p: p.grad.zero_()):
        written = Written()
        for p in params:
            written.write(p, torch.ones(2))
        assert not written.was_cleared(params)
        clear_it(params[0])
        assert not written.was_cleared(params)  # the other one is still there
        clear_it(params[1])
        assert written.was_cleared(params)


def test_zeros_of_our_own_making_are_no_sign():
    param, written = torch.nn.Parameter(torch.ones(2)), Written()
    written.write(param, torch.zeros(2))
    assert not written.was_cleared([param])
    written.vanishes = True
    param.grad.zero_()
    assert not written.was_cleared([param])


def test_gradients_that_somebody_has_changed():
    param, written = torch.nn.Parameter(torch.ones(2)), Written()
    written.write(param, torch.ones(2))
    assert not written.was_touched([param.grad]) and not foreign([param])
    param.grad.mul_(2)
    assert written.was_touched([param.grad]) and not written.was_cleared([param])
    assert written.was_touched([torch.ones(2)])


def test_what_a_step_has_used_is_nobodys_until_it_changes():
    """Clipped, or put there by somebody else; then cleared in place, and added to."""
    param, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    Written().write(param, torch.ones(2))
    param.grad.mul_(2)
    other.grad = torch.ones(2)
    used_up([param, other])
    assert not foreign([param, other])
    param.grad.zero_()
    assert not foreign([param, other])
    param.square().sum().backward()
    assert foreign([param]) and not foreign([other])


def test_gradients_of_others():
    ours, theirs, none = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    Written().write(ours, torch.ones(2))
    theirs.square().sum().backward()
    assert foreign([none, theirs]) and not foreign([ours, none])
    theirs.grad.zero_()
    assert not foreign([theirs])
