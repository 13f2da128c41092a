"""``madamoo figures``: the paper's figures, drawn anew, and what their captions say, measured.

A room of its own beside the library: :mod:`.experiments` runs the optimizers, :mod:`.claims` turns the runs into
numbers, :mod:`.tables` those into captions and tables, :mod:`.drawings` draws, :mod:`.fronts` draws what the lab has
learned, :mod:`.command` is the command.
"""
