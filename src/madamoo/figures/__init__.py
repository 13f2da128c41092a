"""``madamoo figures``: the paper's figures, drawn again, and what their captions say, measured.

Beside the library: :mod:`.experiments` runs the optimizers, :mod:`.claims` turns the runs into
numbers, :mod:`.tables` those into captions and tables, :mod:`.drawings` draws, :mod:`.fronts` draws what the lab has
learned, :mod:`.command` is the command.
"""
