"""``madamoo demo``: what the library is for in about a minute, on two cores, without a download.

A room of its own beside the library: it imports the public names, and nothing imports it but the command line.
:mod:`.digits` and :mod:`.physics` train, :mod:`.contest` says who is run at which rate, :mod:`.summary` and
:mod:`.words` make numbers and sentences of the runs, :mod:`.figures` and :mod:`.page` show them.
"""
